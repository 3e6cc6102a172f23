"""The official stubs, `tensorflow-serving-api`, both ways: their client on our server, our client
on a server that is built of theirs.
"""

import subprocess
import sys

import numpy as np
import pytest

import tensorwire as tw
from support import serving_models as models
from support.serving_server import Process
from support.tiers import TESTS
from tensorwire.serving import Client

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def ours(tf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    recommender = models.recommender(tf)
    tw.serving.export(recommender, folder / "ranker", models.SIGNATURE, version=3)
    tw.serving.export(
        lambda **x: {f"{name}_out": tf.identity(each) for name, each in x.items()},
        folder / "echo",
        ECHOED,
        version=1,
    )
    with Process(folder / "ranker", folder / "echo", "--label", "ranker:stable=3") as process:
        yield process, recommender


DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool"
    " complex64 string".split()
)
ECHOED = {name: (name, [None]) for name in DTYPES}


@pytest.fixture(scope="module")
def stub(ours):
    import grpc
    from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

    with grpc.insecure_channel(ours[0].grpc) as channel:
        yield (
            prediction_service_pb2_grpc.PredictionServiceStub(channel),
            model_service_pb2_grpc.ModelServiceStub(channel),
        )


class TestTheirClientOnOurServer:
    def test_predict_with_every_input(self, tf, ours, stub):
        from tensorflow_serving.apis import predict_pb2

        tensors = models.inputs(4)
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.version.value = "ranker", 3
        for name, tensor in models.parts(tensors).items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(tw.to(tensor, "object")))
        answer = stub[0].Predict(request, 30)
        wanted = ours[1](**{name: tw.to(tensor, "tensorflow") for name, tensor in tensors.items()})
        assert answer.model_spec.name == "ranker" and answer.model_spec.version.value == 3
        assert answer.model_spec.signature_name == "serving_default"
        for name, tensor in wanted.items():
            assert np.array_equal(tf.make_ndarray(answer.outputs[name]), tensor.numpy()), name

    @pytest.mark.parametrize("form", ["content", "typed"])
    def test_every_dtype(self, tf, ours, stub, form):
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = "echo"
        given = {
            name: np.array(
                [b"a", b"\xff"] if name == "string" else [1, 0], tf.as_dtype(name).as_numpy_dtype
            )
            for name in DTYPES
        }
        for name, array in given.items():
            made = tf.make_tensor_proto(array)
            # which it fills for all but half floats and strings
            if form == "typed" and made.tensor_content:
                made = tf.make_tensor_proto(array.tolist(), dtype=name)
            request.inputs[name].CopyFrom(made)
        answer = stub[0].Predict(request, 30)
        for name, array in given.items():
            back = tf.make_ndarray(answer.outputs[f"{name}_out"])
            assert back.dtype == array.dtype and back.tolist() == array.tolist(), name

    def test_metadata_and_status(self, ours, stub):
        from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name, request.model_spec.version_label = "ranker", "stable"
        request.metadata_field.append("signature_def")
        found = get_model_metadata_pb2.SignatureDefMap()
        assert stub[0].GetModelMetadata(request, 30).metadata["signature_def"].Unpack(found)
        signature = found.signature_def["serving_default"]
        assert set(signature.inputs) == set(models.parts(models.inputs(1))) and set(
            signature.outputs
        ) == {"score", "items", "weights"}
        assert signature.inputs["profile"].dtype == 1 and [
            dim.size for dim in signature.inputs["profile"].tensor_shape.dim
        ] == [-1, 3]
        asked = get_model_status_pb2.GetModelStatusRequest()
        asked.model_spec.name = "ranker"
        (status,) = stub[1].GetModelStatus(asked, 30).model_version_status
        assert status.version == 3 and status.state == 30 and status.status.error_code == 0

    def test_errors(self, ours, stub):
        import grpc
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = "nobody"
        with pytest.raises(grpc.RpcError) as caught:
            stub[0].Predict(request, 30)
        assert (
            caught.value.code() is grpc.StatusCode.NOT_FOUND
            and "Servable not found" in caught.value.details()
        )
        request.model_spec.name = "ranker"
        with pytest.raises(grpc.RpcError) as caught:
            stub[0].Predict(request, 30)
        assert (
            caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            and "Missing but required" in caught.value.details()
        )


@pytest.fixture(scope="module")
def theirs():
    """A server of their stubs, in a process of its own."""
    command = [sys.executable, str(TESTS / "support" / "stub_server.py"), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield f"grpc://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


class TestOurClientOnTheirServer:
    def test_predict_classify_regress(self, theirs):
        with Client(theirs, model="adder", label="stable") as client:
            assert client.predict([[1, 2], [3, 4]])["y"].tolist() == [3, 7]
        with Client(theirs, model="adder", signature="regress") as client:
            assert client.regress([{"x": [1.0, 2.0]}])["outputs"].tolist() == [3]
        with Client(theirs, model="adder", signature="classify") as client:
            found = client.classify([{"x": [1.0, 2.0]}])
            assert (
                found["classes"].shape == found["scores"].shape
                and found["scores"].dtype == np.float32
            )

    def test_sparse_parts(self, theirs):
        with Client(theirs, model="sparse") as client:
            x = tw.Sparse([[0, 1], [1, 0], [1, 3]], np.float32([2, 3, 4]), (2, 4))
            assert "is sent as parts" in client.explain({"ids": x})
            assert client.predict({"ids": x})["sums"].tolist() == [2, 7]

    def test_status_and_a_model_that_is_not_there(self, theirs):
        with Client(theirs, model="adder") as client:
            assert client.status()[0].state == "AVAILABLE"
        with (
            Client(theirs, model="nobody", signature="serving_default") as client,
            pytest.raises(tw.ModelError) as caught,
        ):
            client.predict([1])
        assert caught.value.status == 404
