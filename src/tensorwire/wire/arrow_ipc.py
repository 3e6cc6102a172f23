"""Messages of Arrow's IPC format: schemas, record batches and file footers, validated.

The messages are flatbuffers. pyarrow crashes on some invalid ones, so untrusted bytes are read by
these rules instead:
1. All offsets stay inside the message.
2. Nesting and names are bounded by the size of the message.
3. Buffers lie in the body in order and do not overlap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .._errors import DecodeError
from . import kernels, status

FORMAT = "arrow"
MAGIC = b"ARROW1"
MARK = b"\xff\xff\xff\xff"
"""The bytes before every message, since Arrow 0.15."""

NULL, INT, FLOAT, BINARY, TEXT, BOOL, DECIMAL, DATE, TIME, TIMESTAMP, INTERVAL, LIST, STRUCT = (
    range(1, 14)
)
UNION, FIXED_BINARY, FIXED_LIST, MAP, DURATION, LARGE_BINARY, LARGE_TEXT, LARGE_LIST = range(14, 22)
RUNS, BINARY_VIEW, TEXT_VIEW, LIST_VIEW, LARGE_LIST_VIEW = range(22, 27)
NAMES = (
    "null int float binary string bool decimal date time timestamp interval list struct union"
    " fixed_size_binary fixed_size_list map duration large_binary large_string large_list"
    " run_end_encoded binary_view string_view list_view large_list_view"
).split()
_BUFFERS = (0, 2, 2, 3, 3, 2, 2, 2, 2, 2, 2, 2, 1, 1, 2, 1, 2, 2, 3, 3, 2, 0, 2, 2, 3, 3)
"""The number of buffers of each type, by type number - 1. Views have more, and a dense union has one
more.
"""
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
V4, V5 = 3, 4
"""Metadata versions as stored in a message. Since V5, unions have no validity bitmap."""


class IpcField(NamedTuple):
    """A column, or a child of one."""

    name: str
    kind: int
    """The type number."""
    width: int
    """Bits of an integer, the precision of a float, the length of a fixed-size list or binary, the
    mode of a union.
    """
    signed: int
    children: list[IpcField]
    coded: tuple[int, int, int] | None
    """(dictionary id, bits of an index, whether it is signed) of a dictionary-encoded field."""
    metadata: dict[str, str]

    @property
    def buffers(self) -> int:
        if self.coded:
            return 2
        return _BUFFERS[self.kind - 1] + (self.kind == UNION and self.width == 1)

    @property
    def views(self) -> bool:
        return self.kind in (BINARY_VIEW, TEXT_VIEW) and not self.coded


class IpcSchema(NamedTuple):
    fields: list[IpcField]
    metadata: dict[str, str]
    big_endian: bool = False


class IpcBatch(NamedTuple):
    """A record batch: where the buffers of its columns lie in the body."""

    length: int
    nodes: list[list[int]]
    """(length, nulls) of each array, parents before children."""
    buffers: list[list[int]]
    """(offset, length)"""
    codec: int
    """-1 none, 0 LZ4 frames, 1 Zstandard"""
    counts: list[int]
    """The number of data buffers of each array of views."""


class IpcMessage(NamedTuple):
    version: int
    """The metadata version: V4 is 3, V5 is 4."""
    kind: int
    body: int
    """Bytes of the body that follows the message."""
    schema: IpcSchema | None = None
    batch: IpcBatch | None = None
    id: int = 0
    delta: bool = False


class Footer(NamedTuple):
    schema: IpcSchema
    dictionaries: list[list[int]]
    """(offset, length of the message, length of its body) of each dictionary."""
    batches: list[list[int]]


def message(data: Any, base: int) -> IpcMessage:
    """Parse a message. `base` is where it begins in the whole input."""
    code, offset, version, kind, body, content = kernels.ipc_message(data)
    _check(code, offset, version, base)
    if kind == SCHEMA:
        return IpcMessage(version, kind, body, schema=_schema(content, base))
    if kind == BATCH:
        return IpcMessage(version, kind, body, batch=_batch(content))
    return IpcMessage(
        version, kind, body, batch=_batch(content[2]), id=content[0], delta=bool(content[1])
    )


def footer(data: Any, base: int) -> Footer:
    """Parse the footer of a file."""
    code, offset, version, schema, dictionaries, batches = kernels.ipc_footer(data)
    # Arrow 0.14 writes a version into every message, but not into the footer.
    _check(code, offset, version or V4, base)
    return Footer(_schema(schema, base), dictionaries.tolist(), batches.tolist())


def _check(code: int, offset: int, version: int, base: int) -> None:
    if code:
        raise status.problem(code, base + offset, FORMAT)
    if version not in (V4, V5):
        raise DecodeError(
            f"unsupported Arrow metadata version {version + 1}: supported are 4 and 5 (Arrow 0.8"
            " and later)",
            format=FORMAT,
            offset=base,
        )


def _batch(fields: Any) -> IpcBatch:
    length, nodes, buffers, codec, counts = fields
    return IpcBatch(length, nodes.tolist(), buffers.tolist(), codec, counts)


def _schema(content: Any, base: int) -> IpcSchema:
    order, flat, pairs = content
    rows = iter(flat)
    fields = []
    for row in rows:
        fields.append(_field(row, rows, base))
    return IpcSchema(fields, _texts(pairs, base), bool(order))


def _field(row: Any, rows: Any, base: int) -> IpcField:
    name, kind, width, signed, inside, coded, pairs = row
    if not 1 <= kind <= len(NAMES):
        raise DecodeError(f"unknown Arrow type number {kind}", tensor=name, offset=base)
    children = [_field(next(rows), rows, base) for _ in range(inside)] if inside else []
    return IpcField(
        name, kind, width, signed, children, coded, _texts(pairs, base) if pairs else {}
    )


def _texts(pairs: list[tuple[str, str]], base: int) -> dict[str, str]:
    texts = dict(pairs)
    if len(texts) != len(pairs):
        raise DecodeError("a metadata key appears twice", offset=base)
    return texts
