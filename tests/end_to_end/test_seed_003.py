"""Seed 003, "How can I serialize EagerTensor objects for translation model predictions?": what each
recipe wanted, and that it holds.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.testing.sampling import DTYPES, numbers

PREDICTIONS = {
    "logits": np.float32([[1.0, 2.0], [3.0, 4.0]]),
    "tokens": tw.Ragged.of([["das", "ist"], ["gut"]]),
    "scores": np.array([0.25, 0.5]),
}


class TestNpyWithMetadata:
    """003 ex. 1: a tensor to .npy with its shape, dtype, name and device. The seed needs a second
    file, and pickle to read that.
    """

    tensor = np.float32([[1.0, 2.0], [3.0, 4.0]])

    def test_as_written(self, tmp_path):
        np.save(tmp_path / "metadata.npy", {"shape": (2, 2), "dtype": "float32"}, allow_pickle=True)
        with pytest.raises(ValueError, match="allow_pickle"):
            np.load(tmp_path / "metadata.npy").item()
        with pytest.raises(tw.DecodeError):  # and we do not unpickle it either
            tw.load(tmp_path / "metadata.npy")

    def check(self, path, tensor, texts):
        """One file: NumPy reads the numbers without pickle, we also what was said of them; dtype
        and shape are the array's own.
        """
        assert tw.equal(np.load(path, allow_pickle=False), tensor)
        assert tw.equal(tw.load(path), tensor)
        with tw.open(path) as file:
            assert file.metadata == texts
            assert (file["tensor"].shape, file["tensor"].dtype) == (tensor.shape, tensor.dtype)
        assert [path] == list(path.parent.iterdir())

    def test_without_tensorflow(self, tmp_path):
        texts = {"name": "logits:0", "device": "/device:GPU:0", "model": "nmt-v2"}
        for array in (self.tensor, self.tensor.astype(np.int8), np.array(7), np.zeros((0, 3))):
            tw.save(tmp_path / "x.npy", array, metadata=texts)
            self.check(tmp_path / "x.npy", array, texts)

    def test_what_a_framework_knows_of_a_tensor(self, tmp_path):
        """`keep_device=True` makes a Bundle, because an array has no room for text; so it comes
        back as one.
        """
        tw.save(tmp_path / "x.npy", self.tensor, keep_device=True)
        found = tw.load(tmp_path / "x.npy")
        assert tw.equal(found["tensor"], self.tensor) and found.tensor_metadata == {
            "tensor": {"device": "cpu"}
        }
        # NumPy sees the numbers
        assert tw.equal(np.load(tmp_path / "x.npy", allow_pickle=False), self.tensor)
        with tw.open(tmp_path / "x.npy") as file:
            assert file.tensor_metadata["tensor"]["device"] == "cpu" and file["tensor"][
                1
            ].tolist() == [3, 4]

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf, tmp_path):
        tensor = tf.constant(self.tensor)
        known = tw.tensor(tensor, keep_device=True).tensor_metadata["tensor"]
        assert known["device"].endswith("device:CPU:0")
        tw.save(tmp_path / "x.npy", tensor, metadata=known)
        self.check(tmp_path / "x.npy", self.tensor, known)
        back = tw.load(tmp_path / "x.npy", to="tensorflow")
        assert back.dtype == tf.float32 and tw.equal(back, tensor)


class TestCrossLanguageMessage:
    """003 ex. 2: a protobuf message for other languages. The seed's schema does not compile, and
    holds floats only.

    tests/unit/codecs/test_protobuf.py reads and writes it from Node.
    """

    seed = """
message TensorData {
  repeated float data = 1;
  int64[] shape = 2;
  string dtype = 3;
}
"""

    def protoc(self, path):
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{path.parent}",
            "--descriptor_set_out=/dev/null",
            str(path),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False).returncode

    def test_the_schema(self, tmp_path):
        (tmp_path / "tensor_data.proto").write_text(self.seed)
        assert self.protoc(tmp_path / "tensor_data.proto") != 0  # as written
        assert self.protoc(Path(tw.__file__).parent / "tensor_data.proto") == 0

    @pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
    def test_every_dtype(self, row):
        array = numbers(row, (2, 3))
        blob = tw.dumps(array, "protobuf")
        assert (
            tw.equal(tw.loads(blob), array)
            and row.name.encode() in blob
            and blob.endswith(array.tobytes())
        )

    def test_without_tensorflow(self, tmp_path):
        path = tmp_path / "eager_tensor_data.tensor"
        tw.save(path, PREDICTIONS, metadata={"model": "nmt-v2"})
        assert tw.equal(tw.load(path), PREDICTIONS)
        with tw.open(path) as file:
            assert file.metadata == {"model": "nmt-v2"} and file["tokens"].shape == (2, None)
        named = tw.Bundle(
            {"logits": PREDICTIONS["logits"]},
            tensor_metadata={"logits": {"name": "logits:0", "device": "cuda:0"}},
        )
        tw.save(path, named)
        assert tw.equal(tw.load(path), named) and b"logits:0" in path.read_bytes()

    @pytest.mark.tensorflow
    def test_with_tensorflow(self, tf):
        tensor = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        with pytest.raises(AttributeError):
            tensor.shape.tolist()  # the seed's line, as it fails
        back = tw.loads(tw.dumps(tensor, "protobuf"), to="tensorflow")
        assert back.dtype == tf.float32 and tw.equal(back, tensor)
        predictions = {name: tw.to(value, "tensorflow") for name, value in PREDICTIONS.items()}
        found = tw.loads(tw.dumps(predictions, "protobuf"), to="tensorflow")
        assert isinstance(found["tokens"], tf.RaggedTensor) and tw.equal(found, predictions)

    @pytest.mark.tensorflow
    def test_the_name_and_the_device(self, tf):
        variable = tf.Variable([1.0, 2.0], name="kernel")
        blob = tw.dumps(variable, "protobuf", keep_device=True)
        found = tw.loads(blob)
        texts = found.tensor_metadata["kernel:0"]
        assert texts["name"] == "kernel:0" and texts["device"].endswith("device:CPU:0")
        assert (
            tw.equal(found["kernel:0"], np.float32([1, 2]))
            and tw.inspect(blob).tensors[0].metadata == texts
        )
