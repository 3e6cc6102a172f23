"""TensorFlow Serving's rules of today, by the local server: numbers, empty batches, method names,
typed fields.
"""

import numpy as np
import pytest

import tensorwire as tw
from support.serving_server import post
from tensorwire.serving import Client, Server, Signature, export, rest

pytestmark = pytest.mark.tensorflow
NUMBERS = {"f": ("float32", [None]), "d": ("float64", [None])}


@pytest.fixture(scope="module")
def folder(tf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    class HalfPlusThree(tf.Module):
        """TensorFlow 2 writes the method name "predict" for every signature."""

        def __init__(self):
            self.half, self.three = tf.Variable(0.5), tf.Variable(3.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def regress(self, inputs):
            x = tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]
            return {"outputs": self.half * x + self.three}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def classify(self, inputs):
            return {"scores": self.regress(inputs)["outputs"][:, None]}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def predict(self, x):
            return {"y": self.half * x + self.three}

    model = HalfPlusThree()
    names = {
        "serving_default": model.predict,
        "tensorflow/serving/regress": model.regress,
        "classify": model.classify,
    }
    tf.saved_model.save(model, str(folder / "half_plus_three" / "1"), signatures=names)
    export(
        lambda f, d: {"f2": tf.identity(f), "d2": tf.identity(d)},
        folder / "numbers",
        NUMBERS,
        version=1,
    )
    dtypes = {
        name: (name, [None]) for name in ("float32", "int64", "bool", "float16", "string", "uint8")
    }
    export(
        lambda **tensors: {f"{name}_out": tf.identity(x) for name, x in tensors.items()},
        folder / "echo",
        dtypes,
        version=1,
    )
    export(
        lambda x: {"y": tf.boolean_mask(x, x > 0)},
        folder / "positive",
        {"x": ("float32", [None])},
        version=1,
    )
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with Server([*sorted(folder.iterdir())], rest=0, grpc=0) as server:
        yield server


class TestMethodNames:
    def test_the_documented_call(self, server):
        body = {
            "signature_name": "tensorflow/serving/regress",
            "examples": [{"x": 1.0}, {"x": 2.0}],
        }
        assert post(server.rest_url, "/v1/models/half_plus_three:regress", body) == (
            200,
            {"results": [3.5, 4.0]},
        )
        assert post(
            server.rest_url, "/v1/models/half_plus_three:predict", {"instances": [1.0, 2.0, 5.0]}
        ) == (
            200,
            {"predictions": [3.5, 4.0, 5.5]},
        )

    @pytest.mark.parametrize("how", ["rest_url", "grpc_url"])
    def test_by_the_client(self, server, how):
        url, examples = getattr(server, how), [{"x": 1.0}, {"x": 2.0}]
        with Client(url, model="half_plus_three", signature="tensorflow/serving/regress") as client:
            assert client.regress(examples)["outputs"].tolist() == [3.5, 4.0]
        with Client(url, model="half_plus_three", signature="classify") as client:
            assert client.classify(examples)["scores"].tolist() == [[3.5], [4.0]]


class TestNumbers:
    def test_integers_are_rounded_and_floats_may_be_infinite(self, server):
        body = b'{"inputs": {"f": [16777216, 16777217, 1e39, -1e39], "d": [9007199254740993]}}'
        assert rest.check(body, Signature.given(NUMBERS)) is None
        status, found = post(server.rest_url, "/v1/models/numbers:predict", body)
        assert status == 200
        assert found["outputs"] == {
            "f2": [16777216.0, 16777216.0, np.inf, -np.inf],
            "d2": [9007199254740992.0],
        }

    def test_in_long_bodies_too(self):
        """Longer than what is explained in Serving's words."""
        body = b'{"inputs": [' + b"16777217, " * 200_000 + b"1e39]}"
        found = rest.parse_request(body, Signature.given({"x": ("float32", [None])})).inputs["x"]
        assert found.dtype == np.float32 and found[0] == 16777216 and found[-1] == np.inf

    def test_in_rows_and_examples(self):
        rows = b'{"instances": [{"f": 1e39, "d": 1}, {"f": 2, "d": 1e39}]}'
        found = rest.parse_request(
            rows, Signature.given({"f": ("float32", [None]), "d": ("float64", [None])})
        ).inputs
        assert found["f"].tolist() == [np.inf, 2] and found["d"].tolist() == [1, 1e39]
        examples = b'{"examples": [{"a": 1e39}]}'
        found = rest.parse_request(examples, Signature.given(NUMBERS), verb="regress").examples
        assert found[0]["a"].tolist() == [np.inf]


class TestEmptyBatches:
    def test_by_rows(self, server):
        for model in ("numbers", "positive", "half_plus_three"):
            found = post(server.rest_url, f"/v1/models/{model}:predict", {"instances": []})
            assert found == (200, {"predictions": []})

    def test_rows_that_the_model_drops(self, server):
        assert post(server.rest_url, "/v1/models/positive:predict", {"instances": [-1.0]}) == (
            200,
            {"predictions": []},
        )

    def test_by_the_client(self, server):
        with Client(server.rest_url, model="numbers") as client:
            empty = {"f": np.zeros(0, np.float32), "d": np.zeros(0)}
            for layout in ("rows", "columns", "auto"):
                found = client.predict(empty, layout=layout)
                assert tw.equal(found, {"d2": np.zeros(0), "f2": np.zeros(0, np.float32)})


class TestTypedFields:
    SENT = {
        "float32": np.float32([1, np.nan, -0.0]),
        "int64": np.int64([-1, 1 << 62, 3]),
        "bool": np.array([True, False, True]),
        "float16": np.float16([1.5, -2, np.inf]),
        "string": tw.Strings.of([b"a", b"", b"\xff"], text=False),
        "uint8": np.uint8([0, 127, 255]),
    }
    FIELDS = {
        "float32": "float_val",
        "int64": "int64_val",
        "bool": "bool_val",
        "float16": "half_val",
        "string": "string_val",
        "uint8": "int_val",
    }

    def asked(self, server):
        """The answer of the real stubs' message class."""
        import grpc
        from tensorflow_serving.apis import predict_pb2

        from tensorwire.serving.rpc import messages

        with grpc.insecure_channel(server.grpc_url.removeprefix("grpc://")) as channel:
            sent = b"".join(messages.build_predict(messages.ModelSpec("echo"), self.SENT))
            return predict_pb2.PredictResponse.FromString(
                channel.unary_unary(messages.PREDICT)(sent, timeout=30)
            )

    def test_answers_have_them(self, tf, server):
        found = self.asked(server).outputs
        for name, tensor in self.SENT.items():
            proto = found[f"{name}_out"]
            assert not proto.tensor_content and len(getattr(proto, self.FIELDS[name])) == 3
            assert tw.equal(tw.tensor(tf.make_ndarray(proto)), tensor), name
        assert list(found["float32_out"].float_val)[::2] == [1.0, -0.0]

    def test_unless_asked_otherwise(self, tf, folder):
        with Server(folder / "echo", grpc=0, tensor_content=True) as server:
            found = self.asked(server).outputs
        assert found["float32_out"].tensor_content and not found["float32_out"].float_val

    @pytest.mark.parametrize("content", [False, True])
    def test_our_client_reads_both(self, folder, content):
        with (
            Server(folder / "echo", grpc=0, tensor_content=content) as server,
            Client(server.grpc_url, model="echo") as client,
        ):
            found = client.predict(self.SENT)
        assert all(tw.equal(found[f"{name}_out"], tensor) for name, tensor in self.SENT.items())
