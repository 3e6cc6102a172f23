"""The receive buffer: bytes of a response that have come and are not parsed yet."""

from __future__ import annotations

from ..._errors import TransportError

SIZE = 64 << 10
"""Bytes of the buffer, and so the longest line."""


class ReceiveBuffer:
    """A buffer that the network fills at its end while a parser consumes it from the start.

    >>> buffer = ReceiveBuffer()
    >>> buffer.room()[:6] = b"one\\r\\nt"
    >>> buffer.filled(6)
    >>> buffer.line(100, "a test"), buffer.line(100, "a test"), len(buffer)
    (b'one', None, 1)
    """

    def __init__(self) -> None:
        self._data = bytearray(SIZE)
        self._view = memoryview(self._data)
        self._start = self._stop = 0
        # There is no line end before this position. So a server that sends byte by byte does not
        # cause quadratic searching.
        self._looked = 0
        # Bytes of the response that were in the buffer before its first byte.
        self._before = 0

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def came(self) -> int:
        """Bytes of the response so far."""
        return self._before + self._stop

    @property
    def offset(self) -> int:
        """The offset of the next unconsumed byte in the response."""
        return self._before + self._start

    def room(self) -> memoryview:
        """Return the memory for the next bytes.

        It is never empty: unconsumed bytes are part of one line, and a line as long as the buffer
        was refused before.
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
        """Count bytes of the response that went directly into the body; the buffer is empty."""
        self._before += count

    def peek(self, count: int) -> bytes:
        return bytes(self._data[self._start : min(self._stop, self._start + count)])

    def take(self, count: int) -> memoryview:
        """Consume up to `count` bytes; the view is valid until the next call of `room`."""
        start, self._start = self._start, min(self._stop, self._start + count)
        return self._view[start : self._start]

    def line(self, most: int, what: str) -> bytes | None:
        """Consume a line and return it without its end; None if the end has not come yet.

        The line may have up to `most` bytes, its end included; `what` names it in errors.
        """
        end = self._data.find(b"\n", max(self._start, self._looked), self._stop)
        self._looked = self._stop if end < 0 else end + 1
        # A line without its end needs at least one more byte.
        if self._looked - self._start > most - (end < 0):
            raise TransportError(f"{what} has more than {most:,} bytes", offset=self.offset)
        if end < 0:
            return None
        line = bytes(self.take(end + 1 - self._start))
        if not line.endswith(b"\r\n"):
            raise TransportError(
                f"a line in {what} ends with LF instead of CRLF", offset=self.offset - 1
            )
        return line[:-2]
