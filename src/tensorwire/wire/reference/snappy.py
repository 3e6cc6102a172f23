"""Raw Snappy blocks."""

from __future__ import annotations

from typing import Any

from ...core.memory import flat
from .. import status
from .protobuf import WireFault, varint


def snappy_decode(data: Any, limit: int) -> tuple[int, int, bytes | None]:
    view, out = flat(data), bytearray()
    try:
        size, offset = head(view, len(view), limit)
        expand(view, offset, size, out, size + 1)
    except WireFault as fault:
        return fault.status, fault.offset, None
    return 0, len(view), bytes(out)


def head(view: memoryview, whole: int, limit: int) -> tuple[int, int]:
    """Return the length of the data, and where its elements begin.

    `whole` is the size of the block. `view` may be only its beginning.
    """
    size, offset = varint(view, 0, len(view))
    if size > 0xFFFFFFFF or offset > 5:
        raise WireFault(status.BAD_VARINT, 0)
    if size > limit:
        raise WireFault(status.OVER_LIMIT, 0)
    # The densest element is a copy of 64 bytes, which takes three bytes. A larger size is refused
    # before memory is allocated for it.
    if size > (whole - offset + 2) // 3 * 64:
        raise WireFault(status.TRUNCATED, 0)
    return size, offset


def expand(view: memoryview, position: int, size: int, out: bytearray, enough: int) -> None:
    """Append the data of all elements to `out` until it has `size` bytes, or `enough` bytes."""
    while position < len(view) and len(out) < enough:
        start, tag = position, view[position]
        # Kind 0 is a literal, whose length is in the tag or in the next 1 to 4 bytes. Kinds 1 to 3
        # are copies with an offset of 11, 16 or 32 bits.
        kind, length, high = tag & 3, (tag >> 2) + 1, 0
        if kind == 0:
            count = max(length - 60, 0)
        elif kind == 1:
            count, length, high = 1, 4 + (tag >> 2 & 7), tag >> 5 << 8
        else:
            count = 2 if kind == 2 else 4
        position += 1 + count
        if position > len(view):
            raise WireFault(status.TRUNCATED, start)
        number = int.from_bytes(view[start + 1 : position], "little")
        room = size - len(out)
        if kind == 0:
            length = number + 1 if count else length
            out += view[position : position + min(length, room)]
            if length > len(view) - position:
                raise WireFault(status.TRUNCATED, start)
            position += length
        else:
            offset = high + number
            if not 0 < offset <= len(out):
                raise WireFault(status.BAD_COPY, start)
            # A copy may overlap its own output, which repeats the last `offset` bytes.
            begin = len(out) - offset
            pattern = bytes(out[begin : begin + length])
            out += (pattern * (length // len(pattern) + 1))[: min(length, room)]
        if length > room:
            raise WireFault(status.OVERRUN, start)
    if len(out) < min(size, enough):
        raise WireFault(status.TRUNCATED, len(view))
