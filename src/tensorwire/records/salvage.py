"""Salvage of damaged compressed files: decompresses every part that is still readable.

1. Decompression runs up to the damage and keeps what it has produced.
2. It continues at the next unit where decompression can start: a gzip member, a zstd or lz4 frame,
   or a Snappy block. A zlib stream has no such units.
3. A candidate for a unit counts if it decompresses to a complete unit, or to a good amount of data.
   Failed trials are charged to a budget, so that a hostile file cannot demand too many.
4. Wrong data does no harm: each record has checksums of its own, which the search for records
   verifies.
5. More data than `Limits.expansion` allows is not damage but an error, here too.
"""

from __future__ import annotations

import os
import tempfile
from typing import IO

import numpy as np

from .. import storage
from .._errors import DecodeError, TruncatedError
from .._limits import Limits
from ..core import memory
from ..storage import files
from ..transforms import compression
from ..transforms.compression import lz4, streams, zstd

_BLOCK = 512 << 10
_MAGICS = {"gzip": b"\x1f\x8b\x08", "zstd": zstd.MAGIC, "lz4": lz4.MAGIC}
_ENOUGH = 64 << 10
"""Random bytes never decompress to this much data."""
_MIN_CUT = 64
"""Random bytes are rejected before this many compressed bytes were read."""
_TRIAL = 4096
"""The minimum cost of a trial, in bytes that take as long to decompress."""

Lost = tuple[int, int, str]
"""(offset, length, reason) in the compressed file."""


def salvage(
    source: storage.Readable, name: str, limits: Limits, folder: str | None = None
) -> tuple[files.FileSource, list[Lost]]:
    """Decompress what is readable of a file and return (the content, the parts that are lost).

    The content is a temporary file without a name, which lasts as long as it is open.
    """
    search = _Search(source, name, limits)
    lost: list[Lost] = []
    with tempfile.NamedTemporaryFile(prefix="tensorwire-", dir=folder, delete=False) as file:
        content = files.FileSource(file.name)
        # The name is removed at once, so that a crash leaves no file behind.
        os.unlink(file.name)
        offset = 0
        try:
            while offset < source.size:
                fault = _pour(
                    source,
                    offset,
                    compression.decompressor(name, limits, source.size - offset),
                    file,
                )
                if fault is None:
                    break
                # Each restart has a new stream that counts from zero, so the total is checked here.
                limits.check(file.tell(), source.size, name, offset)
                unit, fault_offset, why = fault
                offset = search.after(unit)
                fault_offset = min(fault_offset, offset)
                lost.append((fault_offset, offset - fault_offset, why))
            file.flush()
            content.size = os.fstat(file.fileno()).st_size
        except BaseException:
            content.close()
            raise
    return content, lost


def _pour(
    source: storage.Readable, offset: int, stream: streams.Decompressor, file: IO[bytes]
) -> tuple[int, int, str] | None:
    """Decompress from an offset as far as possible.

    Returns None at the end of the file, else (offset of the faulty unit, offset of the fault,
    reason).
    """
    begin, buffer = offset, memory.fresh(_BLOCK)
    try:
        while offset < source.size:
            count = min(_BLOCK, source.size - offset)
            source.read_into(offset, buffer[:count])
            offset += count
            for piece in stream.feed(buffer[:count]):
                file.write(piece)
        stream.finish()
    except DecodeError as error:
        if stream.over:
            raise error.add(base=begin) from None
        units = stream.units
        return begin + (units[-1][0] if units else 0), begin + (error.offset or 0), error.message
    return None


class _Search:
    """Finds the next unit where decompression can start.

    Failed trials are charged to a budget that depends on the size of the file alone.
    """

    def __init__(self, source: storage.Readable, name: str, limits: Limits) -> None:
        self._source, self._name, self._limits = source, name, limits
        self._left = (64 << 20) + source.size

    def after(self, start: int) -> int:
        """Return the offset of the first unit after `start`, or the end of the file.

        `start` is the start of the faulty unit, not the fault itself: by then the decompressor may
        have read into the next unit.
        """
        size = self._source.size
        if self._name == "snappy" and start + 4 < size:
            end = start + 4 + int.from_bytes(self._source.read_at(start, 4), "big")
            if end == size or (end < size and self._starts(end)):
                return end
        offset = start + 1
        while self._name != "zlib" and offset < size:
            data = self._source.read_at(offset, min(_BLOCK, size - offset))
            for position in self._places(data):
                if self._left <= 0:
                    return size
                if self._starts(offset + position):
                    return offset + position
            if offset + len(data) >= size:
                break
            # A magic number may lie across the edge of two reads.
            offset += len(data) - 3
        return size

    def _places(self, data: memoryview) -> list[int]:
        """Return the positions in the data where a unit may start."""
        if self._name in _MAGICS:
            content, places, position = bytes(data), [], -1
            while (position := content.find(_MAGICS[self._name], position + 1)) >= 0:
                places.append(position)
            return places
        words = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 4)
        lengths = words.astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
        return [int(candidate) for candidate in np.flatnonzero((lengths > 2) & (lengths <= _BLOCK))]

    def _starts(self, offset: int) -> bool:
        """Return whether a complete unit, or at least a good part of one, starts at an offset."""
        stream, begin, out = (
            compression.decompressor(self._name, self._limits, self._source.size - offset),
            offset,
            0,
        )
        good = False
        try:
            while not good and offset < self._source.size and offset - begin < 2 * _BLOCK:
                data = self._source.read_at(
                    offset, min(1024 if offset == begin else _ENOUGH, self._source.size - offset)
                )
                offset += len(data)
                for piece in stream.feed(data):
                    out += len(piece)
                    if out >= _ENOUGH:
                        return True
                good = len(stream.units) > 1 and out > 0
            if offset == self._source.size:
                stream.finish()
                good = True
        except DecodeError as error:
            # A truncated unit counts too, if it was valid up to its end.
            good = out > 0 and (
                len(stream.units) > 1
                or (isinstance(error, TruncatedError) and offset - begin > _MIN_CUT)
            )
        if not good:
            self._left -= _TRIAL + offset - begin
        return good
