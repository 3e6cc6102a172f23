"""Columns as the bytes of an Arrow file or stream, in one batch. Large data is not copied, unless
it is compressed.

The body, and each buffer in it, begins at a multiple of 64, which Arrow recommends and any array is
aligned by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core import dtypes, memory
from ...core.tensors import Array, Strings
from ...transforms.compression import streams
from ...wire import arrow_ipc as ipc
from ...wire import json as jsontext
from ...wire import kernels
from .buffers import CODECS
from .schema import KEY, TENSOR
from .table import ColumnGroup, TableColumns

_ALIGN = 64
_END = ipc.MARK + bytes(4)
_TYPES = {
    f"{sign}int{bits}": (ipc.INT, bits, int(not sign))
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
} | {
    "float16": (ipc.FLOAT, 0, 0),
    "float32": (ipc.FLOAT, 1, 0),
    "float64": (ipc.FLOAT, 2, 0),
    "bool": (ipc.BOOL, 0, 0),
}
_PARALLEL = 1 << 20
"""Bytes from which on buffers are compressed in threads."""


class Table:
    """The fields of a schema, and the arrays and buffers of its one batch.

    Parquet has no lists of the fixed size 0 (pyarrow ends the process where it meets one), so for
    it rows without elements are lists that happen to be empty, and the field's metadata say the
    dimensions inside.

    `present` says which rows of a column have a value; the others are null. `plain` writes rows of
    one dimension as fixed-size lists.
    """

    def __init__(
        self,
        found: TableColumns,
        parquet: bool = False,
        present: Mapping[str, Array] | None = None,
        plain: bool = False,
    ) -> None:
        self._parquet, self._plain = parquet, plain
        self.fields: list[Any] = []
        self.pairs = list(found.texts.items())
        self.rows = 1 if found.rows is None else found.rows
        self.nodes: list[tuple[int, int]] = []
        self.buffers: list[Any] = []
        at = 0
        for group in found.groups:
            parts = found.parts[at : at + group.size]
            at += group.size
            node, buffer = len(self.nodes), len(self.buffers)
            if found.rows is None:
                self._cell(group, parts[0])
            elif group.size > 1:
                self._lists(group, parts)
            else:
                self._column(group, parts[0])
            valid = None if present is None else present.get(group.name)
            if valid is not None and not valid.all():
                self.nodes[node] = len(valid), int(len(valid) - valid.sum())
                self.buffers[buffer] = memory.chunk(np.packbits(valid, bitorder="little"))

    def _cell(self, group: ColumnGroup, part: Any) -> None:
        self._array(
            group.name,
            ipc.LARGE_LIST,
            1,
            [np.array([0, math.prod(part.shape)], np.int64)],
            1,
            said=_said(group, list(part.shape)),
        )
        self._flat("item", part)

    def _lists(self, group: ColumnGroup, parts: list[Any]) -> None:
        name, said = group.name, _said(group, inner=self._empty(parts[0]))
        for splits in parts[1:]:
            self._array(
                name,
                ipc.LIST if splits.dtype == np.int32 else ipc.LARGE_LIST,
                len(splits) - 1,
                [splits],
                1,
                said=said,
            )
            name, said = "item", []
        self._fixed(name, parts[0])

    def _column(self, group: ColumnGroup, part: Any) -> None:
        if isinstance(part, Strings) or self._empty(part):
            self._fixed(group.name, part, _said(group, inner=self._empty(part)))
        elif part.ndim == 1:
            self._flat(group.name, part, _said(group))
        else:
            inner = part.shape[1:]
            shape = jsontext.write({"shape": list(inner)}).decode()
            about = [("ARROW:extension:name", TENSOR), ("ARROW:extension:metadata", shape)]
            about = [] if self._plain and len(inner) == 1 else about
            self._array(
                group.name, ipc.FIXED_LIST, len(part), [], 1, math.prod(inner), about + _said(group)
            )
            self._flat("item", part)

    def _empty(self, part: Any) -> list[int] | None:
        """The dimensions of rows that have no elements, where that must be said."""
        return list(part.shape[1:]) if self._parquet and 0 in part.shape[1:] else None

    def _fixed(self, name: str, part: Any, said: Any = ()) -> None:
        """A fixed-size list for each further dimension."""
        count, inner = part.shape[0], part.shape[1:]
        if self._empty(part):
            self._array(name, ipc.LIST, count, [np.zeros(count + 1, np.int32)], 1, said=said)
            name, inner = "item", ()
        for size in inner:
            self._array(name, ipc.FIXED_LIST, count, [], 1, size, said)
            name, count, said = "item", count * size, ()
        self._flat(name, part, said if name != "item" else ())

    def _flat(self, name: str, part: Any, said: Any = ()) -> None:
        """The elements of a tensor."""
        if isinstance(part, Strings):
            self._array(
                name,
                ipc.LARGE_TEXT if part.text else ipc.LARGE_BINARY,
                part.size,
                [part.offsets, part.data],
                said=said,
            )
            return
        kind, width, signed = _TYPES[dtypes.of(part.dtype).name]
        data = np.packbits(part.reshape(-1), bitorder="little") if kind == ipc.BOOL else part
        self._array(name, kind, part.size, [data], 0, width, said, signed)

    def _array(
        self,
        name: str,
        kind: int,
        length: int,
        buffers: list[Array],
        inside: int = 0,
        width: int = 0,
        said: Any = (),
        signed: int = 0,
    ) -> None:
        self.fields.append((name, kind, width, signed, inside, None, said))
        self.nodes.append((length, 0))
        self.buffers.append(b"")  # no nulls, so no bitmap of them
        self.buffers += [memory.chunk(np.ascontiguousarray(buffer)) for buffer in buffers]


def _said(
    group: ColumnGroup, shape: list[int] | None = None, inner: list[int] | None = None
) -> list[tuple[str, str]]:
    """Our metadata of a column: only what its type does not say."""
    node = group.node or {}
    said: dict[str, Any] = {
        key: dims for key, dims in (("shape", shape), ("inner", inner)) if dims is not None
    }
    plain = node.get("ragged", node)
    if "dtype" in plain and "quantized" not in plain:
        said["dtype"] = plain["dtype"]
    if "uniform" in node:
        said["uniform"] = node["uniform"]
    return [(KEY, jsontext.write(said).decode())] if said else []


def chunks(table: Table, stream: bool, codec: Any = None) -> list[Any]:
    """The whole file, or stream. `codec` is pyarrow's."""
    out = _Chunks()
    if not stream:
        out.add(ipc.MAGIC + b"\0\0")
    out.message(kernels.ipc_schema(table.fields, table.pairs), 8)
    blocks = []
    if table.fields:
        buffers = table.buffers if codec is None else _compressed(table.buffers, codec)
        places, body = [], 0
        for buffer in buffers:
            places.append((body, len(buffer)))
            body += len(buffer) + -len(buffer) % _ALIGN
        # bytes that mean nothing, so that whoever reads it with the default limits can
        if codec is not None:
            body += -(-streams.filling(sum(map(len, table.buffers)), body) // _ALIGN) * _ALIGN
        number = -1 if codec is None else CODECS.index(codec.name)
        start = out.size
        length = out.message(
            kernels.ipc_batch(table.rows, table.nodes, places, number, body), _ALIGN
        )
        for buffer in buffers:
            out.add(buffer)
            out.add(bytes(-len(buffer) % _ALIGN))
        out.add(bytes(start + length + body - out.size))
        blocks.append((start, length, body))
    out.add(_END)
    if not stream:
        footer = kernels.ipc_end(table.fields, table.pairs, blocks)
        out.add(footer + len(footer).to_bytes(4, "little") + ipc.MAGIC)
    return out.finish()


class _Chunks:
    """Buffers one after the other: small ones are put together, large ones stay what they are."""

    def __init__(self) -> None:
        self.size = 0
        self._done: list[Any] = []
        self._small = bytearray()

    def add(self, data: Any) -> None:
        if len(data) <= memory.INLINE:
            self._small += data
        else:
            self._done += [bytes(self._small), data] if self._small else [data]
            self._small = bytearray()
        self.size += len(data)

    def message(self, flatbuffer: bytes, align: int) -> int:
        """Adds one whose body will begin at a multiple of `align`; returns its length."""
        pad = -(self.size + 8 + len(flatbuffer)) % align
        self.add(ipc.MARK + (len(flatbuffer) + pad).to_bytes(4, "little") + flatbuffer + bytes(pad))
        return 8 + len(flatbuffer) + pad

    def finish(self) -> list[Any]:
        return [*self._done, bytes(self._small)] if self._small else self._done


def _compressed(buffers: list[Any], codec: Any) -> list[Any]:
    """Each with its size before it; -1, and as it was, where compressing does not make it smaller."""

    def one(buffer: Any) -> Any:
        if not len(buffer):
            return b""
        packed = codec.compress(buffer, asbytes=True)
        return (
            len(buffer).to_bytes(8, "little") + packed
            if len(packed) < len(buffer)
            else b"\xff" * 8 + bytes(buffer)
        )

    parallel = sum(map(len, buffers)) >= _PARALLEL
    return list(streams.each(one, buffers, streams.cores(None) if parallel else 1))
