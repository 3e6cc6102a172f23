"""Raw Snappy blocks, as in old checkpoints and compressed record files. Reading needs no package."""

from __future__ import annotations

from typing import Any

from ..core.memory import flat
from . import kernels
from .reference import snappy as twin
from .reference.protobuf import WireFault
from .status import TRUNCATED, problem

LARGEST = (1 << 32) - 1
"""The largest length that a block can have in its header."""


def decode(data: Any, limit: int = LARGEST) -> bytes:
    """Return the data of one block. Raises LimitError if it has more than `limit` bytes.

    The example is ten bytes: "abc", then a copy of seven bytes from three bytes back.

    >>> decode(b"\\x0a\\x08abc\\x0d\\x03")
    b'abcabcabca'
    >>> decode(b"\\x09\\x08abc\\x0d\\x03")
    Traceback (most recent call last):
    tensorwire._errors.DecodeError: the data is longer than the length at the start of the block
    (format snappy, byte 5)
    """
    status, offset, out = kernels.snappy_decode(data, limit)
    if out is None:
        raise problem(status, offset, "snappy")
    return out


def size(data: Any) -> int | None:
    """Return the size of the data according to the header of a block; None if it is not valid.

    >>> size(b"\\x0a\\x08abc\\x0d\\x03"), size(b"\\xff")
    (10, None)
    """
    view = flat(data)
    try:
        return twin.head(view, len(view), LARGEST)[0]
    except WireFault:
        return None


def longest(size: int) -> int:
    """Return the size of the longest block that a compressor writes for `size` bytes of data."""
    return 32 + size + size // 6


def prefix(data: Any, whole: int, count: int) -> bytes:
    """Return the first `count` bytes of data of a block, or fewer if `data` is cut off.

    `data` is the beginning of a block of `whole` bytes. Returns b"" if it is not Snappy. There is
    no kernel for this, because a few bytes are enough to identify a file.

    >>> prefix(b"\\x0a\\x08abc\\x0d", 7, 4)
    b'abc'
    """
    view, out = flat(data), bytearray()
    try:
        size, start = twin.head(view, whole, LARGEST)
        if whole > longest(size):
            return b""
        twin.expand(view, start, size, out, count)
    except WireFault as fault:
        if fault.status != TRUNCATED:
            return b""
    return bytes(out[:count])
