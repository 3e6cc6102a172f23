"""The part of the seed corpus that is about Arrow: flatbuffers of messages and footers, by hand,
sound and hostile.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

MESSAGE, FOOTER = b"\0", b"\1"
INT, FLOAT, LIST, FIXED_LIST, LARGE_TEXT = 2, 3, 12, 16, 20


class Table(NamedTuple):
    """Its fields: None, a number as (struct code, value), text, a Table, a list of Tables, or
    Structs.
    """

    fields: tuple[Any, ...]


class Structs(NamedTuple):
    rows: tuple[tuple[int, ...], ...]


def table(*fields: Any) -> Table:
    return Table(fields)


def structs(*rows: tuple[int, ...]) -> Structs:
    return Structs(rows)


def flatbuffer(root: Table) -> bytearray:
    out = bytearray(4)
    point(out, 0, put(out, root))
    return out


def point(out: bytearray, at: int, target: int) -> None:
    struct.pack_into("<I", out, at, target - at)


def put(out: bytearray, item: Any) -> int:
    """Appends what an offset points at; returns where it is."""
    if isinstance(item, Table):
        return put_table(out, item.fields)
    rows = item.rows if isinstance(item, Structs) else ()
    out += bytes(-(len(out) + 4) % 8)
    at = len(out)
    if isinstance(item, str):
        out += struct.pack("<I", len(item.encode())) + item.encode() + b"\0"
    elif isinstance(item, Structs):
        out += struct.pack("<I", len(rows)) + b"".join(
            struct.pack(f"<{len(row)}q", *row) for row in rows
        )
    else:
        out += struct.pack("<I", len(item)) + bytes(4 * len(item))
        for i, one in enumerate(item):
            point(out, at + 4 + 4 * i, put(out, one))
    return at


def put_table(out: bytearray, fields: tuple[Any, ...]) -> int:
    codes = ["" if field is None else field[0] if type(field) is tuple else "I" for field in fields]
    places, end = [], 4
    for code in codes:
        size = struct.calcsize(code) or 1
        end += -end % size if code else 0
        places.append(end if code else 0)
        end += size if code else 0
    out += bytes(-len(out) % 8)
    vtable = len(out)
    out += struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), end, *places)
    out += bytes(-len(out) % 8)
    at = len(out)
    out += struct.pack("<i", at - vtable) + bytes(end - 4)
    for field, place in zip(fields, places, strict=True):
        if type(field) is tuple:
            struct.pack_into(f"<{field[0]}", out, at + place, field[1])
        elif field is not None:
            point(out, at + place, put(out, field))
    return at


def pairs(**texts: str) -> list[Table]:
    return [table(key, text) for key, text in texts.items()]


def field(
    name: str,
    kind: int,
    *children: Table,
    about: Table | None = None,
    coded: Any = None,
    texts: Any = None,
) -> Table:
    return table(name, ("B", 1), ("B", kind), about or table(), coded, list(children), texts)


def arrow_ipc() -> dict[str, bytes]:
    number = field("x", INT, about=table(("i", 64), ("B", 1)))
    small = field("item", FLOAT, about=table(("h", 1)))
    fixed = field(
        "f",
        FIXED_LIST,
        small,
        about=table(("i", 6)),
        texts=pairs(name="arrow.fixed_shape_tensor", metadata='{"shape":[2,3]}'),
    )
    coded = field("d", LARGE_TEXT, coded=table(("q", 7), table(("i", 8), ("B", 0))))
    schema = table(
        ("h", 0),
        [number, field("l", LIST, small), fixed, coded, field("é", LARGE_TEXT)],
        pairs(a="b"),
    )
    plain = table(None, [number, fixed])
    nodes, buffers = structs((3, 0), (3, 1)), structs((0, 0), (0, 24), (64, 0), (64, 32))
    batch = table(("q", 3), nodes, buffers)
    packed = table(("q", 3), nodes, buffers, table(("b", 1)), structs((2,), (0,)))
    blocks = structs((8, 100, 64), (200, 64, 0))

    def message(kind: int, header: Any, body: int = 96) -> bytes:
        return MESSAGE + flatbuffer(table(("h", 4), ("B", kind), header, ("q", body)))

    def footer(*fields: Any) -> bytes:
        return FOOTER + flatbuffer(table(("h", 4), *fields))

    nested = small
    for _ in range(70):
        nested = field("", LIST, nested)
    shared = flatbuffer(table(("h", 4), ("B", 1), table(None, [number] * 9), ("q", 0)))
    first = shared.index(struct.pack("<I", 9)) + 4
    for i in range(1, 9):  # nine fields that are one
        point(shared, first + 4 * i, first + struct.unpack_from("<I", shared, first)[0])
    twice = flatbuffer(
        table(("h", 4), ("B", 1), table(None, [field("x", LIST, number, number)]), ("q", 0))
    )
    inner = twice.rindex(struct.pack("<I", 2)) + 4
    outer = twice.index(struct.pack("<I", 1)) + 4
    for i in range(2):  # a field inside of itself, twice
        struct.pack_into(
            "<I",
            twice,
            inner + 4 * i,
            (outer + struct.unpack_from("<I", twice, outer)[0] - inner - 4 * i) & 0xFFFFFFFF,
        )
    sound = message(3, batch)
    return {
        "schema": message(1, schema),
        "schema_plain": message(1, plain),
        "schema_empty": message(1, table()),
        "batch": sound,
        "batch_packed": message(3, packed),
        "batch_empty": message(3, table(), 0),
        "batch_codec": message(3, table(("q", 1), nodes, buffers, table(("b", 2)))),
        "batch_past_body": message(3, batch, 8),
        "batch_overlap": message(3, table(("q", 3), nodes, structs((0, 24), (16, 8)))),
        "batch_far": message(3, table(("q", 3), nodes, structs(((1 << 63) - 1, 1 << 62)))),
        "batch_negative": message(3, table(("q", -3), nodes, buffers)),
        "batch_nulls": message(3, table(("q", 3), structs((3, 4)), buffers)),
        "dictionary": message(2, table(("q", 7), batch, ("B", 1))),
        "dictionary_empty": message(2, table(("q", 7))),
        "tensor": message(4, table()),
        "no_header": message(1, None),
        "footer": footer(schema, structs(), blocks),
        "footer_dictionaries": footer(schema, blocks, blocks),
        "footer_empty": footer(),
        "nested_deep": message(1, table(None, [nested])),
        "shared": MESSAGE + shared,
        "inside_itself": MESSAGE + twice,
        "text_not_utf8": (
            message(1, table(None, [field("?", INT)])).replace(b"\1\0\0\0?", b"\1\0\0\0\xff")
        ),
        "cut": sound[: len(sound) // 2],
        "root_far": MESSAGE + b"\xff\xff\xff\x7f" + bytes(8),
        "nothing": MESSAGE,
    }


TARGETS = (arrow_ipc,)
