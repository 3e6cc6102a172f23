"""The comparison of two tensors: statistics of the difference, and where it is largest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._errors import SchemaError
from ..api.comparison.values import compare, distance
from ..core.tensors import Array
from ..explore import sampling
from ..explore.runs import DenseValues
from ..explore.statistics import BLOCK, numbers
from .kinds import for_page, statistics_page
from .opened import WHOLE, Library


class Difference:
    """One tensor minus another, as float64; the difference of two NaN is 0."""

    def __init__(self, a: DenseValues, b: DenseValues) -> None:
        self.shape, self.dtype, self.unit = a.shape, np.dtype(np.float64), max(a.unit, b.unit)
        self._a, self._b = a, b

    def run(self, start: int, stop: int) -> Array:
        a, b = self._a.run(start, stop), self._b.run(start, stop)
        with np.errstate(all="ignore"):
            if "c" in (a.dtype.kind, b.dtype.kind):
                gap: Array = np.abs(a.astype(np.complex128) - b.astype(np.complex128))
                same = a == b
            elif a.dtype == b.dtype and a.dtype.kind in "iu" and a.dtype.itemsize == 8:
                # As float64, integers beyond 2**53 that differ could look equal.
                return np.where(a >= b, 1.0, -1.0) * distance(a, b)
            else:
                # Equal infinities need `same`, since infinity minus infinity is NaN.
                left, right = numbers(a), numbers(b)
                gap, same = left - right, left == right
        gap[same | (np.isnan(numbers(a)) & np.isnan(numbers(b)))] = 0.0
        return gap


def difference(library: Library, a: tuple[str, int], b: tuple[str, int]) -> Difference:
    """Return a - b, for windows and statistics."""
    left, right = library.values(*a), library.values(*b)
    if left.shape != right.shape:
        raise SchemaError(
            f"cannot subtract tensors of different shapes {list(left.shape)} and"
            f" {list(right.shape)}"
        )
    return Difference(left, right)


def comparison(
    library: Library, a: tuple[str, int], b: tuple[str, int], exact: bool = False
) -> dict[str, Any]:
    """Return how two tensors differ.

    Dense tensors of the same shape are subtracted, large ones as a sample. Others are compared like
    `tensorwire diff` does.
    """
    left, right = library.tensor(*a), library.tensor(*b)
    both = [
        {
            "name": tensor.name,
            "kind": tensor.kind,
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "nbytes": tensor.nbytes,
        }
        for tensor in (left, right)
    ]
    data: dict[str, Any] = {
        "a": both[0],
        "b": both[1],
        "statistics": None,
        "summary": None,
        "note": None,
        "largest": None,
    }
    if left.kind == right.kind == "dense" and left.shape == right.shape:
        gap = difference(library, a, b)
        summary = sampling.summary(gap, exact)
        stats, size = summary.statistics, summary.size
        ends = [abs(end) for end in (stats.least, stats.largest) if end is not None]
        data["statistics"] = statistics_page(summary) | {
            "unequal": stats.elements - stats.zeros,
            "max_abs": for_page(max(ends)) if ends else None,
            "rms": (
                None
                if stats.mean is None or stats.deviation is None
                else for_page(math.hypot(stats.mean, stats.deviation))
            ),
        }
        large = size > sampling.EXACT
        if not large:
            data["largest"] = _largest(gap)
    else:
        large = max(left.nbytes, right.nbytes) > WHOLE
    if large and not exact:
        data["note"] = (
            None
            if data["statistics"]
            else "too large to compare on this page; use tensorwire diff, which has no size limit"
        )
        return data
    data["summary"] = compare(left, right, None).json()
    return data


def _largest(gap: Difference) -> list[int] | None:
    """Return the index of the largest difference, where the page starts; None if there is none."""
    size, best, position = math.prod(gap.shape), 0.0, None
    for start in range(0, size, BLOCK):
        block = np.nan_to_num(np.abs(gap.run(start, min(size, start + BLOCK))), nan=math.inf)
        index = int(block.argmax())
        if block[index] > best:
            best, position = float(block[index]), start + index
    return None if position is None else [int(dim) for dim in np.unravel_index(position, gap.shape)]
