"""A TensorProto by hand, as people write it who want neither TensorFlow nor a library: varints in
Python, exact bytes.

It is faster than it should be: it trusts its input, and gives an array wherever the content lies,
aligned or not.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

ENUMS = {
    np.dtype(np.float32): 1,
    np.dtype(np.float64): 2,
    np.dtype(np.int32): 3,
    np.dtype(np.uint8): 4,
    np.dtype(np.int64): 9,
    np.dtype(ml_dtypes.bfloat16): 14,
}
DTYPES = {number: dtype for dtype, number in ENUMS.items()}


def _varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def dumps(x: np.ndarray[Any, Any]) -> bytes:
    """dtype (field 1), shape (field 2) and tensor_content (field 4)."""
    shape = b""
    for dim in x.shape:
        size = b"\x08" + _varint(dim)
        shape += b"\x12" + _varint(len(size)) + size
    head = (
        b"\x08"
        + _varint(ENUMS[x.dtype])
        + b"\x12"
        + _varint(len(shape))
        + shape
        + b"\x22"
        + _varint(x.nbytes)
    )
    content = x.tobytes() if x.dtype.kind == "V" else x.data  # bfloat16 has no buffer format
    return b"".join((head, content))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def loads(data: bytes) -> np.ndarray[Any, Any]:
    """The inverse, for these three fields."""
    at, end = 0, len(data)
    dtype, shape, content = 0, [], 0
    while at < end:
        tag = data[at]
        value, at = _read_varint(data, at + 1)
        if tag == 0x08:
            dtype = value
        elif tag == 0x12:
            stop = at + value
            while at < stop:
                _, at = _read_varint(data, at + 1)
                dim, at = _read_varint(data, at + 1)
                shape.append(dim)
        elif tag == 0x22:
            content = at
            at += value
        else:
            raise ValueError(f"field {tag >> 3}")
    numpy = DTYPES[dtype]
    return np.frombuffer(data, numpy, (end - content) // numpy.itemsize, content).reshape(shape)
