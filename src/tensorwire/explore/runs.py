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


class DenseValues(Protocol):
    """Numbers by their place in C order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
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

    def __init__(
        self, part: StoredPart | NumberPart, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
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

    def __init__(self, tensor: LazyTensor, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
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
