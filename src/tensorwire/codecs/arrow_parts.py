"""The arrays of an Arrow file as parts of a container: read whole or by rows, from one batch or from many.

Only the bytes of the rows that are asked for are read, unless they are compressed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .. import memory, validate
from .._errors import DecodeError
from ..tensors import Array
from ..wire import arrow_ipc as ipc
from .arrow_levels import LISTS, Level
from .arrow_values import Values, allow
from .container import Rows

_INT32_MAX = (1 << 31) - 1


class _Guarded(ABC):
    """What every part does: an error says which column it is of, and of which format."""

    column: str

    def read(self, rows: Rows = None) -> Any:
        try:
            return self._read(rows)
        except DecodeError as error:
            raise error.add(format=ipc.FORMAT, tensor=self.column, offset=0) from None

    @abstractmethod
    def _read(self, rows: Rows) -> Any:
        """All, or the rows from, to."""


class Part(_Guarded):
    """A tensor whose rows are those of one array, and whose values are those of an array inside of it."""

    def __init__(self, rows: Level, leaf: Level, values: Values, inner: tuple[int, ...] = (), order: tuple[int, ...] = ()) -> None:
        self._rows, self._leaf, self._values, self._inner, self._order = rows, leaf, values, inner, order
        self.dtype, self.column = values.dtype, rows.column

    @property
    def shape(self) -> tuple[int, ...]:
        inner = [self._inner[axis] for axis in self._order] if self._order else self._inner
        return (self._rows.rows, *inner)

    @property
    def nbytes(self) -> int:
        """As it lies in the file."""
        return self._leaf.nbytes

    def _read(self, rows: Rows) -> Any:
        count = self._rows.rows
        start, stop = (0, count) if rows is None else rows
        if not 0 <= start <= stop <= count:
            raise self._leaf.bad(f"rows {start} to {stop} of a column of {count}")
        validate.elements((count, *self._inner), DecodeError, 16)
        each = math.prod(self._inner)
        if not each and self._leaf.rows:
            raise self._leaf.bad(f"{self._leaf.rows} elements in rows of the shape {list(self._inner)}")
        found = self._values.take(start * each, stop * each, (stop - start, *self._inner))
        if not self._order:
            return found
        writable = found.flags.writeable
        moved = np.ascontiguousarray(found.transpose(0, *(axis + 1 for axis in self._order)))
        return moved if writable else memory.read_only(moved)


class Cell(_Guarded):
    """A tensor that is one row of a list: its elements, flat, in a shape that the field's metadata say."""

    def __init__(self, leaf: Level, values: Values, shape: tuple[int, ...]) -> None:
        self._leaf, self._values, self.shape = leaf, values, shape
        self.dtype, self.column = values.dtype, leaf.column

    @property
    def nbytes(self) -> int:
        return self._leaf.nbytes

    def _read(self, rows: Rows) -> Any:
        count = validate.elements(self.shape, DecodeError, 16)
        if count != self._leaf.rows:
            raise self._leaf.bad(f"{self._leaf.rows} elements, and the shape {list(self.shape)} has {count}")
        if rows is None:
            return self._values.take(0, count, self.shape)
        start, stop = rows
        if not self.shape or not 0 <= start <= stop <= self.shape[0]:
            raise self._leaf.bad(f"rows {start} to {stop} of a tensor of shape {list(self.shape)}")
        each = math.prod(self.shape[1:])
        return self._values.take(start * each, stop * each, (stop - start, *self.shape[1:]))


class Refused(_Guarded):
    """A column that no tensor holds: it can be seen, and reading it says why not."""

    def __init__(self, rows: Level, dtype: str, why: str) -> None:
        self._rows, self.dtype, self._why, self.column = rows, dtype, why, rows.column

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(chunk.batch.length for chunk in self._rows.chunks),)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def _read(self, rows: Rows) -> Any:
        raise self._rows.bad(f"no tensor holds Arrow's {self.dtype}, which the column {self.column!r} is of{self._why}")


class Splits(_Guarded):
    """Where the rows of a list begin, through all batches. `lists` are all lists of the column, outer to inner, and what is in the last."""

    def __init__(self, level: Level, lists: list[Level], copy: bool | None) -> None:
        self._level, self._lists, self._copy, self.column = level, lists, copy, level.column

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._level.rows + 1,)

    @property
    def dtype(self) -> str:
        """int32 if all lists of the column have such offsets, and all of them together still do."""
        small = all(level.field.kind != ipc.LARGE_LIST for level in self._lists[:-1])
        small = small and all(level.rows <= _INT32_MAX for level in self._lists[1:])
        return "int32" if small else "int64"

    @property
    def nbytes(self) -> int:
        return self._level.nbytes

    def _read(self, rows: Rows) -> Array:
        level, dtype = self._level, np.dtype(self.dtype)
        count = level.rows + 1
        first, last = (0, count) if rows is None else rows
        if not 0 <= first <= last <= count:
            raise level.bad(f"row_splits {first} to {last} of {count}")
        if level.field.kind == ipc.FIXED_LIST:
            return self._counted(first, last, dtype)
        if len(level.chunks) == 1 and count > 1 and level.inside(0)[0] == 0 and LISTS[level.field.kind] == dtype:
            chunk, start, buffer = level.chunks[0], level.spans()[0][0], level.place(level.chunks[0]) + 1
            view = level.file.data.read(chunk, buffer, (start + first) * dtype.itemsize, (start + last) * dtype.itemsize)
            return memory.dense(view, 0, dtype, (last - first,), self._copy, chunk.body + chunk.batch.buffers[buffer][0])
        if self._copy is False:
            raise level.bad("copy=False, but the lists lie in several batches, or do not begin at 0; leave copy out")
        out: Array = np.empty(last - first, dtype)
        at = total = 0
        for i, (start, stop) in enumerate(level.spans()):
            low, high = level.inside(i)
            here, there = max(first - at, 0), min(last - at, stop - start + 1)
            if here < there and start < stop:
                cut = level.offsets(level.chunks[i], start + here, start + there).astype(np.int64)
                out[at + here - first : at + there - first] = cut - low + total
            at, total = at + stop - start, total + high - low
        if first <= at < last:
            out[at - first] = total  # the end, which no batch may have said
        return out if self._copy else memory.read_only(out)

    def _counted(self, first: int, last: int, dtype: np.dtype[Any]) -> Array:
        allow(self._level, (last - first) * dtype.itemsize)
        out = np.arange(first, last, dtype=dtype) * dtype.type(self._level.field.width)
        return out if self._copy else memory.read_only(out)
