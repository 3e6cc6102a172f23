"""Statistics, corners of arrays, lists and single values as text, and as plain data for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.formatting import number, quoted, share
from ..core.tensors import Array
from .statistics import Statistics, plain


def line_of(found: Statistics, sampled: bool = False) -> str:
    """Statistics in a line.

    >>> line_of(Statistics(4, 0.0, 4.0, 5 / 3, 1, 0, 1))
    'min 0   max 4   mean 1.667   NaN 1   zeros 1 (25 %)'
    """
    words = [
        f"min {number(found.least)}",
        f"max {number(found.largest)}",
        f"mean {number(found.mean)}",
        f"NaN {found.nans:,}",
    ]
    words += [f"Inf {found.infinite:,}"] * bool(found.infinite)
    words.append(f"zeros {found.zeros:,} ({share(found.zeros, found.elements)})")
    return "   ".join(words) + (f"   (of a sample of {found.elements:,})" if sampled else "")


def corner(array: Array, width: int = 100, edge: int = 3, summarise: bool = False) -> list[str]:
    """The values of an array, or its corners if there are many (or if it is to be summarised
    anyway, because it is itself some corners).

    >>> corner(np.arange(100).reshape(10, 10), edge=1)
    ['[[ 0 ...  9]', ' ...', ' [90 ... 99]]']
    """
    text = np.array2string(
        array if array.dtype.kind in "biufc" else plain(array),
        max_line_width=max(width, 20),
        threshold=0 if summarise else 64,
        edgeitems=edge,
        precision=4,
        suppress_small=True,
    )
    return text.split("\n")


def values(items: Sequence[Any], most: int = 12, total: int | None = None, width: int = 80) -> str:
    """A list on one line: as many as fit, and how many there are.

    >>> values([1, 2, 3]), values(list(range(1000, 1100)), 2)
    ('[1, 2, 3]', '[1000, 1001, ... 100 in all]')
    """
    words: list[str] = []
    room, count = width, len(items) if total is None else total
    for item in items[:most]:
        word = (
            quoted(item, 24)
            if isinstance(item, (str, bytes))
            else str(item)
            if isinstance(item, (int, complex))
            else number(item)
        )
        room -= len(word) + 2
        if room < 0 and words:
            break
        words.append(word)
    return f"[{', '.join(words)}{f', ... {count:,} in all' if len(words) < count else ''}]"


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


def exact(item: object) -> str:
    """A value exactly: integers in full, floats by the shortest text that gives them back."""
    if isinstance(item, np.bool_):
        return str(bool(item))
    if isinstance(item, np.integer):
        return str(int(item))
    if isinstance(item, (np.float64, np.float32, np.float16)):
        return (
            np.format_float_positional(item, trim="-")
            if 1e-4 <= abs(float(item)) < 1e7 or item == 0
            else str(item)
        )
    return str(item)


def for_json(value: Any) -> Any:
    """What JSON can say: NaN and the infinities as text, bytes as text with escapes, arrays as
    lists.

    >>> for_json({"a": np.float32([1, np.nan]), "b": b"\\xff"})
    {'a': [1.0, 'NaN'], 'b': '\\\\xff'}
    """
    if isinstance(value, (np.generic, np.ndarray)):
        array = np.asarray(value)
        return for_json((array if array.dtype.kind in "biufcO" else plain(array)).tolist())
    if isinstance(value, dict):
        return {str(key): for_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(item) for item in value]
    if isinstance(value, complex):
        return [for_json(value.real), for_json(value.imag)]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
