"""tensorwire: tensor serialization for NumPy, TensorFlow, PyTorch and JAX, without TensorFlow.

Dense, sparse, ragged and string tensors, and nested dicts and lists of them, are converted
bit-exactly between frameworks, bytes, files, TFRecord datasets and model servers.

    import tensorwire as tw

    blob = tw.dumps({"logits": x, "tokens": ragged, "step": 7})
    value = tw.loads(blob)
    tw.dumps(x, "tensorproto") == tf.io.serialize_tensor(x).numpy()

By task:

    dumps, loads, buffers      serialize any value to bytes, and deserialize it
    save, load, open           files: safetensors, npz, Arrow, Parquet, ...; `open` is lazy
    write, read                stream values over sockets, pipes and file objects
    inspect, verify, diff      list the contents of a file, check its integrity, compare two files
    convert                    convert tensor files, checkpoints and datasets between formats
    write_examples,            write and read TFRecord files of tf.train.Example as columns
      read_examples
    write_sequence_examples,   the same for tf.train.SequenceExample
      read_sequence_examples
    RecordReader,              read and write the records of TFRecord files, with random access
      RecordWriter
    infer_schema, repair       infer the schema of TFRecord files, recover damaged ones
    tensor, to, equal          convert tensors between frameworks, compare them bit for bit
    quantize, dequantize       quantize floats to int8, float8, bfloat16, ...; quantization_error
    profile, formats           find the best format and compression for a value, list the formats
    Limits                     limits for untrusted input
    tensorwire.io              the functions of tf.io, without TensorFlow
    tensorwire.serving         clients and servers for REST, gRPC and KServe
    tensorwire.datasets        split, sample, merge and shuffle datasets of many files
    tensorwire.torch, .ray     datasets for PyTorch and Ray
    tensorwire.checkpoint      TensorFlow checkpoints
    tensorwire.testing         conformance checks for your own codecs and engines

Every error is a subclass of `TensorwireError`. docs/design.md describes the architecture.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .core import display as _display

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import io as io
    from . import serving
    from ._errors import (
        ChecksumError,
        DeadlineError,
        DecodeError,
        EncodeError,
        LimitError,
        MissingDependencyError,
        ModelError,
        SchemaError,
        ServingError,
        TensorwireError,
        TransportError,
        TruncatedError,
        UnknownFormatError,
        UsageError,
    )
    from ._limits import Limits
    from .api.comparison import diff
    from .api.equality import equal
    from .api.lazy import load
    from .api.lazy import open as open
    from .api.profiling import profile
    from .api.streams import read, write
    from .api.summary import inspect
    from .api.values import buffers, dumps, formats, loads, save
    from .core.quantized import Quantized
    from .core.tensors import Bundle, Ragged, Sparse, Strings, Tensor
    from .datasets.dispatch import convert, verify
    from .frameworks import tensor, to
    from .records.example_reader import read_examples
    from .records.example_writer import write_examples
    from .records.infer import infer_schema
    from .records.record_reader import RecordReader
    from .records.record_writer import RecordWriter
    from .records.repair import repair
    from .records.schema import Feature, Schema
    from .records.sequences import read_sequence_examples, write_sequence_examples
    from .transforms.quantization import dequantize, quantization_error, quantize

_HOME = {
    "_errors": (
        "ChecksumError DeadlineError DecodeError EncodeError LimitError MissingDependencyError"
        " ModelError SchemaError ServingError TensorwireError TransportError TruncatedError"
        " UnknownFormatError UsageError"
    ),
    "_limits": "Limits",
    "api.values": "buffers dumps formats loads save",
    "api.comparison": "diff",
    "datasets.dispatch": "convert verify",
    "api.equality": "equal",
    "frameworks": "tensor to",
    "api.lazy": "load open",
    "api.profiling": "profile",
    "core.quantized": "Quantized",
    "records.example_reader": "read_examples",
    "records.infer": "infer_schema",
    "records.record_reader": "RecordReader",
    "records.repair": "repair",
    "records.schema": "Feature Schema",
    "records.sequences": "read_sequence_examples write_sequence_examples",
    "records.example_writer": "write_examples",
    "records.record_writer": "RecordWriter",
    "api.streams": "read write",
    "api.summary": "inspect",
    "core.tensors": "Bundle Ragged Sparse Strings Tensor",
    "transforms.quantization": "dequantize quantization_error quantize",
}
_WHERE = {name: module for module, names in _HOME.items() for name in names.split()}

# `io` and `open` are public too, but not listed here, so that `from tensorwire import *` does not
# replace the module and the function of Python.
__all__ = [
    "Bundle",
    "ChecksumError",
    "DeadlineError",
    "DecodeError",
    "EncodeError",
    "Feature",
    "LimitError",
    "Limits",
    "MissingDependencyError",
    "ModelError",
    "Quantized",
    "Ragged",
    "RecordReader",
    "RecordWriter",
    "Schema",
    "SchemaError",
    "ServingError",
    "Sparse",
    "Strings",
    "Tensor",
    "TensorwireError",
    "TransportError",
    "TruncatedError",
    "UnknownFormatError",
    "UsageError",
    "buffers",
    "convert",
    "dequantize",
    "diff",
    "dumps",
    "equal",
    "formats",
    "infer_schema",
    "inspect",
    "load",
    "loads",
    "profile",
    "quantization_error",
    "quantize",
    "read",
    "read_examples",
    "read_sequence_examples",
    "repair",
    "save",
    "serving",
    "tensor",
    "to",
    "verify",
    "write",
    "write_examples",
    "write_sequence_examples",
]


def __getattr__(name: str) -> Any:
    # Public names are imported on first use, so that `import tensorwire` stays fast.
    if name in ("io", "serving"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    # The next lookup finds the name without calling this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "io", "open"})


def _html(value: Any) -> str:
    explore: Any = importlib.import_module(f"{__name__}.explore.html")
    return str(explore.html(value))


_display.register(_html)
