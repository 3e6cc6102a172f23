"""Compressed record files, in pieces and without I/O: one table of compressions by name.

gzip     independent members: written in parallel, and a reader can start at any of them
zlib     one stream
snappy   TensorFlow's blocks: quick, and no checksum of its own
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .._errors import DecodeError, UnknownFormatError, choices
from ..memory import flat
from . import deflate, snappy
from .streams import Compressor, Decompressor


def _peek_deflate(kind: type[Decompressor]) -> Callable[[Any, int], bytes]:
    def peek(head: Any, count: int) -> bytes:
        stream, view, out = kind(0), flat(head), bytearray()
        try:
            for at in range(0, len(view), 256):  # in small steps, so that damage further on hides little of what comes before it
                for piece in stream.feed(view[at : at + 256]):
                    out += piece[: count - len(out)]
                    if len(out) == count:
                        return bytes(out)
        except DecodeError:
            pass
        return bytes(out)

    return peek


class _Compression(NamedTuple):
    decompressor: type[Decompressor]
    compressor: Callable[[int | None, int | None], Compressor]
    peek: Callable[[Any, int], bytes]


TABLE = {
    "gzip": _Compression(deflate.GzipDecompressor, deflate.gzip_compressor, _peek_deflate(deflate.GzipDecompressor)),
    "zlib": _Compression(deflate.ZlibDecompressor, deflate.ZlibCompressor, _peek_deflate(deflate.ZlibDecompressor)),
    "snappy": _Compression(snappy.SnappyDecompressor, snappy.snappy_compressor, snappy.peek),
}
NAMES = tuple(TABLE)


def _entry(name: str) -> _Compression:
    if name not in TABLE:
        raise UnknownFormatError(f"no compression {name!r}" + choices(name, TABLE))
    return TABLE[name]


def decompressor(name: str, *, limit: int) -> Decompressor:
    """Reads a compressed stream: `feed` it bytes, take the pieces of data, and `finish`, which finds out whether the stream was whole.

    `limit` is the most data that has to be in memory at once because the stream says so: a Snappy block. (gzip and zlib never need more
    than a piece of 1 MiB.) `units` is where each gzip member or Snappy block began: (compressed offset, data offset).

    >>> import gzip
    >>> stream = decompressor("gzip", limit=1 << 30)
    >>> [bytes(piece) for piece in stream.feed(gzip.compress(b"one, ") + gzip.compress(b"two"))]
    [b'one, ', b'two']
    >>> stream.finish()
    >>> stream.units
    [(0, 0), (25, 5)]
    """
    return _entry(name).decompressor(limit)


def compressor(name: str, level: int | None = None, threads: int | None = None) -> Compressor:
    """Writes a compressed stream: each call returns what is ready to be written.

    `level` is 0 (stored) to 9 (smallest) for gzip and zlib, None for what is quick; Snappy has none. `threads` defaults to at most four for
    gzip; zlib cannot use more than one.

    >>> stream = compressor("gzip")
    >>> parts = stream.write(b"one, ") + stream.flush() + stream.write(b"two") + stream.finish()
    >>> b"".join(map(bytes, decompressor("gzip", limit=0).feed(b"".join(parts))))
    b'one, two'
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: one at least")
    return _entry(name).compressor(level, threads)


def recognise(head: Any) -> str | None:
    """The name of the compression that the first bytes of a stream have the mark of.

    Snappy has no mark: try `peek`. zlib's is so weak that bytes of no compression may have it: whoever knows what those look like (the
    checksum of a record's length) looks for that first.

    >>> recognise(b"\\x1f\\x8b\\x08\\x00"), recognise(b"\\x78\\x9c"), recognise(b"PK")
    ('gzip', 'zlib', None)
    """
    start = bytes(flat(head)[:3])
    if start == b"\x1f\x8b\x08":
        return "gzip"
    return "zlib" if len(start) >= 2 and deflate.is_zlib(start) else None


def peek(name: str, head: Any, n: int) -> bytes:
    """The first n bytes of data, or as many as the head of a stream holds; none if it is no such stream. Bad bytes are no error here.

    >>> import zlib
    >>> peek("zlib", zlib.compress(b"hello")[:-6], 4), peek("gzip", b"hello", 4)
    (b'hell', b'')
    """
    return _entry(name).peek(head, n)
