"""Pictures: what the first bytes of a picture file say about it, and tensors as PNG.

Of a picture file nothing is decoded, and bytes that lie cost nothing. PNG is written here with zlib
alone.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._errors import SchemaError
from ..core.tensors import Array
from .runs import DenseValues, grid
from .statistics import numbers

LAYOUTS = ("hwc", "chw", "hw")
CHANNELS = (1, 3, 4)
SIDE = 512
"""Pixels that a picture has at most, each way; larger ones show every second pixel, or fewer."""


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
_MAGICS = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"RIFF": "WebP",
}
_MOST = 1000
"""Segments before that one; no camera writes so many."""


def type_of(data: bytes) -> str | None:
    """The type of a picture file, by its first bytes alone.

    >>> type_of(b"\\xff\\xd8\\xff\\xe0"), type_of(b"<svg>")
    ('JPEG', None)
    """
    type = next((name for magic, name in _MAGICS.items() if data.startswith(magic)), None)
    return None if type == "WebP" and data[8:12] != b"WEBP" else type


def image(data: bytes) -> Image | None:
    """The picture that bytes are the file of, or None.

    >>> print(image(b"GIF89a" + bytes([2, 0, 3, 0])))
    GIF 2 x 3
    >>> image(b"GIF89a") is None
    True
    """
    type = type_of(data)
    try:
        if type == "PNG" and data[12:16] == b"IHDR":
            width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
            return Image("PNG", width, height, f"{_PNG.get(kind, '?')}, {depth} bits")
        if type == "GIF":
            return Image("GIF", *struct.unpack_from("<HH", data, 6))
        if type == "JPEG":
            return _jpeg(data)
        if type == "WebP":
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


# Tensors as PNG


def png(pixels: Array) -> bytes:
    """uint8 [height, width], [height, width, 3] or [height, width, 4] as PNG.

    >>> png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width = pixels.shape[:2]
    color = {1: 0, 3: 2, 4: 6}[1 if pixels.ndim == 2 else pixels.shape[2]]
    # each row begins with the filter, which is none
    rows = np.zeros((height, 1 + pixels.size // max(1, height)), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 3))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@dataclass(frozen=True)
class ImageLayout:
    """How a tensor holds pictures: the dimensions of height and width, that of channels (-1: none),
    and how many pictures there are.
    """

    name: str
    height: int
    width: int
    channels: int
    count: int

    @classmethod
    def of(cls, shape: tuple[int, ...], name: str) -> ImageLayout:
        rank = len(shape)
        if name not in LAYOUTS:
            raise SchemaError(f"no layout {name!r}; known: {', '.join(LAYOUTS)}")
        if name not in layouts(shape):
            raise SchemaError(f"the shape {list(shape)} has no pictures in the layout {name}")
        height = rank - (3 if name == "hwc" else 2)
        channels = {"hwc": rank - 1, "chw": rank - 3, "hw": -1}[name]
        before = shape[: min(height, channels) if channels >= 0 else height]
        return cls(name, height, height + 1, channels, math.prod(before))


def layouts(shape: tuple[int, ...]) -> list[str]:
    """The layouts that a shape may have, the likeliest first.

    >>> layouts((32, 28, 28, 3)), layouts((8, 8)), layouts((5,))
    (['hwc', 'hw'], ['hw'], [])
    """
    if len(shape) < 2 or 0 in shape:
        return []
    found = [
        name
        for name, axis in (("hwc", -1), ("chw", -3))
        if len(shape) >= 3 and shape[axis] in CHANNELS
    ]
    return [*found, "hw"]


def picture(values: DenseValues, layout: str, number: int, part: str = "abs") -> bytes:
    """Picture `number` of a tensor, as PNG of at most 512 x 512 pixels."""
    found = ImageLayout.of(values.shape, layout)
    if not 0 <= number < found.count:
        raise SchemaError(f"picture {number} of {found.count}")
    shape = values.shape
    height, width = shape[found.height], shape[found.width]
    channels = shape[found.channels] if found.channels >= 0 else 1
    step = max(1, -(-max(height, width) // SIDE))
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    rows = np.arange(0, height, step, dtype=np.int64) * strides[found.height]
    columns = np.arange(0, width, step, dtype=np.int64) * strides[found.width]
    base = number * height * width * channels
    planes = [
        grid(
            values,
            base + (channel * strides[found.channels] if found.channels >= 0 else 0),
            rows,
            columns,
        )
        for channel in range(channels)
    ]
    return png(_shades(np.stack(planes, -1) if len(planes) > 1 else planes[0], part))


def _shades(pixels: Array, part: str) -> Array:
    """Numbers as 0 to 255: bytes as they are, floats of 0 to 1 times 255, anything else from its
    smallest to its largest.
    """
    if pixels.dtype == np.uint8:
        return pixels
    wide = numbers(pixels, part)
    finite = wide[np.isfinite(wide)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if pixels.dtype.kind not in "iu" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    with np.errstate(all="ignore"):
        scaled = (
            (wide / 2 - low / 2) / (high / 2 - low / 2)
            if high > low
            else np.where(np.isfinite(wide), 0.5, 0.0)
        )
    shades: Array = np.round(np.nan_to_num(np.clip(scaled, 0, 1), nan=0.0) * 255).astype(np.uint8)
    return shades
