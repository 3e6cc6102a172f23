"""Numbers of a dense tensor in runs, in the order in which they lie: a tensor of any size can be
looked at, and little of it is read.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Protocol

import numpy as np

from .._errors import LimitError
from ..api.lazy import LazyTensor
from ..codecs.array_part import StoredPart
from ..codecs.checkpoint.parts import NumberPart
from ..core.tensors import Array

WHOLE = 32 << 20
"""Bytes up to which a tensor is read whole, and kept."""
BUDGET = 64 << 20
"""Bytes that one answer may read."""
MOST_READS = 1 << 16
"""Reads of single elements that one answer may take."""
PARTS = ("abs", "real", "imag")
"""What is shown of complex numbers."""


class DenseValues(Protocol):
    """Numbers by their place in C order."""

    shape: tuple[int, ...]
    dtype: Any
    unit: int
    """Elements that are read at least, whatever is asked for."""

    def run(self, start: int, stop: int) -> Array:
        """The elements from, to, as a vector."""


class InMemory:
    """A tensor that was read."""

    unit = 1

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype, self.flat = (
            array.shape,
            array.dtype,
            np.ascontiguousarray(array).reshape(-1),
        )

    def run(self, start: int, stop: int) -> Array:
        return self.flat[start:stop]


class StoredNumbers:
    """An array that lies in its file as it is in memory: any run of it is one read."""

    unit = 1

    def __init__(self, part: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype
        self._flat = copy.copy(part)
        self._flat.shape = (math.prod(shape),)

    def run(self, start: int, stop: int) -> Array:
        found: Array = self._flat.read((start, stop))
        return found


class ByRows:
    """A tensor that is compressed, quantized or in another order, of which the library reads rows.
    The last rows are kept.
    """

    def __init__(self, tensor: LazyTensor, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype, self._tensor = shape, dtype, tensor
        self.unit = math.prod(shape[1:])
        self._kept: tuple[int, int, Array] = (0, 0, np.zeros(0, dtype))
        if self.unit * dtype.itemsize > BUDGET:
            raise LimitError(
                f"one row of it has {self.unit * dtype.itemsize:,} bytes, and this format is read"
                " by rows; tensorwire convert FILE other.safetensors makes a file that is read"
                " anywhere"
            )

    def run(self, start: int, stop: int) -> Array:
        first, last = start // self.unit, -(-stop // self.unit)
        low, high, rows = self._kept
        if not low <= first <= last <= high:
            low, high, rows = first, last, np.asarray(self._tensor[first:last]).reshape(-1)
            self._kept = low, high, rows
        return rows[start - low * self.unit : stop - low * self.unit]


class Difference:
    """One tensor minus another, as float64; NaN where both are NaN is no difference."""

    def __init__(self, a: DenseValues, b: DenseValues) -> None:
        self.shape, self.dtype, self.unit = a.shape, np.dtype(np.float64), max(a.unit, b.unit)
        self._a, self._b = a, b

    def run(self, start: int, stop: int) -> Array:
        a, b = self._a.run(start, stop), self._b.run(start, stop)
        with np.errstate(all="ignore"):
            if "c" in (a.dtype.kind, b.dtype.kind):
                gap: Array = np.abs(a.astype(np.complex128) - b.astype(np.complex128))
                same = a == b
            elif a.dtype == b.dtype and a.dtype.kind in "iu" and a.dtype.itemsize == 8:
                # as floats, numbers past 2**53 would look the same
                return np.where(a >= b, 1.0, -1.0) * _apart(a, b)
            else:
                left, right = numbers(a), numbers(b)
                gap, same = left - right, left == right  # infinity minus infinity is NaN
        gap[same | (np.isnan(numbers(a)) & np.isnan(numbers(b)))] = 0.0
        return gap


def _apart(a: Array, b: Array) -> Array:
    """|a - b| of 64-bit integers, the difference taken before it is rounded."""
    low, high = np.where(a >= b, b, a), np.where(a >= b, a, b)
    apart: Array = (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    return apart


def values_of(tensor: LazyTensor) -> DenseValues:
    """The numbers of a dense tensor, read now if they are few, and when they are asked for if they
    are many.
    """
    shape = tuple(dim or 0 for dim in tensor.shape)
    dtype = np.dtype(tensor.dtype)
    if math.prod(shape) * dtype.itemsize <= WHOLE:
        return InMemory(np.asarray(tensor.read()))
    part = tensor.part
    if isinstance(part, (StoredPart, NumberPart)):
        return StoredNumbers(part, shape, dtype)
    return ByRows(tensor, shape, dtype)


def numbers(array: Array, part: str = "abs") -> Array:
    """Any dtype as float64, which is what is drawn. The halves of complex numbers, or their size."""
    if array.dtype.kind == "c":
        array = np.abs(array) if part == "abs" else array.real if part == "real" else array.imag
    with np.errstate(all="ignore"):
        out: Array = array.astype(np.float64)
    return out


def grid(values: DenseValues, base: int, outer: Array, inner: Array) -> Array:
    """The elements at base + outer[i] + inner[j]. Where whole runs would be too much, each element
    is a read of its own.
    """
    if isinstance(values, InMemory):
        found: Array = values.flat[base + outer[:, None] + inner]
        return found
    out = np.empty((len(outer), len(inner)), values.dtype)
    if not out.size:
        return out
    first, span = int(inner[0]), int(inner[-1] - inner[0]) + 1
    picked = inner - first
    if len(outer) * span * values.dtype.itemsize <= BUDGET or values.unit > 1:
        for i, at in enumerate(outer.tolist()):
            start = base + at + first
            out[i] = values.run(start, start + span)[picked]
        return out
    for i, at in enumerate(outer.tolist()):
        for j, step in enumerate(inner.tolist()):
            out[i, j] = values.run(base + at + step, base + at + step + 1)[0]
    return out
