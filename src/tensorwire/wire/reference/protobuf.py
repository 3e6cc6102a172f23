"""Reading protobuf fields one by one. `WireFault` is how a reference kernel leaves its loop; none lets
it out.
"""

from __future__ import annotations

from typing import Any

from .. import status

VARINT, FIXED64, LEN, START_GROUP, END_GROUP, FIXED32 = range(6)


class WireFault(Exception):
    def __init__(self, status: int, offset: int) -> None:
        super().__init__(status, offset)
        self.status, self.offset = status, offset


def to_varint(value: int) -> bytes:
    """An unsigned integer in protobuf's variable length.

    >>> to_varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(data: Any, at: int, end: int, strict: bool = True) -> tuple[int, int]:
    """(value, position after it)"""
    start, value = at, 0
    for shift in range(0, 70, 7):
        if at == end:
            raise WireFault(status.TRUNCATED, start)
        byte = data[at]
        at += 1
        if shift == 63 and strict and byte > 1:
            raise WireFault(status.BAD_VARINT, start)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise WireFault(status.BAD_VARINT, start)


def tag(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """(field, wire type, position after it)"""
    value, after = varint(data, at, end)
    if value > 0xFFFFFFFF or after - at > 5 or value >> 3 == 0 or value & 7 > FIXED32:
        raise WireFault(status.BAD_TAG, at)
    return value >> 3, value & 7, after


def length(data: Any, at: int, end: int) -> tuple[int, int]:
    """(size, position of the first byte)"""
    size, after = varint(data, at, end)
    if after - at > 5:
        raise WireFault(status.BAD_VARINT, at)
    if size > end - after:
        raise WireFault(status.TRUNCATED, at)
    return size, after


def fixed(size: int, at: int, end: int) -> int:
    if end - at < size:
        raise WireFault(status.TRUNCATED, at)
    return at + size


def skip(data: Any, at: int, end: int, field: int, wire: int, depth: int = 0) -> int:
    """The position after a field whose tag has been read."""
    if wire == VARINT:
        return varint(data, at, end, strict=False)[1]
    if wire == FIXED64:
        return fixed(8, at, end)
    if wire == FIXED32:
        return fixed(4, at, end)
    if wire == LEN:
        size, at = length(data, at, end)
        return at + size
    if wire == END_GROUP or depth >= 100:
        raise WireFault(status.BAD_GROUP, at)
    start = at
    while True:
        if at == end:
            raise WireFault(status.TRUNCATED, start)
        inner, inner_wire, at = tag(data, at, end)
        if inner_wire == END_GROUP:
            if inner != field:
                raise WireFault(status.BAD_GROUP, start)
            return at
        at = skip(data, at, end, inner, inner_wire, depth + 1)
