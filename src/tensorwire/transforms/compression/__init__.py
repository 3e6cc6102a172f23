"""Compressed streams, in pieces and without I/O: one table of compressions by name.

gzip     independent members: written in parallel, and a reader can start at any of them
zlib     one stream
zstd     independent frames: smaller and quicker than gzip, and few tools of TensorFlow's read it
lz4      independent frames: the quickest to read that has a checksum
snappy   TensorFlow's blocks: quick, and no checksum of its own
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ..._errors import DecodeError, UnknownFormatError, choices
from ..._limits import DEFAULT, Limits
from ...core.memory import Array, Buffer, flat
from . import deflate, frames, lz4, snappy, zstd
from .streams import Compressor, Decompressor, cores


def _peeking(kind: type[Decompressor]) -> Callable[[Any, int], bytes]:
    def peek(head: Buffer, count: int) -> bytes:
        stream, view, out = kind(), flat(head), bytearray()
        try:
            # in small steps, so that damage further on hides little of what comes before it
            for at in range(0, len(view), 256):
                for piece in stream.feed(view[at : at + 256]):
                    out += piece[: count - len(out)]
                    if len(out) == count:
                        return bytes(out)
        except DecodeError:
            pass
        return bytes(out)

    return peek


class Compression(NamedTuple):
    decompressor: type[Decompressor]
    compressor: Callable[[int | None, int | None], Compressor]
    peek: Callable[[Any, int], bytes]
    packer: Callable[[int | None], Callable[[Buffer], bytes]]
    """Makes what makes one unit (for zlib, a whole stream) of some data, at a level."""
    unit: int | None = None
    """Bytes of data in a unit that we write, if a stream may have several."""
    split: Callable[[memoryview, Limits], list[frames.Part] | None] | None = None
    """The units of a stream, if they are known before it is unpacked."""
    unpack: Callable[[Buffer, Array], None] | None = None
    """Unpacks a unit into memory of exactly its size, in one step, where that is quicker."""
    filler: Callable[[int], bytes] | None = None
    """Bytes that a reader skips."""
    guess: bool = False
    """Whether `split` may be wrong."""
    parts: Callable[[int | None], list[Callable[[Buffer], bytes]]] | None = None
    """Ways to pack a part of a tensor, which has a checksum elsewhere; `packer` if there is nothing
    better.
    """


TABLE = {
    "gzip": Compression(
        deflate.GzipDecompressor,
        deflate.gzip_compressor,
        _peeking(deflate.GzipDecompressor),
        deflate.gzip_packer,
        deflate.MEMBER,
        deflate.gzip_split,
        filler=deflate.filler,
        guess=True,
    ),
    "zlib": Compression(
        deflate.ZlibDecompressor,
        deflate.ZlibCompressor,
        _peeking(deflate.ZlibDecompressor),
        deflate.zlib_packer,
    ),
    "zstd": Compression(
        zstd.ZstdDecompressor,
        zstd.zstd_compressor,
        _peeking(zstd.ZstdDecompressor),
        zstd.packer,
        zstd.FRAME,
        zstd.split,
        zstd.unpack,
        frames.skipped,
        parts=zstd.part_packers,
    ),
    "lz4": Compression(
        lz4.Lz4Decompressor,
        lz4.lz4_compressor,
        _peeking(lz4.Lz4Decompressor),
        lz4.packer,
        lz4.FRAME,
        lz4.split,
        lz4.unpack,
        frames.skipped,
        parts=lz4.part_packers,
    ),
    "snappy": Compression(
        snappy.SnappyDecompressor,
        snappy.snappy_compressor,
        snappy.peek,
        snappy.packer,
        snappy.BLOCK,
        snappy.split,
    ),
}
NAMES = tuple(TABLE)
SUFFIXES = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zlib": "zlib",
    ".zz": "zlib",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".snappy": "snappy",
    ".sz": "snappy",
}
"""How files are named that are compressed so."""


def named_by(path: str | os.PathLike[str]) -> str | None:
    """How a file is compressed, as its name says.

    >>> named_by("a.tfrecord.gz"), named_by("a.tfrecord")
    ('gzip', None)
    """
    return SUFFIXES.get(os.path.splitext(os.fspath(path))[1])


def entry(name: str) -> Compression:
    """The row of the table, or an error that lists the names there are."""
    if name not in TABLE:
        raise UnknownFormatError(f"no compression {name!r}" + choices(name, TABLE))
    return TABLE[name]


def decompressor(name: str, limits: Limits = DEFAULT, total: int = 0) -> Decompressor:
    """Reads a compressed stream: `feed` it bytes, take the pieces of data, and `finish`, which
    finds out whether the stream was whole.

    `limits.record` bounds what has to be in memory at once because the stream says so: a Snappy
    block, the window of a zstd frame. (The others never need more than a few MiB.)
    `limits.expansion` bounds the data in all: by what the compressed bytes so far may become, or
    all `total` of them, where that is known.

    `units` is where each gzip member, frame or Snappy block began: (compressed offset, data
    offset).

    >>> import gzip
    >>> stream = decompressor("gzip")
    >>> [bytes(piece) for piece in stream.feed(gzip.compress(b"one, ") + gzip.compress(b"two"))]
    [b'one, ', b'two']
    >>> stream.finish()
    >>> stream.units
    [(0, 0), (25, 5)]
    """
    return entry(name).decompressor(limits, total)


def compressor(name: str, level: int | None = None, threads: int | None = None) -> Compressor:
    """Writes a compressed stream: each call returns what is ready to be written.

    `level` is 0 (stored) to 9 (smallest) for gzip and zlib, -7 to 22 for zstd, 0 to 16 for lz4,
    None for what is quick; Snappy has none. `threads` defaults to at most four, for Snappy to one;
    zlib cannot use more than one. They do not change the bytes.

    >>> stream = compressor("gzip")
    >>> parts = stream.write(b"one, ") + stream.flush() + stream.write(b"two") + stream.finish()
    >>> b"".join(map(bytes, decompressor("gzip").feed(b"".join(parts))))
    b'one, two'
    """
    cores(threads)
    return entry(name).compressor(level, threads)


def recognise(head: Buffer) -> str | None:
    """The name of the compression that the first bytes of a stream have the mark of.

    Snappy has no mark: try `peek`. zlib's is so weak that bytes of no compression may have it:
    whoever knows what those look like (the checksum of a record's length) looks for that first. A
    frame to skip at the start belongs to zstd or lz4: what follows it says which, if the head goes
    so far, else it is taken for zstd.

    >>> recognise(b"\\x1f\\x8b\\x08\\x00"), recognise(b"\\x28\\xb5\\x2f\\xfd"), recognise(b"\\x78\\x9c"), recognise(b"PK")
    ('gzip', 'zstd', 'zlib', None)
    """
    rest, skipped = flat(head), False
    while len(rest) >= 4 and frames.skippable(rest[:4]):
        skip, skipped = frames.skip_header(rest[:8]), True
        rest = rest[skip.end + (skip.skip or 0) :] if skip is not None else memoryview(b"")
    start = bytes(rest[:4])
    if start == lz4.MAGIC:
        return "lz4"
    if start == zstd.MAGIC or skipped:
        return "zstd"
    if start[:3] == b"\x1f\x8b\x08":
        return "gzip"
    return "zlib" if len(start) >= 2 and deflate.is_zlib(start) else None


def peek(name: str, head: Buffer, n: int) -> bytes:
    """The first n bytes of data, or as many as the head of a stream holds; none if it is no such
    stream. Bad bytes are no error here.

    >>> import zlib
    >>> peek("zlib", zlib.compress(b"hello")[:-6], 4), peek("gzip", b"hello", 4)
    (b'hell', b'')
    """
    return entry(name).peek(head, n)
