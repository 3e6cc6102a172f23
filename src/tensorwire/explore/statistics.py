"""Statistics of arrays: min, max, mean, standard deviation, zeros, NaN, and histograms.

1. Elements come in blocks, so that a tensor of any size takes little memory.
2. Every block is first converted to a dtype that NumPy computes in (`plain`). Types of NumPy itself
   stay as they are, so that 64-bit integers are exact.
3. A histogram needs the minimum and the maximum, so it reads the blocks a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..core.tensors import Array

BLOCK = 1 << 20
"""The number of elements in a block."""
PARTS = ("abs", "real", "imag")
"""The parts of complex numbers that can be shown."""


class Statistics(NamedTuple):
    """The statistics of an array. `least`, `largest`, `mean` and `deviation` are those of the
    finite elements, or None if there are none.
    """

    elements: int
    least: int | float | None
    largest: int | float | None
    mean: float | None
    nans: int
    infinite: int
    zeros: int
    negative: int = 0
    deviation: float | None = None
    """The standard deviation. It and `negative` are computed only on request."""

    def json(self) -> dict[str, Any]:
        """Return plain data, without `negative` and `deviation`."""
        return dict(zip(self._fields[:7], self, strict=False))


class Histogram(NamedTuple):
    """The counts of a histogram and the edges of its bins, one more than counts."""

    counts: list[int]
    edges: list[float]


def plain(array: Array, part: str = "abs") -> Array:
    """Return the numbers in a dtype that NumPy can add and compare; for complex numbers their
    absolute value, real or imaginary part.

    >>> plain(np.array([3 + 4j])), plain(np.array([3 + 4j]), "imag")
    (array([5.]), array([4.]))
    """
    if array.dtype.kind == "c":
        with np.errstate(all="ignore"):
            real: Array = (
                np.abs(array) if part == "abs" else array.real if part == "real" else array.imag
            )
            return real
    if array.dtype.kind in "biuf":
        return array.astype(np.float32) if array.dtype == np.float16 else array
    return array.astype(np.float32 if "float" in array.dtype.name else np.int16)


def numbers(array: Array, part: str = "abs") -> Array:
    """Return the numbers as float64, for drawing."""
    with np.errstate(all="ignore"):
        return plain(array, part).astype(np.float64)


def statistics(array: Array) -> Statistics:
    """Return the statistics of an array.

    >>> statistics(np.float32([1, 0, np.nan, 4])).json()
    {'elements': 4, 'least': 0.0, 'largest': 4.0, 'mean': 1.6666666666666667, 'nans': 1,
    'infinite': 0, 'zeros': 1}
    """
    return of_blocks(_blocks(array))


def _blocks(array: Array) -> Iterator[Array]:
    flat = array.reshape(-1)
    return (flat[start : start + BLOCK] for start in range(0, len(flat), BLOCK))


def of_blocks(blocks: Iterable[Array], part: str = "abs", deviation: bool = False) -> Statistics:
    """Return the statistics of an array given as blocks."""
    least: Any = None
    largest: Any = None
    total, squares = 0.0, 0.0
    elements, finite_count, nans, infinite, zeros, negative = 0, 0, 0, 0, 0, 0
    for block in blocks:
        chunk = plain(block.reshape(-1), part)
        elements += len(chunk)
        zeros += len(chunk) - int(np.count_nonzero(chunk))
        if deviation:
            negative += int((chunk < 0).sum())
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
        with np.errstate(all="ignore"):
            if deviation:
                # Chan's algorithm: squares around the mean of the block, plus a term for the
                # distance of the means, so that a large mean does not cancel the digits.
                chunk = chunk.astype(np.float64)
                mean = float(chunk.mean())
                gap = mean - total / finite_count if finite_count else 0.0
                weight = finite_count * len(chunk) / (finite_count + len(chunk))
                squares += float(np.square(chunk - mean).sum()) + gap * gap * weight
            total += float(chunk.sum(dtype=np.float64))
        finite_count += len(chunk)
    if isinstance(least, bool):
        least, largest = int(least), int(largest)
    return Statistics(
        elements,
        least,
        largest,
        total / finite_count if finite_count else None,
        nans,
        infinite,
        zeros,
        negative,
        math.sqrt(squares / finite_count) if finite_count and deviation else None,
    )


def histogram(array: Array, bins: int = 40) -> Histogram | None:
    """Return a histogram, or None if no element is finite. Integers in a small range get one bin
    each.

    >>> histogram(np.int8([1, 1, 3]))
    Histogram(counts=[2, 0, 1], edges=[0.5, 1.5, 2.5, 3.5])
    """
    flat = plain(array.reshape(-1))
    finite = flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat
    if not len(finite):
        return None
    low, high = finite.min().item(), finite.max().item()
    if isinstance(low, bool):
        low, high = int(low), int(high)
    return histogram_of_blocks(_blocks(finite), low, high, bins)


def histogram_of_blocks(
    blocks: Iterable[Array], least: int | float, largest: int | float, bins: int, part: str = "abs"
) -> Histogram:
    """Return the histogram of an array given as blocks, whose minimum and maximum are known."""
    edges = _edges(least, largest, bins)
    count = len(edges) - 1
    # If every integer has its own bin, integer arithmetic is exact beyond 2**53 too.
    exact = isinstance(least, int) and isinstance(largest, int) and largest - least < bins
    # From one end of float64 to the other the difference overflows; that of the halves does not.
    scale = 1.0 if math.isfinite(edges[-1] - edges[0]) else 0.5
    low, span = edges[0] * scale, edges[-1] * scale - edges[0] * scale
    counts: Array = np.zeros(count, np.int64)
    for block in blocks:
        chunk = plain(block.reshape(-1), part)
        if exact:
            whole = chunk.astype(np.uint8) if chunk.dtype.kind == "b" else chunk
            places = (whole - whole.dtype.type(least)).astype(np.int64)
        else:
            # astype copies, so the block may be changed in place below.
            chunk = chunk.astype(np.float64)
            finite = np.isfinite(chunk)
            chunk = chunk if finite.all() else chunk[finite]
            if scale != 1.0:
                chunk *= scale
            chunk -= low
            chunk *= count / span if math.isfinite(count / span) else 0.0
            places = chunk.astype(np.int64).clip(0, count - 1)
        counts += np.bincount(places, minlength=count)
    return Histogram(counts.tolist(), edges)


def _edges(low: int | float, high: int | float, bins: int) -> list[float]:
    """Return the edges of equal bins; integers in a small range get one bin each."""
    if isinstance(low, int) and isinstance(high, int):
        if high - low < bins:
            return [low - 0.5 + i for i in range(high - low + 2)]
        low, high = float(low), float(high)
    if low == high:
        room = max(abs(low) * 1e-3, 1e-3)
        return [low - room, low + room] if math.isfinite(low + room) else [low / 2, low]
    # Interpolate between the ends instead of adding steps: high - low may overflow.
    return [low * (1 - i / bins) + high * (i / bins) for i in range(bins)] + [high]
