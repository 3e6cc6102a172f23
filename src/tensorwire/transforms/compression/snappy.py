"""Snappy streams as TensorFlow frames them in record files.

Each block is its compressed length as a big-endian uint32, followed by raw Snappy. TensorFlow's
writer fills blocks up to 256 KiB, and writes a larger block for a write that is longer than that.
Its reader refuses blocks of more than 256 KiB, including those. We write only blocks that it can
read, and read all blocks that it writes.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import _optional
from ..._errors import DecodeError, LimitError
from ..._limits import DEFAULT, Limits
from ...core.memory import Buffer, flat
from ...wire import snappy
from .streams import Compressor, Decompressor, UnitCompressor

BLOCK = 1 << 18
"""Bytes of data in a block: the size of TensorFlow's read buffer."""
_WORD = 4
"""Bytes of the length of a block."""


class SnappyDecompressor(Decompressor):
    """Decompressor of Snappy blocks. Each block is held in memory, at most `limits.record` bytes."""

    name, unit = "snappy", "Snappy block"

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        self._buffer = bytearray()
        # The compressed length of the current block, once it is known.
        self._length: int | None = None

    def _step(self) -> Buffer:
        if self._length is None and not self._buffer:
            self._begin_unit()
        need = _WORD if self._length is None else self._length
        part: Buffer = self._rest[: need - len(self._buffer)]
        self._advance(len(part))
        # A block that is complete in the input is not copied.
        if self._buffer or len(part) < need:
            self._buffer += part
            if len(self._buffer) < need:
                return b""
            part, self._buffer = self._buffer, bytearray()
        if self._length is None:
            self._length = self._checked(int.from_bytes(part, "big"))
            return b""
        self._length = None
        try:
            return snappy.decode(part, self._limit)
        except DecodeError as error:
            raise error.add(base=self._offset - need) from None

    def _checked(self, length: int) -> int:
        if length > snappy.longest(self._limit):
            raise LimitError(
                f"a Snappy block of {length} bytes can expand to more than the limit of"
                f" {self._limit} bytes",
                format=self.name,
                offset=self._offset - _WORD,
                hint="pass a larger Limits(record=...)",
            )
        return length

    def _complete(self) -> bool:
        return self._length is None and not self._buffer


def packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Return the function that compresses data into one block."""
    if level is not None:
        raise ValueError(f"invalid level {level}: snappy has no levels")
    compress = _optional.require("cramjam", "compress").snappy.compress_raw

    def pack(data: Buffer) -> bytes:
        body = bytes(compress(data))
        return len(body).to_bytes(_WORD, "big") + body

    return pack


def snappy_compressor(level: int | None, threads: int | None) -> Compressor:
    """Return a compressor that writes blocks of up to 256 KiB.

    Snappy is fast enough that threads are used only on request.
    """
    return UnitCompressor(packer(level), BLOCK, 1 if threads is None else threads, b"")


def split(view: memoryview, limits: Limits = DEFAULT) -> list[tuple[int, int, int]] | None:
    """Return the (start, stop, data size) of each block.

    Returns None if a block is not complete or not valid, or if the blocks are tiny.
    """
    parts: list[tuple[int, int, int]] = []
    offset = 0
    while offset < len(view):
        stop = offset + _WORD + int.from_bytes(view[offset : offset + _WORD], "big")
        size = snappy.size(view[offset + _WORD : stop])
        if stop > len(view) or size is None or len(parts) > 16 + len(view) // 1024:
            return None
        parts.append((offset, stop, size))
        offset = stop
    return parts


def peek(head: Buffer, count: int) -> bytes:
    """Return the first bytes of data. The head of the stream may end inside the first block."""
    view, out = flat(head), b""
    while len(view) > _WORD and len(out) < count:
        length = int.from_bytes(view[:_WORD], "big")
        block = view[_WORD : _WORD + length]
        piece = snappy.prefix(block, length, count - len(out))
        if not piece:
            break
        out += piece
        view = view[_WORD + length :]
    return out
