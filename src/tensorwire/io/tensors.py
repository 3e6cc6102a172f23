"""Tensors as serialized TensorProtos, dense and sparse."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import frameworks
from .._errors import DecodeError, EncodeError, SchemaError, TensorwireError
from ..codecs.tensorproto import TensorProto
from ..core import dtypes, memory, validate
from ..core.dtypes import DTypeLike
from ..core.tensors import Array, Ragged, Sparse, Strings, TensorLike, describe, trusted
from ..wire import kernels
from ..wire import tensorproto as wire
from . import arguments


def serialize_tensor(tensor: TensorLike, name: str | None = None) -> bytes:
    """A dense or string tensor as a serialized TensorProto, byte for byte what TensorFlow writes.

    >>> serialize_tensor([1.0]) == serialize_tensor(np.array([1], np.float32))
    True
    """
    value = arguments.tensor(tensor)
    if isinstance(value, (Sparse, Ragged)):
        raise EncodeError(
            f"serialize_tensor takes a dense or string tensor, not {describe(value)};"
            " serialize_sparse and tw.dumps take others"
        )
    return kernels.encode_dense(value) or kernels.join(TensorProto().encode(value))


def parse_tensor(
    serialized: TensorLike, out_type: DTypeLike, name: str | None = None, *, tf_compat: bool = False
) -> Any:
    """The tensor of a serialized TensorProto; SchemaError if it is not of `out_type`.

    >>> parse_tensor(serialize_tensor(np.int32([1, 2])), "int32")
    array([1, 2], dtype=int32)
    """
    data = memory.flat(arguments.scalar(serialized))
    codec = TensorProto(tf_compat=tf_compat)
    value = codec.decode(data)
    if isinstance(value, (np.ndarray, Strings)):
        found = codec.scan(data).dtype
        expected = dtypes.STRING if dtypes.is_string(out_type) else dtypes.named(out_type).tf
        if found != expected:
            held = "string" if found == dtypes.STRING else dtypes.BY_TF[found].name
            raise SchemaError(
                f"these bytes hold {held}, not the {getattr(out_type, 'name', out_type)} that was"
                " asked for",
                format=wire.FORMAT,
            )
        return arguments.objects(value)
    if isinstance(value, Ragged) and getattr(out_type, "name", out_type) == "variant":
        return value
    raise SchemaError(
        "these bytes hold a nested value of tensorwire's; tw.loads reads it", format=wire.FORMAT
    )


def serialize_sparse(
    sp_input: TensorLike, out_type: DTypeLike = "string", name: str | None = None
) -> Array:
    """A sparse tensor as three strings: its indices, values and dense shape, each a serialized
    TensorProto.

    >>> [len(part) for part in serialize_sparse(Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2,
    ...     3)))]
    [46, 18, 26]
    """
    sparse = _sparse(sp_input, out_type)
    parts: Array = np.empty(3, object)
    parts[:] = _sparse_parts(sparse.indices, sparse.values, sparse.dense_shape)
    return parts


def parse_sparse(
    serialized: TensorLike,
    dtype: DTypeLike | None = None,
    rank: int | None = None,
    name: str | None = None,
    *,
    tf_compat: bool = False,
) -> Sparse:
    """The inverse of `serialize_sparse`, which TensorFlow itself does not offer: three strings [3]
    to the sparse tensor.

    >>> parse_sparse(serialize_sparse(Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3))))
    Sparse([0, 0]: np.float32(1.0), [1, 2]: np.float32(4.0); shape=(2, 3), nnz=2, float32)
    """
    rows = arguments.rows(serialized)
    if rows.shape != (3,):
        raise SchemaError(
            f"a serialized sparse tensor is 3 strings, not {rows.shape}; deserialize_many_sparse"
            " takes [N, 3]"
        )
    sparse = _parse_row(rows, dtype, _of_rows(rows, tf_compat))
    if rank is not None and sparse.indices.shape[1] != rank:
        raise SchemaError(f"a sparse tensor of rank {sparse.indices.shape[1]}, not {rank}")
    return sparse


def serialize_many_sparse(
    sp_input: TensorLike, out_type: DTypeLike = "string", name: str | None = None
) -> Array:
    """A batch of sparse tensors (the first dimension) as strings [N, 3].

    >>> serialize_many_sparse(Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3))).shape
    (2, 3)
    """
    sparse = _sparse(sp_input, out_type)
    if sparse.indices.shape[1] < 2:
        raise EncodeError(
            "serialize_many_sparse needs a rank of at least 2, the first being the batch"
        )
    order = sparse.order
    if order.first is not None:
        raise EncodeError(
            f"serialize_many_sparse needs indices in order and once each; number {order.first} is"
            " not; x.sort() sorts them"
        )
    count, shape = int(sparse.dense_shape[0]), sparse.dense_shape[1:]
    bounds = np.searchsorted(sparse.indices[:, 0], np.arange(count + 1)).tolist()
    parts: Array = np.empty((count, 3), object)
    for row, (start, stop) in enumerate(zip(bounds, bounds[1:], strict=False)):
        parts[row] = _sparse_parts(sparse.indices[start:stop, 1:], sparse.values[start:stop], shape)
    return parts


def deserialize_many_sparse(
    serialized_sparse: TensorLike,
    dtype: DTypeLike,
    rank: int | None = None,
    name: str | None = None,
    *,
    tf_compat: bool = False,
) -> Sparse:
    """Strings [N, 3] as one sparse tensor with the batch as its first dimension; the others are as
    large as the largest. `rank` is the result's, batch included (as TensorFlow checks it, whatever
    its documentation says).

    >>> rows = serialize_many_sparse(Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3)))
    >>> deserialize_many_sparse(rows, "float32").shape
    (2, 3)
    """
    rows = arguments.rows(serialized_sparse)
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
        raise SchemaError(
            f"serialized sparse tensors are strings [N, 3] with at least one row, not {rows.shape}"
        )
    codec = _of_rows(rows, tf_compat)
    found = [_parse_row(row, dtype, codec, number) for number, row in enumerate(rows)]
    ranks = {sparse.indices.shape[1] + 1 for sparse in found}
    if len(ranks) > 1 or (rank is not None and ranks != {rank}):
        raise SchemaError(
            f"sparse tensors of rank {sorted(ranks)}"
            + (f", not {rank}" if rank is not None else " in one batch")
        )
    batch = np.repeat(np.arange(len(found)), [sparse.nnz for sparse in found])
    indices = np.column_stack([batch, np.concatenate([sparse.indices for sparse in found])])
    shape = np.concatenate(
        [[len(found)], np.max([sparse.dense_shape for sparse in found], axis=0)]
    ).astype(np.int64)
    return Sparse(
        indices.astype(np.int64), _concatenate([sparse.values for sparse in found]), shape
    )


def _sparse(obj: TensorLike, out_type: DTypeLike) -> Sparse:
    if getattr(out_type, "name", out_type) != "string":
        raise EncodeError(
            "sparse tensors are serialized to strings; variants live only inside TensorFlow"
        )
    value = frameworks.tensor(obj)
    if not isinstance(value, Sparse):
        raise EncodeError(f"this takes a sparse tensor, not {describe(value)}")
    if value.values.ndim != 1:
        raise EncodeError("TensorFlow has no hybrid sparse tensors; tw.dumps holds them")
    return value


def _sparse_parts(indices: Array, values: Array | Strings, shape: Array) -> list[bytes]:
    return [_serialize(indices), _serialize(values), _serialize(shape)]


def _serialize(part: Array | Strings) -> bytes:
    """As serialize_tensor, but strings go to tensor_content: that is what TensorFlow's sparse ops
    write.
    """
    if not isinstance(part, Strings):
        return serialize_tensor(part)
    lengths = kernels.string_lengths(b"", part.data, part.offsets)
    content = len(lengths) + len(part.data)
    wire.check_size(content + 64)
    return kernels.join(
        [
            wire.string_header(part.shape, content if part.size else -1),
            lengths,
            memory.chunk(part.data),
        ]
    )


def _of_rows(rows: Array, tf_compat: bool) -> TensorProto:
    """A codec for all strings of a call."""
    return TensorProto(tf_compat=tf_compat).of_call(sum(map(len, rows.reshape(-1))))


def _parse_row(
    row: Array, dtype: DTypeLike | None, codec: TensorProto, number: int | None = None
) -> Sparse:
    try:
        indices, values, shape = (codec.decode(memory.flat(part)) for part in row)
        if (
            not isinstance(indices, np.ndarray)
            or not isinstance(shape, np.ndarray)
            or not isinstance(values, (np.ndarray, Strings))
        ):
            raise DecodeError(
                "a sparse tensor is indices, values and dense shape, in this order",
                format=wire.FORMAT,
            )
        validate.sparse(indices, values.shape, shape, DecodeError)
    except TensorwireError as error:
        raise error.add(record=number, format=wire.FORMAT) from None
    if dtype is not None:
        held = "string" if isinstance(values, Strings) else str(values.dtype)
        if held != ("string" if dtypes.is_string(dtype) else str(dtypes.named(dtype).numpy)):
            raise SchemaError(
                f"the values are {held}, not the {getattr(dtype, 'name', dtype)} that was"
                " asked for",
                format=wire.FORMAT,
                record=number,
            )
    return trusted(Sparse, indices, values, shape)


def _concatenate(values: list[Any]) -> Any:
    if isinstance(values[0], Strings):
        return Strings.of([item for part in values for item in part.tolist()], text=False)
    return np.concatenate(values)
