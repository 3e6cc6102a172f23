"""gzip and zlib: two wrappers around the same deflate data.

Headers and trailers are read and written here, and only the deflate data goes through a library:
through isal, which is faster, where it is installed, else through Python's zlib. So there is one
set of rules, and what isal 1.8 gets wrong does not matter: it loses its place in a gzip header that
comes in parts, and accepts header flags and window sizes that do not exist.

Levels are zlib's, 0 (stored) to 9. Ratio, and MB for each second of one core:

    level            Python source   float16 as float32   Zipf-distributed int64
    1  isal 1          3.8   420          1.6   280             4.4   360
    2  isal 2          3.8   380          1.7   210             4.4   380          the default, with
       isal
    3  isal 3          4.0   280          1.7   230             4.5   340
    1  zlib 1          3.7   110          1.6    38             4.6   130          the default,
       without isal
    3  zlib 3          4.0    81          1.7    16             4.9    75
    6  zlib 6          4.6    32          1.7     5             5.2    23
    9  zlib 9          4.6     7          1.7     3             5.6     1

So isal compresses at levels 1 to 3, zlib at 4 to 9, where isal cannot follow. The bytes of a level
differ with and without isal. Reading takes 2.4 s of a core for a GB with isal, 3.6 s with zlib.
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
"""Bytes of data in a gzip member that we write: enough that a fresh start of the compression costs
less than 1 %.
"""
_INPUT = 1 << 18
"""Bytes given to the library at a time: it copies what it does not use."""
_HEADER = 1 << 17
"""The longest gzip header: 64 KiB of extra fields, and as much for the names."""
_RAW = -15
"""zlib's way to say: no wrapper, window of 32 KiB."""
_SMALL = 4096
"""Less data than this is packed by Python's zlib, which makes less of it."""


@functools.cache
def backend() -> Any:
    """The module that packs and unpacks deflate data; the tests choose another."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib


def unused(inflater: Any) -> bytes:
    """What the library was given behind the end of the deflate data. isal forgets up to eight bytes
    if they are all there is, and remembers them when one more comes."""
    if not inflater.unused_data:
        inflater.decompress(b"\0")
        return bytes(inflater.unused_data[:-1])
    return bytes(inflater.unused_data)


class _Inflate(StagedDecompressor):
    """A header, deflate data, a trailer with checks."""

    _start: int
    """The checksum of no data."""

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        self._library = backend()

    def _header(self) -> Buffer:
        if not self._held:
            self._begin_unit()
            self._unit_at = self._at
        before = len(self._held)
        self._held += self._rest[: _HEADER - before]
        end = self._header_end(self._held)
        if end is None and len(self._held) == _HEADER:
            raise LimitError(
                f"a {self.name} header of more than {_HEADER} bytes",
                format=self.name,
                offset=self._unit_at,
            )
        self._advance((len(self._held) if end is None else end) - before)
        if end is not None:
            self._held.clear()
            self._inflater = self._library.decompressobj(_RAW)
            self._check, self._length = self._start, 0
            self._state = "_deflated"
        return b""

    def _deflated(self) -> Buffer:
        given = self._rest[:_INPUT]
        try:
            piece: bytes = self._inflater.decompress(given, PIECE)
        except self._library.error as cause:
            what = (
                f"the deflate data of the {self.unit} that begins at byte {self._unit_at} is"
                " damaged, here or a little later"
            )
            raise DecodeError(what, format=self.name, offset=self._at) from cause
        self._check, self._length = self._sum(piece, self._check), self._length + len(piece)
        if self._inflater.eof:
            self._more, self._state = False, "_trailer"
            left = unused(self._inflater)
        else:
            self._more = len(piece) == PIECE
            left = self._inflater.unconsumed_tail
        if len(left) <= len(given):
            self._advance(len(given) - len(left))
        else:  # isal had taken up to eight bytes that it turned out not to need, and they are no longer in `_rest`
            self._at -= len(left) - len(given)
            self._rest = memoryview(left + self._rest[len(given) :])
        return piece

    def _trailer(self) -> Buffer:
        size = self._trailer_size
        more = self._rest[: size - len(self._held)]
        self._held += more
        self._advance(len(more))
        if len(self._held) == size:
            if bytes(self._held) != self._expected():
                raise ChecksumError(
                    f"the data of this {self.unit} does not match its checksum",
                    format=self.name,
                    offset=self._at - size,
                )
            self._held.clear()
            self._state = "_behind"
        return b""

    def fault(self, what: str, at: int) -> DecodeError:
        return DecodeError(what, format=self.name, offset=self._unit_at + at)

    _trailer_size: int

    @abstractmethod
    def _sum(self, piece: bytes, value: int) -> int: ...

    @abstractmethod
    def _expected(self) -> bytes: ...

    @abstractmethod
    def _header_end(self, held: bytearray) -> int | None:
        """Where the deflate data begins, or None if the header goes on."""

    @abstractmethod
    def _behind(self) -> Buffer: ...


class GzipDecompressor(_Inflate):
    """Any number of members; behind the last one there may be zeros, as tapes and block devices
    leave them.
    """

    name, unit, _start, _trailer_size = "gzip", "gzip member", 0, 8

    def _sum(self, piece: bytes, value: int) -> int:
        return int(self._library.crc32(piece, value))

    def _expected(self) -> bytes:
        return struct.pack("<II", self._check, self._length & 0xFFFFFFFF)

    def _header_end(self, held: bytearray) -> int | None:
        if not b"\x1f\x8b\x08".startswith(held[:3]):
            raise self.fault(
                (
                    "something else behind the last gzip member"
                    if self._unit_at
                    else "this is not gzip"
                ),
                0,
            )
        if len(held) < 10:
            return None
        flags, at = held[3], 10
        if flags & 0xE0:
            raise self.fault("the gzip header has flags that do not exist", 3)
        if flags & 4:  # extra fields
            if len(held) < at + 2:
                return None
            at += 2 + int.from_bytes(held[at : at + 2], "little")
        for flag in (8, 16):  # a file's name, a comment
            if flags & flag:
                at = held.find(0, at) + 1
                if not at:
                    return None
        if flags & 2:
            if len(held) < at + 2:
                return None
            if int.from_bytes(held[at : at + 2], "little") != zlib.crc32(held[:at]) & 0xFFFF:
                raise ChecksumError(
                    "the gzip header does not match its checksum",
                    format=self.name,
                    offset=self._unit_at + at,
                )
            at += 2
        return at if at <= len(held) else None

    def _behind(self) -> Buffer:
        self._state = "_header" if self._rest[0] else "_zeros"
        return b""

    def _zeros(self) -> Buffer:
        given = bytes(self._rest[:_INPUT])
        other = given.lstrip(b"\0")
        self._advance(len(given) - len(other))
        if other:
            raise DecodeError(
                "something else behind the last gzip member", format=self.name, offset=self._at
            )
        return b""

    def _complete(self) -> bool:
        return self._state in ("_behind", "_zeros")


class ZlibDecompressor(_Inflate):
    """One stream and nothing behind it: TensorFlow reads no further, so what stands there would be
    lost on others.
    """

    name, unit, _start, _trailer_size = "zlib", "zlib stream", 1, 4

    def _sum(self, piece: bytes, value: int) -> int:
        return int(self._library.adler32(piece, value))

    def _expected(self) -> bytes:
        return struct.pack(">I", self._check)

    def _header_end(self, held: bytearray) -> int | None:
        if len(held) < 2:
            return None
        if not is_zlib(held):
            raise self.fault("this is not zlib, or needs a preset dictionary", 0)
        return 2

    def _behind(self) -> Buffer:
        what = (
            "something behind the end of the zlib stream; streams cannot be joined, as TensorFlow"
            " reads only the first"
        )
        raise DecodeError(what, format=self.name, offset=self._at)

    def _complete(self) -> bool:
        return self._state == "_behind"


def is_zlib(head: Buffer) -> bool:
    """Whether the first two bytes can be those of a zlib stream: deflate, a window that exists, the
    check, no preset dictionary.
    """
    method, flags = head[0], head[1]
    return (
        method & 15 == 8 and method >> 4 <= 7 and (method << 8 | flags) % 31 == 0 and not flags & 32
    )


def choose(level: int | None) -> tuple[Any, int]:
    """(the library, its own level) for a level of ours."""
    library = backend()
    if level is None:
        return (zlib, 1) if library is zlib else (library, 2)
    if not 0 <= level <= 9:
        raise ValueError(f"level {level}: gzip and zlib have levels 0 (stored) to 9 (smallest)")
    return (library if 1 <= level <= 3 else zlib), level


_OURS = re.compile(rb"\x1f\x8b\x08[\x00\x04]\x00{5}\xff")
"""The beginning of a gzip header that we write, without a time and a system; with 4, bytes that
mean nothing follow (see `filler`).
"""


def gzip_packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Makes a gzip member of some data. No time and no name stand in it: the same data gives the
    same bytes.
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
    """isal's own function for whole buffers, called in threads, does not always give the same bytes
    for the same data. A stream of it does, but is no good at little data."""
    stream = library.compressobj(level, zlib.DEFLATED, _RAW)
    return bytes(stream.compress(data) + stream.flush())


def filler(size: int) -> bytes:
    """At least so many bytes that readers skip: members of no data, with a long header."""
    nothing = b"\x1f\x8b\x08\4\0\0\0\0\0\xff\xff\xff" + bytes(0xFFFF) + b"\3\0" + bytes(8)
    return nothing * -(-size // len(nothing))


def gzip_compressor(level: int | None, threads: int | None) -> Compressor:
    """Members of up to 1 MiB, packed in parallel."""
    pack = gzip_packer(level)
    return UnitCompressor(pack, MEMBER, cores(threads), pack(b""), filler)


def gzip_split(view: memoryview, limits: Limits = DEFAULT) -> list[tuple[int, int, int]] | None:
    """Where members seem to begin, end, and how many bytes each seems to become, if they are ours;
    None if they are not.

    It is a guess: ten bytes that look like our header may stand in the data, too. Then the parts
    around them are no whole members.
    """
    starts = [found.start() for found in _OURS.finditer(view)]
    if len(starts) < 2 or starts[0] or len(starts) > 16 + len(view) // 1024:
        return None
    stops = [*starts[1:], len(view)]
    sizes = [int.from_bytes(view[stop - 4 : stop], "little") for stop in stops]
    return list(zip(starts, stops, sizes, strict=True))


def zlib_packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Makes a whole zlib stream of some data."""
    choose(level)

    def pack(data: Buffer) -> bytes:
        stream = ZlibCompressor(level, None)
        return b"".join([*stream.write(data), *stream.finish()])

    return pack


class ZlibCompressor(Compressor):
    """One stream, so one thread."""

    def __init__(self, level: int | None, threads: int | None) -> None:
        library, own = choose(level)
        self._stream = library.compressobj(own, zlib.DEFLATED, 15)
        self._flushed = True  # a flush of nothing would still write an empty block
        self._taken = self._written = 0

    def write(self, data: Buffer) -> list[bytes]:
        self._open()
        view = flat(data)
        self._flushed = self._flushed and not len(view)
        self._taken += len(view)
        return self._counted(
            [self._stream.compress(view[at : at + PIECE]) for at in range(0, len(view), PIECE)]
        )

    def flush(self) -> list[bytes]:
        self._open()
        if self._flushed:
            return []
        self._flushed = True
        out = self._counted([self._stream.flush(zlib.Z_SYNC_FLUSH)])
        # blocks of nothing
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
