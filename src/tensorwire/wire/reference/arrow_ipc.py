"""Messages and footers of Arrow IPC files: flatbuffers, validated while they are read."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..status import BAD_LAYOUT, BAD_OFFSET, BAD_UTF8, NESTED, SHARED, WRONG_MESSAGE

DEPTH = 64
INT, FLOAT, UNION, FIXED_BINARY, FIXED_LIST = 2, 3, 14, 15, 16


class _Bad(Exception):
    def __init__(self, status: int, offset: int) -> None:
        super().__init__(status, offset)
        self.status, self.offset = status, offset


class _Flatbuffer:
    """The bytes of a message, and how many tables and how much text may still be read from them.

    Offsets may point anywhere, so a few bytes can describe a huge tree. In messages of real writers
    each table takes at least 8 bytes, and text is rarely shared. More than that is an attack.
    """

    __slots__ = ("data", "tables", "text")

    def __init__(self, data: Any) -> None:
        self.data = memoryview(data)
        self.tables, self.text = len(self.data) // 8, 4 * len(self.data)

    def read(self, form: str, offset: int) -> int:
        if not 0 <= offset <= len(self.data) - struct.calcsize(form):
            raise _Bad(BAD_OFFSET, min(max(offset, 0), len(self.data)))
        return int(struct.unpack_from(form, self.data, offset)[0])

    def root(self) -> _Table:
        return _Table(self, self.read("<I", 0))


class _Table:
    """A table: the offsets of its fields."""

    __slots__ = ("buffer", "offset", "slots")

    def __init__(self, buffer: _Flatbuffer, offset: int) -> None:
        vtable = offset - buffer.read("<i", offset)
        size = buffer.read("<H", vtable)
        if size < 4 or size % 2 or vtable + size > len(buffer.data):
            raise _Bad(BAD_OFFSET, offset)
        self.buffer, self.offset = buffer, offset
        self.slots = struct.unpack_from(f"<{size // 2 - 2}H", buffer.data, vtable + 4)

    def place(self, slot: int) -> int:
        """Return the offset of a field, or 0 if the table does not have it.

        No field can be at 0, where the offset of the root table is.
        """
        return self.offset + self.slots[slot] if slot < len(self.slots) and self.slots[slot] else 0

    def number(self, slot: int, form: str, default: int = 0) -> int:
        offset = self.place(slot)
        return self.buffer.read(form, offset) if offset else default

    def target(self, slot: int) -> int:
        """Return where the offset in a field points, or 0 if the table does not have it."""
        offset = self.place(slot)
        return offset + self.buffer.read("<I", offset) if offset else 0

    def table(self, slot: int) -> _Table | None:
        offset = self.target(slot)
        return _Table(self.buffer, offset) if offset else None

    def vector(self, slot: int, item: int) -> tuple[int, int]:
        """Return (count, offset of the first) of a vector of items of `item` bytes."""
        offset = self.target(slot)
        if not offset:
            return 0, 0
        count = self.buffer.read("<I", offset)
        if count * item > len(self.buffer.data) - offset - 4:
            raise _Bad(BAD_OFFSET, offset)
        return count, offset + 4

    def tables(self, slot: int) -> list[_Table]:
        count, offset = self.vector(slot, 4)
        if count > self.buffer.tables:
            raise _Bad(SHARED, offset)
        self.buffer.tables -= count
        return [
            _Table(self.buffer, place + self.buffer.read("<I", place))
            for place in range(offset, offset + 4 * count, 4)
        ]

    def text(self, slot: int) -> str:
        count, offset = self.vector(slot, 1)
        if count > self.buffer.text:
            raise _Bad(SHARED, offset)
        self.buffer.text -= count
        try:
            return str(self.buffer.data[offset : offset + count], "utf-8")
        except UnicodeDecodeError:
            raise _Bad(BAD_UTF8, offset) from None

    def pairs(self, slot: int) -> list[tuple[str, str]]:
        return [(pair.text(0), pair.text(1)) for pair in self.tables(slot)]

    def structs(self, slot: int, form: str) -> Any:
        """Return a vector of structs of numbers as int64 [count, numbers per struct]."""
        item = np.dtype(form)
        count, offset = self.vector(slot, item.itemsize)
        rows = np.frombuffer(self.buffer.data, item, count, offset) if count else np.zeros(0, item)
        return np.stack([rows[name].astype(np.int64) for name in item.names or ()], axis=1)


def ipc_message(data: Any) -> tuple[int, int, int, int, int, Any]:
    try:
        root = _Flatbuffer(data).root()
        kind, header = root.number(1, "<B"), root.table(2)
        if header is None or kind not in (1, 2, 3):
            raise _Bad(WRONG_MESSAGE, root.offset)
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
        return bad.status, bad.offset, 0, 0, 0, None


def ipc_footer(data: Any) -> tuple[int, int, int, Any, Any, Any]:
    try:
        root = _Flatbuffer(data).root()
        schema = root.table(1)
        if schema is None:
            raise _Bad(WRONG_MESSAGE, root.offset)
        content = _schema(schema)
        dictionaries, batches = (
            np.ascontiguousarray(root.structs(slot, "<i8,<i4,<i4,<i8")[:, [0, 1, 3]])
            for slot in (2, 3)
        )
        return 0, 0, root.number(0, "<h"), content, dictionaries, batches
    except _Bad as bad:
        return bad.status, bad.offset, 0, None, None, None


def _schema(table: _Table) -> tuple[int, list[Any], list[tuple[str, str]]]:
    fields: list[Any] = []
    for field in table.tables(1):
        _field(field, fields, 0)
    return table.number(0, "<h"), fields, table.pairs(2)


def _field(table: _Table, out: list[Any], depth: int) -> None:
    """Append a field, and then its children."""
    if depth == DEPTH:
        raise _Bad(NESTED, table.offset)
    kind, type_table, dictionary = table.number(2, "<B"), table.table(3), table.table(4)
    width = signed = 0
    if type_table is not None and kind in (INT, FIXED_LIST, FIXED_BINARY):
        width = type_table.number(0, "<i")
        signed = type_table.number(1, "<B") if kind == INT else 0
    elif type_table is not None and kind in (FLOAT, UNION):
        width = type_table.number(0, "<h")
    encoding = None
    if dictionary is not None:
        index = dictionary.table(1)
        encoding = (
            dictionary.number(0, "<q"),
            *((index.number(0, "<i"), index.number(1, "<B")) if index is not None else (32, 1)),
        )
    name, pairs, children = table.text(0), table.pairs(6), table.tables(5)
    out.append((name, kind, width, signed, len(children), encoding, pairs))
    for child in children:
        _field(child, out, depth + 1)


def _dictionary(table: _Table, body: int) -> tuple[int, int, Any]:
    data = table.table(1)
    if data is None:
        raise _Bad(WRONG_MESSAGE, table.offset)
    return table.number(0, "<q"), table.number(2, "<B"), _batch(data, body)


def _batch(table: _Table, body: int) -> tuple[int, Any, Any, int, list[int]]:
    packed, codec = table.table(3), -1
    if packed is not None:
        codec = packed.number(0, "<b")
        if codec not in (0, 1) or packed.number(1, "<b"):
            raise _Bad(WRONG_MESSAGE, packed.offset)
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
        raise _Bad(BAD_LAYOUT, table.offset)
    return length, nodes, buffers, codec, counts


def _in_order(buffers: Any, body: int) -> bool:
    """Return whether buffers lie in the body in order and do not overlap."""
    end = 0
    for start, size in buffers.tolist():
        if size < 0 or start < end or start > body - size:
            return False
        end = start + size
    return True


_HEADERS = {2: _dictionary, 3: _batch}
