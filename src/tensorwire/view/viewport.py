"""What of a tensor fits a screen: a window along any two dimensions, and a line along one, made of
few elements of it.

A window that is larger than its picture shows one element of each block, or, where the region is
small enough to be read, each block's mean, smallest or largest. The answer says which element each
row and column begins with.
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
"""Rows or columns of one answer."""
TEXTS = 4096
"""Elements up to which each is also sent as the exact text of its value."""
REGION = 8 << 20
"""Elements up to which a region is read whole, to reduce its blocks."""
POINTS = 2048
WAYS = ("sample", "mean", "min", "max")


@dataclass(frozen=True)
class Slice:
    """Which two-dimensional slice: the dimensions that become rows and columns (-1: none), and the
    place in all others.
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
        """With what was not said filled in: the last two dimensions, and the first place of the
        others.
        """
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
                raise SchemaError(f"no dimension {axis} in the shape {list(shape)}")
        if rows == columns and rows >= 0:
            raise SchemaError("rows and columns are two different dimensions")
        if len(at) != rank or any(
            not 0 <= place < max(1, dim) for place, dim in zip(at, shape, strict=False)
        ):
            raise SchemaError(f"the place {list(at)} is not in the shape {list(shape)}")
        return cls(rows, columns, at)


@dataclass(frozen=True)
class Viewport:
    """Part of a slice, down-sampled: value [i, j] is of the block that begins at row r0 + i *
    row_step, column c0 + j * column_step.
    """

    values: Array
    extent: tuple[int, int]
    """Rows and columns that the whole slice has."""
    r0: int
    r1: int
    c0: int
    c1: int
    row_step: int
    column_step: int
    how: str
    texts: list[str] | None

    def packed(self) -> bytes:
        """A line of JSON, then float64, little-endian, row by row."""
        names = ("extent", "r0", "r1", "c0", "c1", "row_step", "column_step", "how", "texts")
        about = {name: getattr(self, name) for name in names} | {"shape": self.values.shape}
        return json.dumps(about).encode() + b"\n" + self.values.astype("<f8").tobytes()


def window(
    values: DenseValues,
    cut: Slice,
    rows: tuple[int, int | None] = (0, None),
    columns: tuple[int, int | None] = (0, None),
    size: tuple[int, int] = (256, 256),
    how: str = "sample",
    part: str = "abs",
) -> Viewport:
    """A window of a slice, of at most `size` rows and columns."""
    if how not in WAYS:
        raise SchemaError(f"no way {how!r} to make a block one number; known: {', '.join(WAYS)}")
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
    at_rows = np.arange(r0, r1, 1 if fine else row_step, dtype=np.int64) * row_stride
    at_columns = np.arange(c0, c1, 1 if fine else column_step, dtype=np.int64) * column_stride
    if row_stride >= column_stride:
        found = grid(values, base, at_rows, at_columns)
    else:
        found = grid(values, base, at_columns, at_rows).T
    plain = numbers(found, part)
    if fine:
        plain = _reduced(plain, row_step, column_step, how)
    texts = (
        [exact(item) for item in found.reshape(-1)] if not fine and found.size <= TEXTS else None
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
    """Fewer rows or columns where each of them is dear: the outer one of the two is a read for each
    step.
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


def _reduced(found: Array, row_step: int, column_step: int, how: str) -> Array:
    """Each block as one number; NaN if there is one in it, so that none is hidden."""
    at_rows, at_columns = (
        np.arange(0, count, step)
        for count, step in zip(found.shape, (row_step, column_step), strict=True)
    )
    if not found.size:
        return found[:: row_step or 1, :: column_step or 1]
    add: Any = {"mean": np.add, "min": np.minimum, "max": np.maximum}[how]
    with np.errstate(all="ignore"):
        out: Array = add.reduceat(add.reduceat(found, at_rows, 0), at_columns, 1)
        if how == "mean":
            counts = [
                np.diff([*at.tolist(), count])
                for at, count in zip((at_rows, at_columns), found.shape, strict=True)
            ]
            out = out / np.outer(counts[0], counts[1])
    return out


@dataclass(frozen=True)
class LineView:
    """The smallest and the largest of each of up to 2,048 stretches."""

    start: int
    stop: int
    step: int
    low: Array
    high: Array
    complete: bool
    """Whether every element was looked at; else a few of each stretch were."""

    def json(self) -> dict[str, Any]:
        low, high = (
            [None if not math.isfinite(item) else item for item in one.tolist()]
            for one in (self.low, self.high)
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
    """A vector as a line. NaN and infinity leave a hole only where nothing else is."""
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
        found = numbers(values.run(begin, end), part)
        found[~np.isfinite(found)] = np.nan
        at = np.arange(0, len(found), step)
        low[first : first + len(at)] = np.fmin.reduceat(found, at)
        high[first : first + len(at)] = np.fmax.reduceat(found, at)
    return LineView(start, stop, step, low, high, complete)
