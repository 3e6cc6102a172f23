"""Partitioned variables: a tensor that was saved in slices, each of them an entry of its own.

The variable's entry lists the slices, a (start, length) for each dimension, where a length that is
not said means all. The key of a slice is made of the variable's name and these numbers in an
encoding that sorts as they do.
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
"""Start and length; None for all of a dimension."""
_FIELDS = 32
"""A variable may have this many times fewer fields in its slices than a checkpoint may have
tensors: they are looked at one by one.
"""
_PAIRWISE = 4096
"""Slices that cut more than one dimension are compared with each other, so there is an end to how
many there may be.
"""


def _unsigned(number: int) -> bytes:
    size = (number.bit_length() + 7) // 8
    return bytes([size]) + number.to_bytes(size, "big")


def _signed(number: int) -> bytes:
    """As many leading ones as there are bytes (the first bit is turned, so that negative numbers
    sort first), then the number.

    >>> _signed(0).hex(), _signed(-1).hex(), _signed(63).hex(), _signed(64).hex(), _signed(-65).hex()
    ('80', '7f', 'bf', 'c040', '3fbf')
    """
    size = (~number if number < 0 else number).bit_length() // 7 + 1
    mark = ((1 << size) - 1) << (8 * size - size)
    return ((number & ((1 << 8 * size) - 1)) ^ mark).to_bytes(size, "big")


def slice_key(name: str, extents: Sequence[Extent]) -> bytes:
    """The key of a slice.

    >>> slice_key("p", [(0, 2), (0, 4)])
    b'\\x00p\\x00\\x01\\x01\\x02\\x80\\x82\\x80\\x84'
    """
    # UTF-8 has no byte 0xff, which would be marked as well
    text = name.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x01"
    numbers = (
        _signed(start) + _signed(-1 if length is None else length) for start, length in extents
    )
    return b"\x00" + text + _unsigned(len(extents)) + b"".join(numbers)


def read_extents(message: bytes, limits: Limits) -> list[list[Extent]]:
    """The slices that a variable's entry lists."""
    reader = MessageReader(BytesSource(message), FORMAT, Limits(names=limits.names // _FIELDS))
    found = []
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
        found.append(extents)
    return found


class SlicedPart(BasePart):
    """The whole of a partitioned variable. Reading rows reads the slices that hold them, and of
    those only these rows.
    """

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
                    for (start, length), dim in zip(one, self.shape, strict=True)
                ]
                for one in slices
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
            raise DecodeError(f"rows {low} to {high} of a tensor of shape {list(self.shape)}")
        for part in self._parts:
            part.check()  # before there is room for all of them: together they are the tensor
        out = np.empty((high - low, *self.shape[1:]) if self.shape else (), self._numpy)
        for part, box in zip(self._parts, self._boxes.tolist(), strict=True):
            start, stop = (max(box[0][0], low), min(sum(box[0]), high)) if box else (0, 0)
            if box and start >= stop:
                continue
            whole = not box or (start, stop) == (box[0][0], sum(box[0]))
            found = part.read(None if whole else (start - box[0][0], stop - box[0][0]))
            where = (
                (
                    slice(start - low, stop - low),
                    *(slice(first, first + size) for first, size in box[1:]),
                )
                if box
                else ()
            )
            out[where] = np.asarray(found)
        return (
            Strings.of(out.reshape(-1).tolist(), out.shape, text=False)
            if self._numpy.kind == "O"
            else out
        )


def sliced_part(
    entry: BundleEntry, slices: list[list[Extent]], pieces: list[tuple[BundleEntry, CheckpointPart]]
) -> SlicedPart:
    """A variable of these slices, once it is sure that they fit it, do not overlap, and leave no
    hole.
    """
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
                f"a slice {extents} of shape {list(piece.shape)} does not fit the variable's shape"
                f" {list(shape)}"
            )
    found = SlicedPart(entry, slices, [part for _, part in pieces])
    _check_cover(shape, found._boxes)
    return found


def _check_cover(shape: tuple[int, ...], boxes: Any) -> None:
    volumes = [math.prod(size for _, size in box) for box in boxes.tolist()]
    if sum(volumes) != math.prod(shape):
        raise DecodeError(
            f"the slices of a variable have {sum(volumes)} elements, and the variable"
            f" {math.prod(shape)}"
        )
    boxes = boxes[[bool(volume) for volume in volumes]] if len(boxes) else boxes
    starts, stops = boxes[:, :, 0], boxes[:, :, 0] + boxes[:, :, 1]
    cut = [axis for axis, dim in enumerate(shape) if (boxes[:, axis, 1] != dim).any()]
    if len(boxes) < 2:
        return
    if len(cut) == 1:
        order = np.argsort(starts[:, cut[0]], kind="stable")
        clash = (starts[order[1:], cut[0]] < stops[order[:-1], cut[0]]).any()
    elif len(boxes) > _PAIRWISE:
        raise LimitError(
            f"a variable in {len(boxes)} slices along several dimensions; the limit is {_PAIRWISE}"
        )
    else:
        clash = any(
            ((starts[i + 1 :] < stops[i]) & (stops[i + 1 :] > starts[i])).all(1).any()
            for i in range(len(boxes) - 1)
        )
    if clash:
        raise DecodeError("the slices of a variable overlap")
