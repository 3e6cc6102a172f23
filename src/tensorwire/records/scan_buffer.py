"""A record file seen through one window of memory: headers, chains of headers, and checksums of
records of any size.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..core import memory
from ..storage import files
from ..wire import crc, kernels, tfrecord

Array = np.ndarray[Any, Any]

SIZE = 1 << 20
"""Bytes read at once: a search then costs little beside the reading, and the window still fits the
second cache.
"""
MOST = 1 << 62
AROUND = tfrecord.HEADER + tfrecord.FOOTER
"""Bytes that a frame adds to its record."""
_ANY = (1 << 64) - 1
_LENGTH, _FOOTER = struct.Struct("<Q"), struct.Struct("<I")


class ScanBuffer:
    """Reads a source wherever it is asked to, and keeps the last piece. Memory comes from a pool:
    who holds an array may keep it.
    """

    def __init__(self, source: files.Source, longest: int) -> None:
        self.source, self.size, self.longest = source, source.size, longest
        self._pool = memory.MemoryPool()
        self._base = self._end = 0
        self._data: Array = np.empty(0, np.uint8)
        self._view = self._data.data

    def at(self, offset: int, need: int = 1) -> Array:
        """The bytes from an offset on: `need` or more, as far as the file goes."""
        self._cover(offset, need)
        return self._data[offset - self._base :]

    def _cover(self, offset: int, need: int) -> None:
        if self._base <= offset and (offset + need <= self._end or self._end == self.size):
            return
        count = min(max(need, SIZE), self.size - offset)
        self._data = np.empty(0, np.uint8)  # gives the memory back, if nobody else holds it
        self._view, self._base, self._end = self._data.data, 0, 0
        into = getattr(self.source, "read_into", None)
        if into is not None:
            data = self._pool.take(count)
            into(offset, data)
        else:
            data = np.frombuffer(self.source.read_at(offset, count), np.uint8)
        self._data, self._view, self._base, self._end = data, data.data, offset, offset + count

    def header(self, offset: int) -> int:
        """The length that the header at an offset gives, whatever it is; -1 if there is none."""
        if offset + tfrecord.HEADER > self.size:
            return -1
        at = offset - self._base
        if at >= 0 and offset + tfrecord.HEADER <= self._end:
            head = self._view[at : at + tfrecord.HEADER]
        else:  # a look at a far place must not cost the window, nor a read of its size
            head = self.source.read_at(offset, tfrecord.HEADER)
        return -1 if kernels.frame_find(head, 0, _ANY) else int(_LENGTH.unpack_from(head)[0])

    def length(self, offset: int) -> int:
        """The same of a header that is known to hold."""
        if offset < self._base or offset + tfrecord.HEADER > self._end:
            self._cover(offset, tfrecord.HEADER)
        return int(_LENGTH.unpack_from(self._view, offset - self._base)[0])

    def find(self, start: int, stop: int) -> int:
        """The first offset from `start` on with a header of a record that is not too long; `stop`
        if there is none before it.
        """
        while start < stop and start + tfrecord.HEADER <= self.size:
            self._cover(start, tfrecord.HEADER)
            found = self._base + kernels.frame_find(self._data, start - self._base, self.longest)
            if found < self._end:
                return min(found, stop)
            start = self._end - tfrecord.HEADER + 1  # a header may lie across the edge
        return stop

    def chain(self, start: int, stop: int, near: int, checks: int, guess: int) -> tuple[int, int]:
        """The same for a header that begins a chain, or may do so as far as the window shows; and
        what is left of the `checks`.

        kernels.frame_chain says what a chain is, and what it costs to search for one.
        """
        while start < stop and start + tfrecord.HEADER <= self.size:
            self._cover(start, tfrecord.HEADER)
            base = self._base
            found, checks = kernels.frame_chain(
                self._data,
                start - base,
                stop - base,
                self.longest,
                self.size - base,
                max(0, near - base),
                checks,
                guess,
            )
            if base + found < self._end:
                return base + found, checks
            start = self._end - tfrecord.HEADER + 1
        return stop, checks

    def sees(self, offset: int) -> bool:
        """Whether it takes no further read to know what follows an offset."""
        return self._base <= offset and (
            offset + tfrecord.HEADER <= self._end or self._end == self.size
        )

    def walk(self, start: int, stop: int) -> tuple[int, int]:
        """Follows the headers from one that holds, past `stop` at most: (where the last frame
        begins, where it would end).
        """
        last, end = start, start + AROUND + self.header(start)
        while end < self.size and end <= stop:
            length = self.header(end)
            if not 0 <= length <= self.longest:
                break
            last, end = end, end + AROUND + length
            # Its neighbours are likely to be of its kind: many in one window.
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
        """The checksum of any number of bytes, continued from `value`, without holding them."""
        while start < stop:
            data = self.at(start)[: stop - start]
            value = kernels.crc32c(data, value)
            start += len(data)
        return value

    def stored(self, offset: int) -> int:
        """The four bytes of a checksum."""
        self._cover(offset, tfrecord.FOOTER)
        return int(_FOOTER.unpack_from(self._view, offset - self._base)[0])

    def whole(self, start: int, length: int) -> bool:
        """Whether the data of the record whose frame begins at `start` is what was written."""
        data = start + tfrecord.HEADER
        return crc.mask(self.crc(data, data + length)) == self.stored(data + length)
