"""What must work with the wheel alone: NumPy, ml_dtypes and nothing else."""

import importlib.metadata
import importlib.resources
import io
import sys

import ml_dtypes
import numpy as np

import tensorwire as tw

value = {
    "dense": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bfloat16": np.ones(3, ml_dtypes.bfloat16),
    "words": tw.Strings.of(["wire", "é"]),
    "sparse": tw.Sparse([[0, 1]], [2.5], (2, 2)),
    "ragged": tw.Ragged.of([[1], [2, 3]]),
    "list": [np.zeros(2), (1, None, b"x")],
}
for format in ("safetensors", "tensorproto", "npy", "npz", "arrow", "protobuf", "json", "example"):
    assert tw.equal(tw.loads(tw.dumps(value, format), format), value), format
    assert (
        tw.loads(tw.dumps(value, format, quantize="int8"), format)["dense"].dtype == np.float32
    ), format
for compression in ("gzip", "zlib"):
    assert tw.equal(
        tw.loads(tw.dumps(value, compression=compression), compression=compression), value
    ), compression
assert (importlib.resources.files("tensorwire") / "tensor_data.proto").read_text().startswith("//")
columns = {"x": value["dense"]}
for missing in (
    lambda: tw.dumps(columns, "parquet"),
    lambda: tw.dumps(value, compression="zstd"),
    lambda: tw.profile(value, seconds=0).plot(),
):
    try:
        missing()
    except tw.MissingDependencyError as error:
        assert "pip install 'tensorwire[" in str(error)
    else:
        raise AssertionError("a package is not here, and nothing was said")
assert tw.equal(
    tw.loads(tw.dumps(value["dense"], "raw"), "raw", dtype="float32", shape=(2, 3)), value["dense"]
)
stream = io.BytesIO()
tw.write(stream, value)
stream.seek(0)
assert tw.equal(tw.read(stream), value)
assert tw.equal(tw.io.parse_sparse(tw.io.serialize_sparse(value["sparse"])), value["sparse"])
try:
    tw.to(value["dense"], "tensorflow")
except tw.MissingDependencyError as error:
    assert "pip install tensorflow" in str(error)
else:
    raise AssertionError("TensorFlow is not here, and nothing was said")
installed = {dist.metadata["Name"].lower() for dist in importlib.metadata.distributions()}
assert installed <= {
    "tensorwire",
    "numpy",
    "ml-dtypes",
    "ml_dtypes",
    "pip",
    "setuptools",
    "wheel",
}, installed
assert "site-packages" in tw.__file__, tw.__file__
assert not {"tensorflow", "torch", "jax", "pyarrow", "google.protobuf"} & set(sys.modules)
