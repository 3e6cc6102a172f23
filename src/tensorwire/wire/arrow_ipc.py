"""The messages of Arrow's IPC format: what a schema, a batch and a file's footer say, checked
before anyone believes it.

They are flatbuffers. pyarrow reads them too, and crashes on some that are bad, so bytes from
strangers are read here: offsets stay inside the message, nesting and names are bounded by its size,
and buffers lie in the body one after the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .._errors import DecodeError
from . import kernels, status

FORMAT = "arrow"
MAGIC = b"ARROW1"
MARK = b"\xff\xff\xff\xff"
"""Before every message, since Arrow 0.15."""

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
"""Of each type, in the order of the numbers; views have further ones, and a union one more in some
cases.
"""
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
V4, V5 = 3, 4
"""Versions of the metadata, as a message says them. Since V5, unions have no validity bitmap."""


class IpcField(NamedTuple):
    """A column, or what is inside of one."""

    name: str
    kind: int
    """The number of its type."""
    width: int
    """Bits of an integer, the precision of a float, the length of a fixed-size list or binary, the
    mode of a union.
    """
    signed: int
    children: list[IpcField]
    coded: tuple[int, int, int] | None
    """(id of the dictionary, bits of the index, whether it is signed) if what is stored are places
    in a dictionary.
    """
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
    """Rows of all columns: where their buffers lie in the body."""

    length: int
    nodes: list[list[int]]
    """(length, nulls) of each array, those inside behind the one around them."""
    buffers: list[list[int]]
    """(offset, length)"""
    codec: int
    """-1 none, 0 LZ4 frames, 1 Zstandard"""
    counts: list[int]
    """Further buffers of each array of views."""


class IpcMessage(NamedTuple):
    version: int
    """Of the metadata: V4 is 3, V5 is 4."""
    kind: int
    body: int
    """Bytes that follow it."""
    schema: IpcSchema | None = None
    batch: IpcBatch | None = None
    id: int = 0
    delta: bool = False


class Footer(NamedTuple):
    schema: IpcSchema
    dictionaries: list[list[int]]
    """(offset, length of the message, length of its body) of each"""
    batches: list[list[int]]


def message(data: Any, base: int) -> IpcMessage:
    """What a message says; `base` is where it begins in the whole input."""
    code, at, version, kind, body, found = kernels.ipc_message(data)
    _check(code, at, version, base)
    if kind == SCHEMA:
        return IpcMessage(version, kind, body, schema=_schema(found, base))
    if kind == BATCH:
        return IpcMessage(version, kind, body, batch=_batch(found))
    return IpcMessage(
        version, kind, body, batch=_batch(found[2]), id=found[0], delta=bool(found[1])
    )


def footer(data: Any, base: int) -> Footer:
    """What the end of a file says."""
    code, at, version, schema, dictionaries, batches = kernels.ipc_footer(data)
    # Arrow 0.14 writes a version in every message, and none here.
    _check(code, at, version or V4, base)
    return Footer(_schema(schema, base), dictionaries.tolist(), batches.tolist())


def _check(code: int, at: int, version: int, base: int) -> None:
    if code:
        raise status.problem(code, base + at, FORMAT)
    if version not in (V4, V5):
        raise DecodeError(
            f"metadata of version {version + 1}; those of Arrow 0.8 and later, 4 and 5, are read",
            format=FORMAT,
            offset=base,
        )


def _batch(found: Any) -> IpcBatch:
    length, nodes, buffers, codec, counts = found
    return IpcBatch(length, nodes.tolist(), buffers.tolist(), codec, counts)


def _schema(found: Any, base: int) -> IpcSchema:
    order, flat, pairs = found
    rows = iter(flat)
    fields = []
    for row in rows:
        fields.append(_field(row, rows, base))
    return IpcSchema(fields, _texts(pairs, base), bool(order))


def _field(row: Any, rows: Any, base: int) -> IpcField:
    name, kind, width, signed, inside, coded, pairs = row
    if not 1 <= kind <= len(NAMES):
        raise DecodeError(
            f"the type number {kind}, which this release does not know", tensor=name, offset=base
        )
    children = [_field(next(rows), rows, base) for _ in range(inside)] if inside else []
    return IpcField(
        name, kind, width, signed, children, coded, _texts(pairs, base) if pairs else {}
    )


def _texts(pairs: list[tuple[str, str]], base: int) -> dict[str, str]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DecodeError("a key of the metadata stands twice", offset=base)
    return found
