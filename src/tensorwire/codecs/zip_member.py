"""Deflated members of a zip: packing them, and reading one as if it were stored."""

from __future__ import annotations

import zlib
from typing import Any

from .._errors import ChecksumError, DecodeError, EncodeError, TruncatedError
from .._limits import Budget
from ..core import memory
from ..storage.files import Source
from ..transforms.compression import deflate
from ..transforms.compression.streams import PIECE
from ..wire.zip import Member

_RAW = -15
"""zlib's way to say: no wrapper, window of 32 KiB."""
_INPUT = 1 << 18
"""Bytes given to the library at a time: it copies what it does not use."""
_LITTLE = 4096
"""The same, where only a header is wanted."""


def pack(data: list[Any], level: int | None) -> list[bytes]:
    """Buffers as one deflate stream.

    >>> zlib.decompress(b"".join(pack([b"a" * 100, b"b"], None)), -15) == b"a" * 100 + b"b"
    True
    """
    try:
        library, own = deflate.choose(level)
    except ValueError as error:
        raise EncodeError(str(error)) from None
    stream = library.compressobj(own, zlib.DEFLATED, _RAW)
    pieces = [
        stream.compress(memory.flat(buffer)[start : start + PIECE])
        for buffer in data
        for start in range(0, len(buffer), PIECE)
    ]
    return [piece for piece in [*pieces, stream.flush()] if piece]


class InflatedSource:
    """What a deflated member holds, as a source. Whatever is read of it, all of it is inflated, and
    checked.

    The directory says how much that is, and as much is drawn on the budget; not a byte more is
    taken, and not one less.
    """

    def __init__(self, source: Source, offset: int, member: Member, budget: Budget) -> None:
        self.size, self.path = member.size, source.path
        self._source, self._offset, self._member, self._budget = source, offset, member, budget

    def read_at(self, offset: int, count: int) -> memoryview:
        return self._inflate(self.size)[offset : offset + count]

    def read_bytes(self, offset: int, count: int) -> bytes:
        """A few near the start, for those who look at the header: no more is inflated, and not all
        of it is checked.
        """
        return bytes(self._inflate(offset + count)[offset:])

    def close(self) -> None:
        """The archive is open as long as its owner wants."""

    def _inflate(self, count: int) -> memoryview:
        """So many bytes from the start; if that is all, then there must be no more, and they must
        match their checksum.
        """
        self._budget.draw(count)
        library, everything = deflate.backend(), count == self.size
        stream, out = library.decompressobj(_RAW), memory.fresh(count).data
        done = consumed = crc = 0
        left: Any = b""
        while not stream.eof and (everything or done < count):
            chunk = left or self._packed(consumed, _INPUT if everything else _LITTLE)
            consumed += 0 if left else len(chunk)
            try:
                piece = stream.decompress(chunk, min(PIECE, count - done + 1))
            except library.error as cause:
                raise DecodeError(f"the deflate data are damaged ({cause})") from None
            left = stream.unconsumed_tail
            if done + len(piece) > self.size:
                raise DecodeError(
                    f"the deflate data become more than the {self.size} bytes that the directory"
                    " says"
                )
            if not piece and not chunk and not stream.eof:
                raise TruncatedError("the deflate data end too early")
            piece = piece[: count - done]
            crc = library.crc32(piece, crc)
            out[done : done + len(piece)] = piece
            done += len(piece)
        if done < count:
            raise DecodeError(
                f"the deflate data become {done} bytes, and the directory says {self.size}"
            )
        if everything and (consumed < self._member.packed or deflate.unused(stream)):
            raise DecodeError("something else behind the deflate data")
        if everything and crc != self._member.crc:
            raise ChecksumError("the data do not match their checksum")
        return out

    def _packed(self, start: int, count: int) -> memoryview:
        return self._source.read_at(self._offset + start, min(count, self._member.packed - start))
