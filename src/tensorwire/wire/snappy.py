"""Raw Snappy blocks, read without any package: old checkpoints and compressed record files are full
of them.
"""

from __future__ import annotations

from typing import Any

from ..core.memory import flat
from . import kernels
from .reference import snappy as twin
from .reference.protobuf import WireFault
from .status import TRUNCATED, problem

LARGEST = (1 << 32) - 1
"""What the length at the start of a block can say at most."""


def decode(data: Any, limit: int = LARGEST) -> bytes:
    """The data of one block, which may have at most `limit` bytes.

    >>> decode(b"\\x0a\\x08abc\\x0d\\x03")  # ten bytes: "abc", then seven from three bytes ago
    b'abcabcabca'
    >>> decode(b"\\x09\\x08abc\\x0d\\x03")
    Traceback (most recent call last):
    tensorwire._errors.DecodeError: more data than the length at the start says (format snappy, byte
    5)
    """
    status, offset, out = kernels.snappy_decode(data, limit)
    if out is None:
        raise problem(status, offset, "snappy")
    return out


def size(data: Any) -> int | None:
    """How many bytes a block says that it becomes; None if it says nothing sound.

    >>> size(b"\\x0a\\x08abc\\x0d\\x03"), size(b"\\xff")
    (10, None)
    """
    view = flat(data)
    try:
        return twin.head(view, len(view), LARGEST)[0]
    except WireFault:
        return None


def longest(size: int) -> int:
    """The longest block that a compressor makes of so much data."""
    return 32 + size + size // 6


def prefix(data: Any, whole: int, count: int) -> bytes:
    """The first `count` bytes of a block of `whole` bytes, as far as `data`, its beginning, has
    them; nothing if it is no Snappy.

    Not a kernel, as only a dozen bytes are wanted, to see what a file is.

    >>> prefix(b"\\x0a\\x08abc\\x0d", 7, 4)
    b'abc'
    """
    view, out = flat(data), bytearray()
    try:
        size, at = twin.head(view, whole, LARGEST)
        if whole > longest(size):
            return b""
        twin.expand(view, at, size, out, count)
    except WireFault as fault:
        if fault.status != TRUNCATED:
            return b""
    return bytes(out[:count])
