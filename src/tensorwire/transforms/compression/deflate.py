"""gzip and zlib streams: two wrappers around deflate data.

Strategy for reading:
1. Headers and trailers are parsed here, and only the deflate data goes through a library: isal,
   which is faster, if it is installed, else Python's zlib. So there is one set of rules, and the
   bugs of isal 1.8 do not matter: it loses its position in a gzip header that arrives in parts, and
   accepts invalid header flags and window sizes.
2. The states are `_header`, `_deflated`, `_trailer` and `_after_trailer` (see StagedDecompressor).
3. The library may consume bytes after the end of the deflate data. `unused` returns them, and they
   are put back in front of the input.
4. The checksum is updated with each piece and compared with the trailer.

Levels are those of zlib, 0 (stored) to 9. Compression ratio, and MB/s of one core:

    level            Python source   float16 as float32   Zipf-distributed int64
    1  isal 1          3.8   420          1.6   280             4.4   360
    2  isal 2          3.8   380          1.7   210             4.4   380   default with isal
    3  isal 3          4.0   280          1.7   230             4.5   340
    1  zlib 1          3.7   110          1.6    38             4.6   130   default without isal
    3  zlib 3          4.0    81          1.7    16             4.9    75
    6  zlib 6          4.6    32          1.7     5             5.2    23
    9  zlib 9          4.6     7          1.7     3             5.6     1

Levels 1 to 3 use isal, levels 4 to 9 zlib, because isal has no equivalent. The bytes of a level
differ with and without isal. Reading a GB takes 2.4 s of one core with isal, 3.6 s with zlib.
"""

from __future__ import annotations

import functools
import re
import struct
import zlib
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from ..._errors import ChecksumError, DecodeError, LimitError
from ..._limits import DEFAULT, Limits
from ...core.memory import Buffer, flat
from .streams import PIECE, Compressor, StagedDecompressor, UnitCompressor, cores, filling

MEMBER = 1 << 20
"""Bytes of data in a gzip member that we write. Starting a new member costs less than 1 %."""
_INPUT = 1 << 18
"""Bytes passed to the library at a time, because it copies what it does not use."""
_HEADER = 1 << 17
"""Bytes of the longest gzip header: 64 KiB of extra fields, and as much for the names."""
_RAW = -15
"""The `wbits` argument of zlib for raw deflate data with a window of 32 KiB."""
_SMALL = 4096
"""Less data than this is compressed by Python's zlib, whose result is smaller."""


@functools.cache
def backend() -> Any:
    """Return the module for deflate data: isal if it is installed, else zlib. Tests replace it."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib


def unused(inflater: Any) -> bytes:
    """Return the bytes after the end of the deflate data that the library has consumed.

    isal does not report up to eight of them until it receives another byte.
    """
    if not inflater.unused_data:
        inflater.decompress(b"\0")
        return bytes(inflater.unused_data[:-1])
    return bytes(inflater.unused_data)


class _Inflate(StagedDecompressor):
    """Decompressor of a header, deflate data, and a trailer with a checksum."""

    _start: int
    """The checksum of empty data."""

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        self._library = backend()

    def _header(self) -> Buffer:
        if not self._buffer:
            self._begin_unit()
            self._unit_offset = self._offset
        before = len(self._buffer)
        self._buffer += self._rest[: _HEADER - before]
        end = self._header_end(self._buffer)
        if end is None and len(self._buffer) == _HEADER:
            raise LimitError(
                f"the {self.name} header is longer than {_HEADER} bytes",
                format=self.name,
                offset=self._unit_offset,
            )
        self._advance((len(self._buffer) if end is None else end) - before)
        if end is not None:
            self._buffer.clear()
            self._inflater = self._library.decompressobj(_RAW)
            self._check, self._length = self._start, 0
            self._state = "_deflated"
        return b""

    def _deflated(self) -> Buffer:
        given = self._rest[:_INPUT]
        try:
            piece: bytes = self._inflater.decompress(given, PIECE)
        except self._library.error as cause:
            # The library reads ahead, so the damage may be a little after the offset.
            message = (
                f"corrupt deflate data in the {self.unit} that begins at byte {self._unit_offset}"
            )
            raise DecodeError(message, format=self.name, offset=self._offset) from cause
        self._check, self._length = self._sum(piece, self._check), self._length + len(piece)
        if self._inflater.eof:
            self._more, self._state = False, "_trailer"
            left = unused(self._inflater)
        else:
            self._more = len(piece) == PIECE
            left = self._inflater.unconsumed_tail
        if len(left) <= len(given):
            self._advance(len(given) - len(left))
        else:
            # isal took up to eight bytes of an earlier call that it did not need. They are no longer
            # in `_rest`, so they are put back in front of it.
            self._offset -= len(left) - len(given)
            self._rest = memoryview(left + self._rest[len(given) :])
        return piece

    def _trailer(self) -> Buffer:
        size = self._trailer_size
        more = self._rest[: size - len(self._buffer)]
        self._buffer += more
        self._advance(len(more))
        if len(self._buffer) == size:
            if bytes(self._buffer) != self._expected():
                raise ChecksumError(
                    f"the data of this {self.unit} does not match its checksum",
                    format=self.name,
                    offset=self._offset - size,
                )
            self._buffer.clear()
            self._state = "_after_trailer"
        return b""

    def fault(self, message: str, offset: int) -> DecodeError:
        return DecodeError(message, format=self.name, offset=self._unit_offset + offset)

    _trailer_size: int

    @abstractmethod
    def _sum(self, piece: bytes, value: int) -> int: ...

    @abstractmethod
    def _expected(self) -> bytes: ...

    @abstractmethod
    def _header_end(self, header: bytearray) -> int | None:
        """Return where the deflate data begins, or None if the header is not complete."""

    @abstractmethod
    def _after_trailer(self) -> Buffer: ...


class GzipDecompressor(_Inflate):
    """Decompressor of any number of gzip members.

    Zeros may follow the last one, because tapes and block devices append them.
    """

    name, unit, _start, _trailer_size = "gzip", "gzip member", 0, 8

    def _sum(self, piece: bytes, value: int) -> int:
        return int(self._library.crc32(piece, value))

    def _expected(self) -> bytes:
        return struct.pack("<II", self._check, self._length & 0xFFFFFFFF)

    def _header_end(self, header: bytearray) -> int | None:
        if not b"\x1f\x8b\x08".startswith(header[:3]):
            raise self.fault(
                (
                    "unexpected bytes after the last gzip member"
                    if self._unit_offset
                    else "not gzip: wrong magic number"
                ),
                0,
            )
        if len(header) < 10:
            return None
        flags, offset = header[3], 10
        if flags & 0xE0:
            raise self.fault("the gzip header has invalid flags", 3)
        # The optional fields come in this order: extra fields, file name, comment, CRC16.
        if flags & 4:
            if len(header) < offset + 2:
                return None
            offset += 2 + int.from_bytes(header[offset : offset + 2], "little")
        for flag in (8, 16):
            if flags & flag:
                offset = header.find(0, offset) + 1
                if not offset:
                    return None
        if flags & 2:
            if len(header) < offset + 2:
                return None
            if (
                int.from_bytes(header[offset : offset + 2], "little")
                != zlib.crc32(header[:offset]) & 0xFFFF
            ):
                raise ChecksumError(
                    "the gzip header does not match its checksum",
                    format=self.name,
                    offset=self._unit_offset + offset,
                )
            offset += 2
        return offset if offset <= len(header) else None

    def _after_trailer(self) -> Buffer:
        self._state = "_header" if self._rest[0] else "_zeros"
        return b""

    def _zeros(self) -> Buffer:
        given = bytes(self._rest[:_INPUT])
        other = given.lstrip(b"\0")
        self._advance(len(given) - len(other))
        if other:
            raise DecodeError(
                "unexpected bytes after the last gzip member", format=self.name, offset=self._offset
            )
        return b""

    def _complete(self) -> bool:
        return self._state in ("_after_trailer", "_zeros")


class ZlibDecompressor(_Inflate):
    """Decompressor of one zlib stream.

    Bytes after the stream are an error: TensorFlow ignores them, so its users would lose them.
    """

    name, unit, _start, _trailer_size = "zlib", "zlib stream", 1, 4

    def _sum(self, piece: bytes, value: int) -> int:
        return int(self._library.adler32(piece, value))

    def _expected(self) -> bytes:
        return struct.pack(">I", self._check)

    def _header_end(self, header: bytearray) -> int | None:
        if len(header) < 2:
            return None
        if not is_zlib(header):
            raise self.fault("not a zlib stream, or one that needs a preset dictionary", 0)
        return 2

    def _after_trailer(self) -> Buffer:
        message = (
            "unexpected bytes after the zlib stream (zlib streams cannot be concatenated:"
            " TensorFlow reads only the first)"
        )
        raise DecodeError(message, format=self.name, offset=self._offset)

    def _complete(self) -> bool:
        return self._state == "_after_trailer"


def is_zlib(head: Buffer) -> bool:
    """Return whether the first two bytes can be the header of a zlib stream.

    They must have the method deflate, a valid window and check, and no preset dictionary.
    """
    method, flags = head[0], head[1]
    return (
        method & 15 == 8 and method >> 4 <= 7 and (method << 8 | flags) % 31 == 0 and not flags & 32
    )


def choose(level: int | None) -> tuple[Any, int]:
    """Return (library, level of that library) for a level from 0 to 9, or for None."""
    library = backend()
    if level is None:
        return (zlib, 1) if library is zlib else (library, 2)
    if not 0 <= level <= 9:
        raise ValueError(f"invalid gzip or zlib level {level}: use 0 (stored) to 9 (smallest)")
    return (library if 1 <= level <= 3 else zlib), level


_OURS = re.compile(rb"\x1f\x8b\x08[\x00\x04]\x00{5}\xff")
"""The start of a gzip header that we write, without a time and an operating system. The flag 4 is
for extra fields of padding (see `filler`).
"""


def gzip_packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Return the function that compresses data into one gzip member.

    The member has neither a time nor a name, so the same data gives the same bytes.
    """
    library, own = choose(level)

    def pack(data: Buffer) -> bytes:
        body = (
            zlib.compress(data, own, wbits=_RAW)
            if library is zlib or len(data) < _SMALL
            else _by_stream(library, data, own)
        )
        return (
            b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
            + body
            + struct.pack("<II", library.crc32(data), len(data))
        )

    return pack


def _by_stream(library: Any, data: Buffer, level: int) -> bytes:
    """Compress data with a stream object.

    isal's one-shot function, called in threads, does not always give the same bytes for the same
    data. A stream object does, but compresses small data badly.
    """
    stream = library.compressobj(level, zlib.DEFLATED, _RAW)
    return bytes(stream.compress(data) + stream.flush())


def filler(size: int) -> bytes:
    """Return at least `size` bytes that readers skip: empty members with a long header."""
    nothing = b"\x1f\x8b\x08\4\0\0\0\0\0\xff\xff\xff" + bytes(0xFFFF) + b"\3\0" + bytes(8)
    return nothing * -(-size // len(nothing))


def gzip_compressor(level: int | None, threads: int | None) -> Compressor:
    """Return a compressor that writes members of up to 1 MiB in parallel."""
    pack = gzip_packer(level)
    return UnitCompressor(pack, MEMBER, cores(threads), pack(b""), filler)


def gzip_split(view: memoryview, limits: Limits = DEFAULT) -> list[tuple[int, int, int]] | None:
    """Return the (start, stop, data size) of each member, if we have written them, else None.

    This is a guess: compressed data may contain ten bytes that look like our header. Then the parts
    are not complete members, and decompression fails.
    """
    starts = [match.start() for match in _OURS.finditer(view)]
    if len(starts) < 2 or starts[0] or len(starts) > 16 + len(view) // 1024:
        return None
    stops = [*starts[1:], len(view)]
    sizes = [int.from_bytes(view[stop - 4 : stop], "little") for stop in stops]
    return list(zip(starts, stops, sizes, strict=True))


def zlib_packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Return the function that compresses data into one zlib stream."""
    choose(level)

    def pack(data: Buffer) -> bytes:
        stream = ZlibCompressor(level, None)
        return b"".join([*stream.write(data), *stream.finish()])

    return pack


class ZlibCompressor(Compressor):
    """Compressor of a single zlib stream, in the caller's thread."""

    def __init__(self, level: int | None, threads: int | None) -> None:
        library, own = choose(level)
        self._stream = library.compressobj(own, zlib.DEFLATED, 15)
        # Whether there is nothing to flush. zlib would write an empty block for each flush.
        self._flushed = True
        self._taken = self._written = 0

    def write(self, data: Buffer) -> list[bytes]:
        self._open()
        view = flat(data)
        self._flushed = self._flushed and not len(view)
        self._taken += len(view)
        return self._counted(
            [
                self._stream.compress(view[start : start + PIECE])
                for start in range(0, len(view), PIECE)
            ]
        )

    def flush(self) -> list[bytes]:
        self._open()
        if self._flushed:
            return []
        self._flushed = True
        out = self._counted([self._stream.flush(zlib.Z_SYNC_FLUSH)])
        # Empty stored blocks are the padding of a zlib stream.
        return out + self._counted([b"\0\0\0\xff\xff" * -(-self._missing() // 5)])

    def finish(self) -> list[bytes]:
        self._open()
        out = self.flush() if self._missing() else []
        self._closed = True
        return [*out, self._stream.flush(zlib.Z_FINISH)]

    def _missing(self) -> int:
        return filling(self._taken + self.expanded, self._written)

    def _counted(self, parts: list[bytes]) -> list[bytes]:
        self._written += sum(map(len, parts))
        return [part for part in parts if part]
