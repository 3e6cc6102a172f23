"""An array as npy files hold it, npz files too: which of NumPy's types are tensors of ours, and how
one that lies otherwise becomes so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._errors import DecodeError, EncodeError, LimitError, TruncatedError
from .._limits import Budget
from ..core import dtypes, memory, validate
from ..core.frozen import trusted
from ..core.tensors import Array, Strings
from ..frameworks.numpy import strings
from ..storage.files import Source
from ..wire import npy as wire
from .array_part import StoredPart, little
from .container import BasePart, Part, Rows, UnreadablePart

DESCRS = {
    row.name: row.numpy.str
    for row in dtypes.TABLE
    if row.numpy.isbuiltin == 1 and not row.reading_only
}
"""NumPy's name for each dtype that it has itself."""
_ROWS = {descr.lstrip("<|"): dtypes.BY_NAME[name] for name, descr in DESCRS.items()}
_BYTES = dtypes.BY_NAME["uint8"]
_FIRST = 1024
"""Bytes of the first read, which holds most headers whole."""
_PICKLED = (
    "Python objects, which only pickle reads, and tensorwire never does; np.load(...,"
    " allow_pickle=True) if you trust the file"
)
_LONG = (
    "long doubles, which differ from machine to machine; save x.astype('float64') or"
    " x.astype('complex128')"
)
_STRUCTURED = (
    "a structured array; save each field as an array of its own: {name: x[name] for name in"
    " x.dtype.names}"
)
_REFUSED = {
    "O": _PICKLED,
    "M": "dates; save x.view('int64') and the unit",
    "m": "durations; save x.view('int64') and the unit",
    "V": (
        "elements that NumPy has no name for (it writes the types of ml_dtypes so);"
        " np.load(...).view(dtype), and save it here"
    ),
}


def descr_of(row: dtypes.DType) -> str:
    """NumPy's name for what a dtype is stored as.

    >>> descr_of(dtypes.named("bfloat16")), descr_of(dtypes.named("int4")), descr_of(dtypes.named("bool"))
    ('<u2', '|u1', '|b1')
    """
    return DESCRS.get(row.name) or np.dtype(f"u{row.numpy.itemsize}").str


class NpyArray(NamedTuple):
    """An array whose header has been read, and whose data are there."""

    header: wire.NpyHeader
    text: bytes
    """The header as it stands in the file."""
    dtype: np.dtype[Any]
    """What the data are in."""
    start: int
    """Where they begin, and end."""
    stop: int
    refusal: str | None = None
    """Why the elements cannot be read; the header is fine, and the data are not looked at."""

    def part(
        self,
        source: Source,
        copy: bool | None,
        limits: Budget,
        format: str,
        name: str | None = None,
        matches: Callable[[Any], bool] | None = None,
    ) -> Part:
        """The array, read on demand. `matches` says whether the data have the checksum that was
        stored with them.
        """
        if self.refusal is not None:
            error = DecodeError(self.refusal, format=format, tensor=name, offset=self.start)
            size = self.stop - self.start
            return UnreadablePart(self.header.descr, self.header.shape, size, error)
        row = _ROWS.get(self.dtype.str.lstrip("<>|"))
        shape = self.header.shape
        transposed = (
            self.header.fortran and self.stop > self.start and sum(dim > 1 for dim in shape) > 1
        )
        if row is not None and row.numpy == self.dtype and not transposed:
            return StoredPart(
                source, self.start, row, shape, copy, format=format, name=name, matches=matches
            )
        raw = StoredPart(
            source,
            self.start,
            _BYTES,
            (self.stop - self.start,),
            None,
            format=format,
            name=name,
            matches=matches,
        )
        return _Converted(self, raw, row, transposed, copy, limits, format)


def find(source: Source, base: int, available: int, limits: Budget) -> NpyArray:
    """The array whose header begins at `base`, in so many bytes."""
    read = little(source)
    head = read(base, min(_FIRST, available))
    size = wire.size(head, limits.npy_header, base)
    if size > available:
        raise TruncatedError(f"a header of {size} bytes in {available}", offset=base + available)
    text = bytes(head[:size] if size <= len(head) else read(base, size))
    header = wire.read(text, base)
    try:
        dtype = _dtype(header.descr)
        if isinstance(dtype, str):
            validate.elements(header.shape, DecodeError)
            return NpyArray(header, text, np.dtype("V"), base + size, base + available, dtype)
        nbytes = validate.elements(header.shape, DecodeError, dtype.itemsize) * dtype.itemsize
    except DecodeError as error:
        raise error.add(offset=base + 10) from None
    if nbytes > available - size:
        raise TruncatedError(
            f"the data take {nbytes} bytes, and there are {available - size}",
            offset=base + available,
        )
    return NpyArray(header, text, dtype, base + size, base + size + nbytes)


def _dtype(descr: str) -> np.dtype[Any] | str:
    """The dtype of data, in any byte order; for what is not a tensor, why, and what to do."""
    if descr[:1] in ("[", "("):
        return _STRUCTURED
    order, name = (descr[0], descr[1:]) if descr[:1] in ("<", ">", "|", "=") else ("=", descr)
    row = _ROWS.get(name)
    if row is not None and (order != "|" or row.numpy.itemsize == 1):
        return row.numpy.newbyteorder(">") if order == ">" else row.numpy
    kind, width = name[:1], name[1:]
    if (
        kind in ("S", "U")
        and width.isascii()
        and width.isdigit()
        and int(width[:10]) * 4 < 1 << 31
        and len(width) <= 10
    ):
        return np.dtype(f"{'>' if order == '>' else '<'}{name}")
    why = _LONG if name in ("f12", "f16", "c24", "c32") else _REFUSED.get(kind)
    return (
        f"an array of {descr!r:.20}: {why}"
        if why
        else f"an array of the unknown type {descr!r:.40}"
    )


class _Converted(BasePart):
    """An array that has to be made another: big-endian, in Fortran's order, or of strings of fixed
    width.
    """

    def __init__(
        self,
        array: NpyArray,
        raw: StoredPart,
        row: dtypes.DType | None,
        transposed: bool,
        copy: bool | None,
        limits: Budget,
        format: str,
    ) -> None:
        self.dtype = row.name if row is not None else "text" if array.dtype.kind == "U" else "bytes"
        self.shape, self.nbytes, self.checksum = array.header.shape, raw.nbytes, raw.checksum
        self._array, self._raw, self._row, self._transposed = array, raw, row, transposed
        self._copy, self._limits, self._format = copy, limits, format

    def read(self, rows: Rows = None) -> Any:
        """All of it, or some rows; in Fortran's order these lie all over the file, so it is read
        whole for them.
        """
        try:
            return self._read(rows)
        except DecodeError as error:
            raise error.add(
                format=self._format, tensor=self._raw.name, offset=self._array.start
            ) from None

    def _read(self, rows: Rows) -> Any:
        shape, stored = self.shape, self._array.dtype
        if self._copy is False:
            order = " in Fortran order" if self._transposed else ""
            raise DecodeError(
                f"copy=False, but data of {stored.str!r}{order} must be made another array; leave"
                " copy out"
            )
        if rows is not None and (not shape or not 0 <= rows[0] <= rows[1] <= shape[0]):
            raise DecodeError(f"rows {rows[0]} to {rows[1]} of a tensor of shape {list(shape)}")
        if rows is not None and not self._transposed:
            stride = self.nbytes // shape[0] if shape[0] else 0
            cells, shape = (
                self._raw.read((rows[0] * stride, rows[1] * stride)),
                (rows[1] - rows[0], *shape[1:]),
            )
        else:
            cells = self._raw.read()
        count = validate.elements(shape, DecodeError)
        if self._row is None:
            if 8 * (count + 1) > self._limits.tensor:
                raise LimitError(
                    f"{count} strings; Limits(tensor=...) allows {self._limits.tensor} bytes for"
                    " where they begin"
                )
            self._limits.draw(9 * (count + 1))
        if self._row is not None and (bad := dtypes.noncanonical(self._row, cells)) is not None:
            raise DecodeError(
                f"a byte that is no value of {self._row.name}", offset=self._array.start + bad
            )
        array: Array = cells.view(stored) if stored.itemsize else np.zeros(count, f"{stored.kind}1")
        array = array.reshape(shape[::-1]).T if self._transposed else array.reshape(shape)
        if rows is not None and self._transposed:
            array = array[rows[0] : rows[1]]
        writable = bool(self._copy) or cells.flags.writeable
        if self._row is None:
            return _strings(array, writable)
        native: Array = np.array(array, self._row.numpy, order="C")
        return native if writable else memory.read_only(native)


def _strings(array: Array, writable: bool) -> Strings:
    try:
        result = strings(array)
    except EncodeError as error:  # whoever wrote it
        raise DecodeError(error.message) from None
    data, offsets = (
        x if x.flags.writeable or not writable else x.copy() for x in (result.data, result.offsets)
    )
    if not writable:
        memory.read_only(data)
        memory.read_only(offsets)
    return trusted(Strings, data, offsets, result.shape, result.text)
