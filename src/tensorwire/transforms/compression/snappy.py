"""Snappy as TensorFlow frames it in record files: each block is its compressed length in four
bytes, big-endian, and raw Snappy.

TensorFlow's writer fills blocks up to 256 KiB, and makes a single larger block of a write that is
longer than that. Its reader refuses blocks of more than 256 KiB, even those. We write none that it
cannot read, and read all that it writes.
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
"""Bytes of data in a block: TensorFlow's buffer for reading one."""
_WORD = 4


class SnappyDecompressor(Decompressor):
    """`limits.record` is what one block may become; a block is held whole."""

    name, unit = "snappy", "Snappy block"

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        self._held = bytearray()
        self._length: int | None = None  # of the block, once it is known

    def _step(self) -> Buffer:
        if self._length is None and not self._held:
            self._begin_unit()
        need = _WORD if self._length is None else self._length
        part: Buffer = self._rest[: need - len(self._held)]
        self._advance(len(part))
        if self._held or len(part) < need:  # a block that came whole is not copied
            self._held += part
            if len(self._held) < need:
                return b""
            part, self._held = self._held, bytearray()
        if self._length is None:
            self._length = self._checked(int.from_bytes(part, "big"))
            return b""
        self._length = None
        try:
            return snappy.decode(part, self._limit)
        except DecodeError as error:
            raise error.add(base=self._at - need) from None

    def _checked(self, length: int) -> int:
        if length > snappy.longest(self._limit):
            what = (
                f"a Snappy block of {length} bytes is more than the limit of {self._limit} allows"
            )
            raise LimitError(what, format=self.name, offset=self._at - _WORD)
        return length

    def _complete(self) -> bool:
        return self._length is None and not self._held


def packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Makes a block of some data."""
    if level is not None:
        raise ValueError(f"level {level}: Snappy has no levels")
    compress = _optional.require("cramjam", "compress").snappy.compress_raw

    def pack(data: Buffer) -> bytes:
        body = bytes(compress(data))
        return len(body).to_bytes(_WORD, "big") + body

    return pack


def snappy_compressor(level: int | None, threads: int | None) -> Compressor:
    """Blocks of up to 256 KiB. It is quick enough that threads are used only when asked for."""
    return UnitCompressor(packer(level), BLOCK, 1 if threads is None else threads, b"")


def split(view: memoryview, limits: Limits = DEFAULT) -> list[tuple[int, int, int]] | None:
    """Where each block begins, ends, and how many bytes it becomes; None if something is not as
    usual, or the blocks are tiny.
    """
    parts: list[tuple[int, int, int]] = []
    at = 0
    while at < len(view):
        stop = at + _WORD + int.from_bytes(view[at : at + _WORD], "big")
        size = snappy.size(view[at + _WORD : stop])
        if stop > len(view) or size is None or len(parts) > 16 + len(view) // 1024:
            return None
        parts.append((at, stop, size))
        at = stop
    return parts


def peek(head: Buffer, count: int) -> bytes:
    """As far as the beginning of a stream goes, which may end inside the first block."""
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
