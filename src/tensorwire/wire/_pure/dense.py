from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import memory
from ..protobuf import MAX_MESSAGE, varint
from .tensor_scan import tensor_scan

_enum_of: dict[np.dtype[Any], int] = {}
_dtype_of: dict[int, np.dtype[Any]] = {}
_checked: set[int] = set()


def register_dtype(dtype: np.dtype[Any], tf_enum: int, writes: bool, checked: bool) -> None:
    if writes:
        _enum_of[dtype] = tf_enum
    _dtype_of[tf_enum] = dtype
    if checked:
        _checked.add(tf_enum)


def dense_header(dtype: int, shape: tuple[int, ...], content: int) -> bytes:
    dims = b""
    for dim in shape:
        body = b"\x08" + varint(dim) if dim else b""
        dims += b"\x12" + varint(len(body)) + body
    head = b"\x08" + varint(dtype) + b"\x12" + varint(len(dims)) + dims
    return head if content < 0 else head + b"\x22" + varint(content)


def encode_dense(array: Any) -> bytes | None:
    if type(array) is not np.ndarray:
        return None
    enum = _enum_of.get(array.dtype)
    if enum is None or not array.flags.c_contiguous or not array.flags.aligned or not array.dtype.isnative:
        return None
    head = dense_header(enum, array.shape, array.nbytes or -1)
    return None if len(head) + array.nbytes > MAX_MESSAGE else head + array.tobytes()


def decode_dense(data: Any, copy: bool) -> np.ndarray[Any, Any] | None:
    view = memory.flat(data)
    code, _, enum, shape, _, _, _, has_content, at, size, _ = tensor_scan(view, True, True)
    dtype = _dtype_of.get(enum)
    if code or dtype is None or enum in _checked or len(shape) > 32:
        return None
    # Only TensorFlow's own form: rebuilding the header must give the same bytes, with the content at the very end.
    head = dense_header(enum, shape, size if has_content else -1)
    if bytes(view[: len(head)]) != head or len(view) != len(head) + size or math.prod(shape) * dtype.itemsize != size:
        return None
    return memory.dense(view, at, dtype, shape, copy or None)
