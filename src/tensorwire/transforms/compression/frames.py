"""Streams of frames, as zstd and lz4 have them: data frames and skippable frames.

1. Headers are read here, before the library sees them, so that the memory that a frame requires is
   known before anything is allocated.
2. The data of a frame goes through the library in small steps, because the library reports neither
   a stream that ends inside a frame nor the bytes after a frame.
3. A small frame that is complete in the input is decompressed in one step, if the library can.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from ..._errors import ChecksumError, DecodeError
from ..._limits import DEFAULT, Limits
from ...core.memory import Buffer
from .streams import PIECE, StagedDecompressor

_INPUT = 1 << 17
"""Bytes passed to the library at a time, because it copies what it does not use at once."""
_SMALL = 1 << 16
"""Frames of up to this many bytes of data are decompressed in one step."""
_LONGEST = 19
"""Bytes of the longest header."""
_SKIP = 8
"""Bytes of the header of a skippable frame."""
_FEW = 1 << 14
"""A stream whose frames have fewer bytes than this on average is not worth dividing."""

Part = tuple[int, int, int]
"""(start, stop) of a unit in the compressed bytes, and the bytes of its data."""


class FrameHeader(NamedTuple):
    """The header of a frame."""

    end: int
    """Bytes of the header."""
    content: int | None
    """Bytes of data, if the header has them."""
    window: int = 0
    """Bytes of memory that are required to decompress the frame."""
    checked: bool = True
    """Whether a checksum follows the data."""
    skip: int | None = None
    """Bytes to skip, for a skippable frame."""


def skippable(head: Buffer) -> bool:
    """Return whether bytes are the start of a skippable frame. They may end inside the magic.

    >>> skippable(b"\\x5e\\x2a\\x4d\\x18\\x03\\x00\\x00\\x00"), skippable(b"\\x5e"), skippable(b"\\x5e+")
    (True, True, False)
    """
    return len(head) > 0 and head[0] & 0xF0 == 0x50 and b"\x2a\x4d\x18".startswith(bytes(head[1:4]))


def skip_header(head: Buffer) -> FrameHeader | None:
    """Return the header of a skippable frame, or None if it is not complete."""
    return (
        FrameHeader(_SKIP, 0, skip=int.from_bytes(head[4:_SKIP], "little"))
        if len(head) >= _SKIP
        else None
    )


def skipped(size: int) -> bytes:
    """Return a skippable frame of `size` bytes, at least eight, or b"" for 0."""
    return (
        b"\x50\x2a\x4d\x18"
        + max(0, size - _SKIP).to_bytes(4, "little")
        + bytes(max(0, size - _SKIP))
        if size
        else b""
    )


class FrameDecompressor(StagedDecompressor):
    """Decompressor of any number of frames."""

    _kind: ClassVar[str]
    """The name of the format in messages."""

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        self._library = self._load()
        # Bytes of a skippable frame that are still to be skipped.
        self._left = 0
        self._any_unit = False

    def _header(self) -> Buffer:
        if not self._buffer:
            self._begin_unit()
            self._unit_offset = self._offset
        buffered_before = len(self._buffer)
        self._buffer += self._rest[: _LONGEST - buffered_before]
        try:
            head = self._read(self._buffer, self._limits)
        except DecodeError as error:
            if self._any_unit and error.offset == 0:
                raise DecodeError(
                    f"unexpected bytes after the last {self.unit}",
                    format=self.name,
                    offset=self._unit_offset,
                ) from None
            raise error.add(base=self._unit_offset) from None
        if head is None:
            self._advance(len(self._buffer) - buffered_before)
            return b""
        if (
            not buffered_before
            and head.content is not None
            and head.content <= min(_SMALL, PIECE)
            and head.skip is None
        ):
            small = self._small(self._rest[:_INPUT], head.content)
            if small is not None:
                self._buffer.clear()
                self._any_unit = True
                self._advance(small[0])
                return small[1]
        self._advance(head.end - buffered_before)
        first, self._buffer = bytes(self._buffer[: head.end]), bytearray()
        if head.skip is not None:
            self._left, self._state = head.skip, "_skip"
            return self._skip()
        self._frame, self._state = self._open(head), "_data"
        return self._feed(first)

    def _data(self) -> Buffer:
        given = b"" if self._given else self._rest[:_INPUT]
        self._given = self._given or len(given)
        piece = self._feed(given)
        if self._frame.eof:
            self._used(len(self._frame.unused_data or b""))
            self._any_unit, self._state = True, "_header"
        elif len(piece) == PIECE or not self._frame.needs_input:
            self._more = True
        else:
            self._used(0)
        return piece

    def _feed(self, given: Buffer) -> bytes:
        try:
            piece: bytes = self._frame.decompress(given, PIECE)
        except self._errors as cause:
            raise self.fault(cause, self._unit_offset, self._offset) from cause
        return piece

    def _used(self, unused: int) -> None:
        """Advance past the bytes that the library has consumed: all but the last `unused`."""
        count, self._given, self._more = self._given - unused, 0, False
        self._advance(count)

    def _skip(self) -> Buffer:
        count = min(self._left, len(self._rest))
        self._left -= count
        self._advance(count)
        if not self._left:
            self._any_unit, self._state = True, "_header"
        return b""

    def _complete(self) -> bool:
        return self._any_unit and self._state == "_header" and not self._buffer

    @classmethod
    def fault(cls, cause: Exception, unit_offset: int, offset: int) -> DecodeError:
        if "checksum" in str(cause).lower():
            return ChecksumError(
                f"the {cls.unit} that begins at byte {unit_offset} does not match its checksum",
                format=cls.name,
                offset=offset,
            )
        # The library reads ahead, so the damage may be a little after the offset.
        message = f"corrupt data in the {cls.unit} that begins at byte {unit_offset}"
        return DecodeError(message, format=cls.name, offset=offset)

    def _small(self, view: memoryview, size: int) -> tuple[int, Buffer] | None:
        """Decompress a small frame at the start of `view` in one step, if the library can.

        Returns the bytes of the frame and its data of `size` bytes, or None if the frame is not
        complete or not valid.
        """
        return None

    _errors: tuple[type[Exception], ...]
    """The exceptions that the library raises for invalid bytes."""

    @abstractmethod
    def _load(self) -> Any:
        """Import and return the library."""

    @abstractmethod
    def _open(self, head: FrameHeader) -> Any:
        """Return the library's decompressor for one frame."""

    @staticmethod
    @abstractmethod
    def _read(held: Buffer, limits: Limits) -> FrameHeader | None:
        """Return the header at the start of a frame, or None if it is not complete.

        Raises DecodeError, with offset 0 if the bytes are not a frame at all.
        """


def walk(
    view: memoryview,
    read: Callable[[Buffer], FrameHeader | None],
    end: Callable[[int, FrameHeader], int],
) -> list[Part] | None:
    """Return all frames with data, if each header has the size of its data, else None.

    It also returns None for anything unusual or invalid. The caller then reads the stream in order,
    which raises the error. `end(offset, header)` returns where the frame at an offset ends, or a
    number past the end of the view if it is not complete.
    """
    parts: list[Part] = []
    offset = frames = 0
    if not len(view):
        return None
    try:
        while offset < len(view):
            head, frames = read(view[offset : offset + _LONGEST]), frames + 1
            if head is None or head.content is None or frames > 16 + len(view) // _FEW:
                return None
            stop = offset + head.end + head.skip if head.skip is not None else end(offset, head)
            if stop > len(view):
                return None
            if head.skip is None:
                parts.append((offset, stop, head.content))
            offset = stop
    except DecodeError:
        return None
    return parts


def total(parts: Iterable[Part]) -> int:
    """Return the bytes of data of all parts."""
    return sum(size for _, _, size in parts)
