"""Signatures of SavedModels, read without TensorFlow: the same as TensorFlow says, and for other
bytes nothing but our errors.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import tensorwire as tw
from support.protos import block, field, varint
from support.saved_model_files import entry, graph, model, number, shape, signature, tensor, text
from support.tiers import TESTS
from tensorwire.codecs.saved_model import signatures as saved_model
from tensorwire.codecs.saved_model.signatures import SignatureDef, signatures
from tensorwire.codecs.saved_model.specs import TensorInfo
from tensorwire.serving.signature import Signature
from tensorwire.storage import files
from tensorwire.wire import protobuf


class TestByHand:
    def test_dtypes_and_shapes(self):
        inputs = [
            ("b", tensor(1, [None, 3])),
            ("a_10", tensor(7, None)),
            ("a_9", tensor(14, [])),
            ("c", tensor(109, [0])),
            ("v", tensor(21, [])),
        ]
        found = signatures(model(inputs))["serving_default"]
        assert found == SignatureDef(
            {
                "a_9": TensorInfo("bfloat16", (), "dense", ("x:0",)),
                "a_10": TensorInfo("string", None, "dense", ("x:0",)),
                "b": TensorInfo("float32", (None, 3), "dense", ("x:0",)),
                "c": TensorInfo("int64", (0,), "dense", ("x:0",)),
                "v": TensorInfo("variant", (), "dense", ("x:0",)),
            },
            {},
            "predict",
            None,
        )
        assert list(found.inputs) == ["a_9", "a_10", "b", "c", "v"]

    def test_fields_of_newer_versions_are_skipped(self):
        blob = model(
            [
                (
                    "x",
                    tensor(1, [2])
                    + text(99, "new")
                    + field(98, 5, b"1234")
                    + field(97, 1, b"12345678"),
                )
            ]
        )
        assert signatures(blob + text(77, "more"))["serving_default"].inputs["x"].shape == (2,)

    def test_a_sparse_input(self):
        names = text(1, "v:0") + text(2, "i:0") + text(3, "s:0")
        found = signatures(
            model([("x", block(4, names) + number(2, 1) + block(3, shape([None, 5])))])
        )["serving_default"]
        assert found.inputs["x"] == TensorInfo(
            "float32", (None, 5), "sparse", ("i:0", "v:0", "s:0")
        )
        assert (
            str(
                Signature.from_saved_model(model([("x", block(4, names) + number(2, 1))])).inputs[
                    "x"
                ]
            )
            == "x: sparse float32 []"
        )

    def test_tags(self):
        one = graph(block(5, entry("a", signature([]))))
        two = graph(block(5, entry("b", signature([]))), tags=("serve", "gpu"))
        assert list(signatures(one + two)) == ["a"] and list(
            signatures(one + two, ("gpu", "serve"))
        ) == ["b"]
        assert list(signatures(one, None)) == ["a"] and list(signatures(one, "serve")) == ["a"]
        for tags, blob in ((("train",), one + two), (None, one + two), (("serve",), one + one)):
            with pytest.raises(tw.SchemaError, match="MetaGraphs tagged"):
                signatures(blob, tags)

    def test_a_name_that_is_not_there(self):
        with pytest.raises(tw.SchemaError, match="did you mean 'serving_default'"):
            Signature.from_saved_model(model([]), "serving_defult")

    @pytest.mark.parametrize(
        ("blob", "kind"),
        [
            (b"", tw.DecodeError),
            (b"{}", tw.DecodeError),
            (number(2, 5), tw.DecodeError),  # a MetaGraph that is a number
            (model([("x", number(2, 999))]), tw.DecodeError),  # no such dtype
            (model([("x", number(2, 100))]), tw.DecodeError),
            (model([("x", tensor(1, [-2]))]), tw.DecodeError),
            (model([("x", tensor(1, [1] * 255))]), tw.DecodeError),
            (model([("x", tensor(1, [1])), ("x", tensor(1, [1]))]), tw.DecodeError),  # a name twice
            (model([("x", tensor(1, [1]) + number(2, 1))]), tw.DecodeError),  # a field twice
            (model([(b"\xff", tensor(1, [1]))]), tw.DecodeError),
            (model([("x", text(2, "float"))]), tw.DecodeError),  # another wire type
            (model([("x", text(1, "x:0") + block(4, b""))]), tw.DecodeError),  # a name, and sparse
            (model([("x", block(5, b""))]), tw.DecodeError),  # composite of no type
            # sparse of no shape
            (model([("x", block(5, block(1, number(1, 1))))]), tw.DecodeError),
            (
                model(
                    [
                        (
                            "x",
                            block(
                                5,
                                block(
                                    1, number(1, 3) + block(2, block(52, block(1, b"") * 3 + b""))
                                ),
                            ),
                        )
                    ]
                )[:-1],
                tw.TruncatedError,
            ),
            (block(2, b"\x0b" * 200), tw.DecodeError),  # groups that never close
        ],
    )
    def test_what_is_none(self, blob, kind):
        with pytest.raises(kind) as caught:
            signatures(blob)
        assert caught.value.format == "saved_model" and 0 <= caught.value.offset <= len(blob)

    def test_nested_too_deep(self):
        inner = text(1, "x:0")
        spec = number(1, 7) + number(4, 1)
        for _ in range(100):
            inner = block(5, block(1, spec) + block(2, inner))
        with pytest.raises(tw.LimitError, match="64 levels deep"):
            signatures(model([("x", inner)]))

    def test_too_many_fields(self):
        blob = b"\x5a\x00" * 3000 + model([])
        assert signatures(blob)
        with pytest.raises(tw.LimitError, match="names"):
            signatures(blob, limits=tw.Limits(names=500))


class TestFolders:
    def test_folders_and_versions(self, tmp_path):
        for version in ("2", "10", "x11", ".12"):
            os.makedirs(tmp_path / version)
            (tmp_path / version / "saved_model.pb").write_bytes(
                model([(f"v{version}", tensor(1, []))])
            )
        for path, name in (
            (tmp_path, "v10"),
            (str(tmp_path / "2"), "v2"),
            (tmp_path / "x11" / "saved_model.pb", "vx11"),
        ):
            assert list(Signature.from_saved_model(path).inputs) == [name]

    def test_not_there(self, tmp_path):
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(FileNotFoundError):
                signatures(path)

    @pytest.mark.parametrize("name", ["saved_model.pbtxt", "saved_model.cpb"])
    def test_other_forms(self, tmp_path, name):
        (tmp_path / name).write_text("saved_model_schema_version: 1")
        with pytest.raises(tw.DecodeError, match=name):
            signatures(tmp_path)

    def test_errors_name_the_file(self, tmp_path):
        (tmp_path / "saved_model.pb").write_bytes(b"\xff")
        with pytest.raises(tw.DecodeError, match=r"saved_model\.pb"):
            signatures(tmp_path)


def test_large_graphs_are_skipped(tmp_path, monkeypatch):
    """Half a gigabyte of graph (a hole in the file), of which nothing is read; a signature behind
    it, and one in front of it.
    """
    size = 1 << 29
    about = block(1, text(4, "serve")) + block(
        5, entry("before", signature([("x", tensor(1, [3])), ("n", tensor(9, [None]))]))
    )
    after = block(5, entry("after", signature([("y", tensor(2, [4]))])))
    constant = block(1, b"")[:-1] + varint(size)  # one node that fills the graph
    inner = about + b"\x12" + varint(len(constant) + size) + constant
    total = len(inner) + size + len(after)
    with open(tmp_path / "saved_model.pb", "wb") as file:
        file.write(b"\x12" + varint(total) + inner)
        file.seek(size, os.SEEK_CUR)
        file.write(after)
    read = []
    whole = files.FileSource.read_at
    monkeypatch.setattr(
        files.FileSource,
        "read_at",
        lambda self, at, count: read.append(count) or whole(self, at, count),
    )
    found = signatures(tmp_path)
    assert list(found) == ["after", "before"] and found["after"].inputs["y"].dtype == "float64"
    assert sum(read) < 1 << 20


HOSTILE = """
import resource, sys
sys.path.insert(0, {tests!r})
import tensorwire as tw
from tensorwire.codecs.saved_model.signatures import signatures
from support.protos import block, varint
from support.saved_model_files import entry, graph, model, number, signature, tensor, text
signatures(model([]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bombs = [
    # A MetaGraph of 4 GB that is not there; a spec of two billion tensors; a million nodes, which nobody looks at; as many objects
    b"\\x12\\xff\\xff\\xff\\xff\\x0f",
    model([("x", block(5, block(1, number(1, 8) + number(4, (1 << 31) - 1))))]) + b"\\x80",
    graph(block(2, b"\\x0a\\x00" * 1_000_000), block(5, entry("s", signature([("n", tensor(9, [None]))])))),
    graph(block(7, b"\\x0a\\x00" * 1_000_000), block(5, entry("s", signature([("n", tensor(9, [None]))])))),
]
refused = 0
for bomb in bombs:
    try:
        signatures(bomb, limits=tw.Limits(names=200_000))
    except tw.DecodeError:
        refused += 1
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.large
def test_bombs_cost_little_memory():
    """Beyond the 2 MB that the largest of them take themselves, and what is copied of them."""
    code = HOSTILE.format(tests=str(TESTS))
    refused, extra = map(
        int,
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split(),
    )
    assert refused == 3 and extra <= 64


# Against the real TensorFlow


@pytest.fixture(scope="module")
def saved(tf, tmp_path_factory):
    """Folders of SavedModels, each in the ways that people make them."""
    root = tmp_path_factory.mktemp("saved")
    made = {}

    def save(name, module, **options):
        made[name] = str(root / name)
        tf.saved_model.save(module, made[name], **options)

    class Composites(tf.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable(2.0)

        @tf.function(
            input_signature=[
                tf.SparseTensorSpec([None, 5], tf.float32),
                tf.RaggedTensorSpec([None, None, None], tf.int32, 2, tf.int32),
                tf.TensorSpec([None, 3], tf.float32, "d"),
                tf.TensorSpec(None, tf.string, "s"),
                tf.RaggedTensorSpec([None, None, 2], tf.int64, 1),
            ]
        )
        def call(self, x, r, d, s, v):
            return {
                "y": tf.sparse.to_dense(x) * self.scale,
                "ragged": r,
                "sparse": x,
                "d": d,
                "s": s,
                "v": v.values,
            }

        @tf.function(
            input_signature=[tf.TensorSpec([], tf.int8), tf.TensorSpec([2, None], tf.complex64)]
        )
        def other(self, a, b):
            return a, b

    composites = Composites()
    save(
        "composites",
        composites,
        signatures={"serving_default": composites.call, "other": composites.other},
    )
    loaded = tf.saved_model.load(made["composites"])
    save("again", loaded, signatures=dict(loaded.signatures))

    @tf.function(
        input_signature=[
            tf.SparseTensorSpec([None, 5], tf.float32),
            tf.TensorSpec([None], tf.int64, name="x_1"),
            tf.RaggedTensorSpec([None, None, 2], tf.int64, 1),
            {"q": tf.SparseTensorSpec([None, 5], tf.string), "a": tf.TensorSpec([], tf.float32)},
            tf.SparseTensorSpec(None, tf.float32),
        ]
    )
    def loose(x, x_1, r, kw, u):
        return tf.sparse.to_dense(x)

    save("unattached", tf.Module(), signatures=loose)
    attached = tf.Module()
    attached.call = loose
    save("attached", attached, signatures=loose)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, 2], tf.int64),
        ]
    )
    def misleading(x, x_1, y):
        return x

    save("misleading", tf.Module(), signatures=misleading)

    @tf.function(
        input_signature=[
            {
                "a": tf.TensorSpec([None], tf.float32, "f"),
                "b": tf.TensorSpec([None], tf.int64, "f_1"),
            }
        ]
    )
    def features(f):
        return f["a"]

    holder = tf.Module()
    holder.features = features
    save("features", holder, signatures=features)

    inputs = {"x": tf.keras.Input((5,), sparse=True, name="x"), "b": tf.keras.Input((3,), name="b")}
    keras = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs["x"]))
    made["keras"] = str(root / "keras")
    keras.export(made["keras"], verbose=False)

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        sparse = v1.sparse_placeholder(tf.float32, [None, 5], name="sparse")
        ragged = v1.ragged.placeholder(tf.int64, 2, [], name="ragged")
        dense = v1.placeholder(tf.float32, [None, 3], name="dense")
        examples = v1.placeholder(tf.string, [None], name="examples")
        info = v1.saved_model.build_tensor_info
        out = tf.identity(dense)
        predict = v1.saved_model.build_signature_def(
            {"sparse": info(sparse), "ragged": info(ragged), "dense": info(dense)},
            {"y": info(out)},
            "tensorflow/serving/predict",
        )
        classify = v1.saved_model.classification_signature_def(
            examples, tf.identity(examples), tf.zeros([1, 1])
        )
        regress = v1.saved_model.regression_signature_def(examples, tf.zeros([1, 1]))
        made["builder"] = str(root / "builder")
        builder = v1.saved_model.Builder(made["builder"])
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": predict, "classify": classify, "regress": regress},
            strip_default_attrs=True,
        )
        builder.add_meta_graph(["serve", "tpu"], {"tpu": predict})
        builder.save()
    return made


NAMES = ["composites", "again", "unattached", "attached", "misleading", "features", "keras"]


def described(tf, spec):
    kind = {"TensorSpec": "dense", "SparseTensorSpec": "sparse", "RaggedTensorSpec": "ragged"}[
        type(spec).__name__
    ]
    return spec.dtype.name, None if spec.shape.rank is None else tuple(spec.shape.as_list()), kind


@pytest.mark.tensorflow
class TestAgainstTensorFlow:
    @pytest.mark.parametrize("name", NAMES)
    def test_the_same(self, tf, saved, name):
        theirs = tf.saved_model.load(saved[name]).signatures
        ours = signatures(saved[name])
        assert ours.keys() == set(theirs)
        for key, found in ours.items():
            inputs = {
                alias: described(tf, spec)
                for alias, spec in theirs[key].structured_input_signature[1].items()
            }
            outputs = {
                alias: described(tf, spec) for alias, spec in theirs[key].structured_outputs.items()
            }
            assert {
                alias: (info.dtype, info.shape, info.kind) for alias, info in found.inputs.items()
            } == inputs
            assert {
                alias: (info.dtype, info.shape, info.kind) for alias, info in found.outputs.items()
            } == outputs

    @pytest.mark.parametrize("name", [*NAMES, "builder"])
    def test_the_same_messages(self, tf, saved, name):
        """Field by field, against the parser of the protobuf runtime."""
        from tensorflow.core.protobuf import saved_model_pb2

        message = saved_model_pb2.SavedModel.FromString(
            Path(saved[name], "saved_model.pb").read_bytes()
        )
        for meta in message.meta_graphs:
            ours = signatures(saved[name], tuple(meta.meta_info_def.tags))
            assert ours.keys() == set(meta.signature_def) - {"__saved_model_init_op"}
            for key, found in ours.items():
                theirs = meta.signature_def[key]
                assert "tensorflow/serving/" + found.method == theirs.method_name
                for mine, other in ((found.inputs, theirs.inputs), (found.outputs, theirs.outputs)):
                    assert mine.keys() == set(other)
                    for alias, info in mine.items():
                        names = {
                            "name": lambda i: [i.name],
                            "coo_sparse": _coo,
                            "composite_tensor": _components,
                        }
                        assert list(info.tensors) == names[other[alias].WhichOneof("encoding")](
                            other[alias]
                        )

    @pytest.mark.parametrize("name", ["composites", "again"])
    def test_composites(self, saved, name):
        found = Signature.from_saved_model(saved[name])
        assert [
            (
                group.name,
                group.kind,
                group.dtype,
                group.shape,
                tuple(group.parts.values()),
                group.by,
            )
            for group in found.groups()
        ] == [
            ("x", "sparse", "float32", (None, 5), ("x", "x_1", "x_2"), "structure"),
            ("r", "ragged", "int32", (None, None, None), ("r", "r_1", "r_2"), "structure"),
            ("v", "ragged", "int64", (None, None, 2), ("v", "v_1"), "structure"),
        ]
        assert Signature.from_saved_model(saved[name], "other").groups() == ()
        assert {
            output.name: output.kind for output in found.outputs.values() if output.kind != "dense"
        } == {
            "ragged": "ragged",
            "sparse": "sparse",
        }

    @pytest.mark.parametrize(("name", "known"), [("unattached", False), ("attached", True)])
    def test_a_name_that_means_two_things(self, saved, name, known):
        """x_1 is the sparse tensor's values, and the argument of that name is x_1_1."""
        found = {
            group.name: (group.kind, *group.parts.values())
            for group in Signature.from_saved_model(saved[name]).groups()
        }
        assert found == {
            "x": ("sparse", "x", "x_1", "x_2"),
            "r": ("ragged", "r", "r_1"),
            "kw_1": ("sparse", "kw_1", "kw_2", "kw_3"),
            "u": ("sparse", "u", "u_1", "u_2"),
        }
        raw = signatures(saved[name])["serving_default"]
        assert (raw.composites is not None) is known and (raw.arguments is not None) is not known

    @pytest.mark.parametrize("name", ["misleading", "features"])
    def test_names_that_only_look_like_parts(self, saved, name):
        """Two vectors x and x_1, or a dict of them, are no ragged tensor, whatever they are called;
        names alone could not tell.
        """
        from dataclasses import replace

        found = Signature.from_saved_model(saved[name])
        assert found.groups() == () and found.known == ()
        assert [group.kind for group in replace(found, known=None).groups()] == ["ragged"]

    def test_tensorflow_1(self, saved):
        found = Signature.all_of_saved_model(saved["builder"])
        assert {name: one.method for name, one in found.items()} == {
            "serving_default": "predict",
            "classify": "classify",
            "regress": "regress",
        }
        inputs = found["serving_default"].inputs
        assert {name: (part.dtype, part.shape, part.kind) for name, part in inputs.items()} == {
            "dense": ("float32", (None, 3), "dense"),
            "ragged": ("int64", (None, None, None), "ragged"),
            "sparse": ("float32", (None, 5), "sparse"),
        }
        assert found["serving_default"].groups() == ()
        assert list(Signature.all_of_saved_model(saved["builder"], ("serve", "tpu"))) == ["tpu"]

    def test_keras_makes_a_sparse_input_dense(self, saved):
        """Which is why there is `export`."""
        assert Signature.from_saved_model(saved["keras"]).inputs["x"].kind == "dense"

    @pytest.mark.parametrize("name", ["composites", "unattached", "builder"])
    def test_cuts_and_flips(self, saved, name):
        """Signatures or one of our errors; every cut is an error."""
        blob = Path(saved[name], "saved_model.pb").read_bytes()
        rng = random.Random(0)
        ends = {0} if name != "builder" else {0, 1, 2}
        for at in {
            *range(0, len(blob), max(1, len(blob) // 400)),
            *range(64),
            *range(len(blob) - 64, len(blob)),
        }:
            with pytest.raises((tw.DecodeError, tw.SchemaError)) as caught:
                signatures(blob[:at], tags=("serve", "tpu") if name == "builder" else ("serve",))
            assert caught.value.format == "saved_model" and (
                at in ends or 0 <= caught.value.offset <= at
            )
        for _ in range(1500):
            damaged = bytearray(blob)
            for _ in range(rng.choice([1, 1, 3])):
                damaged[rng.randrange(len(blob))] ^= 1 << rng.randrange(8)
            try:
                Signature.all_of_saved_model(bytes(damaged))
            except (tw.DecodeError, tw.SchemaError) as error:
                assert error.format == "saved_model" and 0 <= error.offset <= len(blob)

    def test_a_spec_that_its_tensors_do_not_fit(self, tf, saved):
        from tensorflow.core.protobuf import saved_model_pb2

        message = saved_model_pb2.SavedModel.FromString(
            Path(saved["composites"], "saved_model.pb").read_bytes()
        )
        message.meta_graphs[0].signature_def["serving_default"].inputs["x"].tensor_shape.Clear()
        found = Signature.from_saved_model(message.SerializeToString())
        assert found.inputs["x"].shape == () and [group.name for group in found.groups()] == [
            "r",
            "v",
        ]

    @pytest.mark.parametrize("window", [1, 7, 1000])
    def test_through_a_small_window(self, saved, window, monkeypatch):
        """A file is read piece by piece; how large the pieces are makes no difference."""
        monkeypatch.setattr(protobuf, "_WINDOW", window)
        for name in ("composites", "unattached", "builder"):
            path = Path(saved[name], "saved_model.pb")
            assert signatures(path) == signatures(path.read_bytes())

    def test_no_tensorflow_is_loaded(self, saved):
        code = f"""
import sys
from tensorwire.serving.signature import Signature
print(len(Signature.from_saved_model({saved["composites"]!r}).inputs), *sys.modules)
"""
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        assert found[0] == "10" and not {"tensorflow", "google.protobuf"} & set(found)


def _coo(info):
    return [
        info.coo_sparse.indices_tensor_name,
        info.coo_sparse.values_tensor_name,
        info.coo_sparse.dense_shape_tensor_name,
    ]


def _components(info):
    return [part.name for part in info.composite_tensor.components]


def test_order_of_names():
    names = ["x", "x_1", "x_2", "x_10", "x1", "1", "", "X"]
    assert sorted(random.Random(1).sample(names, len(names)), key=saved_model.order) == sorted(
        names, key=saved_model.order
    )
    assert [name for name in sorted(names, key=saved_model.order) if name.startswith("x_")] == [
        "x_1",
        "x_2",
        "x_10",
    ]
