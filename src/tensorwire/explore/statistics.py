"""What the numbers of an array are like, without a second copy of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 20
"""Elements that are looked at together."""


class Statistics(NamedTuple):
    """Of one array. `least`, `largest` and `mean` are those of what is finite; None if nothing is."""

    elements: int
    least: int | float | None
    largest: int | float | None
    mean: float | None
    nans: int
    infinite: int
    zeros: int

    def json(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict()


class Histogram(NamedTuple):
    counts: list[int]
    edges: list[float]
    """One more than counts."""


def plain(array: Array) -> Array:
    """The same numbers in a dtype of NumPy's own, which can add and compare them; complex ones by
    their size.

    >>> plain(np.array([3 + 4j]))
    array([5.])
    """
    if array.dtype.kind == "c":
        with np.errstate(all="ignore"):
            return np.abs(array)
    if array.dtype.kind in "biuf":
        return array.astype(np.float32) if array.dtype == np.float16 else array
    return array.astype(np.float32 if "float" in array.dtype.name else np.int16)


def statistics(array: Array) -> Statistics:
    """
    >>> statistics(np.float32([1, 0, np.nan, 4]))
    Statistics(elements=4, least=0.0, largest=4.0, mean=1.6666666666666667, nans=1, infinite=0,
    zeros=1)
    """
    flat = array.reshape(-1)
    least: Any = None
    largest: Any = None
    total, counted, nans, infinite, zeros = 0.0, 0, 0, 0, 0
    for start in range(0, len(flat), _CHUNK):
        chunk = plain(flat[start : start + _CHUNK])
        zeros += len(chunk) - int(np.count_nonzero(chunk))
        if chunk.dtype.kind == "f":
            finite = np.isfinite(chunk)
            if not finite.all():
                nans += int(np.isnan(chunk).sum())
                infinite += int(np.isinf(chunk).sum())
                chunk = chunk[finite]
        if not len(chunk):
            continue
        low, high = chunk.min().item(), chunk.max().item()
        least, largest = (low, high) if least is None else (min(least, low), max(largest, high))
        with np.errstate(over="ignore"):
            total += float(chunk.sum(dtype=np.float64))
        counted += len(chunk)
    if isinstance(least, bool):
        least, largest = int(least), int(largest)
    return Statistics(
        len(flat), least, largest, total / counted if counted else None, nans, infinite, zeros
    )


def histogram(array: Array, bins: int = 40) -> Histogram | None:
    """How many numbers lie where; None if none is finite. Whole numbers of a small range have a bin
    each.

    >>> histogram(np.int8([1, 1, 3]))
    Histogram(counts=[2, 0, 1], edges=[0.5, 1.5, 2.5, 3.5])
    """
    numbers = plain(array.reshape(-1))
    if numbers.dtype.kind == "f":
        numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    low, high = numbers.min().item(), numbers.max().item()
    if numbers.dtype.kind in "biu" and int(high) - int(low) < bins:
        found = np.bincount(
            (numbers.astype(np.int64) - int(low))
            if int(high) < 1 << 62
            else (numbers - numbers.min()).astype(np.int64)
        )
        return Histogram(found.tolist(), [int(low) - 0.5 + i for i in range(len(found) + 1)])
    # both ends of float64: their distance has no number
    wide = not math.isfinite(float(high) - float(low))
    low, high = (float(low) / 4, float(high) / 4) if wide else (float(low), float(high))
    if low == high:
        low, high = low - 0.5, high + 0.5
    if low == high:  # so large that a half is nothing
        return Histogram([len(numbers)], [low, high])
    counts: Array = np.zeros(bins, np.int64)
    for start in range(0, len(numbers), _CHUNK):
        chunk = numbers[start : start + _CHUNK].astype(np.float64) * (0.25 if wide else 1.0)
        places = ((chunk - low) / (high - low) * bins).astype(np.int64).clip(0, bins - 1)
        counts += np.bincount(places, minlength=bins)
    scale = 4.0 if wide else 1.0
    return Histogram(
        counts.tolist(), [(low + (high - low) * (i / bins)) * scale for i in range(bins + 1)]
    )
