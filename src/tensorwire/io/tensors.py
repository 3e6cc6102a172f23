"""tf.io.serialize_tensor, parse_tensor and their sparse relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import frameworks
from .._errors import DecodeError, EncodeError, SchemaError, TensorwireError, UsageError
from ..codecs.tensorproto import TensorProto
from ..core import dtypes, memory, validate
from ..core.dtypes import DTypeLike
from ..core.tensors import Array, Ragged, Sparse, Strings, TensorLike, describe, trusted
from ..wire import kernels
from ..wire import tensorproto as wire
from . import arguments


def serialize_tensor(tensor: TensorLike, name: str | None = None) -> bytes:
    """Serialize a dense or string tensor as a TensorProto, byte for byte like TensorFlow.

    Raises EncodeError for sparse and ragged tensors.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> tw.io.serialize_tensor([1.0]) == tw.io.serialize_tensor(np.array([1], np.float32))
    True
    """
    value = arguments.tensor(tensor)
    if isinstance(value, (Sparse, Ragged)):
        raise EncodeError(
            f"serialize_tensor needs a dense or string tensor, not {describe(value)}",
            hint="use serialize_sparse or tw.dumps",
        )
    return kernels.encode_dense(value) or kernels.join(TensorProto().encode(value))


def parse_tensor(
    serialized: TensorLike, out_type: DTypeLike, name: str | None = None, *, tf_compat: bool = False
) -> Any:
    """Parse a serialized TensorProto into a tensor of dtype `out_type`.

    Raises SchemaError if the tensor has another dtype, and DecodeError for invalid bytes.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> tw.io.parse_tensor(tw.io.serialize_tensor(np.int32([1, 2])), "int32")
    array([1, 2], dtype=int32)
    """
    data = memory.flat(arguments.scalar(serialized))
    codec = TensorProto(tf_compat=tf_compat)
    value = codec.decode(data)
    if isinstance(value, (np.ndarray, Strings)):
        datatype = codec.scan(data).dtype
        expected = dtypes.STRING if dtypes.is_string(out_type) else dtypes.named(out_type).tf
        if datatype != expected:
            name_found = "string" if datatype == dtypes.STRING else dtypes.BY_TF[datatype].name
            raise SchemaError(
                f"expected a tensor of {getattr(out_type, 'name', out_type)}, got {name_found}",
                format=wire.FORMAT,
            )
        return arguments.objects(value)
    if isinstance(value, Ragged) and getattr(out_type, "name", out_type) == "variant":
        return value
    raise SchemaError(
        "expected a single tensor, got a nested value written by tensorwire",
        format=wire.FORMAT,
        hint="use tw.loads",
    )


def serialize_sparse(
    sp_input: TensorLike, out_type: DTypeLike = "string", name: str | None = None
) -> Array:
    """Serialize a sparse tensor as three strings: indices, values and dense shape as TensorProtos.

    Raises EncodeError for a tensor that is not sparse.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> sparse = tw.Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3))
    >>> [len(part) for part in tw.io.serialize_sparse(sparse)]
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
    """Parse the three strings of `serialize_sparse` into a Sparse. TensorFlow has no such function.

    Raises SchemaError if the dtype or the rank is not the given one.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> sparse = tw.Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3))
    >>> tw.io.parse_sparse(tw.io.serialize_sparse(sparse))
    Sparse([0, 0]: np.float32(1.0), [1, 2]: np.float32(4.0); shape=(2, 3), nnz=2, float32)
    """
    rows = arguments.rows(serialized)
    if rows.shape != (3,):
        raise SchemaError(
            f"a serialized sparse tensor has shape (3,), not {rows.shape}",
            hint="deserialize_many_sparse takes strings [N, 3]",
        )
    sparse = _parse_row(rows, dtype, _of_rows(rows, tf_compat))
    if rank is not None and sparse.indices.shape[1] != rank:
        raise SchemaError(
            f"expected a sparse tensor of rank {rank}, got rank {sparse.indices.shape[1]}"
        )
    return sparse


def serialize_many_sparse(
    sp_input: TensorLike, out_type: DTypeLike = "string", name: str | None = None
) -> Array:
    """Serialize a batch of sparse tensors (the first dimension) as strings [N, 3].

    Raises EncodeError for a tensor that is not sparse or whose indices are not sorted.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> sparse = tw.Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3))
    >>> tw.io.serialize_many_sparse(sparse).shape
    (2, 3)
    """
    sparse = _sparse(sp_input, out_type)
    if sparse.indices.shape[1] < 2:
        raise EncodeError(
            "serialize_many_sparse needs a rank of at least 2: the first dimension is the batch"
        )
    order = sparse.order
    if order.first is not None:
        raise EncodeError(
            f"serialize_many_sparse needs sorted and unique indices: number {order.first} is not",
            hint="sort them with x.sort()",
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
    """Parse strings [N, 3] into one Sparse with the batch as its first dimension.

    The other dimensions are those of the largest tensor. `rank` is the rank of the result, batch
    included (which is what TensorFlow checks, contrary to its documentation). Raises SchemaError if
    the dtype or the rank is not the given one.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> sparse = tw.Sparse([[0, 0], [1, 2]], np.float32([1, 4]), (2, 3))
    >>> rows = tw.io.serialize_many_sparse(sparse)
    >>> tw.io.deserialize_many_sparse(rows, "float32").shape
    (2, 3)
    """
    rows = arguments.rows(serialized_sparse)
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
        raise SchemaError(f"expected strings [N, 3] with at least one row, not {rows.shape}")
    codec = _of_rows(rows, tf_compat)
    tensors = [_parse_row(row, dtype, codec, number) for number, row in enumerate(rows)]
    ranks = {sparse.indices.shape[1] + 1 for sparse in tensors}
    if len(ranks) > 1 or (rank is not None and ranks != {rank}):
        raise SchemaError(
            f"sparse tensors of rank {sorted(ranks)}"
            + (f", not {rank}" if rank is not None else " in one batch")
        )
    batch = np.repeat(np.arange(len(tensors)), [sparse.nnz for sparse in tensors])
    indices = np.column_stack([batch, np.concatenate([sparse.indices for sparse in tensors])])
    shape = np.concatenate(
        [[len(tensors)], np.max([sparse.dense_shape for sparse in tensors], axis=0)]
    ).astype(np.int64)
    return Sparse(
        indices.astype(np.int64), _concatenate([sparse.values for sparse in tensors]), shape
    )


def _sparse(obj: TensorLike, out_type: DTypeLike) -> Sparse:
    if getattr(out_type, "name", out_type) != "string":
        raise UsageError("out_type must be string: variants exist only inside TensorFlow")
    value = frameworks.tensor(obj)
    if not isinstance(value, Sparse):
        raise EncodeError(f"expected a sparse tensor, not {describe(value)}")
    if value.values.ndim != 1:
        raise EncodeError("TensorFlow has no hybrid sparse tensors", hint="use tw.dumps")
    return value


def _sparse_parts(indices: Array, values: Array | Strings, shape: Array) -> list[bytes]:
    return [_serialize(indices), _serialize(values), _serialize(shape)]


def _serialize(part: Array | Strings) -> bytes:
    """Serialize like serialize_tensor, but with strings in tensor_content.

    TensorFlow's sparse ops write strings there.
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
    """Return a codec whose limits count for all strings of a call."""
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
                "expected the indices, values and dense shape of a sparse tensor, in this order",
                format=wire.FORMAT,
            )
        validate.sparse(indices, values.shape, shape, DecodeError)
    except TensorwireError as error:
        raise error.add(record=number, format=wire.FORMAT) from None
    if dtype is not None:
        value_dtype = "string" if isinstance(values, Strings) else str(values.dtype)
        if value_dtype != ("string" if dtypes.is_string(dtype) else str(dtypes.named(dtype).numpy)):
            raise SchemaError(
                f"expected values of {getattr(dtype, 'name', dtype)}, got {value_dtype}",
                format=wire.FORMAT,
                record=number,
            )
    return trusted(Sparse, indices, values, shape)


def _concatenate(values: list[Any]) -> Any:
    if isinstance(values[0], Strings):
        return Strings.of([item for part in values for item in part.tolist()], text=False)
    return np.concatenate(values)
