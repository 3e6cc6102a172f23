"""Blocks of whole records, scanned from a stream some hundred kilobytes at a time.

Blocks of this size are still in the CPU cache when they are decoded.

How `frames` scans a file:

1. It reads into the free part of a buffer, and a kernel finds all complete frames in it.
2. If the end of the buffer cuts off the last record, there are two ways to get the rest. A short
   beginning is moved to the start of the next block. A longer one stays in place, and the rest is
   read into the spare room behind the block, if it fits there.
3. The complete records are yielded as one `Block`: positions in the buffer, without copies.
4. The bytes that are left begin the next block. If the caller has released the last block, the next
   one uses the same memory, which is still in the cache. Otherwise it takes a new buffer from the
   pool.
5. A record that is longer than a block gets a buffer of its size at once, but only after its length
   was compared with the size of the file, or with what the limits allow a compressed stream.
6. Damage raises an error with the number and the offset of the record, after all records before it
   were yielded. `resync` continues behind damage.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import storage
from .._errors import (
    DecodeError,
    EncodeError,
    LimitError,
    TensorwireError,
    TruncatedError,
    UsageError,
    choices,
)
from .._limits import DEFAULT, Limits
from ..core import memory
from ..storage import files
from ..transforms import compression as compressions
from ..wire import kernels, status, tfrecord

Array = np.ndarray[Any, Any]

BLOCK = 512 << 10
"""Bytes per read: small enough for the L2 cache, large enough to hide the cost of Python calls."""
_MORE = 256 << 10
"""Spare room behind a block in bytes, for the rest of its last record."""
_MOVED = 4 << 10
"""Up to this many bytes of a cut-off record are moved to the next block instead."""
_FEW = 64
"""A block with fewer records than this has large records, so the next read is twice as large."""
_MAPPED = 4 << 20
"""Bytes of a memory mapping that are scanned at once."""
_HEAD = 64 << 10
"""Bytes at the start of a file from which its compression is detected."""
_NOTHING = 64
"""The maximum size in bytes of a compressed stream without content."""
_RIEGELI = bytes.fromhex("83af70d10d884a3f 0000000000000000")
"""The first bytes of a Riegeli file, another record format (ArrayRecord files are Riegeli files).
"""
_NO_BYTES: Array = np.empty(0, np.uint8)
MOST = 1 << 62
"""No limit on the number of frames that a scan returns."""


class Block(NamedTuple):
    """Records as they lie in memory.

    Record `first + i` of the file is data[starts[i] : starts[i] + sizes[i]].
    """

    data: Array
    starts: Array
    sizes: Array
    first: int
    offset: int
    """The (uncompressed) file offset of data[0]."""
    path: str
    chosen: tuple[Array, Array] | None = None
    """For records that are not consecutive: the number and the frame offset of each."""
    read: int = 0
    """Bytes of the (compressed) file that had been read when the block was made, if known."""

    @property
    def end(self) -> int:
        """The (uncompressed) file offset where the last record's frame ends."""
        return self.offset + int(self.starts[-1] + self.sizes[-1]) + tfrecord.FOOTER

    def where(self, index: int) -> tuple[int, int]:
        """Return a record's number in its file, and the file offset of its data."""
        if self.chosen is None:
            return self.first + index, self.offset + int(self.starts[index])
        return int(self.chosen[0][index]), int(self.chosen[1][index]) + tfrecord.HEADER

    def bare(self) -> Block:
        """Return the positions of the records without their bytes, so that the memory is free.

        This does not use `_replace`: CPython keeps up to 2,000 freed tuples of each length that
        were built from an iterator.
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
        """Return the records as a list of bytes objects."""
        return kernels.frame_list(self.data, self.starts, self.sizes)


class Stream(Protocol):
    """The decompressed bytes of a file, in order."""

    at: int
    """The file offset up to which the file has been read."""
    size: int | None
    """The size of the file, if it is not compressed and will not grow."""
    most: int | None
    """The number of decompressed bytes that the limits allow in total; None if not compressed."""

    def fill(self, buffer: Array) -> int:
        """Read into the buffer and return the number of bytes; 0 at the current end of the file."""

    def finish(self) -> None:
        """Raise TruncatedError if the compressed data is incomplete."""


class PlainBlocks:
    """A stream of an uncompressed file, starting at any offset."""

    most: int | None = None

    def __init__(self, source: storage.Readable, offset: int, grows: bool = False) -> None:
        self._source, self.at = source, offset
        self.size = None if grows else source.size

    def fill(self, buffer: Array) -> int:
        count = self._source.read_some(self.at, buffer)
        self.at += count
        return count

    def finish(self) -> None: ...


class Compressed:
    """A stream of a compressed file, starting at one of its `units`."""

    size: int | None = None

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
        """The points where decompression can start, so far: (file offset, uncompressed offset)."""
        return self._decompressor.units

    def finish(self) -> None:
        try:
            self._decompressor.finish()
        except DecodeError as error:
            error.add(base=self._base)
            raise


def compression_of(source: storage.Readable, name: str | None = None) -> str | None:
    """Return the compression of a file: `name` if given, else detected from the first bytes.

    A `name` of "" means that the file is not compressed. An uncompressed file is recognised first,
    because its header has a checksum. The magic numbers of zlib and Snappy are weak, so their
    content must start with such a header.
    """
    if name is not None:
        return compression_named(name)
    head = bytes(source.read_at(0, min(source.size, _HEAD)))
    if not head or tfrecord.is_header(head):
        return None
    codec = compressions.recognise(head)
    if codec in ("gzip", "zstd", "lz4") or (
        codec == "zlib" and source.size <= _NOTHING and _is_empty(codec, head)
    ):
        return codec
    return next(
        (
            candidate
            for candidate in ("zlib", "snappy")
            if tfrecord.is_header(compressions.peek(candidate, head, tfrecord.HEADER))
        ),
        None,
    )


def _is_empty(name: str, data: bytes) -> bool:
    """Return whether the data is a complete compressed stream without content."""
    stream = compressions.decompressor(name)
    with contextlib.suppress(DecodeError):
        pieces = list(stream.feed(data))
        stream.finish()
        return not any(len(piece) for piece in pieces)
    return False


def compression_named(name: str | None) -> str | None:
    """Return the canonical name of a compression, None for no compression. Ignores case.

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
    """Yield the records of one file from `offset` on, where record number `first` begins.

    The first fault is raised after the records before it were yielded. Without `check`, the caller
    verifies the checksums of the data. `wait` is called at the end of the file and returns whether
    to read again.
    """
    if wait is not None and storage.is_url(path):
        raise UsageError("follow=True needs a local file", path=path)
    source = storage.opened(path, ahead=True)
    try:
        name = compression_of(source, compression)
        if name and offset:
            raise ValueError("a compressed file can only be read from its start")
        stream: Stream
        if name:
            stream = Compressed(source, name, 0, limits or DEFAULT)
        else:
            stream = PlainBlocks(source, offset, grows=wait is not None)
        yield from frames(
            stream,
            path,
            limits or DEFAULT,
            check=check,
            pool=pool,
            base=offset,
            record=first,
            wait=wait,
        )
    except TensorwireError as error:
        raise error.add(path=path, format="tfrecord") from error.__cause__
    finally:
        source.close()


def frames(
    stream: Stream,
    path: str,
    limits: Limits,
    *,
    check: bool = True,
    pool: memory.MemoryPool | None = None,
    base: int = 0,
    record: int = 0,
    wait: Callable[[], bool] | None = None,
) -> Iterator[Block]:
    """Yield blocks of whole records from a stream. See the module docstring for the strategy.

    `base` is the stream's current offset and `record` the number of the record there.
    """
    pool = pool or memory.MemoryPool()
    buffer, have, room = pool.take(BLOCK + _MORE), 0, BLOCK
    while True:
        count = stream.fill(buffer[have:room])
        if not count:
            if wait is not None and wait():
                continue
            stream.finish()
            if have:
                raise torn(record, base, have)
            return
        have += count
        code, scanned, starts, sizes = kernels.frame_scan(
            buffer[:have], 0, check, limits.record, MOST
        )
        if (
            code == status.TRUNCATED
            and len(starts)
            and have - scanned > _MOVED
            and (end := _end(buffer, scanned)) <= len(buffer)
        ):
            # Reading the rest of the last record is cheaper than moving its beginning to the next
            # block.
            while have < end and (count := stream.fill(buffer[have:end])):
                have += count
            code, scanned, *last = kernels.frame_scan(
                buffer[:have], scanned, check, limits.record, MOST
            )
            starts, sizes = np.append(starts, last[0]), np.append(sizes, last[1])
        if len(starts):
            yield Block(buffer[:have], starts, sizes, record, base, path, read=stream.at)
            record += len(starts)
        if code not in (0, status.TRUNCATED):
            raise fault(code, buffer, scanned, limits, first=record == 0).add(
                record=record, base=base
            )
        rest = have - scanned
        wanted = _end(buffer, scanned) - scanned if rest >= tfrecord.HEADER else rest
        if stream.size is not None and wanted > stream.size - base - scanned:
            raise torn(record, base + scanned, stream.size - base - scanned)
        if stream.most is not None:
            # A compressed stream never yields more than the limits allow, so a hostile length does
            # not allocate more than that.
            wanted = min(wanted, stream.most - base - scanned)
        # A long record gets a buffer of its size at once. Untouched pages take no memory.
        room = max(BLOCK if len(starts) >= _FEW else 2 * BLOCK, wanted + 1)
        if room > len(buffer) or not memory.is_mine(buffer):
            old, buffer = buffer, pool.take(room + _MORE)
            buffer[:rest] = old[scanned:have]
            del old
        # The caller has released the block, so its memory, which is still in the cache, is reused.
        elif scanned:
            buffer[:rest] = buffer[scanned:have]
        base, have = base + scanned, rest


def _end(buffer: Array, offset: int) -> int:
    """Return where the record ends whose (valid) header is at an offset in a buffer."""
    return offset + tfrecord.HEADER + tfrecord.length_at(buffer, offset) + tfrecord.FOOTER


def mapped(
    path: str, *, compression: str | None = None, check: bool = True, limits: Limits | None = None
) -> Iterator[Block]:
    """Yield the records of one file as parts of a private memory mapping, without reading.

    The file must not be truncated while it is mapped.
    """
    limits = limits or DEFAULT
    if storage.is_url(path):
        raise UsageError("mmap=True needs a local file", path=path)
    data = np.frombuffer(files.map_file(path).view, np.uint8)
    source = files.FileSource(path)
    try:
        if compression_of(source, compression) is not None:
            raise UsageError(
                "mmap=True needs an uncompressed file", path=path, hint="leave out mmap=True"
            )
    finally:
        source.close()
    offset = record = 0
    try:
        while offset < len(data):
            part = data[offset : offset + _MAPPED]
            code, end, starts, sizes = kernels.frame_scan(part, 0, check, limits.record, MOST)
            if (
                code == status.TRUNCATED
                and not len(starts)
                and len(part) >= tfrecord.HEADER
                and offset + _end(part, 0) <= len(data)
            ):
                # The record is longer than a part, so the next part is exactly this record.
                part = data[offset : offset + _end(part, 0)]
                code, end, starts, sizes = kernels.frame_scan(part, 0, check, limits.record, MOST)
            if len(starts):
                yield Block(part, starts, sizes, record, offset, path)
                record += len(starts)
            if code not in (0, status.TRUNCATED):
                raise fault(code, part, end, limits, first=record == 0).add(
                    record=record, base=offset
                )
            offset += end
            if not len(starts):
                raise torn(record, offset, len(data) - offset)
    except TensorwireError as error:
        raise error.add(path=path, format="tfrecord") from error.__cause__


def fault(
    code: int, buffer: Array, offset: int, limits: Limits, first: bool = False
) -> DecodeError:
    """Return the error for the invalid frame at an offset in a buffer.

    `first` says that no record came before.
    """
    if code == status.TOO_LONG:
        length = tfrecord.length_at(buffer, offset)
        return LimitError(
            f"record of {length} bytes exceeds the limit of {limits.record}",
            offset=offset,
            hint="raise it with Limits(record=...)",
        )
    error = status.problem(code, offset, "tfrecord")
    if code in (status.BAD_LENGTH_CRC, status.BAD_DATA_CRC):
        error.hint = "tw.repair keeps the good records of a damaged file"
    if code == status.BAD_LENGTH_CRC and first:
        if bytes(buffer[offset : offset + len(_RIEGELI)]) == _RIEGELI:
            return DecodeError("this is a Riegeli file, not a TFRecord file", offset=offset)
        error.args = (f"{error.message}: is this a TFRecord file?",)
    return error


def torn(record: int, offset: int, left: int) -> TruncatedError:
    """Return the error for a file that ends inside a record."""
    return TruncatedError(
        f"the file ends inside a record ({left} bytes of it are there) after {record} complete"
        " records",
        record=record,
        offset=offset,
        hint="tw.repair keeps the complete records",
    )


def stat_of(path: str) -> tuple[int, int | str]:
    """Return (size, version) of a file: the version is its mtime in ns, or an object's stamp."""
    if storage.is_url(path):
        with storage.source(path) as file:
            return file.size, file.stamp
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns
