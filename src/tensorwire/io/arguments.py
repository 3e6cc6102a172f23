"""Arguments and results of tf.io functions: tensors of any framework in, arrays and bytes out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .. import frameworks
from .._errors import EncodeError, SchemaError
from ..core.tensors import Array, Strings, TensorLike, describe


def tensor(obj: TensorLike) -> Any:
    """Convert a value to a tensor like tf.convert_to_tensor.

    Integers in a list, also NumPy's, become int32 if they fit, else int64. Python floats become
    float32.
    """
    value = frameworks.tensor(_listed(obj))
    if (
        not isinstance(value, np.ndarray)
        or not isinstance(obj, (list, tuple, int, float))
        or isinstance(obj, (bool, np.generic))
    ):
        return value
    if value.dtype.kind in "iu":
        small = not value.size or (value.min() >= -(1 << 31) and value.max() < 1 << 31)
        return (
            value.astype(np.int32 if small else np.int64)
            if value.dtype != np.uint64 or small
            else value
        )
    return value.astype(np.float32) if value.dtype == np.float64 and _all_python(obj) else value


def _all_python(obj: object) -> bool:
    return (
        all(map(_all_python, obj))
        if isinstance(obj, (list, tuple))
        else type(obj) in (bool, int, float)
    )


def _listed(obj: TensorLike) -> Any:
    """Return nested lists with string tensors replaced by lists of bytes; other values unchanged."""
    if not isinstance(obj, (list, tuple)) or not _has_string_tensor(obj):
        return obj
    return _with_bytes(obj)


def _has_string_tensor(obj: TensorLike) -> bool:
    if isinstance(obj, (list, tuple)):
        return any(map(_has_string_tensor, obj))
    if isinstance(obj, np.generic) or frameworks.is_python(obj):
        return False
    return isinstance(frameworks.leaf(obj), Strings)


def _with_bytes(obj: TensorLike) -> Any:
    if isinstance(obj, (list, tuple)):
        return [_with_bytes(item) for item in obj]
    if isinstance(obj, str):
        return obj.encode()
    tensor = obj if frameworks.is_python(obj) else frameworks.leaf(obj)
    return tensor.astext(False).tolist() if isinstance(tensor, Strings) else tensor


def strings(obj: TensorLike) -> Strings:
    """Return a string tensor from any framework's, or from nested lists.

    Empty lists and arrays count as strings, as in TensorFlow.
    """
    value = frameworks.tensor(_listed(obj))
    if (
        isinstance(value, np.ndarray)
        and not value.size
        and isinstance(obj, (list, tuple, np.ndarray))
    ):
        return Strings.of([], value.shape, text=False)
    if not isinstance(value, Strings):
        raise EncodeError(f"expected a string tensor, not {describe(value)}")
    return value.astext(False)


def rows(obj: TensorLike) -> Array:
    """Return strings of any kind as an object array of bytes."""
    if isinstance(obj, np.ndarray) and obj.dtype == object:
        return obj
    return np.asarray(strings(obj))


def scalar(obj: TensorLike) -> Any:
    """Return one byte string from bytes, a buffer or a 0-d string tensor."""
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return obj
    value = strings(obj)
    if value.shape != ():
        raise SchemaError(f"expected one string, not a tensor of shape {value.shape}")
    return value[()]


def objects(value: Any) -> Any:
    """Return string tensors like `.numpy()`: object arrays of bytes, a scalar as bytes."""
    if not isinstance(value, Strings):
        return value
    return np.asarray(value) if value.shape else value[()]


class Messages(NamedTuple):
    """Serialized messages: message i is data[starts[i]:starts[i] + sizes[i]].

    `single` says that it was passed as a scalar, not as a vector.
    """

    data: Any
    starts: Array
    sizes: Array
    single: bool


def messages(serialized: TensorLike, names: ArrayLike | None, single: bool = False) -> Messages:
    """Return the messages in bytes, or in a string tensor of rank 0 or 1.

    With `single`, only rank 0 is allowed. `names` has a name for each message, or is None.
    """
    if isinstance(serialized, (bytes, bytearray, memoryview)):
        result = Messages(
            serialized, np.zeros(1, np.int64), np.array([memoryview(serialized).nbytes]), True
        )
    elif isinstance(serialized, (list, tuple)) and all(
        isinstance(item, bytes) for item in serialized
    ):
        sizes = np.fromiter(map(len, serialized), np.int64, len(serialized))
        result = Messages(b"".join(serialized), np.cumsum(sizes) - sizes, sizes, False)
    else:
        value = strings(serialized)
        if value.ndim > 1:
            raise SchemaError(
                "expected one serialized message or a vector of them, not a tensor of shape"
                f" {value.shape}"
            )
        result = Messages(value.data, value.offsets[:-1], np.diff(value.offsets), not value.shape)
    if single and not result.single:
        raise SchemaError(f"expected one serialized message, not a vector of {len(result.sizes)}")
    if names is not None and (
        (rank := np.ndim(names)) != (0 if result.single else 1)
        or (rank and np.shape(names)[0] not in (0, len(result.sizes)))
    ):
        raise SchemaError(
            f"example_names must have the shape of the messages ({len(result.sizes)}), not"
            f" {np.shape(names)}"
        )
    return result
