"""What the machine can do: copying the same bytes into memory that is warm, and into memory that is
new; and reading a file.

New memory costs page faults. NumPy asks for huge pages when it makes a large array, `bytes` does
not, so `x.copy()` and `x.tobytes()` are the two sides of that. A file is read from the page cache
piece by piece into the same buffer, so that a piece is still in the second cache when it is checked
and copied. All of these race in the same rounds as the cases that they are compared with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tensorwire.timing import Contender

from tensorwire.wire.crc import crc32c

if TYPE_CHECKING:
    from tensorwire.case import Result
    from tensorwire.record_files import Sample

WARM = "memcpy, warm memory"
FRESH = "memcpy, new memory, huge pages advised"
READ, READ_CRC, READ_CRC_COPY = "plain read", "plain read, CRC32C", "plain read, CRC32C, memcpy"
_PIECE = 512 << 10
_BATCH = 4 << 20
"""Where pieces are copied to: memory of a batch's size, again and again."""


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


def readings(sample: Sample) -> list[Contender]:
    """A file read into a reused buffer, and checked, and copied besides, as contenders."""
    names = {"read": _read, "path": sample.path, "sample": sample}
    calls = {
        READ: "read(path)",
        READ_CRC: "read(path, check=True)",
        READ_CRC_COPY: "read(path, check=True, copy=True)",
    }
    return [
        Contender(name, call, names, "floor", self_describing=False, size=sample.size)
        for name, call in calls.items()
    ]


def _read(path: str, check: bool = False, copy: bool = False) -> None:
    piece, batch, at = np.empty(_PIECE, np.uint8), np.empty(_BATCH, np.uint8), 0
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(piece):  # type: ignore[arg-type]
            if check:
                crc32c(piece[:count])
            if copy:
                batch[at : at + count] = piece[:count]
                at = (at + _PIECE) % _BATCH


def files_table(results: list[Result]) -> list[list[str]]:
    """For each case that goes through a file: GB/s of the file by CPU time, and how many plain
    readings of it that is.
    """
    rows = [["", "GB/s of CPU", *(f"x {name}" for name in (READ, READ_CRC, READ_CRC_COPY))]]
    for result in results:
        found = {timing.name: timing.cpu_median for timing in result.timings}
        for timing in result.timings:
            if READ in found and timing.contender.size:
                ratios = [
                    f"{timing.cpu_median / found[name]:.2f}"
                    for name in (READ, READ_CRC, READ_CRC_COPY)
                ]
                rows.append(
                    [
                        f"{result.name}: {timing.name}",
                        f"{timing.contender.size / timing.cpu_median / 1e9:.1f}",
                        *ratios,
                    ]
                )
    return rows


def _speed(gigabytes: float) -> str:
    """A view is not a speed."""
    return f"{gigabytes:.1f}" if gigabytes < 100 else "a view"
