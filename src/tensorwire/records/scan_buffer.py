"""The scan buffer of `resync`: headers, chains of headers and checksums through one buffer."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..core import memory
from ..storage import files
from ..wire import crc, kernels, tfrecord

Array = np.ndarray[Any, Any]

SIZE = 1 << 20
"""Bytes per read: a search then costs little compared with reading, and the buffer fits the L2
cache.
"""
MOST = 1 << 62
"""No limit on the number of frames that a scan returns."""
AROUND = tfrecord.HEADER + tfrecord.FOOTER
"""Bytes that a frame adds to its record."""
_ANY = (1 << 64) - 1
"""The largest length that a header can hold."""
_LENGTH, _FOOTER = struct.Struct("<Q"), struct.Struct("<I")


class ScanBuffer:
    """Reads a source at any offset and keeps the last part in a buffer.

    The memory comes from a pool, so a caller may keep an array that it was given.
    """

    def __init__(self, source: files.Source, longest: int) -> None:
        self.source, self.size, self.longest = source, source.size, longest
        self._pool = memory.MemoryPool()
        self._base = self._end = 0
        self._data: Array = np.empty(0, np.uint8)
        self._view = self._data.data

    def at(self, offset: int, need: int = 1) -> Array:
        """Return the bytes from an offset on: at least `need`, unless the file ends before."""
        self._cover(offset, need)
        return self._data[offset - self._base :]

    def _cover(self, offset: int, need: int) -> None:
        """Read the part that contains an offset, unless the buffer already does."""
        if self._base <= offset and (offset + need <= self._end or self._end == self.size):
            return
        count = min(max(need, SIZE), self.size - offset)
        # Dropping the array returns its memory to the pool, unless a caller holds it.
        self._data = np.empty(0, np.uint8)
        self._view, self._base, self._end = self._data.data, 0, 0
        read_into = getattr(self.source, "read_into", None)
        if read_into is not None:
            data = self._pool.take(count)
            read_into(offset, data)
        else:
            data = np.frombuffer(self.source.read_at(offset, count), np.uint8)
        self._data, self._view, self._base, self._end = data, data.data, offset, offset + count

    def header(self, offset: int) -> int:
        """Return the length in the header at an offset; -1 if there is no valid header."""
        if offset + tfrecord.HEADER > self.size:
            return -1
        position = offset - self._base
        if position >= 0 and offset + tfrecord.HEADER <= self._end:
            head = self._view[position : position + tfrecord.HEADER]
        else:
            # A look elsewhere must not replace the buffer, nor read as much as its size.
            head = self.source.read_at(offset, tfrecord.HEADER)
        return -1 if kernels.frame_find(head, 0, _ANY) else int(_LENGTH.unpack_from(head)[0])

    def length(self, offset: int) -> int:
        """Return the length in a header that is known to be valid."""
        if offset < self._base or offset + tfrecord.HEADER > self._end:
            self._cover(offset, tfrecord.HEADER)
        return int(_LENGTH.unpack_from(self._view, offset - self._base)[0])

    def find(self, start: int, stop: int) -> int:
        """Return the first offset from `start` on with a valid header, or `stop`.

        Headers of records that are too long do not count.
        """
        while start < stop and start + tfrecord.HEADER <= self.size:
            self._cover(start, tfrecord.HEADER)
            offset = self._base + kernels.frame_find(self._data, start - self._base, self.longest)
            if offset < self._end:
                return min(offset, stop)
            # A header may lie across the edge of two reads.
            start = self._end - tfrecord.HEADER + 1
        return stop

    def chain(self, start: int, stop: int, near: int, checks: int, guess: int) -> tuple[int, int]:
        """Return the first offset from `start` on that begins a chain, and the remaining `checks`.

        A header whose chain extends past the buffer counts as well. `kernels.frame_chain` defines
        what a chain is and what the search costs.
        """
        while start < stop and start + tfrecord.HEADER <= self.size:
            self._cover(start, tfrecord.HEADER)
            base = self._base
            position, checks = kernels.frame_chain(
                self._data,
                start - base,
                stop - base,
                self.longest,
                self.size - base,
                max(0, near - base),
                checks,
                guess,
            )
            if base + position < self._end:
                return base + position, checks
            start = self._end - tfrecord.HEADER + 1
        return stop, checks

    def sees(self, offset: int) -> bool:
        """Return whether the header at an offset can be read without another read of the file."""
        return self._base <= offset and (
            offset + tfrecord.HEADER <= self._end or self._end == self.size
        )

    def walk(self, start: int, stop: int) -> tuple[int, int]:
        """Follow the headers from a valid one, at most one frame past `stop`.

        Returns (start of the last frame, where that frame would end).
        """
        last, end = start, start + AROUND + self.header(start)
        while end < self.size and end <= stop:
            length = self.header(end)
            if not 0 <= length <= self.longest:
                break
            last, end = end, end + AROUND + length
            # Neighbouring records have similar sizes, so the kernel can scan many in the buffer.
            if end < stop and self._base <= end <= self._end - tfrecord.HEADER:
                start = end - self._base
                _, used, starts, _ = kernels.frame_scan(
                    self._data, start, False, self.longest, MOST
                )
                if len(starts):
                    last, end = self._base + int(starts[-1]) - tfrecord.HEADER, self._base + used
            elif end - last <= SIZE and end < self.size:
                self._cover(end, tfrecord.HEADER)
        return last, end

    def crc(self, start: int, stop: int, value: int = 0) -> int:
        """Return the checksum of any number of bytes, continued from `value`, without holding them."""
        while start < stop:
            data = self.at(start)[: stop - start]
            value = kernels.crc32c(data, value)
            start += len(data)
        return value

    def stored(self, offset: int) -> int:
        """Return the checksum that is stored at an offset."""
        self._cover(offset, tfrecord.FOOTER)
        return int(_FOOTER.unpack_from(self._view, offset - self._base)[0])

    def whole(self, start: int, length: int) -> bool:
        """Return whether the data of the record whose frame begins at `start` matches its checksum."""
        data = start + tfrecord.HEADER
        return crc.mask(self.crc(data, data + length)) == self.stored(data + length)
