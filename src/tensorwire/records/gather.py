"""Columns and rows as the caller gives them, on their way into Examples."""

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
    columns: object, options: Options, first: int, known: Mapping[str, Feature]
) -> tuple[dict[str, PackedColumn], int]:
    """Columns, and the number of rows, which must be the same for all. `first` and `known` as for
    rows.
    """
    if not isinstance(columns, Mapping):
        raise EncodeError(f"a batch is a dict of columns, not {type(columns).__name__}")
    present = getattr(columns, "present", {})
    count, of = -1, ""
    out = {}
    for name, value in columns.items():
        check_name(name)
        try:
            made: PackedColumn | None
            if isinstance(value, (list, tuple)):
                made, rows = from_list(name, value, options, known.get(name)), len(value)
            else:
                tensor = _column_value(value)
                made, rows = (
                    _from_tensor(name, tensor, options, present.get(name), known.get(name)),
                    int(tensor.shape[0]),
                )
        except TensorwireError as error:
            if error.record is not None:
                error.record += first
            raise error.add(tensor=name) from None
        if count >= 0 and rows != count:
            raise EncodeError(f"{rows} rows, and column {of!r} has {count}", tensor=name)
        count, of = rows, name
        if made is not None:
            out[name] = made
    return out, max(count, 0)


def check_name(name: object) -> None:
    """Whether a name can be that of a feature."""
    if not isinstance(name, str):
        raise EncodeError(f"names of features are str, not {type(name).__name__}: {name!r:.40}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise EncodeError(
            f"the name {name!r:.60} has a lone surrogate, so it is not text that UTF-8 can hold"
        ) from None


def from_rows(
    rows: Sequence[Mapping[str, Any]], options: Options, first: int, known: Mapping[str, Feature]
) -> dict[str, PackedColumn]:
    """Rows as columns. `first` is the number of the first one; `known` are the features of the rows
    before.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    out = {}
    for name in names:
        check_name(name)
        values = [row.get(name) for row in rows]
        try:
            column = from_list(name, values, options, known.get(name))
        except TensorwireError as error:
            if error.record is not None:
                error.record += first
            raise error.add(tensor=name) from None
        if column is not None:
            out[name] = column
    return out


def _column_value(value: object) -> Any:
    """A column as a tensor; an array of objects stays one if they are tensors of their own."""
    one = (
        None
        if value is None
        else (
            "one " + type(value).__name__
            if isinstance(value, (str, bytes, bool, int, float, complex))
            else ""
        )
    )
    if one != "":
        raise EncodeError(f"a column has a value for each record, and this is {one}{_ONE_RECORD}")
    if isinstance(value, Mapping):
        raise EncodeError("a dict is no column; for rows or batches pass a list of them")
    if (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "O"
        and any(not isinstance(item, (str, bytes)) for item in value.reshape(-1))
    ):
        return value
    tensor = pack.foreign(value)
    if not isinstance(tensor, KINDS):
        raise EncodeError(f"{type(value).__name__} is no column; pass a list with one value a row")
    if not tensor.shape:
        raise EncodeError(
            f"a column has a value for each record, and this is a scalar{_ONE_RECORD}"
        )
    return tensor


_ONE_RECORD = "; to write one record pass a list of one row: [{...}]"


def _from_tensor(
    name: str, tensor: Tensor, options: Options, present: Array | None, known: Feature | None
) -> PackedColumn | None:
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "O":
        return from_list(name, list(tensor), options, known)
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
        made = pack.as_tensors(
            tensor if isinstance(tensor, np.ndarray) else [row_value(row, 0) for row in tensor],
            present,
        )
        if isinstance(tensor, Ragged):
            return replace(made, feature=pack.list_feature(tensor))
        return made
    if isinstance(tensor, Ragged):
        splits = np.ascontiguousarray(tensor.row_splits[0], np.int64)
        inner = pack.as_lists(tensor.values, encoding, splits)
        return replace(
            inner, feature=replace(inner.feature, shape=(None,)), splits=splits, present=present
        )
    inner = pack.as_lists(tensor.reshape(-1), encoding, math.prod(tensor.shape[1:]))
    return replace(inner, feature=replace(inner.feature, shape=tensor.shape[1:]), present=present)


def _left_packed(sparse: Sparse) -> Ragged:
    """Rows of a sparse matrix whose values stand at 0, 1, 2 ...: what tf.io.VarLenFeature gives."""
    sparse = sparse.sort()
    if sparse.indices.shape[1] != 2:
        raise EncodeError("a Sparse column is a matrix of rows; tensors=[name] keeps any")
    counts = np.bincount(sparse.indices[:, 0], minlength=int(sparse.dense_shape[0]))
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    if not (sparse.indices[:, 1] == np.arange(sparse.nnz) - np.repeat(splits[:-1], counts)).all():
        raise EncodeError(
            "the values of a Sparse column must fill each row from its start; tensors=[name]"
            " keeps any"
        )
    return Ragged(sparse.values, splits)


def _sparse_rows(sparse: Sparse) -> list[Sparse]:
    """The rows of a sparse tensor, each a sparse tensor of its own."""
    sparse = sparse.sort()
    bounds = np.searchsorted(sparse.indices[:, 0], np.arange(sparse.shape[0] + 1)).tolist()
    inner = sparse.dense_shape[1:]
    return [
        Sparse(sparse.indices[a:b, 1:], sparse.values[a:b], inner)
        for a, b in itertools.pairwise(bounds)
    ]


def is_batch(item: object) -> bool:
    """Whether an item among many is columns of its own, rather than a row."""
    return isinstance(item, (Batch, ForeignBatch)) or (
        isinstance(item, Mapping) and not isinstance(item, dict)
    )
