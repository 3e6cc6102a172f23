"""TFRecord frames: scan, resynchronize after damage, and write."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ...core.memory import Array, flat
from .. import status
from .crc32c import crc32c

HEADER, FOOTER = 12, 4


def masked(data: Any) -> int:
    """Return the masked CRC32C of some bytes.

    Stored checksums are masked, because the CRC of data followed by its own CRC is a constant.
    """
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def holds(view: memoryview, start: int, stop: int) -> bool:
    """Return whether view[start:stop] matches the masked checksum that follows it."""
    return masked(view[start:stop]) == int.from_bytes(view[stop : stop + 4], "little")


def frame_scan(
    data: Any, start: int, check: bool, longest: int, most: int
) -> tuple[int, int, Array, Array]:
    view, offset, code = flat(data), start, 0
    if not 0 <= start <= len(view):
        raise ValueError("start is past the end")
    starts: list[int] = []
    sizes: list[int] = []
    while offset < len(view) and len(starts) < most:
        size = int.from_bytes(view[offset : offset + 8], "little")
        begin, end = offset + HEADER, offset + HEADER + size
        if begin > len(view):
            code = status.TRUNCATED
        elif not holds(view, offset, offset + 8):
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
        offset = end + FOOTER
    return code, offset, np.array(starts, np.int64), np.array(sizes, np.int64)


def frame_find(data: Any, start: int, longest: int) -> int:
    view = flat(data)
    for offset in range(start, len(view) - HEADER + 1):
        if int.from_bytes(view[offset : offset + 8], "little") <= longest and holds(
            view, offset, offset + 8
        ):
            return offset
    return len(view)


def frame_chain(
    data: Any, start: int, stop: int, longest: int, total: int, near: int, checks: int, guess: int
) -> tuple[int, int]:
    view, offset = flat(data), start
    if total < len(view):
        raise ValueError("a file is not smaller than a part of it")

    def header(offset: int) -> bool:
        return offset + HEADER <= len(view) and holds(view, offset, offset + 8)

    # A header may match by chance, so a candidate is accepted only if one of these holds: the next
    # header follows its data, or the file ends there; the checksum of its data matches; or it runs
    # past the buffer and begins at `near` or later. A candidate whose data starts with another
    # header needs the checksum, because data may contain records. `checks` bounds the bytes of data
    # that are checksummed.
    while (offset := frame_find(view[: stop + HEADER - 1], offset, longest)) < min(stop, len(view)):
        begin = offset + HEADER
        foot = begin + int.from_bytes(view[offset : offset + 8], "little")
        end = foot + FOOTER
        if end <= total:
            if end > len(view) or (len(view) < total and end + HEADER > len(view)):
                if offset >= near:
                    return offset, checks
            elif not header(begin) and (end == total or header(end)):
                return offset, checks
            elif (cost := max(foot - begin, guess)) <= checks:
                if holds(view, begin, foot):
                    return offset, checks
                checks -= cost
        offset += 1
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
