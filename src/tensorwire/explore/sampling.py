"""Reading as much of a tensor as is shown, and no more."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .._limits import Limits
from ..api import lazy
from ..core.tensors import Array, Sparse
from .runs import DenseValues
from .statistics import BLOCK, Histogram, Statistics, histogram_of_blocks, of_blocks

BUDGET = 8 << 20
"""Bytes that are read of one tensor, unless all of it is asked for."""
_SPARSE = 64 << 20
"""The same for sparse ones, of which only all the indices together show the pattern."""
EXACT = 16 << 20
"""Elements up to which `summary` counts all without being asked."""
PIECES, PIECE = 64, 1 << 16
"""Its sample of more: so many blocks of so many elements."""
BINS = 64
_RUNS = 64
"""Places of a tensor that are looked at."""
_THIN = 1 << 14
"""Elements of a row that is too long to be read."""


class SampledFile:
    """An open file, and the same file mapped, for tensors of which a single row is more than is to
    be read.

    A mapping dies with its process if somebody cuts the file meanwhile, so it is made only when
    there is no other way.
    """

    def __init__(self, where: Any, format: str | None = None, limits: Limits | None = None) -> None:
        self._where, self._format, self._limits = where, format, limits
        self.file = lazy.open_file(where, format, limits=limits)
        self._mapped: lazy.File | None = None

    def wide(self, name: str) -> lazy.LazyTensor:
        if self._mapped is None:
            self._mapped = lazy.open_file(
                self._where, self._format, mmap=isinstance(self._where, str), limits=self._limits
            )
            mapping = getattr(getattr(self._mapped.source, "view", None), "obj", None)
            if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
                mapping.madvise(mmap.MADV_RANDOM)  # a page for each element, not sixteen
        return self._mapped[name]

    def close(self) -> None:
        self.file.close()
        if self._mapped is not None:
            self._mapped.close()

    def __enter__(self) -> SampledFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def nbytes(tensor: lazy.LazyTensor) -> int:
    """Bytes of a dense tensor in memory."""
    return math.prod(dim or 0 for dim in tensor.shape) * int(tensor.dtype.itemsize)


def dense(opened: SampledFile, name: str) -> tuple[Array, bool]:
    """(a dense tensor, or evenly spread rows of it; whether that is all)"""
    tensor = opened.file[name]
    size = nbytes(tensor)
    if size <= BUDGET:
        return tensor.read(), True
    rows = tensor.shape[0] or 0
    row = size // rows
    if row > BUDGET // 2:
        return thin(opened.wide(name)[: min(rows, 64)]), False
    count = BUDGET // max(row, 1)
    runs = min(_RUNS, count)
    length = max(1, count // runs)
    starts = [i * (rows - length) // max(runs - 1, 1) for i in range(runs)]
    return np.concatenate([tensor[start : start + length] for start in starts]), False


def thin(array: Array) -> Array:
    """Some elements of a mapped array, evenly spread along every dimension: only their pages are
    touched.

    >>> thin(np.zeros((2, 100_000, 30))).shape
    (2, 273, 30)
    """
    longest = sorted(range(array.ndim), key=lambda axis: -array.shape[axis])
    shape = list(array.shape)
    for axis in longest:
        others = int(np.prod([dim for i, dim in enumerate(shape) if i != axis], dtype=np.float64))
        shape[axis] = min(
            shape[axis],
            max(_THIN // max(others, 1), min(shape[axis], 2 if axis != longest[-1] else 1)),
        )
    keys = np.ix_(
        *(np.arange(kept) * dim // kept for kept, dim in zip(shape, array.shape, strict=True))
    )
    found: Array = array[keys]
    return found


def corners(opened: SampledFile, name: str, edge: int) -> Array:
    """The first and last rows of a large tensor, and of each the first and last items: what is left
    has its corners where it had them.
    """
    tensor = opened.file[name]
    rows = tensor.shape[0] or 0
    if nbytes(tensor) // max(rows, 1) * (2 * edge + 1) > BUDGET:
        tensor = opened.wide(name)
    if rows > 2 * edge + 1:
        pieces = [_narrow(tensor[: edge + 1], edge), _narrow(tensor[rows - edge :], edge)]
        return np.concatenate(pieces)
    return _narrow(tensor[:rows], edge)


def _narrow(array: Array, edge: int) -> Array:
    for axis in range(1, array.ndim):
        length = array.shape[axis]
        if length > 2 * edge + 1:
            array = array.take([*range(edge + 1), *range(length - edge, length)], axis)
    return array


def sliced(opened: SampledFile, name: str, key: tuple[Any, ...]) -> Any:
    """What a key asks for; through the mapping if it asks for a little of many rows."""
    tensor = opened.file[name]
    if not key:
        return tensor.read()
    if tensor.kind == "dense" and nbytes(tensor) > BUDGET:
        rows = tensor.shape[0] or 1
        first = key[0]
        wanted = len(range(rows)[first]) if isinstance(first, slice) else 1
        if wanted * (nbytes(tensor) // rows) > BUDGET:
            tensor = opened.wide(name)
    return tensor[key if len(key) > 1 else key[0]]


def all_statistics(opened: SampledFile, name: str) -> Statistics:
    """Of every element, some megabytes at a time."""
    return of_blocks(_chunks(opened.file[name]))


def _chunks(tensor: lazy.LazyTensor) -> Iterator[Array]:
    size = nbytes(tensor)
    if size <= BUDGET or not tensor.shape:
        yield np.asarray(tensor.read())
        return
    rows = tensor.shape[0] or 0
    step = max(1, BUDGET * rows // size)
    for start in range(0, rows, step):
        yield tensor[start : min(rows, start + step)]


class SampleSummary(NamedTuple):
    """What the numbers of a tensor, or of a sample of it, amount to."""

    size: int
    """Elements of the tensor."""
    statistics: Statistics
    histogram: Histogram | None
    """None if no number is finite."""


def summary(values: DenseValues, exact: bool = False, part: str = "abs") -> SampleSummary:
    """Of all elements, or of a sample of a large tensor unless `exact`. A large one is read twice,
    a block at a time.
    """
    size = math.prod(values.shape)
    whole = exact or size <= EXACT
    found = of_blocks(_blocks(values, whole), part, deviation=True)
    if found.least is None or found.largest is None:
        return SampleSummary(size, found, None)
    blocks = _blocks(values, whole)
    bars = histogram_of_blocks(blocks, found.least, found.largest, BINS, part)
    return SampleSummary(size, found, bars)


def _blocks(values: DenseValues, whole: bool) -> Iterator[Array]:
    """The numbers block by block, or blocks that are spread evenly."""
    size = math.prod(values.shape)
    if whole:
        for start in range(0, size, BLOCK):
            yield values.run(start, min(size, start + BLOCK))
        return
    pieces = (
        PIECES
        if values.unit == 1
        else max(1, min(PIECES, (PIECES * PIECE) // max(PIECE, values.unit)))
    )
    for i in range(pieces):
        start = (size - PIECE) * i // max(1, pieces - 1)
        yield values.run(start, start + PIECE)


def rows_of(tensor: lazy.LazyTensor, least: int, whole: bool) -> tuple[Any, bool]:
    """(strings or a ragged tensor, or its first rows; whether that is all)"""
    rows = tensor.shape[0] if tensor.shape else None
    if whole or not rows or tensor.nbytes <= BUDGET:
        return tensor.read(), True
    wanted = max(min(least, rows), BUDGET * rows // tensor.nbytes)
    return tensor[: min(wanted, rows)], False


def sparse(tensor: lazy.LazyTensor, whole: bool) -> tuple[Sparse, bool]:
    """(a sparse tensor, or some of its rows, where they were; whether that is all)"""
    rows = tensor.shape[0] if tensor.shape else None
    if whole or not rows or tensor.nbytes <= _SPARSE or rows < 8:
        return tensor.read(), True
    length = max(1, rows * (_SPARSE // 4) // tensor.nbytes)
    starts = [i * (rows - length) // 3 for i in range(4)]
    parts = [tensor[start : start + length] for start in starts]
    indices = np.concatenate(
        [_moved(part.indices, start) for start, part in zip(starts, parts, strict=True)]
    )
    first = parts[0].values
    values = (
        first
        if not isinstance(first, np.ndarray)
        else np.concatenate([part.values for part in parts])
    )
    if len(values) != len(indices):  # strings: the first rows' alone
        indices = parts[0].indices
    return Sparse(indices, values, tensor.shape), False


def _moved(indices: Array, rows: int) -> Array:
    moved = indices.copy()
    moved[:, 0] += rows
    return moved
