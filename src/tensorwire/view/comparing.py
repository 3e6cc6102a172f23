"""Two tensors: what is different, how much, and where."""

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
    """One tensor minus another, as float64; NaN where both are NaN is no difference."""

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
                # as floats, numbers past 2**53 would look the same
                return np.where(a >= b, 1.0, -1.0) * distance(a, b)
            else:
                left, right = numbers(a), numbers(b)
                gap, same = left - right, left == right  # infinity minus infinity is NaN
        gap[same | (np.isnan(numbers(a)) & np.isnan(numbers(b)))] = 0.0
        return gap


def difference(library: Library, a: tuple[str, int], b: tuple[str, int]) -> Difference:
    """a - b, for windows and statistics."""
    left, right = library.values(*a), library.values(*b)
    if left.shape != right.shape:
        raise SchemaError(
            f"the shapes are {list(left.shape)} and {list(right.shape)}; only tensors of one shape"
            " have a difference"
        )
    return Difference(left, right)


def comparison(
    library: Library, a: tuple[str, int], b: tuple[str, int], exact: bool = False
) -> dict[str, Any]:
    """How two tensors differ: dense ones of one shape by numbers, of a sample if they are large;
    others as `tensorwire diff` says it.
    """
    left, right = library.tensor(*a), library.tensor(*b)
    both = [
        {
            "name": one.name,
            "kind": one.kind,
            "dtype": str(one.dtype),
            "shape": list(one.shape),
            "nbytes": one.nbytes,
        }
        for one in (left, right)
    ]
    about: dict[str, Any] = {
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
        found, size = summary.statistics, summary.size
        ends = [abs(end) for end in (found.least, found.largest) if end is not None]
        about["statistics"] = statistics_page(summary) | {
            "unequal": found.elements - found.zeros,
            "max_abs": for_page(max(ends)) if ends else None,
            "rms": (
                None
                if found.mean is None or found.deviation is None
                else for_page(math.hypot(found.mean, found.deviation))
            ),
        }
        large = size > sampling.EXACT
        if not large:
            about["largest"] = _largest(gap)
    else:
        large = max(left.nbytes, right.nbytes) > WHOLE
    if large and not exact:
        about["note"] = (
            None
            if about["statistics"]
            else "too large to be compared here; tensorwire diff compares files of any size"
        )
        return about
    about["summary"] = compare(left, right, None).json()
    return about


def _largest(gap: Difference) -> list[int] | None:
    """Where the difference is largest, which is what one wants to see first."""
    size, best, place = math.prod(gap.shape), 0.0, None
    for start in range(0, size, BLOCK):
        block = np.nan_to_num(np.abs(gap.run(start, min(size, start + BLOCK))), nan=math.inf)
        at = int(block.argmax())
        if block[at] > best:
            best, place = float(block[at]), start + at
    return None if place is None else [int(dim) for dim in np.unravel_index(place, gap.shape)]
