"""Adapters that pass batches of Examples to tf.data and to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import EncodeError
from .._optional import require
from ..codecs.arrow import batches as arrow_batches
from ..core import dtypes
from ..core.tensors import Ragged
from .batch import Batch
from .schema import Schema


def tf_signature(schema: Schema) -> dict[str, Any]:
    """Return the `output_signature` that tf.data needs before it has seen a batch."""
    tf = require("tensorflow")
    out = {}
    for name, feature in schema.items():
        if feature.shape is None:
            raise EncodeError(
                "tf.data cannot represent a column whose tensors have different ranks",
                tensor=name,
                hint="leave the column out with columns=",
            )
        dtype = tf.as_dtype(feature.dtype)
        if feature.fixed:
            out[name] = tf.TensorSpec([None, *feature.shape], dtype)
        else:
            rank = 1 + max(axis for axis, dim in enumerate(feature.shape) if dim is None)
            shape = [None, *feature.shape]
            out[name] = tf.RaggedTensorSpec(shape, dtype, rank, tf.int64)
    return out


def tf_dataset(batches: Callable[[], Iterable[Batch]], schema: Schema) -> Any:
    """Return a tf.data.Dataset whose elements are dicts of tensors."""
    tf = require("tensorflow")

    def rows() -> Iterator[dict[str, Any]]:
        for batch in batches():
            yield {name: frameworks.to(column, "tensorflow") for name, column in batch.items()}

    return tf.data.Dataset.from_generator(rows, output_signature=tf_signature(schema))


def arrow_reader(batches: Callable[[], Iterable[Batch]], empty: Batch) -> Any:
    """Return a pyarrow.RecordBatchReader over the batches. Missing features are nulls.

    `empty` is a batch without rows, from which the Arrow schema is taken.
    """
    pa = require("pyarrow", extra="arrow")
    schema = arrow_batch(empty).schema
    return pa.RecordBatchReader.from_batches(schema, (arrow_batch(batch) for batch in batches()))


def arrow_batch(batch: Batch, plain: bool = True) -> Any:
    """Return a pyarrow.RecordBatch for other libraries. Missing features are nulls.

    `plain` has the same meaning as in `codecs.arrow.batches.record_batch`. A dtype that Arrow lacks
    is an error: a library that does not know our metadata would read its storage as other numbers.
    """
    for name, column in batch.items():
        values: Any = column.values if isinstance(column, Ragged) else column
        if not isinstance(values, np.ndarray) or values.dtype == object:
            continue
        if dtypes.of(values.dtype).arrow is None:
            raise EncodeError(
                f"Arrow has no type for {values.dtype}",
                tensor=name,
                hint="leave the column out with columns=, or convert it first",
            )
    return arrow_batches.record_batch(batch, batch.present, plain)
