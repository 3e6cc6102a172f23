"""Messages and footers of Arrow IPC files: flatbuffers, written front to back."""

from __future__ import annotations

import struct
from typing import Any

from .arrow_ipc import DEPTH, FIXED_BINARY, FIXED_LIST, FLOAT, INT

_VERSION = 4
_NONE, _OFFSET = (0, 0), (4, 0)
"""The (size, value) of a field that a table does not have, and of an offset that is set later."""


class _Builder:
    """A flatbuffer that is written front to back: each table comes after its parent."""

    def __init__(self) -> None:
        self.out = bytearray(4)
        self.last = 0

    def align(self, to: int, ahead: int = 0) -> None:
        self.out += bytes(-(len(self.out) + ahead) % to)

    def point(self, offset: int, target: int) -> None:
        struct.pack_into("<I", self.out, offset, target - offset)

    def table(self, *slots: tuple[int, int]) -> list[int]:
        """Write a table, and return the offsets of its fields.

        The vtable comes right before the table, where some readers expect it. Fields are sorted by
        size, largest first, which aligns them.
        """
        end, count, places = 4, 0, [0] * len(slots)
        for size in (8, 4, 2, 1):
            for i, slot in enumerate(slots):
                if slot[0] == size:
                    places[i] = -(-end // size) * size
                    end, count = places[i] + size, max(count, i + 1)
        vtable = struct.pack(f"<{2 + count}H", 4 + 2 * count, end, *places[:count])
        self.align(2)
        before = len(self.out)
        self.out += vtable
        self.align(8)
        self.last = len(self.out)
        self.out += struct.pack("<i", self.last - before) + bytes(end - 4)
        for i, (size, value) in enumerate(slots):
            if size:
                places[i] += self.last
                self.out[places[i] : places[i] + size] = (value & (1 << 8 * size) - 1).to_bytes(
                    size, "little"
                )
        return places

    def text(self, offset: int, value: str) -> None:
        data = value.encode()
        self.align(4)
        self.point(offset, len(self.out))
        self.out += len(data).to_bytes(4, "little") + data + b"\0"

    def offsets(self, offset: int, count: int) -> int:
        """Write a vector of offsets, to be set later, and return where the first one is."""
        self.align(4)
        self.point(offset, len(self.out))
        self.out += count.to_bytes(4, "little") + bytes(4 * count)
        return len(self.out) - 4 * count

    def structs(self, offset: int, rows: list[Any]) -> None:
        """Write a vector of structs of int64."""
        self.align(8, 4)
        self.point(offset, len(self.out))
        self.out += len(rows).to_bytes(4, "little")
        for row in rows:
            self.out += struct.pack(f"<{len(row)}q", *row)

    def pairs(self, offset: int, pairs: list[Any]) -> None:
        place = self.offsets(offset, len(pairs))
        for key, value in pairs:
            places = self.table(_OFFSET, _OFFSET)
            self.point(place, self.last)
            place += 4
            self.text(places[0], key)
            self.text(places[1], value)

    def field(self, offset: int, fields: list[Any], i: int, depth: int) -> int:
        name, kind, width, signed, children, _, pairs = fields[i]
        i += 1
        places = self.table(
            _OFFSET,
            (1, 1),
            (1, kind),
            _OFFSET,
            _NONE,
            _OFFSET if children else _NONE,
            _OFFSET if pairs else _NONE,
        )
        self.point(offset, self.last)
        self.text(places[0], name)
        type_slots = {
            INT: [(4, width), (1, signed)],
            FLOAT: [(2, width)],
            FIXED_LIST: [(4, width)],
            FIXED_BINARY: [(4, width)],
        }
        self.table(*type_slots.get(kind, []))
        self.point(places[3], self.last)
        if children:
            place = self.offsets(places[5], children)
            for child in range(children):
                i = self.field(place + 4 * child, fields, i, depth + 1)
        if pairs:
            self.pairs(places[6], pairs)
        return i

    def schema(self, offset: int, fields: list[Any], pairs: list[Any]) -> None:
        places = self.table(_NONE, _OFFSET, _OFFSET if pairs else _NONE)
        self.point(offset, self.last)
        place, i = self.offsets(places[1], _count(fields)), 0
        while i < len(fields):
            i = self.field(place, fields, i, 0)
            place += 4
        if pairs:
            self.pairs(places[2], pairs)

    def finish(self) -> bytes:
        self.align(8)
        return bytes(self.out)


def _count(fields: list[Any]) -> int:
    """Return the number of top-level fields. Raises ValueError if the child counts do not match."""
    top, left = 0, list[int]()
    for field in fields:
        while left and not left[-1]:
            left.pop()
        if left:
            left[-1] -= 1
        else:
            top += 1
        left.append(field[4])
        if len(left) > DEPTH:
            break
    if any(left[:DEPTH]) or len(left) > DEPTH:
        raise ValueError("the fields do not add up")
    return top


def _message(kind: int, body: int) -> tuple[_Builder, int]:
    out = _Builder()
    places = out.table((2, _VERSION), (1, kind), _OFFSET, (8, body))
    out.point(0, out.last)
    return out, places[2]


def ipc_schema(fields: list[Any], pairs: list[Any]) -> bytes:
    out, offset = _message(1, 0)
    out.schema(offset, fields, pairs)
    return out.finish()


def ipc_batch(length: int, nodes: list[Any], buffers: list[Any], codec: int, body: int) -> bytes:
    out, offset = _message(3, body)
    places = out.table((8, length), _OFFSET, _OFFSET, _NONE if codec < 0 else _OFFSET)
    out.point(offset, out.last)
    out.structs(places[1], nodes)
    out.structs(places[2], buffers)
    if codec >= 0:
        out.table((1, codec))
        out.point(places[3], out.last)
    return out.finish()


def ipc_end(fields: list[Any], pairs: list[Any], blocks: list[Any]) -> bytes:
    out = _Builder()
    places = out.table((2, _VERSION), _OFFSET, _OFFSET, _OFFSET)
    out.point(0, out.last)
    out.schema(places[1], fields, pairs)
    out.structs(places[2], [])
    out.structs(places[3], blocks)
    return out.finish()
