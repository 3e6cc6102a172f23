"""Downsampled windows of tensors along any two dimensions, and line plots along one.

1. A window that is larger than its picture is divided into blocks. Each cell shows one element of
   its block or, if the region is small enough to be read whole, the mean, min or max of it.
2. The size of the picture is reduced until the reads fit the budget (`_affordable`). The larger of
   the two strides is the outer loop: each of its steps is one read.
3. The response contains the start and step of rows and columns, so that the page can label them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import SchemaError
from ..core.tensors import Array
from ..explore.runs import BUDGET, MOST_READS, DenseValues, grid
from ..explore.statistics import numbers
from ..explore.text import exact

MOST = 512
"""The most rows or columns of one response."""
TEXTS = 4096
"""Windows of up to this many elements are sent with the exact text of each."""
REGION = 8 << 20
"""Regions of up to this many elements are read whole, for the mean, min or max of each block."""
POINTS = 2048
"""The most points of a line."""
WAYS = ("sample", "mean", "min", "max")
"""The reductions of a block to one number."""


@dataclass(frozen=True)
class Slice:
    """A two-dimensional slice: the axes of rows and columns (-1: none), and the index along all
    other axes.
    """

    rows: int
    columns: int
    at: tuple[int, ...]

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        rows: int | None,
        columns: int | None,
        at: tuple[int, ...] | None,
    ) -> Slice:
        """Return a checked slice; the defaults are the last two axes, and index 0 elsewhere."""
        rank = len(shape)
        columns = rank - 1 if columns is None else columns
        rows = (
            next((axis for axis in range(rank - 1, -1, -1) if axis != columns), -1)
            if rows is None
            else rows
        )
        at = tuple([0] * rank) if at is None else at
        for axis in (rows, columns):
            if not -1 <= axis < rank:
                raise SchemaError(f"axis {axis} is out of bounds for shape {list(shape)}")
        if rows == columns and rows >= 0:
            raise SchemaError("rows and columns must be different axes")
        if len(at) != rank or any(
            not 0 <= place < max(1, dim) for place, dim in zip(at, shape, strict=False)
        ):
            raise SchemaError(f"index {list(at)} is out of bounds for shape {list(shape)}")
        return cls(rows, columns, at)


@dataclass(frozen=True)
class Viewport:
    """A downsampled window: value [i, j] belongs to the block that begins at row r0 + i * row_step,
    column c0 + j * column_step.
    """

    values: Array
    extent: tuple[int, int]
    """The number of rows and columns of the whole slice."""
    r0: int
    r1: int
    c0: int
    c1: int
    row_step: int
    column_step: int
    how: str
    texts: list[str] | None

    def packed(self) -> bytes:
        """Return the bytes of the response: a line of JSON, then little-endian float64 by rows."""
        names = ("extent", "r0", "r1", "c0", "c1", "row_step", "column_step", "how", "texts")
        head = {name: getattr(self, name) for name in names} | {"shape": self.values.shape}
        return json.dumps(head).encode() + b"\n" + self.values.astype("<f8").tobytes()


def window(
    values: DenseValues,
    cut: Slice,
    rows: tuple[int, int | None] = (0, None),
    columns: tuple[int, int | None] = (0, None),
    size: tuple[int, int] = (256, 256),
    how: str = "sample",
    part: str = "abs",
) -> Viewport:
    """Return a window of a slice with at most `size` rows and columns."""
    if how not in WAYS:
        raise SchemaError(f"unknown reduction {how!r}; known: {', '.join(WAYS)}")
    shape = values.shape
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    base = sum(
        place * stride
        for axis, (place, stride) in enumerate(zip(cut.at, strides, strict=True))
        if axis not in (cut.rows, cut.columns)
    )
    extent = tuple(shape[axis] if axis >= 0 else 1 for axis in (cut.rows, cut.columns))
    if math.prod(shape) == 0:
        extent = (0, 0)
    (r0, r1), (c0, c1) = (
        _clipped(span, most) for span, most in zip((rows, columns), extent, strict=True)
    )
    height, width = (max(1, min(MOST, most)) for most in size)
    row_stride, column_stride = (
        strides[axis] if axis >= 0 else 0 for axis in (cut.rows, cut.columns)
    )
    if how != "sample" and (r1 - r0) * (c1 - c0) > REGION:
        how = "sample"
    height, width = _affordable(values, r1 - r0, c1 - c0, row_stride, column_stride, height, width)
    row_step, column_step = (
        max(1, -(-(high - low) // most)) for low, high, most in ((r0, r1, height), (c0, c1, width))
    )
    if row_step == column_step == 1:
        how = "sample"
    fine = how != "sample"
    row_offsets = np.arange(r0, r1, 1 if fine else row_step, dtype=np.int64) * row_stride
    column_offsets = np.arange(c0, c1, 1 if fine else column_step, dtype=np.int64) * column_stride
    if row_stride >= column_stride:
        elements = grid(values, base, row_offsets, column_offsets)
    else:
        elements = grid(values, base, column_offsets, row_offsets).T
    plain = numbers(elements, part)
    if fine:
        plain = _reduced(plain, row_step, column_step, how)
    texts = (
        [exact(item) for item in elements.reshape(-1)]
        if not fine and elements.size <= TEXTS
        else None
    )
    return Viewport(
        plain, (extent[0], extent[1]), r0, r1, c0, c1, row_step, column_step, how, texts
    )


def _clipped(span: tuple[int, int | None], most: int) -> tuple[int, int]:
    low = min(max(0, span[0]), most)
    return low, most if span[1] is None else min(max(low, span[1]), most)


def _affordable(
    values: DenseValues,
    rows: int,
    columns: int,
    row_stride: int,
    column_stride: int,
    height: int,
    width: int,
) -> tuple[int, int]:
    """Return a height and width for which the reads fit the budget: each step of the axis with the
    larger stride is one read.
    """
    outer, inner, lines, cells = (
        (rows, columns, height, width)
        if row_stride >= column_stride
        else (columns, rows, width, height)
    )
    stride = min(row_stride, column_stride) or 1
    lines, cells = min(lines, max(1, outer)), min(cells, max(1, inner))
    size = values.dtype.itemsize
    span = inner * stride * size if values.unit == 1 else max(inner * stride, values.unit) * size
    if lines * span > BUDGET:
        if values.unit > 1:
            lines = max(1, BUDGET // span)
        elif lines * cells > MOST_READS:
            lines = max(1, MOST_READS // cells)
    return (lines, cells) if row_stride >= column_stride else (cells, lines)


def _reduced(elements: Array, row_step: int, column_step: int, how: str) -> Array:
    """Reduce each block to one number, which is NaN if the block contains NaN."""
    row_starts, column_starts = (
        np.arange(0, count, step)
        for count, step in zip(elements.shape, (row_step, column_step), strict=True)
    )
    if not elements.size:
        return elements[:: row_step or 1, :: column_step or 1]
    add: Any = {"mean": np.add, "min": np.minimum, "max": np.maximum}[how]
    with np.errstate(all="ignore"):
        out: Array = add.reduceat(add.reduceat(elements, row_starts, 0), column_starts, 1)
        if how == "mean":
            counts = [
                np.diff([*starts.tolist(), count])
                for starts, count in zip((row_starts, column_starts), elements.shape, strict=True)
            ]
            out = out / np.outer(counts[0], counts[1])
    return out


@dataclass(frozen=True)
class LineView:
    """A line plot: the min and max of each of up to 2,048 segments."""

    start: int
    stop: int
    step: int
    low: Array
    high: Array
    complete: bool
    """Whether all elements were read; otherwise only the first ones of each segment."""

    def json(self) -> dict[str, Any]:
        low, high = (
            [None if not math.isfinite(item) else item for item in ends.tolist()]
            for ends in (self.low, self.high)
        )
        return {
            "start": self.start,
            "stop": self.stop,
            "step": self.step,
            "low": low,
            "high": high,
            "complete": self.complete,
        }


def line(
    values: DenseValues,
    start: int = 0,
    stop: int | None = None,
    points: int = 1024,
    part: str = "abs",
) -> LineView:
    """Return a vector as a line. A segment is missing only if all of its elements are NaN or
    infinite.
    """
    total = math.prod(values.shape)
    start, stop = _clipped((start, stop), total)
    step = max(1, -(-(stop - start) // max(1, min(POINTS, points))))
    count = -(-(stop - start) // step)
    complete = (stop - start) * values.dtype.itemsize <= BUDGET
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    look = (
        step
        if complete
        else max(1, min(step, BUDGET // values.dtype.itemsize // max(1, count) // 4))
    )
    at_once = max(1, (1 << 20) // step) if complete else 1
    for first in range(0, count, at_once):
        begin = start + first * step
        end = min(stop, begin + (at_once * step if complete else look))
        elements = numbers(values.run(begin, end), part)
        elements[~np.isfinite(elements)] = np.nan
        starts = np.arange(0, len(elements), step)
        low[first : first + len(starts)] = np.fmin.reduceat(elements, starts)
        high[first : first + len(starts)] = np.fmax.reduceat(elements, starts)
    return LineView(start, stop, step, low, high, complete)
