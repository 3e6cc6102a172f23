"""NumPy: arrays of any byte order and layout, and its four ways to hold strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes, validate
from .._errors import EncodeError
from ..tensors import Array, Strings, Tensor, trusted


def to_tensor(obj: Any) -> Tensor:
    array = np.asarray(obj)  # NumPy scalars become 0-d, subclasses (matrix, memmap) plain
    if isinstance(obj, np.ma.MaskedArray):
        raise EncodeError("a masked array would lose its mask; store x.data and x.mask")
    return strings(array) if array.dtype.kind in "OSUT" else plain(array)


def about(obj: Any) -> dict[str, str]:
    return {"device": "cpu"}


def plain(array: Array) -> Array:
    """The array as every wire wants it: a known dtype, little-endian, in C order. The same object where it is so already."""
    dtypes.of(array.dtype)
    return layout(array)


def layout(array: Array) -> Array:
    """The same for an array whose dtype is known already."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes 0-d arrays 1-d


def strings(array: Array) -> Strings:
    """S, U, object and StringDType arrays. S and U cannot tell trailing NULs from padding, so there they are padding."""
    kind = array.dtype.kind
    if kind == "S":
        return _fixed(array, text=False)
    if kind == "U":
        return _unicode(array)
    items = array.reshape(-1).tolist()
    if kind == "O" and any(not isinstance(item, (str, bytes)) for item in items):
        odd = next(item for item in items if not isinstance(item, (str, bytes)))
        way = "numbers need a numeric dtype, tensors of different shapes a list"
        raise EncodeError(f"an object array may hold str or bytes, not {type(odd).__name__}; {way}")
    if kind == "T" and not all(isinstance(item, str) for item in items):
        raise EncodeError("a StringDType array with missing values; fill them first")
    return Strings.of(items, array.shape, text=kind == "T")


def _fixed(array: Array, text: bool) -> Strings:
    """NULs at the end are padding; a mask over the bytes leaves the rest, row by row."""
    width = array.dtype.itemsize
    cells = (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, width) if width else np.zeros((array.size, 0), np.uint8)
    )
    used = cells != 0
    lengths = np.where(used.any(axis=1), width - used[:, ::-1].argmax(axis=1), 0) if width else np.zeros(array.size, np.int64)
    offsets = np.zeros(array.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return trusted(Strings, cells[np.arange(width) < lengths[:, None]], offsets, array.shape, text)


def _unicode(array: Array) -> Strings:
    codes = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(-1).view(np.uint32)
    if codes.size and codes.max() < 0x80:  # ASCII: one byte each, no need to encode
        narrow = codes.astype(np.uint8).reshape(array.size, -1)
        return _fixed(narrow.view(f"S{narrow.shape[1]}").reshape(array.shape), text=True)
    return Strings.of(array.reshape(-1).tolist(), array.shape, text=True)


def from_python(obj: Any) -> Tensor:
    """Nested lists (and numbers and strings) as an array; nothing is rounded, and nothing is guessed for rows of different lengths."""
    first = obj
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    is_string = isinstance(first, (str, bytes))
    try:
        array = np.array(obj, object) if is_string else np.array(obj)
    except ValueError as error:
        raise EncodeError(f"these lists do not make an array ({error}); tw.Ragged.of(rows) takes rows of different lengths") from None
    if array.dtype.kind == "O" and not is_string:
        raise EncodeError("these values do not make an array of numbers; integers must fit 64 bits, and None is no number")
    if array.dtype.kind == "O" and any(isinstance(item, (list, tuple)) for item in array.reshape(-1).tolist()):
        raise EncodeError("these lists have different lengths; tw.Ragged.of(rows) takes them")
    if (
        array.dtype == np.float64
        and array.size
        and not is_string
        and all(type(x) is int for x in np.array(obj, object).reshape(-1).tolist())
    ):
        raise EncodeError("no integer type holds all of these; NumPy would round them to float64")
    if array.dtype.kind in "SU":
        raise EncodeError("numbers and strings in one list")
    validate.elements(array.shape)
    return strings(array) if is_string else plain(array)
