"""Columns as the bytes of an Arrow file or stream, in one batch. Large data is not copied, unless
it is compressed.

The body, and each buffer in it, begins at a multiple of 64, which Arrow recommends and any array is
aligned by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import memory
from ...core.memory import Buffer
from ...transforms.compression import streams
from ...wire import arrow_ipc as ipc
from ...wire import kernels
from .buffers import CODECS
from .table import TableColumns

if TYPE_CHECKING:
    import pyarrow as pa

_ALIGN = 64
_END = ipc.MARK + bytes(4)
_PARALLEL = 1 << 20
"""Bytes from which on buffers are compressed in threads."""


def chunks(
    table: TableColumns, stream: bool, codec: pa.Codec | None = None, parquet: bool = False
) -> list[Buffer]:
    """The whole file, or stream; `parquet` is for what will be a Parquet file."""
    columns, pairs = table.arrow(empty_lists=parquet), list(table.texts.items())
    plain = columns.buffers
    out = _Chunks()
    if not stream:
        out.add(ipc.MAGIC + b"\0\0")
    out.message(kernels.ipc_schema(columns.fields, pairs), 8)
    blocks = []
    if columns.fields:
        buffers = plain if codec is None else _compressed(plain, codec)
        places, body = [], 0
        for buffer in buffers:
            places.append((body, len(buffer)))
            body += len(buffer) + -len(buffer) % _ALIGN
        # bytes that mean nothing, so that whoever reads it with the default limits can
        if codec is not None:
            body += -(-streams.filling(sum(map(len, plain)), body) // _ALIGN) * _ALIGN
        number = -1 if codec is None else CODECS.index(codec.name)
        start, rows = out.size, 1 if table.rows is None else table.rows
        length = out.message(kernels.ipc_batch(rows, columns.nodes, places, number, body), _ALIGN)
        for buffer in buffers:
            out.add(buffer)
            out.add(bytes(-len(buffer) % _ALIGN))
        out.add(bytes(start + length + body - out.size))
        blocks.append((start, length, body))
    out.add(_END)
    if not stream:
        footer = kernels.ipc_end(columns.fields, pairs, blocks)
        out.add(footer + len(footer).to_bytes(4, "little") + ipc.MAGIC)
    return out.finish()


class _Chunks:
    """Buffers one after the other: small ones are put together, large ones stay what they are."""

    def __init__(self) -> None:
        self.size = 0
        self._done: list[Buffer] = []
        self._small = bytearray()

    def add(self, data: Buffer) -> None:
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

    def finish(self) -> list[Buffer]:
        return [*self._done, bytes(self._small)] if self._small else self._done


def _compressed(buffers: list[Buffer], codec: pa.Codec) -> list[Buffer]:
    """Each with its size before it; -1, and as it was, where compressing does not make it smaller."""

    def one(buffer: Buffer) -> Buffer:
        if not len(buffer):
            return b""
        packed = codec.compress(buffer, asbytes=True)
        return (
            len(buffer).to_bytes(8, "little") + packed
            if len(packed) < len(buffer)
            else b"\xff" * 8 + bytes(buffer)
        )

    parallel = sum(map(len, buffers)) >= _PARALLEL
    return list(streams.map_parallel(one, buffers, streams.cores(None) if parallel else 1))
