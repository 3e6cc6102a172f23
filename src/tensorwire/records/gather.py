"""Columns and rows as the caller passes them, converted for the encoder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._errors import EncodeError, TensorwireError
from ..core.tensors import KINDS, Array, Ragged, Sparse, Tensor
from . import pack
from .batch import Batch, ForeignBatch
from .pack import Options, PackedColumn
from .rows import from_list, row_value
from .schema import Feature


def from_columns(
    columns: object, options: Options, first: int, features: Mapping[str, Feature]
) -> tuple[dict[str, PackedColumn], int]:
    """Return packed columns and the number of rows, which must be the same for all.

    `first` and `features` are the same as for `from_rows`.
    """
    if not isinstance(columns, Mapping):
        raise EncodeError(f"a batch must be a dict of columns, not {type(columns).__name__}")
    present = getattr(columns, "present", {})
    count, previous = -1, ""
    out = {}
    for name, value in columns.items():
        check_name(name)
        try:
            column: PackedColumn | None
            if isinstance(value, (list, tuple)):
                column, rows = from_list(name, value, options, features.get(name)), len(value)
            else:
                tensor = _column_value(value)
                column, rows = (
                    _from_tensor(name, tensor, options, present.get(name), features.get(name)),
                    int(tensor.shape[0]),
                )
        except TensorwireError as error:
            if error.record is not None:
                error.record += first
            raise error.add(tensor=name) from None
        if count >= 0 and rows != count:
            raise EncodeError(
                f"the column has {rows} rows, but column {previous!r} has {count}", tensor=name
            )
        count, previous = rows, name
        if column is not None:
            out[name] = column
    return out, max(count, 0)


def check_name(name: object) -> None:
    """Raise EncodeError if a name cannot be that of a feature."""
    if not isinstance(name, str):
        raise EncodeError(f"a feature name must be str, not {type(name).__name__}: {name!r:.40}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise EncodeError(
            f"the feature name {name!r:.60} has a lone surrogate, which UTF-8 cannot encode"
        ) from None


def from_rows(
    rows: Sequence[Mapping[str, Any]], options: Options, first: int, features: Mapping[str, Feature]
) -> dict[str, PackedColumn]:
    """Return rows as packed columns.

    `first` is the number of the first row. `features` are the features of the rows before.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    out = {}
    for name in names:
        check_name(name)
        values = [row.get(name) for row in rows]
        try:
            column = from_list(name, values, options, features.get(name))
        except TensorwireError as error:
            if error.record is not None:
                error.record += first
            raise error.add(tensor=name) from None
        if column is not None:
            out[name] = column
    return out


def _column_value(value: object) -> Any:
    """Return a column as a tensor. An object array whose items are tensors stays as it is."""
    scalar = (
        None
        if value is None
        else (
            "a single " + type(value).__name__
            if isinstance(value, (str, bytes, bool, int, float, complex))
            else ""
        )
    )
    if scalar != "":
        raise EncodeError(
            f"a column must have one value per record, not {scalar}", hint=_ONE_RECORD
        )
    if isinstance(value, Mapping):
        raise EncodeError(
            "a column cannot be a dict", hint="for rows or batches pass a list of dicts"
        )
    if (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "O"
        and any(not isinstance(item, (str, bytes)) for item in value.reshape(-1))
    ):
        return value
    tensor = pack.foreign(value)
    if not isinstance(tensor, KINDS):
        raise EncodeError(
            f"a column cannot be a {type(value).__name__}",
            hint="pass a list with one value per row",
        )
    if not tensor.shape:
        raise EncodeError("a column must have one value per record, not a scalar", hint=_ONE_RECORD)
    return tensor


_ONE_RECORD = "to write one record pass a list of one row: [{...}]"


def _from_tensor(
    name: str,
    tensor: Tensor,
    options: Options,
    present: Array | None,
    feature_before: Feature | None,
) -> PackedColumn | None:
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "O":
        return from_list(name, list(tensor), options, feature_before)
    encoding = options.encoding(name)
    if encoding == "quantized":
        return pack.as_quantized(tensor, (options.quantize or {})[name], present)
    if encoding == "raw":
        return pack.as_raw(tensor, present)
    if encoding == "tensor" and isinstance(tensor, Sparse):
        return pack.as_tensors(_sparse_rows(tensor), present)
    if isinstance(tensor, Sparse):
        tensor = _left_packed(tensor)
    if encoding == "tensor" or pack.needs_tensor(tensor):
        column = pack.as_tensors(
            tensor if isinstance(tensor, np.ndarray) else [row_value(row, 0) for row in tensor],
            present,
        )
        if isinstance(tensor, Ragged):
            return replace(column, feature=pack.list_feature(tensor))
        return column
    if isinstance(tensor, Ragged):
        splits = np.ascontiguousarray(tensor.row_splits[0], np.int64)
        inner = pack.as_lists(tensor.values, encoding, splits)
        return replace(
            inner, feature=replace(inner.feature, shape=(None,)), splits=splits, present=present
        )
    inner = pack.as_lists(tensor.reshape(-1), encoding, math.prod(tensor.shape[1:]))
    return replace(inner, feature=replace(inner.feature, shape=tensor.shape[1:]), present=present)


def _left_packed(sparse: Sparse) -> Ragged:
    """Return the rows of a sparse matrix as Ragged.

    The values of a row must be at columns 0, 1, 2 ..., as tf.io.VarLenFeature returns them.
    """
    sparse = sparse.sort()
    if sparse.indices.shape[1] != 2:
        raise EncodeError(
            "a Sparse column must be a matrix", hint="tensors=[name] keeps a Sparse of any shape"
        )
    counts = np.bincount(sparse.indices[:, 0], minlength=int(sparse.dense_shape[0]))
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    if not (sparse.indices[:, 1] == np.arange(sparse.nnz) - np.repeat(splits[:-1], counts)).all():
        raise EncodeError(
            "the values of a Sparse column must fill each row from its start",
            hint="tensors=[name] keeps a Sparse of any layout",
        )
    return Ragged(sparse.values, splits)


def _sparse_rows(sparse: Sparse) -> list[Sparse]:
    """Return the rows of a sparse tensor as sparse tensors."""
    sparse = sparse.sort()
    bounds = np.searchsorted(sparse.indices[:, 0], np.arange(sparse.shape[0] + 1)).tolist()
    inner = sparse.dense_shape[1:]
    return [
        Sparse(sparse.indices[a:b, 1:], sparse.values[a:b], inner)
        for a, b in itertools.pairwise(bounds)
    ]


def is_batch(item: object) -> bool:
    """Return whether an item of an iterable is a batch of columns rather than a row."""
    return isinstance(item, (Batch, ForeignBatch)) or (
        isinstance(item, Mapping) and not isinstance(item, dict)
    )
