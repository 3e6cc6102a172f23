"""zstd frames (RFC 8878), with Python's own module; for Python 3.13 and older, backports.zstd.

We write frames of 4 MiB with the size and checksum of their content. They are compressed and
decompressed in parallel, and reading can start at any of them. Frames of other writers may have no
size and no checksum. Frames that need a dictionary are not supported.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import _optional
from ..._errors import DecodeError, LimitError
from ..._limits import DEFAULT, Limits
from ...core.memory import Array, Buffer
from . import frames
from .frames import FrameDecompressor, FrameHeader, Part
from .streams import Compressor, UnitCompressor, cores

FRAME = 4 << 20
"""Bytes of data in a frame that we write."""
MAGIC = b"\x28\xb5\x2f\xfd"
LEVELS = (-7, 22)
LEVEL = 3
"""The default level, the same as zstd's."""
_UNIT_WINDOW = 23
"""The largest window of a frame that is decompressed in one step, as a power of two: 8 MiB."""
_LARGEST = (1 << 63) - 1
"""Larger results of zstd's functions are error codes."""
_WINDOW = (10, 31)
"""The smallest and the largest window that the library supports, as powers of two."""


@functools.cache
def library() -> Any:
    """Import the module of Python 3.14, or the backport."""
    return _optional.require(
        "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "compress"
    )


def read_header(head: Buffer, limits: Limits = DEFAULT) -> FrameHeader | None:
    """Return the header of a frame, or None if it is not complete.

    Raises DecodeError for frames that are not supported, and LimitError for too large a window.

    >>> read_header(MAGIC + bytes([0x24, 3, 0x19])).content
    3
    """
    if frames.skippable(head):
        return frames.skip_header(head)
    if not MAGIC.startswith(bytes(head[:4])):
        raise DecodeError("not a zstd frame: wrong magic number", format="zstd", offset=0)
    if len(head) < 5:
        return None
    flags, single = head[4], bool(head[4] & 0x20)
    if flags & 8:
        raise DecodeError("the header of the zstd frame has invalid flags", format="zstd", offset=4)
    # Layout: magic (4) | flags (1) | window (1, unless `single`) | dictionary id | content size.
    # The lengths of the last two fields are in the flags.
    dictionary = 5 + (not single)
    size = dictionary + (0, 1, 2, 4)[flags & 3]
    end = size + (int(single), 2, 4, 8)[flags >> 6]
    if len(head) < end:
        return None
    if any(head[dictionary:size]):
        number = int.from_bytes(head[dictionary:size], "little")
        raise DecodeError(
            f"the zstd frame needs dictionary {number}, which is not supported",
            format="zstd",
            offset=dictionary,
            hint="decompress the file with the zstd tool",
        )
    content = (
        int.from_bytes(head[size:end], "little") + (256 if end - size == 2 else 0)
        if end > size
        else None
    )
    if single:
        window = content or 0
    else:
        base = 1 << 10 + (head[5] >> 3)
        window = base + base // 8 * (head[5] & 7)
    if window > limits.record:
        raise LimitError(
            f"the zstd frame needs a window of {window:,} bytes, and the limit is"
            f" {limits.record:,}",
            format="zstd",
            offset=4 if single else 5,
            hint="pass a larger Limits(record=...)",
        )
    return FrameHeader(end, content, window, bool(flags & 4))


class ZstdDecompressor(FrameDecompressor):
    """Decompressor of any number of zstd frames."""

    name, unit = "zstd", "zstd frame"

    def _load(self) -> Any:
        self._errors = (library().ZstdError,)
        return library()

    def _open(self, head: FrameHeader) -> Any:
        log = min(max(_WINDOW[0], (head.window - 1).bit_length()), _WINDOW[1])
        return self._library.ZstdDecompressor(
            options={self._library.DecompressionParameter.window_log_max: log}
        )

    def _small(self, view: memoryview, size: int) -> tuple[int, Buffer] | None:
        out = np.empty(size, np.uint8)
        try:
            length = int(self._library.get_frame_size(view))
            unpack(view[:length], out)
        except (self._library.ZstdError, DecodeError):
            # The frame is decompressed as a stream instead, which reports what is wrong.
            return None
        return length, out.data

    _read = staticmethod(read_header)


def split(view: memoryview, limits: Limits = DEFAULT) -> list[Part] | None:
    """Return the frames of a stream, if each header has the size of its data: see `frames.walk`."""
    zstd = library()

    def end(offset: int, head: FrameHeader) -> int:
        if head.window > 1 << _UNIT_WINDOW:
            return len(view) + 1
        try:
            return offset + int(zstd.get_frame_size(view[offset:]))
        except zstd.ZstdError:
            return len(view) + 1

    return frames.walk(view, lambda head: read_header(head, limits), end)


def unpack(data: Buffer, out: Array) -> None:
    """Decompress one complete frame of exactly len(out) bytes of data."""
    direct = _direct()
    if direct is not None:
        direct(data, out)
        return
    zstd = library()
    frame = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: _UNIT_WINDOW}
    )
    try:
        unpacked: bytes = frame.decompress(data, len(out) + 1)
    except zstd.ZstdError as cause:
        raise ZstdDecompressor.fault(cause, 0, 0) from cause
    if not frame.eof or len(unpacked) != len(out) or frame.unused_data:
        raise _wrong_size(len(out))
    out[:] = np.frombuffer(unpacked, np.uint8)


def _wrong_size(size: int) -> DecodeError:
    return DecodeError(f"not a single zstd frame of {size} bytes of data", format="zstd", offset=0)


@functools.cache
def _direct() -> Callable[[Buffer, Array], None] | None:
    """Return zstd's C function that decompresses a frame into given memory, if it is exported.

    Python's module creates a context for each frame and copies the data three times, which for a
    byte plane takes half as long as decompression. The shared library of the module contains zstd,
    and on most systems exports its functions, which are part of zstd's stable API. Each thread
    reuses one context.
    """
    import ctypes
    import importlib

    name = "_zstd" if sys.version_info >= (3, 14) else "backports.zstd._zstd"
    try:
        functions = ctypes.CDLL(importlib.import_module(name).__file__)
        run, create, free, name_of = (
            getattr(functions, f"ZSTD_{word}")
            for word in ("decompressDCtx", "createDCtx", "freeDCtx", "getErrorName")
        )
    except (ImportError, AttributeError, OSError, TypeError):
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    run.restype, run.argtypes = size, [pointer, pointer, size, pointer, size]
    create.restype, create.argtypes = pointer, []
    free.restype, free.argtypes = size, [pointer]
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [size]
    own = threading.local()

    class Context:
        def __init__(self) -> None:
            self.pointer = create()
            if not self.pointer:
                raise MemoryError

        def __del__(self, free: Any = free) -> None:
            free(self.pointer)

    def unpack(data: Buffer, out: Array) -> None:
        if not hasattr(own, "context"):
            own.context = Context()
        given = np.frombuffer(data, np.uint8)
        code = run(own.context.pointer, out.ctypes.data, len(out), given.ctypes.data, len(given))
        if code > _LARGEST:
            raise ZstdDecompressor.fault(ValueError(name_of(code).decode()), 0, 0)
        if code != len(out):
            raise _wrong_size(len(out))

    return unpack


def packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Return the function that compresses data into one frame.

    The level is -7 (fastest) to 22 (smallest).
    """
    return _packer(level, checksum=True)


def part_packers(level: int | None) -> list[Callable[[Buffer], bytes]]:
    """Return the packers for a byte plane that has a checksum elsewhere.

    One packs at the given level, the other one uses almost only entropy coding. The exponents of
    random floats (a model's weights) repeat often, but by chance. A search for matches finds these
    repetitions, takes three times as long, and the result is 15 % larger.
    """
    zstd = library()
    parameter = zstd.CompressionParameter
    few_matches = {
        parameter.strategy: zstd.Strategy.fast,
        parameter.min_match: 7,
        parameter.hash_log: 6,
    }
    return [_packer(level, checksum=False), _packer(1, checksum=False, more=few_matches)]


def _packer(
    level: int | None, checksum: bool, more: dict[Any, Any] | None = None
) -> Callable[[Buffer], bytes]:
    if level is not None and not LEVELS[0] <= level <= LEVELS[1]:
        raise ValueError(
            f"invalid zstd level {level}: use {LEVELS[0]} (fastest) to {LEVELS[1]} (smallest)"
        )
    zstd = library()
    parameter = zstd.CompressionParameter
    options = {
        parameter.compression_level: LEVEL if level is None else level,
        parameter.checksum_flag: int(checksum),
    } | (more or {})
    # A compressor has tables of a megabyte, so each thread creates one and reuses it.
    own = threading.local()

    def pack(data: Buffer) -> bytes:
        if not hasattr(own, "compressor"):
            own.compressor = zstd.ZstdCompressor(options=options)
        frame: bytes = own.compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
        return frame

    return pack


def zstd_compressor(level: int | None, threads: int | None) -> Compressor:
    """Return a compressor that writes frames of up to 4 MiB in parallel."""
    pack = packer(level)
    return UnitCompressor(pack, FRAME, cores(threads), pack(b""), frames.skipped)
