"""RaggedTensorVariant: TensorFlow's encoding of a ragged tensor in a TensorProto of DT_VARIANT.

1. tensor_content has the lengths of the VariantTensorDataProtos, one for each element of the shape,
   and then these messages.
2. Such a message has the name of the type, and TensorProtos: the row_splits from the outermost to
   the innermost, and then the values. They use typed fields, not tensor_content.
3. Uniform row lengths, and the difference between text and bytes, are lost, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._errors import DecodeError, EncodeError
from ...core import dtypes, memory, validate
from ...core.tensors import Array, Ragged, Strings, trusted
from ...wire import example, kernels, protobuf
from ...wire import tensorproto as wire
from ...wire.status import problem
from ...wire.tensorproto import FORMAT

TYPE = b"RaggedTensorVariant"
_SCALAR = b"\x08\x15\x12\x00"
"""The fields dtype (DT_VARIANT) and tensor_shape (without dimensions)."""
_FIXED = {5, 6, 9, 12, 18}
"""Typed fields whose packed values are the bytes of the array. The others hold varints."""


def write(ragged: Ragged) -> list[Any]:
    """Encodes a ragged tensor exactly as `tf.io.serialize_tensor` does."""
    chunks: list[Any] = [b"\x0a" + protobuf.varint(len(TYPE)) + TYPE]
    for part in (*ragged.row_splits, ragged.values):
        proto = write_typed(part)
        chunks += [b"\x1a" + protobuf.varint(sum(map(len, proto))), *proto]
    size = protobuf.varint(sum(map(len, chunks)))
    content = len(size) + sum(map(len, chunks))
    wire.check_size(content)
    return [_SCALAR + b"\x22" + protobuf.varint(content) + size, *chunks]


def write_typed(part: Array | Strings) -> list[Any]:
    """Encodes a TensorProto with its values in a typed field, which is left out if it is empty."""
    if isinstance(part, Strings):
        return [kernels.string_vals(wire.string_header(part.shape), part.data, part.offsets)]
    row = dtypes.of(part.dtype)
    if row.tf is None:
        raise EncodeError(f"unsupported dtype in TensorFlow: {row.name}", format=FORMAT)
    head = kernels.dense_header(row.tf, part.shape, -1)
    if not part.size:
        return [head]
    flat = np.ascontiguousarray(part).reshape(-1)
    if row.field in _FIXED:
        values: Any = flat.view(np.uint8).data
    else:
        values = example.packed(_integers(row, flat))
        if values is None:
            wire.check_size(1 << 31)
    return [head + protobuf.varint(row.field << 3 | 2) + protobuf.varint(len(values)), values]


def _integers(row: dtypes.DType, values: Array) -> Array:
    """Returns the integers of the varints: the values, or the bits of float16 and bfloat16."""
    if row.field == 13:
        return values.view(np.uint16).astype(np.int64)
    return values.view(np.int64) if row.name == "uint64" else values.astype(np.int64)


def read(
    data: memoryview,
    message: wire.Message,
    strict: bool,
    copy: bool | None,
    part: Callable[[int, int], Array | Strings],
) -> Ragged:
    """Returns the ragged tensor of a variant. A vector of variants has one more dimension.

    `part` reads a TensorProto in `data`.
    """
    count = wire.check_shape(message, strict, 1)
    if (
        message.content is None
        or len(message.shape) > 1
        or count == 0
        or count > message.content[1]
    ):
        raise DecodeError("the variant is not a ragged tensor in tensor_content")
    offset, size = message.content
    code, header, offsets = kernels.parse_string_lengths(data[offset : offset + size], count)
    if code:
        raise problem(code, offset + header, FORMAT)
    bounds = (offset + header + offsets).tolist()
    rows = [
        _parts(data, start, stop, part) for start, stop in zip(bounds, bounds[1:], strict=False)
    ]
    splits, values = _stack(rows) if message.shape else (rows[0][:-1], rows[0][-1])
    if not copy:
        for array in (
            *splits,
            *((values.data, values.offsets) if isinstance(values, Strings) else (values,)),
        ):
            memory.read_only(array)
    if not values.ndim:
        raise DecodeError("the values of a ragged variant must not be a scalar", offset=offset)
    validate.ragged(len(values), splits, [None] * len(splits), DecodeError)
    return trusted(Ragged, values, tuple(splits), (None,) * len(splits))


def _parts(
    data: memoryview, start: int, stop: int, part: Callable[[int, int], Array | Strings]
) -> list[Any]:
    """Returns the row_splits and the values of one VariantTensorDataProto."""
    name, parts = None, []
    for field in protobuf.fields(data, FORMAT, start, stop):
        if field.number == 1 and isinstance(field.value, tuple) and name is None:
            name = bytes(data[slice(*field.value)])
        elif field.number == 3 and isinstance(field.value, tuple):
            parts.append(part(*field.value))
        else:
            raise DecodeError(
                "unexpected field in the variant of a ragged tensor", offset=field.offset
            )
    if name != TYPE or not parts:
        raise DecodeError(f"expected a variant of type {TYPE!r}, found {name!r:.60}", offset=start)
    if any(not isinstance(splits, np.ndarray) or splits.ndim != 1 for splits in parts[:-1]):
        raise DecodeError("the row_splits of a ragged variant must be vectors", offset=start)
    return parts


def _stack(rows: list[list[Any]]) -> tuple[list[Array], Any]:
    """Joins the elements of a vector of variants to a ragged tensor with one more dimension."""
    # The outer splits count the rows of each element. The splits of every level are shifted by the
    # number of values in the elements before them.
    depth = len(rows[0])
    values = [row[-1] for row in rows]
    alike = {(part.shape[1:], part.ndim, getattr(part, "dtype", "string")) for part in values}
    if (
        any(len(row) != depth for row in rows)
        or len(alike) > 1
        or not values[0].ndim
        or any(len(splits) == 0 for row in rows for splits in row[:-1])
    ):
        raise DecodeError("the elements of a ragged variant differ in depth, dtype or shape")
    outer = np.cumsum([0] + [len(row[0]) - (1 if depth > 1 else 0) for row in rows])
    splits = [outer.astype(rows[0][0].dtype if depth > 1 else np.int64)]
    for level in range(depth - 1):
        base, pieces = 0, [np.zeros(1, rows[0][level].dtype)]
        for row in rows:
            pieces.append(row[level][1:] + row[level].dtype.type(base))
            base += int(row[level][-1])
        splits.append(np.concatenate(pieces))
    if isinstance(values[0], Strings):
        lengths = np.concatenate([np.diff(part.offsets) for part in values])
        data = np.concatenate([part.data for part in values])
        return splits, trusted(
            Strings,
            data,
            np.concatenate([[0], np.cumsum(lengths)]),
            (len(lengths),),
            values[0].text,
        )
    return splits, np.concatenate(values)
