"""Arrays of npy and npz files: which NumPy types are supported, and the conversion of the others.

1. Little-endian arrays in C order are read in place, as a `StoredPart`.
2. Big-endian arrays, arrays in Fortran order and strings of fixed width are converted when they are
   read.
3. Objects, dates, long doubles and structured arrays are not supported: they are listed, and
   reading them raises an error that says how to save them differently.
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
from .array_part import StoredPart, check_canonical, little
from .container import BasePart, Part, Rows, UnreadablePart, check_rows

DESCRS = {
    row.name: row.numpy.str
    for row in dtypes.TABLE
    if row.numpy.isbuiltin == 1 and not row.reading_only
}
"""NumPy's descr for each dtype that NumPy has itself."""
_ROWS = {descr.lstrip("<|"): dtypes.BY_NAME[name] for name, descr in DESCRS.items()}
_BYTES = dtypes.BY_NAME["uint8"]
_FIRST = 1024
"""The size of the first read, which covers most headers."""


class Refusal(NamedTuple):
    """Why the elements of an array cannot be read, and what to do."""

    why: str
    hint: str | None = None


_PICKLED = Refusal(
    "Python objects, which need pickle", "np.load(..., allow_pickle=True), if you trust the file"
)
_LONG = Refusal(
    "long doubles, which differ between machines",
    "save x.astype('float64') or x.astype('complex128')",
)
_STRUCTURED = Refusal(
    "a structured array", "save each field by itself: {name: x[name] for name in x.dtype.names}"
)
_REFUSED = {
    "O": _PICKLED,
    "M": Refusal("dates", "save x.view('int64') and the unit"),
    "m": Refusal("durations", "save x.view('int64') and the unit"),
    "V": Refusal(
        "elements without a NumPy name, as NumPy saves the types of ml_dtypes",
        "load it with np.load(...).view(dtype), and save it with tensorwire",
    ),
}


def descr_of(row: dtypes.DType) -> str:
    """Returns NumPy's descr for the stored form of a dtype.

    >>> descr_of(dtypes.named("bfloat16")), descr_of(dtypes.named("int4"))
    ('<u2', '|u1')
    """
    return DESCRS.get(row.name) or np.dtype(f"u{row.numpy.itemsize}").str


class NpyArray(NamedTuple):
    """An array whose header has been read, and whose data lie in the file."""

    header: wire.NpyHeader
    text: bytes
    """The bytes of the header."""
    dtype: np.dtype[Any]
    """The dtype of the data in the file, in any byte order."""
    start: int
    """The offset of the data, and of their end."""
    stop: int
    refusal: Refusal | None = None
    """Why the elements cannot be read. The header is valid, and the data are not examined."""

    def part(
        self,
        source: Source,
        copy: bool | None,
        limits: Budget,
        format: str,
        name: str | None = None,
        matches: Callable[[Any], bool] | None = None,
    ) -> Part:
        """Returns a part that reads the array. `matches` compares the data with their checksum."""
        if self.refusal is not None:
            error = self.error(format=format, tensor=name, offset=self.start)
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

    def error(
        self, *, offset: int, format: str | None = None, tensor: str | None = None
    ) -> DecodeError:
        """Returns the error for elements that cannot be read."""
        assert self.refusal is not None
        why, hint = self.refusal
        return DecodeError(why, format=format, tensor=tensor, offset=offset, hint=hint)


def find(source: Source, base: int, available: int, limits: Budget) -> NpyArray:
    """Reads the header at offset `base`. Header and data must fit into `available` bytes."""
    read = little(source)
    head = read(base, min(_FIRST, available))
    size = wire.size(head, limits.npy_header, base)
    if size > available:
        raise TruncatedError(
            f"the header has {size} bytes, but only {available} are available",
            offset=base + available,
        )
    text = bytes(head[:size] if size <= len(head) else read(base, size))
    header = wire.read(text, base)
    try:
        dtype = _dtype(header.descr)
        if isinstance(dtype, Refusal):
            validate.elements(header.shape, DecodeError)
            return NpyArray(header, text, np.dtype("V"), base + size, base + available, dtype)
        nbytes = validate.elements(header.shape, DecodeError, dtype.itemsize) * dtype.itemsize
    except DecodeError as error:
        raise error.add(offset=base + 10) from None
    if nbytes > available - size:
        raise TruncatedError(
            f"the data need {nbytes} bytes, but only {available - size} are available",
            offset=base + available,
        )
    return NpyArray(header, text, dtype, base + size, base + size + nbytes)


def _dtype(descr: str) -> np.dtype[Any] | Refusal:
    """Returns the dtype of the data, in any byte order, or why it is not supported."""
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
    refusal = _LONG if name in ("f12", "f16", "c24", "c32") else _REFUSED.get(kind)
    if refusal is None:
        return Refusal(f"unknown NumPy type {descr!r:.40}")
    return Refusal(f"unsupported NumPy type {descr!r:.20}: {refusal.why}", refusal.hint)


class _Converted(BasePart):
    """An array that is converted when it is read: big-endian, in Fortran order, or strings of fixed
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
        """Returns the array, or some rows. In Fortran order the whole array is read, since its rows
        are spread over the file.
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
                f"copy=False, but {stored.str!r} data{order} must be converted",
                hint="leave copy= out",
            )
        if rows is not None:
            check_rows(rows, shape)
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
                    f"{count} strings; Limits(tensor=...) allows {self._limits.tensor} bytes of"
                    " offsets"
                )
            # Strings of width 0 take no bytes in the file, so a small file could ask for any number
            # of them. Each draws its offset and a byte.
            self._limits.draw(9 * (count + 1))
        else:
            check_canonical(self._row, cells, self._array.start)
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
    except EncodeError as error:
        # Invalid strings in a file are the fault of the file, not of the caller.
        raise DecodeError(error.message) from None
    data, offsets = (
        x if x.flags.writeable or not writable else x.copy() for x in (result.data, result.offsets)
    )
    if not writable:
        memory.read_only(data)
        memory.read_only(offsets)
    return trusted(Strings, data, offsets, result.shape, result.text)
