"""Arrow IPC files and streams: the schema, and the positions of the record batches.

    file     "ARROW1" 2 bytes of padding | messages | footer | int32 length of the footer | "ARROW1"
    stream   messages | ff ff ff ff 00 00 00 00 (or just the end)
    message  ff ff ff ff | int32 length | flatbuffer, padded to 8 | body

Opening reads the messages and no bodies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..._errors import DecodeError, LimitError, TruncatedError
from ..._limits import Budget
from ...storage.files import Source
from ...wire import arrow_ipc as ipc
from ...wire.arrow_ipc import MAGIC, MARK, IpcMessage, IpcSchema
from .buffers import Buffers, Chunk

_LAST = 16 << 10
"""Bytes of the first read from the end, which contains most footers completely."""


@dataclass(slots=True)
class Dictionary:
    """One version of a dictionary: it is valid from a message on until it is replaced.

    Delta messages only append to it.
    """

    start: int
    chunks: list[Chunk]
    items: Any = None
    """The values, after the first read."""


class IpcFile:
    """The schema and record batches of a source."""

    def __init__(self, source: Source, limits: Budget, format: str = ipc.FORMAT) -> None:
        self.source, self.limits, self.format = source, limits, format
        self.data = Buffers(source, limits)
        self.version = ipc.V5
        """The oldest metadata version among the batches."""
        self._dictionaries: dict[int, list[Dictionary]] = {}
        head = bytes(source.read_at(0, min(8, source.size)))
        if head[:6] == MAGIC:
            schema, self.chunks = self._read_file()
        elif len(head) == 8:
            schema, self.chunks = self._read_stream()
        else:
            raise TruncatedError(f"{len(head)} bytes are too few for Arrow data", offset=len(head))
        self.fields, self.metadata, self.big_endian = schema

    def _read_file(self) -> tuple[IpcSchema, list[Chunk]]:
        size = self.source.size
        last = self.source.read_at(size - min(size, _LAST), min(size, _LAST))
        if size < 18 or bytes(last[-6:]) != MAGIC:
            raise TruncatedError(
                "the Arrow file is truncated: it does not end with ARROW1", offset=size
            )
        count = int.from_bytes(last[-10:-6], "little", signed=True)
        if not 0 < count <= size - 18:
            raise DecodeError(
                f"invalid footer length {count} in a file of {size} bytes", offset=size - 10
            )
        end = size - 10 - count
        footer = ipc.footer(
            last[-10 - count : -10] if count <= len(last) - 10 else self.source.read_at(end, count),
            end,
        )
        blocks = footer.dictionaries + footer.batches
        self._check_blocks(blocks, end)
        if len(blocks) > self.limits.names:
            raise LimitError(
                f"too many batches: {len(blocks)}; Limits(names=...) allows {self.limits.names}",
                offset=end,
            )
        for block in footer.dictionaries:
            message, chunk = self._block(block, ipc.DICTIONARY)
            if message.id in self._dictionaries and not message.delta:
                raise DecodeError(
                    "a dictionary is replaced, which only the stream format allows",
                    offset=block[0],
                )
            self._add_dictionary(message, chunk, 0)
        return footer.schema, [self._block(block, ipc.BATCH)[1] for block in footer.batches]

    def _check_blocks(self, blocks: list[list[int]], end: int) -> None:
        """Checks that blocks lie between magic and footer and do not overlap.

        So the same bytes are never read twice.
        """
        end_of_last = 8
        for offset, length, body in sorted(blocks):
            if offset < end_of_last or length < 8 or body < 0 or length + body > end - offset:
                raise DecodeError(
                    "the footer places a batch outside the file, or two batches overlap",
                    offset=end,
                )
            end_of_last = offset + length + body

    def _block(self, block: list[int], kind: int) -> tuple[IpcMessage, Chunk]:
        offset, length, body = block
        head = self.source.read_at(offset, length)
        start = 8 if bytes(head[:4]) == MARK else 4
        size = int.from_bytes(head[start - 4 : start], "little", signed=True)
        if not 0 < size <= length - start:
            raise DecodeError(
                f"invalid message length {size} in a block of {length} bytes", offset=offset
            )
        message = ipc.message(head[start : start + size], offset + start)
        if message.kind != kind or message.body != body or message.batch is None:
            raise DecodeError("a message does not match its block in the footer", offset=offset)
        self.version = min(self.version, message.version)
        return message, Chunk(message.batch, offset + length)

    def _read_stream(self) -> tuple[IpcSchema, list[Chunk]]:
        schema: IpcSchema | None = None
        chunks: list[Chunk] = []
        for count, (message, body) in enumerate(self._messages()):
            if (message.schema is not None) != (schema is None):
                raise DecodeError(
                    "a stream must begin with its schema and have only one", offset=body
                )
            if message.schema is not None:
                schema = message.schema
            elif message.batch is not None and message.kind == ipc.BATCH:
                self.version = min(self.version, message.version)
                chunks.append(Chunk(message.batch, body))
            elif message.batch is not None:
                self._add_dictionary(message, Chunk(message.batch, body), body)
            if count > self.limits.names:
                raise LimitError(
                    f"too many batches: Limits(names=...) allows {self.limits.names}",
                    offset=body,
                )
        if schema is None:
            raise DecodeError("the stream has no schema", offset=0)
        return schema, chunks

    def _add_dictionary(self, message: IpcMessage, chunk: Chunk, start: int) -> None:
        versions = self._dictionaries.setdefault(message.id, [])
        if message.delta and versions:
            versions[-1].chunks.append(chunk)
        else:
            versions.append(Dictionary(start, [chunk]))

    def dictionary(self, id: int, chunk: Chunk) -> Dictionary | None:
        """Returns the version of a dictionary that is valid for a batch; None if there is none."""
        versions = self._dictionaries.get(id, [])
        position = bisect_right(versions, chunk.body, key=lambda version: version.start)
        return versions[position - 1] if position else None

    def _messages(self) -> Iterator[tuple[IpcMessage, int]]:
        """Yields each message and the offset of its body."""
        offset, size = 0, self.source.size
        while offset < size:
            head = bytes(self.source.read_at(offset, min(8, size - offset)))
            # Before Arrow 0.15 a message began with its length alone, without ff ff ff ff.
            start = 8 if head[:4] == MARK else 4
            if len(head) < start:
                raise TruncatedError("the stream ends inside a message", offset=size)
            count = int.from_bytes(head[start - 4 : start], "little", signed=True)
            if count == 0:
                if offset + start != size:
                    raise DecodeError(
                        f"{size - offset - start} bytes after the end of the stream",
                        offset=offset + start,
                    )
                return
            if count < 0:
                raise DecodeError("neither an Arrow file nor an Arrow stream", offset=offset)
            if count > size - offset - start:
                raise TruncatedError(
                    f"a message of {count} bytes runs past the end of the stream at {size}",
                    offset=size,
                )
            message = ipc.message(self.source.read_at(offset + start, count), offset + start)
            offset += start + count
            if not 0 <= message.body <= size - offset:
                raise TruncatedError(
                    f"a body of {message.body} bytes runs past the end of the stream at {size}",
                    offset=size,
                )
            yield message, offset
            offset += message.body
