"""Text for statistics, arrays, lists and single values, and plain data for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.formatting import number, quoted, share
from ..core.tensors import Array
from .statistics import Statistics, plain


def line_of(stats: Statistics, sampled: bool = False) -> str:
    """Return statistics as one line.

    >>> line_of(Statistics(4, 0.0, 4.0, 5 / 3, 1, 0, 1))
    'min 0   max 4   mean 1.667   NaN 1   zeros 1 (25 %)'
    """
    words = [
        f"min {number(stats.least)}",
        f"max {number(stats.largest)}",
        f"mean {number(stats.mean)}",
        f"NaN {stats.nans:,}",
    ]
    words += [f"Inf {stats.infinite:,}"] * bool(stats.infinite)
    words.append(f"zeros {stats.zeros:,} ({share(stats.zeros, stats.elements)})")
    return "   ".join(words) + (f"   (of a sample of {stats.elements:,})" if sampled else "")


def corner(array: Array, width: int = 100, edge: int = 3, summarise: bool = False) -> list[str]:
    """Return an array as lines, with only its corners if it is large.

    With `summarise` even a small array is shortened, because it is made of corners itself.

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
    """Return a list as one line: as many items as fit, and their total number.

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
    """Return a row of a ragged tensor as one line; nested rows are lists of lists.

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
    """Return the exact text of a value; floats have the fewest digits that read back the same."""
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
    """Return plain data for JSON: NaN and infinities as text, bytes as text with escapes, arrays as
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
