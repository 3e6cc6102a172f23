"""Batches: rows of Examples stored as columns, with selection and concatenation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from .. import frameworks
from .._errors import SchemaError, choices
from ..core.memory import Buffer, flat
from ..core.tensors import Array, Bundle, Ragged, Strings, Tensor, trusted

BatchColumn = Array | Strings | Ragged
"""The type of a column in a batch. It has one row per record."""
DIFFER = (
    "the column has different types in different files: {}; leave it out with columns=, or convert"
    " numbers with cast="
)
_LONG = 64
"""Mean string length in bytes above which one copy per string beats one index per byte."""
_NO_STRINGS = ("torch", "jax")


def holds_strings(column: object) -> bool:
    """Return whether a column holds strings, dense or ragged."""
    return isinstance(column, Strings) or isinstance(getattr(column, "values", None), Strings)


def is_untyped(column: object) -> bool:
    """Return whether a column is an object array: its type is unknown, or its shapes differ."""
    return isinstance(column, np.ndarray) and column.dtype == object


def _rows(
    columns: Mapping[str, Any], present: Mapping[str, Array], count: int
) -> Iterator[dict[str, Any]]:
    for row in range(count):
        yield {name: column[row] for name, column in columns.items() if present[name][row]}


class Batch(Bundle):
    """A mapping from column names to columns, each with one row per record.

    `present[name]` says which records have the feature at all. `rows()` iterates over the records,
    `take`, `slice` and `select` choose rows and columns, and `to` converts the columns to a
    framework.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> batch = tw.Batch({"label": np.array([3, 0])}, {"label": np.array([True, False])}, 2)
    >>> len(batch), batch.size, list(batch.rows())
    (1, 2, [{'label': np.int64(3)}, {}])
    """

    __slots__ = ("present", "size")

    present: dict[str, Array]
    """bool [size] by column name. Where it is False, the column holds the default, zero or nothing.
    """
    size: int
    """The number of rows."""

    def __init__(
        self,
        columns: Mapping[str, Tensor],
        present: Mapping[str, Array] | None = None,
        size: int = 0,
    ) -> None:
        super().__init__(columns)
        self.size = size
        self.present = (
            dict(present)
            if present is not None
            else {name: np.ones(size, np.bool_) for name in columns}
        )

    @classmethod
    def union(cls, batches: Sequence[Batch]) -> Self:
        """Return a batch without rows that has the columns of all batches.

        A column keeps the type of the first batch that knows it, and is an object array if none
        does.
        """
        columns: dict[str, BatchColumn] = {}
        for name, column in (item for batch in batches for item in batch.items()):
            if name not in columns or is_untyped(columns[name]):
                columns[name] = take_rows(column, np.zeros(0, np.int64))
        order = dict.fromkeys(name for batch in batches for name in batch)
        return cls({name: columns[name] for name in order}, size=0)

    @classmethod
    def concatenate(cls, batches: Sequence[Batch]) -> Batch:
        """Return the rows of all batches in one batch that has the columns of all of them."""
        if len(batches) == 1:
            return batches[0]
        if any(batch.keys() != batches[0].keys() for batch in batches):
            blank = cls.union(batches)
            batches = [batch.completed(blank) for batch in batches]
        columns = {}
        for name in batches[0]:
            kinds = dict.fromkeys(column_kind(batch[name], text=False) for batch in batches)
            if len(kinds) > 1:
                raise SchemaError(DIFFER.format(" and ".join(kinds)), tensor=name)
            columns[name] = _joined([batch[name] for batch in batches])
        present = {
            name: np.concatenate([batch.present[name] for batch in batches]) for name in batches[0]
        }
        return cls(columns, present, sum(batch.size for batch in batches))

    @property
    def nbytes(self) -> int:
        """The approximate size in memory in bytes."""
        return sum(_nbytes(column) for column in self.values())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Iterate over the records as dicts, without the features that a record does not have."""
        return _rows(self, self.present, self.size)

    def to(self, framework: str, device: object = None, cast: bool = False) -> Batch | ForeignBatch:
        """Return the same columns as objects of a framework, with the arguments of `tw.to`.

        torch and JAX have no strings, so string columns stay `Strings` there.
        """
        if framework == "numpy":
            return self
        columns = {
            name: (
                column
                if holds_strings(column) and framework in _NO_STRINGS
                else frameworks.to(column, framework, device, cast)
            )
            for name, column in self.items()
        }
        return ForeignBatch(columns, self.present, self.size)

    def take(self, rows: Array) -> Batch:
        """Return the rows with the given numbers, in the given order.

        >>> import tensorwire as tw
        >>> import numpy as np
        >>> tw.Batch({"a": np.array([5, 6, 7])}, size=3).take(np.array([2, 0]))["a"]
        array([7, 5])
        """
        columns = {name: take_rows(column, rows) for name, column in self.items()}
        present = {name: there[rows] for name, there in self.present.items()}
        return Batch(columns, present, len(rows))

    def slice(self, start: int, stop: int) -> Batch:
        """Return the rows from `start` up to, but not including, `stop`."""
        if start == 0 and stop >= self.size:
            return self
        rows = np.arange(start, min(stop, self.size))
        columns = {
            name: take_rows(column, rows) if isinstance(column, Strings) else column[start:stop]
            for name, column in self.items()
        }
        present = {name: there[start:stop] for name, there in self.present.items()}
        return Batch(columns, present, len(rows))

    def select(self, names: Sequence[str]) -> Batch:
        """Return a batch with only the named columns. Raises SchemaError for an unknown name."""
        for name in names:
            if name not in self:
                raise SchemaError(f"no column {name!r}{choices(name, self)}", tensor=name)
        present = {name: self.present[name] for name in names}
        return Batch({name: self[name] for name in names}, present, self.size)

    def completed(self, blank: Batch) -> Batch:
        """Return the columns of `blank` in their order, then the other columns of this batch.

        A column that this batch does not have is added with no row present.

        >>> import tensorwire as tw
        >>> import numpy as np
        >>> blank = tw.Batch({"b": np.zeros(0, np.int8), "a": np.zeros(0)})
        >>> tw.Batch({"a": np.array([5, 6])}, size=2).completed(blank).present["b"].tolist()
        [False, False]
        """
        if list(self) == list(blank):
            return self
        names = [*blank, *(name for name in self if name not in blank)]
        nowhere = np.zeros(self.size, np.bool_)
        columns = {
            name: self[name] if name in self else spread(blank[name], nowhere) for name in names
        }
        present = {name: self.present.get(name, nowhere) for name in names}
        return Batch(columns, present, self.size)


class ForeignBatch(dict[str, Any]):
    """A batch whose columns are objects of another framework.

    It is a dict from names to columns and has `present`, `size` and `rows()` like a `Batch`.
    """

    def __init__(self, columns: Mapping[str, Any], present: Mapping[str, Array], size: int) -> None:
        super().__init__(columns)
        self.present, self.size = dict(present), size

    def rows(self) -> Iterator[dict[str, Any]]:
        """Iterate over the records as dicts, without the features that a record does not have."""
        return _rows(self, self.present, self.size)


class SequenceBatch:
    """A batch of SequenceExamples.

    `context` and `sequences` have one row per record. Each row in `sequences` is a list of steps,
    so its columns are Ragged.
    """

    def __init__(self, context: Batch | ForeignBatch, sequences: Batch | ForeignBatch) -> None:
        self.context, self.sequences = context, sequences

    @property
    def size(self) -> int:
        """The number of records."""
        return self.context.size

    def rows(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Iterate over the records as pairs (context, sequences)."""
        return zip(self.context.rows(), self.sequences.rows(), strict=True)

    def __repr__(self) -> str:
        return (
            f"SequenceBatch of {self.size}\ncontext {self.context!r}\nsequences {self.sequences!r}"
        )


def runs(starts: Array, lengths: Array) -> Array:
    """Return the indices of many runs of neighbours, concatenated.

    >>> runs(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    indices: Array = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return indices


def gathered(data: Buffer | Array, starts: Array, sizes: Array, text: bool = False) -> Strings:
    """Copy strings that lie anywhere in a buffer into memory of their own."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    # Long strings are copied one by one; short strings are gathered by one fancy index over all
    # bytes.
    if len(starts) and offsets[-1] >= _LONG * len(starts):
        view = flat(data)
        joined = b"".join(
            [
                view[start : start + size]
                for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
            ]
        )
        return trusted(Strings, np.frombuffer(joined, np.uint8), offsets, (len(starts),), text)
    return trusted(
        Strings,
        np.frombuffer(flat(data), np.uint8)[runs(starts, sizes)],
        offsets,
        (len(starts),),
        text,
    )


def take_rows(column: BatchColumn, chosen: Array) -> Any:
    """Return some rows of a column, in the given order."""
    if isinstance(column, Strings):
        width = column.size // len(column) if len(column) else 0
        items = chosen if column.ndim == 1 else runs(chosen * width, np.full(len(chosen), width))
        strings = gathered(
            column.data,
            column.offsets[items],
            column.offsets[items + 1] - column.offsets[items],
            column.text,
        )
        return strings.reshape(len(chosen), *column.shape[1:])
    if isinstance(column, Ragged):
        splits = []
        # Each level of row splits maps the chosen rows to the chosen rows of the next level.
        for bounds in column.row_splits:
            starts, lengths = bounds[chosen], bounds[chosen + 1] - bounds[chosen]
            splits.append(
                np.concatenate([np.zeros(1, bounds.dtype), np.cumsum(lengths, dtype=bounds.dtype)])
            )
            chosen = runs(starts.astype(np.int64), lengths.astype(np.int64))
        return trusted(Ragged, take_rows(column.values, chosen), tuple(splits), column.uniform)
    return column[chosen]


def _joined(columns: Sequence[Any]) -> BatchColumn:
    first = columns[0]
    if isinstance(first, Strings):
        shape = (sum(len(column) for column in columns), *first.shape[1:])
        data = np.concatenate([column.data[: column.offsets[-1]] for column in columns])
        return trusted(
            Strings,
            data,
            _bounds_of_all([column.offsets for column in columns]),
            shape,
            all(column.text for column in columns),
        )
    if isinstance(first, Ragged):
        values = _joined([column.values for column in columns])
        splits = tuple(
            _bounds_of_all([column.row_splits[i] for column in columns])
            for i in range(first.ragged_rank)
        )
        return trusted(Ragged, values, splits, first.uniform)
    return np.concatenate(columns)


def _bounds_of_all(splits: Sequence[Array]) -> Array:
    """Concatenate several arrays of row bounds into one."""
    return _bounds(np.concatenate([np.diff(part) for part in splits]))


def _bounds(lengths: Array) -> Array:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def spread(column: BatchColumn, present: Array) -> Any:
    """Expand a column of the present rows to all rows. Missing rows become zeros or stay empty.

    >>> spread(np.array([5, 7]), np.array([True, False, True]))
    array([5, 0, 7])
    """
    if present.all():
        return column
    count = len(present)
    if isinstance(column, Strings):
        width = int(np.prod(column.shape[1:], dtype=np.int64))
        lengths: Array = np.zeros((count, width), np.int64)
        lengths[present] = np.diff(column.offsets).reshape(int(present.sum()), width)
        return trusted(
            Strings,
            column.data,
            _bounds(lengths.reshape(-1)),
            (count, *column.shape[1:]),
            column.text,
        )
    if isinstance(column, Ragged):
        lengths = np.zeros(count, np.int64)
        # With a uniform outer dimension, a missing row must have as many items as the other rows.
        # These items are empty.
        if column.uniform and column.uniform[0] is not None:
            width = column.uniform[0]
            inner = (
                trusted(Ragged, column.values, column.row_splits[1:], column.uniform[1:])
                if column.ragged_rank > 1
                else column.values
            )
            inner = spread(inner, np.repeat(present, width))
            outer_bounds = np.arange(count + 1, dtype=column.row_splits[0].dtype) * width
            inner_splits = inner.row_splits if isinstance(inner, Ragged) else ()
            return trusted(
                Ragged,
                getattr(inner, "values", inner),
                (outer_bounds, *inner_splits),
                column.uniform,
            )
        lengths[present] = np.diff(column.row_splits[0])
        outer = _bounds(lengths).astype(column.row_splits[0].dtype)
        return trusted(Ragged, column.values, (outer, *column.row_splits[1:]), column.uniform)
    nothing = None if column.dtype == object else 0
    out: Array = np.full((count, *column.shape[1:]), nothing, column.dtype)
    out[present] = column
    return out


def column_kind(column: BatchColumn, text: bool = True) -> str:
    """Describe the type of a column. Columns of one kind can be concatenated.

    `text` says whether text and bytes are different kinds.
    """
    if isinstance(column, Ragged):
        return f"lists ({column.ragged_rank}) of {column_kind(column.values, text)}"
    kind = (
        ("text" if column.text or not text else "bytes")
        if isinstance(column, Strings)
        else str(column.dtype)
    )
    return f"{kind} {column.shape[1:]}" if column.ndim > 1 else kind


def _nbytes(column: BatchColumn) -> int:
    if isinstance(column, Ragged):
        return _nbytes(column.values) + sum(part.nbytes for part in column.row_splits)
    return int(column.nbytes)
