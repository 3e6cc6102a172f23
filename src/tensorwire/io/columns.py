"""Columns for tf.io features: which columns the features need, and the tensors made from them.

No loop in this module runs over values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._errors import LimitError, SchemaError
from .._limits import DEFAULT
from ..core.tensors import Array, Sparse, Strings, trusted
from ..wire.example import BYTES, FORMAT, INT64, Column, ColumnBuffers, Filled
from .arguments import Messages
from .features import (
    NUMPY,
    FixedLenFeature,
    FixedLenSequenceFeature,
    Key,
    RaggedFeature,
    SparseFeature,
    UniformRowLength,
    VarLenFeature,
    kind_of,
    shape_of,
    splits_dtype,
)

DENSE, SPARSE, RAGGED = "dense", "sparse", "ragged"


class Need(NamedTuple):
    """A column and its role. TensorFlow allows a key only one of dense, sparse and ragged."""

    kind: int
    length: int
    role: str
    splits: Any = None
    """The dtype of row splits, if the column is ragged."""


Needs = dict[Any, Need]


def needs(features: Mapping[Any, Any], in_list: bool = False) -> Needs:
    """Return the columns that features are made of, by key.

    `in_list` says that they are feature lists, whose steps each have a shape.
    """
    columns: Needs = {}
    for key, feature in features.items():
        kind = kind_of(feature.dtype)
        if isinstance(feature, FixedLenFeature):
            _add(columns, key, Need(kind, math.prod(shape_of(feature.shape, key)), DENSE))
        elif isinstance(feature, FixedLenSequenceFeature):
            block = math.prod(shape_of(feature.shape, key))
            if not block:
                raise SchemaError(
                    f"the shape {feature.shape} of a FixedLenSequenceFeature has no values, so its"
                    " blocks cannot be counted",
                    tensor=str(key),
                )
            _add(columns, key, Need(kind, block if in_list else -1, DENSE))
        elif isinstance(feature, VarLenFeature):
            _add(columns, key, Need(kind, -1, SPARSE))
        elif isinstance(feature, SparseFeature):
            for index in _index_keys(feature, key):
                _add(columns, index, Need(INT64, -1, SPARSE))
            _add(columns, feature.value_key, Need(kind, -1, SPARSE))
        else:
            _add_ragged(columns, key, feature, kind)
    return columns


def _add(columns: Needs, key: Key, need: Need) -> None:
    existing = columns.setdefault(key, need)
    if existing != need or (existing is not need and need.role == DENSE):
        raise SchemaError(
            f"two features use the key {key!r} in different ways: {existing.role} and {need.role},"
            " or with different dtypes",
            tensor=str(key),
        )


def _index_keys(feature: SparseFeature, key: Key) -> list[Any]:
    keys = (
        [feature.index_key] if isinstance(feature.index_key, str) else list(feature.index_key or ())
    )
    sizes = [feature.size] if isinstance(feature.index_key, str) else feature.size
    if not keys or not feature.value_key:
        raise SchemaError(
            f"the SparseFeature {key!r} needs an index_key and a value_key", tensor=str(key)
        )
    sizes = list(sizes) if isinstance(sizes, Iterable) else []
    if len(sizes) != len(keys) or not all(isinstance(size, (int, np.integer)) for size in sizes):
        raise SchemaError(
            f"the SparseFeature {key!r} needs a size for each index_key, not {feature.size!r}",
            tensor=str(key),
        )
    return keys


def _add_ragged(columns: Needs, key: Key, feature: RaggedFeature, kind: int) -> None:
    splits = splits_dtype(feature.row_splits_dtype)
    _add(columns, value_key(key, feature), Need(kind, -1, RAGGED, splits))
    for partition in feature.partitions:
        if not isinstance(partition, UniformRowLength):
            _add(columns, partition.key, Need(INT64, -1, RAGGED, splits))


def value_key(key: Key, feature: RaggedFeature) -> Any:
    return key if feature.value_key is None else feature.value_key


def read_examples(messages: Messages, wanted: Needs, tf_compat: bool) -> dict[Any, Filled]:
    """Return the decoded columns of Examples by key."""
    if not tf_compat or messages.single:
        return _read(messages, wanted, int(tf_compat))
    # In a batch, TensorFlow skips unset Features for dense tensors, but counts them for other ones.
    dense = {key: need for key, need in wanted.items() if need.role == DENSE}
    others = {key: need for key, need in wanted.items() if need.role != DENSE}
    return {**_read(messages, dense, 1), **_read(messages, others, 2)}


def _read(messages: Messages, wanted: Needs, compat: int) -> dict[Any, Filled]:
    return dict(zip(wanted, _fill(messages, _columns(wanted), False, compat), strict=True))


def _columns(wanted: Needs, in_list: bool = False) -> list[Column]:
    return [Column(_bytes(key), need.kind, need.length, in_list) for key, need in wanted.items()]


def _fill(messages: Messages, wanted: list[Column], sequence: bool, compat: int) -> list[Filled]:
    columns = ColumnBuffers(wanted, len(messages.sizes), sequence=sequence, compat=compat)
    columns.fill(messages.data, messages.starts, messages.sizes)
    return columns.take()


def read_sequences(
    messages: Messages, context: Needs, lists: Needs, tf_compat: bool
) -> tuple[dict[Any, Filled], dict[Any, Filled]]:
    """Return the decoded columns of SequenceExamples: of the contexts, and of the feature lists."""
    wanted = _columns(context) + _columns(lists, in_list=True)
    filled = _fill(messages, wanted, True, int(tf_compat))
    return dict(zip(context, filled, strict=False)), dict(
        zip(lists, filled[len(context) :], strict=True)
    )


def _bytes(key: Key) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode()


def values_of(filled: Filled) -> Array | Strings:
    """Return all values of a column, flat."""
    if filled.offsets is None:
        return filled.values
    return trusted(Strings, filled.values, filled.offsets, (len(filled.offsets) - 1,), False)


def objects_of(filled: Filled) -> Array:
    """Return all values of a column, with strings as an object array of bytes."""
    return np.asarray(values_of(filled))


def dense(
    filled: Filled, key: Key, shape: tuple[int, ...], default: Array | None, single: bool
) -> Any:
    """Return a tensor [rows, *shape], with the default where a record lacks the feature."""
    values = objects_of(filled).reshape(len(filled.present), *shape)
    missing = np.flatnonzero(~filled.present)
    if len(missing):
        if default is None or not default.size:
            raise missing_error(key, int(missing[0]), "pass a default_value=")
        values[missing] = default
    if not single:
        return values
    return values.item() if filled.offsets is not None and not shape else values.reshape(shape)


def missing_error(key: Key, record: int, hint: str) -> SchemaError:
    return SchemaError(
        f"the feature {key!r} is missing", tensor=str(key), record=record, format=FORMAT, hint=hint
    )


def padded(values: Array, counts: Array, padding: bytes | np.generic) -> Array:
    """Return rows of `values` as a matrix as wide as the longest row."""
    rows, width = len(counts), int(counts.max(initial=0))
    size = rows * width * math.prod(values.shape[1:]) * values.dtype.itemsize
    if size > max(DEFAULT.tensor, 2 * values.nbytes):
        raise LimitError(
            f"padding {rows} records to {width} steps would take {size} bytes",
            format=FORMAT,
            hint="parse fewer records at once",
        )
    out: Array = np.full((rows, width, *values.shape[1:]), padding, values.dtype)
    out[np.arange(width) < counts[:, None]] = values
    return out


def blocks(
    filled: Filled, key: Key, shape: tuple[int, ...], padding: bytes | np.generic, single: bool
) -> Array:
    """Return a feature with any number of blocks of `shape` as [rows, most blocks, *shape]."""
    assert filled.splits is not None
    block, counts = math.prod(shape), np.diff(filled.splits)
    if (counts % block).any():
        row = int(np.flatnonzero(counts % block)[0])
        message = (
            f"the feature {key!r} has {counts[row]} values, which is not a multiple of the shape"
            f" {shape}"
        )
        raise SchemaError(message, tensor=str(key), record=row, format=FORMAT)
    values = objects_of(filled).reshape(-1, *shape)
    return values if single else padded(values, counts // block, padding)


def places(splits: Array) -> tuple[Array, Array]:
    """Return the row of each value, and its position in the row."""
    counts = np.diff(splits)
    return np.repeat(np.arange(len(counts)), counts), np.arange(splits[-1]) - np.repeat(
        splits[:-1], counts
    )


def sparse(filled: Filled, single: bool) -> Sparse:
    """Return a Sparse [rows, most values]; of a single record [values]."""
    assert filled.splits is not None
    row, column = places(filled.splits)
    widest = int(np.diff(filled.splits).max(initial=0))
    indices = column[:, None] if single else np.column_stack([row, column])
    return trusted(
        Sparse,
        indices,
        values_of(filled),
        np.array([widest] if single else [len(filled.splits) - 1, widest]),
    )


def padding_of(kind: int) -> Any:
    return b"" if kind == BYTES else NUMPY[kind].type(0)
