"""Parts of an Arrow file: the arrays of a column, read whole or by rows, from one or many batches.

Only the bytes of the requested rows are read, unless they are compressed.

A null row has zeros or an empty string in the tensor, and `Presence` tells which rows have a value.
A null inside a row (in a list, or in a dictionary) cannot be marked like that, so it is an error.
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
from .values import NO_COPY_HINT, Values, allow, without

_INT32_MAX = (1 << 31) - 1


class _Guarded(BasePart, ABC):
    """The base of all parts: adds the column and the format to errors."""

    def __init__(self, level: Level) -> None:
        self.column, self._format = level.column, level.file.format

    def read(self, rows: Rows = None) -> Any:
        try:
            return self._read(rows)
        except DecodeError as error:
            # For other formats the offset is one in the IPC stream that pyarrow made of the file.
            if self._format != ipc.FORMAT:
                error.format = error.offset = None
            raise error.add(format=self._format, tensor=self.column, offset=0) from None

    @abstractmethod
    def _read(self, rows: Rows) -> Any:
        """Reads all rows, or those from rows[0] to rows[1]."""


class ArrowPart(_Guarded):
    """A tensor whose rows are those of one array, and its values those of a nested array.

    `levels` are the arrays from the rows to the values: one, or fixed-size lists around it.
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
        """Stored bytes of the values."""
        return self._leaf.nbytes

    @property
    def nulls(self) -> int:
        return sum(level.nulls for level in self._levels)

    def _read(self, rows: Rows) -> Any:
        start, stop = validate.row_range(rows, self.shape)
        values = self.raw(start, stop)
        present = self._rows.present(start, stop)
        self.check(start, stop, present, rows=False)
        return values if present is None else without(values, present)

    def raw(self, start: int, stop: int) -> Any:
        """Returns the stored values of rows, including those of null rows."""
        validate.elements((self._rows.rows, *self._inner), DecodeError, 16)
        per_row = math.prod(self._inner)
        if not per_row and self._leaf.rows:
            raise self._leaf.bad(
                f"the column has {self._leaf.rows} elements, but rows of shape {list(self._inner)}"
                " have none"
            )
        values = self._values.take(start * per_row, stop * per_row, (stop - start, *self._inner))
        if not self._order:
            return values
        writable = values.flags.writeable
        moved = np.ascontiguousarray(values.transpose(0, *(axis + 1 for axis in self._order)))
        return moved if writable else memory.read_only(moved)

    def check(self, start: int, stop: int, alive: Array | None, rows: bool = True) -> None:
        """Raises if a row that is `alive` contains a null, or with `rows` is null itself."""
        per_row = 1
        for i, level in enumerate(self._levels):
            per_row *= self._levels[i - 1].field.width if i else 1
            valid = level.valid(start * per_row, stop * per_row) if i or rows else None
            if valid is not None and alive is not None:
                valid = valid | ~np.repeat(alive, per_row)
            if valid is not None and not valid.all():
                raise nulls_inside(level)


def nulls_inside(level: Level) -> DecodeError:
    """Returns the error for a null inside a row, with a hint how to replace it."""
    outer = level.parent.field if level.parent is not None else level.field
    zero = "''" if level.field.kind in TEXT else "b''" if level.field.kind in STRINGS else 0
    if outer.kind == ipc.FIXED_LIST:
        expression = f"FixedSizeListArray.from_arrays(x.values.fill_null({zero}), {outer.width})"
    else:
        name = "LargeListArray" if outer.kind == ipc.LARGE_LIST else "ListArray"
        expression = f"{name}.from_arrays(x.offsets, x.values.fill_null({zero}))"
    return level.unsupported(
        f"the column {level.column!r} has nulls inside its rows, which no tensor can represent",
        hint=f"replace the nulls of an array x in pyarrow: {expression}",
    )


class Presence(_Guarded):
    """The NAME/present flags of a column: which rows have a value."""

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
        start, stop = validate.row_range(rows, self.shape)
        if self._copy is False:
            raise self._rows.bad(
                "copy=False is not possible: Arrow stores nulls as bits", hint=NO_COPY_HINT
            )
        mask = self._rows.present(start, stop)
        present: Array = np.ones(stop - start, np.bool_) if mask is None else mask.copy()
        return present if self._copy else memory.read_only(present)


class NullableLists:
    """Lists of which some are null. They are read whole, once, without the items of null lists.

    1. A row is alive unless it, or a row around it, is null. `chosen` are the rows that are kept.
    2. A null list keeps none of its items. Where all lists of a level have one length (`uniform`),
       it gets that many blank items, whose index is one past the last item.
    3. A null inside a row that is alive is an error.
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
        """Returns array `number`: 0 is the values, then row_splits from outer to inner."""
        if self._copy is False:
            raise self._lists[0].bad(
                "copy=False is not possible: some of the lists are null", hint=NO_COPY_HINT
            )
        if self._arrays is None:
            self._arrays = self._made()
        array = self._arrays[number]
        if not self._copy:
            return array
        return array.copy() if isinstance(array, np.ndarray) else array[np.arange(len(array))]

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
    """Returns a tensor with one more row, of zeros or empty strings."""
    if isinstance(values, np.ndarray):
        return np.concatenate([values, np.zeros((1, *values.shape[1:]), values.dtype)])
    more = math.prod(values.shape[1:])
    offsets = np.concatenate([values.offsets, np.full(more, values.offsets[-1])])
    shape = (values.shape[0] + 1, *values.shape[1:])
    return trusted(Strings, values.data, offsets, shape, values.text)


class _ListPart(_Guarded):
    """The values of nullable lists, or the row_splits of one level."""

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
        """The stored shape. The tensor may have fewer values, because null lists lose theirs."""
        return self._stored.shape

    @property
    def nbytes(self) -> int:
        return self._stored.nbytes

    def _read(self, rows: Rows) -> Any:
        array = self._lists.array(self._number)
        return array if rows is None else array[rows[0] : rows[1]]


class Cell(_Guarded):
    """A tensor stored as one flat list of its elements, with its shape in the field metadata."""

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
                f"the shape {list(self.shape)} needs {count} elements, but {self._leaf.rows} are"
                " stored"
            )
        if rows is None:
            return self._values.take(0, count, self.shape)
        start, stop = validate.row_range(rows, self.shape)
        per_row = math.prod(self.shape[1:])
        return self._values.take(start * per_row, stop * per_row, (stop - start, *self.shape[1:]))


class RefusedColumn(_Guarded):
    """A column that is listed, but cannot be read: reading raises its error.

    `advice` is the hint of the error without the arguments of a call. Layers with other arguments
    build their own hint from it.
    """

    def __init__(
        self,
        level: Level,
        dtype: str,
        error: DecodeError,
        rows: int | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(level)
        self._rows, self.dtype, self._error, self.advice = level, dtype, error, advice
        self.shape = (sum(chunk.batch.length for chunk in level.chunks) if rows is None else rows,)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def _read(self, rows: Rows) -> Any:
        raise type(self._error)(self._error.message, hint=self._error.hint)


class Splits(_Guarded):
    """The row_splits of one list level, across all batches.

    `lists` are all list levels of the column, from outer to inner, and the level of their values.
    """

    def __init__(self, level: Level, lists: list[Level], copy: bool | None) -> None:
        super().__init__(level)
        self._level, self._lists, self._copy = level, lists, copy

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._level.rows + 1,)

    @property
    def dtype(self) -> str:
        """int32 if all lists have 32-bit offsets and their joined offsets fit too; else int64."""
        small = all(level.field.kind != ipc.LARGE_LIST for level in self._lists[:-1])
        small = small and all(level.rows <= _INT32_MAX for level in self._lists[1:])
        return "int32" if small else "int64"

    @property
    def nbytes(self) -> int:
        return self._level.nbytes

    def _read(self, rows: Rows) -> Array:
        level, dtype = self._level, np.dtype(self.dtype)
        first, last = validate.row_range(rows, self.shape)
        if level.field.kind == ipc.FIXED_LIST:
            return self._counted(first, last, dtype)
        # Fast path: offsets of one batch that begin at 0 are the row_splits, and need no copy.
        if (
            len(level.chunks) == 1
            and level.rows
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
                "copy=False is not possible: the lists are in several batches or do not begin at 0",
                hint=NO_COPY_HINT,
            )
        out: Array = np.empty(last - first, dtype)
        row = items = 0
        for i, (start, stop) in enumerate(level.spans()):
            low, high = level.inside(i)
            low_row, high_row = max(first - row, 0), min(last - row, stop - start + 1)
            if low_row < high_row and start < stop:
                cut = level.offsets(level.chunks[i], start + low_row, start + high_row).astype(
                    np.int64
                )
                out[row + low_row - first : row + high_row - first] = cut - low + items
            row, items = row + stop - start, items + high - low
        if first <= row < last:
            # The final offset. Trailing empty batches may lack it.
            out[row - first] = items
        return out if self._copy else memory.read_only(out)

    def _counted(self, first: int, last: int, dtype: np.dtype[Any]) -> Array:
        allow(self._level, (last - first) * dtype.itemsize)
        out = np.arange(first, last, dtype=dtype) * dtype.type(self._level.field.width)
        return out if self._copy else memory.read_only(out)
