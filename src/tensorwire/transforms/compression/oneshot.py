"""Whole buffers, compressed and back. Where the stream consists of units of known size, they are
unpacked in parallel, straight to their places; elsewhere the data grows in pieces. Either way the
budget is drawn on before memory is taken.
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
from .streams import PIECE, cores, each, filling, keep_memory

_TASK = 4 << 20
"""Bytes of data that a thread unpacks at least, before it takes more."""
_WHOLE = 4 << 20
"""A unit of up to so many bytes is unpacked in one step, which takes as much memory again."""
_CHUNK = 8 << 20
"""Bytes of memory that is given back at once when it was copied: what grows in such chunks never
takes twice its size.
"""


def compress(
    chunks: Iterable[Any],
    name: str,
    level: int | None = None,
    threads: int | None = None,
    expanded: int = 0,
) -> list[bytes]:
    """A stream of all chunks, one after the other; see `compression.compressor` for the options.

    `expanded` is how many bytes a reader makes of the data besides, which its budget has to allow.

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

    out: list[bytes] = list(each(pack, counted(), count))
    if row.filler is not None:
        missing = filling(taken, sum(map(len, out)))
        out += [row.filler(missing)] if missing else [] if out else [pack(b"")]
    return out


def _units(chunks: Iterable[Any], size: int) -> Iterator[Buffer]:
    """The same bytes in pieces of exactly this size, but for the last. What lies within one chunk
    is not copied.
    """
    held, have = list[Buffer](), 0
    for chunk in chunks:
        view, at = flat(chunk), 0
        while at < len(view):
            part = view[at : at + size - have]
            held.append(part)
            have += len(part)
            at += len(part)
            if have == size:
                yield part if len(held) == 1 else b"".join(held)
                held, have = [], 0
    if have:
        yield held[0] if len(held) == 1 else b"".join(held)


def decompress(data: Any, name: str, limits: Limits = DEFAULT) -> Array:
    """The data of a whole stream in new, writable memory that starts at a multiple of 64.

    It draws on the budget of the call, or on one of its own for the compressed bytes. What is no
    whole stream is an error, and so is anything behind its end.

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
        with contextlib.suppress(DecodeError):  # the guess was wrong
            out = _divided(view, row, parts, budget.record)
            budget.draw(len(out), name, 0)
            return out
    return _growing(view, row, budget)


def _divided(view: memoryview, row: Compression, parts: list[frames.Part], record: int) -> Array:
    out = fresh(frames.total(parts))

    def work(group: list[tuple[frames.Part, int]]) -> None:
        for (start, stop, size), at in group:
            try:
                _fill(out[at : at + size], view[start:stop], row, record)
            except DecodeError as error:
                raise error.add(base=start) from error.__cause__

    for _ in each(work, _groups(parts), cores(None)):
        pass
    return out


def _groups(parts: list[frames.Part]) -> Iterator[list[tuple[frames.Part, int]]]:
    """Neighbours that together are worth a thread's while, each with the place of its data."""
    group, begin, at = list[tuple[frames.Part, int]](), 0, 0
    for part in parts:
        group.append((part, at))
        at += part[2]
        if at - begin >= _TASK:
            yield group
            group, begin = [], at
    if group:
        yield group


def _fill(out: Array, data: memoryview, row: Compression, record: int) -> None:
    """Unpacks what becomes exactly as much as there is room for, which was drawn already."""
    if row.unpack is not None and 0 < len(out) <= _WHOLE:
        row.unpack(data, out)
        return
    stream, at = row.decompressor(Limits(record=record, expansion=len(out) + PIECE)), 0
    for piece in stream.feed(data):
        if len(piece) > len(out) - at:
            raise _other_size(row, len(out))
        out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    stream.finish()
    if at != len(out):
        raise _other_size(row, len(out))


def unit(data: memoryview, size: int, row: Compression) -> Array:
    """The data of one unit, or of a zlib stream, which has exactly so many bytes."""
    out = np.empty(size, np.uint8)
    _fill(out, data, row, size)
    return out


def _other_size(row: Compression, size: int) -> DecodeError:
    name = row.decompressor.name
    return DecodeError(
        f"the data has other than the {size} bytes that it should have", format=name, offset=0
    )


def _growing(view: memoryview, row: Compression, budget: Budget) -> Array:
    stream, chunks, size = row.decompressor(budget, budget.input), list[mmap.mmap](), 0
    for piece in stream.feed(view):
        budget.draw(len(piece), row.decompressor.name, 0)
        at = 0
        while at < len(piece):
            place = size % _CHUNK
            if not place:
                chunks.append(mmap.mmap(-1, _CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            count = min(len(piece) - at, _CHUNK - place)
            chunks[-1][place : place + count] = piece[at : at + count]
            at += count
            size += count
    stream.finish()
    out = fresh(size)
    for at in range(0, size, _CHUNK):
        chunk = chunks[at // _CHUNK]
        count = min(_CHUNK, size - at)
        out[at : at + count] = np.frombuffer(chunk, np.uint8, count)
        chunk.close()
    return out
