"""What can still be unpacked of a damaged compressed file: all up to the damage, and from the next
place where unpacking can start.

gzip members, zstd and lz4 frames and Snappy blocks are such places; a zlib stream has none. Wrong
data does no harm here: each record has checksums of its own, so what the unpacker could not know to
be wrong the search for records will. More data than `Limits.expansion` allows is no damage, and an
error here too.
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
"""Data that comes out of a place by chance is never so much."""
_MIN_CUT = 64
"""Compressed bytes that make no sense are found out sooner."""
_TRIAL = 4096
"""What a trial costs at least, in bytes that take as long to unpack."""

Lost = tuple[int, int, str]
"""(offset, length, why), in the compressed file."""


def salvage(
    source: storage.Readable, name: str, limits: Limits, folder: str | None = None
) -> tuple[files.FileSource, list[Lost]]:
    """(the content as a file without a name, which lasts as long as it is open; what could not be
    unpacked).
    """
    search = _Search(source, name, limits)
    lost: list[Lost] = []
    with tempfile.NamedTemporaryFile(prefix="tensorwire-", dir=folder, delete=False) as file:
        content = files.FileSource(file.name)
        os.unlink(file.name)  # now, so that nothing is left behind whatever happens
        at = 0
        try:
            while at < source.size:
                fault = _pour(
                    source, at, compression.decompressor(name, limits, source.size - at), file
                )
                if fault is None:
                    break
                # Each start has a stream, and so a sum, of its own.
                limits.check(file.tell(), source.size, name, at)
                unit, where, why = fault
                at = search.after(unit)
                where = min(where, at)
                lost.append((where, at - where, why))
            file.flush()
            content.size = os.fstat(file.fileno()).st_size
        except BaseException:
            content.close()
            raise
    return content, lost


def _pour(
    source: storage.Readable, at: int, stream: streams.Decompressor, file: IO[bytes]
) -> tuple[int, int, str] | None:
    """Unpacks from a place on, as far as it goes: where the member or block at fault begins, where
    it is at fault, and why.
    """
    begin, buffer = at, memory.fresh(_BLOCK)
    try:
        while at < source.size:
            count = min(_BLOCK, source.size - at)
            source.read_into(at, buffer[:count])
            at += count
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
    """The next place where unpacking can start. Trials that fail are paid for, so that a hostile
    file cannot ask for too many.
    """

    def __init__(self, source: storage.Readable, name: str, limits: Limits) -> None:
        self._source, self._name, self._limits = source, name, limits
        self._left = (64 << 20) + source.size

    def after(self, start: int) -> int:
        """The end of the file if there is none. Not where the unpacker gave up: by then it may have
        run into the next one.
        """
        size = self._source.size
        if self._name == "snappy" and start + 4 < size:
            told = start + 4 + int.from_bytes(self._source.read_at(start, 4), "big")
            if told == size or (told < size and self._starts(told)):
                return told
        at = start + 1
        while self._name != "zlib" and at < size:
            data = self._source.read_at(at, min(_BLOCK, size - at))
            for place in self._places(data):
                if self._left <= 0:
                    return size
                if self._starts(at + place):
                    return at + place
            if at + len(data) >= size:
                break
            at += len(data) - 3  # a mark may lie across the edge
        return size

    def _places(self, data: memoryview) -> list[int]:
        if self._name in _MAGICS:
            held, places, at = bytes(data), [], -1
            while (at := held.find(_MAGICS[self._name], at + 1)) >= 0:
                places.append(at)
            return places
        words = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 4)
        lengths = words.astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
        return [int(place) for place in np.flatnonzero((lengths > 2) & (lengths <= _BLOCK))]

    def _starts(self, at: int) -> bool:
        """Whether a whole member or block lies there, or at least much of one."""
        stream, begin, out = (
            compression.decompressor(self._name, self._limits, self._source.size - at),
            at,
            0,
        )
        good = False
        try:
            while not good and at < self._source.size and at - begin < 2 * _BLOCK:
                data = self._source.read_at(
                    at, min(1024 if at == begin else _ENOUGH, self._source.size - at)
                )
                at += len(data)
                for piece in stream.feed(data):
                    out += len(piece)
                    if out >= _ENOUGH:
                        return True
                good = len(stream.units) > 1 and out > 0
            if at == self._source.size:
                stream.finish()
                good = True
        except DecodeError as error:
            # What was cut off, and yet made sense so far, is one too.
            good = out > 0 and (
                len(stream.units) > 1
                or (isinstance(error, TruncatedError) and at - begin > _MIN_CUT)
            )
        if not good:
            self._left -= _TRIAL + at - begin
        return good
