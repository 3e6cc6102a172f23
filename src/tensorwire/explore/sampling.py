"""Samples of tensors: as much as is shown, and no more.

1. A tensor within the budget is read whole. Of a larger one evenly spaced blocks of rows are read.
2. If a single row exceeds the budget, the file is memory-mapped and only single elements are
   touched (`thin`).
3. Statistics of a whole large tensor are computed block by block.
"""

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
"""The most bytes that are read of one tensor for a sample."""
_SPARSE = 64 << 20
"""The same for a sparse tensor, whose pattern needs all indices."""
EXACT = 16 << 20
"""Tensors of up to this many elements are summarized exactly."""
PIECES, PIECE = 64, 1 << 16
"""The sample of a larger tensor: the number of blocks, and the elements of each."""
BINS = 64
_RUNS = 64
"""The number of blocks of rows in a sample."""
_THIN = 1 << 14
"""The most elements that are touched in a memory-mapped row."""


class SampledFile:
    """An open file, and a memory mapping of it for tensors with very long rows.

    A process that reads a mapping is killed (SIGBUS) if another process truncates the file, so the
    mapping is made only when it is needed.
    """

    def __init__(self, where: Any, format: str | None = None, limits: Limits | None = None) -> None:
        self._where, self._format, self._limits = where, format, limits
        self.file = lazy.open_file(where, format, limits=limits)
        self._mapped: lazy.File | None = None

    def wide(self, name: str) -> lazy.LazyTensor:
        """Return a tensor of the memory-mapped file."""
        if self._mapped is None:
            self._mapped = lazy.open_file(
                self._where, self._format, mmap=isinstance(self._where, str), limits=self._limits
            )
            mapping = getattr(getattr(self._mapped.source, "view", None), "obj", None)
            # Without read-ahead the kernel loads one page per element instead of sixteen.
            if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
                mapping.madvise(mmap.MADV_RANDOM)
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
    """Return the size of a dense tensor in memory, in bytes."""
    return math.prod(dim or 0 for dim in tensor.shape) * int(tensor.dtype.itemsize)


def dense(opened: SampledFile, name: str) -> tuple[Array, bool]:
    """Return (a dense tensor or evenly spaced rows of it, whether it is all of it)."""
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
    """Return evenly spaced elements of a mapped array along every axis; only their pages are read.

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
    sample: Array = array[keys]
    return sample


def corners(opened: SampledFile, name: str, edge: int) -> Array:
    """Return the first and last rows of a large tensor, and of each the first and last elements, so
    that NumPy prints the same corners for both.
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
    """Return a slice of a tensor, through the mapping if it takes few elements of many rows."""
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
    """Return the statistics of all elements, read a few megabytes at a time."""
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
    """Statistics and histogram of a tensor, or of a sample of it."""

    size: int
    """The number of elements of the tensor."""
    statistics: Statistics
    histogram: Histogram | None
    """None if no element is finite."""


def summary(values: DenseValues, exact: bool = False, part: str = "abs") -> SampleSummary:
    """Return statistics and histogram; a large tensor is sampled unless `exact`.

    The blocks are read twice, since the histogram needs the minimum and the maximum.
    """
    size = math.prod(values.shape)
    whole = exact or size <= EXACT
    statistics = of_blocks(_blocks(values, whole), part, deviation=True)
    if statistics.least is None or statistics.largest is None:
        return SampleSummary(size, statistics, None)
    blocks = _blocks(values, whole)
    bars = histogram_of_blocks(blocks, statistics.least, statistics.largest, BINS, part)
    return SampleSummary(size, statistics, bars)


def _blocks(values: DenseValues, whole: bool) -> Iterator[Array]:
    """Yield all elements in blocks, or evenly spaced blocks as a sample."""
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
    """Return (a string or ragged tensor or its first rows, whether it is all of it)."""
    rows = tensor.shape[0] if tensor.shape else None
    if whole or not rows or tensor.nbytes <= BUDGET:
        return tensor.read(), True
    wanted = max(min(least, rows), BUDGET * rows // tensor.nbytes)
    return tensor[: min(wanted, rows)], False


def sparse(tensor: lazy.LazyTensor, whole: bool) -> tuple[Sparse, bool]:
    """Return (a sparse tensor or some of its rows at their positions, whether it is all of it)."""
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
    # Strings are not concatenated: then both values and indices are those of the first rows.
    if len(values) != len(indices):
        indices = parts[0].indices
    return Sparse(indices, values, tensor.shape), False


def _moved(indices: Array, rows: int) -> Array:
    moved = indices.copy()
    moved[:, 0] += rows
    return moved
