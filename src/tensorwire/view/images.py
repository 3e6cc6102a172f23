"""Pictures: tensors as PNG, written here with zlib alone, and strings that are PNG or JPEG already."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import SchemaError
from ..core.tensors import Array
from .reading import DenseValues, grid, numbers

LAYOUTS = ("hwc", "chw", "hw")
CHANNELS = (1, 3, 4)
SIDE = 512
"""Pixels that a picture has at most, each way; larger ones show every second pixel, or fewer."""
LARGEST = 32 << 20
"""Bytes of a picture that is passed on as it is."""
_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


def media_type(data: Any) -> str | None:
    """What a string is a picture as, by its first bytes.

    >>> media_type(b"\\xff\\xd8\\xff\\xe0"), media_type(b"<svg>")
    ('image/jpeg', None)
    """
    head = bytes(data[:8])
    return next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), None)


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
    plain = numbers(pixels, part)
    finite = plain[np.isfinite(plain)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if pixels.dtype.kind not in "iu" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    with np.errstate(all="ignore"):
        scaled = (
            (plain / 2 - low / 2) / (high / 2 - low / 2)
            if high > low
            else np.where(np.isfinite(plain), 0.5, 0.0)
        )
    shades: Array = np.round(np.nan_to_num(np.clip(scaled, 0, 1), nan=0.0) * 255).astype(np.uint8)
    return shades
