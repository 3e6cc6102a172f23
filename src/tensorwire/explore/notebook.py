"""What each kind of tensor looks like in a notebook, from its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .figures import line_of, number, quoted, share, size, values
from .figures import shape as dims
from .markup import card
from .pictures import Paint, pattern
from .statistics import plain, statistics

Array = np.ndarray[Any, Any]

SHOWN = 8
"""Strings, rows or entries that are shown."""
_MOST = 1 << 20
"""Elements that are looked at; of more, evenly spread ones."""


def spread(array: Array, most: int = _MOST) -> Array:
    """At most so many rows, evenly spread.

    >>> spread(np.arange(10), 3)
    array([0, 4, 8])
    """
    return array if len(array) <= most else array[:: -(-len(array) // most)]


def summary(array: Array) -> str:
    """The statistics of numbers, or of some of them."""
    flat = array.reshape(-1)
    some = spread(flat)
    return line_of(statistics(some), len(some) < len(flat)) if len(some) else "no values"


def strings(first: Sequence[str | bytes], offsets: Array, shape: Sequence[int], text: bool) -> str:
    count, lengths = (
        len(offsets) - 1,
        np.diff(spread(offsets)) if len(offsets) <= _MOST else np.diff(offsets[:_MOST]),
    )
    span = f"{lengths.min():,} to {lengths.max():,} bytes" if len(lengths) else "none"
    facts = [
        ("shape", dims(shape)),
        ("of", "text" if text else "bytes"),
        ("lengths", span),
        ("in all", size(int(offsets[-1]) if count else 0)),
    ]
    rows = [(_place(i, shape), quoted(item)) for i, item in enumerate(first[:SHOWN])]
    return card("Strings", facts, rows=rows, total=count)


def _place(index: int, shape: Sequence[int]) -> str:
    return str([int(at) for at in np.unravel_index(index, tuple(shape))]) if shape else ""


def sparse(indices: Array, items: Any, shape: Sequence[int], dtype: object) -> str:
    rank, nnz = indices.shape[1], len(indices)
    cells = float(np.prod([float(dim) for dim in shape[:rank]]))
    facts = [
        ("dtype", dtype),
        ("shape", dims(shape)),
        ("nnz", f"{nnz:,}"),
        ("density", f"{100 * nnz / cells if cells else 0:.3g} %"),
    ]
    numbers = isinstance(items, np.ndarray)
    rows = [(indices[i].tolist(), _item(items[i])) for i in range(min(nnz, SHOWN))]
    lines = dots(indices, shape, Paint(48), 10) if rank else []
    return card(
        "Sparse",
        facts,
        head=("index", "value"),
        rows=rows,
        total=nnz,
        lines=lines,
        note=summary(items) if numbers and nnz else "",
    )


def dots(indices: Array, shape: Sequence[int], paint: Paint, rows: int = 16) -> list[str]:
    """The pattern of a sparse tensor: of a matrix, of a vector as one row, of more dimensions seen
    along all but the first two.
    """
    some = spread(indices)
    if indices.shape[1] == 1:
        return pattern(
            np.column_stack([np.zeros(len(some), np.int64), some[:, 0]]),
            (1, int(shape[0])),
            paint,
            rows,
        )
    return pattern(some[:, :2], (int(shape[0]), int(shape[1])), paint, rows)


def _item(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return quoted(value)
    found = np.asarray(value)
    return (
        number(found[()].item()) if not found.shape and found.dtype.kind in "biuf" else str(found)
    )


def ragged(
    row: Callable[[int], Any],
    splits: Sequence[Array],
    flat: Any,
    shape: Sequence[int | None],
    dtype: object,
) -> str:
    count, lengths = len(splits[0]) - 1, np.diff(splits[0][:_MOST])
    facts: list[tuple[str, object]] = [
        ("dtype", dtype),
        ("shape", dims(shape)),
        ("rows", f"{count:,}"),
        ("values", f"{len(flat):,}"),
    ]
    if len(lengths):
        facts.append(
            (
                "lengths",
                f"{lengths.min():,} to {lengths.max():,}, mean {number(float(lengths.mean()))}",
            )
        )
    rows = [(i, f"{int(lengths[i]):,}", listed(row(i))) for i in range(min(count, SHOWN))]
    note = summary(flat) if isinstance(flat, np.ndarray) and len(flat) else ""
    return card(
        "Ragged", facts, head=("row", "length", "values"), rows=rows, total=count, note=note
    )


def listed(row: Any, most: int = 12) -> str:
    """A row of a ragged tensor, as far as it fits a line; rows of rows as lists of lists.

    >>> listed(np.arange(20), 3), listed(np.eye(2))
    ('[0, 1, 2, ... 20 in all]', '[[1, 0], [0, 1]]')
    """
    if len(getattr(row, "shape", ())) > 1:
        more = f", ... {len(row):,} in all" if len(row) > 4 else ""
        return f"[{', '.join(listed(row[i], 6) for i in range(min(len(row), 4)))}{more}]"
    head = row[:most]
    kind = getattr(getattr(head, "dtype", None), "kind", "S")
    items = head.tolist() if kind in "biufcS" else plain(head).tolist()
    return values(items, most, len(row))


def bundle(rows: Sequence[tuple[str, str, int]], metadata: Mapping[str, str]) -> str:
    facts = [("of", f"{len(rows):,}"), ("in memory", size(sum(nbytes for _, _, nbytes in rows)))]
    cells = [(name, about, size(nbytes)) for name, about, nbytes in rows]
    note = "  ".join(f"{key}: {text}" for key, text in list(metadata.items())[:8])
    return card("Bundle", facts, head=("tensor", "kind", "size"), rows=cells, note=note)


def quantized(
    codes: Array, scheme: str, original: str, axis: int | None, scale: Array | None, nbytes: int
) -> str:
    before = codes.size * (8 if "64" in original else 2 if "16" in original else 4)
    facts: list[tuple[str, object]] = [
        ("codes", scheme),
        ("of", original),
        ("shape", dims(codes.shape)),
    ]
    facts += [("along axis", axis)] * (axis is not None)
    facts += [("size", f"{size(nbytes)}, {share(nbytes, before)} of {size(before)}")]
    note = "" if scale is None else f"scale: {values(np.asarray(scale).reshape(-1)[:6].tolist())}"
    return card("Quantized", facts, lines=[summary(codes)] if codes.size else [], note=note)
