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

    def other(self, start: int, at: int, end: int, field: int, wire: int) -> int:
        if self.strict:
            raise WireFault(status.UNKNOWN_FIELD, start)
        return skip(self.data, at, end, field, wire)

    def once(self, seen: set[int], field: int, start: int) -> None:
        if self.strict and field in seen:
            raise WireFault(status.REPEATED, start)
        seen.add(field)

    def dim(self, at: int, end: int) -> None:
        start, size, seen = at, 0, set[int]()
        while at < end:
            begin = at
            field, wire, at = tag(self.data, at, end)
            if (field, wire) == (1, VARINT):
                self.once(seen, field, begin)
                size, at = varint(self.data, at, end, self.strict)
            elif (field, wire) == (2, LEN):
                self.once(seen, field, begin)
                count, at = length(self.data, at, end)
                try:
                    str(self.data[at : at + count], "utf-8")
                except UnicodeDecodeError:
                    raise WireFault(status.BAD_UTF8, at) from None
                if not self.dims:
                    self.name = (at, count)
                at += count
            else:
                at = self.other(begin, at, end, field, wire)
        if len(self.dims) == MAX_RANK:
            raise WireFault(status.TOO_MANY_DIMS, start)
        if size >= 1 << 63:
            raise WireFault(status.NEGATIVE_DIM, start)
        self.dims.append(size)

    def shape(self, at: int, end: int) -> None:
        seen = set[int]()
        while at < end:
            begin = at
            field, wire, at = tag(self.data, at, end)
            if (field, wire) == (2, LEN):
                size, at = length(self.data, at, end)
                self.dim(at, at + size)
                at += size
            elif (field, wire) == (3, VARINT):
                self.once(seen, field, begin)
                value, at = varint(self.data, at, end, self.strict)
                self.unknown_rank = value != 0
            else:
                at = self.other(begin, at, end, field, wire)

    def packed(self, field: int, at: int, size: int) -> int:
        run = self.data[at : at + size]
        width = {FIXED32: 4, FIXED64: 8}.get(WIRE[field])
        if width:
            if size % width:
                raise WireFault(status.BAD_PACKED, at)
            self.counts[field] += size // width
        else:
            if size and run[-1] >= 0x80:
                raise WireFault(status.TRUNCATED, at + size - 1)
            self.counts[field] += sum(byte < 0x80 for byte in run)
        return at + size

    def message(self, stop_at_strings: bool) -> int:
        at, end, seen = 0, len(self.data), set[int]()
        while at < end:
            start = at
            field, wire, at = tag(self.data, at, end)
            packed = field in PACKABLE and wire == LEN
            if field >= FIELDS or (wire != WIRE[field] and not packed):
                at = self.other(start, at, end, field, wire)
                continue
            if field in SINGULAR:
                self.once(seen, field, start)
            if wire == LEN:
                if field == 8 and stop_at_strings:
                    self.counts[8] = 1
                    return start
                if field in (14, 15):
                    at = skip(self.data, at, end, field, wire)
                    self.counts[field] += 1
                    continue
                size, at = length(self.data, at, end)
                if packed:
                    at = self.packed(field, at, size)
                    continue
                if field == 2:
                    self.shape(at, at + size)
                elif field == 4:
                    self.content = (at, size)
                elif field == 8:
                    self.counts[8] += 1
                else:
                    self.counts[18] = size
                at += size
            elif field == 1:
                value, at = varint(self.data, at, end, self.strict)
                self.dtype = (
                    value if self.strict else (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
                )
                if self.dtype >= 1 << 63:
                    self.dtype -= 1 << 64
            else:
                at = skip(self.data, at, end, field, wire)
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
