"""Inputs for the fuzz target `table`: blocks of a checkpoint's index, whole and broken, and entries
by themselves.
"""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def block(*entries: tuple[int, bytes, bytes], restarts: tuple[int, ...] = (0,)) -> bytes:
    out = b"".join(
        varint(shared) + varint(len(key)) + varint(len(value)) + key + value
        for shared, key, value in entries
    )
    return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table() -> dict[str, bytes]:
    entry = bytes.fromhex("0801120412020803280c35d8ea82a2")
    sliced = bytes.fromhex("08011208120208051202080435000000003a080a0210020a021004")
    head = bytes.fromhex("08011a020801")
    return {
        "empty": block(),
        "header": block((0, b"", head)),
        "entries": block(
            (0, b"", head), (0, b"net/bias", entry), (4, b"kernel", entry), (3, b"word", entry)
        ),
        "slices": block(
            (0, b"", head), (0, b"\0p\0\1\1\2\x80\x82\x80\x84", entry), (0, b"p", sliced)
        ),
        "two_restarts": block((0, b"a", entry), (0, b"b", entry), restarts=(0, 19)),
        "restart_elsewhere": block((0, b"a", entry), (0, b"b", entry), restarts=(0, 7)),
        "shared_too_much": block((0, b"a", b""), (2, b"b", b"")),
        "out_of_order": block((0, b"b", b""), (0, b"a", b"")),
        "twice": block((0, b"b", b""), (1, b"", b"")),
        "long_prefix": block((0, b"k" * 300, b""), *((300 + i, b"k", b"") for i in range(20))),
        "no_restarts": struct.pack("<I", 0),
        "many_restarts": block((0, b"a", b""))[:-4] + struct.pack("<I", 1 << 30),
        "huge_value": (
            varint(0) + varint(1) + varint((1 << 64) - 1) + b"a" + struct.pack("<2I", 0, 1)
        ),
        "entry": entry,
        "negative_dim": bytes.fromhex("0801120d120b08ffffffffffffffffff01"),
        "huge_shape": bytes.fromhex("08011214120808808080808020120808808080808020"),
        "twice_a_field": entry * 2,
        "past_the_end": bytes.fromhex("080120fcffffffffffffff7f2808"),
        "unknown_rank": bytes.fromhex("080112021801"),
    }


TARGETS = (table,)
