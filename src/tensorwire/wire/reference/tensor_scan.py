"""Scan of a TensorProto: validates the message and counts its values."""

from __future__ import annotations

from typing import Any

from ...core.memory import flat
from .. import status
from .protobuf import FIXED32, FIXED64, LEN, VARINT, WireFault, length, skip, tag, varint

MAX_RANK = 254
FIELDS = 19
WIRE = (
    9,
    VARINT,
    LEN,
    VARINT,
    LEN,
    FIXED32,
    FIXED64,
    VARINT,
    LEN,
    FIXED32,
    VARINT,
    VARINT,
    FIXED64,
    VARINT,
    LEN,
    LEN,
    VARINT,
    VARINT,
    LEN,
)
"""The wire type of one unpacked value, by field number."""
SINGULAR = {1, 2, 3, 4, 18}
PACKABLE = {field for field in range(5, FIELDS) if WIRE[field] != LEN}


class _Scan:
    def __init__(self, data: Any, strict: bool) -> None:
        self.data, self.strict = data, strict
        self.dtype = 0
        self.dims: list[int] = []
        self.unknown_rank = False
        self.name = (0, 0)
        self.content: tuple[int, int] | None = None
        self.counts = [0] * FIELDS

    def other(self, start: int, offset: int, end: int, field: int, wire: int) -> int:
        if self.strict:
            raise WireFault(status.UNKNOWN_FIELD, start)
        return skip(self.data, offset, end, field, wire)

    def once(self, seen: set[int], field: int, start: int) -> None:
        if self.strict and field in seen:
            raise WireFault(status.REPEATED, start)
        seen.add(field)

    def dim(self, offset: int, end: int) -> None:
        start, size, seen = offset, 0, set[int]()
        while offset < end:
            begin = offset
            field, wire, offset = tag(self.data, offset, end)
            if (field, wire) == (1, VARINT):
                self.once(seen, field, begin)
                size, offset = varint(self.data, offset, end, self.strict)
            elif (field, wire) == (2, LEN):
                self.once(seen, field, begin)
                count, offset = length(self.data, offset, end)
                try:
                    str(self.data[offset : offset + count], "utf-8")
                except UnicodeDecodeError:
                    raise WireFault(status.BAD_UTF8, offset) from None
                if not self.dims:
                    self.name = (offset, count)
                offset += count
            else:
                offset = self.other(begin, offset, end, field, wire)
        if len(self.dims) == MAX_RANK:
            raise WireFault(status.TOO_MANY_DIMS, start)
        if size >= 1 << 63:
            raise WireFault(status.NEGATIVE_DIM, start)
        self.dims.append(size)

    def shape(self, offset: int, end: int) -> None:
        seen = set[int]()
        while offset < end:
            begin = offset
            field, wire, offset = tag(self.data, offset, end)
            if (field, wire) == (2, LEN):
                size, offset = length(self.data, offset, end)
                self.dim(offset, offset + size)
                offset += size
            elif (field, wire) == (3, VARINT):
                self.once(seen, field, begin)
                value, offset = varint(self.data, offset, end, self.strict)
                self.unknown_rank = value != 0
            else:
                offset = self.other(begin, offset, end, field, wire)

    def packed(self, field: int, offset: int, size: int) -> int:
        run = self.data[offset : offset + size]
        width = {FIXED32: 4, FIXED64: 8}.get(WIRE[field])
        if width:
            if size % width:
                raise WireFault(status.BAD_PACKED, offset)
            self.counts[field] += size // width
        else:
            if size and run[-1] >= 0x80:
                raise WireFault(status.TRUNCATED, offset + size - 1)
            self.counts[field] += sum(byte < 0x80 for byte in run)
        return offset + size

    def message(self, stop_at_strings: bool) -> int:
        offset, end, seen = 0, len(self.data), set[int]()
        while offset < end:
            start = offset
            field, wire, offset = tag(self.data, offset, end)
            packed = field in PACKABLE and wire == LEN
            if field >= FIELDS or (wire != WIRE[field] and not packed):
                offset = self.other(start, offset, end, field, wire)
                continue
            if field in SINGULAR:
                self.once(seen, field, start)
            if wire == LEN:
                if field == 8 and stop_at_strings:
                    self.counts[8] = 1
                    return start
                if field in (14, 15):
                    offset = skip(self.data, offset, end, field, wire)
                    self.counts[field] += 1
                    continue
                size, offset = length(self.data, offset, end)
                if packed:
                    offset = self.packed(field, offset, size)
                    continue
                if field == 2:
                    self.shape(offset, offset + size)
                elif field == 4:
                    self.content = (offset, size)
                elif field == 8:
                    self.counts[8] += 1
                else:
                    self.counts[18] = size
                offset += size
            elif field == 1:
                value, offset = varint(self.data, offset, end, self.strict)
                self.dtype = (
                    value if self.strict else (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
                )
                if self.dtype >= 1 << 63:
                    self.dtype -= 1 << 64
            else:
                offset = skip(self.data, offset, end, field, wire)
                if field > 3:
                    self.counts[field] += 1
        return end


def tensor_scan(data: Any, strict: bool, stop_at_strings: bool) -> Any:
    scan = _Scan(flat(data), strict)
    code = 0
    try:
        offset = scan.message(stop_at_strings)
    except WireFault as fault:
        code, offset = fault.status, fault.offset
    content = scan.content or (0, 0)
    return (
        code,
        offset,
        scan.dtype,
        tuple(scan.dims),
        scan.unknown_rank,
        *scan.name,
        scan.content is not None,
        *content,
        tuple(scan.counts),
    )
