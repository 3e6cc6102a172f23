"""What a user writes, and what a type checker must know about it. See test_typing.py."""

import io
from typing import reveal_type

import numpy as np

import tensorwire as tw

x = np.zeros((2, 3), np.float32)
tokens = tw.Ragged(np.arange(4), [0, 3, 4])

reveal_type(tw.dumps(x))  # bytes
reveal_type(tw.dumps(x, "npz", compression="zlib"))  # bytes
reveal_type(tw.dumps({"x": x, "t": tokens}, quantize="int8", axis=0, checksum=True))  # bytes
reveal_type(tw.buffers(x, "tensorproto")[0])  # bytes | memoryview[int]
reveal_type(tw.loads(b""))  # Any
reveal_type(tw.loads(bytearray(), "npy", copy=True))  # Any
reveal_type(tw.loads(memoryview(b""), ("npz", "safetensors"), to="torch", device="cpu"))  # Any
reveal_type(tw.save("a.safetensors", {"x": x}, metadata={"model": "m"}))  # None
reveal_type(tw.save(io.BytesIO(), x, "npy", durable=False))  # None
two = tw.load("a.npz", names=["x", "y"])
reveal_type(two)  # dict[str, ndarray[Any, Any] | Strings | Sparse | Ragged]
reveal_type(tw.open("a.safetensors"))  # File
reveal_type(tw.open("a.safetensors")["x"])  # LazyTensor
reveal_type(tw.open("a.safetensors")["x"].shape)  # tuple[int | None, ...]
reveal_type(tw.inspect("a.npz"))  # Summary | RecordSummary | SavedModelSummary
reveal_type(tw.verify("a.npz"))  # Verification | RecordVerification | DatasetVerification
reveal_type(tw.equal(x, x))  # bool
reveal_type(tw.formats()["npy"].name)  # str
reveal_type(tw.write(io.BytesIO(), x, compression="zstd"))  # int
reveal_type(tw.Strings.of(["a"]))  # Strings
reveal_type(tw.diff("a.npz", "b.npz").equal)  # bool
reveal_type(tw.infer_schema("a.tfrecord"))  # Schema
for batch in tw.read_examples("a-*.tfrecord", batch_size=10, columns=["x"]):
    batch["x"]
tw.convert("a.npz", "b.safetensors", rename="s/a/b/", dtype="bfloat16", overwrite=True)
tw.convert(["a.tfrecord", "b.tfrecord"], "out", "parquet", workers=0, where="x > 3", shards=2)
with tw.RecordWriter("a.tfrecord") as writer:
    writer.write(b"record")
reveal_type(len(tw.RecordReader("a.tfrecord")))  # int
reveal_type(tw.serving.Client("http://localhost:8501", model="m", deadline=1.0))  # Client
