"""Deflated zip members: compression, and reading one as a source of its uncompressed bytes.

The strategy of `InflatedSource`, whose archive is untrusted:

1. The central directory declares the uncompressed size. That size is drawn on the budget before a
   buffer is allocated, so a small file cannot ask for more memory than the limits allow.
2. The stream is inflated in pieces. Each call may return one byte more than the buffer has room
   for: this byte shows that the stream is longer than declared, and nothing larger is ever held.
3. A full read must give exactly the declared number of bytes, use all compressed bytes, leave
   nothing after the end of the stream, and match the CRC-32.
4. A read of the first bytes, for an npy header, stops as soon as it has them. None of the checks of
   a full read can be made then; the data are checked when they are read.
"""

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
"""The zlib window size of raw deflate data: 32 KiB, without a header or trailer."""
_INPUT = 1 << 18
"""The number of compressed bytes per call. It is bounded because zlib copies what it does not use.
"""
_HEADER_INPUT = 4096
"""The number of compressed bytes per call if only a header is needed."""


def pack(data: list[Any], level: int | None) -> list[bytes]:
    """Compresses buffers to one raw deflate stream.

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
    """The uncompressed bytes of a deflated member, as a source. Every `read_at` inflates and checks
    the whole member. The module docstring has the strategy.
    """

    def __init__(self, source: Source, offset: int, member: Member, budget: Budget) -> None:
        self.size, self.path = member.size, source.path
        self._source, self._offset, self._member, self._budget = source, offset, member, budget

    def read_at(self, offset: int, count: int) -> memoryview:
        return self._inflate(self.size)[offset : offset + count]

    def read_bytes(self, offset: int, count: int) -> bytes:
        """Returns a few bytes near the start, for a header. Only these are inflated, unchecked."""
        return bytes(self._inflate(offset + count)[offset:])

    def close(self) -> None:
        """Does nothing: the owner of the archive closes it."""

    def _inflate(self, count: int) -> memoryview:
        """Inflates `count` bytes from the start. If these are all bytes, the checks are made."""
        self._budget.draw(count)
        library, everything = deflate.backend(), count == self.size
        stream, out = library.decompressobj(_RAW), memory.fresh(count).data
        done = consumed = crc = 0
        left: Any = b""
        while not stream.eof and (everything or done < count):
            chunk = left or self._packed(consumed, _INPUT if everything else _HEADER_INPUT)
            consumed += 0 if left else len(chunk)
            try:
                # One byte more than needed shows whether the stream is longer than declared.
                piece = stream.decompress(chunk, min(PIECE, count - done + 1))
            except library.error as cause:
                raise DecodeError(f"corrupt deflate data ({cause})") from None
            left = stream.unconsumed_tail
            if done + len(piece) > self.size:
                raise DecodeError(
                    f"the member inflates to more than the {self.size} bytes of the zip directory"
                )
            if not piece and not chunk and not stream.eof:
                raise TruncatedError("the deflate data end too early")
            # A read of the first bytes may get one byte too many, which is cut off.
            piece = piece[: count - done]
            crc = library.crc32(piece, crc)
            out[done : done + len(piece)] = piece
            done += len(piece)
        if done < count:
            raise DecodeError(
                f"the member inflates to {done} bytes, not the {self.size} of the zip directory"
            )
        if everything and (consumed < self._member.packed or deflate.unused(stream)):
            raise DecodeError("unexpected bytes after the deflate data")
        if everything and crc != self._member.crc:
            raise ChecksumError("the data do not match their checksum")
        return out

    def _packed(self, start: int, count: int) -> memoryview:
        return self._source.read_at(self._offset + start, min(count, self._member.packed - start))
