"""zstd (RFC 8878) through Python's own module, which for Python 3.13 and older is the package
backports.zstd.

We write frames of 4 MiB, each with its content's size and checksum, so that they are packed and
unpacked in parallel, and reading can start at any of them. Frames of other writers may have no size
and no checksum; those that need a dictionary are refused.
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
"""The default, which is also zstd's."""
_UNIT_WINDOW = 23
"""That of a frame that is unpacked in one step: 8 MiB, or less."""
_LARGEST = (1 << 63) - 1
"""What zstd returns beyond this is the number of an error."""
_WINDOW = (10, 31)
"""The least and the largest window that the library knows, as powers of two."""


@functools.cache
def library() -> Any:
    """The module of Python 3.14, or its twin for older ones."""
    return _optional.require(
        "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "compress"
    )


def read_header(held: Buffer, limits: Limits = DEFAULT) -> FrameHeader | None:
    """The header of a frame, or None if it goes on; a DecodeError if we cannot or must not read
    what it announces.

    >>> read_header(MAGIC + bytes([0x24, 3, 0x19])).content
    3
    """
    if frames.skippable(held):
        return frames.skip_header(held)
    if not MAGIC.startswith(bytes(held[:4])):
        raise DecodeError("this is not zstd", format="zstd", offset=0)
    if len(held) < 5:
        return None
    flags, single = held[4], bool(held[4] & 0x20)
    if flags & 8:
        raise DecodeError("the frame's header has flags that do not exist", format="zstd", offset=4)
    name = 5 + (not single)  # of the dictionary
    size = name + (0, 1, 2, 4)[flags & 3]
    end = size + (int(single), 2, 4, 8)[flags >> 6]
    if len(held) < end:
        return None
    if any(held[name:size]):
        number = int.from_bytes(held[name:size], "little")
        raise DecodeError(
            f"the frame needs dictionary number {number}: unpack it with the zstd tool",
            format="zstd",
            offset=name,
        )
    content = (
        int.from_bytes(held[size:end], "little") + (256 if end - size == 2 else 0)
        if end > size
        else None
    )
    if single:
        window = content or 0
    else:
        base = 1 << 10 + (held[5] >> 3)
        window = base + base // 8 * (held[5] & 7)
    if window > limits.record:
        what = (
            f"the frame needs a window of {window:,} bytes, more than"
            f" Limits(record={limits.record}) allows"
        )
        raise LimitError(what, format="zstd", offset=4 if single else 5)
    return FrameHeader(end, content, window, bool(flags & 4))


class ZstdDecompressor(FrameDecompressor):
    """Any number of frames, with nothing else behind them."""

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
            return None  # the usual way says what is wrong
        return length, out.data

    _read = staticmethod(read_header)


def split(view: memoryview, limits: Limits = DEFAULT) -> list[Part] | None:
    """The frames of a stream, if each says its size: see `frames.walk`."""
    zstd = library()

    def end(at: int, head: FrameHeader) -> int:
        if head.window > 1 << _UNIT_WINDOW:
            return len(view) + 1
        try:
            return at + int(zstd.get_frame_size(view[at:]))
        except zstd.ZstdError:
            return len(view) + 1

    return frames.walk(view, lambda held: read_header(held, limits), end)


def unpack(data: Buffer, out: Array) -> None:
    """One frame, whole, which becomes exactly as much as there is room for."""
    direct = _direct()
    if direct is not None:
        direct(data, out)
        return
    zstd = library()
    frame = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: _UNIT_WINDOW}
    )
    try:
        found: bytes = frame.decompress(data, len(out) + 1)
    except zstd.ZstdError as cause:
        raise ZstdDecompressor.fault(cause, 0, 0) from cause
    if not frame.eof or len(found) != len(out) or frame.unused_data:
        raise _other_size(len(out))
    out[:] = np.frombuffer(found, np.uint8)


def _other_size(size: int) -> DecodeError:
    return DecodeError(f"this is no single zstd frame of {size} bytes", format="zstd", offset=0)


@functools.cache
def _direct() -> Callable[[Buffer, Array], None] | None:
    """zstd's own function that unpacks a frame into given memory, with a context that is used
    again. Python's module has no such thing: it makes a context for each frame and copies the data
    three times, which for a byte plane takes as long as half of the unpacking. The extension under
    it has the function, though, and exports it on most systems; it is part of zstd's stable
    interface."""
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
            raise _other_size(len(out))

    return unpack


def packer(level: int | None) -> Callable[[Buffer], bytes]:
    """Makes a frame of some data; the level is -7 (quickest) to 22 (smallest)."""
    return _packer(level, checksum=True)


def part_packers(level: int | None) -> list[Callable[[Buffer], bytes]]:
    """Ways to pack a byte plane that has a checksum elsewhere: at a level, and by the frequencies
    of bytes alone.

    The exponents of random floats (a model's weights) repeat all the time and mean nothing by it:
    whoever looks for matches finds them, takes three times as long, and ends with 15 % more bytes
    than whoever does not.
    """
    zstd = library()
    parameter = zstd.CompressionParameter
    few = {parameter.strategy: zstd.Strategy.fast, parameter.min_match: 7, parameter.hash_log: 6}
    return [_packer(level, checksum=False), _packer(1, checksum=False, more=few)]


def _packer(
    level: int | None, checksum: bool, more: dict[Any, Any] | None = None
) -> Callable[[Buffer], bytes]:
    if level is not None and not LEVELS[0] <= level <= LEVELS[1]:
        raise ValueError(
            f"level {level}: zstd has levels {LEVELS[0]} (quickest) to {LEVELS[1]} (smallest)"
        )
    zstd = library()
    parameter = zstd.CompressionParameter
    options = {
        parameter.compression_level: LEVEL if level is None else level,
        parameter.checksum_flag: int(checksum),
    } | (more or {})
    own = threading.local()  # a compressor has tables of a megabyte, so each thread keeps its own

    def pack(data: Buffer) -> bytes:
        if not hasattr(own, "compressor"):
            own.compressor = zstd.ZstdCompressor(options=options)
        frame: bytes = own.compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
        return frame

    return pack


def zstd_compressor(level: int | None, threads: int | None) -> Compressor:
    """Frames of up to 4 MiB, packed in parallel."""
    pack = packer(level)
    return UnitCompressor(pack, FRAME, cores(threads), pack(b""), frames.skipped)
