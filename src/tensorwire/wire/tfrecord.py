"""TFRecord framing, little-endian:

u64 length | u32 masked crc of the length | data | u32 masked crc of the data
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from .._errors import ChecksumError
from .crc import crc32c, mask

HEADER, FOOTER = 12, 4


def header(length: int) -> bytes:
    """Return the header of a record of `length` bytes.

    >>> header(3).hex()
    '0300000000000000b099490e'
    """
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", mask(crc32c(size)))


def footer(chunks: Iterable[Any]) -> bytes:
    """Return the footer of a record whose data is these chunks."""
    crc = 0
    for chunk in chunks:
        crc = crc32c(chunk, crc)
    return struct.pack("<I", mask(crc))


def length(head: bytes) -> int:
    """Return the length in a header. Raises ChecksumError if its checksum does not match."""
    size, crc = struct.unpack("<QI", head)
    if mask(crc32c(head[:8])) != crc:
        raise ChecksumError(
            "the length of a record does not match its checksum", format="tfrecord", offset=8
        )
    return int(size)


def is_header(head: bytes) -> bool:
    """Return whether bytes start with a valid record header.

    >>> is_header(header(3)), is_header(b"PK")
    (True, False)
    """
    return len(head) >= HEADER and mask(crc32c(head[:8])) == int.from_bytes(
        head[8:HEADER], "little"
    )


def length_at(data: Any, offset: int) -> int:
    """Return the length in the header at an offset, whose checksum was verified before."""
    return int.from_bytes(bytes(data[offset : offset + 8]), "little")


def check(data: Any, foot: bytes) -> None:
    """Raise ChecksumError if the data does not match the checksum in the footer."""
    if mask(crc32c(data)) != struct.unpack("<I", foot)[0]:
        raise ChecksumError(
            "the data of a record does not match its checksum", format="tfrecord", offset=HEADER
        )
