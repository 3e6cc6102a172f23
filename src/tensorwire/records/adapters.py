"""Batches of Examples where other libraries want to read them: a tf.data.Dataset, and Arrow's stream of record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import EncodeError
from .._optional import require
from ..frameworks import arrow
from ..tensors import Ragged, Strings
from .batch import Batch


def tf_signature(schema: Any) -> dict[str, Any]:
    """What tf.data must know of a batch before it has seen one."""
    tf = require("tensorflow")
    out = {}
    for name, feature in schema.items():
        if feature.shape is None:
            raise EncodeError("tensors of different ranks are no column of tf.data; leave it out with columns=", tensor=name)
        dtype = tf.as_dtype(feature.dtype)
        if feature.fixed:
            out[name] = tf.TensorSpec([None, *feature.shape], dtype)
        else:
            out[name] = tf.RaggedTensorSpec([None, *feature.shape], dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    return out


def tf_dataset(batches: Any, schema: Any) -> Any:
    """A tf.data.Dataset of dicts of tensors."""
    tf = require("tensorflow")

    def rows() -> Iterator[dict[str, Any]]:
        for batch in batches():
            yield {name: frameworks.to(column, "tensorflow") for name, column in batch.items()}

    return tf.data.Dataset.from_generator(rows, output_signature=tf_signature(schema))


def arrow_reader(batches: Any, empty: Batch) -> Any:
    """A pyarrow.RecordBatchReader; `empty` is a batch without rows, which shows the types. Missing features are nulls."""
    pa = require("pyarrow", extra="arrow")
    schema = arrow_batch(pa, empty).schema
    return pa.RecordBatchReader.from_batches(schema, (arrow_batch(pa, batch) for batch in batches()))


def arrow_batch(pa: Any, batch: Batch) -> Any:
    """A pyarrow.RecordBatch; missing features are nulls."""
    return pa.RecordBatch.from_arrays([_arrow_column(pa, batch, name) for name in batch], names=list(batch))


def _arrow_column(pa: Any, batch: Batch, name: str) -> Any:
    column: Any = batch[name]
    if isinstance(column, np.ndarray) and column.dtype == object:
        raise EncodeError("tensors of different ranks are no column of Arrow; leave it out with columns=", tensor=name)
    if isinstance(column, Ragged) and isinstance(column.values, np.ndarray) and column.values.ndim > 1:
        width = column.values.shape[1]
        if column.values.ndim > 2:
            raise EncodeError("rows of varying length and several dimensions are no column of Arrow", tensor=name)
        outer = [part.astype(np.int64, copy=False) for part in column.row_splits]
        column = Ragged(column.values.reshape(-1), [*outer, np.arange(len(column.values) + 1, dtype=np.int64) * width])
    if isinstance(column, Strings) and column.ndim > 1:
        width = column.size // len(column) if len(column) else column.shape[1]
        column = Ragged(column.reshape(-1), np.arange(len(column) + 1, dtype=np.int64) * width)
    made = frameworks.to(column, "arrow")
    tensor = isinstance(made, pa.ExtensionArray)
    if tensor and column.ndim == 2:
        tensor, made = False, made.storage  # a plain list is understood by more readers, and says as much
    present = batch.present[name]
    if present.all():
        return made
    chosen = arrow.flat(np.arange(len(present)), present)
    if tensor:
        return pa.ExtensionArray.from_storage(made.type, made.storage.take(chosen))
    return made.take(chosen)
