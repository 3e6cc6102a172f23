"""Ranges of elements of a dense tensor, in C order, so that large tensors are read only in part.

1. A tensor of up to 32 MiB is read once and kept (`InMemory`).
2. A larger one that is stored as plain bytes is read at any range of elements (`StoredNumbers`).
3. Any other one (compressed, quantized, Fortran order) is read by whole rows (`ByRows`).
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
"""Tensors of up to this many bytes are read whole and kept."""
BUDGET = 64 << 20
"""The most bytes that are read for one response."""
MOST_READS = 1 << 16
"""The most reads of single elements for one response."""


class DenseValues(Protocol):
    """The elements of a dense tensor by their position in C order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    unit: int
    """The smallest number of elements that one read takes."""

    def run(self, start: int, stop: int) -> Array:
        """Return the elements start to stop as a vector."""


class InMemory:
    """A tensor in memory."""

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
    """An array stored as plain bytes: any range of elements is one read."""

    unit = 1

    def __init__(
        self, part: StoredPart | NumberPart, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._flat = copy.copy(part)
        self._flat.shape = (math.prod(shape),)

    def run(self, start: int, stop: int) -> Array:
        elements: Array = self._flat.read((start, stop))
        return elements


class ByRows:
    """A tensor that is compressed, quantized or in another order, which is read by rows. The rows
    of the last read are kept.
    """

    def __init__(self, tensor: LazyTensor, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype, self._tensor = shape, dtype, tensor
        self.unit = math.prod(shape[1:])
        self._kept: tuple[int, int, Array] = (0, 0, np.zeros(0, dtype))
        if self.unit * dtype.itemsize > BUDGET:
            raise LimitError(
                f"one row has {self.unit * dtype.itemsize:,} bytes, more than {BUDGET:,}, and this"
                " format is read by whole rows",
                hint="convert the file first: tensorwire convert FILE other.safetensors",
            )

    def run(self, start: int, stop: int) -> Array:
        first, last = start // self.unit, -(-stop // self.unit)
        low, high, rows = self._kept
        if not low <= first <= last <= high:
            low, high, rows = first, last, np.asarray(self._tensor[first:last]).reshape(-1)
            self._kept = low, high, rows
        return rows[start - low * self.unit : stop - low * self.unit]


def values_of(tensor: LazyTensor) -> DenseValues:
    """Return the elements of a dense tensor: a small one is read now, a large one on demand."""
    shape = tuple(dim or 0 for dim in tensor.shape)
    dtype = np.dtype(tensor.dtype)
    if math.prod(shape) * dtype.itemsize <= WHOLE:
        return InMemory(np.asarray(tensor.read()))
    part = tensor.part
    if isinstance(part, (StoredPart, NumberPart)):
        return StoredNumbers(part, shape, dtype)
    return ByRows(tensor, shape, dtype)


def grid(values: DenseValues, base: int, outer: Array, inner: Array) -> Array:
    """Return the elements at base + outer[i] + inner[j].

    One read per row i covers all of its elements, unless that exceeds the budget: then each element
    is a read of its own.
    """
    if isinstance(values, InMemory):
        elements: Array = values.flat[base + outer[:, None] + inner]
        return elements
    out = np.empty((len(outer), len(inner)), values.dtype)
    if not out.size:
        return out
    first, span = int(inner[0]), int(inner[-1] - inner[0]) + 1
    picked = inner - first
    if len(outer) * span * values.dtype.itemsize <= BUDGET or values.unit > 1:
        for i, row_offset in enumerate(outer.tolist()):
            start = base + row_offset + first
            out[i] = values.run(start, start + span)[picked]
        return out
    for i, row_offset in enumerate(outer.tolist()):
        for j, step in enumerate(inner.tolist()):
            out[i, j] = values.run(base + row_offset + step, base + row_offset + step + 1)[0]
    return out
