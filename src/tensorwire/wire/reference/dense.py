"""Dense TensorProto messages, and the table of dtypes that all kernels share."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...core import memory
from ..status import MAX_MESSAGE
from .protobuf import to_varint
from .tensor_scan import tensor_scan


class Row(NamedTuple):
    dtype: np.dtype[Any]
    enum: int
    safetensors: str
    writes: bool
    checked: bool


rows: list[Row] = []
"""The dtype table, filled by `register_dtype`."""


def register_dtype(
    dtype: np.dtype[Any], tf_enum: int, safetensors: str, writes: bool, checked: bool
) -> None:
    rows.append(Row(dtype, tf_enum, safetensors, writes, checked))


def writable_row(array: Any) -> Row | None:
    """Return the row of an array that can be written as it is in memory, else None."""
    if (
        type(array) is not np.ndarray
        or not array.flags.c_contiguous
        or not array.flags.aligned
        or not array.dtype.isnative
    ):
        return None
    return next((row for row in rows if row.writes and row.dtype == array.dtype), None)


def dense_header(dtype: int, shape: tuple[int, ...], content: int) -> bytes:
    dims = b""
    for dim in shape:
        body = b"\x08" + to_varint(dim) if dim else b""
        dims += b"\x12" + to_varint(len(body)) + body
    head = b"\x08" + to_varint(dtype) + b"\x12" + to_varint(len(dims)) + dims
    return head if content < 0 else head + b"\x22" + to_varint(content)


def encode_dense(array: Any) -> bytes | None:
    row = writable_row(array)
    if row is None or not row.enum:
        return None
    head = dense_header(row.enum, array.shape, array.nbytes or -1)
    return None if len(head) + array.nbytes > MAX_MESSAGE else head + array.tobytes()


def decode_dense(data: Any, copy: bool) -> np.ndarray[Any, Any] | None:
    view = memory.flat(data)
    code, _, enum, shape, _, _, _, has_content, offset, size, _ = tensor_scan(view, True, True)
    row = next((row for row in rows if enum and row.enum == enum), None)
    if code or row is None or row.checked or len(shape) > 32:
        return None
    if math.prod(dim or 1 for dim in shape) * row.dtype.itemsize >= 1 << 63:
        # NumPy refuses such a shape even if it has no elements.
        return None
    # Only the form that TensorFlow writes: the header must be the one that `dense_header` builds,
    # and the content must be the last field. All other messages take the general path.
    head = dense_header(enum, shape, size if has_content else -1)
    if (
        bytes(view[: len(head)]) != head
        or len(view) != len(head) + size
        or math.prod(shape) * row.dtype.itemsize != size
    ):
        return None
    return memory.dense(view, offset, row.dtype, shape, copy or None)
