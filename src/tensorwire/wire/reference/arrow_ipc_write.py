from __future__ import annotations

import struct
from typing import Any

from .arrow_ipc import DEPTH, FIXED_BINARY, FIXED_LIST, FLOAT, INT

_VERSION = 4
_NONE, _OFFSET = (0, 0), (4, 0)
"""(bytes, value) of a field that a table does not have, and of one that is to be pointed at what
follows.
"""


class _Builder:
    """A flatbuffer from front to back: each table lies behind the one that it belongs to."""

    def __init__(self) -> None:
        self.out = bytearray(4)
        self.last = 0

    def align(self, to: int, ahead: int = 0) -> None:
        self.out += bytes(-(len(self.out) + ahead) % to)

    def point(self, at: int, target: int) -> None:
        struct.pack_into("<I", self.out, at, target - at)

    def table(self, *slots: tuple[int, int]) -> list[int]:
        """A table, its vtable right before it (some readers look nowhere else). Fields lie by their
        size, largest first. Where each is.
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

    def text(self, at: int, value: str) -> None:
        data = value.encode()
        self.align(4)
        self.point(at, len(self.out))
        self.out += len(data).to_bytes(4, "little") + data + b"\0"

    def offsets(self, at: int, count: int) -> int:
        """A vector of offsets; where the first is."""
        self.align(4)
        self.point(at, len(self.out))
        self.out += count.to_bytes(4, "little") + bytes(4 * count)
        return len(self.out) - 4 * count

    def structs(self, at: int, rows: list[Any]) -> None:
        """A vector of structs of int64."""
        self.align(8, 4)
        self.point(at, len(self.out))
        self.out += len(rows).to_bytes(4, "little")
        for row in rows:
            self.out += struct.pack(f"<{len(row)}q", *row)

    def pairs(self, at: int, pairs: list[Any]) -> None:
        place = self.offsets(at, len(pairs))
        for key, value in pairs:
            places = self.table(_OFFSET, _OFFSET)
            self.point(place, self.last)
            place += 4
            self.text(places[0], key)
            self.text(places[1], value)

    def field(self, at: int, fields: list[Any], i: int, depth: int) -> int:
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
        self.point(at, self.last)
        self.text(places[0], name)
        about = {
            INT: [(4, width), (1, signed)],
            FLOAT: [(2, width)],
            FIXED_LIST: [(4, width)],
            FIXED_BINARY: [(4, width)],
        }
        self.table(*about.get(kind, []))
        self.point(places[3], self.last)
        if children:
            place = self.offsets(places[5], children)
            for child in range(children):
                i = self.field(place + 4 * child, fields, i, depth + 1)
        if pairs:
            self.pairs(places[6], pairs)
        return i

    def schema(self, at: int, fields: list[Any], pairs: list[Any]) -> None:
        places = self.table(_NONE, _OFFSET, _OFFSET if pairs else _NONE)
        self.point(at, self.last)
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
    """How many are not inside of another; they must add up."""
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
    out, at = _message(1, 0)
    out.schema(at, fields, pairs)
    return out.finish()


def ipc_batch(length: int, nodes: list[Any], buffers: list[Any], codec: int, body: int) -> bytes:
    out, at = _message(3, body)
    places = out.table((8, length), _OFFSET, _OFFSET, _NONE if codec < 0 else _OFFSET)
    out.point(at, out.last)
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
