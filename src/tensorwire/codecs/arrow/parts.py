"""The arrays of an Arrow file as parts of a container: read whole or by rows, from one batch or
from many.

Only the bytes of the rows that are asked for are read, unless they are compressed.

A row that is null has zeros or nothing in the tensor, and `Presence` says which rows have a value.
A null inside of a row (in a list, in a dictionary) has no such place, so the column is refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..._errors import DecodeError
from ...core import memory, validate
from ...core.frozen import trusted
from ...core.tensors import Array, Strings
from ...wire import arrow_ipc as ipc
from ...wire.arrow_columns import LISTS, STRINGS, TEXT
from ..container import BasePart, Rows
from .levels import Level
from .values import Values, allow, without

_INT32_MAX = (1 << 31) - 1


class _Guarded(BasePart, ABC):
    """What every part does: an error says which column it is of, and of which format."""

    def __init__(self, level: Level) -> None:
        self.column, self._format = level.column, level.file.format

    def read(self, rows: Rows = None) -> Any:
        try:
            return self._read(rows)
        except DecodeError as error:
            if self._format != ipc.FORMAT:  # else a place in what pyarrow made of the file
                error.format = error.offset = None
            raise error.add(format=self._format, tensor=self.column, offset=0) from None

    @abstractmethod
    def _read(self, rows: Rows) -> Any:
        """All, or the rows from, to."""


class ArrowPart(_Guarded):
    """A tensor whose rows are those of one array, and its values those of an array inside of it.

    `levels` are the arrays from the rows to the values: one, or fixed-size lists around another.
    """

    def __init__(
        self,
        levels: list[Level],
        values: Values,
        inner: tuple[int, ...] = (),
        order: tuple[int, ...] = (),
    ) -> None:
        super().__init__(levels[0])
        self._rows, self._leaf, self._levels = levels[0], levels[-1], levels
        self._values, self._inner, self._order = values, inner, order
        self.dtype = values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        inner = [self._inner[axis] for axis in self._order] if self._order else self._inner
        return (self._rows.rows, *inner)

    @property
    def nbytes(self) -> int:
        """As it lies in the file."""
        return self._leaf.nbytes

    @property
    def nulls(self) -> int:
        return sum(level.nulls for level in self._levels)

    def _read(self, rows: Rows) -> Any:
        count = self._rows.rows
        start, stop = (0, count) if rows is None else rows
        found = self.raw(start, stop)
        present = self._rows.present(start, stop)
        self.check(start, stop, present, rows=False)
        return found if present is None else without(found, present)

    def raw(self, start: int, stop: int) -> Any:
        """The rows as they are stored, where they are null too."""
        count = self._rows.rows
        if not 0 <= start <= stop <= count:
            raise self._leaf.bad(f"rows {start} to {stop} of a column of {count}")
        validate.elements((count, *self._inner), DecodeError, 16)
        each = math.prod(self._inner)
        if not each and self._leaf.rows:
            raise self._leaf.bad(
                f"{self._leaf.rows} elements in rows of the shape {list(self._inner)}"
            )
        found = self._values.take(start * each, stop * each, (stop - start, *self._inner))
        if not self._order:
            return found
        writable = found.flags.writeable
        moved = np.ascontiguousarray(found.transpose(0, *(axis + 1 for axis in self._order)))
        return moved if writable else memory.read_only(moved)

    def check(self, start: int, stop: int, alive: Array | None, rows: bool = True) -> None:
        """Raises if there is a null inside of a row from, to that is alive."""
        each = 1
        for i, level in enumerate(self._levels):
            each *= self._levels[i - 1].field.width if i else 1
            valid = level.valid(start * each, stop * each) if i or rows else None
            if valid is not None and alive is not None:
                valid = valid | ~np.repeat(alive, each)
            if valid is not None and not valid.all():
                raise nulls_inside(level)


def nulls_inside(level: Level) -> DecodeError:
    """The error of a null that is not a whole row, with what replaces it."""
    outer = level.parent.field if level.parent is not None else level.field
    zero = "''" if level.field.kind in TEXT else "b''" if level.field.kind in STRINGS else 0
    if outer.kind == ipc.FIXED_LIST:
        way = f"FixedSizeListArray.from_arrays(x.values.fill_null({zero}), {outer.width})"
    else:
        name = "LargeListArray" if outer.kind == ipc.LARGE_LIST else "ListArray"
        way = f"{name}.from_arrays(x.offsets, x.values.fill_null({zero}))"
    why = f"the column {level.column!r} has nulls inside of its rows, which no tensor holds"
    why = f"{why}; in pyarrow, {way} replaces those of an array x"
    return level.unsupported(why)


class Presence(_Guarded):
    """Which rows of a column have a value: the bools of NAME/present."""

    dtype = "bool"

    def __init__(self, rows: Level, copy: bool | None) -> None:
        super().__init__(rows)
        self._rows, self._copy = rows, copy

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._rows.rows,)

    @property
    def nbytes(self) -> int:
        return (self._rows.rows + 7) // 8

    def _read(self, rows: Rows) -> Array:
        count = self._rows.rows
        start, stop = (0, count) if rows is None else rows
        if not 0 <= start <= stop <= count:
            raise self._rows.bad(f"rows {start} to {stop} of a column of {count}")
        if self._copy is False:
            raise self._rows.bad("copy=False, but nulls are bits in Arrow; leave copy out")
        found = self._rows.present(start, stop)
        present: Array = np.ones(stop - start, np.bool_) if found is None else found.copy()
        return present if self._copy else memory.read_only(present)


class NullableLists:
    """Lists of which some are null, without what is stored in those. They are read whole, once.

    1. A row is alive unless it, or a row around it, is null. `chosen` are the rows that are kept.
    2. A list that is null keeps none of its items. Where all lists of a level have one length
       (`uniform`), it gets as many blank items, which have the number behind the last item.
    3. A null in a row that is alive is an error.
    """

    def __init__(
        self,
        lists: list[Level],
        uniform: list[int | None],
        values: ArrowPart,
        splits: list[Splits],
        copy: bool | None,
    ) -> None:
        self._lists, self._uniform, self._values, self._splits, self._copy = (
            lists,
            uniform,
            values,
            splits,
            copy,
        )
        self._arrays: list[Any] | None = None

    def parts(self) -> list[_ListPart]:
        stored: list[ArrowPart | Splits] = [self._values, *self._splits]
        return [_ListPart(self._lists[0], self, i, part) for i, part in enumerate(stored)]

    def array(self, number: int) -> Any:
        """The values, or the row_splits from outer to inner."""
        if self._copy is False:
            raise self._lists[0].bad("copy=False, but some of the lists are null; leave copy out")
        if self._arrays is None:
            self._arrays = self._made()
        found = self._arrays[number]
        if not self._copy:
            return found
        return found.copy() if isinstance(found, np.ndarray) else found[np.arange(len(found))]

    def _made(self) -> list[Any]:
        count = self._lists[0].rows
        chosen: Array = np.arange(count)
        present = self._lists[0].present(0, count)
        alive = np.ones(count, np.bool_) if present is None else present
        splits: list[Array] = []
        for level, length, part in zip(self._lists, self._uniform, self._splits, strict=True):
            valid = level.valid(0, level.rows) if splits else None
            if valid is not None and (alive & ~np.append(valid, True)[chosen]).any():
                raise nulls_inside(level)
            bounds = part.read().astype(np.int64)
            starts, lengths = (
                bounds[chosen],
                np.where(alive, np.append(np.diff(bounds), 0)[chosen], length or 0),
            )
            allow(level, int(lengths.sum()) * 8)
            ends = np.cumsum(lengths)
            splits.append(memory.read_only(np.concatenate([[0], ends]).astype(part.dtype)))
            alive = np.repeat(alive, lengths)
            chosen = np.arange(len(alive)) + np.repeat(starts - (ends - lengths), lengths)
            chosen[~alive] = bounds[-1]
        rows = self._values.shape[0]
        needed: Array = np.zeros(rows, np.bool_)
        needed[chosen[alive]] = True
        self._values.check(0, rows, needed)
        values = without(_padded(self._values.raw(0, rows))[chosen], alive)
        return [memory.read_only(values) if isinstance(values, np.ndarray) else values, *splits]


def _padded(values: Any) -> Any:
    """A tensor with one more row, of zeros or nothing."""
    if isinstance(values, np.ndarray):
        return np.concatenate([values, np.zeros((1, *values.shape[1:]), values.dtype)])
    more = math.prod(values.shape[1:])
    offsets = np.concatenate([values.offsets, np.full(more, values.offsets[-1])])
    shape = (values.shape[0] + 1, *values.shape[1:])
    return trusted(Strings, values.data, offsets, shape, values.text)


class _ListPart(_Guarded):
    """The values, or the splits of one level, of nullable lists."""

    def __init__(
        self,
        level: Level,
        lists: NullableLists,
        number: int,
        stored: ArrowPart | Splits,
    ) -> None:
        super().__init__(level)
        self._lists, self._number, self._stored = lists, number, stored

    @property
    def dtype(self) -> str:
        return self._stored.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """As it is stored: there may be fewer values than that."""
        return self._stored.shape

    @property
    def nbytes(self) -> int:
        return self._stored.nbytes

    def _read(self, rows: Rows) -> Any:
        found = self._lists.array(self._number)
        return found if rows is None else found[rows[0] : rows[1]]


class Cell(_Guarded):
    """A tensor that is one row of a list: its elements, flat, in a shape that the field's metadata
    say.
    """

    def __init__(self, leaf: Level, values: Values, shape: tuple[int, ...]) -> None:
        super().__init__(leaf)
        self._leaf, self._values, self.shape = leaf, values, shape
        self.dtype = values.dtype

    @property
    def nbytes(self) -> int:
        return self._leaf.nbytes

    def _read(self, rows: Rows) -> Any:
        count = validate.elements(self.shape, DecodeError, 16)
        if self._leaf.nulls or (self._leaf.parent is not None and self._leaf.parent.nulls):
            raise nulls_inside(self._leaf)
        if count != self._leaf.rows:
            raise self._leaf.bad(
                f"{self._leaf.rows} elements, and the shape {list(self.shape)} has {count}"
            )
        if rows is None:
            return self._values.take(0, count, self.shape)
        start, stop = rows
        if not self.shape or not 0 <= start <= stop <= self.shape[0]:
            raise self._leaf.bad(f"rows {start} to {stop} of a tensor of shape {list(self.shape)}")
        each = math.prod(self.shape[1:])
        return self._values.take(start * each, stop * each, (stop - start, *self.shape[1:]))


class RefusedColumn(_Guarded):
    """A column that no tensor holds: it is listed, and reading it says why not."""

    def __init__(
        self,
        level: Level,
        dtype: str,
        error: DecodeError,
        rows: int | None = None,
    ) -> None:
        super().__init__(level)
        self._rows, self.dtype, self._error = level, dtype, error
        self.shape = (sum(chunk.batch.length for chunk in level.chunks) if rows is None else rows,)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def _read(self, rows: Rows) -> Any:
        raise type(self._error)(self._error.message)


class Splits(_Guarded):
    """Where the rows of a list begin, through all batches. `lists` are all lists of the column,
    outer to inner, and what is in the last.
    """

    def __init__(self, level: Level, lists: list[Level], copy: bool | None) -> None:
        super().__init__(level)
        self._level, self._lists, self._copy = level, lists, copy

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
        if (
            len(level.chunks) == 1
            and count > 1
            and level.inside(0)[0] == 0
            and LISTS[level.field.kind] == dtype
        ):
            chunk, start, buffer = (
                level.chunks[0],
                level.spans()[0][0],
                level.place(level.chunks[0]) + 1,
            )
            view = level.file.data.read(
                chunk, buffer, (start + first) * dtype.itemsize, (start + last) * dtype.itemsize
            )
            return memory.dense(
                view,
                0,
                dtype,
                (last - first,),
                self._copy,
                chunk.body + chunk.batch.buffers[buffer][0],
            )
        if self._copy is False:
            raise level.bad(
                "copy=False, but the lists lie in several batches, or do not begin at 0; leave"
                " copy out"
            )
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
