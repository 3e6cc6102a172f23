"""LZ4 frames through the package lz4: less small than zstd, and quick.

We write frames of 4 MiB, each with its content's size and checksum, so that they are packed and
unpacked in parallel, and reading can start at any of them. Frames of other writers may have blocks
that need the one before them, or no size and no checksum; those that need a dictionary are refused,
and so are the legacy frames of the first lz4 tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import _optional
from ..._errors import DecodeError
from ..._limits import DEFAULT, Limits
from ...core.memory import Array, Buffer
from . import frames
from .frames import FrameDecompressor, FrameHeader, Part
from .streams import Compressor, UnitCompressor, cores

FRAME = 4 << 20
"""Bytes of data in a frame that we write."""
MAGIC = b"\x04\x22\x4d\x18"
_LEGACY = b"\x02\x21\x4c\x18"
LEVELS = (0, 16)
_BLOCK = 5
"""Our blocks: up to 256 KiB, so that a torn file loses no more."""


def library() -> Any:
    return _optional.require("lz4.frame", "compress")


def read_header(held: Buffer, limits: Limits = DEFAULT) -> FrameHeader | None:
    """The header of a frame, or None if it goes on; a DecodeError if we cannot read what it
    announces. Its checksum is left to the library.

    >>> read_header(MAGIC + bytes([0x6c, 0x40, 3, 0, 0, 0, 0, 0, 0, 0, 0x49])).content
    3
    """
    if frames.skippable(held):
        return frames.skip_header(held)
    if _LEGACY.startswith(bytes(held[:4])) and len(held) >= 4:
        raise DecodeError(
            "a legacy lz4 frame: unpack it with the lz4 tool, and pack it again",
            format="lz4",
            offset=0,
        )
    if not MAGIC.startswith(bytes(held[:4])) and not _LEGACY.startswith(bytes(held[:4])):
        raise DecodeError("this is not lz4", format="lz4", offset=0)
    if len(held) < 6:
        return None
    flags, block = held[4], held[5] >> 4
    if flags & 0xC2 != 0x40 or held[5] & 0x8F or block < 4:
        raise DecodeError("the frame's header has flags that do not exist", format="lz4", offset=4)
    if flags & 1:
        raise DecodeError(
            "the frame needs a dictionary: unpack it with the lz4 tool", format="lz4", offset=4
        )
    end = 7 + (8 if flags & 8 else 0)
    if len(held) < end:
        return None
    return FrameHeader(
        end,
        int.from_bytes(held[6:14], "little") if flags & 8 else None,
        1 << 2 * block + 8,
        bool(flags & 4),
    )


class Lz4Decompressor(FrameDecompressor):
    """Any number of frames, with nothing else behind them."""

    name, unit = "lz4", "lz4 frame"
    _errors = (RuntimeError,)

    def _load(self) -> Any:
        return library()

    def _open(self, head: FrameHeader) -> Any:
        return self._library.LZ4FrameDecompressor()

    _read = staticmethod(read_header)


def split(view: memoryview, limits: Limits = DEFAULT) -> list[Part] | None:
    """The frames of a stream, if each says its size: see `frames.walk`."""
    library()
    left = 16 + len(view) // 4096  # blocks that are worth looking at

    def end(at: int, head: FrameHeader) -> int:
        nonlocal left
        sums, at = 4 * bool(view[at + 4] & 0x10), at + head.end
        while at + 4 <= len(view) and left:
            size, left = int.from_bytes(view[at : at + 4], "little") & 0x7FFFFFFF, left - 1
            if size == 0:
                return at + 4 + 4 * head.checked
            at += 4 + size + sums
        return len(view) + 1

    return frames.walk(view, lambda held: read_header(held, limits), end)


def unpack(data: Buffer, out: Array) -> None:
    """One frame, whole, which becomes exactly as much as there is room for."""
    lz4 = library()
    try:
        found, used, whole = lz4.decompress_chunk(
            lz4.create_decompression_context(), data, max_length=len(out) + 1
        )
    except RuntimeError as cause:
        raise Lz4Decompressor.fault(cause, 0, 0) from cause
    if not whole or len(found) != len(out) or used != len(data):
        raise DecodeError(
            f"this is no single lz4 frame of {len(out)} bytes", format="lz4", offset=0
        )
    out[:] = np.frombuffer(found, np.uint8)


def packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Makes a frame of some data; the level is 0 (quickest) to 16 (smallest), and below 3 all are
    alike.
    """
    return _packer(level, checksum=True)


def part_packers(level: int | None) -> list[Callable[[Buffer], bytes]]:
    """How to pack what has a checksum elsewhere: that of lz4 takes longer than all the rest of
    reading it.
    """
    return [_packer(level, checksum=False)]


def _packer(level: int | None, checksum: bool) -> Callable[[Buffer], bytes]:
    if level is not None and not LEVELS[0] <= level <= LEVELS[1]:
        raise ValueError(
            f"level {level}: lz4 has levels {LEVELS[0]} (quickest) to {LEVELS[1]} (smallest)"
        )
    compress = library().compress

    def pack(data: Buffer) -> bytes:
        frame: bytes = compress(
            data,
            compression_level=level or 0,
            block_size=_BLOCK,
            content_checksum=checksum,
            store_size=True,
        )
        return frame

    return pack


def lz4_compressor(level: int | None, threads: int | None) -> Compressor:
    """Frames of up to 4 MiB, packed in parallel."""
    pack = packer(level)
    return UnitCompressor(pack, FRAME, cores(threads), pack(b""), frames.skipped)
