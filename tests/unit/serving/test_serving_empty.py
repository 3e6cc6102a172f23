"""Tensors without values by REST: TensorFlow Serving reads `[]` as shape [0], whatever the rank
was.
"""

import numpy as np
import pytest

import tensorwire as tw
from support.serving_server import post
from tensorwire.serving import Client, MockTransport, Server, Signature, export, rest
from tensorwire.serving.lower import plan

INPUTS = {
    "ids": ("sparse", "float32", [None, 10]),
    "tags": ("sparse", "string", [None, 4, 4]),
    "vectors": ("ragged", "float32", [None, None, 3]),
    "x": ("float32", [None, 2]),
}


def no_values(rows):
    return {
        "ids": tw.Sparse(np.zeros((0, 2), np.int64), np.zeros(0, np.float32), (rows, 10)),
        "tags": tw.Sparse(np.zeros((0, 3), np.int64), tw.Strings.of([]), (rows, 4, 4)),
        "vectors": tw.Ragged(np.zeros((0, 3), np.float32), [0] * (rows + 1)),
        "x": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2),
    }


class TestBodies:
    signature = Signature.given(INPUTS, {"y": ("float32", [None])})

    @pytest.mark.parametrize("rows", [0, 1, 2])
    def test_our_checker_takes_what_our_client_builds(self, rows):
        body = b"".join(rest.build(no_values(rows), self.signature))
        assert b'"ids_indices":[]' in body and rest.check(body, self.signature) is None

    def test_what_tensorflow_names_itself_needs_another_way(self):
        """Inputs x, x_1, x_2: TensorFlow wrote the model, and it does not reshape."""
        inputs = {"x": ("int64", [None, 2]), "x_1": ("float32", [None]), "x_2": ("int64", [2])}
        body = b'{"inputs": {"x": [], "x_1": [], "x_2": [2, 10]}}'
        fault = rest.check(body, Signature.given(inputs))
        assert fault is not None and fault.status == 400
        assert all(word in fault.hint for word in ("gRPC", "rows", "serialized"))

    def test_a_dense_batch_without_rows_goes_by_rows(self):
        signature = Signature.given({"x": ("float32", [None, 2])}, {"y": ("float32", [None, 3])})
        planned = plan({"x": np.zeros((0, 2), np.float32)}, signature)
        assert b"".join(rest.build(planned)) == b'{"instances":[]}' and planned.has_rows
        assert b"".join(rest.build(planned, layout="columns")) == b'{"inputs":{"x":[]}}'
        mock = MockTransport.model(lambda x: {"y": np.zeros((len(x), 3), np.float32)}, signature)
        with Client("http://anywhere", model="m", transport=mock) as client:
            assert client.predict({"x": np.zeros((0, 2), np.float32)})["y"].shape == (0, 3)


@pytest.fixture(scope="module")
def server(tf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def model(ids, tags, vectors, x):
        counts = tf.sparse.reduce_sum(
            tf.SparseTensor(tags.indices, tf.ones_like(tags.indices[:, 0]), tags.dense_shape),
            [1, 2],
        )
        sums = tf.sparse.reduce_sum(ids, 1) + tf.reduce_sum(
            vectors.with_row_splits_dtype(tf.int64), [1, 2]
        )
        return {"y": sums + tf.cast(counts, tf.float32) + tf.reduce_sum(x, 1)}

    export(model, folder / "ours", INPUTS, version=1)

    class Theirs(tf.Module):
        @tf.function(input_signature=[tf.SparseTensorSpec([None, 10], tf.float32)])
        def __call__(self, x):
            return {"y": tf.sparse.reduce_sum(x, 1)}

    theirs = Theirs()
    tf.saved_model.save(
        theirs, str(folder / "theirs" / "1"), signatures=theirs.__call__.get_concrete_function()
    )
    export(
        lambda x: {"y": tf.reduce_sum(x, 1)},
        folder / "dense",
        {"x": ("float32", [None, 2])},
        version=1,
    )
    with Server([folder / name for name in ("ours", "theirs", "dense")], rest=0, grpc=0) as server:
        yield server


@pytest.mark.tensorflow
class TestServed:
    @pytest.mark.parametrize("rows", [0, 1, 3])
    @pytest.mark.parametrize("how", ["rest_url", "grpc_url"])
    def test_an_exported_model_answers(self, server, how, rows):
        with Client(getattr(server, how), model="ours") as client:
            found = client.predict(no_values(rows))["y"]
        assert tw.equal(found, no_values(rows)["x"].sum(1))

    @pytest.mark.parametrize("how", ["rest_url", "grpc_url"])
    def test_and_with_values(self, server, how):
        tensors = no_values(2) | {
            "ids": tw.Sparse([[1, 7]], np.float32([5]), (2, 10)),
            "tags": tw.Sparse([[0, 1, 2]], tw.Strings.of(["a"]), (2, 4, 4)),
            "vectors": tw.Ragged(np.ones((2, 3), np.float32), [0, 0, 2]),
        }
        with Client(getattr(server, how), model="ours") as client:
            assert client.predict(tensors)["y"].tolist() == [2, 16]

    def test_wrong_shapes_are_still_refused(self, server):
        good = {
            "ids_indices": [],
            "ids_values": [],
            "ids_dense_shape": [1, 10],
            "tags_indices": [],
            "tags_values": [],
            "tags_dense_shape": [1, 4, 4],
            "vectors_values": [],
            "vectors_row_splits_0": [0, 0],
            "x": [[1, 2]],
        }
        target = "/v1/models/ours:predict"
        assert post(server.rest_url, target, {"inputs": good}) == (200, {"outputs": [3.0]})
        for wrong in (
            {"ids_values": [1.5]},
            {"ids_indices": [[1, 2, 3, 4]], "ids_values": [1, 2]},
            {"vectors_values": [1, 2, 3], "vectors_row_splits_0": [0, 1]},
            {"x": [1, 2]},
        ):
            assert post(server.rest_url, target, {"inputs": good | wrong})[0] == 400

    def test_a_model_of_tensorflows_own_is_told_the_way_out(self, server):
        empty = tw.Sparse(np.zeros((0, 2), np.int64), np.zeros(0, np.float32), (2, 10))
        with (
            Client(server.rest_url, model="theirs") as client,
            pytest.raises(tw.ModelError) as caught,
        ):
            client.predict({"x": empty})
        assert caught.value.status == 400
        assert all(word in str(caught.value) for word in ("gRPC", "rows", "serialized"))
        with Client(server.grpc_url, model="theirs") as client:
            assert client.predict({"x": empty})["y"].tolist() == [0, 0]

    def test_a_dense_batch_without_rows(self, server):
        for url in (server.rest_url, server.grpc_url):
            with Client(url, model="dense") as client:
                found = client.predict({"x": np.zeros((0, 2), np.float32)})["y"]
            assert found.dtype == np.float32 and found.shape == (0,)
