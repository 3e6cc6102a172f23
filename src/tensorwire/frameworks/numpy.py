"""NumPy: arrays of any byte order and layout, and its four kinds of string arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import EncodeError
from ..core import dtypes, validate
from ..core.frozen import trusted
from ..core.tensors import Array, Strings, Tensor


def to_tensor(obj: Any) -> Tensor:
    # NumPy scalars become 0-d arrays, subclasses (matrix, memmap) plain arrays.
    array = np.asarray(obj)
    if isinstance(obj, np.ma.MaskedArray):
        raise EncodeError("a masked array would lose its mask", hint="store x.data and x.mask")
    return strings(array) if array.dtype.kind in "OSUT" else plain(array)


def about(obj: Any) -> dict[str, str]:
    return {"device": "cpu"}


def plain(array: Array) -> Array:
    """Return the array in the layout of all formats: a known dtype, little-endian, C order.

    Returns the same object if it has that layout.
    """
    dtypes.of(array.dtype)
    return layout(array)


def layout(array: Array) -> Array:
    """Return the same as `plain` for an array whose dtype is known to be valid."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # ascontiguousarray converts 0-d arrays to 1-d.
    return np.ascontiguousarray(array).reshape(array.shape)


def strings(array: Array) -> Strings:
    """Return S, U, object and StringDType arrays as Strings.

    S and U cannot distinguish trailing NULs from padding, so these are padding.
    """
    kind = array.dtype.kind
    if kind == "S":
        return _fixed(array)
    if kind == "U":
        return _unicode(array)
    items = array.reshape(-1).tolist()
    if kind == "O" and any(not isinstance(item, (str, bytes)) for item in items):
        odd = next(item for item in items if not isinstance(item, (str, bytes)))
        raise EncodeError(
            f"an object array may only hold str or bytes, not {type(odd).__name__}",
            hint="use a numeric dtype for numbers, and a list for tensors of different shapes",
        )
    if kind == "T" and not all(isinstance(item, str) for item in items):
        raise EncodeError("a StringDType array has missing values", hint="fill them first")
    return Strings.of(items, array.shape, text=kind == "T")


def _fixed(array: Array) -> Strings:
    cells = _cells(array, np.uint8)
    lengths, used = _used(cells)
    offsets = np.zeros(array.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return trusted(Strings, cells[used], offsets, array.shape, False)


def _unicode(array: Array) -> Strings:
    cells = _cells(array.astype(array.dtype.newbyteorder("="), copy=False), np.uint32)
    lengths, used = _used(cells)
    ends = np.zeros(array.size + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    codes = cells[used]
    # ASCII characters take one byte each.
    if not codes.size or codes.max() < 0x80:
        return trusted(Strings, codes.astype(np.uint8), ends, array.shape, True)
    try:
        data = str(codes.data, "utf-32-le").encode()
    except UnicodeDecodeError as error:
        index = int(np.searchsorted(ends, error.start // 4, side="right")) - 1
        raise EncodeError(
            f"string {index} has a lone surrogate or an invalid character, which UTF-8 cannot"
            " encode"
        ) from None
    offsets = np.zeros(len(codes) + 1, np.int64)
    np.cumsum(1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000), out=offsets[1:])
    return trusted(Strings, np.frombuffer(data, np.uint8), offsets[ends], array.shape, True)


def _cells(array: Array, unit: Any) -> Array:
    """Return strings of fixed width as a matrix, one row each."""
    width = array.dtype.itemsize // np.dtype(unit).itemsize
    return (
        np.ascontiguousarray(array).reshape(-1).view(unit).reshape(array.size, width)
        if width
        else np.zeros((array.size, 0), unit)
    )


def _used(cells: Array) -> tuple[Array, Array]:
    """Return the length of each row, and which cells belong to it. Trailing zeros are padding."""
    width = cells.shape[1]
    some = cells != 0
    lengths = (
        np.where(some.any(axis=1), width - some[:, ::-1].argmax(axis=1), 0)
        if width
        else np.zeros(len(cells), np.int64)
    )
    return lengths, np.arange(width) < lengths[:, None]


def from_python(obj: Any) -> Tensor:
    """Return nested lists, numbers and strings as an array.

    Raises EncodeError if a value would be rounded or if rows have different lengths.
    """
    first = obj
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    is_string = isinstance(first, (str, bytes))
    try:
        array = np.array(obj, object) if is_string else np.array(obj)
    except ValueError as error:
        raise EncodeError(
            f"the lists cannot be converted to an array ({error})",
            hint="use tw.Ragged.of(rows) for rows of different lengths",
        ) from None
    if array.dtype.kind == "O" and not is_string:
        raise EncodeError(
            "the values cannot be converted to an array of numbers: integers must fit 64 bits, and"
            " None is not a number"
        )
    if array.dtype.kind == "O" and any(
        isinstance(item, (list, tuple)) for item in array.reshape(-1).tolist()
    ):
        raise EncodeError("the lists have different lengths", hint="use tw.Ragged.of(rows)")
    if (
        array.dtype == np.float64
        and array.size
        and not is_string
        and all(type(x) is int for x in np.array(obj, object).reshape(-1).tolist())
    ):
        raise EncodeError(
            "no integer dtype holds all of the values; NumPy would round them to float64"
        )
    if array.dtype.kind in "SU":
        raise EncodeError("the list mixes numbers and strings")
    validate.elements(array.shape)
    return strings(array) if is_string else plain(array)
