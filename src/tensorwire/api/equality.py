"""Bitwise equality of values."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import EncodeError
from ..core.quantized import Quantized
from ..core.tensors import Array, Bundle, Ragged, Sparse, Strings


def equal(a: Any, b: Any) -> bool:
    """Returns whether two values are equal bit for bit: kind, dtype, shape, bytes and metadata.

    Tensors of all frameworks and nested dicts, lists and tuples can be compared. NaN equals a NaN
    with the same bits, and -0.0 does not equal 0.0. Values of different types are not equal, and
    never raise.

    >>> import numpy as np, tensorwire as tw
    >>> tw.equal({"x": np.float32([1, np.nan])}, {"x": np.float32([1, np.nan])})
    True
    >>> tw.equal(np.zeros(2), np.zeros(2, np.float32))
    False
    """
    if isinstance(a, Bundle) or isinstance(b, Bundle):
        return (
            isinstance(a, Bundle)
            and isinstance(b, Bundle)
            and a.metadata == b.metadata
            and a.tensor_metadata == b.tensor_metadata
            and _items(dict(a), dict(b))
        )
    if _is_dict(a) or _is_dict(b):
        return _is_dict(a) and _is_dict(b) and _items(a, b)
    if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if type(a) is float and type(b) is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, (bool, int, str, bytes, float, type(None))) and not isinstance(a, np.generic):
        return type(a) is type(b) and bool(a == b)
    if isinstance(a, Quantized) or isinstance(b, Quantized):
        return type(a) is type(b) and all(
            equal(getattr(a, name), getattr(b, name)) for name in Quantized.__slots__
        )
    try:
        left, right = frameworks.leaf(a), frameworks.leaf(b)
    except EncodeError:
        return False
    # A nested tensor of torch becomes a list of tensors.
    if isinstance(left, list) or isinstance(right, list):
        return equal(left, right)
    return type(left) is type(right) and _tensors(left, right)


def _is_dict(value: Any) -> bool:
    """Whether a value is a plain dict. SciPy's DOK arrays are dicts, too, but are tensors here."""
    return isinstance(value, dict) and frameworks.is_python(value)


def _items(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    # The types of the keys are compared because 1 == True.
    same_keys = list(a) == list(b) and list(map(type, a)) == list(map(type, b))
    return same_keys and all(equal(a[key], b[key]) for key in a)


def _tensors(a: Any, b: Any) -> bool:
    if isinstance(a, Strings):
        return bool(
            a.text == b.text
            and a.shape == b.shape
            and _arrays(a.offsets, b.offsets)
            and _arrays(a.data, b.data)
        )
    if isinstance(a, Sparse):
        return (
            _arrays(a.dense_shape, b.dense_shape)
            and _arrays(a.indices, b.indices)
            and equal(a.values, b.values)
        )
    if isinstance(a, Ragged):
        return (
            a.uniform == b.uniform
            and len(a.row_splits) == len(b.row_splits)
            and all(map(_arrays, a.row_splits, b.row_splits))
            and equal(a.values, b.values)
        )
    return _arrays(a, b)


def _arrays(a: Array, b: Array) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    left, right = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return bool(np.array_equal(left, right))
