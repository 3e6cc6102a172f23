"""Validation of the arrays that tensors are made of. All invariants are checked here.

The same check serves a value that the caller created (EncodeError) and one that was decoded
(DecodeError): `blame` is the class of the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._errors import DecodeError, EncodeError

Array = np.ndarray[Any, Any]
Blame = type[EncodeError] | type[DecodeError]

NUMPY_RANK = 64 if int(np.__version__.partition(".")[0]) >= 2 else 32
INT64_MAX = (1 << 63) - 1


def elements(shape: Sequence[int], blame: Blame = EncodeError, itemsize: int = 1) -> int:
    """Return the number of elements of a shape.

    Raises for negative dimensions, for more than NumPy's number of dimensions, and for sizes past
    2**63 bytes. Zeros do not hide an overflow: NumPy refuses (2**62, 2**62, 0) too.

    >>> elements((2, 0, 3))
    0
    """
    count, bound = 1, itemsize
    for dim in shape:
        if dim < 0:
            raise blame(f"shape {_brief(shape)} has a negative dimension: {dim}")
        count *= dim
        bound *= dim or 1
        if bound > INT64_MAX:
            raise blame(f"shape {_brief(shape)} is too large: its size exceeds 2**63 bytes")
    if len(shape) > NUMPY_RANK:
        raise blame(f"rank {len(shape)} is more than NumPy's maximum of {NUMPY_RANK}")
    return count


def strings(
    data: Array, offsets: Array, shape: tuple[int, ...], text: bool, blame: Blame = EncodeError
) -> None:
    """Check the arrays of a string tensor.

    `data` is uint8. `offsets` are int64, start at 0, never decrease and end at len(data), with one
    string for each element of the shape. With `text`, every string is UTF-8.
    """
    if data.dtype != np.uint8 or data.ndim != 1:
        raise blame(f"the data of strings must be a uint8 vector, not {data.dtype} {data.shape}")
    if offsets.dtype != np.int64 or offsets.ndim != 1 or len(offsets) == 0:
        raise blame(
            f"the offsets of strings must be an int64 vector of n + 1 numbers, not {offsets.dtype}"
            f" {offsets.shape}"
        )
    count = elements(shape, blame)
    if len(offsets) != count + 1:
        raise blame(f"shape {_brief(shape)} needs {count + 1} offsets, not {len(offsets)}")
    _steps(offsets, len(data), "offsets of strings", blame)
    if text:
        utf8(data, offsets, blame)


def utf8(data: Array, offsets: Array, blame: Blame = EncodeError) -> None:
    """Check that each string is UTF-8: all bytes are, and no string starts inside a character."""
    try:
        str(data.data, "utf-8")
    except UnicodeDecodeError as error:
        index = int(np.searchsorted(offsets, error.start, side="right")) - 1
        raise blame(f"string {index} is not UTF-8 ({error.reason})") from None
    starts = offsets[:-1][np.diff(offsets) > 0]
    inside = np.flatnonzero((data.take(starts, mode="clip") & 0xC0) == 0x80)
    if len(inside):
        raise blame(
            "a string is not UTF-8: it starts inside a character, at byte"
            f" {int(starts[inside[0]])} of the data"
        )


def sparse(
    indices: Array, values_shape: tuple[int, ...], dense_shape: Array, blame: Blame = EncodeError
) -> None:
    """Check the arrays of a sparse tensor.

    `indices` are int64 [nnz, rank] and lie inside the shape, values are [nnz, *dense_dims], and
    `dense_shape` is the sparse dimensions followed by the dense ones.
    """
    if indices.dtype != np.int64 or indices.ndim != 2:
        raise blame(
            f"the indices of a sparse tensor must be int64 [nnz, rank], not {indices.dtype}"
            f" {indices.shape}"
        )
    if dense_shape.dtype != np.int64 or dense_shape.ndim != 1:
        raise blame(
            f"the dense_shape of a sparse tensor must be an int64 vector, not {dense_shape.dtype}"
            f" {dense_shape.shape}"
        )
    nnz, rank = indices.shape
    shape = dense_shape.tolist()
    if not values_shape or values_shape[0] != nnz:
        raise blame(
            f"a sparse tensor with {nnz} indices needs {nnz} values, not shape {values_shape}"
        )
    if min(shape, default=0) < 0:
        raise blame(f"dense_shape {_brief(shape)} has a negative dimension")
    if len(shape) != rank + len(values_shape) - 1 or tuple(shape[rank:]) != values_shape[1:]:
        raise blame(
            f"dense_shape {_brief(shape)} does not match indices of rank {rank} and values"
            f" {values_shape}"
        )
    # Viewed as unsigned, a negative index is larger than any dimension, so one comparison checks
    # both ends.
    unsigned = indices.view(np.uint64)
    for axis in range(rank if nnz else 0):
        if unsigned[:, axis].max() >= shape[axis]:
            row = first(unsigned[:, axis] >= shape[axis])
            raise blame(
                f"index {indices[row].tolist()} of value {row} is outside the dense_shape"
                f" {_brief(shape)}"
            )


class Order(NamedTuple):
    """The order of a sparse tensor's indices."""

    sorted: bool
    duplicates: bool
    first: int | None
    """Row of the first index that is not greater than its predecessor."""


def order(indices: Array) -> Order:
    """Return whether indices are in row-major order, and whether there are duplicates.

    >>> order(np.array([[0, 1], [0, 0]]))
    Order(sorted=False, duplicates=False, first=1)
    """
    if len(indices) < 2 or indices.shape[1] == 0:
        return Order(True, len(indices) > 1, 1 if len(indices) > 1 else None)
    step = _compare(indices)
    if (step > 0).all():
        return Order(True, False, None)
    first = int(np.flatnonzero(step <= 0)[0]) + 1
    if (step >= 0).all():
        return Order(True, True, first)
    ordered = indices[np.lexsort(indices.T[::-1])]
    return Order(False, bool((_compare(ordered) == 0).any()), first)


def rows_sorted(indices: Array) -> bool:
    """Return whether the first column never decreases, which reading a range of rows requires.

    >>> rows_sorted(np.array([[0, 1], [0, 0], [2, 0]]))
    True
    """
    rows = indices[:, 0]
    return bool((rows[1:] >= rows[:-1]).all())


def ragged(
    count: int,
    row_splits: Sequence[Array],
    uniform: Sequence[int | None],
    blame: Blame = EncodeError,
) -> None:
    """Check the row splits of a ragged tensor.

    Each vector starts at 0, never decreases, and ends at the number of rows of the next one; the
    last one ends at the number of values. Rows have the length in `uniform`, if there is one.
    """
    if not row_splits:
        raise blame("a ragged tensor needs at least one row_splits")
    if len(uniform) != len(row_splits):
        raise blame(
            f"{len(row_splits)} row_splits need as many uniform lengths, not {len(uniform)}"
        )
    if len({splits.dtype for splits in row_splits}) > 1:
        raise blame("all row_splits of a ragged tensor must have the same dtype")
    for depth, splits in enumerate(row_splits):
        if splits.dtype not in (np.int32, np.int64) or splits.ndim != 1 or len(splits) == 0:
            raise blame(
                f"row_splits {depth} must be an int32 or int64 vector of at least one number, not"
                f" {splits.dtype} {splits.shape}"
            )
    for depth, splits in enumerate(row_splits):
        name = f"row_splits {depth}"
        inner = row_splits[depth + 1] if depth + 1 < len(row_splits) else None
        _steps(splits, count if inner is None else len(inner) - 1, name, blame)
        length = uniform[depth]
        if length is not None and (length < 0 or (np.diff(splits) != length).any()):
            raise blame(f"{name} has rows whose length is not the uniform length {length}")


def _steps(offsets: Array, end: int, name: str, blame: Blame) -> None:
    if offsets[0] != 0:
        raise blame(f"{name} must start at 0, not {int(offsets[0])}")
    if not (offsets[1:] >= offsets[:-1]).all():
        row = first(offsets[1:] < offsets[:-1])
        raise blame(
            f"{name} decrease at {row + 1}: {int(offsets[row])}, then {int(offsets[row + 1])}"
        )
    if offsets[-1] != end:
        raise blame(f"{name} must end at {end}, not {int(offsets[-1])}")


def _compare(indices: Array) -> Array:
    """Return for each row after the first 1 if it is greater than its predecessor, 0 if equal, -1
    if less.
    """
    step: Array = np.zeros(len(indices) - 1, np.int8)
    for axis in range(indices.shape[1]):
        column = indices[:, axis]
        column_step = (column[1:] > column[:-1]).astype(np.int8) - (
            column[1:] < column[:-1]
        ).astype(np.int8)
        step = np.where(step == 0, column_step, step)
    return step


def first(mask: Array) -> int:
    """Return the index of the first true element, or 0 if there is none.

    Another thread may change the memory between a check and the search for the element that failed
    it, so the search must not raise.

    >>> first(np.array([False, True, True])), first(np.array([False]))
    (1, 0)
    """
    return int(mask.argmax()) if mask.size else 0


def _brief(shape: Sequence[int]) -> str:
    return (
        str(list(shape))
        if len(shape) <= 12
        else f"[{', '.join(map(str, shape[:8]))}, ... {len(shape)} dims]"
    )
