from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..status import BAD_LAYOUT, BAD_OFFSET, BAD_UTF8, NESTED, SHARED, WRONG_MESSAGE

DEPTH = 64
INT, FLOAT, UNION, FIXED_BINARY, FIXED_LIST = 2, 3, 14, 15, 16


class _Bad(Exception):
    def __init__(self, status: int, at: int) -> None:
        super().__init__(status, at)
        self.status, self.at = status, at


class _Flatbuffer:
    """The bytes, and what may still be taken out of them.

    Offsets may point anywhere, so that a few bytes can be a tree without end. In what writers make,
    each table takes 8 bytes at least, and no text stands in many places: past that it is an attack.
    """

    __slots__ = ("data", "tables", "text")

    def __init__(self, data: Any) -> None:
        self.data = memoryview(data)
        self.tables, self.text = len(self.data) // 8, 4 * len(self.data)

    def read(self, form: str, at: int) -> int:
        if not 0 <= at <= len(self.data) - struct.calcsize(form):
            raise _Bad(BAD_OFFSET, min(max(at, 0), len(self.data)))
        return int(struct.unpack_from(form, self.data, at)[0])

    def root(self) -> _Table:
        return _Table(self, self.read("<I", 0))


class _Table:
    """One table: where each of its fields lies, if it is there at all."""

    __slots__ = ("at", "buffer", "slots")

    def __init__(self, buffer: _Flatbuffer, at: int) -> None:
        vtable = at - buffer.read("<i", at)
        size = buffer.read("<H", vtable)
        if size < 4 or size % 2 or vtable + size > len(buffer.data):
            raise _Bad(BAD_OFFSET, at)
        self.buffer, self.at = buffer, at
        self.slots = struct.unpack_from(f"<{size // 2 - 2}H", buffer.data, vtable + 4)

    def place(self, slot: int) -> int:
        """Where a field lies; 0, where nothing can lie, if the table does not have it."""
        return self.at + self.slots[slot] if slot < len(self.slots) and self.slots[slot] else 0

    def number(self, slot: int, form: str, default: int = 0) -> int:
        at = self.place(slot)
        return self.buffer.read(form, at) if at else default

    def behind(self, slot: int) -> int:
        """What an offset points at; 0 if there is none."""
        at = self.place(slot)
        return at + self.buffer.read("<I", at) if at else 0

    def table(self, slot: int) -> _Table | None:
        at = self.behind(slot)
        return _Table(self.buffer, at) if at else None

    def vector(self, slot: int, item: int) -> tuple[int, int]:
        """(how many, where the first is) of items of so many bytes."""
        at = self.behind(slot)
        if not at:
            return 0, 0
        count = self.buffer.read("<I", at)
        if count * item > len(self.buffer.data) - at - 4:
            raise _Bad(BAD_OFFSET, at)
        return count, at + 4

    def tables(self, slot: int) -> list[_Table]:
        count, at = self.vector(slot, 4)
        if count > self.buffer.tables:
            raise _Bad(SHARED, at)
        self.buffer.tables -= count
        return [
            _Table(self.buffer, place + self.buffer.read("<I", place))
            for place in range(at, at + 4 * count, 4)
        ]

    def text(self, slot: int) -> str:
        count, at = self.vector(slot, 1)
        if count > self.buffer.text:
            raise _Bad(SHARED, at)
        self.buffer.text -= count
        try:
            return str(self.buffer.data[at : at + count], "utf-8")
        except UnicodeDecodeError:
            raise _Bad(BAD_UTF8, at) from None

    def pairs(self, slot: int) -> list[tuple[str, str]]:
        return [(pair.text(0), pair.text(1)) for pair in self.tables(slot)]

    def structs(self, slot: int, form: str) -> Any:
        """Structs of numbers: int64 [count, numbers in each]."""
        item = np.dtype(form)
        count, at = self.vector(slot, item.itemsize)
        found = np.frombuffer(self.buffer.data, item, count, at) if count else np.zeros(0, item)
        return np.stack([found[name].astype(np.int64) for name in item.names or ()], axis=1)


def ipc_message(data: Any) -> tuple[int, int, int, int, int, Any]:
    try:
        root = _Flatbuffer(data).root()
        kind, header = root.number(1, "<B"), root.table(2)
        if header is None or kind not in (1, 2, 3):
            raise _Bad(WRONG_MESSAGE, root.at)
        body = root.number(3, "<q")
        return (
            0,
            0,
            root.number(0, "<h"),
            kind,
            body,
            _schema(header) if kind == 1 else _HEADERS[kind](header, body),
        )
    except _Bad as bad:
        return bad.status, bad.at, 0, 0, 0, None


def ipc_footer(data: Any) -> tuple[int, int, int, Any, Any, Any]:
    try:
        root = _Flatbuffer(data).root()
        schema = root.table(1)
        if schema is None:
            raise _Bad(WRONG_MESSAGE, root.at)
        found = _schema(schema)
        dictionaries, batches = (
            np.ascontiguousarray(root.structs(slot, "<i8,<i4,<i4,<i8")[:, [0, 1, 3]])
            for slot in (2, 3)
        )
        return 0, 0, root.number(0, "<h"), found, dictionaries, batches
    except _Bad as bad:
        return bad.status, bad.at, 0, None, None, None


def _schema(table: _Table) -> tuple[int, list[Any], list[tuple[str, str]]]:
    fields: list[Any] = []
    for field in table.tables(1):
        _field(field, fields, 0)
    return table.number(0, "<h"), fields, table.pairs(2)


def _field(table: _Table, out: list[Any], depth: int) -> None:
    """Appends a field, and then those inside of it."""
    if depth == DEPTH:
        raise _Bad(NESTED, table.at)
    kind, about, code = table.number(2, "<B"), table.table(3), table.table(4)
    width = signed = 0
    if about is not None and kind in (INT, FIXED_LIST, FIXED_BINARY):
        width = about.number(0, "<i")
        signed = about.number(1, "<B") if kind == INT else 0
    elif about is not None and kind in (FLOAT, UNION):
        width = about.number(0, "<h")
    coded = None
    if code is not None:
        index = code.table(1)
        coded = (
            code.number(0, "<q"),
            *((index.number(0, "<i"), index.number(1, "<B")) if index is not None else (32, 1)),
        )
    name, pairs, children = table.text(0), table.pairs(6), table.tables(5)
    out.append((name, kind, width, signed, len(children), coded, pairs))
    for child in children:
        _field(child, out, depth + 1)


def _dictionary(table: _Table, body: int) -> tuple[int, int, Any]:
    data = table.table(1)
    if data is None:
        raise _Bad(WRONG_MESSAGE, table.at)
    return table.number(0, "<q"), table.number(2, "<B"), _batch(data, body)


def _batch(table: _Table, body: int) -> tuple[int, Any, Any, int, list[int]]:
    packed, codec = table.table(3), -1
    if packed is not None:
        codec = packed.number(0, "<b")
        if codec not in (0, 1) or packed.number(1, "<b"):
            raise _Bad(WRONG_MESSAGE, packed.at)
    length, nodes, buffers = (
        table.number(0, "<q"),
        table.structs(1, "<i8,<i8"),
        table.structs(2, "<i8,<i8"),
    )
    counts: list[int] = table.structs(4, "<i8,").reshape(-1).tolist()
    if (
        min(length, body, *counts) < 0
        or (nodes[:, 1] > nodes[:, 0]).any()
        or (nodes < 0).any()
        or not _in_order(buffers, body)
    ):
        raise _Bad(BAD_LAYOUT, table.at)
    return length, nodes, buffers, codec, counts


def _in_order(buffers: Any, body: int) -> bool:
    """Whether buffers follow each other inside the body, as writers write them: none is used twice."""
    end = 0
    for start, size in buffers.tolist():
        if size < 0 or start < end or start > body - size:
            return False
        end = start + size
    return True


_HEADERS = {2: _dictionary, 3: _batch}
