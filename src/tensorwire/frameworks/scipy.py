"""SciPy: sparse matrices and arrays of every layout, as COO."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import EncodeError
from .._optional import require
from ..core import dtypes
from ..core.tensors import Array, Ragged, Sparse, Tensor
from .casting import fit
from .numpy import plain


def _sparse() -> Any:
    return require("scipy.sparse", extra="scipy")


def to_tensor(obj: Any) -> Tensor:
    if not _sparse().issparse(obj):
        raise EncodeError(f"SciPy's {type(obj).__name__} is not a sparse matrix or array")
    if obj.format == "dia":
        return _diagonals(obj)
    # Stored zeros and duplicates are kept.
    coo = obj.tocoo(copy=False)
    return Sparse(
        np.stack(getattr(coo, "coords", None) or (coo.row, coo.col), axis=1),
        plain(coo.data),
        coo.shape,
    )


def about(obj: Any) -> dict[str, str]:
    return {"device": "cpu"}


def _diagonals(obj: Any) -> Sparse:
    """Return a DIA matrix with its stored zeros, which tocoo() would drop, also -0.0."""
    columns = np.arange(obj.data.shape[1])
    rows = columns - np.asarray(obj.offsets, np.int64)[:, None]
    inside = (rows >= 0) & (rows < obj.shape[0]) & (columns < obj.shape[1])
    return Sparse(
        np.stack([rows[inside], np.broadcast_to(columns, rows.shape)[inside]], axis=1),
        obj.data[inside],
        obj.shape,
    )


def from_tensor(tensor: Tensor, device: Any, cast: bool) -> Any:
    if isinstance(tensor, Ragged):
        raise EncodeError(
            "SciPy has no ragged arrays", hint="pass x.values and each of x.row_splits"
        )
    if not isinstance(tensor, Sparse):
        return fit(tensor, lambda row: True, "SciPy", cast)
    if len(tensor.values.shape) != 1 or not tensor.shape:
        what = "hybrid sparse tensors" if tensor.shape else "sparse arrays without dimensions"
        raise EncodeError(f"SciPy has no {what}", hint="pass x.to_dense()")
    values: Array = fit(tensor.values, _holds, "SciPy", cast)
    return _sparse().coo_array((values, tuple(tensor.indices.T)), shape=tensor.shape)


def _holds(row: dtypes.DType) -> bool:
    return row.numpy.isbuiltin == 1 and row.name != "float16"
