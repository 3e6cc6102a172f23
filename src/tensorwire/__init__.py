"""tensorwire: any tensor, of any framework, to any wire, and back; bit-exact, fast, safe, and without TensorFlow installed.

    import tensorwire as tw

    blob = tw.dumps({"logits": x, "tokens": ragged, "step": 7})
    value = tw.loads(blob)
    tw.dumps(x, "tensorproto") == tf.io.serialize_tensor(x).numpy()

The map, from the ground up; imports go only downward, and a test keeps it so:

    _errors _limits _optional     what can go wrong, how much is allowed, what is optional
    dtypes memory                 the table of element types; the memory rules
    wire, validate                bytes without tensors; every invariant of a tensor's arrays
    tensors                       Strings, Sparse, Ragged, Bundle
    frameworks                    foreign objects to tensors and back
    lowering equality             any value as JSON and dense parts; whether two values are the same to the bit
    codecs                        one module a format
    api                           dumps loads buffers write read
    io                            tf.io's names, without TensorFlow
    cli testing                   the command; what proves codecs and frameworks, for your own too
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import io
    from ._errors import (
        ChecksumError,
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
    )
    from ._limits import Limits
    from .api import buffers, dumps, formats, loads, read, write
    from .equality import equal
    from .frameworks import tensor, to
    from .tensors import Bundle, Ragged, Sparse, Strings, Tensor

_HOME = {
    "_errors": "ChecksumError DecodeError EncodeError LimitError MissingDependencyError ModelError SchemaError ServingError "
    "TensorwireError TransportError TruncatedError UnknownFormatError",
    "_limits": "Limits",
    "api": "buffers dumps formats loads read write",
    "equality": "equal",
    "frameworks": "tensor to",
    "tensors": "Bundle Ragged Sparse Strings Tensor",
}
_WHERE = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "Bundle",
    "ChecksumError",
    "DecodeError",
    "EncodeError",
    "LimitError",
    "Limits",
    "MissingDependencyError",
    "ModelError",
    "Ragged",
    "SchemaError",
    "ServingError",
    "Sparse",
    "Strings",
    "Tensor",
    "TensorwireError",
    "TransportError",
    "TruncatedError",
    "UnknownFormatError",
    "buffers",
    "dumps",
    "equal",
    "formats",
    "io",
    "loads",
    "read",
    "tensor",
    "to",
    "write",
]


def __getattr__(name: str) -> Any:
    if name == "io":
        return importlib.import_module(f"{__name__}.io")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value  # the next look-up finds it without us
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
