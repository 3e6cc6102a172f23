"""Rows of batches: chosen, cut, joined, spread where some are missing, and packed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np

from .._errors import SchemaError, choices
from ..codecs.safetensors import Safetensors
from ..core.memory import flat
from ..core.tensors import Array, Ragged, Strings, trusted
from ..wire import kernels
from .batch import Batch

SOME = "a column that some files have and others not; columns= says what to keep"
DIFFER = (
    "files differ in what this column is: {}; columns= leaves it out, cast= makes numbers alike"
)
_LONG = 64
"""Bytes of a string from which on a copy for each is quicker than an index for each byte."""


def runs(starts: Array, lengths: Array) -> Array:
    """Places of many runs, one behind the other.

    >>> runs(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Array = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return places


def gathered(data: Any, starts: Array, sizes: Array, text: bool = False) -> Strings:
    """Strings that lie anywhere in some bytes, in memory of their own."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if len(starts) and offsets[-1] >= _LONG * len(starts):
        view = flat(data)
        joined = b"".join(
            [view[a : a + n] for a, n in zip(starts.tolist(), sizes.tolist(), strict=True)]
        )
        return trusted(Strings, np.frombuffer(joined, np.uint8), offsets, (len(starts),), text)
    return trusted(
        Strings,
        np.frombuffer(flat(data), np.uint8)[runs(starts, sizes)],
        offsets,
        (len(starts),),
        text,
    )


def _taken(column: Any, chosen: Array) -> Any:
    if isinstance(column, Strings):
        width = column.size // len(column) if len(column) else 0
        places = chosen if column.ndim == 1 else runs(chosen * width, np.full(len(chosen), width))
        found = gathered(
            column.data,
            column.offsets[places],
            column.offsets[places + 1] - column.offsets[places],
            column.text,
        )
        return found.reshape(len(chosen), *column.shape[1:])
    if isinstance(column, Ragged):
        splits = []
        for part in column.row_splits:
            starts, lengths = part[chosen], part[chosen + 1] - part[chosen]
            splits.append(
                np.concatenate([np.zeros(1, part.dtype), np.cumsum(lengths, dtype=part.dtype)])
            )
            chosen = runs(starts.astype(np.int64), lengths.astype(np.int64))
        return trusted(Ragged, _taken(column.values, chosen), tuple(splits), column.uniform)
    return column[chosen]


def take(batch: Batch, chosen: Array) -> Batch:
    """Some rows, in that order.

    >>> take(Batch({"a": np.array([5, 6, 7])}, size=3), np.array([2, 0]))["a"]
    array([7, 5])
    """
    columns = {name: _taken(column, chosen) for name, column in batch.items()}
    return Batch(
        columns, {name: there[chosen] for name, there in batch.present.items()}, len(chosen)
    )


def cut(batch: Batch, start: int, stop: int) -> Batch:
    """The rows from, to."""
    if start == 0 and stop >= batch.size:
        return batch
    rows = np.arange(start, min(stop, batch.size))
    found: dict[str, Any] = dict(batch)
    columns = {
        name: _taken(column, rows) if isinstance(column, Strings) else column[start:stop]
        for name, column in found.items()
    }
    return Batch(
        columns, {name: there[start:stop] for name, there in batch.present.items()}, len(rows)
    )


def _joined(columns: Sequence[Any]) -> Any:
    first = columns[0]
    if isinstance(first, Strings):
        shape = (sum(len(column) for column in columns), *first.shape[1:])
        data = np.concatenate([column.data[: column.offsets[-1]] for column in columns])
        return trusted(
            Strings,
            data,
            _chained([column.offsets for column in columns]),
            shape,
            all(column.text for column in columns),
        )
    if isinstance(first, Ragged):
        values = _joined([column.values for column in columns])
        splits = tuple(
            _chained([column.row_splits[i] for column in columns]) for i in range(first.ragged_rank)
        )
        return trusted(Ragged, values, splits, first.uniform)
    return np.concatenate(columns)


def _chained(splits: Sequence[Array]) -> Array:
    """Bounds of several lists of rows as those of one."""
    lengths = np.concatenate([np.diff(part) for part in splits])
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def kind(column: Any, text: bool = True) -> str:
    """What columns have in common that can be put together; `text` says whether text and bytes are
    different.
    """
    if isinstance(column, Ragged):
        return f"lists ({column.ragged_rank}) of {kind(column.values, text)}"
    found = (
        ("text" if column.text or not text else "bytes")
        if isinstance(column, Strings)
        else str(column.dtype)
    )
    return f"{found} {column.shape[1:]}" if column.ndim > 1 else found


def family(column: Any) -> str:
    """The same for formats that know integers, fractions and lists, and no more of them."""
    values = column.values if isinstance(column, Ragged) else column
    if isinstance(values, Strings):
        what = "text" if values.text else "bytes"
    else:
        what = (
            "integers"
            if values.dtype.kind in "iu"
            else "fractions"
            if "float" in values.dtype.name
            else values.dtype.name
        )
    return f"{'lists of ' * (len(column.shape) - 1)}{what}"


def comparison(target: str, joined: bool) -> Callable[[Any], str] | None:
    """How alike columns of the same name must be, to be written in a format. A schema has seen to
    it for Examples.
    """
    if joined or target not in ("jsonl", "tfrecord"):
        return kind
    return family if target == "jsonl" else None


def check_alike(
    batch: Batch, blank: Batch, how: Callable[[Any], str] | None, but: Container[str]
) -> None:
    """That columns of the same name are of the same kind, `but` some that are made so."""
    if how is None:
        return
    for name in batch:
        if (
            name in blank
            and name not in but
            and not is_untyped(batch[name])
            and how(batch[name]) != how(blank[name])
        ):
            raise SchemaError(
                DIFFER.format(f"{how(blank[name])} and {how(batch[name])}"), tensor=name
            )


def union(parts: Sequence[Batch]) -> Batch:
    """The columns of all parts, without rows; of objects, where no part knows better."""
    columns: dict[str, Any] = {}
    for name, column in (item for part in parts for item in part.items()):
        if name not in columns or is_untyped(columns[name]):
            columns[name] = _none_of(column)
    order = dict.fromkeys(name for part in parts for name in part)
    return Batch({name: columns[name] for name in order}, size=0)


def is_untyped(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype == object


def _none_of(column: Any) -> Any:
    return _taken(column, np.zeros(0, np.int64))


def completed(batch: Batch, blank: Batch) -> Batch:
    """The columns of `blank`, in their order, and what else a batch has; of those that it does not
    have, no row has anything.

    >>> completed(Batch({"a": np.array([5, 6])}, size=2), Batch({"b": np.zeros(0, np.int8), "a":
    ...     np.zeros(0)})).present["b"].tolist()
    [False, False]
    """
    if list(batch) == list(blank):
        return batch
    names, nowhere = (
        [*blank, *(name for name in batch if name not in blank)],
        np.zeros(batch.size, np.bool_),
    )
    columns = {
        name: batch[name] if name in batch else spread(blank[name], nowhere) for name in names
    }
    return Batch(columns, {name: batch.present.get(name, nowhere) for name in names}, batch.size)


def join(parts: Sequence[Batch]) -> Batch:
    """All rows in one batch, with the columns of all parts."""
    if len(parts) == 1:
        return parts[0]
    if any(part.keys() != parts[0].keys() for part in parts):
        blank = union(parts)
        parts = [completed(part, blank) for part in parts]
    columns = {}
    for name in parts[0]:
        kinds = dict.fromkeys(kind(part[name], text=False) for part in parts)
        if len(kinds) > 1:
            raise SchemaError(DIFFER.format(" and ".join(kinds)), tensor=name)
        columns[name] = _joined([part[name] for part in parts])
    present = {name: np.concatenate([part.present[name] for part in parts]) for name in parts[0]}
    return Batch(columns, present, sum(part.size for part in parts))


def spread(column: Any, present: Array) -> Any:
    """A column that has only the rows that are there, with zeros and nothing in place of the
    others.

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
        # a row that is missing has as many as the others, of nothing
        if column.uniform and column.uniform[0] is not None:
            width = column.uniform[0]
            inner = (
                trusted(Ragged, column.values, column.row_splits[1:], column.uniform[1:])
                if column.ragged_rank > 1
                else column.values
            )
            inner = spread(inner, np.repeat(present, width))
            whole = np.arange(count + 1, dtype=column.row_splits[0].dtype) * width
            below = inner.row_splits if isinstance(inner, Ragged) else ()
            return trusted(Ragged, getattr(inner, "values", inner), (whole, *below), column.uniform)
        lengths[present] = np.diff(column.row_splits[0])
        outer = _bounds(lengths).astype(column.row_splits[0].dtype)
        return trusted(Ragged, column.values, (outer, *column.row_splits[1:]), column.uniform)
    nothing = None if column.dtype == object else 0
    out: Array = np.full((count, *column.shape[1:]), nothing, column.dtype)
    out[present] = column
    return out


def _bounds(lengths: Array) -> Array:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def select(batch: Batch, names: Sequence[str]) -> Batch:
    """Some of the columns."""
    for name in names:
        if name not in batch:
            raise SchemaError(f"no column {name!r}{choices(name, batch)}", tensor=name)
    return Batch(
        {name: batch[name] for name in names},
        {name: batch.present[name] for name in names},
        batch.size,
    )


def nbytes(batch: Batch) -> int:
    """Bytes in memory, about."""
    return sum(_size(column) for column in batch.values())


def _size(column: Any) -> int:
    if isinstance(column, Ragged):
        return _size(column.values) + sum(part.nbytes for part in column.row_splits)
    return int(column.nbytes)


def pieces(batch: Batch, rows: int) -> Iterator[Batch]:
    """The same rows, so many at a time."""
    for start in range(0, batch.size, rows):
        yield cut(batch, start, start + rows)


def packed(batch: Batch, places: Array) -> bytes:
    """As bytes, with a number for each row. Columns go by number, since a name may be anything,
    what the format has for itself too.
    """
    names = list(batch)
    present = [None if batch.present[name].all() else batch.present[name] for name in names]
    value = {
        "names": names,
        "places": places,
        "columns": [batch[name] for name in names],
        "present": present,
    }
    return kernels.join(Safetensors().encode(value))


def unpacked(data: Any) -> tuple[Batch, Array]:
    """The inverse of `packed`."""
    found: Any = Safetensors().decode(flat(data))
    names, places = found["names"], found["places"]
    rows = len(places)
    present = [np.ones(rows, np.bool_) if there is None else there for there in found["present"]]
    columns = dict(zip(names, found["columns"], strict=True))
    return Batch(columns, dict(zip(names, present, strict=True)), rows), places
