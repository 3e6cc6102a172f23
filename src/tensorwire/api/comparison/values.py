"""Comparison of two tensors: how many elements differ, and by how much. Dense tensors are read and
compared in blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...codecs.array_part import BitsPart, StoredPart
from ...core import dtypes
from ...core.tensors import Array, Ragged, Sparse, Strings
from ..equality import equal
from ..lazy import LazyTensor
from .result import TensorDifference

BLOCK = 1 << 20
"""The number of elements that are compared at a time: 8 MiB as float64."""


class Tolerance(NamedTuple):
    """The tolerance of a comparison: |a - b| <= atol + rtol * max(|a|, |b|)."""

    atol: float
    rtol: float


class Tally:
    """The sum of the differences in all blocks of one tensor."""

    def __init__(self, tolerance: Tolerance | None) -> None:
        self._tolerance = tolerance
        self.elements = self.unequal = self.beyond = self.nans = 0
        self.max_abs = self.max_rel = 0.0
        self.exact = True

    def add(self, a: Array, b: Array) -> None:
        """Compares two arrays with the same number of elements."""
        self.elements += a.size
        if a.dtype == b.dtype and np.array_equal(_bytes(a), _bytes(b)):
            return
        self.exact = False
        left, right = _wide(a), _wide(b)
        with np.errstate(all="ignore"):
            if left.dtype.kind in "iu" and right.dtype.kind in "iu":
                self._integers(left, right)
            else:
                self._floats(left, right)

    def _integers(self, a: Array, b: Array) -> None:
        differ = a != b
        count = int(differ.sum())
        if not count:
            return
        a, b = a[differ], b[differ]
        self._differing(
            distance(a, b),
            np.maximum(np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))),
            count,
        )

    def _floats(self, a: Array, b: Array) -> None:
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        only = int((nan_a != nan_b).sum())
        differ = (a != b) & ~nan_a & ~nan_b
        count = int(differ.sum())
        self.nans += only
        self.unequal += only
        self.beyond += only
        if count:
            a, b = a[differ], b[differ]
            self._differing(np.abs(a - b), np.maximum(np.abs(a), np.abs(b)), count)

    def _differing(self, gap: Array, size: Array, count: int) -> None:
        """Counts elements that differ, by their distance and the larger absolute value."""
        self.unequal += count
        self.max_abs = max(self.max_abs, float(gap.max()))
        self.max_rel = max(self.max_rel, float(np.where(np.isinf(gap), 1.0, gap / size).max()))
        if self._tolerance is not None:
            self.beyond += int(
                (
                    gap
                    > self._tolerance.atol
                    + self._tolerance.rtol * np.where(np.isinf(size), 0.0, size)
                ).sum()
            )


def distance(a: Array, b: Array) -> Array:
    """|a - b| of 64-bit integers as float64. The difference is exact before it is rounded: it is
    computed modulo 2**64, and may be larger than the largest int64.
    """
    left, right = a.astype(np.uint64), b.astype(np.uint64)
    return np.where(a > b, left - right, right - left).astype(np.float64)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _wide(array: Array) -> Array:
    """The array in a dtype that NumPy computes in, and that holds every value."""
    row = dtypes.of(array.dtype)
    if row.numpy.kind == "c":
        return array.astype(np.complex128)
    if "float" in row.name:
        return array.astype(np.float64)
    return array.astype(np.uint64 if row.name.startswith("uint") else np.int64)


def compare(a: LazyTensor, b: LazyTensor, tolerance: Tolerance | None) -> TensorDifference:
    """Compares two tensors. Elements are compared only if kind and shape are equal."""
    tally = Tally(tolerance)
    problems: list[str] = []
    if a.kind != b.kind:
        problems.append("kind")
    if str(a.dtype) != str(b.dtype) and (tolerance is None or not _numbers(a, b)):
        problems.append("dtype")
    if a.shape != b.shape:
        problems.append("shape")
    compared = False
    if a.kind == b.kind and a.shape == b.shape and _numbers(a, b) is not None:
        compared = _compare(a, b, tally, problems)
    if compared and (tally.beyond if tolerance is not None else tally.unequal):
        problems.append("values")
    elif compared and tolerance is None and not tally.exact and "dtype" not in problems:
        problems.append("bits")
    numbers = compared and bool(_numbers(a, b))
    return TensorDifference(
        a.name,
        b.name,
        problems,
        (a.kind, b.kind),
        (str(a.dtype), str(b.dtype)),
        (a.shape, b.shape),
        tally.elements if compared else None,
        tally.unequal if compared else None,
        tally.nans if numbers else None,
        tally.max_abs if numbers else None,
        tally.max_rel if numbers else None,
        compared and tally.exact and a.kind == b.kind,
    )


def _numbers(a: LazyTensor, b: LazyTensor) -> bool | None:
    """Whether both tensors hold numbers; None if only one does."""
    strings = [str(tensor.dtype) in ("text", "bytes") for tensor in (a, b)]
    return None if strings[0] != strings[1] else not strings[0]


def _compare(a: LazyTensor, b: LazyTensor, tally: Tally, problems: list[str]) -> bool:
    """Counts the differences; returns False if the elements have no counterparts."""
    if a.kind == "dense":
        for left, right in _pairs(a, b):
            tally.add(left, right)
        return True
    left, right = a.read(), b.read()
    if isinstance(left, Sparse):
        _sparse(left, right, tally)
    elif isinstance(left, Ragged):
        if not all(map(np.array_equal, left.row_splits, right.row_splits)):
            problems.append("row lengths")
            return False
        if not equal(left.uniform, right.uniform) or any(
            x.dtype != y.dtype for x, y in zip(left.row_splits, right.row_splits, strict=True)
        ):
            tally.exact = False
        _values(left.values, right.values, tally)
    else:
        _values(left, right, tally)
    return True


def _values(a: Any, b: Any, tally: Tally) -> None:
    if isinstance(a, Strings):
        _strings(a, b, tally)
    else:
        tally.add(a, b)


def _pairs(a: LazyTensor, b: LazyTensor) -> Iterator[tuple[Array, Array]]:
    """Yields the blocks of two dense tensors of one shape. A tensor with a checksum is read whole,
    because only then the checksum can be verified.
    """
    count = a.shape[0] if a.shape else None
    left, right = (tensor if _by_rows(tensor) else np.asarray(tensor.read()) for tensor in (a, b))
    if not count:
        yield np.asarray(left[...]), np.asarray(right[...])
        return
    inner = math.prod(dim or 0 for dim in a.shape[1:])
    rows = max(1, BLOCK // max(1, inner))
    for start in range(0, count, rows):
        yield np.asarray(left[start : start + rows]), np.asarray(right[start : start + rows])


def _by_rows(tensor: LazyTensor) -> bool:
    part = tensor.part
    return isinstance(part, (StoredPart, BitsPart)) and not part.checksum


def _strings(a: Strings, b: Strings, tally: Tally) -> None:
    tally.elements += a.size
    if equal(a, b):
        return
    tally.exact = False
    # Only strings of the same length can be equal, so only these are read.
    sizes = np.diff(a.offsets) == np.diff(b.offsets)
    tally.unequal += int((~sizes).sum())
    for i in np.flatnonzero(sizes).tolist():
        if _string(a, i) != _string(b, i):
            tally.unequal += 1
    tally.beyond = tally.unequal


def _string(strings: Strings, i: int) -> bytes:
    return bytes(strings.data[strings.offsets[i] : strings.offsets[i + 1]])


def _sparse(a: Sparse, b: Sparse, tally: Tally) -> None:
    """Compares sparse tensors by index. An element that only one tensor has is zero in the other.
    The order of the elements matters only for bitwise equality.
    """
    exact = equal(a, b)
    (indices_a, left), (indices_b, right) = _sorted(a), _sorted(b)
    if np.array_equal(indices_a, indices_b):
        _values(left, right, tally)
    elif (
        isinstance(left, Strings)
        or isinstance(right, Strings)
        or _has_duplicates(indices_a)
        or _has_duplicates(indices_b)
    ):
        # Strings have no zero, and elements with the same index cannot be matched: only their
        # number is compared.
        tally.elements += max(len(left), len(right))
        tally.unequal = tally.beyond = max(len(left), len(right))
    else:
        union, positions = np.unique(
            np.concatenate([indices_a, indices_b]), axis=0, return_inverse=True
        )
        full = []
        for position, values in zip(
            np.split(positions.reshape(-1), [len(indices_a)]), (left, right), strict=True
        ):
            elements = np.zeros((len(union), *values.shape[1:]), values.dtype)
            elements[position] = values
            full.append(elements)
        tally.add(*full)
    tally.exact = exact


def _sorted(sparse: Sparse) -> tuple[Array, Any]:
    """The indices and values of a sparse tensor, sorted by index."""
    order = (
        np.lexsort(sparse.indices.T[::-1])
        if sparse.indices.shape[1]
        else np.arange(len(sparse.indices))
    )
    return sparse.indices[order], sparse.values[order]


def _has_duplicates(indices: Array) -> bool:
    """Whether an index appears twice in sorted indices."""
    return bool((indices[1:] == indices[:-1]).all(axis=1).any())
