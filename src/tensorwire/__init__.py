"""tensorwire: any tensor, of any framework, to any wire, and back; bit-exact, fast, safe, and
without TensorFlow installed.

    import tensorwire as tw

    blob = tw.dumps({"logits": x, "tokens": ragged, "step": 7})
    value = tw.loads(blob)
    tw.dumps(x, "tensorproto") == tf.io.serialize_tensor(x).numpy()

By task:

    dumps loads buffers           any value as bytes, and back
    save load open                files; `open` reads only what is asked for
    write read                    one value after the other on sockets, pipes and file objects
    inspect verify diff           what is in a file; is it whole; what differs between two files
    convert                       tensor files and datasets into other formats
    write_examples read_examples  TFRecord files as columns; infer_schema, RecordReader,
                                  RecordWriter, repair
    tensor to equal               any framework's tensors to NumPy's and back; equality to the bit
    quantize dequantize           floats in fewer bits
    profile formats               which format is best for a value; which formats there are
    io                            tf.io's names, without TensorFlow
    serving                       clients and servers of models: REST, gRPC, KServe
    tensorwire.torch, .ray        datasets for PyTorch and Ray
    tensorwire.checkpoint         TensorFlow's checkpoints

docs/design.md says how the package is built.
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

# `io` and `open` are public too; `from tensorwire import *` leaves Python's own alone.
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
    if name in ("io", "serving"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value  # the next look-up finds it without us
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "io", "open"})


def _html(value: Any) -> str:
    return importlib.import_module(f"{__name__}.explore.html").html(value)  # type: ignore[no-any-return]


_display.register(_html)
