"""Compressed streams, processed in pieces and without I/O: the table of compressions by name.

gzip     independent members: written in parallel, and a reader can start at any of them
zlib     a single stream
zstd     independent frames: smaller and faster than gzip, but few TensorFlow tools read it
lz4      independent frames: the fastest to read that has a checksum
snappy   TensorFlow's blocks: fast, without a checksum of its own
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
            # Feed small steps, so that damage further on hides little of the data before it.
            for start in range(0, len(view), 256):
                for piece in stream.feed(view[start : start + 256]):
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
    """Level -> function that compresses data into one unit (for zlib, into a whole stream)."""
    unit: int | None = None
    """Bytes of data in a unit that we write. None if a stream has a single unit."""
    split: Callable[[memoryview, Limits], list[frames.Part] | None] | None = None
    """Returns the units of a stream, if they are known before it is decompressed."""
    unpack: Callable[[Buffer, Array], None] | None = None
    """Decompresses a unit into memory of exactly its size in one step, if that is faster."""
    filler: Callable[[int], bytes] | None = None
    """Returns padding bytes that a reader skips."""
    guess: bool = False
    """Whether `split` may be wrong."""
    parts: Callable[[int | None], list[Callable[[Buffer], bytes]]] | None = None
    """Level -> candidate functions for a part of a tensor, which has its checksum elsewhere. None
    to use `packer`.
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
"""File name suffix -> compression."""


def named_by(path: str | os.PathLike[str]) -> str | None:
    """Return the compression that the suffix of a file name denotes, or None.

    >>> named_by("a.tfrecord.gz"), named_by("a.tfrecord")
    ('gzip', None)
    """
    return SUFFIXES.get(os.path.splitext(os.fspath(path))[1])


def entry(name: str) -> Compression:
    """Return the row of a compression. Raises UnknownFormatError with the known names."""
    if name not in TABLE:
        raise UnknownFormatError(f"unknown compression {name!r}" + choices(name, TABLE))
    return TABLE[name]


def decompressor(name: str, limits: Limits = DEFAULT, total: int = 0) -> Decompressor:
    """Return a decompressor: `feed` it bytes, take the pieces of data, and call `finish`.

    `finish` raises TruncatedError if the stream is not complete.

    `limits.record` bounds the memory that the stream requires at once: a Snappy block, or the
    window of a zstd frame. (The others never need more than a few MiB.) `limits.expansion` bounds
    the data in all, in relation to the compressed bytes so far, or to `total`, if the compressed
    size is known.

    `units` are the offsets of each gzip member, frame or Snappy block: (compressed offset, data
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
    """Return a compressor, whose calls return the bytes that are ready to be written.

    `level` is 0 (stored) to 9 (smallest) for gzip and zlib, -7 to 22 for zstd, 0 to 16 for lz4, and
    None for a fast default. Snappy has no levels. `threads` defaults to at most four, for Snappy to
    one. zlib always uses one. The output does not depend on the number of threads.

    >>> stream = compressor("gzip")
    >>> parts = stream.write(b"one, ") + stream.flush() + stream.write(b"two") + stream.finish()
    >>> b"".join(map(bytes, decompressor("gzip").feed(b"".join(parts))))
    b'one, two'
    """
    cores(threads)
    return entry(name).compressor(level, threads)


def recognise(head: Buffer) -> str | None:
    """Return the name of the compression whose magic bytes a stream starts with, or None.

    Snappy has no magic bytes: try `peek`. Those of zlib are so weak that uncompressed data may have
    them too, so the caller should check for uncompressed data first (for example the checksum of a
    record's length). A skippable frame at the start belongs to zstd or lz4. The bytes after it
    decide; if they are not in the head, it is taken for zstd.

    >>> recognise(b"\\x1f\\x8b\\x08\\x00"), recognise(b"\\x28\\xb5\\x2f\\xfd"), recognise(b"PK")
    ('gzip', 'zstd', None)
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
    """Return the first n bytes of data, or as many as the head of a stream contains.

    Returns b"" if the head is not such a stream. Invalid bytes do not raise.

    >>> import zlib
    >>> peek("zlib", zlib.compress(b"hello")[:-6], 4), peek("gzip", b"hello", 4)
    (b'hell', b'')
    """
    return entry(name).peek(head, n)
