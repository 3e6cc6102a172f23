"""Bodies of responses: they are received directly into their final memory, within `Limits`."""

from __future__ import annotations

from ..._errors import DecodeError, LimitError, TransportError
from ..._limits import Limits
from ...core.memory import Buffer, fresh
from ...transforms.compression.deflate import GzipDecompressor, ZlibDecompressor
from ...transforms.compression.streams import Decompressor

_LEAST = 4096
"""Bytes of the smallest buffer that grows."""
_ROOM = 1 << 18
"""Bytes to read at a time if the size of the body is unknown."""
ENCODINGS: dict[str, type[Decompressor]] = {
    "gzip": GzipDecompressor,
    "x-gzip": GzipDecompressor,
    "deflate": ZlibDecompressor,
}


def check_size(size: int, limits: Limits) -> None:
    """Raise LimitError if an answer of that size is too large, before memory is allocated."""
    if size > limits.answer:
        raise LimitError(
            f"the answer has at least {size:,} bytes, the limit is {limits.answer:,}",
            hint="a larger limits=tw.Limits(answer=...) allows more",
        )


class Body:
    """An uncompressed body: one buffer of the announced size, or one that grows.

    The system provides memory when it is first written to. So a server that announces a large body
    and sends a small one costs little.

    >>> body = Body(Limits())
    >>> body.add(b"some ")
    >>> body.room(5)[:] = b"bytes"
    >>> body.wrote(5)
    >>> bytes(body.finish())
    b'some bytes'
    """

    direct = True
    """Whether bytes may be received directly into `room`."""

    def __init__(self, limits: Limits, size: int = 0) -> None:
        check_size(size, limits)
        self._limits, self._size = limits, 0
        self._view = fresh(size).data

    @property
    def came(self) -> int:
        """Bytes so far, before decompression."""
        return self._size

    def room(self, most: int | None = None) -> memoryview:
        """Return memory for the next bytes, at most `most`; None if their number is unknown."""
        if most is not None:
            self._grow(self._size + most)
            return self._view[self._size : self._size + most]
        # There is room for one byte above the limit: the body is too large only if that byte comes.
        if self._size == len(self._view):
            self._grow(min(self._size + _ROOM, self._limits.answer + 1))
        return self._view[self._size :]

    def wrote(self, count: int) -> None:
        """Count bytes that were written to `room`."""
        self._size += count
        check_size(self._size, self._limits)

    def add(self, piece: Buffer) -> None:
        """Append a copy of some bytes."""
        end = self._size + len(piece)
        check_size(end, self._limits)
        self._grow(end)
        self._view[self._size : end] = piece
        self._size = end

    def finish(self) -> memoryview:
        """Return the whole body."""
        return self._view[: self._size]

    def forget(self) -> None:
        """Release the memory, after an error: the error's traceback keeps this object alive."""
        self._view = memoryview(b"")

    def _grow(self, need: int) -> None:
        """Make the buffer larger, if needed.

        Sizes are the limit divided by powers of 2. So while bytes are copied, the old buffer and
        the part of the new one that is in use stay within the limit together.
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
    """A compressed body, decompressed as it comes. `size` is the compressed size, if it is known.

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
        """Return the error for invalid compressed data."""
        return TransportError(f"the body of the answer is not valid {self._encoding}: {cause}")


def make_body(encoding: str, limits: Limits, size: int = 0) -> Body:
    """Return the body for a Content-Encoding and a Content-Length (0 if it is unknown)."""
    encodings = [
        name
        for name in (part.strip().lower() for part in encoding.split(","))
        if name not in ("", "identity")
    ]
    if not encodings:
        return Body(limits, size)
    if len(encodings) > 1 or encodings[0] not in ENCODINGS:
        raise TransportError(
            f"unsupported Content-Encoding {encoding[:100]!r} (supported: {', '.join(ENCODINGS)})"
        )
    return PackedBody(encodings[0], limits, size)
