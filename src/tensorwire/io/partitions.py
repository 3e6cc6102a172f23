"""Ragged tensors: the values of records, split into rows by other features.

1. A `PartitionRows` starts as [records, values].
2. Each partition, from the innermost to the outermost, inserts a dimension after the first.
3. A single record is a batch of one, whose first dimension is removed at the end.
4. TensorFlow checks partitions only with `validate=True`, and even then not whether each record's
   partitions cover its own values. Here the result is always checked, since a Ragged must be valid,
   and each record is checked too unless `tf_compat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._errors import EncodeError, LimitError, SchemaError
from .._limits import DEFAULT
from ..core.tensors import Array, Ragged, Strings
from ..wire.example import FORMAT, Filled
from .columns import value_key, values_of
from .features import (
    Key,
    KeyedPartition,
    RaggedFeature,
    RowLengths,
    RowLimits,
    RowSplits,
    RowStarts,
    UniformRowLength,
    ValueRowIds,
    splits_dtype,
)


class PartitionRows(NamedTuple):
    """Values with their row splits, while partitions are applied."""

    values: Any
    splits: list[Array]
    """int64, from outer to inner."""
    uniform: list[int | None]


def rows_of(filled: Filled) -> PartitionRows:
    """Return [records, values], or for a feature list [steps of all records, values]."""
    assert filled.splits is not None
    return PartitionRows(values_of(filled), [filled.splits], [None])


def ragged(
    key: Key, feature: RaggedFeature, filled: Mapping[Any, Filled], single: bool, tf_compat: bool
) -> Any:
    """Return the tensor of a RaggedFeature as a Ragged.

    Without partitions, that of a single record is an array.
    """
    name, dtype = value_key(key, feature), splits_dtype(feature.row_splits_dtype)
    try:
        rows = rows_of(filled[name])
        steps = filled[name].steps
        for partition in reversed(feature.partitions):
            if isinstance(partition, UniformRowLength):
                rows = _uniform(rows, partition.length, tf_compat)
                continue
            column = filled[partition.key]
            if steps is not None and (
                column.steps is None or not np.array_equal(steps, column.steps)
            ):
                raise EncodeError(f"{partition.key!r} has a different number of steps")
            if single and steps is None and isinstance(partition, RowSplits):
                _check_splits(partition, column.values, feature.validate)
            # TensorFlow casts the partition before it uses it.
            rows = _partitioned(
                rows,
                partition,
                column,
                column.values.astype(dtype).astype(np.int64) if tf_compat else column.values,
                tf_compat,
            )
        if steps is not None and not single:
            rows = PartitionRows(rows.values, [steps, *rows.splits], [None, *rows.uniform])
        elif steps is None and single:
            rows = PartitionRows(rows.values, rows.splits[1:], rows.uniform[1:])
        if not rows.splits:
            return np.asarray(rows.values) if isinstance(rows.values, Strings) else rows.values
        return Ragged(rows.values, [_cast(splits, dtype) for splits in rows.splits], rows.uniform)
    except EncodeError as error:
        raise SchemaError(
            f"the partitions of {key!r} do not fit its values: {error.message}",
            tensor=str(key),
            format=FORMAT,
        ) from None


def _cast(splits: Array, dtype: np.dtype[Any]) -> Array:
    if dtype == np.int32 and splits[-1] > np.iinfo(np.int32).max:
        raise EncodeError("the row splits do not fit int32; pass row_splits_dtype='int64'")
    return splits.astype(dtype)


def _check_splits(partition: RowSplits, splits: Array, validate: bool) -> None:
    """Raise EncodeError if the row splits of a single record do not begin with 0.

    Like TensorFlow, a record without row splits has no rows, unless `validate`.
    """
    if splits[:1].any() or (validate and not len(splits)):
        raise EncodeError(f"the row splits in {partition.key!r} do not begin with 0")


def _partitioned(
    rows: PartitionRows, partition: KeyedPartition, part: Filled, numbers: Array, tf_compat: bool
) -> PartitionRows:
    assert part.splits is not None
    outer = rows.splits[0]
    new, inner = _split(partition, numbers, part.splits, outer, not tf_compat)
    if not tf_compat and not np.array_equal(inner[new], outer):
        record = int(np.flatnonzero(inner[new] != outer)[0]) - 1
        raise EncodeError(
            f"{partition.key!r} does not cover exactly the values of record or step"
            f" {max(record, 0)}"
        )
    return PartitionRows(
        rows.values, [new, inner, *rows.splits[1:]], [None, None, *rows.uniform[1:]]
    )


def _uniform(rows: PartitionRows, length: int, tf_compat: bool) -> PartitionRows:
    outer = rows.splits[0]
    if not isinstance(length, (int, np.integer)) or length <= 0:
        raise EncodeError(f"UniformRowLength({length}) is not a positive row length")
    if outer[-1] % length or (not tf_compat and (np.diff(outer) % length).any()):
        raise EncodeError(f"the number of values is not a multiple of the row length {length}")
    # Without an inner ragged dimension, the new dimension is dense.
    if len(rows.splits) == 1:
        return PartitionRows(
            rows.values.reshape(-1, length, *rows.values.shape[1:]), [outer // length], [None]
        )
    inner = np.arange(outer[-1] // length + 1) * length
    return PartitionRows(
        rows.values,
        [outer // length, inner, *rows.splits[1:]],
        [None, int(length), *rows.uniform[1:]],
    )


def _split(
    partition: KeyedPartition, numbers: Array, splits: Array, outer: Array, strict: bool
) -> tuple[Array, Array]:
    """Return (start of the rows of each record, start of the values of each row).

    `numbers` are the partition's values, `splits` and `outer` the starts of each record's numbers
    and values.
    """
    counts = np.diff(splits)
    if isinstance(partition, ValueRowIds):
        return _by_row_ids(partition, numbers, splits)
    if isinstance(partition, RowLengths):
        return splits, _cumulated(numbers)
    if isinstance(partition, RowSplits):
        first = splits[:-1][counts > 0]
        if strict and numbers[first].any():
            raise EncodeError(f"the row splits in {partition.key!r} do not begin with 0")
        numbers, counts = np.delete(numbers, first), np.maximum(counts - 1, 0)
        splits = _cumulated(counts)
    moved = numbers + np.repeat(outer[:-1], counts)
    if isinstance(partition, RowStarts):
        return splits, np.append(moved, outer[-1])
    assert isinstance(partition, (RowSplits, RowLimits))
    return splits, np.concatenate([[0], moved])


def _by_row_ids(partition: ValueRowIds, ids: Array, splits: Array) -> tuple[Array, Array]:
    counts = np.diff(splits)
    inside = np.repeat(np.arange(len(counts)), counts)
    if len(ids) and (ids.min() < 0 or ((np.diff(ids) < 0) & (np.diff(inside) == 0)).any()):
        raise EncodeError(f"the row ids in {partition.key!r} are negative or not sorted")
    rows: Array = np.zeros(len(counts), np.int64)
    rows[counts > 0] = ids[splits[1:][counts > 0] - 1] + 1
    new = _cumulated(rows)
    if new[-1] > DEFAULT.tensor // 8 or (len(ids) and ids.max() > DEFAULT.tensor // 8):
        raise LimitError(
            f"the row ids in {partition.key!r} imply {new[-1]} rows, which exceeds the limit",
            format=FORMAT,
        )
    return new, _cumulated(np.bincount(ids + np.repeat(new[:-1], counts), minlength=int(new[-1])))


def _cumulated(counts: Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
