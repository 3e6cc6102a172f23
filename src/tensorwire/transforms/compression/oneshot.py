"""One-shot compression and decompression of whole buffers.

1. If a stream consists of units of known size, they are decompressed in parallel, directly into
   their places in the result.
2. Otherwise the stream is decompressed in order, into chunks that are copied in the end.
3. In both cases the budget is drawn on before memory is allocated.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..._errors import DecodeError
from ..._limits import DEFAULT, Budget, Limits
from ...core.memory import Array, Buffer, flat, fresh
from .. import compression
from . import Compression, frames
from .streams import PIECE, cores, filling, keep_memory, map_parallel

_TASK = 4 << 20
"""Bytes of data that a thread decompresses at least as one task."""
_WHOLE = 4 << 20
"""Units of up to this many bytes are decompressed in one step, which takes twice the memory."""
_CHUNK = 8 << 20
"""Bytes of a chunk. Each chunk is freed as soon as it is copied, so the result and the chunks
together never take twice the size of the data.
"""


def compress(
    chunks: Iterable[Any],
    name: str,
    level: int | None = None,
    threads: int | None = None,
    expanded: int = 0,
) -> list[bytes]:
    """Compress all chunks into one stream. See `compression.compressor` for the options.

    `expanded` are the bytes that a reader allocates in addition to the data, and that its budget
    must allow.

    >>> bytes(decompress(b"".join(compress([b"one, ", b"two"], "gzip")), "gzip"))
    b'one, two'
    """
    row, count = compression.entry(name), cores(threads)
    if row.unit is None:
        stream = compression.compressor(name, level, threads)
        stream.expanded = expanded
        return [part for chunk in chunks for part in stream.write(chunk)] + stream.finish()
    pack, taken = row.packer(level), expanded

    def counted() -> Iterator[Buffer]:
        nonlocal taken
        for unit in _units(chunks, row.unit or 1):
            taken += len(unit)
            yield unit

    out: list[bytes] = list(map_parallel(pack, counted(), count))
    if row.filler is not None:
        missing = filling(taken, sum(map(len, out)))
        out += [row.filler(missing)] if missing else [] if out else [pack(b"")]
    return out


def _units(chunks: Iterable[Any], size: int) -> Iterator[Buffer]:
    """Yield the same bytes in pieces of exactly this size, except the last.

    A piece that lies within one chunk is not copied.
    """
    parts, size_so_far = list[Buffer](), 0
    for chunk in chunks:
        view, position = flat(chunk), 0
        while position < len(view):
            part = view[position : position + size - size_so_far]
            parts.append(part)
            size_so_far += len(part)
            position += len(part)
            if size_so_far == size:
                yield part if len(parts) == 1 else b"".join(parts)
                parts, size_so_far = [], 0
    if size_so_far:
        yield parts[0] if len(parts) == 1 else b"".join(parts)


def decompress(data: Any, name: str, limits: Limits = DEFAULT) -> Array:
    """Decompress a whole stream into new, writable memory that starts at a multiple of 64.

    The data is drawn on the budget of the call, or on a new one if `limits` is not a Budget. Raises
    DecodeError if the stream is not complete, or if anything follows it.

    >>> import zlib
    >>> decompress(zlib.compress(bytes(1000)), "zlib").shape
    (1000,)
    """
    view, row = flat(data), compression.entry(name)
    budget = limits.call(len(view))
    keep_memory()
    parts = row.split(view, limits) if row.split is not None else None
    if parts is not None and not row.guess:
        budget.draw(frames.total(parts), name, 0)
        return _divided(view, row, parts, budget.record)
    if parts is not None and frames.total(parts) <= budget.left:
        # If the guess was wrong, the stream is read in order below.
        with contextlib.suppress(DecodeError):
            out = _divided(view, row, parts, budget.record)
            budget.draw(len(out), name, 0)
            return out
    return _growing(view, row, budget)


def _divided(view: memoryview, row: Compression, parts: list[frames.Part], record: int) -> Array:
    """Decompress units in parallel, directly into their places."""
    out = fresh(frames.total(parts))

    def work(group: list[tuple[frames.Part, int]]) -> None:
        for (start, stop, size), position in group:
            try:
                _fill(out[position : position + size], view[start:stop], row, record)
            except DecodeError as error:
                raise error.add(base=start) from error.__cause__

    for _ in map_parallel(work, _groups(parts), cores(None)):
        pass
    return out


def _groups(parts: list[frames.Part]) -> Iterator[list[tuple[frames.Part, int]]]:
    """Yield groups of adjacent units of at least _TASK bytes, each unit with its data offset."""
    group, group_start, position = list[tuple[frames.Part, int]](), 0, 0
    for part in parts:
        group.append((part, position))
        position += part[2]
        if position - group_start >= _TASK:
            yield group
            group, group_start = [], position
    if group:
        yield group


def _fill(out: Array, data: memoryview, row: Compression, record: int) -> None:
    """Decompress data of exactly len(out) bytes, which the caller has drawn on the budget."""
    if row.unpack is not None and 0 < len(out) <= _WHOLE:
        row.unpack(data, out)
        return
    stream, position = row.decompressor(Limits(record=record, expansion=len(out) + PIECE)), 0
    for piece in stream.feed(data):
        if len(piece) > len(out) - position:
            raise _wrong_size(row, len(out))
        out[position : position + len(piece)] = np.frombuffer(piece, np.uint8)
        position += len(piece)
    stream.finish()
    if position != len(out):
        raise _wrong_size(row, len(out))


def unit(data: memoryview, size: int, row: Compression) -> Array:
    """Decompress one unit, or a zlib stream, of exactly `size` bytes of data."""
    out = np.empty(size, np.uint8)
    _fill(out, data, row, size)
    return out


def _wrong_size(row: Compression, size: int) -> DecodeError:
    name = row.decompressor.name
    return DecodeError(
        f"the compressed data does not expand to exactly {size} bytes", format=name, offset=0
    )


def _growing(view: memoryview, row: Compression, budget: Budget) -> Array:
    """Decompress a stream of unknown size in order."""
    stream, chunks, size = row.decompressor(budget, budget.input), list[mmap.mmap](), 0
    for piece in stream.feed(view):
        budget.draw(len(piece), row.decompressor.name, 0)
        position = 0
        while position < len(piece):
            chunk_offset = size % _CHUNK
            if not chunk_offset:
                chunks.append(mmap.mmap(-1, _CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            count = min(len(piece) - position, _CHUNK - chunk_offset)
            chunks[-1][chunk_offset : chunk_offset + count] = piece[position : position + count]
            position += count
            size += count
    stream.finish()
    out = fresh(size)
    for position in range(0, size, _CHUNK):
        chunk = chunks[position // _CHUNK]
        count = min(_CHUNK, size - position)
        out[position : position + count] = np.frombuffer(chunk, np.uint8, count)
        chunk.close()
    return out
