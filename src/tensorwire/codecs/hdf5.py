"""HDF5 files of arrays, read through h5py, one dataset at a time: the ground that Keras's weights stand on.

HDF5 can do much that weights need not, and that strangers should not have: links into other files, data that lie in other files, datasets
that are views of others, filters that are loaded as plugins. All of it is refused when the file is opened, before any data is read. Sizes
are bounded then as well: a dataset may claim any number of elements without having one stored.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .. import dtypes, memory
from .._errors import DecodeError, LimitError, TensorwireError
from .._limits import Limits
from .._optional import require
from ..files import Source
from ..tensors import Array
from .container import Rows, UnreadablePart

MAGIC = b"\x89HDF\r\n\x1a\n"
_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
"""Those that h5py has in itself; for any other one HDF5 would look for a plugin."""
_DEPTH = 64
_FAULTS = (OSError, KeyError, RuntimeError, ValueError, TypeError, NotImplementedError, OverflowError, AttributeError, MemoryError)
"""What h5py says of files that it cannot read."""


class Dataset(NamedTuple):
    """An array of the file, found and checked."""

    name: str
    part: DatasetPart | UnreadablePart


class _Bytes(io.RawIOBase):
    """A source as a file object, which is all that h5py wants."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (0, self._at, self._source.size)[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memory.flat(buffer)
        count = max(0, min(len(view), self._source.size - self._at))
        into = getattr(self._source, "read_into", None)
        if into is not None:
            into(self._at, view[:count])
        else:
            view[:count] = self._source.read_at(self._at, count)
        self._at += count
        return count


class Hdf5:
    """An open file."""

    def __init__(self, source: Source, limits: Limits, format: str) -> None:
        self._h5py, self._limits, self._format, self._size = require("h5py", extra="keras"), limits, format, source.size
        self._claimed = 0
        self._groups: set[Any] = set()
        try:
            self.root: Any = self._h5py.File(_Bytes(source), "r", locking=False)
        except _FAULTS as error:
            raise self._bad(f"HDF5 cannot read it ({_words(error)})") from None

    def datasets(self) -> Iterator[Dataset]:
        """Every array, names as people count them: vars/2 before vars/10."""
        for number, found in enumerate(self._walk(self.root, "", 0)):
            if number >= self._limits.names:
                raise LimitError(
                    f"more than {self._limits.names} datasets; Limits(names=...) allows no more", format=self._format, offset=0
                )
            yield found

    def text(self, group: Any, name: str) -> str | None:
        """An attribute that is text; None if there is none."""
        try:
            found = group.attrs.get(name)
        except _FAULTS as error:
            raise self._bad(f"its attribute {name!r} cannot be read ({_words(error)})") from None
        if isinstance(found, bytes):
            return found.decode("utf-8", "replace")
        return found if isinstance(found, str) else None

    def child(self, group: str, name: str) -> Any:
        """A group that was met on the way to a dataset, or its child; None if there is none."""
        try:
            inner = self.root[group]
            return inner[name] if isinstance(inner.get(name, getlink=True), self._h5py.HardLink) else None
        except _FAULTS:
            return None

    def _walk(self, group: Any, way: str, depth: int) -> Iterator[Dataset]:
        if depth > _DEPTH:
            raise LimitError(f"groups nested more than {_DEPTH} deep", format=self._format, offset=0)
        try:
            place = self._h5py.h5o.get_info(group.id)
            if (place.fileno, place.addr) in self._groups:
                raise self._bad(f"the group {way!r:.80} is inside itself, or stands twice")
            self._groups.add((place.fileno, place.addr))
            names = sorted(group, key=natural)
        except _FAULTS as error:
            if isinstance(error, TensorwireError):
                raise
            raise self._bad(f"the group {way or '/'!r:.80} cannot be read ({_words(error)})") from None
        for name in names:
            full = f"{way}/{name}" if way else name
            item = self._item(group, name, full)
            if isinstance(item, self._h5py.Group):
                yield from self._walk(item, full, depth + 1)
            else:
                yield Dataset(full, self._part(item, full))

    def _item(self, group: Any, name: str, full: str) -> Any:
        try:
            link = group.get(name, getlink=True)
            if not isinstance(link, self._h5py.HardLink):
                raise self._bad("a link to somewhere else, and not the thing itself, which is never followed", full)
            item = group[name]
        except _FAULTS as error:
            if isinstance(error, TensorwireError):
                raise
            raise self._bad(f"it cannot be opened ({_words(error)})", full) from None
        if not isinstance(item, (self._h5py.Group, self._h5py.Dataset)):
            raise self._bad("neither a group nor an array", full)
        return item

    def _part(self, dataset: Any, name: str) -> DatasetPart | UnreadablePart:
        try:
            plan = dataset.id.get_create_plist()
            if plan.get_external_count():
                raise self._bad("its data lie in another file, which is never opened", name)
            if plan.get_layout() == self._h5py.h5d.VIRTUAL:
                raise self._bad("a view of other datasets, which is never followed", name)
            filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
            if unknown := [number for number in filters if number not in _FILTERS]:
                why = f"packed by the HDF5 filter {unknown[0]}; only {', '.join(_FILTERS.values())} are read, and no plugin is loaded"
                raise self._bad(why, name)
            shape, stored = dataset.shape, dataset.id.get_storage_size()
            if shape is None:
                raise self._bad("an array of nothing (a null dataspace)", name)
            said = self.text(dataset, "dtype")
            row = self._row(dataset.dtype, said)
            if row is None:
                refusal = self._bad(f"an array of {dataset.dtype}; only numbers are read", name)
                return UnreadablePart(str(dataset.dtype), shape, stored, refusal)
        except _FAULTS as error:
            if isinstance(error, TensorwireError):
                raise
            raise self._bad(f"it cannot be read ({_words(error)})", name) from None
        nbytes = math.prod(shape) * row.numpy.itemsize
        self._claimed += nbytes
        allowed = max(self._limits.splat, self._limits.ratio * stored)
        everything = max(self._limits.splat, self._limits.ratio * self._size)
        if len(shape) > 64 or nbytes > allowed or self._claimed > everything:
            why = f"{nbytes} bytes of which {stored} are stored; Limits(splat=..., ratio=...) allow no more than {min(allowed, everything)}"
            raise LimitError(why, format=self._format, tensor=name, offset=0)
        return DatasetPart(dataset, row, shape, nbytes, bool(filters), self._format, name)

    def _row(self, dtype: Any, said: str | None) -> dtypes.DType | None:
        """Keras stores what NumPy lacks as opaque bytes, and says what it is. None if unknown."""
        if dtype.kind == "V" and dtype.fields is None and said is not None and said in dtypes.BY_NAME and dtype.subdtype is None:
            row = dtypes.BY_NAME[said]
            if row.numpy.itemsize == dtype.itemsize and hasattr(ml_dtypes, said) and not row.reading_only:
                return row
        if dtype.kind not in "biufc" or dtype.fields is not None:
            return None
        try:
            return dtypes.of(dtype)
        except TensorwireError:
            return None

    def _bad(self, why: str, name: str | None = None) -> DecodeError:
        return DecodeError(why, format=self._format, tensor=name, offset=0)


class DatasetPart:
    """A dataset, of which rows are read when they are asked for."""

    def __init__(self, dataset: Any, row: dtypes.DType, shape: tuple[int, ...], nbytes: int, packed: bool, format: str, name: str) -> None:
        self.dtype, self.shape, self.nbytes = row.name, shape, nbytes
        self.packed = "HDF5" if packed else None
        self._dataset, self._row, self._format, self.name = dataset, row, format, name

    def read(self, rows: Rows = None) -> Array:
        start, stop = (0, self.shape[0] if self.shape else 0) if rows is None else rows
        if rows is not None and (not self.shape or not 0 <= start <= stop <= self.shape[0]):
            raise DecodeError(
                f"rows {start} to {stop} of a tensor of shape {list(self.shape)}", format=self._format, tensor=self.name, offset=0
            )
        shape = (stop - start, *self.shape[1:]) if self.shape else ()
        opaque = self._dataset.dtype.kind == "V"
        found: Array = np.empty(shape, self._dataset.dtype if opaque else self._row.numpy)
        if found.size:
            try:
                where = np.s_[start:stop] if self.shape else ()
                self._dataset.read_direct(found, where, () if not self.shape else None)
            except _FAULTS as error:
                if isinstance(error, TensorwireError):
                    raise
                why = f"HDF5 cannot read its data ({_words(error)})"
                raise DecodeError(why, format=self._format, tensor=self.name, offset=0) from None
        return found.view(self._row.numpy) if opaque else found


def natural(name: str) -> tuple[Any, ...]:
    """Names as people count: 2 before 10.

    >>> sorted(["10", "2", "a", "dense_10", "dense_9"], key=natural)
    ['2', '10', 'a', 'dense_9', 'dense_10']
    """
    words = re.split(r"(\d{1,18})", name, flags=re.A)
    return tuple((0, int(word), "") if number % 2 else (1, 0, word) for number, word in enumerate(words))


def _words(error: BaseException) -> str:
    """What h5py says, in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
