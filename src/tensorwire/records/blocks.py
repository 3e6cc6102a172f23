"""Whole records out of a file, a block of some hundred kilobytes at a time, so that what is read is
still in the cache when it is used.

How `frames` scans a file:

1. It reads into the free part of a buffer, and a kernel finds all frames that are whole in it.
2. If the last record is cut off by the end of the buffer, there are two ways to get the rest. Where
   only a little of it is there, that is moved to the start of the next block. Where more is there,
   and its end fits into the room behind the block, the rest is read into that room.
3. The whole records go to the caller as one `Block`: positions in the buffer, no copies.
4. What is left over begins the next block. If the caller has let go of the last one, the next block
   uses the same memory, which is still in the cache; otherwise it takes a fresh buffer of the pool.
5. A record that is longer than a block gets a buffer of its size at once, but only after its length
   was compared with the size of the file, or with what the limits allow a compressed stream.
6. Damage is an error with the number and the place of the record, raised after all records before
   it were given. How to go on behind damage is in `resync`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import storage
from .._errors import DecodeError, EncodeError, LimitError, TensorwireError, TruncatedError, choices
from .._limits import DEFAULT, Limits
from ..core import memory
from ..storage import files
from ..transforms import compression as compressions
from ..wire import kernels, status, tfrecord

Array = np.ndarray[Any, Any]

BLOCK = 512 << 10
"""Bytes read at once: small enough for the second cache, large enough that calls from Python do not
count.
"""
_MORE = 256 << 10
"""Room behind a block for the rest of its last record, ..."""
_MOVED = 4 << 10
"""... which is read there unless less than this would have to be moved to the next block."""
_FEW = 64
"""Of records so large that a block has fewer of them, more is read at once."""
_MAPPED = 4 << 20
"""Bytes looked at together in a mapping, which has no reading to wait for."""
_HEAD = 64 << 10
_NOTHING = 64
"""Bytes that a compressed stream without content takes at most."""
_RIEGELI = bytes.fromhex("83af70d10d884a3f 0000000000000000")
"""The first bytes of a Riegeli file, another format of records (ArrayRecord is one, too)."""
_NO_BYTES: Array = np.empty(0, np.uint8)
MOST = 1 << 62


class Block(NamedTuple):
    """Records as they lie in memory: record `first + i` of the file is data[starts[i] : starts[i] +
    sizes[i]].
    """

    data: Array
    starts: Array
    sizes: Array
    first: int
    offset: int
    """Where data[0] is in the file (uncompressed)."""
    path: str
    chosen: tuple[Array, Array] | None = None
    """For records that are not neighbours: the number of each, and where its frame begins in the
    file.
    """
    read: int = 0
    """How many bytes of the file (compressed, if it is) had been read when this was made, where
    that is known.
    """

    @property
    def end(self) -> int:
        """Where the last record's frame ends in the file (uncompressed)."""
        return self.offset + int(self.starts[-1] + self.sizes[-1]) + tfrecord.FOOTER

    def where(self, index: int) -> tuple[int, int]:
        """(number of a record in its file, where its data begins there)"""
        if self.chosen is None:
            return self.first + index, self.offset + int(self.starts[index])
        return int(self.chosen[0][index]), int(self.chosen[1][index]) + tfrecord.HEADER

    def bare(self) -> Block:
        """Where the records are, without their bytes, so that somebody else may have the memory.

        Not `_replace`: each tuple that is made of an iterator, and let go, stays with the
        interpreter, up to 2,000 of a length.
        """
        return Block(
            _NO_BYTES,
            self.starts,
            self.sizes,
            self.first,
            self.offset,
            self.path,
            self.chosen,
            self.read,
        )

    def strings(self) -> list[bytes]:
        """The records as Python objects."""
        return kernels.frame_list(self.data, self.starts, self.sizes)


class Stream(Protocol):
    """Bytes of a file in order, decompressed."""

    at: int
    """How far the file is read."""
    most: int | None
    """Bytes of data that the limits allow in all, if it is compressed."""

    def fill(self, buffer: Array) -> int:
        """Writes what there is into the buffer; 0 at the end of the file as it is now."""

    def finish(self) -> None:
        """Raises TruncatedError if the end came too early."""


class PlainBlocks:
    """A file that is not compressed, from any place on."""

    most: int | None = None

    def __init__(self, source: storage.Readable, offset: int) -> None:
        self._source, self.at = source, offset

    def fill(self, buffer: Array) -> int:
        count = self._source.read_some(self.at, buffer)
        self.at += count
        return count

    def finish(self) -> None: ...


class Compressed:
    """A compressed file from one of the places where decompression can start."""

    def __init__(self, source: storage.Readable, name: str, offset: int, limits: Limits) -> None:
        self._source, self.at, self._base = source, offset, offset
        self.most: int | None = limits.allowed(source.size - offset)
        self._decompressor = compressions.decompressor(name, limits, source.size - offset)
        self._pieces: Iterator[Any] = iter(())
        self._piece = memoryview(b"")
        self._raw = memory.fresh(BLOCK)

    def fill(self, buffer: Array) -> int:
        try:
            while not len(self._piece):
                piece = next(self._pieces, None)
                if piece is None:
                    count = self._source.read_some(self.at, self._raw)
                    if count == 0:
                        return 0
                    self.at += count
                    self._pieces = iter(self._decompressor.feed(self._raw[:count]))
                else:
                    self._piece = memoryview(piece)
        except DecodeError as error:
            error.add(base=self._base)
            raise
        count = min(len(self._piece), len(buffer))
        buffer[:count] = np.frombuffer(self._piece[:count], np.uint8)
        self._piece = self._piece[count:]
        return count

    @property
    def units(self) -> list[tuple[int, int]]:
        """Such places so far: (in the file, uncompressed)."""
        return self._decompressor.units

    def finish(self) -> None:
        try:
            self._decompressor.finish()
        except DecodeError as error:
            error.add(base=self._base)
            raise


def compression_of(source: storage.Readable, asked: str | None = None) -> str | None:
    """How a file is compressed: as the caller says (None for not at all is ""), or as its first
    bytes say.

    Plain comes first: its header has a checksum. zlib and Snappy, whose marks are weak, must
    decompress to such a header.
    """
    if asked is not None:
        return compression_named(asked)
    head = bytes(source.read_at(0, min(source.size, _HEAD)))
    if not head or tfrecord.is_header(head):
        return None
    found = compressions.recognise(head)
    if found in ("gzip", "zstd", "lz4") or (
        found == "zlib" and source.size <= _NOTHING and _is_empty(found, head)
    ):
        return found
    return next(
        (
            name
            for name in ("zlib", "snappy")
            if tfrecord.is_header(compressions.peek(name, head, tfrecord.HEADER))
        ),
        None,
    )


def _is_empty(name: str, data: bytes) -> bool:
    """Whether this is a whole stream with nothing in it."""
    stream = compressions.decompressor(name)
    with contextlib.suppress(DecodeError):
        pieces = list(stream.feed(data))
        stream.finish()
        return not any(len(piece) for piece in pieces)
    return False


def compression_named(name: str | None) -> str | None:
    """None for no compression; TensorFlow's capitals are understood.

    >>> compression_named("GZIP"), compression_named("")
    ('gzip', None)
    """
    lower = (name or "").lower()
    if lower in ("", "none"):
        return None
    if lower not in compressions.TABLE:
        raise EncodeError(f"unknown compression {name!r}{choices(lower, compressions.TABLE)}")
    return lower


def blocks(
    path: str,
    *,
    compression: str | None = None,
    check: bool = True,
    limits: Limits | None = None,
    pool: memory.MemoryPool | None = None,
    offset: int = 0,
    first: int = 0,
    wait: Callable[[], bool] | None = None,
) -> Iterator[Block]:
    """The records of one file from `offset` on, which is where record number `first` begins.

    The first thing that is wrong is raised, after the records before it were given. Without `check`
    the caller checks the data's checksums. `wait` is called at the end of the file, and says
    whether to look again.
    """
    if wait is not None and storage.is_url(path):
        raise EncodeError("follow=True is for local files: an object does not grow", path=path)
    source = storage.opened(path, ahead=True)
    try:
        name = compression_of(source, compression)
        if name and offset:
            raise ValueError("a compressed file is read from its start")
        stream: Stream = (
            Compressed(source, name, 0, limits or DEFAULT) if name else PlainBlocks(source, offset)
        )
        size = None if name or wait else source.size
        yield from frames(
            stream,
            path,
            size,
            check,
            limits or DEFAULT,
            pool or memory.MemoryPool(),
            offset,
            first,
            wait,
        )
    except TensorwireError as error:
        raise error.add(path=path, format="tfrecord") from error.__cause__
    finally:
        source.close()


def of_stream(stream: Stream, path: str, limits: Limits) -> Iterator[Block]:
    """All records of a stream, checked."""
    return frames(stream, path, None, True, limits, memory.MemoryPool(), 0, 0)


def frames(
    stream: Stream,
    path: str,
    size: int | None,
    check: bool,
    limits: Limits,
    pool: memory.MemoryPool,
    base: int,
    record: int,
    wait: Callable[[], bool] | None = None,
) -> Iterator[Block]:
    """Blocks of whole records out of a stream; `size` is that of the file where it is known and
    final.
    """
    buffer, have, room = pool.take(BLOCK + _MORE), 0, BLOCK
    while True:
        got = stream.fill(buffer[have:room])
        if not got:
            if wait is not None and wait():
                continue
            stream.finish()
            if have:
                raise torn(record, base, have)
            return
        have += got
        code, at, starts, sizes = kernels.frame_scan(buffer[:have], 0, check, limits.record, MOST)
        if (
            code == status.TRUNCATED
            and len(starts)
            and have - at > _MOVED
            and (end := _end(buffer, at)) <= len(buffer)
        ):
            # Reading the rest of the last record is cheaper than moving its beginning to the next
            # block.
            while have < end and (got := stream.fill(buffer[have:end])):
                have += got
            code, at, *last = kernels.frame_scan(buffer[:have], at, check, limits.record, MOST)
            starts, sizes = np.append(starts, last[0]), np.append(sizes, last[1])
        if len(starts):
            yield Block(buffer[:have], starts, sizes, record, base, path, read=stream.at)
            record += len(starts)
        if code not in (0, status.TRUNCATED):
            raise fault(code, buffer, at, limits, first=record == 0).add(record=record, base=base)
        rest = have - at
        wanted = _end(buffer, at) - at if rest >= tfrecord.HEADER else rest
        if size is not None and wanted > size - base - at:
            raise torn(record, base + at, size - base - at)
        if stream.most is not None:
            wanted = min(wanted, stream.most - base - at)  # The stream gives no more than that.
        # A record has a buffer of its size at once: pages that nothing was written to take no
        # memory.
        room = max(BLOCK if len(starts) >= _FEW else 2 * BLOCK, wanted + 1)
        if room > len(buffer) or not memory.is_mine(buffer):
            old, buffer = buffer, pool.take(room + _MORE)
            buffer[:rest] = old[at:have]
            del old
        elif at:  # whoever had the block is done with it: the same memory is still in the cache
            buffer[:rest] = buffer[at:have]
        base, have = base + at, rest


def _end(buffer: Array, at: int) -> int:
    """Where the record ends whose header is at a place in a buffer, and holds."""
    return at + tfrecord.HEADER + tfrecord.length_at(buffer, at) + tfrecord.FOOTER


def mapped(
    path: str, *, compression: str | None = None, check: bool = True, limits: Limits | None = None
) -> Iterator[Block]:
    """The same without reading: blocks are parts of a private mapping, for files that nobody
    truncates meanwhile.
    """
    limits = limits or DEFAULT
    if storage.is_url(path):
        raise EncodeError("mmap=True is for local files", path=path)
    data = np.frombuffer(files.map_file(path).view, np.uint8)
    source = files.FileSource(path)
    try:
        if compression_of(source, compression) is not None:
            raise EncodeError(
                "mmap=True is for plain files: what is compressed must be unpacked somewhere",
                path=path,
            )
    finally:
        source.close()
    at = record = 0
    try:
        while at < len(data):
            part = data[at : at + _MAPPED]
            code, end, starts, sizes = kernels.frame_scan(part, 0, check, limits.record, MOST)
            if (
                code == status.TRUNCATED
                and not len(starts)
                and len(part) >= tfrecord.HEADER
                and at + _end(part, 0) <= len(data)
            ):
                part = data[at : at + _end(part, 0)]  # a record that is longer than a block
                code, end, starts, sizes = kernels.frame_scan(part, 0, check, limits.record, MOST)
            if len(starts):
                yield Block(part, starts, sizes, record, at, path)
                record += len(starts)
            if code not in (0, status.TRUNCATED):
                raise fault(code, part, end, limits, first=record == 0).add(record=record, base=at)
            at += end
            if not len(starts):
                raise torn(record, at, len(data) - at)
    except TensorwireError as error:
        raise error.add(path=path, format="tfrecord") from error.__cause__


def fault(code: int, buffer: Array, at: int, limits: Limits, first: bool = False) -> DecodeError:
    """The error for what is wrong with the frame at a place in a buffer; `first` says that no
    record came before.
    """
    if code == status.TOO_LONG:
        length = tfrecord.length_at(buffer, at)
        return LimitError(
            f"a record of {length} bytes; Limits(record=...) allows {limits.record}", offset=at
        )
    error = status.problem(code, at, "tfrecord")
    if code == status.BAD_LENGTH_CRC and first:
        what = "this is a Riegeli file, not a TFRecord file"
        if bytes(buffer[at : at + len(_RIEGELI)]) != _RIEGELI:
            what = f"{error.message}: is this a record file? (tw.repair looks for records in it)"
        error.args = (what,)
    return error


def torn(record: int, offset: int, left: int) -> TruncatedError:
    """The error for a file that ends inside a record."""
    return TruncatedError(
        f"the file ends inside a record ({left} bytes of it are there) after {record} whole"
        " records; tw.repair keeps those",
        record=record,
        offset=offset,
    )


def stat_of(path: str) -> tuple[int, int | str]:
    """(size, mtime in ns, or an object's stamp): what tells whether a file has changed."""
    if storage.is_url(path):
        with storage.source(path) as file:
            return file.size, file.stamp
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns
