"""What the machine can do: copying the same bytes into memory that is warm, and into memory that is new.

New memory costs page faults. NumPy asks for huge pages when it makes a large array, `bytes` does not, so `x.copy()` and
`x.tobytes()` are the two sides of that. The copies race in the same rounds as the cases that they are compared with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .timing import Contender

if TYPE_CHECKING:
    from .cases import Result

WARM = "memcpy, warm memory"
FRESH = "memcpy, new memory, huge pages advised"


def copies(x: np.ndarray[Any, Any]) -> list[Contender]:
    """Two copies of `x`, as contenders."""
    warm = np.zeros_like(x)
    warm[...] = x  # every page is there now
    names = {"x": x, "warm": warm, "copyto": np.copyto}
    return [
        Contender(WARM, "copyto(warm, x)", names, "floor", self_describing=False),
        Contender(FRESH, "x.copy()", names, "floor", self_describing=False),
    ]


def table(results: list[Result]) -> list[list[str]]:
    """For each large case: GB/s of the copies and of ours, and how many copies ours takes."""
    rows = [["", "GB/s", "x warm memcpy", "x new-memory memcpy"]]
    for result in results:
        if WARM not in [timing.name for timing in result.timings]:
            continue
        warm, fresh = result.timing(WARM).median, result.timing(FRESH).median
        for timing in result.timings:
            if timing.contender.role != "rival":
                speed = result.size / timing.median / 1e9
                ratios = [f"{timing.median / copy:.2f}" for copy in (warm, fresh)]
                rows.append([f"{result.name}: {timing.name}", _speed(speed), *ratios])
    return rows


def _speed(gigabytes: float) -> str:
    """A view is not a speed."""
    return f"{gigabytes:.1f}" if gigabytes < 100 else "a view"
