"""Mistakes that a type checker must report: every line with `# error`, and no other. See test_typing.py."""

import numpy as np

import tensorwire as tw

x = np.zeros(3, np.float32)

tw.dumps(x, compresion="zstd")  # error: a misspelt option
tw.dumps(x, "safetensor")  # error: a misspelt format
tw.dumps(x, compression="zip")  # error: not a compression
tw.dumps(x, quantize="int9")  # error: not a scheme
tw.dumps(x, level="9")  # error: a number as text
tw.dumps(x, metadata={"step": 3})  # error: metadata are text
tw.dumps(x, nonfinite="ignore")  # error: not a rule
tw.loads(b"", to="tf")  # error: a framework's short name
tw.loads("a.npz")  # error: a path where bytes go
tw.loads(b"", format="pickle")  # error: not a format
tw.loads(b"", copy="no")  # error: not a flag
tw.save({"x": x}, "a.npz")  # error: swapped arguments
tw.save("a.npz", x, checksm=True)  # error: a misspelt option
tw.load("a.npz", to="keras")  # error: not a framework
tw.load("a.npz", names=3)  # error: not names
tw.open("a.npz", mmap="yes")  # error: not a flag
tw.open("a.npz").metadata["x"] + 1  # error: metadata are text
tw.convert("a.npz", "b.npz", overwite=True)  # error: a misspelt option
tw.convert("a.npz", "b.npz", to="onnx")  # error: not a format
tw.convert("a.tfrecord", "out", on_corrupt="ignore")  # error: not a rule
tw.verify("a.npz", limits=3)  # error: not limits
tw.write_examples("a.tfrecord", {"x": x}, shards="two")  # error: a number as text
tw.read_examples("a.tfrecord", batch_size="8")  # error: a number as text
tw.RecordReader("a.tfrecord").reed()  # error: a misspelt method
tw.serving.Client("http://localhost", deadlin=3)  # error: a misspelt option
