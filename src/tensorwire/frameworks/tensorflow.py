"""TensorFlow: eager tensors and variables, SparseTensor and RaggedTensor.

Symbolic tensors have no values, so they are an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import EncodeError
from .._optional import require
from ..core import dtypes
from ..core.tensors import Array, Ragged, Sparse, Strings, Tensor
from .numpy import plain, strings


def _tf() -> Any:
    return require("tensorflow")


def to_tensor(obj: Any) -> Tensor:
    tf = _tf()
    if isinstance(obj, tf.SparseTensor):
        return Sparse(_dense(obj.indices), _dense(obj.values), _dense(obj.dense_shape))
    if isinstance(obj, tf.RaggedTensor):
        return _ragged(obj)
    if isinstance(obj, (tf.Tensor, tf.Variable)):
        return _dense(obj)
    if isinstance(obj, tf.TensorShape):
        raise EncodeError("a TensorShape is not a tensor", hint="pass x.as_list()")
    hint = "pass tf.convert_to_tensor(x)" if isinstance(obj, tf.IndexedSlices) else None
    raise EncodeError(f"{type(obj).__name__} is not a tensor with values", hint=hint)


def about(obj: Any) -> dict[str, str]:
    # The device of a SparseTensor or RaggedTensor is that of its values.
    part = getattr(obj, "values", obj)
    facts = {"device": str(getattr(part, "device", "") or "cpu")}
    if isinstance(obj, _tf().Variable):
        facts["name"] = str(obj.name)
    return facts


def _dense(obj: Any) -> Array | Strings:
    tf = _tf()
    if isinstance(obj, tf.Variable):
        obj = obj.read_value() if tf.executing_eagerly() else obj
    if not hasattr(obj, "numpy") or tf.is_symbolic_tensor(obj):
        raise EncodeError(
            "a symbolic tensor (inside tf.function or Dataset.map) has no values",
            hint="use tf.io there, or wrap the call in tf.py_function",
        )
    if obj.dtype == tf.string:
        return strings(obj.numpy() if obj.shape.rank else np.array(obj.numpy(), object))
    row = dtypes.BY_TF.get(obj.dtype.as_datatype_enum)
    if row is None or row.reading_only:
        hint = "tf.bitcast it to its integer type first" if row else None
        raise EncodeError(f"tensors of dtype {obj.dtype.name} cannot be written", hint=hint)
    # Unlike .numpy(), asarray does not copy a tensor in host memory, but it fails for scalars of
    # ml_dtypes.
    return plain(np.asarray(obj if obj.shape.rank else obj.numpy(), row.numpy))


def _ragged(obj: Any) -> Ragged:
    uniform: list[int | None] = []
    splits: list[Any] = []
    values = obj
    while isinstance(values, type(obj)):
        splits.append(_dense(values.row_splits))
        length = values.uniform_row_length
        uniform.append(None if length is None else int(length))
        values = values.values
    return Ragged(_dense(values), splits, uniform)


def from_tensor(tensor: Tensor, device: Any, cast: bool) -> Any:
    tf = _tf()
    with tf.device(device):
        if isinstance(tensor, Sparse):
            if tensor.values.ndim != 1:
                raise EncodeError(
                    "TensorFlow has no hybrid sparse tensors", hint="pass x.to_dense()"
                )
            return tf.SparseTensor(
                tf.constant(tensor.indices),
                _constant(tf, tensor.values),
                tf.constant(tensor.dense_shape),
            )
        if isinstance(tensor, Ragged):
            values = _constant(tf, tensor.values)
            for splits, length in zip(
                reversed(tensor.row_splits), reversed(tensor.uniform), strict=True
            ):
                if length is None:
                    values = tf.RaggedTensor.from_row_splits(
                        values, tf.constant(splits), validate=False
                    )
                else:
                    rows = tf.constant(len(splits) - 1, splits.dtype)
                    values = tf.RaggedTensor.from_uniform_row_length(
                        values, tf.constant(length, splits.dtype), rows, validate=False
                    )
            return values
        return _constant(tf, tensor)


def _constant(tf: Any, tensor: Array | Strings) -> Any:
    if isinstance(tensor, Strings):
        objects = np.asarray(tensor.astext(False))
        return tf.constant(objects if objects.ndim else objects.item(), tf.string, tensor.shape)
    row = dtypes.of(tensor.dtype)
    if row.tf is None:
        raise EncodeError(f"TensorFlow has no {row.name}")
    return tf.constant(plain(tensor), tf.dtypes.as_dtype(row.tf))
