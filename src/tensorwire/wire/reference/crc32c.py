"""CRC32C checksums."""

from __future__ import annotations

from typing import Any

from ...core.memory import flat


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def crc32c(data: Any, value: int = 0) -> int:
    crc = value ^ 0xFFFFFFFF
    for byte in flat(data):
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
