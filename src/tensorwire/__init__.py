"""tensorwire: any tensor, of any framework, to any wire, and back; bit-exact, fast, safe, and without TensorFlow installed.

    import tensorwire as tw

    blob = tw.dumps({"logits": x, "tokens": ragged, "step": 7})
    value = tw.loads(blob)
    tw.dumps(x, "tensorproto") == tf.io.serialize_tensor(x).numpy()

The map, from the ground up; imports go only downward, and a test keeps it so:

    _errors _limits _optional     what can go wrong, how much is allowed, what is optional
    dtypes memory frozen          the table of element types; the memory rules; values whose fields are set once
    wire, validate                bytes without tensors; every invariant of a tensor's arrays
    quantized tensors             floats in fewer bits; Strings, Sparse, Ragged, Bundle
    frameworks                    foreign objects to tensors and back
    transforms equality           compression, shuffling, quantization; whether two values are the same to the bit
    lowering                      any value as JSON and dense parts
    files                         where bytes are read from, and how a file is replaced whole
    codecs                        one module a format
    storage                       where bytes live: paths, buckets, URLs
    records recognition           TFRecord files, Examples as columns, schemas, repair; which format bytes are in
    checkpoint                    TensorFlow's checkpoints and SavedModels, without TensorFlow
    api                           dumps loads buffers save: chooses the codec, moves the bytes
    streams lazy shards summary   write read; open load; a model in many files; inspect verify
    conversion comparison         one tensor file to another; what differs between two
    datasets                      many record files: converted, resharded, split, by processes or Ray, without losing a record
    io torch ray profiling        tf.io's names, without TensorFlow; datasets for PyTorch and Ray; what every format costs for your tensor
    serving                       any tensor to a model server and back; models that take them; a local server
    drawing showing view          tensors as text, tables and pictures; a page to look into files
    cli testing                   the command; what proves codecs and frameworks, for your own too
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
    from .api import buffers, dumps, formats, loads, save
    from .comparison import diff
    from .datasets.dispatch import convert, verify
    from .equality import equal
    from .frameworks import tensor, to
    from .lazy import load
    from .lazy import open as open
    from .profiling import profile
    from .quantized import Quantized
    from .records.examples import read_examples
    from .records.infer import infer_schema
    from .records.reader import RecordReader
    from .records.repair import repair
    from .records.schema import Feature, Schema
    from .records.sequences import read_sequence_examples, write_sequence_examples
    from .records.write import write_examples
    from .records.writer import RecordWriter
    from .streams import read, write
    from .summary import inspect
    from .tensors import Bundle, Ragged, Sparse, Strings, Tensor
    from .transforms.quantization import dequantize, quantization_error, quantize

_HOME = {
    "_errors": "ChecksumError DeadlineError DecodeError EncodeError LimitError MissingDependencyError ModelError SchemaError ServingError "
    "TensorwireError TransportError TruncatedError UnknownFormatError UsageError",
    "_limits": "Limits",
    "api": "buffers dumps formats loads save",
    "comparison": "diff",
    "datasets.dispatch": "convert verify",
    "equality": "equal",
    "frameworks": "tensor to",
    "lazy": "load open",
    "profiling": "profile",
    "quantized": "Quantized",
    "records.examples": "read_examples",
    "records.infer": "infer_schema",
    "records.reader": "RecordReader",
    "records.repair": "repair",
    "records.schema": "Feature Schema",
    "records.sequences": "read_sequence_examples write_sequence_examples",
    "records.write": "write_examples",
    "records.writer": "RecordWriter",
    "streams": "read write",
    "summary": "inspect",
    "tensors": "Bundle Ragged Sparse Strings Tensor",
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
