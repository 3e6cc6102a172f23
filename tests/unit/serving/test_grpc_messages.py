"""TensorFlow Serving's messages against the official classes of tensorflow-serving-api, both ways;
and against bytes that are none.
"""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.protos import block, field, varint
from tensorwire.core import dtypes
from tensorwire.serving.rpc import messages as rpc
from tensorwire.serving.rpc.messages import ModelSpec, VersionStatus
from tensorwire.serving.signature import Signature
from tensorwire.testing import strategies as tws
from tensorwire.testing.sampling import DTYPES

ROWS = [row for row in DTYPES if row.tf is not None]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
FLOATS = st.floats(width=32)
SPEC = ModelSpec("ranker", 3, None, "score")


def specs():
    version = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
    plain = st.builds(ModelSpec, TEXT, version, st.none(), TEXT)
    return st.one_of(plain, st.builds(ModelSpec, TEXT, st.none(), TEXT, TEXT))


def tensors():
    return st.one_of(
        tws.arrays().filter(lambda x: dtypes.of(x.dtype).tf is not None), tws.strings(text=False)
    )


def named():
    return st.dictionaries(TEXT, tensors(), max_size=4)


@pytest.fixture(scope="session")
def theirs(tf):
    """The official classes. They must be there: nothing here is worth anything without them."""
    from google.protobuf import any_pb2, wrappers_pb2
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        model_pb2,
        predict_pb2,
        regression_pb2,
    )

    found = SimpleNamespace(
        Any=any_pb2.Any,
        Int64Value=wrappers_pb2.Int64Value,
        SavedModel=saved_model_pb2.SavedModel,
        tf=tf,
    )
    for module in (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        model_pb2,
        predict_pb2,
        regression_pb2,
    ):
        vars(found).update(
            {name: getattr(module, name) for name in module.DESCRIPTOR.message_types_by_name}
        )
    return found


def their_spec(theirs, spec):
    found = theirs.ModelSpec(name=spec.name, signature_name=spec.signature)
    if spec.version is not None:
        found.version.CopyFrom(theirs.Int64Value(value=spec.version))
    if spec.label is not None:
        found.version_label = spec.label
    return found


def their_tensor(theirs, tensor):
    """As values in tensor_content, or as strings."""
    if isinstance(tensor, tw.Strings):
        proto = theirs.tf.make_tensor_proto(np.zeros(0, object), theirs.tf.string, tensor.shape)
        del proto.string_val[:]
        proto.string_val.extend(tensor.reshape(-1).tolist())
        return proto
    return their_typed(theirs, tensor) if not tensor.size else content(theirs, tensor)


def content(theirs, array):
    proto = theirs.tf.make_tensor_proto(0.0)
    proto.Clear()
    row = dtypes.of(array.dtype)
    proto.dtype, proto.tensor_content = row.tf, array.tobytes()
    for dim in array.shape:
        proto.tensor_shape.dim.add(size=dim)
    if not array.shape:
        proto.tensor_shape.SetInParent()
    return proto


def their_typed(theirs, array):
    """As TensorFlow Serving answers: the values in the field of their type, which
    Tensor::AsProtoField in C++ fills.
    """
    proto = content(theirs, array)
    row = dtypes.of(array.dtype)
    proto.ClearField("tensor_content")
    name = proto.DESCRIPTOR.fields_by_number[row.field].name
    flat = array.reshape(-1)
    if row.field == 18:
        proto.float8_val = flat.tobytes()
    elif row.field == 13:
        proto.half_val.extend(flat.view(np.uint16).tolist())
    elif row.numpy.kind == "c":
        getattr(proto, name).extend(
            flat.view(np.float64 if row.bits == 128 else np.float32).tolist()
        )
    else:
        getattr(proto, name).extend(flat.astype(np.int64 if row.bits < 8 else array.dtype).tolist())
    return proto


def joined(chunks):
    return b"".join(chunks)


def same(a, b):
    """Bit by bit, and the same names."""
    return list(a) == list(b) and all(tw.equal(a[name], b[name]) for name in a)


# Every message, both ways


@pytest.mark.tensorflow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_dtype_both_ways(theirs, row):
    bits = np.random.default_rng(row.tf).integers(0, 256, 12 * row.numpy.itemsize, np.uint8)
    if row.name == "bool" or row.bits < 8:
        bits &= (1 << min(row.bits, 1 if row.name == "bool" else 8)) - 1
    for shape in ((3, 4), (12,), (1, 12, 1)):
        x = bits.view(row.numpy).reshape(shape)
        message = theirs.PredictRequest.FromString(joined(rpc.build_predict(SPEC, {"x": x})))
        assert message.inputs["x"].tensor_content == x.tobytes()
        # tf.make_ndarray of 2.21 does not know them
        if row.name not in ("int2", "uint2", "float4_e2m1fn"):
            assert theirs.tf.make_ndarray(message.inputs["x"]).tobytes() == x.tobytes()
        # a signalling NaN does not come through a Python float, which is how their typed fields are
        # filled here
        quiet = x
        if row.name in ("float32", "complex64", "float64", "complex128"):
            quiet = np.nan_to_num(x.astype(row.numpy))
        for proto, given_ in ((content(theirs, x), x), (their_typed(theirs, quiet), quiet)):
            answer = theirs.PredictResponse(model_spec=their_spec(theirs, SPEC))
            answer.outputs["y"].CopyFrom(proto)
            model, found = rpc.parse_predict_answer(answer.SerializeToString())
            assert model == SPEC and same(found, {"y": given_})


@pytest.mark.tensorflow
@given(specs(), named(), st.lists(TEXT, max_size=3))
def test_predict_is_read_and_written_as_they_do(theirs, spec, inputs, outputs):
    ours = joined(rpc.build_predict(spec, inputs, outputs))
    message = theirs.PredictRequest.FromString(ours)
    assert message.model_spec == their_spec(theirs, spec) and list(message.output_filter) == outputs
    assert {
        name: proto.SerializeToString(deterministic=True) for name, proto in message.inputs.items()
    } == {
        name: their_tensor(theirs, tensor).SerializeToString(deterministic=True)
        for name, tensor in inputs.items()
    }
    for data in (ours, message.SerializeToString(), message.SerializeToString(deterministic=True)):
        model, found, names = rpc.parse_predict(data)
        assert (
            model == spec
            and names == tuple(outputs)
            and same({name: found[name] for name in inputs}, inputs)
            and len(found) == len(inputs)
        )


@pytest.mark.tensorflow
@given(specs(), named())
def test_predict_answers_are_read_and_written_as_they_do(theirs, spec, outputs):
    ours = joined(rpc.build_predict_answer(spec, outputs))
    message = theirs.PredictResponse.FromString(ours)
    assert message.model_spec == their_spec(theirs, spec) and set(message.outputs) == set(outputs)
    for name, tensor in outputs.items():
        assert (
            message.outputs[name].SerializeToString()
            == their_tensor(theirs, tensor).SerializeToString()
        )
    for data in (ours, message.SerializeToString(), bytearray(ours), memoryview(ours)):
        model, found = rpc.parse_predict_answer(data)
        assert (
            model == spec
            and same({name: found[name] for name in outputs}, outputs)
            and len(found) == len(outputs)
        )


@pytest.mark.tensorflow
@given(
    specs(),
    st.lists(st.dictionaries(TEXT, st.lists(FLOATS, max_size=2), max_size=2), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_examples_are_read_and_written_as_they_do(theirs, spec, rows, with_context, regress):
    def example(row):
        features = {
            name: theirs.tf.train.Feature(float_list=theirs.tf.train.FloatList(value=values))
            for name, values in row.items()
        }
        return theirs.tf.train.Example(features=theirs.tf.train.Features(feature=features))

    examples = [example(row) for row in rows]
    context = example({"c": [1.0]}).SerializeToString() if with_context else None
    packed = tw.Strings.of([one.SerializeToString() for one in examples], text=False)
    ours = joined(rpc.build_examples(spec, packed, context))
    message = (theirs.RegressionRequest if regress else theirs.ClassificationRequest).FromString(
        ours
    )
    assert message.model_spec == their_spec(theirs, spec)
    listed = message.input.example_list_with_context if with_context else message.input.example_list
    assert list(listed.examples) == examples
    assert not with_context or listed.context == example({"c": [1.0]})
    assert message.input.WhichOneof("kind") == (
        "example_list_with_context" if with_context else "example_list"
    )
    for data in (ours, message.SerializeToString(deterministic=True)):
        model, found, beside = rpc.parse_examples(data)
        assert model == spec and beside == context and len(found) == len(rows)
        assert [theirs.tf.train.Example.FromString(one) for one in found] == examples


@pytest.mark.tensorflow
@given(specs(), st.data())
def test_classes_are_read_and_written_as_they_do(theirs, spec, data):
    rows, columns = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    label = st.one_of(TEXT, st.sampled_from(["", "x" * 127, "x" * 200]))
    labels = data.draw(st.lists(label, min_size=rows * columns, max_size=rows * columns))
    scores = np.float32(
        data.draw(st.lists(FLOATS, min_size=rows * columns, max_size=rows * columns))
    ).reshape(rows, columns)
    classes = tw.Strings.of(labels, (rows, columns), text=True)
    ours = joined(rpc.build_classify_answer(spec, classes, scores))
    message = theirs.ClassificationResponse.FromString(ours)
    assert message.model_spec == their_spec(theirs, spec)
    assert [one.label for row in message.result.classifications for one in row.classes] == labels
    said = np.float32([one.score for row in message.result.classifications for one in row.classes])
    assert np.array_equal(said, scores.reshape(-1), equal_nan=True) and np.array_equal(
        np.signbit(said), np.signbit(scores.reshape(-1))
    )
    for answer in (ours, bytearray(ours), message.SerializeToString()):
        model, found = rpc.parse_classify_answer(answer)
        shape = (rows, columns if rows else 0)
        assert model == spec and same(
            found,
            {"classes": classes.astext(False).reshape(shape), "scores": scores.reshape(shape)},
        )
    if columns:
        assert not rpc.parse_classify_answer(joined(rpc.build_classify_answer(spec, classes)))[1][
            "scores"
        ].any()
        assert set(
            rpc.parse_classify_answer(joined(rpc.build_classify_answer(spec, None, scores)))[1][
                "classes"
            ].reshape(-1)
        ) <= {b""}


@pytest.mark.tensorflow
@given(specs(), st.lists(FLOATS, max_size=5))
def test_values_are_read_and_written_as_they_do(theirs, spec, values):
    ours = joined(rpc.build_regress_answer(spec, np.float32(values)))
    message = theirs.RegressionResponse.FromString(ours)
    assert message.model_spec == their_spec(theirs, spec)
    assert np.array_equal(
        np.float32([one.value for one in message.result.regressions]),
        np.float32(values),
        equal_nan=True,
    )
    for answer in (ours, bytearray(ours), message.SerializeToString()):
        model, found = rpc.parse_regress_answer(answer)
        assert model == spec and same(found, {"outputs": np.float32(values)})


KINDS = [
    ("float32", [None, 3]),
    ("string", None),
    ("int64", []),
    ("bfloat16", [0, 2**40]),
    ("variant", [None]),
    ("resource", []),
]


@pytest.mark.tensorflow
def test_metadata_both_ways(theirs):
    asked = joined(rpc.build_metadata(ModelSpec("m", label="stable")))
    message = theirs.GetModelMetadataRequest.FromString(asked)
    assert (
        list(message.metadata_field) == ["signature_def"]
        and message.model_spec.version_label == "stable"
    )
    assert rpc.parse_metadata(message.SerializeToString()) == (
        ModelSpec("m", None, "stable"),
        ("signature_def",),
    )
    inputs = {
        f"x_{number}": tw.serving.Input(f"x_{number}", *kind) for number, kind in enumerate(KINDS)
    }
    inputs = {
        name: tw.serving.Input(name, one.dtype, None if one.shape is None else tuple(one.shape))
        for name, one in inputs.items()
    }
    outputs = {
        "r": tw.serving.Input("r", "int32", (None, None, 2), "ragged"),
        "s": tw.serving.Input("s", "float32", (None, 9), "sparse"),
        "c": tw.serving.Input("c", "invalid", None, "composite"),
    }
    known = {
        name: Signature(name, inputs, outputs, method)
        for name, method in (("serving_default", "predict"), ("b", "classify"))
    }
    answer = joined(rpc.build_metadata_answer(SPEC, known))
    message = theirs.GetModelMetadataResponse.FromString(answer)
    listed = theirs.SignatureDefMap()
    assert message.metadata["signature_def"].Unpack(listed) and message.model_spec == their_spec(
        theirs, SPEC
    )
    said = listed.signature_def["b"]
    assert said.method_name == "tensorflow/serving/classify" and said.inputs["x_0"].dtype == 1
    assert [dim.size for dim in said.inputs["x_3"].tensor_shape.dim] == [0, 2**40] and said.inputs[
        "x_1"
    ].tensor_shape.unknown_rank
    assert said.outputs["s"].WhichOneof("encoding") == "coo_sparse"
    ragged = said.outputs["r"].composite_tensor.type_spec
    assert theirs.tf.RaggedTensorSpec(
        [None, None, 2], theirs.tf.int32, 1
    ) == theirs.tf.RaggedTensorSpec([None, None, 2], theirs.tf.int32, 1)
    assert ragged.type_spec_class == ragged.RAGGED_TENSOR_SPEC
    assert ragged.type_state.tuple_value.values[2].int64_value == 1
    for data in (answer, message.SerializeToString()):
        model, found = rpc.parse_metadata_answer(data)
        assert model == SPEC and set(found) == set(known)
        for name, one in found.items():
            assert (
                dict(one.inputs) == inputs
                and dict(one.outputs) == outputs
                and one.method == known[name].method
            )


@pytest.mark.tensorflow
def test_metadata_of_a_real_model(theirs, tmp_path):
    """As a server has it: the signatures of its SavedModel in an Any, TensorFlow's own ones among
    them.
    """
    tf = theirs.tf
    module = tf.Module()
    specs = [
        tf.TensorSpec([None, 3], tf.float32, "a"),
        tf.SparseTensorSpec([None, 5], tf.int64),
        tf.TensorSpec(None, tf.string, "s"),
    ]
    module.f = tf.function(lambda a, b, s: {"y": a + 1, "t": s}, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.f})
    saved = theirs.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    listed = theirs.SignatureDefMap()
    for name, one in saved.meta_graphs[0].signature_def.items():
        listed.signature_def[name].CopyFrom(one)
    answer = theirs.GetModelMetadataResponse(model_spec=their_spec(theirs, ModelSpec("m", 7)))
    answer.metadata["signature_def"].Pack(listed)
    model, found = rpc.parse_metadata_answer(answer.SerializeToString())
    on_disk = Signature.all_of_saved_model(tmp_path)
    assert (
        model == ModelSpec("m", 7)
        and list(found) == list(on_disk) == ["serving_default"]
        and "__saved_model_init_op" in listed.signature_def
    )
    assert found["serving_default"].inputs == on_disk["serving_default"].inputs
    assert found["serving_default"].outputs == on_disk["serving_default"].outputs
    assert [group.kind for group in found["serving_default"].groups()] == ["sparse"]


@pytest.mark.tensorflow
@given(
    specs(),
    st.lists(
        st.builds(
            VersionStatus,
            st.integers(-(2**63), 2**63 - 1),
            st.sampled_from(list(rpc.STATES.values())),
            st.integers(0, 16),
            TEXT,
        )
    ),
)
def test_status_both_ways(theirs, spec, versions):
    request = theirs.GetModelStatusRequest.FromString(joined(rpc.build_status(spec)))
    assert (
        request.model_spec == their_spec(theirs, spec)
        and rpc.parse_status(request.SerializeToString()) == spec
    )
    answer = theirs.GetModelStatusResponse.FromString(joined(rpc.build_status_answer(versions)))
    names = theirs.ModelVersionStatus.State.Name
    said = [
        (one.version, names(one.state), one.status.error_code, one.status.error_message)
        for one in answer.model_version_status
    ]
    assert said == [tuple(one) for one in versions]
    assert rpc.parse_status_answer(answer.SerializeToString()) == versions


@pytest.mark.tensorflow
def test_names_and_codes_are_theirs(theirs):
    import grpc
    from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

    services = [
        *prediction_service_pb2.DESCRIPTOR.services_by_name.values(),
        *model_service_pb2.DESCRIPTOR.services_by_name.values(),
    ]
    known = {
        f"/{service.full_name}/{method.name}" for service in services for method in service.methods
    }
    assert {rpc.PREDICT, rpc.CLASSIFY, rpc.REGRESS, rpc.METADATA, rpc.STATUS} <= known and len(
        known
    ) == 7
    assert {code.value[0]: code.name for code in grpc.StatusCode} == {
        number: name for number, (name, _) in rpc.CODES.items()
    }
    assert {number: name for name, number in theirs.ModelVersionStatus.State.items()} == rpc.STATES


# What is read, and how


def test_fields_in_any_order_and_unknown_ones():
    tensor = field(1, 0, varint(6)) + block(2, b"\x12\x02\x08\x01") + block(4, b"\x05")
    spec = block(3, b"sig") + field(99, 5, b"abcd") + block(1, b"m")
    entry = block(2, tensor) + field(7, 0, varint(1)) + block(1, b"y")
    data = block(50, b"new") + block(2, spec) + field(3, 1, bytes(8)) + block(1, entry)
    model, found = rpc.parse_predict_answer(data)
    assert model == ModelSpec("m", signature="sig") and same(found, {"y": np.int8([5])})
    assert rpc.parse_predict_answer(b"") == (ModelSpec(""), {})
    # an entry without a key is one of ""
    assert same(rpc.parse_predict_answer(block(1, block(2, tensor)))[1], {"": np.int8([5])})
    assert rpc.parse_status_answer(block(1, field(2, 0, varint(77)))) == [
        VersionStatus(0, "UNKNOWN")
    ]
    assert rpc.parse_examples(b"").examples.shape == (0,)


def test_classes_in_odd_forms_say_the_same():
    usual = block(1, b"a") + field(2, 5, np.float32(0.5).tobytes())
    odd = [
        field(2, 5, np.float32(0.5).tobytes()) + block(1, b"a"),
        usual + field(9, 0, varint(1)),
        block(1, b"a" * 300) + field(2, 5, np.float32(0.5).tobytes()),
        block(1, b"a"),
        field(2, 5, np.float32(0.5).tobytes()),
        b"",
    ]
    expected = [(b"a", 0.5), (b"a", 0.5), (b"a" * 300, 0.5), (b"a", 0), (b"", 0.5), (b"", 0)]
    for one, (label, score) in zip(odd, expected, strict=True):
        row = block(1, usual) + block(1, one) + block(1, usual)
        for data in (block(1, block(1, row)), bytearray(block(1, block(1, row)))):
            found = rpc.parse_classify_answer(data)[1]
            assert found["classes"].tolist() == [[b"a", label, b"a"]] and found[
                "scores"
            ].tolist() == [[0.5, score, 0.5]]
    row = block(1, block(1, b"\xff"))  # labels need not be UTF-8
    assert rpc.parse_classify_answer(block(1, block(1, row)))[1]["classes"].tolist() == [[b"\xff"]]
    two = field(1, 5, np.float32(2).tobytes())
    listed = b"".join(
        block(1, one) for one in (two, field(9, 0, varint(1)), b"", field(9, 0, varint(1)) + two)
    )
    assert rpc.parse_regress_answer(block(1, listed))[1]["outputs"].tolist() == [2, 0, 0, 2]


ENTRY = block(1, b"y") + block(2, b"\x08\x06\x12\x04\x12\x02\x08\x01\x22\x01\x05")
WRONG = {
    "a tensor twice": (rpc.parse_predict_answer, block(1, ENTRY) * 2, "duplicate tensor"),
    "a spec twice": (rpc.parse_predict_answer, block(2, b"") * 2, "twice"),
    "a spec as a number": (rpc.parse_predict_answer, field(2, 0, varint(1)), "wire type"),
    "a tensor as a number": (rpc.parse_predict_answer, field(1, 0, varint(1)), "wire type"),
    "a group": (rpc.parse_predict_answer, b"\x1b\x1c", "wire type"),
    "a name that is no UTF-8": (
        rpc.parse_predict_answer,
        block(1, block(1, b"\xff") + ENTRY[3:]),
        "UTF-8",
    ),
    "an entry without a tensor": (rpc.parse_predict_answer, block(1, block(1, b"y")), "dtype 0"),
    "a variant": (
        rpc.parse_predict_answer,
        block(1, block(1, b"y") + block(2, b"\x08\x15\x12\x00")),
        "variant",
    ),
    "a version and a label": (
        rpc.parse_status,
        block(1, block(2, b"") + block(4, b"x")),
        "got both",
    ),
    "two kinds of examples": (
        rpc.parse_examples,
        block(2, block(1, b"") + block(2, b"")),
        "got both",
    ),
    "two contexts": (rpc.parse_examples, block(2, block(2, block(2, b"x") * 2)), "twice"),
    "other numbers of classes": (
        rpc.parse_classify_answer,
        block(1, block(1, block(1, b"")) + block(1, b"")),
        "different numbers",
    ),
    "a score of eight bytes": (
        rpc.parse_classify_answer,
        block(1, block(1, block(1, field(2, 1, bytes(8))))),
        "wire type",
    ),
    "two scores": (
        rpc.parse_classify_answer,
        block(1, block(1, block(1, field(2, 5, bytes(4)) * 2))),
        "twice",
    ),
    "no signatures": (rpc.parse_metadata_answer, b"", "missing 'signature_def'"),
    "signatures of another type": (
        rpc.parse_metadata_answer,
        block(2, block(1, b"signature_def") + block(2, block(1, b"type.googleapis.com/other"))),
        "expected .* of type tensorflow.serving.SignatureDefMap",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name):
    parse, data, words = WRONG[name]
    with pytest.raises(tw.DecodeError, match=words) as caught:
        parse(data)
    assert caught.value.format in ("grpc", "tensorproto") and 0 <= caught.value.offset <= len(data)


def test_a_tensor_that_is_wrong_is_named_with_its_place():
    good = block(1, ENTRY)
    bad = block(1, block(1, b"z") + block(2, b"\x08\x06\x12\x04\x12\x02\x08\x02\x22\x01\x05"))
    with pytest.raises(tw.TruncatedError) as caught:
        rpc.parse_predict_answer(good + bad)
    assert caught.value.tensor == "z" and caught.value.offset == len(good + bad) - 1


def test_views_and_copies():
    """copy=None gives views of the message where they are aligned, and nobody can write there."""
    x = np.arange(5000, dtype=np.int8)
    data = joined(rpc.build_predict_answer(SPEC, {"y": x}))
    found = rpc.parse_predict_answer(data)[1]["y"]
    assert (
        not found.flags.writeable
        and np.shares_memory(found, np.frombuffer(data, np.uint8))
        and np.array_equal(found, x)
    )
    copied = rpc.parse_predict_answer(data, copy=True)[1]["y"]
    assert copied.flags.writeable and not np.shares_memory(copied, np.frombuffer(data, np.uint8))
    chunks = rpc.build_predict(SPEC, {"x": x})
    assert any(
        isinstance(chunk, memoryview) and np.shares_memory(np.frombuffer(chunk, np.uint8), x)
        for chunk in chunks
    )


# What cannot be sent


def test_a_message_ends_below_2_gib():
    """The zeros are never touched, so this takes no memory."""
    half = np.zeros(1 << 28, np.float32)
    for build in (rpc.build_predict, rpc.build_predict_answer):
        assert sum(map(len, build(SPEC, {"a": half}))) > 1 << 30
        with pytest.raises(tw.EncodeError, match="2147483647"):
            build(SPEC, {"a": half, "b": half})
        with pytest.raises(tw.EncodeError, match="2 GiB") as caught:
            build(SPEC, {"whole": np.zeros(1 << 29, np.float32)})
        assert caught.value.tensor == "whole"


def test_what_cannot_be_sent_is_said():
    sparse = tw.Sparse([[0]], np.float32([1]), (2,))
    cases = [
        (lambda: rpc.build_predict(SPEC, {"s": sparse}), "pass the model's signature"),
        (
            lambda: rpc.build_predict(SPEC, {"d": np.array(["2020-01-01"], "M8[D]")}),
            "unsupported NumPy dtype",
        ),
        (
            lambda: rpc.build_predict(SPEC, {"f": np.zeros(2, dtypes.named("float8_e3m4").numpy)}),
            "TensorFlow does not support the dtype",
        ),
        (lambda: rpc.build_predict(SPEC, {"\ud800": np.zeros(2)}), "surrogate"),
        (lambda: rpc.build_predict(SPEC, {1: np.zeros(2)}), "a name that is a string"),
        (lambda: rpc.build_status(ModelSpec("m", 1, "stable")), "a version or a label"),
        (lambda: rpc.build_status(ModelSpec("m", 2**63)), "int64"),
        (lambda: rpc.build_status(ModelSpec("m", "1")), "int64"),
        (lambda: rpc.build_examples(SPEC, tw.Strings.of(["text"])), "serialized"),
        (lambda: rpc.build_classify_answer(SPEC), "neither"),
        (
            lambda: rpc.build_classify_answer(
                SPEC, tw.Strings.of([b"a"], (1, 1)), np.zeros((1, 2), np.float32)
            ),
            "shapes",
        ),
        (lambda: rpc.build_classify_answer(SPEC, tw.Strings.of([b"a"])), "strings"),
        (lambda: rpc.build_regress_answer(SPEC, np.zeros(2)), "float32"),
        (
            lambda: rpc.build_status_answer([VersionStatus(1, "AVAILABEL")]),
            "did you mean 'AVAILABLE'",
        ),
    ]
    for build, words in cases:
        with pytest.raises(tw.EncodeError, match=words):
            build()
    assert same(
        rpc.parse_predict(joined(rpc.build_predict(SPEC, {"x": [[1.5]], "s": ["é"]})))[1],
        {"x": np.array([[1.5]]), "s": tw.Strings.of(["é".encode()])},
    )


# Bytes of a stranger

SIGNATURE = Signature.given({"x": ("float32", [None, 3])}, {"y": ("string", None)})
RAGGED = Signature("r", {}, {"r": tw.serving.Input("r", "int32", (None, None), "ragged")})
TENSORS = {
    "a": np.float32([[1, 2]]),
    "s": tw.Strings.of([b"x", b""]),
    "e": np.zeros((0, 2), np.int64),
}
TYPED = block(
    1,
    block(1, b"t")
    + block(2, b"\x08\x01\x12\x04\x12\x02\x08\x02" + block(5, np.float32([1, 2]).tobytes())),
)
MESSAGES = {
    "predict": (rpc.parse_predict, rpc.build_predict(SPEC, TENSORS, ["y"])),
    "predict answer": (rpc.parse_predict_answer, [*rpc.build_predict_answer(SPEC, TENSORS), TYPED]),
    "examples": (
        rpc.parse_examples,
        rpc.build_examples(SPEC, tw.Strings.of([b"\n\0", b""]), b"\n\0"),
    ),
    "classes": (
        rpc.parse_classify_answer,
        rpc.build_classify_answer(SPEC, tw.Strings.of([b"a", b""], (1, 2)), np.float32([[1, 0]])),
    ),
    "values": (rpc.parse_regress_answer, rpc.build_regress_answer(SPEC, np.float32([1, 0, 2]))),
    "metadata": (rpc.parse_metadata, rpc.build_metadata(SPEC)),
    "metadata answer": (
        rpc.parse_metadata_answer,
        rpc.build_metadata_answer(SPEC, {"serving_default": SIGNATURE, "r": RAGGED}),
    ),
    "status": (rpc.parse_status, rpc.build_status(ModelSpec("m", label="l"))),
    "status answer": (
        rpc.parse_status_answer,
        rpc.build_status_answer(
            [VersionStatus(1, "END", 5, "gone"), VersionStatus(2, "AVAILABLE")]
        ),
    ),
}


def survives(parse, data):
    try:
        parse(data)
    except tw.DecodeError as error:
        assert error.format in ("grpc", "tensorproto") and 0 <= error.offset <= len(data), repr(
            error
        )


@pytest.mark.parametrize("name", MESSAGES)
def test_every_flip_and_every_cut(name):
    """A value, or a DecodeError with its place."""
    parse, chunks = MESSAGES[name]
    data = joined(chunks)
    parse(data)
    for at in range(len(data)):
        survives(parse, data[:at])
        for bit in range(8):
            survives(parse, data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])


@pytest.mark.parametrize("name", MESSAGES)
@given(
    data=st.one_of(
        st.binary(max_size=60),
        st.lists(
            st.sampled_from(
                [b"\x0a", b"\x12", b"\x1a", b"\x00", b"\x02", b"\x08", b"\x15", b"\xff"]
            ),
            max_size=40,
        ).map(b"".join),
    )
)
def test_any_bytes(name, data):
    survives(MESSAGES[name][0], data)
    survives(MESSAGES[name][0], block(1, data) + block(2, data))


def entries(form, count):
    return b"".join(block(1, form(f"{number:x}".encode())) for number in range(count))


MANY = 4 << 20
CROWDS = {
    "tensors": (
        rpc.parse_predict_answer,
        lambda: entries(
            lambda key: block(1, key) + block(2, b"\x08\x07\x12\x04\x12\x02\x08\x00"), MANY // 20
        ),
    ),
    "tensors, the key last": (
        rpc.parse_predict_answer,
        lambda: entries(
            lambda key: block(2, b"\x08\x03\x12\x04\x12\x02\x08\x00") + block(1, key), MANY // 20
        ),
    ),
    "unknown fields": (rpc.parse_predict_answer, lambda: b"\x18\x00" * (MANY // 2)),
    "nested groups": (
        rpc.parse_predict_answer,
        lambda: (b"\x1b" * 90 + b"\x1c" * 90) * (MANY // 180),
    ),
    "filters": (rpc.parse_predict, lambda: b"\x1a\x00" * (MANY // 2)),
    "classes of nothing": (
        rpc.parse_classify_answer,
        lambda: block(1, block(1, b"\x0a\x00" * (MANY // 2))),
    ),
    "classes of unknown fields": (
        rpc.parse_classify_answer,
        lambda: block(1, block(1, b"\x0a\x02\x18\x00" * (MANY // 4))),
    ),
    "examples of no classes": (
        rpc.parse_classify_answer,
        lambda: block(1, b"\x0a\x00" * (MANY // 2)),
    ),
    "values": (rpc.parse_regress_answer, lambda: block(1, b"\x0a\x02\x18\x00" * (MANY // 4))),
    "examples": (rpc.parse_examples, lambda: block(2, block(2, b"\x0a\x00" * (MANY // 2)))),
    "versions": (rpc.parse_status_answer, lambda: b"\x0a\x02\x1a\x00" * (MANY // 4)),
    "metadata": (rpc.parse_metadata_answer, lambda: b"\x12\x00" * (MANY // 2)),
}


@pytest.mark.timing
@pytest.mark.parametrize("name", CROWDS)
def test_crowds_take_no_longer_than_seconds(name):
    """4 MB of as many things as there is room for. On a machine of its own each takes a second or
    two; the bound is for any machine.
    """
    parse, build = CROWDS[name]
    data = build()
    assert len(data) > MANY * 0.8
    start = time.process_time()
    with pytest.raises(tw.DecodeError):
        parse(data)
    assert time.process_time() - start < 6


def test_limits_bound_what_is_counted():
    small = tw.Limits(names=40)
    five = {f"x{number}": np.int8([number]) for number in range(5)}
    assert (
        len(
            rpc.parse_predict_answer(
                joined(rpc.build_predict_answer(SPEC, {"a": five["x0"]})), small
            )[1]
        )
        == 1
    )
    with pytest.raises(tw.LimitError, match="more than 4 tensors"):
        rpc.parse_predict_answer(joined(rpc.build_predict_answer(SPEC, five)), small)
    with pytest.raises(tw.LimitError, match="more than 40 values"):
        rpc.parse_regress_answer(
            joined(rpc.build_regress_answer(SPEC, np.ones(41, np.float32))), small
        )
    with pytest.raises(tw.LimitError):
        rpc.parse_classify_answer(
            joined(rpc.build_classify_answer(SPEC, None, np.ones((1, 90), np.float32))), small
        )
    shape = block(2, block(2, field(1, 0, varint(1 << 36))))
    bomb = block(1, block(1, b"y") + block(2, field(1, 0, varint(1)) + shape + block(5, bytes(4))))
    with pytest.raises(tw.LimitError):
        rpc.parse_predict_answer(bomb)
