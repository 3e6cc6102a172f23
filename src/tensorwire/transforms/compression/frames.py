"""What zstd and lz4 have in common: a stream is a row of frames, each with a header that says what
it needs, and of frames to skip.

The headers are read here, before a library sees them, so that what they ask for is known before
anything is allocated. A frame's data goes through the library in small steps: it tells neither that
a stream ends inside a frame nor what stands behind one.
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
"""Bytes given to the library at a time: it copies what it does not use at once."""
_SMALL = 1 << 16
"""Bytes of data in a frame for which it does not pay to set up a stream."""
_LONGEST = 19
"""Bytes of the longest header."""
_SKIP = 8
_FEW = 1 << 14
"""A frame, or a block, of less than so many bytes on average: such a stream is not worth dividing.
"""

Part = tuple[int, int, int]
"""Where a unit begins in the compressed bytes, where it ends, and how many bytes it becomes."""


class FrameHeader(NamedTuple):
    """What stands before a frame's data."""

    end: int
    """How long the header is."""
    content: int | None
    """Bytes of data, if it says so."""
    window: int = 0
    """Bytes that must be held to unpack it."""
    checked: bool = True
    """Whether a checksum stands behind the data."""
    skip: int | None = None
    """For a frame that holds no data: how many bytes of it to skip."""


def skippable(head: Buffer) -> bool:
    """Whether a frame that readers skip begins so, as far as it is there.

    >>> skippable(b"\\x5e\\x2a\\x4d\\x18\\x03\\x00\\x00\\x00"), skippable(b"\\x5e"), skippable(b"\\x5e\\x2b")
    (True, True, False)
    """
    return len(head) > 0 and head[0] & 0xF0 == 0x50 and b"\x2a\x4d\x18".startswith(bytes(head[1:4]))


def skip_header(head: Buffer) -> FrameHeader | None:
    """What such a frame says, if that is there."""
    return (
        FrameHeader(_SKIP, 0, skip=int.from_bytes(head[4:_SKIP], "little"))
        if len(head) >= _SKIP
        else None
    )


def skipped(size: int) -> bytes:
    """A frame of so many bytes that readers skip; nothing for 0, and at least eight."""
    return (
        b"\x50\x2a\x4d\x18"
        + max(0, size - _SKIP).to_bytes(4, "little")
        + bytes(max(0, size - _SKIP))
        if size
        else b""
    )


class FrameDecompressor(StagedDecompressor):
    """Any number of frames."""

    _kind: ClassVar[str]
    """The name that people know it by."""

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        self._library = self._load()
        self._left = 0  # to be skipped
        self._any = False

    def _header(self) -> Buffer:
        if not self._held:
            self._begin_unit()
            self._unit_at = self._at
        before = len(self._held)
        self._held += self._rest[: _LONGEST - before]
        try:
            head = self._read(self._held, self._limits)
        except DecodeError as error:
            if self._any and error.offset == 0:
                raise DecodeError(
                    f"something else behind the last {self.unit}",
                    format=self.name,
                    offset=self._unit_at,
                ) from None
            raise error.add(base=self._unit_at) from None
        if head is None:
            self._advance(len(self._held) - before)
            return b""
        if (
            not before
            and head.content is not None
            and head.content <= min(_SMALL, PIECE)
            and head.skip is None
        ):
            found = self._small(self._rest[:_INPUT], head.content)
            if found is not None:
                self._held.clear()
                self._any = True
                self._advance(found[0])
                return found[1]
        self._advance(head.end - before)
        first, self._held = bytes(self._held[: head.end]), bytearray()
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
            self._any, self._state = True, "_header"
        elif len(piece) == PIECE or not self._frame.needs_input:
            self._more = True
        else:
            self._used(0)
        return piece

    def _feed(self, given: Buffer) -> bytes:
        try:
            piece: bytes = self._frame.decompress(given, PIECE)
        except self._errors as cause:
            raise self.fault(cause, self._unit_at, self._at) from cause
        return piece

    def _used(self, unused: int) -> None:
        """The library is done with what it was given, but for so many bytes at the end."""
        count, self._given, self._more = self._given - unused, 0, False
        self._advance(count)

    def _skip(self) -> Buffer:
        count = min(self._left, len(self._rest))
        self._left -= count
        self._advance(count)
        if not self._left:
            self._any, self._state = True, "_header"
        return b""

    def _complete(self) -> bool:
        return self._any and self._state == "_header" and not self._held

    @classmethod
    def fault(cls, cause: Exception, begin: int, at: int) -> DecodeError:
        if "checksum" in str(cause).lower():
            return ChecksumError(
                f"the {cls.unit} that begins at byte {begin} does not match its checksum",
                format=cls.name,
                offset=at,
            )
        what = (
            f"the data of the {cls.unit} that begins at byte {begin} is damaged, here or a little"
            " later"
        )
        return DecodeError(what, format=cls.name, offset=at)

    def _small(self, view: memoryview, size: int) -> tuple[int, Buffer] | None:
        """For a frame of so little data: how long it is, and the data, if it is there whole and
        sound, and that is quickly found out.
        """
        return None

    _errors: tuple[type[Exception], ...]
    """What the library raises for bad bytes."""

    @abstractmethod
    def _load(self) -> Any:
        """The library."""

    @abstractmethod
    def _open(self, head: FrameHeader) -> Any:
        """The library's decompressor of one frame."""

    @staticmethod
    @abstractmethod
    def _read(held: Buffer, limits: Limits) -> FrameHeader | None:
        """The header at the start of a frame, None if it goes on, or a DecodeError: at byte 0 if
        this is no frame at all.
        """


def walk(
    view: memoryview,
    read: Callable[[Buffer], FrameHeader | None],
    end: Callable[[int, FrameHeader], int],
) -> list[Part] | None:
    """All frames with data, if each says how many bytes it becomes; None if not, or if something is
    not as usual: whoever reads it in order finds out what. `end` is where a frame ends that begins
    at a place, which a DecodeError or len(view) + 1 says is not there."""
    parts: list[Part] = []
    at = frames = 0
    if not len(view):
        return None
    try:
        while at < len(view):
            head, frames = read(view[at : at + _LONGEST]), frames + 1
            if head is None or head.content is None or frames > 16 + len(view) // _FEW:
                return None
            stop = at + head.end + head.skip if head.skip is not None else end(at, head)
            if stop > len(view):
                return None
            if head.skip is None:
                parts.append((at, stop, head.content))
            at = stop
    except DecodeError:
        return None
    return parts


def total(parts: Iterable[Part]) -> int:
    """Bytes that all of them become."""
    return sum(size for _, _, size in parts)
