"""Protobuf fields: tags, varints, lengths, and skipping.

Reference kernels leave their loops with `WireFault`. It never leaves a kernel, which returns its
status and offset instead.
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
    """Return an unsigned integer as a varint.

    >>> to_varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(data: Any, offset: int, end: int, strict: bool = True) -> tuple[int, int]:
    """Return the value of a varint and the offset after it."""
    start, value = offset, 0
    for shift in range(0, 70, 7):
        if offset == end:
            raise WireFault(status.TRUNCATED, start)
        byte = data[offset]
        offset += 1
        if shift == 63 and strict and byte > 1:
            raise WireFault(status.BAD_VARINT, start)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, offset
    raise WireFault(status.BAD_VARINT, start)


def tag(data: Any, offset: int, end: int) -> tuple[int, int, int]:
    """Return the field number and wire type of a tag, and the offset after it."""
    value, after = varint(data, offset, end)
    if value > 0xFFFFFFFF or after - offset > 5 or value >> 3 == 0 or value & 7 > FIXED32:
        raise WireFault(status.BAD_TAG, offset)
    return value >> 3, value & 7, after


def length(data: Any, offset: int, end: int) -> tuple[int, int]:
    """Return the size of a length-delimited field and the offset of its first byte."""
    size, after = varint(data, offset, end)
    if after - offset > 5:
        raise WireFault(status.BAD_VARINT, offset)
    if size > end - after:
        raise WireFault(status.TRUNCATED, offset)
    return size, after


def fixed(size: int, offset: int, end: int) -> int:
    """Return the offset after a field of fixed size."""
    if end - offset < size:
        raise WireFault(status.TRUNCATED, offset)
    return offset + size


def skip(data: Any, offset: int, end: int, field: int, wire: int, depth: int = 0) -> int:
    """Return the offset after a field whose tag has been read."""
    if wire == VARINT:
        return varint(data, offset, end, strict=False)[1]
    if wire == FIXED64:
        return fixed(8, offset, end)
    if wire == FIXED32:
        return fixed(4, offset, end)
    if wire == LEN:
        size, offset = length(data, offset, end)
        return offset + size
    if wire == END_GROUP or depth >= 100:
        raise WireFault(status.BAD_GROUP, offset)
    start = offset
    while True:
        if offset == end:
            raise WireFault(status.TRUNCATED, start)
        inner, inner_wire, offset = tag(data, offset, end)
        if inner_wire == END_GROUP:
            if inner != field:
                raise WireFault(status.BAD_GROUP, start)
            return offset
        offset = skip(data, offset, end, inner, inner_wire, depth + 1)
