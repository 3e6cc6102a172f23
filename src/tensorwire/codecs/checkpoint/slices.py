"""Partitioned variables: tensors that were saved in slices, each with an index entry of its own.

The variable's entry lists the slices as (start, length) for each dimension. A missing length means
the whole dimension. The key of a slice encodes the variable's name and these numbers in
TensorFlow's OrderedCode, whose bytes sort as the numbers do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._errors import DecodeError, LimitError
from ..._limits import Limits
from ...core import validate
from ...core.tensors import Strings
from ...storage.files import BytesSource
from ...wire.protobuf import MessageReader
from ..container import BasePart, Rows
from .entries import FORMAT, BundleEntry
from .parts import CheckpointPart

Extent = tuple[int, int | None]
"""Start and length; the length is None for a whole dimension."""
_FIELDS = 32
"""The fields of a variable's slices are limited to Limits.names divided by this, because they are
parsed one by one.
"""
_PAIRWISE = 4096
"""The most slices that may cut several dimensions: they are compared with each other, in quadratic
time.
"""


def _unsigned(number: int) -> bytes:
    size = (number.bit_length() + 7) // 8
    return bytes([size]) + number.to_bytes(size, "big")


def _signed(number: int) -> bytes:
    """Encodes a signed integer: as many leading one bits as there are bytes, then the number.

    The sign is inverted, so that negative numbers sort first.

    >>> [_signed(number).hex() for number in (0, -1, 63, 64, -65)]
    ['80', '7f', 'bf', 'c040', '3fbf']
    """
    size = (~number if number < 0 else number).bit_length() // 7 + 1
    mark = ((1 << size) - 1) << (8 * size - size)
    return ((number & ((1 << 8 * size) - 1)) ^ mark).to_bytes(size, "big")


def slice_key(name: str, extents: Sequence[Extent]) -> bytes:
    """Returns the key of a slice.

    >>> slice_key("p", [(0, 2), (0, 4)])
    b'\\x00p\\x00\\x01\\x01\\x02\\x80\\x82\\x80\\x84'
    """
    # OrderedCode escapes the bytes 0x00 and 0xff. UTF-8 never contains 0xff.
    text = name.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x01"
    numbers = (
        _signed(start) + _signed(-1 if length is None else length) for start, length in extents
    )
    return b"\x00" + text + _unsigned(len(extents)) + b"".join(numbers)


def read_extents(message: bytes, limits: Limits) -> list[list[Extent]]:
    """Returns the slices that a variable's entry lists."""
    reader = MessageReader(BytesSource(message), FORMAT, Limits(names=limits.names // _FIELDS))
    slices = []
    for span in reader.take((0, len(message)), many=(7,))[7]:
        extents: list[Extent] = []
        for extent in reader.take(span, many=(1,))[1]:
            start, length = 0, None
            for field in reader.fields(extent):
                if field.number == 1 and isinstance(field.value, int):
                    start = field.value
                elif field.number == 2 and isinstance(field.value, int):
                    length = field.value
            extents.append((start, length))
        slices.append(extents)
    return slices


class SlicedPart(BasePart):
    """A partitioned variable. Reading rows reads only these rows of the slices that hold them."""

    checksum = True

    def __init__(
        self, entry: BundleEntry, slices: list[list[Extent]], parts: list[CheckpointPart]
    ) -> None:
        self.entry, self.shape, self.name = entry, entry.shape, str(entry.key)
        row = entry.row
        self.dtype = row.name if row is not None else "bytes"
        self.nbytes = sum(part.nbytes for part in parts)
        self._numpy: Any = row.numpy if row is not None else np.dtype(object)
        self._parts = parts
        self._boxes = np.array(
            [
                [
                    (start, dim if length is None else length)
                    for (start, length), dim in zip(extents, self.shape, strict=True)
                ]
                for extents in slices
            ],
            np.int64,
        ).reshape(len(slices), len(self.shape), 2)

    def read(self, rows: Rows = None) -> Any:
        try:
            return self._read(rows)
        except DecodeError as error:
            raise error.add(format=FORMAT, tensor=self.name, offset=0) from None

    def _read(self, rows: Rows) -> Any:
        low, high = rows if rows is not None else (0, self.shape[0] if self.shape else 0)
        if rows is not None and (not self.shape or not 0 <= low <= high <= self.shape[0]):
            raise DecodeError(f"rows {low} to {high} are out of range for shape {list(self.shape)}")
        # The slices together have the size of the tensor. So if all of their bytes exist, the
        # tensor can be allocated.
        for part in self._parts:
            part.check()
        out = np.empty((high - low, *self.shape[1:]) if self.shape else (), self._numpy)
        for part, box in zip(self._parts, self._boxes.tolist(), strict=True):
            start, stop = (max(box[0][0], low), min(sum(box[0]), high)) if box else (0, 0)
            if box and start >= stop:
                continue
            whole = not box or (start, stop) == (box[0][0], sum(box[0]))
            piece = part.read(None if whole else (start - box[0][0], stop - box[0][0]))
            where = (
                (
                    slice(start - low, stop - low),
                    *(slice(first, first + size) for first, size in box[1:]),
                )
                if box
                else ()
            )
            out[where] = np.asarray(piece)
        return (
            Strings.of(out.reshape(-1).tolist(), out.shape, text=False)
            if self._numpy.kind == "O"
            else out
        )


def sliced_part(
    entry: BundleEntry, slices: list[list[Extent]], pieces: list[tuple[BundleEntry, CheckpointPart]]
) -> SlicedPart:
    """Returns the part of a variable after checking that its slices cover it exactly once."""
    shape = entry.shape
    validate.elements(shape, DecodeError)
    for extents, (piece, _) in zip(slices, pieces, strict=True):
        sizes = tuple(
            dim if length is None else length
            for (_, length), dim in zip(extents, shape, strict=False)
        )
        inside = len(extents) == len(shape) and all(
            start >= 0 and 0 <= size <= dim - start
            for (start, _), size, dim in zip(extents, sizes, shape, strict=True)
        )
        if not inside or piece.shape != sizes or piece.dtype != entry.dtype or piece.slices:
            raise DecodeError(
                f"the slice {extents} of shape {list(piece.shape)} does not fit the variable's"
                f" shape {list(shape)}"
            )
    part = SlicedPart(entry, slices, [part for _, part in pieces])
    _check_cover(shape, part._boxes)
    return part


def _check_cover(shape: tuple[int, ...], boxes: Any) -> None:
    # If the volumes add up to that of the variable and no two boxes overlap, there is no gap.
    volumes = [math.prod(size for _, size in box) for box in boxes.tolist()]
    if sum(volumes) != math.prod(shape):
        raise DecodeError(
            f"the slices of the variable have {sum(volumes)} elements, but the variable has"
            f" {math.prod(shape)}"
        )
    boxes = boxes[[bool(volume) for volume in volumes]] if len(boxes) else boxes
    starts, stops = boxes[:, :, 0], boxes[:, :, 0] + boxes[:, :, 1]
    cut = [axis for axis, dim in enumerate(shape) if (boxes[:, axis, 1] != dim).any()]
    if len(boxes) < 2:
        return
    # Slices along one dimension, the usual case, are sorted and compared with their neighbours.
    if len(cut) == 1:
        order = np.argsort(starts[:, cut[0]], kind="stable")
        clash = (starts[order[1:], cut[0]] < stops[order[:-1], cut[0]]).any()
    elif len(boxes) > _PAIRWISE:
        raise LimitError(
            f"a variable has {len(boxes)} slices along several dimensions; the limit is {_PAIRWISE}"
        )
    else:
        clash = any(
            ((starts[i + 1 :] < stops[i]) & (stops[i + 1 :] > starts[i])).all(1).any()
            for i in range(len(boxes) - 1)
        )
    if clash:
        raise DecodeError("the slices of the variable overlap")
