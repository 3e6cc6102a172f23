"""What the first bytes of a picture say: its type and size. Nothing is decoded, and bytes that lie
cost nothing.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Image(NamedTuple):
    """`str()` is for people: `JPEG 640 x 480, colour`."""

    type: str
    width: int
    height: int
    about: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.width} x {self.height}{', ' if self.about else ''}{self.about}"


_PNG = {0: "grey", 2: "colour", 3: "palette", 4: "grey with alpha", 6: "colour with alpha"}
_CHANNELS = {1: "grey", 3: "colour", 4: "CMYK"}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""JPEG's segments that say how large the picture is."""
_MOST = 1000
"""Segments before that one; no camera writes so many."""


def image(data: bytes) -> Image | None:
    """The picture that bytes are the file of, or None.

    >>> print(image(b"GIF89a" + bytes([2, 0, 3, 0])))
    GIF 2 x 3
    >>> image(b"GIF89a") is None
    True
    """
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
            return Image("PNG", width, height, f"{_PNG.get(kind, '?')}, {depth} bits")
        if data.startswith((b"GIF87a", b"GIF89a")):
            return Image("GIF", *struct.unpack_from("<HH", data, 6))
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp(data)
    except (struct.error, IndexError):  # it ends before it says so
        return None
    return None


def _jpeg(data: bytes) -> Image | None:
    at = 2
    for _ in range(_MOST):
        # any number of these may stand before a marker
        while data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width, channels = struct.unpack_from(">HHB", data, at + 5)
            return Image("JPEG", width, height, _CHANNELS.get(channels, f"{channels} channels"))
        if marker in (0xD9, 0xDA):  # the end, or the picture itself
            return None
        at += (
            2
            if marker == 0x01 or 0xD0 <= marker <= 0xD7
            else 2 + max(2, struct.unpack_from(">H", data, at + 2)[0])
        )
    return None


def _webp(data: bytes) -> Image | None:
    kind = data[12:16]
    if kind == b"VP8X":
        flags, width, height = (
            data[20],
            int.from_bytes(data[24:27], "little"),
            int.from_bytes(data[27:30], "little"),
        )
        if len(data) < 30:
            return None
        return Image(
            "WebP",
            width + 1,
            height + 1,
            "animated" if flags & 2 else "with alpha" if flags & 16 else "",
        )
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack_from("<I", data, 21)[0]
        return Image("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, "lossless")
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return Image("WebP", width & 0x3FFF, height & 0x3FFF)
    return None
