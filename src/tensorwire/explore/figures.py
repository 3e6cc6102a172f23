"""Numbers, strings and corners of arrays in few characters, and none of them a control character."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .printable import safe, short
from .statistics import Statistics, plain

Array = np.ndarray[Any, Any]

__all__ = [
    "corner",
    "for_json",
    "line_of",
    "number",
    "quoted",
    "safe",
    "shape",
    "share",
    "short",
    "size",
    "values",
]
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def quoted(item: str | bytes, most: int = 60) -> str:
    """A string as Python writes it, cut where it gets long, and then with its length.

    >>> quoted("x" * 99, 10), quoted(b"ab")
    ("'xxxxxxxxxx'... (99 characters)", "b'ab'")
    """
    head = repr(item[:most])
    if len(item) <= most:
        return safe(head)
    return f"{safe(head)}... ({len(item):,} {'characters' if isinstance(item, str) else 'bytes'})"


def number(value: Any, digits: int = 4) -> str:
    """
    >>> number(0.123456), number(12345678), number(None), number(1e-9)
    ('0.1235', '12,345,678', 'none', '1e-09')
    """
    if value is None:
        return "none"
    if isinstance(value, (bool, int, np.integer)):
        return f"{int(value):,}"
    return f"{float(value):.{digits}g}"


def size(count: float) -> str:
    """
    >>> size(999), size(1_240_000)
    ('999 bytes', '1.2 MB')
    """
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} byte{'s' * (count != 1)}"


def share(part: int, whole: int) -> str:
    """
    >>> share(1, 4), share(1, 1_000_000), share(0, 0)
    ('25 %', '0.0001 %', '0 %')
    """
    return f"{100 * part / whole if whole else 0:.3g} %"


def shape(dims: Iterable[int | None]) -> str:
    """
    >>> shape((2, None)), shape((3,)), shape(())
    ('(2, ?)', '(3,)', '()')
    """
    words = ["?" if dim is None else str(dim) for dim in dims]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


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
