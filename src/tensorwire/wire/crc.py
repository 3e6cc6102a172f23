"""CRC32C checksums, plain and in the masked form that TensorFlow stores."""

from __future__ import annotations

from .kernels import crc32c

_DELTA = 0xA282EAD8


def mask(crc: int) -> int:
    """Return a CRC in the masked form that is stored next to the data.

    >>> hex(mask(crc32c(b"123456789")))
    '0xc78ab0e5'
    """
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


def unmask(masked: int) -> int:
    """Return the CRC of a masked CRC.

    >>> unmask(mask(0x12345678)) == 0x12345678
    True
    """
    rotated = (masked - _DELTA) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


__all__ = ["crc32c", "mask", "unmask"]
