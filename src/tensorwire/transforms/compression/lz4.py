"""LZ4 frames, with the package lz4: larger than zstd, but faster.

We write frames of 4 MiB with the size and checksum of their content. They are compressed and
decompressed in parallel, and reading can start at any of them. Frames of other writers may have
linked blocks, and no size and no checksum. Frames that need a dictionary and the legacy frames of
the first lz4 tools are not supported.
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
"""The block size code of 256 KiB. A truncated file loses at most one block."""


def library() -> Any:
    return _optional.require("lz4.frame", "compress")


def read_header(head: Buffer, limits: Limits = DEFAULT) -> FrameHeader | None:
    """Return the header of a frame, or None if it is not complete.

    Raises DecodeError for frames that are not supported. The library checks the header's checksum.

    >>> read_header(MAGIC + bytes([0x6c, 0x40, 3, 0, 0, 0, 0, 0, 0, 0, 0x49])).content
    3
    """
    if frames.skippable(head):
        return frames.skip_header(head)
    if _LEGACY.startswith(bytes(head[:4])) and len(head) >= 4:
        raise DecodeError(
            "legacy lz4 frames are not supported",
            format="lz4",
            offset=0,
            hint="decompress the file with the lz4 tool, and compress it again",
        )
    if not MAGIC.startswith(bytes(head[:4])) and not _LEGACY.startswith(bytes(head[:4])):
        raise DecodeError("not an lz4 frame: wrong magic number", format="lz4", offset=0)
    if len(head) < 6:
        return None
    flags, block = head[4], head[5] >> 4
    if flags & 0xC2 != 0x40 or head[5] & 0x8F or block < 4:
        raise DecodeError("the header of the lz4 frame has invalid flags", format="lz4", offset=4)
    if flags & 1:
        raise DecodeError(
            "lz4 frames that need a dictionary are not supported",
            format="lz4",
            offset=4,
            hint="decompress the file with the lz4 tool",
        )
    end = 7 + (8 if flags & 8 else 0)
    if len(head) < end:
        return None
    return FrameHeader(
        end,
        int.from_bytes(head[6:14], "little") if flags & 8 else None,
        1 << 2 * block + 8,
        bool(flags & 4),
    )


class Lz4Decompressor(FrameDecompressor):
    """Decompressor of any number of lz4 frames."""

    name, unit = "lz4", "lz4 frame"
    _errors = (RuntimeError,)

    def _load(self) -> Any:
        return library()

    def _open(self, head: FrameHeader) -> Any:
        return self._library.LZ4FrameDecompressor()

    _read = staticmethod(read_header)


def split(view: memoryview, limits: Limits = DEFAULT) -> list[Part] | None:
    """Return the frames of a stream, if each header has the size of its data: see `frames.walk`."""
    library()
    # The number of blocks to look at is bounded, so that many tiny blocks do not cost time.
    left = 16 + len(view) // 4096

    def end(offset: int, head: FrameHeader) -> int:
        nonlocal left
        sums, offset = 4 * bool(view[offset + 4] & 0x10), offset + head.end
        while offset + 4 <= len(view) and left:
            size, left = int.from_bytes(view[offset : offset + 4], "little") & 0x7FFFFFFF, left - 1
            if size == 0:
                return offset + 4 + 4 * head.checked
            offset += 4 + size + sums
        return len(view) + 1

    return frames.walk(view, lambda head: read_header(head, limits), end)


def unpack(data: Buffer, out: Array) -> None:
    """Decompress one complete frame of exactly len(out) bytes of data."""
    lz4 = library()
    try:
        unpacked, used, complete = lz4.decompress_chunk(
            lz4.create_decompression_context(), data, max_length=len(out) + 1
        )
    except RuntimeError as cause:
        raise Lz4Decompressor.fault(cause, 0, 0) from cause
    if not complete or len(unpacked) != len(out) or used != len(data):
        raise DecodeError(
            f"not a single lz4 frame of {len(out)} bytes of data", format="lz4", offset=0
        )
    out[:] = np.frombuffer(unpacked, np.uint8)


def packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Return the function that compresses data into one frame.

    The level is 0 (fastest) to 16 (smallest). Levels below 3 give the same result.
    """
    return _packer(level, checksum=True)


def part_packers(level: int | None) -> list[Callable[[Buffer], bytes]]:
    """Return the packer for data that has a checksum elsewhere.

    Checking the checksum of lz4 takes longer than the rest of reading.
    """
    return [_packer(level, checksum=False)]


def _packer(level: int | None, checksum: bool) -> Callable[[Buffer], bytes]:
    if level is not None and not LEVELS[0] <= level <= LEVELS[1]:
        raise ValueError(
            f"invalid lz4 level {level}: use {LEVELS[0]} (fastest) to {LEVELS[1]} (smallest)"
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
    """Return a compressor that writes frames of up to 4 MiB in parallel."""
    pack = packer(level)
    return UnitCompressor(pack, FRAME, cores(threads), pack(b""), frames.skipped)
