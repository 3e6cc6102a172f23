"""What the numbers of a tensor amount to. Small tensors are counted whole; of large ones blocks,
spread evenly, and the answer says so.

A large tensor is counted whole when that is asked for, a block at a time, so memory stays small; it
is read twice, since a histogram needs to know its ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.tensors import Array
from .reading import DenseValues, numbers

BLOCK = 1 << 20
"""Elements that are looked at at once."""
EXACT = 16 << 20
"""Elements up to which all are counted without being asked."""
PIECES, PIECE = 64, 1 << 16
"""A sample: so many blocks of so many elements."""
BINS = 64


@dataclass
class TensorStatistics:
    """Counts of every element that was looked at; the rest is of the finite ones. `json()` is what
    the page gets.
    """

    size: int
    """Elements of the tensor."""
    counted: int = 0
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    negative: int = 0
    min: Any = None
    max: Any = None
    mean: float | None = None
    std: float | None = None
    edges: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Of the histogram, whose bin i goes from edges[i] to edges[i + 1]."""

    @property
    def exact(self) -> bool:
        return self.counted == self.size

    def json(self) -> dict[str, Any]:
        found = {
            name: plain(value)
            for name, value in vars(self).items()
            if name not in ("edges", "counts")
        }
        return found | {
            "edges": [plain(edge) for edge in self.edges],
            "counts": self.counts,
            "exact": self.exact,
        }


def plain(value: Any) -> Any:
    """A number that JSON and JavaScript hold, or its text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, int) and abs(value) >= 1 << 53 else value


def statistics(values: DenseValues, exact: bool = False, part: str = "abs") -> TensorStatistics:
    """Of all elements, or of a sample of a large tensor unless `exact`."""
    found = TensorStatistics(math.prod(values.shape))
    whole = exact or found.size <= EXACT
    moments = _Moments()
    for block in _blocks(values, whole):
        _count(found, moments, block, part)
    if moments.count:
        found.mean, found.std = moments.mean, math.sqrt(moments.squares / moments.count)
        found.edges = _edges(float(found.min), float(found.max), values.dtype)
        counts = np.zeros(len(found.edges) - 1, np.int64)
        for block in _blocks(values, whole):
            counts += _histogram(numbers(block, part), found.edges)
        found.counts = counts.tolist()
    return found


def _blocks(values: DenseValues, whole: bool) -> Iterator[Array]:
    size = math.prod(values.shape)
    if whole:
        for start in range(0, size, BLOCK):
            yield values.run(start, min(size, start + BLOCK))
        return
    pieces = (
        PIECES
        if values.unit == 1
        else max(1, min(PIECES, (PIECES * PIECE) // max(PIECE, values.unit)))
    )
    for i in range(pieces):
        start = (size - PIECE) * i // max(1, pieces - 1)
        yield values.run(start, start + PIECE)


class _Moments:
    """Mean and squares of many blocks, added up so that nothing is lost to a large mean."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, block: Array) -> None:
        with np.errstate(all="ignore"):
            count, mean = len(block), float(block.mean())
            squares = float(np.square(block - mean).sum())
            total = self.count + count
            apart = mean - self.mean
            self.squares += squares + apart * apart * (self.count * count / total)
            self.mean += apart * (count / total)
        self.count = total


def _count(found: TensorStatistics, moments: _Moments, block: Array, part: str) -> None:
    wide = numbers(block, part)
    found.counted += len(block)
    nan = np.isnan(wide)
    finite = np.isfinite(wide)
    found.nan += int(nan.sum())
    found.inf += int(len(wide) - finite.sum() - nan.sum())
    found.zeros += int((wide == 0).sum())
    found.negative += int((wide < 0).sum())
    good = wide if finite.all() else wide[finite]
    if not len(good):
        return
    moments.add(good)
    exactly = block.dtype.kind in "iu" and block.dtype.itemsize == 8  # float64 would round them
    low, high = (
        (int(block.min()), int(block.max())) if exactly else (float(good.min()), float(good.max()))
    )
    found.min = low if found.min is None else min(found.min, low)
    found.max = high if found.max is None else max(found.max, high)


def _edges(low: float, high: float, dtype: Any) -> list[float]:
    """Bins of one width; integers that are few have a bin each."""
    whole = np.dtype(dtype).kind in "iub"
    if whole and high - low < BINS:
        return [low - 0.5 + i for i in range(int(high - low) + 2)]
    if low == high:
        room = max(abs(low) * 1e-3, 0.5 if whole else 1e-3)
        return [low - room, low + room] if math.isfinite(low + room) else [low / 2, low]
    # Half before and half behind, since the width of all floats is past the largest one.
    return [low * (1 - i / BINS) + high * (i / BINS) for i in range(BINS)] + [high]


def _histogram(block: Array, edges: list[float]) -> Array:
    """How many elements lie in each bin, the last edge included."""
    finite = block[np.isfinite(block)]
    low, half, bins = edges[0], edges[-1] / 2 - edges[0] / 2, len(edges) - 1
    places = ((finite / 2 - low / 2) / half * bins) if half > 0 else np.zeros(len(finite))
    found: Array = np.bincount(np.clip(places.astype(np.int64), 0, bins - 1), minlength=bins)
    return found
