"""Bytes of an answer that have come and have not been understood yet."""

from __future__ import annotations

from ..._errors import TransportError

SIZE = 64 << 10
"""Bytes of a window, and so the longest line."""


class ReceiveBuffer:
    """A buffer that the network fills at one end while a reader uses it up at the other.

    >>> window = ReceiveBuffer()
    >>> window.room()[:6] = b"one\\r\\nt"
    >>> window.filled(6)
    >>> window.line(100, "a test"), window.line(100, "a test"), len(window)
    (b'one', None, 1)
    """

    def __init__(self) -> None:
        self._data = bytearray(SIZE)
        self._view = memoryview(self._data)
        self._start = self._stop = 0
        self._looked = 0  # up to here there is no line end: slow servers do not make us look again
        self._before = 0  # bytes of the answer that are no longer here

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def came(self) -> int:
        """Bytes of the answer so far."""
        return self._before + self._stop

    @property
    def at(self) -> int:
        """Where in the answer the next byte stands that has not been used up."""
        return self._before + self._start

    def room(self) -> memoryview:
        """Where the next bytes go. There is some, since what is here is less than a line of the
        allowed length.
        """
        if self._start and (not len(self) or self._stop == SIZE):
            self._data[: len(self)] = self._data[self._start : self._stop]
            self._before += self._start
            self._looked = max(0, self._looked - self._start)
            self._start, self._stop = 0, len(self)
        return self._view[self._stop :]

    def filled(self, count: int) -> None:
        self._stop += count

    def passed(self, count: int) -> None:
        """So many bytes of the answer came that were never in this window, which is empty."""
        self._before += count

    def peek(self, count: int) -> bytes:
        return bytes(self._data[self._start : min(self._stop, self._start + count)])

    def take(self, count: int) -> memoryview:
        """Uses up bytes, as many as there are; they stay where they are until there is need for
        room.
        """
        start, self._start = self._start, min(self._stop, self._start + count)
        return self._view[start : self._start]

    def line(self, most: int, what: str) -> bytes | None:
        """Uses up a line, of `most` bytes with its end, and gives it back without; None if its end
        has not come yet.
        """
        end = self._data.find(b"\n", max(self._start, self._looked), self._stop)
        self._looked = self._stop if end < 0 else end + 1
        if self._looked - self._start > most - (end < 0):  # without its end it only gets longer
            raise TransportError(f"{what} of more than {most:,} bytes", offset=self.at)
        if end < 0:
            return None
        line = bytes(self.take(end + 1 - self._start))
        if not line.endswith(b"\r\n"):
            raise TransportError(
                f"a line that ends with LF and not with CRLF in {what}", offset=self.at - 1
            )
        return line[:-2]
