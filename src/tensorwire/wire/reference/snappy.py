from __future__ import annotations

from typing import Any

from ...core.memory import flat
from .. import status
from .protobuf import WireFault, varint


def snappy_decode(data: Any, limit: int) -> tuple[int, int, bytes | None]:
    view, out = flat(data), bytearray()
    try:
        size, at = head(view, len(view), limit)
        expand(view, at, size, out, size + 1)
    except WireFault as fault:
        return fault.status, fault.offset, None
    return 0, len(view), bytes(out)


def head(view: memoryview, whole: int, limit: int) -> tuple[int, int]:
    """The length of the data, and where its elements begin; `whole` is the size of the block, of
    which `view` may be the beginning.
    """
    size, at = varint(view, 0, len(view))
    if size > 0xFFFFFFFF or at > 5:
        raise WireFault(status.BAD_VARINT, 0)
    if size > limit:
        raise WireFault(status.OVER_LIMIT, 0)
    if size > (whole - at + 2) // 3 * 64:  # a copy of 64 bytes takes three, and nothing does better
        raise WireFault(status.TRUNCATED, 0)
    return size, at


def expand(view: memoryview, at: int, size: int, out: bytearray, enough: int) -> None:
    """Appends the data of all elements to `out`, which has `size` bytes in the end, or stops early
    when it has `enough`.
    """
    while at < len(view) and len(out) < enough:
        start, tag = at, view[at]
        kind, length, high = tag & 3, (tag >> 2) + 1, 0
        if kind == 0:
            count = max(length - 60, 0)
        elif kind == 1:
            count, length, high = 1, 4 + (tag >> 2 & 7), tag >> 5 << 8
        else:
            count = 2 if kind == 2 else 4
        at += 1 + count
        if at > len(view):
            raise WireFault(status.TRUNCATED, start)
        number = int.from_bytes(view[start + 1 : at], "little")
        room = size - len(out)
        if kind == 0:
            length = number + 1 if count else length
            out += view[at : at + min(length, room)]
            if length > len(view) - at:
                raise WireFault(status.TRUNCATED, start)
            at += length
        else:
            offset = high + number
            if not 0 < offset <= len(out):
                raise WireFault(status.BAD_COPY, start)
            begin = len(out) - offset
            pattern = bytes(out[begin : begin + length])
            out += (pattern * (length // len(pattern) + 1))[: min(length, room)]
        if length > room:
            raise WireFault(status.OVERRUN, start)
    if len(out) < min(size, enough):
        raise WireFault(status.TRUNCATED, len(view))
