"""Where the body of an answer is put together: straight into its own memory, and never more of it
than `Limits` allows.
"""

from __future__ import annotations

from ..._errors import DecodeError, LimitError, TransportError
from ..._limits import Limits
from ...core.memory import Buffer, fresh
from ...transforms.compression.deflate import GzipDecompressor, ZlibDecompressor
from ...transforms.compression.streams import Decompressor

_LEAST = 4096
"""Bytes of the smallest buffer that grows."""
_ROOM = 1 << 18
"""Bytes to read at a time where nobody knows how many will come."""
ENCODINGS: dict[str, type[Decompressor]] = {
    "gzip": GzipDecompressor,
    "x-gzip": GzipDecompressor,
    "deflate": ZlibDecompressor,
}


def check_size(size: int, limits: Limits) -> None:
    """A LimitError if an answer of that many bytes is too large, before anything is allocated for
    it.
    """
    if size > limits.answer:
        raise LimitError(
            f"an answer of {size:,} bytes or more; Limits(answer={limits.answer:,}) allows no more"
        )


class Body:
    """Bytes as they came. With a size there is one buffer, of that size; without, one that grows.

    Memory that nobody has touched yet costs nothing, so a server that promises much and sends
    little costs little.

    >>> body = Body(Limits())
    >>> body.add(b"some ")
    >>> body.room(5)[:] = b"bytes"
    >>> body.wrote(5)
    >>> bytes(body.finish())
    b'some bytes'
    """

    direct = True
    """Whether bytes may be read from the network into `room`."""

    def __init__(self, limits: Limits, size: int = 0) -> None:
        check_size(size, limits)
        self._limits, self._size = limits, 0
        self._view = fresh(size).data

    @property
    def came(self) -> int:
        """Bytes so far, as the server sent them."""
        return self._size

    def room(self, most: int | None = None) -> memoryview:
        """Where the next bytes go, `most` of them at most; None if nobody knows how many come."""
        if most is not None:
            self._grow(self._size + most)
            return self._view[self._size : self._size + most]
        # one byte more than allowed has room: only when it comes is the answer too large
        if self._size == len(self._view):
            self._grow(min(self._size + _ROOM, self._limits.answer + 1))
        return self._view[self._size :]

    def wrote(self, count: int) -> None:
        """So many bytes were put where `room` said."""
        self._size += count
        check_size(self._size, self._limits)

    def add(self, piece: Buffer) -> None:
        """Takes a copy of some bytes."""
        end = self._size + len(piece)
        check_size(end, self._limits)
        self._grow(end)
        self._view[self._size : end] = piece
        self._size = end

    def finish(self) -> memoryview:
        """All of it."""
        return self._view[: self._size]

    def forget(self) -> None:
        """After an error, which knows by its traceback who raised it and so keeps us alive: the
        memory shall not stay with it.
        """
        self._view = memoryview(b"")

    def _grow(self, need: int) -> None:
        """Sizes are the limit, half of it, a quarter ...: while the last buffer is copied, the two
        together have no more than the limit.
        """
        if need <= len(self._view):
            return
        size = self._limits.answer + 1
        while size // 2 >= max(need, _LEAST):
            size //= 2
        grown = fresh(size).data
        grown[: self._size] = self._view[: self._size]
        self._view = grown


class PackedBody(Body):
    """Bytes that come compressed. `size` is how many of those there will be, if that is known.

    >>> import gzip
    >>> body = PackedBody("gzip", Limits())
    >>> body.add(gzip.compress(b"some bytes"))
    >>> bytes(body.finish())
    b'some bytes'
    """

    direct = False

    def __init__(self, encoding: str, limits: Limits, size: int = 0) -> None:
        check_size(size, limits)
        super().__init__(limits)
        self._encoding, self._packed = encoding, 0
        self._unpacker = ENCODINGS[encoding](limits, size)

    @property
    def came(self) -> int:
        return self._packed

    def add(self, piece: Buffer) -> None:
        self._packed += len(piece)
        check_size(self._packed, self._limits)
        try:
            for part in self._unpacker.feed(piece):
                super().add(part)
        except LimitError:
            raise
        except DecodeError as cause:
            raise self._wrong(cause) from cause

    def finish(self) -> memoryview:
        try:
            self._unpacker.finish()
        except DecodeError as cause:
            raise self._wrong(cause) from cause
        return super().finish()

    def _wrong(self, cause: DecodeError) -> TransportError:
        return TransportError(f"the body of the answer is not valid {self._encoding}: {cause}")


def make_body(encoding: str, limits: Limits, size: int = 0) -> Body:
    """The body for a Content-Encoding, which may be several, and a Content-Length, if there is one."""
    given = [
        name
        for name in (part.strip().lower() for part in encoding.split(","))
        if name not in ("", "identity")
    ]
    if not given:
        return Body(limits, size)
    if len(given) > 1 or given[0] not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise TransportError(
            f"the body of the answer has the Content-Encoding {encoding[:100]!r}; known: {known}"
        )
    return PackedBody(given[0], limits, size)
