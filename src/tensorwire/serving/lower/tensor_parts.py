"""Parts of sparse and ragged tensors, by role."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._errors import EncodeError
from ...core.tensors import Array, Ragged, Sparse, Strings, TensorLike
from ..composite import Group
from ..spec import Input

UNSORTED = "the indices were sorted"


def of_sparse(sparse: Sparse) -> tuple[dict[str, Any], list[str]]:
    """Return (the parts of a sparse tensor, notes). The indices are sorted, because many operations
    require that.

    >>> of_sparse(Sparse([[1], [0]], np.float32([5, 6]), (2,)))[0]["values"]
    array([6., 5.], dtype=float32)
    """
    ordered = sparse.sort()
    parts = {
        "indices": ordered.indices,
        "values": ordered.values,
        "dense_shape": ordered.dense_shape,
    }
    return parts, [] if ordered is sparse else [UNSORTED]


def can_be_ragged(tensor: TensorLike, group: Group, same_name: Input | None) -> bool:
    """Return whether lists or a dense tensor can be the whole ragged tensor, and not its values
    alone, which may have the same name.
    """
    # Lists are taken whatever their depth, because an empty list has none.
    if same_name is None and isinstance(tensor, (list, tuple)):
        return True
    depth = _depth(tensor)
    values = None if same_name is None or same_name.shape is None else len(same_name.shape)
    return not isinstance(tensor, Sparse) and depth > len(group.splits) and depth != values


def _depth(tensor: TensorLike) -> int:
    if isinstance(tensor, (list, tuple)):
        return 1 + max(map(_depth, tensor), default=0)
    return len(getattr(tensor, "shape", ()))


def of_ragged(tensor: TensorLike, group: Group) -> dict[str, Any]:
    """Return the parts of a Ragged, of nested lists, or of a dense tensor, whose rows have equal
    lengths. The values of nested lists stay a list, because the input decides their dtype.
    """
    depth = len(group.splits)
    if isinstance(tensor, Ragged):
        if len(tensor.row_splits) != depth:
            splits = ", ".join(group.splits)
            raise EncodeError(
                f"expected a ragged tensor with {depth} row_splits ({splits}), got one with"
                f" {len(tensor.row_splits)}"
            )
        values, row_splits = tensor.values, list(tensor.row_splits)
    elif isinstance(tensor, (list, tuple)):
        values, row_splits = _from_lists(tensor, depth)
    else:
        assert isinstance(tensor, (np.ndarray, Strings))
        values, row_splits = _from_dense(tensor, depth)
    return {
        "values": values,
        **{f"row_splits_{level}": splits for level, splits in enumerate(row_splits)},
    }


def _from_lists(rows: Sequence[Any], depth: int) -> tuple[Any, list[Array]]:
    splits = []
    for _ in range(depth):
        if not all(isinstance(row, (list, tuple)) for row in rows):
            raise EncodeError("expected nested lists of equal depth")
        bounds = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=bounds[1:])
        splits.append(bounds)
        rows = [item for row in rows for item in row]
    return rows, splits


def _from_dense(tensor: Array | Strings, depth: int) -> tuple[Any, list[Array]]:
    shape = tensor.shape
    splits = [
        np.arange(math.prod(shape[: level + 1]) + 1, dtype=np.int64) * shape[level + 1]
        for level in range(depth)
    ]
    return tensor.reshape((math.prod(shape[: depth + 1]), *shape[depth + 1 :])), splits
