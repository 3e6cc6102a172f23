"""Any tensor in, any tensor out: a model exported, served by `tensorwire serve` in a process of its
own, and called over the loopback.
"""

import asyncio
import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

import tensorwire as tw
from support import serving_models as models
from support.serving_server import Process
from tensorwire.serving import AsyncClient, Client, Signature

pytestmark = pytest.mark.tensorflow
FORMS = ("parts", "serialized", "example")
NAMES = {
    "parts": "serving_default",
    "serialized": "serving_default_serialized",
    "example": "serving_default_example",
}


class Double:
    """Models of the seeds: one sparse tensor, and two."""

    @staticmethod
    def one(tf):
        return lambda sparse_input: {"dense": tf.sparse.to_dense(sparse_input)}

    @staticmethod
    def two(tf):
        def model(sparse_input_1, sparse_input_2):
            return {
                "sum": tf.sparse.reduce_sum(sparse_input_1) + tf.sparse.reduce_sum(sparse_input_2)
            }

        return model


@pytest.fixture(scope="module")
def served(tf, tmp_path_factory):
    """(the server's process, the recommendation model itself)"""
    folder = tmp_path_factory.mktemp("models")
    recommender = models.recommender(tf)
    tw.serving.export(recommender, folder / "ranker", models.SIGNATURE, forms=FORMS, version=3)
    tw.serving.export(
        Double.one(tf),
        folder / "one",
        {"sparse_input": ("sparse", "float32", [None, None])},
        version=1,
    )
    both = {
        "sparse_input_1": ("sparse", "int32", [None, None]),
        "sparse_input_2": ("sparse", "int32", [None, None]),
    }
    tw.serving.export(Double.two(tf), folder / "two", both, version=1)
    tw.serving.export(
        lambda x: {"same": x},
        folder / "sparse_out",
        {"x": ("sparse", "float32", [None, 10])},
        version=1,
    )
    tw.serving.export(
        lambda x: {"y": x * 2}, folder / "half", {"x": ("float16", [None])}, version=1
    )

    # what TensorFlow itself makes of sparse and ragged arguments: x, x_1, x_2
    class Plain(tf.Module):
        @tf.function(
            input_signature=[
                tf.SparseTensorSpec([None, 20], tf.float32),
                tf.RaggedTensorSpec([None, None], tf.int64),
            ]
        )
        def __call__(self, x, r):
            return {"y": tf.sparse.reduce_sum(x, 1) + tf.cast(tf.reduce_sum(r, 1), tf.float32)}

    plain = Plain()
    tf.saved_model.save(
        plain, str(folder / "plain" / "1"), signatures=plain.__call__.get_concrete_function()
    )
    with Process(
        *(folder / name for name in ("ranker", "one", "two", "sparse_out", "half", "plain"))
    ) as process:
        yield process, recommender, folder


def expected(recommender, tensors):
    found = recommender(**{name: tw.to(tensor, "tensorflow") for name, tensor in tensors.items()})
    return {name: np.asarray(tensor) for name, tensor in found.items()}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert tw.equal(found[name], tensor), name
    return True


class TestTheRecommendationModel:
    """Two sparse, one ragged, one string and one dense input."""

    @pytest.mark.parametrize("rows", [1, 4, 33])
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("how", ["columns", "rows", "grpc", "kserve"])
    def test_equal_to_the_function_itself(self, served, how, form, rows):
        process, recommender, _ = served
        tensors = models.inputs(rows)
        url = process.grpc_url if how == "grpc" else process.url
        kserve = how == "kserve"
        if kserve and form != "parts":
            pytest.skip("KServe has one signature for a model")
        with Client(
            url, model="ranker", signature=NAMES[form], protocol="kserve" if kserve else None
        ) as client:
            if form == "parts" and how == "rows":
                with pytest.raises(tw.EncodeError, match="first dimension"):
                    client.predict(tensors, layout="rows")
                return
            layout = how if how in ("rows", "columns") else "auto"
            assert same(client.predict(tensors, layout=layout), expected(recommender, tensors))

    @pytest.mark.parametrize("compression", [None, "gzip"])
    def test_by_asyncio_with_many_at_once(self, served, compression):
        process, recommender, _ = served
        batches = [models.inputs(rows, seed=rows) for rows in range(1, 17)]
        wanted = [expected(recommender, tensors) for tensors in batches]

        async def main(url):
            async with AsyncClient(url, model="ranker", compression=compression) as client:
                return await asyncio.gather(*map(client.predict, batches))

        for url in (process.url, process.grpc_url):
            found = asyncio.run(main(url))
            assert all(same(*pair) for pair in zip(found, wanted, strict=True))

    def test_the_client_needs_no_tensorflow(self, served, tmp_path):
        """A process of its own, which takes its tensors from a file, and where TensorFlow and
        protobuf are never imported.
        """
        process, recommender, _ = served
        tensors = models.inputs(5)
        tw.save(tmp_path / "in.safetensors", tensors)
        script = f"""
import sys
import tensorwire as tw
tensors = tw.load({str(tmp_path / "in.safetensors")!r})
for url in ({process.url!r}, {process.grpc_url!r}):
    with tw.serving.Client(url, model="ranker") as client:
        tw.save({str(tmp_path)!r} + "/" + url[:4] + ".safetensors", client.predict(tensors))
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "google")])
"""
        ran = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == "[]"
        for name in ("http", "grpc"):
            assert same(tw.load(tmp_path / f"{name}.safetensors"), expected(recommender, tensors))

    def test_status_metadata_versions_labels(self, served):
        process, _, folder = served
        for url in (process.url, process.grpc_url):
            with Client(url, model="ranker", version=3) as client:
                assert [(each.version, each.state) for each in client.status()] == [
                    (3, "AVAILABLE")
                ]
                about = client.metadata()
                assert about.version == 3 and set(NAMES.values()) <= set(about.signatures)
                on_disk = Signature.from_saved_model(folder / "ranker")
                assert about.signatures["serving_default"].inputs == on_disk.inputs
            with (
                Client(url, model="ranker", version=9) as client,
                pytest.raises(tw.ModelError) as caught,
            ):
                client.status()
            assert caught.value.status == 404
            with (
                Client(url, model="nobody") as client,
                pytest.raises(tw.ModelError, match="Servable not found") as caught,
            ):
                client.predict({"x": [1]})
            assert caught.value.status == 404
            with (
                Client(url, model="ranker", label="canary") as client,
                pytest.raises(tw.ModelError, match="label"),
            ):
                client.metadata()

    def test_what_the_model_refuses_names_the_input(self, served):
        process, _, folder = served
        bad = models.parts(models.inputs(2)) | {"words_row_splits_0": np.array([0, 5, 2])}
        for url in (process.url, process.grpc_url):
            signature = Signature.from_saved_model(folder / "ranker")
            with (
                Client(url, model="ranker", signature=signature) as client,
                pytest.raises(tw.ModelError, match="words") as caught,
            ):
                client.predict(bad)
            assert caught.value.status == 400


class TestWhatTensorFlowItselfExports:
    def test_flattened_names(self, served):
        process, _, _ = served
        x = tw.Sparse([[0, 3], [2, 19]], np.float32([1.5, 2]), (3, 20))
        for url in (process.url, process.grpc_url):
            with Client(url, model="plain") as client:
                assert client.predict({"x": x, "r": [[1, 2], [], [3]]})["y"].tolist() == [4.5, 0, 5]
                assert "is sent as flattened" in client.explain({"x": x, "r": [[1, 2], [], [3]]})

    def test_sparse_outputs_come_back_whole(self, served):
        process, _, _ = served
        x = tw.Sparse([[0, 3], [2, 9]], np.float32([1.5, 2]), (3, 10))
        for url in (process.url, process.grpc_url):
            with Client(url, model="sparse_out") as client:
                assert tw.equal(client.predict(x)["same"], x)

    def test_half_floats_by_grpc_and_kserve_only(self, served):
        process, _, _ = served
        with (
            Client(process.url, model="half") as client,
            pytest.raises(tw.EncodeError, match="use gRPC"),
        ):
            client.predict(np.float16([1]))
        for url, protocol in ((process.grpc_url, None), (process.url, "kserve")):
            with Client(url, model="half", protocol=protocol) as client:
                assert client.predict(np.float16([1, 2.5]))["y"].tolist() == [2, 5]


class TestTheSeeds:
    """Seed 004, examples 1 to 3: as written TensorFlow Serving rejects the bodies."""

    def test_one_sparse_tensor(self, tf, served):
        process, _, _ = served
        sparse = tf.sparse.SparseTensor([[0, 0], [1, 2], [2, 3]], [1.0, 2.0, 3.0], [3, 4])
        with Client(process.url, model="one") as client:
            found = client.predict({"sparse_input": sparse})["dense"]
            assert found.tolist() == tf.sparse.to_dense(sparse).numpy().tolist()
            # The seed's own nested form, of plain lists, is understood for what it is.
            nested = {
                "sparse_input": {
                    "indices": [[0, 0], [1, 2], [2, 3]],
                    "values": [1, 2, 3],
                    "dense_shape": [3, 4],
                }
            }
            assert client.predict(nested)["dense"].tolist() == found.tolist()
            # Sent as the seed has it, Serving refuses it; and we say why before it is sent.
            with pytest.raises(tw.ModelError) as caught:
                client.send(json.dumps(nested).encode())
            assert caught.value.status == 400
            fault = tw.serving.rest.check(
                json.dumps({"inputs": nested}).encode(), client.signature()
            )
            assert fault.status == 400 and "sparse_input_indices" in fault.hint

    def test_several_sparse_tensors(self, tf, served):
        process, _, _ = served
        first = tf.sparse.SparseTensor([[0, 0], [1, 1]], [1, 2], [2, 2])
        second = tf.sparse.SparseTensor([[0, 2], [2, 0]], [3, 4], [3, 3])
        for url in (process.url, process.grpc_url):
            with Client(url, model="two") as client:
                assert (
                    client.predict({"sparse_input_1": first, "sparse_input_2": second})["sum"] == 10
                )

    def test_a_prediction_function_as_a_saved_model(self, tf, tmp_path):
        """Seed 003, example 3: a bare function cannot be saved by TensorFlow; exported it can, and
        it can be called when it is loaded.
        """

        @tf.function
        def prediction_function(input_tensor):
            return input_tensor * 2.0

        tw.serving.export(
            prediction_function, tmp_path / "saved_model", {"input_tensor": ("float32", [None, 3])}
        )
        reloaded = tf.saved_model.load(str(tmp_path / "saved_model"))
        assert reloaded(tf.constant([[1.0, 2.0, 3.0]])).numpy().tolist() == [[2, 4, 6]]
        assert (
            Signature.from_saved_model(tmp_path / "saved_model").inputs["input_tensor"].dtype
            == "float32"
        )


class TestTheCommand:
    """tensorwire request, as a process."""

    def ask(self, *words, status=0, text=None):
        ran = subprocess.run(
            [sys.executable, "-m", "tensorwire", "request", *map(str, words)],
            capture_output=True,
            text=True,
            input=text,
        )
        assert ran.returncode == status, ran.stderr
        return ran.stdout if status != 2 else ran.stderr

    def test_literals_by_rest_and_grpc(self, served):
        process, _, _ = served
        nested = 'sparse_input={"indices": [[0, 0]], "values": [5], "dense_shape": [1, 2]}'
        assert "[[5. 0.]]" in self.ask(f"{process.url}/v1/models/one", nested)
        assert "[[5. 0.]]" in self.ask(f"{process.grpc_url}/one", nested)
        assert "[[5. 0.]]" in self.ask(
            process.url, "--model", "one", "--version", 1, nested, "--compression", "gzip"
        )
        assert "is sent as parts" in self.ask(f"{process.url}/v1/models/one", nested, "--explain")

    def test_files_in_and_out(self, served, tmp_path):
        process, recommender, _ = served
        tensors = models.inputs(4)
        tw.save(tmp_path / "in.npz", tensors)
        out = tmp_path / "out.safetensors"
        assert "score: float32 [4]" in self.ask(
            f"{process.grpc_url}/ranker", "--inputs", tmp_path / "in.npz", "--out", out
        )
        assert same(tw.load(out), expected(recommender, tensors))
        x = tw.Sparse([[0, 1]], np.float32([3]), (1, 2))
        tw.save(tmp_path / "x.safetensors", {"a": x, "b": x})
        assert "[[0. 3.]]" in self.ask(
            f"{process.url}/v1/models/one", f"sparse_input=@{tmp_path / 'x.safetensors'}#a"
        )

    def test_the_curl_line_works(self, served, tmp_path):
        process, recommender, folder = served
        tensors = models.inputs(4)
        tw.save(tmp_path / "in.npz", tensors)
        line = self.ask(
            folder / "ranker", "--inputs", tmp_path / "in.npz", "--curl", "--url", process.url
        )
        assert shlex.split(line)[0] == "curl"
        answer = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
        wanted = expected(recommender, tensors)
        assert np.array_equal(json.loads(answer)["outputs"]["score"], wanted["score"])
        line = self.ask(
            f"{process.url}/v1/models/ranker",
            "--inputs",
            tmp_path / "in.npz",
            "--curl",
            "--save-body",
            tmp_path / "it's body",
        )
        answer = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
        assert np.array_equal(json.loads(answer)["outputs"]["items"], wanted["items"])
        line = self.ask(
            f"{process.url}/v2/models/half", "x=[1, 2]", "--curl", "--save-body", tmp_path / "raw"
        )
        ran = subprocess.run(
            ["sh", "-c", line.strip() + f" -o {tmp_path}/answer -D {tmp_path}/headers"],
            capture_output=True,
        )
        assert ran.returncode == 0 and b"FP16" in (tmp_path / "answer").read_bytes()

    def test_bodies_are_checked(self, served):
        process, _, folder = served
        bad = (
            '{"inputs": {"sparse_input_indices": [[0, 0.5]], "sparse_input_values": [1],'
            ' "sparse_input_dense_shape": [1, 2]}}'
        )
        told = self.ask(folder / "one", "--body", "-", "--check", text=bad, status=1)
        assert "would answer 400 at $.inputs.sparse_input_indices[0][1]" in told
        assert (
            json.loads(
                self.ask(folder / "one", "--body", "-", "--check", "--json", text=bad, status=1)
            )["status"]
            == 400
        )
        fine = bad.replace("0.5", "1")
        assert "would accept this body" in self.ask(
            folder / "one", "--body", "-", "--check", text=fine
        )
        assert "[[0. 1.]]" in self.ask(
            f"{process.url}/v1/models/one:predict", "--body", "-", text=fine
        )

    def test_a_folder_prints_the_body(self, served):
        _, _, folder = served
        body = self.ask(folder / "half" / "1", "x=[1]", status=1)
        assert body == ""
        printed = json.loads(
            self.ask(
                folder / "plain",
                'x={"indices": [[0, 1]], "values": [2], "dense_shape": [1, 20]}',
                "r=[[1]]",
            )
        )
        assert printed == {
            "inputs": {"x": [[0, 1]], "x_1": [2.0], "x_2": [1, 20], "r": [1], "r_1": [0, 1]}
        }

    def test_wrong_usage_and_bad_servers(self, served):
        process, _, _ = served
        assert "use one" in self.ask(process.url, "--model", "one", "x=1", "--body", "-", status=2)
        assert "curl does not support gRPC" in self.ask(
            f"{process.grpc_url}/one", "x=1", "--curl", status=2
        )
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "tensorwire",
                "request",
                "http://127.0.0.1:9/v1/models/one",
                "x=1",
                "--deadline",
                "2",
            ],
            capture_output=True,
            text=True,
        )
        assert (
            ran.returncode == 1
            and len(ran.stderr.splitlines()) == 1
            and "127.0.0.1:9" in ran.stderr
        )
