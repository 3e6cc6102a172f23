"""An Arrow IPC file or stream: its schema, and where its batches are.

    file     "ARROW1" 2 bytes of padding | messages | footer | int32 length of the footer | "ARROW1"
    stream   messages | ff ff ff ff 00 00 00 00 (or just the end)
    message  ff ff ff ff | int32 length | flatbuffer, padded to 8 | body

Opening reads the messages and no body.
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
"""Bytes of the first read from the end, which holds most footers whole."""


@dataclass(slots=True)
class Dictionary:
    """What places in a dictionary mean, from some message on until it is replaced. Deltas only add
    to its end.
    """

    start: int
    chunks: list[Chunk]
    items: Any = None
    """The values, once someone has read them."""


class IpcFile:
    """The schema and the batches of a source."""

    def __init__(self, source: Source, limits: Budget, format: str = ipc.FORMAT) -> None:
        self.source, self.limits, self.format = source, limits, format
        self.data = Buffers(source, limits)
        self.version = ipc.V5
        """That of the batches."""
        self._dictionaries: dict[int, list[Dictionary]] = {}
        head = bytes(source.read_at(0, min(8, source.size)))
        if head[:6] == MAGIC:
            schema, self.chunks = self._read_file()
        elif len(head) == 8:
            schema, self.chunks = self._read_stream()
        else:
            raise TruncatedError(f"{len(head)} bytes, and Arrow begins with 8", offset=len(head))
        self.fields, self.metadata, self.big_endian = schema

    def _read_file(self) -> tuple[IpcSchema, list[Chunk]]:
        size = self.source.size
        last = self.source.read_at(size - min(size, _LAST), min(size, _LAST))
        if size < 18 or bytes(last[-6:]) != MAGIC:
            raise TruncatedError(
                "the file does not end with ARROW1, so its end is missing", offset=size
            )
        count = int.from_bytes(last[-10:-6], "little", signed=True)
        if not 0 < count <= size - 18:
            raise DecodeError(f"a footer of {count} bytes in a file of {size}", offset=size - 10)
        end = size - 10 - count
        found = ipc.footer(
            last[-10 - count : -10] if count <= len(last) - 10 else self.source.read_at(end, count),
            end,
        )
        blocks = found.dictionaries + found.batches
        self._check_blocks(blocks, end)
        if len(blocks) > self.limits.names:
            raise LimitError(
                f"{len(blocks)} batches; Limits(names=...) allows {self.limits.names}", offset=end
            )
        for block in found.dictionaries:
            message, chunk = self._block(block, ipc.DICTIONARY)
            if message.id in self._dictionaries and not message.delta:
                raise DecodeError(
                    "a dictionary is replaced, which only a stream can do", offset=block[0]
                )
            self._add_dictionary(message, chunk, 0)
        return found.schema, [self._block(block, ipc.BATCH)[1] for block in found.batches]

    def _check_blocks(self, blocks: list[list[int]], end: int) -> None:
        """That each lies between the magic and the footer, and none inside of another: the same
        bytes are never read twice.
        """
        at = 8
        for offset, length, body in sorted(blocks):
            if offset < at or length < 8 or body < 0 or length + body > end - offset:
                raise DecodeError(
                    "the footer has a batch outside of the file, or inside of another one",
                    offset=end,
                )
            at = offset + length + body

    def _block(self, block: list[int], kind: int) -> tuple[IpcMessage, Chunk]:
        offset, length, body = block
        head = self.source.read_at(offset, length)
        start = 8 if bytes(head[:4]) == MARK else 4
        size = int.from_bytes(head[start - 4 : start], "little", signed=True)
        if not 0 < size <= length - start:
            raise DecodeError(f"a message of {size} bytes in {length}", offset=offset)
        message = ipc.message(head[start : start + size], offset + start)
        if message.kind != kind or message.body != body or message.batch is None:
            raise DecodeError("a message is not the one that the footer says", offset=offset)
        self.version = min(self.version, message.version)
        return message, Chunk(message.batch, offset + length)

    def _read_stream(self) -> tuple[IpcSchema, list[Chunk]]:
        schema: IpcSchema | None = None
        chunks: list[Chunk] = []
        for count, (message, body) in enumerate(self._messages()):
            if (message.schema is not None) != (schema is None):
                raise DecodeError("a stream begins with a schema, and has no other", offset=body)
            if message.schema is not None:
                schema = message.schema
            elif message.batch is not None and message.kind == ipc.BATCH:
                self.version = min(self.version, message.version)
                chunks.append(Chunk(message.batch, body))
            elif message.batch is not None:
                self._add_dictionary(message, Chunk(message.batch, body), body)
            if count > self.limits.names:
                raise LimitError(
                    f"more than the {self.limits.names} batches that Limits(names=...) allows",
                    offset=body,
                )
        if schema is None:
            raise DecodeError("a stream without a schema", offset=0)
        return schema, chunks

    def _add_dictionary(self, message: IpcMessage, chunk: Chunk, start: int) -> None:
        known = self._dictionaries.setdefault(message.id, [])
        if message.delta and known:
            known[-1].chunks.append(chunk)
        else:
            known.append(Dictionary(start, [chunk]))

    def dictionary(self, id: int, chunk: Chunk) -> Dictionary | None:
        """The one that holds for a batch."""
        known = self._dictionaries.get(id, [])
        place = bisect_right(known, chunk.body, key=lambda one: one.start)
        return known[place - 1] if place else None

    def _messages(self) -> Iterator[tuple[IpcMessage, int]]:
        """Each message, and where its body begins."""
        at, size = 0, self.source.size
        while at < size:
            head = bytes(self.source.read_at(at, min(8, size - at)))
            start = 8 if head[:4] == MARK else 4
            if len(head) < start:
                raise TruncatedError("the stream ends inside a message", offset=size)
            count = int.from_bytes(head[start - 4 : start], "little", signed=True)
            if count == 0:
                if at + start != size:
                    raise DecodeError(
                        f"{size - at - start} bytes behind the end of the stream", offset=at + start
                    )
                return
            if count < 0:
                raise DecodeError("this is neither a file nor a stream of Arrow's", offset=at)
            if count > size - at - start:
                raise TruncatedError(
                    f"a message of {count} bytes, and the stream ends at {size}", offset=size
                )
            message = ipc.message(self.source.read_at(at + start, count), at + start)
            at += start + count
            if not 0 <= message.body <= size - at:
                raise TruncatedError(
                    f"a body of {message.body} bytes, and the stream ends at {size}", offset=size
                )
            yield message, at
            at += message.body
