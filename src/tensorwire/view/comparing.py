"""Two tensors: what is different, how much, and where."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._errors import SchemaError
from ..api.comparison.values import compare
from .opened import WHOLE, Library
from .reading import Difference
from .statistics import BLOCK, EXACT, plain, statistics


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
        found = statistics(gap, exact)
        about["statistics"] = found.json() | {
            "unequal": found.counted - found.zeros,
            "max_abs": None if found.min is None else plain(max(abs(found.min), abs(found.max))),
            "rms": (
                None
                if found.mean is None or found.std is None
                else plain(math.hypot(found.mean, found.std))
            ),
        }
        large = found.size > EXACT
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
