"""TensorFlow's RaggedTensorVariant: a ragged tensor inside a TensorProto of dtype DT_VARIANT.

The content is, for each element of the proto's shape, the length of a VariantTensorDataProto, and
then these messages: the type's name and TensorProtos, the row_splits from the outermost to the
innermost and then the values, all in typed fields and not in tensor_content. What it cannot say is
lost in TensorFlow too: uniform row lengths, and that strings are text.
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
"""dtype DT_VARIANT, and a shape without dims."""
_FIXED = {5, 6, 9, 12, 18}
"""Typed fields whose packed values are the bytes in memory; the others are varints."""


def write(ragged: Ragged) -> list[Any]:
    """Exactly what `tf.io.serialize_tensor` gives for it."""
    chunks: list[Any] = [b"\x0a" + protobuf.varint(len(TYPE)) + TYPE]
    for part in (*ragged.row_splits, ragged.values):
        proto = write_typed(part)
        chunks += [b"\x1a" + protobuf.varint(sum(map(len, proto))), *proto]
    size = protobuf.varint(sum(map(len, chunks)))
    content = len(size) + sum(map(len, chunks))
    wire.check_size(content)
    return [_SCALAR + b"\x22" + protobuf.varint(content) + size, *chunks]


def write_typed(part: Array | Strings) -> list[Any]:
    """One TensorProto with its values in a typed field, which is left out when there are none."""
    if isinstance(part, Strings):
        return [kernels.string_vals(wire.string_header(part.shape), part.data, part.offsets)]
    row = dtypes.of(part.dtype)
    if row.tf is None:
        raise EncodeError(f"TensorFlow has no dtype {row.name}", format=FORMAT)
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
    """The numbers that stand in the varints: the values themselves, of half floats their bits."""
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
    """The ragged tensor of a scalar variant; a vector of variants is one with one more dimension.
    `part` reads a TensorProto of `data`.
    """
    count = wire.check_shape(message, strict, 1)
    if (
        message.content is None
        or len(message.shape) > 1
        or count == 0
        or count > message.content[1]
    ):
        raise DecodeError("a variant that is not a ragged tensor in tensor_content")
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
        raise DecodeError("the values of a ragged variant are a scalar", offset=offset)
    validate.ragged(len(values), splits, [None] * len(splits), DecodeError)
    return trusted(Ragged, values, tuple(splits), (None,) * len(splits))


def _parts(
    data: memoryview, start: int, stop: int, part: Callable[[int, int], Array | Strings]
) -> list[Any]:
    name, parts = None, []
    for field in protobuf.fields(data, FORMAT, start, stop):
        if field.number == 1 and isinstance(field.value, tuple) and name is None:
            name = bytes(data[slice(*field.value)])
        elif field.number == 3 and isinstance(field.value, tuple):
            parts.append(part(*field.value))
        else:
            raise DecodeError(
                "a variant with a field that ragged tensors do not have", offset=field.offset
            )
    if name != TYPE or not parts:
        raise DecodeError(f"a variant of type {name!r:.60}, not a ragged tensor", offset=start)
    if any(not isinstance(splits, np.ndarray) or splits.ndim != 1 for splits in parts[:-1]):
        raise DecodeError("the row_splits of a ragged variant are not vectors", offset=start)
    return parts


def _stack(rows: list[list[Any]]) -> tuple[list[Array], Any]:
    """Elements of a batched variant as one ragged tensor with one more dimension."""
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
