"""SavedModels read without TensorFlow: variables, assets, objects, functions; and what
`saved_model_cli show --all` says, fact by fact.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys

import pytest

import tensorwire as tw
from support.protos import block, field, signed
from tensorwire.codecs.identify import identify
from tensorwire.codecs.saved_model.summary import describe

DTYPES = {
    "float32": "DT_FLOAT",
    "bool": "DT_BOOL",
    "int64": "DT_INT64",
    "string": "DT_STRING",
    "invalid": "DT_INVALID",
    "int32": "DT_INT32",
}


@pytest.fixture(scope="module")
def models(tf, tmp_path_factory):
    """A module of TensorFlow 2 with an asset, a Keras export, and one of TensorFlow 1."""
    import keras

    folder = tmp_path_factory.mktemp("models")
    (folder / "vocab.txt").write_text("a\nb\n")

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.random.normal((3, 2)), name="kernel")
            self.parts = [tf.Variable(1.5, trainable=False), tf.Variable([1, 2], dtype=tf.int64)]
            self.words = tf.Variable(["x", "yy"])
            self.asset = tf.saved_model.Asset(str(folder / "vocab.txt"))

        @tf.function(
            input_signature=[
                tf.TensorSpec((None, 3), tf.float32, name="x"),
                tf.TensorSpec((), tf.bool, name="flag"),
            ]
        )
        def __call__(self, x, flag):
            return {"y": x @ self.w}

        @tf.function
        def score(self, ids, options=None, *, scale=2.0):
            return tf.cast(tf.sparse.reduce_sum(ids), tf.float32) * scale

    module = Module()
    ids = tf.sparse.from_dense([[1, 2]])
    module.score(ids, scale=3.0)
    module.score(ids, options={"a": tf.constant(1.0), "b": [tf.constant([1])]})
    tf.saved_model.save(
        module, str(folder / "two"), signatures={"serving_default": module.__call__}
    )
    inputs = keras.Input((8,))
    model = keras.Model(
        inputs, keras.layers.Dense(2, name="out")(keras.layers.Dense(4, name="hidden")(inputs))
    )
    model.export(str(folder / "keras"), verbose=False)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("scope/v", (2, 3))
        x = tf.compat.v1.placeholder(tf.float32, (None, 2), name="x")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(
            session, str(folder / "one"), {"x": x}, {"y": tf.matmul(x, variable)}
        )
    return folder


def command_line(path):
    """What saved_model_cli says: tag-set -> signature -> ("inputs"|"outputs", name) -> (dtype,
    shape, tensor), methods, ops, functions.
    """
    code = (
        "import sys; from tensorflow.python.tools.saved_model_cli import main; sys.argv[1:] ="
        f" ['show', '--dir', {str(path)!r}, '--all']"
    )
    code += "; main()"
    text = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ).stdout
    found = {
        "signatures": {},
        "methods": {},
        "functions": {},
        "tags": re.findall(r"tag-set: '(.*)' contains", text),
    }
    for name, body in re.findall(r"signature_def\['(.*?)'\]:\n(.*?)Method name is: ", text, re.S):
        pattern = (
            r"(inputs|outputs)\['(.*?)'\] tensor_info:\s+dtype: (\S+)\s+shape: (.*?)\n\s+name:"
            r" (\S+)"
        )
        found["signatures"][name] = {
            (side, alias): rest for side, alias, *rest in re.findall(pattern, body)
        }
    found["methods"] = re.findall(r"Method name is: (.*)", text)
    found["ops"] = set(re.findall(r"'(\w+)'", re.search(r"following ops: \{(.*)\}", text)[1]))
    for name, body in re.findall(
        r"Function Name: '(.*?)'\n(.*?)(?=\n  Function Name|\Z)", text, re.S
    ):
        found["functions"][name] = body
    return found


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["two", "keras", "one"])
def test_the_facts_of_saved_model_cli(models, name):
    expected, found = command_line(models / name), describe(models / name)
    (graph,) = found.graphs
    assert [",".join(graph.tags)] == expected["tags"]
    assert set(graph.signatures) == set(expected["signatures"])
    for key, signature in graph.signatures.items():
        said = {}
        for side, tensors in (("inputs", signature.inputs), ("outputs", signature.outputs)):
            for alias, info in tensors.items():
                shape = (
                    "unknown_rank"
                    if info.shape is None
                    else str(tuple(-1 if dim is None else dim for dim in info.shape))
                )
                said[side, alias] = [DTYPES[info.dtype], shape, *info.tensors]
        assert said == expected["signatures"][key], key
        assert signature.method in expected["methods"]
    assert expected["ops"] <= set(graph.ops)  # ours has those of the functions too
    assert {function.name for function in graph.functions} == set(expected["functions"])
    for function in graph.functions:
        body = expected["functions"][function.name]
        assert len(function.calls) == body.count("Option #")
        for name, shape, dtype in re.findall(
            r"(\w+): TensorSpec\(shape=(.*?), dtype=tf\.(\w+)", body
        ):
            specs = [
                (one.name, str(one.shape), one.dtype)
                for call in function.calls
                for one in call.arguments
                if hasattr(one, "dtype")
            ]
            assert (name, shape, dtype) in specs


@pytest.mark.tensorflow
def test_functions_assets_objects_and_fingerprint(models, tf):
    found = describe(models / "two")
    (graph,) = found.graphs
    score = next(function for function in graph.functions if function.name == "score")
    assert score.arguments == ["ids", "options"] and {
        call.named["scale"] for call in score.calls
    } == {3.0, 2.0}
    first = score.calls[0].arguments[0]
    assert (first.kind, first.dtype, first.shape) == ("sparse", "int32", (1, 2))
    nested = next(call.arguments[1] for call in score.calls if call.arguments[1] is not None)
    assert nested["a"].dtype == "float32" and nested["b"][0].shape == (1,)
    assert found.assets == {"vocab.txt": 4} and list(graph.assets) == ["vocab.txt"]
    objects = {one.path: one for one in graph.objects}
    assert (
        objects["w"].kind == "variable"
        and objects["w"].about == "kernel"
        and objects["asset"].kind == "asset"
        and objects[""].kind == "object"
    )
    variables = {one.name: one for one in found.variables}
    assert (
        variables["w"].called == "kernel"
        and variables["w"].trainable
        and not variables["parts/0"].trainable
    )
    assert (
        graph.tensorflow_version == tf.__version__
        and graph.producer == tf.version.GRAPH_DEF_VERSION
        and graph.stripped_default_attrs
    )
    expected = tf.saved_model.experimental.read_fingerprint(str(models / "two"))
    assert found.fingerprint["saved_model_checksum"] == expected.saved_model_checksum
    assert found.fingerprint["checkpoint_hash"] == expected.checkpoint_hash
    assert found.size == sum(
        os.path.getsize(os.path.join(place, name))
        for place, _, names in os.walk(models / "two")
        for name in names
    )
    json.dumps(found.json())


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["two", "keras", "one"])
def test_variables_are_those_of_tensorflow(models, tf, name):
    reader = tf.train.load_checkpoint(str(models / name / "variables" / "variables"))
    with tw.open(models / name) as f:
        assert (
            f.format == "saved_model"
            and f.metadata["tags"] == "serve"
            and f.metadata["tensorflow_version"] == tf.__version__
        )
        raw = dict(zip(f, f.names(readable=False), strict=True))
        assert len(f) == len(
            [
                key
                for key in reader.get_variable_to_shape_map()
                if key != "_CHECKPOINTABLE_OBJECT_GRAPH"
            ]
        )
        for key, tensor in f.items():
            expected = reader.get_tensor(raw[key])
            assert tw.equal(tensor.read(), tw.tensor(expected)), key
    assert set(tw.load(models / name)) == set(raw) and bool(tw.verify(models / name))


@pytest.mark.tensorflow
def test_conversion_and_difference(models, tmp_path):
    tw.convert(models / "two", tmp_path / "m.safetensors", exclude="words")
    tw.convert(models / "two", tmp_path / "m.npz")
    tw.convert(models / "two", tmp_path / "m.ckpt-1")
    assert sorted(tw.load(tmp_path / "m.npz")) == ["parts/0", "parts/1", "w", "words"]
    for target in ("m.npz", "m.ckpt-1"):
        assert tw.diff(models / "two", tmp_path / target).equal
    assert tw.diff(models / "two", tmp_path / "m.safetensors").missing == ["words"]
    with pytest.raises(tw.SchemaError, match="itself"):
        tw.convert(
            models / "two", models / "two" / "variables" / "variables", "checkpoint", overwrite=True
        )


def kind(where, format=None):
    with identify(where, format) as found:
        return found.kind


@pytest.mark.tensorflow
def test_paths_that_mean_it(models, tmp_path):
    shutil.copytree(models / "two", tmp_path / "model" / "3")
    shutil.copytree(models / "keras", tmp_path / "model" / "12")
    assert describe(tmp_path / "model").path.endswith("12") and kind(tmp_path / "model") == "model"
    assert set(tw.open(tmp_path / "model" / "3" / "saved_model.pb")) == set(tw.open(models / "two"))
    assert (
        tw.inspect(models / "two" / "saved_model.pb").graphs
        and tw.open(models / "two", "saved_model").format == "saved_model"
    )
    assert tw.open(models / "two", "checkpoint").format == "checkpoint"
    shutil.rmtree(tmp_path / "model" / "12" / "variables")
    with tw.open(tmp_path / "model") as f:
        assert list(f) == [] and f.format == "saved_model"
    assert kind(tmp_path) == kind(b"bytes") == kind(models / "two", "npz") == "tensors"
    with pytest.raises((OSError, tw.TensorwireError)):
        tw.open(tmp_path)


def test_other_forms(tmp_path):
    (tmp_path / "saved_model.pbtxt").write_text("saved_model_schema_version: 1")
    for work in (tw.open, tw.inspect):
        with pytest.raises(tw.DecodeError, match="as text"):
            work(tmp_path)


@pytest.mark.tensorflow
@pytest.mark.timing
def test_the_command_is_quick(models, tmp_path):
    """In processor time, the interpreter and NumPy included; compiled once, as any installed
    package is.
    """
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(tmp_path),
    }
    best = 60.0
    for _ in range(6):
        before = os.times()
        command = [sys.executable, "-m", "tensorwire", "inspect", str(models / "two")]
        found = subprocess.run(command, capture_output=True, text=True, env=environment)
        after = os.times()
        best = min(
            best,
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system,
        )
    assert found.returncode == 0 and best < 0.5, best
    for fact in (
        "serving_default",
        "input  x: float32 [?, 3]  serving_default_x:0",
        "tensorflow/serving/predict",
        "vocab.txt",
        "kernel",
        "score(",
    ):
        assert fact in found.stdout, fact
    shown = json.loads(
        subprocess.run(
            [sys.executable, "-m", "tensorwire", "inspect", str(models / "two"), "--json"],
            capture_output=True,
        ).stdout
    )
    assert shown["graphs"][0]["signatures"]["serving_default"]["inputs"]["x"]["shape"] == [None, 3]


@pytest.mark.tensorflow
def test_no_framework_is_loaded(models, tmp_path):
    code = """
import sys, tensorwire as tw
source, target = sys.argv[1:]
str(tw.inspect(source)); tw.load(source); tw.verify(source); tw.convert(source, target); assert tw.diff(source, target).equal
print(*sys.modules)
"""
    given = [sys.executable, "-c", code, str(models / "two"), str(tmp_path / "m.npz")]
    loaded = subprocess.run(given, capture_output=True, text=True, check=True).stdout.split()
    assert not [
        name
        for name in ("tensorflow", "google.protobuf", "keras", "h5py", "torch", "pyarrow")
        if name in loaded
    ]


@pytest.mark.tensorflow
def test_damage(models, tmp_path):
    """Flips and cuts anywhere: our errors or an answer, never anything else."""
    shutil.copytree(models / "two", tmp_path / "m")
    path = tmp_path / "m" / "saved_model.pb"
    whole = path.read_bytes()
    chance = random.Random(4)
    wrong = 0
    for _ in range(300):
        blob = bytearray(whole)
        if chance.random() < 0.3:
            del blob[chance.randrange(len(blob)) :]
        for _ in range(chance.randrange(1, 4)):
            if blob:
                blob[chance.randrange(len(blob))] = chance.randrange(256)
        path.write_bytes(blob)
        try:
            str(describe(tmp_path / "m"))
        except tw.DecodeError as error:
            wrong += 1
            assert error.path is not None and error.format in ("saved_model", "checkpoint")
    assert wrong > 20


def number(place, value):
    return field(place, 0, signed(value))


def graph(*parts):
    return block(2, block(1, block(4, b"serve")) + b"".join(parts))


def child(node, name):
    return block(1, number(1, node) + block(2, name))


@pytest.mark.parametrize(
    "objects",
    [
        block(1, child(5, b"far")),  # a node that is not there
        block(1, child(0, b"self") + child(0, b"again")),  # round and round
        block(1, block(7, number(1, 999))),  # a variable of no dtype
        # a function that is nowhere
        block(1, child(1, b"f")) + block(1, block(6, block(1, b"gone"))),
        block(1, child(1, b"f"))
        + block(1, block(6, block(1, b"g")))
        + block(2, block(1, b"g") + block(2, block(3, b"\x63" * 50))),
    ],
)
def test_hostile_objects(tmp_path, objects):
    (tmp_path / "saved_model.pb").write_bytes(number(1, 1) + graph(block(7, objects)))
    try:
        found = describe(tmp_path)
        assert len(found.graphs) == 1
        str(found)
        json.dumps(found.json())
    except tw.DecodeError as error:
        assert error.offset is not None


def test_nested_without_end(tmp_path):
    value = b""
    for _ in range(200):
        value = block(51, block(1, value))
    objects = (
        block(1, child(1, b"f"))
        + block(1, block(6, block(1, b"g")))
        + block(2, block(1, b"g") + block(2, block(3, value)))
    )
    (tmp_path / "saved_model.pb").write_bytes(graph(block(7, objects)))
    with pytest.raises(tw.LimitError, match="deep"):
        describe(tmp_path)


def test_an_empty_one(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(tw.DecodeError, match="not a SavedModel"):
        tw.inspect(tmp_path)
    with tw.open(tmp_path) as f:
        assert len(f) == 0 and f.metadata == {}
