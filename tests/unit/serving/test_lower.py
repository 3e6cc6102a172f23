"""Which inputs of a signature get what of the user's tensors, in which form, and what is refused."""

import json

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from tensorwire.serving import rest
from tensorwire.serving.lower import FORMS, example_rows, plan
from tensorwire.serving.lower.conversion import fit
from tensorwire.serving.signature import Signature
from tensorwire.serving.spec import Input

SPARSE = tw.Sparse([[0, 3], [1, 0], [1, 2]], np.float32([1, 2, 3]), (2, 4))
RAGGED = tw.Ragged.of([[4, 8, 15], []])
TEXT = tw.Strings.of(["a", "é"])


def given(**inputs):
    return Signature.given(inputs)


def named(**inputs):
    """As from a server's metadata: names, dtypes and shapes are all that is known."""
    return Signature(
        "serving_default",
        {name: Input(name, dtype, shape) for name, (dtype, shape) in inputs.items()},
        {},
    )


FLATTENED = named(
    x=("int64", (None, 2)),
    x_1=("float32", (None,)),
    x_2=("int64", (2,)),
    r=("int64", (None,)),
    r_1=("int64", (None,)),
    t=("string", (None,)),
)


def test_same_name():
    found = plan(
        {"x": np.float32([[1, 2]]), "t": TEXT},
        given(x=("float32", [None, 2]), t=("string", [None])),
    )
    assert tw.equal(found.inputs["x"], np.float32([[1, 2]])) and found.inputs["t"] is TEXT
    assert [(step.name, step.form, step.targets) for step in found.steps] == [
        ("x", "dense", ("x",)),
        ("t", "dense", ("t",)),
    ]


def test_flattened():
    found = plan({"x": SPARSE, "r": RAGGED, "t": TEXT}, FLATTENED)
    assert list(found.inputs) == ["x", "x_1", "x_2", "r", "r_1", "t"]
    assert [step.form for step in found.steps] == ["flattened", "flattened", "dense"]
    assert tw.equal(found.inputs["x"], SPARSE.indices) and tw.equal(
        found.inputs["x_1"], SPARSE.values
    )
    assert (
        found.inputs["x_2"].tolist() == [2, 4]
        and found.inputs["r"].tolist() == [4, 8, 15]
        and found.inputs["r_1"].tolist() == [0, 3, 3]
    )


@pytest.mark.parametrize("between", "_/:.")
def test_parts(between):
    parts = {
        "indices": ("int64", (None, 2)),
        "values": ("float32", (None,)),
        "dense_shape": ("int64", (2,)),
    }
    found = plan(
        {"x": SPARSE}, named(**{f"x{between}{role}": about for role, about in parts.items()})
    )
    assert found.steps[0].form == "parts" and found.inputs[f"x{between}dense_shape"].tolist() == [
        2,
        4,
    ]
    parts = {"values": ("int64", (None,)), "row_splits": ("int32", (None,))}
    found = plan(RAGGED, named(**{f"r{between}{role}": about for role, about in parts.items()}))
    assert found.inputs[f"r{between}row_splits"].dtype == np.int32 and found.inputs[
        f"r{between}row_splits"
    ].tolist() == [0, 3, 3]


def test_parts_called_by_their_roles_alone():
    signature = named(
        indices=("int64", (None, 2)), values=("float32", (None,)), dense_shape=("int64", (2,))
    )
    for inputs in (SPARSE, {"whatever": SPARSE}):
        assert plan(inputs, signature).inputs["values"].tolist() == [1, 2, 3]


def test_parts_given_one_by_one():
    found = plan(
        {
            "x": SPARSE.indices,
            "x_1": SPARSE.values,
            "x_2": SPARSE.dense_shape,
            "r": [4, 8, 15],
            "r_1": [0, 3, 3],
            "t": ["a"],
        },
        FLATTENED,
    )
    assert {step.form for step in found.steps} == {"dense"} and found.inputs["r_1"].tolist() == [
        0,
        3,
        3,
    ]


def test_serialized():
    found = plan({"x": SPARSE, "r": RAGGED}, named(x=("string", (None, 3)), r=("string", (None,))))
    assert [step.form for step in found.steps] == ["serialized"] * 2 and found.has_rows
    assert tw.equal(tw.io.deserialize_many_sparse(found.inputs["x"], "float32"), SPARSE)
    assert [tw.io.parse_tensor(row, "int64").tolist() for row in found.inputs["r"]] == [
        [4, 8, 15],
        [],
    ]
    whole = plan({"x": SPARSE}, named(x=("string", (3,))))
    assert tw.equal(tw.io.parse_sparse(whole.inputs["x"]), SPARSE)
    nested = tw.Ragged.of([[[1], [2, 3]], []])
    rows = plan({"r": nested}, named(r=("string", (None, 2)))).inputs["r"]
    assert rows.shape == (2, 2)
    assert [
        [tw.io.parse_tensor(cell, "int64").tolist() for cell in row] for row in rows.tolist()
    ] == [[[1, 2, 3], [0, 1, 3]], [[], [0]]]


def test_examples():
    inputs = {
        "x": SPARSE,
        "r": RAGGED,
        "t": TEXT,
        "d": [[0.5, 1], [2, 3]],
        "n": tw.Ragged.of([[[1], [2, 3]], []]),
    }
    found = plan(inputs, named(examples=("string", (None,))))
    assert {step.form for step in found.steps} == {"example"} and found.inputs[
        "examples"
    ].shape == (2,)
    features = {
        "x": tw.io.SparseFeature("x_indices", "x_values", "float32", 4),
        "x_dense_shape": tw.io.FixedLenFeature([1], "int64"),
        "r": tw.io.RaggedFeature("int64", row_splits_dtype="int64"),
        "t": tw.io.FixedLenFeature([], "string"),
        "d": tw.io.FixedLenFeature([2], "float32"),
        "n": tw.io.RaggedFeature(
            "int64", "n", [tw.io.RaggedFeature.RowSplits("n_row_splits_1")], "int64"
        ),
    }
    back = tw.io.parse_example(found.inputs["examples"], features)
    assert (
        tw.equal(back["x"], SPARSE)
        and tw.equal(back["r"], RAGGED)
        and back["t"].tolist() == [b"a", "é".encode()]
    )
    assert tw.equal(back["d"], np.float32([[0.5, 1], [2, 3]])) and back["n"].tolist() == [
        [[1], [2, 3]],
        [],
    ]
    assert back["x_dense_shape"].tolist() == [[4], [4]]
    one = b"".join(rest.build(found, layout="rows"))
    assert all(row.keys() == {"b64"} for row in json.loads(one)["instances"])


def test_one_tensor_of_strings_is_no_example_by_accident():
    signature = named(text=("string", (None,)))
    with pytest.raises(tw.EncodeError, match="did you mean 'text'"):
        plan({"txt": ["a"]}, signature)
    assert plan({"txt": ["a"]}, signature, prefer="example").steps[0].form == "example"
    assert plan({"txt": np.float32([[1]])}, signature).steps[0].form == "example"
    assert plan({"text": ["a"]}, signature).steps[0].form == "dense"


def test_large_examples():
    tensors = {
        "x": np.arange(30_000).reshape(100, 300),
        "t": tw.Strings.of([bytes([i]) * 1000 for i in range(100)]),
    }
    back = tw.io.parse_example(
        example_rows.examples(tensors),
        {"x": tw.io.FixedLenFeature([300], "int64"), "t": tw.io.FixedLenFeature([], "string")},
    )
    assert tw.equal(back["x"], tensors["x"]) and back["t"].tolist() == tensors["t"].tolist()


def test_preferences():
    signature = Signature(
        "s", {**FLATTENED.inputs, "x_serialized": Input("x_serialized", "string", (None, 3))}, {}
    )
    inputs = {"x": SPARSE, "r": RAGGED, "t": TEXT, "x_serialized": SPARSE}
    assert (
        plan(inputs, signature, prefer={"x": "flattened"})
        .steps[0]
        .why.endswith("chosen by prefer=")
    )
    with pytest.raises(tw.EncodeError, match=r"no serialized form .* it offers flattened") as error:
        plan(inputs, signature, prefer={"x": "serialized"})
    assert error.value.tensor == "x"
    with pytest.raises(tw.EncodeError, match="did you mean 'parts'"):
        plan(inputs, signature, prefer="part")
    with pytest.raises(tw.EncodeError, match="unknown input 'z' in prefer="):
        plan(inputs, signature, prefer={"z": "parts"})
    with pytest.raises(tw.EncodeError, match="no example form"):
        plan(inputs, signature, prefer="example")
    assert (
        plan({"x": SPARSE}, given(x=("float32", [None, 4])), prefer="dense").inputs["x"].tolist()
        == SPARSE.to_dense().tolist()
    )
    assert (
        plan(
            {"x": SPARSE, "d": [1]},
            named(x=("string", (None, 3)), d=("int32", (None,))),
            prefer="serialized",
        )
        .steps[1]
        .form
        == "dense"
    )
    assert set(FORMS) == {"dense", "flattened", "parts", "serialized", "example"}


def test_nested_objects_are_the_tensors_that_they_mean():
    found = plan(
        {
            "x": {"indices": [[0, 3]], "values": [1], "dense_shape": [1, 4]},
            "r": {"values": [1, 2], "row_splits": [0, 2]},
            "t": ["a"],
        },
        FLATTENED,
    )
    assert found.inputs["x_1"].dtype == np.float32 and found.inputs["r_1"].tolist() == [0, 2]
    typed = plan(
        {"x": {"indices": [[0, 3]], "values": [0.1], "dense_shape": [1, 4]}},
        given(x=("sparse", "float32", [None, 4])),
    )
    assert tw.equal(typed.inputs["x_values"], np.float32([0.1]))
    alone = named(x=("int64", (None, 2)), x_1=("float32", (None,)), x_2=("int64", (2,)))
    assert plan({"indices": [[0, 3]], "values": [1], "dense_shape": [1, 4]}, alone).inputs[
        "x_2"
    ].tolist() == [1, 4]


def test_nested_lists():
    signature = given(
        r=("ragged", "float32", [None, None]),
        n=("ragged", "int64", [None, None, None]),
        v=("ragged", "int32", [None, None, 2]),
        s=("ragged", "string", [None, None]),
    )
    found = plan(
        {
            "r": [[1, 2.5], []],
            "n": [[[1], [2, 3]], []],
            "v": [[[1, 2]], [[3, 4], [5, 6]]],
            "s": [["a"], []],
        },
        signature,
    ).inputs
    assert tw.equal(found["r_values"], np.float32([1, 2.5])) and found[
        "r_row_splits_0"
    ].tolist() == [0, 2, 2]
    assert found["n_values"].tolist() == [1, 2, 3] and found["n_row_splits_1"].tolist() == [0, 1, 3]
    assert found["v_values"].tolist() == [[1, 2], [3, 4], [5, 6]] and found[
        "v_row_splits_0"
    ].tolist() == [0, 1, 3]
    assert found["s_values"].tolist() == ["a"]
    empty = plan({"r": [], "n": [[]], "v": [[], []], "s": []}, signature).inputs
    assert (
        empty["v_values"].shape == (0, 2)
        and empty["r_row_splits_0"].tolist() == [0]
        and empty["n_row_splits_1"].tolist() == [0]
    )
    dense = plan(
        {"r": np.float32([[1, 2], [3, 4]])}, given(r=("ragged", "float32", [None, None]))
    ).inputs
    assert dense["r_values"].tolist() == [1, 2, 3, 4] and dense["r_row_splits_0"].tolist() == [
        0,
        2,
        4,
    ]
    with pytest.raises(tw.EncodeError, match="equal depth"):
        plan({"r": [[1], 2]}, given(r=("ragged", "float32", [None, None])))


def test_indices_are_put_in_order():
    found = plan(
        {"x": tw.Sparse([[1, 0], [0, 3]], np.float32([2, 1]), (2, 4))},
        given(x=("sparse", "float32", [None, 4])),
    )
    assert found.inputs["x_indices"].tolist() == [[0, 3], [1, 0]] and found.inputs[
        "x_values"
    ].tolist() == [1, 2]
    assert "the indices were sorted" in found.explain()


def test_explanation():
    signature = given(
        ids=("sparse", "float32", [None, 4]), x=("float32", [None, 2]), n=("int64", [None])
    )
    text = plan(
        {"ids": SPARSE, "x": np.float16([[1, 2], [3, 4]]), "n": np.int32([1, 2])}, signature
    ).explain()
    assert (
        text == "signature 'serving_default'\n  ids: Sparse float32 [2, 4] is sent as parts: the"
        " signature has the parts of a sparse tensor 'ids'\n    ids_indices: int64 [3, 2]\n   "
        " ids_values: float32 [3]\n    ids_dense_shape: int64 [2]\n  x: float16 [2, 2] is sent as"
        " dense: the signature has an input of that name\n    x: float32 [2, 2]\n    float16 as"
        " float32, which is wider\n  n: int32 [2] is sent as dense: the signature has an input of"
        " that name\n    n: int64 [2]\n    int32 as int64, every value fits\n  REST layout: columns"
        " only, because the inputs are not rows of one batch: ids_indices [3, 2], ids_values [3],"
        " ids_dense_shape [2], x [2, 2], n [2]"
    )


REFUSED = {
    "an unknown name": ({"y": [1]}, given(x=("int32", [None])), "no input 'y'; known: x"),
    "a near name": (
        {"imges": [1]},
        given(images=("int32", [None]), b=("int32", [None])),
        "did you mean 'images'",
    ),
    "a missing name": (
        {"a": [1]},
        given(a=("int32", [None]), b=("int32", [None])),
        "missing input 'b'",
    ),
    "a missing sparse tensor": (
        {"a": [1]},
        given(a=("int32", [None]), s=("sparse", "int32", [None, 3])),
        "missing input 's'",
    ),
    "a missing part": (
        {"s_indices": np.zeros((0, 2), int), "s_values": []},
        given(s=("sparse", "int32", [None, 3])),
        "'s_dense_shape'",
    ),
    "one tensor for several inputs": (
        np.zeros(2),
        given(a=("int32", [None]), b=("int32", [None])),
        "for the inputs a, b",
    ),
    "dense for sparse": (
        {"s": np.zeros((2, 3))},
        given(s=("sparse", "int32", [None, 3])),
        r"pass tw\.Sparse",
    ),
    "sparse for dense": ({"s": SPARSE}, given(s=("float32", [None, 4])), "to_dense"),
    "ragged for dense": ({"s": RAGGED}, given(s=("int64", [None, 4])), "pad it"),
    "sparse for ragged": (
        {"s": SPARSE},
        given(s=("ragged", "float32", [None, None])),
        "expected a ragged tensor",
    ),
    "another width of sparse": (
        {"s": SPARSE},
        given(s=("sparse", "float32", [None, 5])),
        r"\[\?, 5\].*\[2, 4\]",
    ),
    "another depth of ragged": (
        {"s": tw.Ragged.of([[[1]]])},
        given(s=("ragged", "int64", [None, None])),
        "1 row_splits",
    ),
    "another rank": ({"x": np.zeros(3, np.float32)}, given(x=("float32", [None, 3])), r"x\[None\]"),
    "another dimension": (
        {"x": np.zeros((2, 4), np.float32)},
        given(x=("float32", [None, 3])),
        "only the first dimension",
    ),
    "a matrix for sparse parts": (
        {"x": [[0, 1.5]], "x_1": [1], "x_2": [1]},
        FLATTENED,
        "'x' is a part of .* pass a tw.Sparse",
    ),
    "strings for numbers": ({"x": ["a"]}, given(x=("float32", [None])), "Strings"),
    "numbers for strings": ({"x": [1]}, given(x=("string", [None])), "string"),
    "lists of different lengths": ({"x": [[1], [1, 2]]}, given(x=("float32", [None, 2])), "Ragged"),
    "None": ({"x": None}, given(x=("float32", [None])), "expected a tensor"),
    "a dict": ({"x": {"a": 1}}, given(x=("float32", [None])), "expected a tensor"),
    "a sparse vector as rows": (
        {"x": tw.Sparse([[0]], np.float32([1]), (2,))},
        named(x=("string", (None, 3))),
        "rank of at least 2",
    ),
    "rows that differ": ({"x": SPARSE, "y": [1]}, named(examples=("string", (None,))), "rows"),
    "a scalar in Examples": ({"x": 1.5}, named(examples=("string", (None,))), "scalar"),
    "float64 in Examples": (
        {"x": np.float64([0.1])},
        named(examples=("string", (None,))),
        "astype",
    ),
    "an input that is sparse as a whole": (
        {"x": SPARSE},
        Signature("s", {"x": Input("x", "float32", (None, 4), "sparse")}, {}),
        "export the model",
    ),
    "a variant": ({"x": [1]}, named(x=("variant", ())), "unsupported dtype variant"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    inputs, signature, words = REFUSED[name]
    with pytest.raises(tw.EncodeError, match=words) as error:
        plan(inputs, signature)
    assert error.value.format in ("serving", "example")


# (what is given, the dtype that is wanted, what becomes of it or a part of the error)
TYPED = [
    ([1, 2], "float32", np.float32([1, 2])),
    ([0.1], "float32", np.float32([0.1])),
    ([1, 2.5], "float64", np.float64([1, 2.5])),
    ([1, 2], "uint8", np.uint8([1, 2])),
    ([1, 300], "uint8", "300 at [1] is out of range: uint8 goes from 0 to 255"),
    ([-1], "uint64", "-1 at [0] is out of range"),
    ([2**64 - 1], "uint64", np.uint64([2**64 - 1])),
    ([2**63], "int64", "9223372036854775808 at [0] is out of range"),
    ([2**64], "uint64", "64 bits"),
    ([1.0], "int32", "without a decimal point"),
    ([True], "bool", np.array([True])),
    ([1], "bool", "expected bool"),
    ([True], "float32", "expected float32"),
    ([1e39], "float32", "out of range for float32"),
    ([2**24 + 1], "float32", "16777217 at [0] is out of range: float32 cannot hold it exactly"),
    ([], "float32", np.empty(0, np.float32)),
    ([], "string", tw.Strings.of([], text=True)),
    (["a"], "string", tw.Strings.of(["a"])),
    ([b"a"], "string", tw.Strings.of([b"a"])),
    (1.5, "bfloat16", np.array(1.5, ml_dtypes.bfloat16)),
    (np.int32([1]), "int64", np.int64([1])),
    (np.int64([1]), "int32", np.int32([1])),
    (np.int64([2**31]), "int32", "2147483648 at [0] is out of range"),
    (np.uint8([255]), "int8", "255 at [0] is out of range"),
    (np.float32([0.1]), "float64", np.float64([np.float32(0.1)])),
    (np.float16([0.5]), "float32", np.float32([0.5])),
    (np.array([1.5], ml_dtypes.bfloat16), "float32", np.float32([1.5])),
    (np.array([1.5], ml_dtypes.float8_e5m2), "float32", np.float32([1.5])),
    (np.array([1, -2], ml_dtypes.int4), "int32", np.int32([1, -2])),
    (np.float64([0.5]), "float32", "x.astype('float32')"),
    (np.float32([0.5]), "float16", "cast=True"),
    (np.int64([5]), "float32", np.float32([5])),
    (np.int64([2**24 + 1]), "float32", "is out of range"),
    (np.int64([2**53]), "float64", np.float64([2**53])),
    (np.float32([1]), "int32", "x.astype('int32')"),
    (np.array([True]), "int32", "expected int32"),
    (np.complex64([1]), "complex128", np.complex128([1])),
    (np.float32([1]), "complex64", "expected complex64"),
    (np.array(["a"]), "string", tw.Strings.of(["a"])),
]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    TYPED,
    ids=[f"{value!r:.30} as {dtype}" for value, dtype, _ in TYPED],
)
def test_dtypes(value, dtype, expected):
    if isinstance(expected, str):
        with pytest.raises(tw.EncodeError) as error:
            fit(value, Input("x", dtype))
        assert expected in str(error.value) and error.value.tensor == "x"
    else:
        assert tw.equal(fit(value, Input("x", dtype))[0], expected)


def test_cast():
    for value, dtype, expected in (
        (np.float64([0.1]), "float32", np.float32([0.1])),
        (np.float32([0.1]), "bfloat16", np.array([0.1], ml_dtypes.bfloat16)),
        (np.int64([2**24 + 1]), "float32", np.float32([2**24])),
    ):
        found, notes = fit(value, Input("x", dtype), cast=True)
        assert tw.equal(found, expected) and "rounded" in notes[0]
        assert tw.equal(
            plan({"x": value}, given(x=(dtype, [None])), cast=True).inputs["x"], expected
        )
    for value, dtype in (
        (np.float64([1e39]), "float32"),
        (np.float32([1]), "int32"),
        (np.int64([300]), "int8"),
    ):
        with pytest.raises(tw.EncodeError):
            fit(value, Input("x", dtype), cast=True)


def test_the_same_array_is_not_copied():
    x = np.zeros((4, 3), np.float32)
    assert plan({"x": x}, given(x=("float32", [None, 3]))).inputs["x"] is x


@pytest.mark.tensorflow
@pytest.mark.parametrize("form", ["parts", "serialized", "example"])
def test_what_the_model_side_rebuilds(form, tf):
    from tensorwire.serving.model import input_forms
    from tensorwire.serving.spec import Spec

    inputs = {
        "s": SPARSE,
        "cube": tw.Sparse([[0, 1, 2], [1, 0, 0]], np.int64([7, 8]), (2, 2, 3)),
        "r": RAGGED,
        "n": tw.Ragged.of([[[1], [2, 3]], []]),
        "v": tw.Ragged(np.float32([[1, 2], [3, 4], [5, 6]]), [0, 1, 3]),
        "t": TEXT.astext(False),
        "x": np.float32([[1, 2], [3, 4]]),
    }
    specs = {
        "s": ("sparse", "float32", [None, 4]),
        "cube": ("sparse", "int64", [None, None, 3]),
        "r": ("ragged", "int64", [None, None]),
        "n": ("ragged", "int64", [None, None, None]),
        "v": ("ragged", "float32", [None, None, 2]),
        "t": ("string", [None]),
        "x": ("float32", [None, 2]),
    }
    made = input_forms.form(form, {name: Spec.of(spec, name) for name, spec in specs.items()})
    found = plan(inputs, Signature("serving_default", made.inputs, {}))
    assert {step.form for step in found.steps} <= {form, "dense"}
    assert found.has_rows == (form != "parts")
    for layout in ("columns", *(["rows"] if found.has_rows else [])):
        body = b"".join(rest.build(found, layout=layout))
        sent = rest.parse_request(body, found.signature).inputs
        back = made.rebuild(
            tf, {name: tw.to(tensor, "tensorflow") for name, tensor in sent.items()}
        )
        for name, tensor in inputs.items():
            assert tw.equal(tw.tensor(back[name]), tensor), name


@pytest.mark.tensorflow
@pytest.mark.torch
def test_tensors_of_any_framework(tf):
    import torch

    signature = given(
        s=("sparse", "float32", [None, 4]),
        r=("ragged", "int64", [None, None]),
        x=("float32", [None, 2]),
    )
    for sparse in (
        tf.sparse.from_dense([[0, 0, 0, 1.0], [2, 0, 3, 0]]),
        torch.tensor([[0, 0, 0, 1.0], [2, 0, 3, 0]]).to_sparse(),
    ):
        found = plan(
            {
                "s": sparse,
                "r": tf.ragged.constant([[4, 8, 15], []], dtype=tf.int64),
                "x": torch.ones(2, 2),
            },
            signature,
        )
        assert found.inputs["s_values"].tolist() == [1, 2, 3] and found.inputs[
            "r_values"
        ].tolist() == [4, 8, 15]
