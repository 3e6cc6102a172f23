"""Images: type and size of image files from their headers, and tensors as PNG.

Pixels of image files are never decoded, so a hostile header costs nothing. PNG is written with zlib
alone, without an image library.
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
"""The most pixels of a picture in each direction; larger ones are subsampled."""


class Image(NamedTuple):
    """The header of an image file; `str()` is for example `JPEG 640 x 480, colour`."""

    type: str
    width: int
    height: int
    about: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.width} x {self.height}{', ' if self.about else ''}{self.about}"


_PNG = {0: "grey", 2: "colour", 3: "palette", 4: "grey with alpha", 6: "colour with alpha"}
_CHANNELS = {1: "grey", 3: "colour", 4: "CMYK"}
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""The JPEG markers SOF0 to SOF15, whose segments contain the size of the image."""
_MAGICS = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"RIFF": "WebP",
}
_MOST = 1000
"""The most JPEG segments that are read before the size; cameras write a few dozen."""


def type_of(data: bytes) -> str | None:
    """Return the type of an image file from its first bytes, or None.

    >>> type_of(b"\\xff\\xd8\\xff\\xe0"), type_of(b"<svg>")
    ('JPEG', None)
    """
    type = next((name for magic, name in _MAGICS.items() if data.startswith(magic)), None)
    return None if type == "WebP" and data[8:12] != b"WEBP" else type


def image(data: bytes) -> Image | None:
    """Return the type and size of an image file, or None if the bytes are not one.

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
    except (struct.error, IndexError):
        # The header is truncated.
        return None
    return None


def _jpeg(data: bytes) -> Image | None:
    # After the start marker (2 bytes) comes a list of segments: 0xFF, marker, length (2 bytes,
    # big-endian, which counts itself), payload.
    offset = 2
    for _ in range(_MOST):
        # A marker may be preceded by any number of fill bytes 0xFF.
        while data[offset] == 0xFF and data[offset + 1] == 0xFF:
            offset += 1
        if data[offset] != 0xFF:
            return None
        marker = data[offset + 1]
        if marker in _FRAMES:
            height, width, channels = struct.unpack_from(">HHB", data, offset + 5)
            return Image("JPEG", width, height, _CHANNELS.get(channels, f"{channels} channels"))
        # 0xD9 ends the image, and after 0xDA come the pixels: the size was missing.
        if marker in (0xD9, 0xDA):
            return None
        # TEM (0x01) and the restart markers (0xD0 to 0xD7) have neither length nor payload.
        offset += (
            2
            if marker == 0x01 or 0xD0 <= marker <= 0xD7
            else 2 + max(2, struct.unpack_from(">H", data, offset + 2)[0])
        )
    return None


def _webp(data: bytes) -> Image | None:
    # A file is RIFF, its size, WEBP, then the first chunk: VP8X (extended), VP8L (lossless) or VP8
    # (lossy). The first two chunks store width and height minus one.
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
    """Return uint8 [height, width], [height, width, 3] or [height, width, 4] as a PNG file.

    >>> png(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width = pixels.shape[:2]
    color = {1: 0, 3: 2, 4: 6}[1 if pixels.ndim == 2 else pixels.shape[2]]
    # Each row begins with one byte for the filter; 0 means no filter.
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
    """How a tensor holds images: the axes of height, width and channels (-1: none), and the number
    of images.
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
            raise SchemaError(f"unknown image layout {name!r}; known: {', '.join(LAYOUTS)}")
        if name not in layouts(shape):
            raise SchemaError(f"shape {list(shape)} does not fit the image layout {name}")
        height = rank - (3 if name == "hwc" else 2)
        channels = {"hwc": rank - 1, "chw": rank - 3, "hw": -1}[name]
        before = shape[: min(height, channels) if channels >= 0 else height]
        return cls(name, height, height + 1, channels, math.prod(before))


def layouts(shape: tuple[int, ...]) -> list[str]:
    """Return the image layouts that fit a shape, the likeliest first.

    >>> layouts((32, 28, 28, 3)), layouts((8, 8)), layouts((5,))
    (['hwc', 'hw'], ['hw'], [])
    """
    if len(shape) < 2 or 0 in shape:
        return []
    names = [
        name
        for name, axis in (("hwc", -1), ("chw", -3))
        if len(shape) >= 3 and shape[axis] in CHANNELS
    ]
    return [*names, "hw"]


def picture(values: DenseValues, layout: str, number: int, part: str = "abs") -> bytes:
    """Return image `number` of a tensor as a PNG file of at most 512 x 512 pixels."""
    axes = ImageLayout.of(values.shape, layout)
    if not 0 <= number < axes.count:
        raise SchemaError(f"image {number} is out of range: the tensor has {axes.count}")
    shape = values.shape
    height, width = shape[axes.height], shape[axes.width]
    channels = shape[axes.channels] if axes.channels >= 0 else 1
    step = max(1, -(-max(height, width) // SIDE))
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    rows = np.arange(0, height, step, dtype=np.int64) * strides[axes.height]
    columns = np.arange(0, width, step, dtype=np.int64) * strides[axes.width]
    base = number * height * width * channels
    planes = [
        grid(
            values,
            base + (channel * strides[axes.channels] if axes.channels >= 0 else 0),
            rows,
            columns,
        )
        for channel in range(channels)
    ]
    return png(_shades(np.stack(planes, -1) if len(planes) > 1 else planes[0], part))


def _shades(pixels: Array, part: str) -> Array:
    """Scale numbers to 0 to 255: uint8 is unchanged, floats in [0, 1] are multiplied by 255, all
    others are scaled from their minimum to their maximum.
    """
    if pixels.dtype == np.uint8:
        return pixels
    wide = numbers(pixels, part)
    finite = wide[np.isfinite(wide)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if pixels.dtype.kind not in "iu" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    # Halves are subtracted, because high - low may overflow.
    with np.errstate(all="ignore"):
        scaled = (
            (wide / 2 - low / 2) / (high / 2 - low / 2)
            if high > low
            else np.where(np.isfinite(wide), 0.5, 0.0)
        )
    shades: Array = np.round(np.nan_to_num(np.clip(scaled, 0, 1), nan=0.0) * 255).astype(np.uint8)
    return shades
