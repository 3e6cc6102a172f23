from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ...core.memory import flat
from .. import status
from .crc32c import crc32c

Array = np.ndarray[Any, Any]
HEADER, FOOTER = 12, 4


def masked(data: Any) -> int:
    """The checksum of some bytes as it is stored: masked, because a checksum over data that holds
    checksums tells little.
    """
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def holds(view: memoryview, start: int, stop: int) -> bool:
    """Whether the checksum of view[start:stop] is the one that stands behind it."""
    return masked(view[start:stop]) == int.from_bytes(view[stop : stop + 4], "little")


def frame_scan(
    data: Any, start: int, check: bool, longest: int, most: int
) -> tuple[int, int, Array, Array]:
    view, at, code = flat(data), start, 0
    if not 0 <= start <= len(view):
        raise ValueError("start is past the end")
    starts: list[int] = []
    sizes: list[int] = []
    while at < len(view) and len(starts) < most:
        size = int.from_bytes(view[at : at + 8], "little")
        begin, end = at + HEADER, at + HEADER + size
        if begin > len(view):
            code = status.TRUNCATED
        elif not holds(view, at, at + 8):
            code = status.BAD_LENGTH_CRC
        elif size > longest:
            code = status.TOO_LONG
        elif end + FOOTER > len(view):
            code = status.TRUNCATED
        elif check and not holds(view, begin, end):
            code = status.BAD_DATA_CRC
        if code:
            break
        starts.append(begin)
        sizes.append(size)
        at = end + FOOTER
    return code, at, np.array(starts, np.int64), np.array(sizes, np.int64)


def frame_find(data: Any, start: int, longest: int) -> int:
    view = flat(data)
    for at in range(start, len(view) - HEADER + 1):
        if int.from_bytes(view[at : at + 8], "little") <= longest and holds(view, at, at + 8):
            return at
    return len(view)


def frame_chain(
    data: Any, start: int, stop: int, longest: int, total: int, near: int, checks: int, guess: int
) -> tuple[int, int]:
    view, at = flat(data), start
    if total < len(view):
        raise ValueError("a file is not smaller than a part of it")

    def header(at: int) -> bool:
        return at + HEADER <= len(view) and holds(view, at, at + 8)

    while (at := frame_find(view[: stop + HEADER - 1], at, longest)) < min(stop, len(view)):
        begin = at + HEADER
        foot = begin + int.from_bytes(view[at : at + 8], "little")
        end = foot + FOOTER
        if end <= total:
            if end > len(view) or (len(view) < total and end + HEADER > len(view)):
                if at >= near:
                    return at, checks
            elif not header(begin) and (end == total or header(end)):
                return at, checks
            elif (cost := max(foot - begin, guess)) <= checks:
                if holds(view, begin, foot):
                    return at, checks
                checks -= cost
        at += 1
    return len(view), checks


def frame_list(data: Any, starts: Array, sizes: Array) -> list[bytes]:
    view = flat(data)
    places = list(zip(starts.tolist(), sizes.tolist(), strict=True))
    if any(start < 0 or size < 0 or start + size > len(view) for start, size in places):
        raise ValueError("a record lies outside the buffer")
    return [bytes(view[start : start + size]) for start, size in places]


def frame(data: Any) -> bytes:
    size = struct.pack("<Q", len(flat(data)))
    return size + struct.pack("<I", masked(size)) + flat(data) + struct.pack("<I", masked(data))


def frames(data: Any, offsets: Array) -> bytes:
    view, bounds = flat(data), offsets.tolist()
    pairs = list(zip(bounds, bounds[1:], strict=False))
    if not bounds or any(not 0 <= start <= stop <= len(view) for start, stop in pairs):
        raise ValueError("offsets must not decrease")
    return b"".join(frame(view[start:stop]) for start, stop in pairs)
