"""The table of element types: their names in NumPy, TensorFlow, safetensors, Arrow and KServe, and
TensorFlow's typed field for each.

To add a type, add a row. Types of less than a byte (int4, float4 ...) take one byte per element in
NumPy and in every format that tensorwire writes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .._errors import EncodeError, choices


class DType(NamedTuple):
    """A row of the table."""

    name: str
    numpy: np.dtype[Any]
    bits: int
    """Significant bits of an element, not those that it occupies: 4 for int4, 8 for bool."""
    tf: int | None = None
    """TensorFlow's DataType enum."""
    field: int = 0
    """TensorProto's typed field for this type (float_val is 5)."""
    safetensors: str | None = None
    arrow: str | None = None
    kserve: str | None = None
    reading_only: bool = False
    """Whether the type is read but never written: TensorFlow's quantized types, which are read as
    plain integers.
    """
    packed: str | None = None
    """Safetensors' name for the same type in packed form, which is read but never written."""


def _row(
    name: str,
    bits: int,
    tf: int | None,
    field: int,
    safetensors: str | None = None,
    arrow: str | None = None,
    kserve: str | None = None,
    packed: str | None = None,
) -> DType:
    kind = np.dtype(getattr(ml_dtypes, name, name))
    return DType(name, kind, bits, tf, field, safetensors, arrow, kserve, packed=packed)


TABLE: tuple[DType, ...] = (
    _row("float64", 64, 2, 6, "F64", "float64", "FP64"),
    _row("float32", 32, 1, 5, "F32", "float32", "FP32"),
    _row("float16", 16, 19, 13, "F16", "float16", "FP16"),
    _row("bfloat16", 16, 14, 13, "BF16", None, "BF16"),
    _row("float8_e5m2", 8, 24, 18, "F8_E5M2"),
    _row("float8_e4m3fn", 8, 25, 18, "F8_E4M3"),
    _row("float8_e4m3fnuz", 8, 26, 18, "F8_E4M3FNUZ"),
    _row("float8_e4m3b11fnuz", 8, 27, 18),
    _row("float8_e5m2fnuz", 8, 28, 18, "F8_E5M2FNUZ"),
    _row("float8_e8m0fnu", 8, None, 0, "F8_E8M0"),
    _row("float8_e4m3", 8, None, 0),
    _row("float8_e3m4", 8, None, 0),
    _row("float6_e2m3fn", 6, None, 0, packed="F6_E2M3"),
    _row("float6_e3m2fn", 6, None, 0, packed="F6_E3M2"),
    _row("float4_e2m1fn", 4, 33, 18, packed="F4"),
    _row("int64", 64, 9, 10, "I64", "int64", "INT64"),
    _row("int32", 32, 3, 7, "I32", "int32", "INT32"),
    _row("int16", 16, 5, 7, "I16", "int16", "INT16"),
    _row("int8", 8, 6, 7, "I8", "int8", "INT8"),
    _row("int4", 4, 29, 7),
    _row("int2", 2, 31, 7),
    _row("uint64", 64, 23, 17, "U64", "uint64", "UINT64"),
    _row("uint32", 32, 22, 16, "U32", "uint32", "UINT32"),
    _row("uint16", 16, 17, 7, "U16", "uint16", "UINT16"),
    _row("uint8", 8, 4, 7, "U8", "uint8", "UINT8"),
    _row("uint4", 4, 30, 7),
    _row("uint2", 2, 32, 7),
    _row("bool", 8, 10, 11, "BOOL", "bool", "BOOL"),
    _row("complex64", 64, 8, 9, "C64"),
    _row("complex128", 128, 18, 12),
    DType("qint8", np.dtype("int8"), 8, 11, 7, reading_only=True),
    DType("quint8", np.dtype("uint8"), 8, 12, 7, reading_only=True),
    DType("qint32", np.dtype("int32"), 32, 13, 7, reading_only=True),
    DType("qint16", np.dtype("int16"), 16, 15, 7, reading_only=True),
    DType("quint16", np.dtype("uint16"), 16, 16, 7, reading_only=True),
)

STRING = 7
"""TensorFlow's DT_STRING. Strings have no row, because they are not elements of a dense array."""
VARIANT = 21
"""TensorFlow's DT_VARIANT."""

BY_TF = {row.tf: row for row in TABLE if row.tf is not None}
BY_NAME = {row.name: row for row in TABLE}
BY_SAFETENSORS = {row.safetensors: row for row in TABLE if row.safetensors}
BY_PACKED = {row.packed: row for row in TABLE if row.packed}
_BY_NUMPY = {row.numpy: row for row in TABLE if not row.reading_only}
_BY_NUMBER = {row.numpy.num: row for row in TABLE if not row.reading_only}
"""Rows by NumPy's type number, which is the same in every byte order and faster to look up than a
dtype.
"""
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "bfloat": "bfloat16"}


def of(dtype: np.dtype[Any]) -> DType:
    """Return the row of a NumPy dtype in any byte order. Raises EncodeError if there is none.

    >>> of(np.dtype(">f4")).name
    'float32'
    """
    row = _BY_NUMBER.get(dtype.num) or _BY_NUMPY.get(
        dtype.newbyteorder("=") if dtype.kind in "iufc" else dtype
    )
    if row is None:
        hints = {
            "M": "store x.view('int64') and the unit",
            "m": "store x.view('int64') and the unit",
            "V": "store each field as an array of its own",
        }
        raise EncodeError(
            f"unsupported NumPy dtype {dtype}",
            hint=hints.get(dtype.kind, "convert it with x.astype(...)"),
        )
    return row


DTypeLike = object
"""An argument of `named`: a name, a NumPy dtype, a scalar type or a tf.DType."""


def named(dtype: Any) -> DType:
    """Return the row of a name, NumPy dtype, scalar type or tf.DType.

    >>> named("bfloat16").tf, named(np.float32).name
    (14, 'float32')
    """
    # Both tf.DType and np.dtype have an attribute `name`.
    name = getattr(dtype, "name", dtype)
    if isinstance(name, str):
        row = BY_NAME.get(_ALIASES.get(name, name))
        if row is not None:
            return row
    if not hasattr(dtype, "as_numpy_dtype"):
        try:
            return of(np.dtype(dtype))
        except TypeError:
            pass
    raise EncodeError(f"unknown dtype {dtype!r}{choices(name, BY_NAME)}")


def is_string(dtype: Any) -> bool:
    """Return whether a name, type or tf.DType denotes strings.

    >>> is_string("string"), is_string(bytes), is_string("int8")
    (True, True, False)
    """
    return dtype in (str, bytes) or getattr(dtype, "name", dtype) in (
        "string",
        "str",
        "bytes",
        "object",
    )


def bounds(row: DType) -> tuple[int, int]:
    """Return the lowest and highest value of an integer type; for other types, of the bit pattern.

    >>> bounds(named("int4")), bounds(named("bool")), bounds(named("bfloat16"))
    ((-8, 7), (0, 1), (0, 65535))
    """
    if row.name == "bool":
        return 0, 1
    if row.name.startswith(("int", "qint")):
        return -(1 << (row.bits - 1)), (1 << (row.bits - 1)) - 1
    return 0, (1 << min(row.bits, 64)) - 1


GROUPS = {4: (2, 1), 6: (4, 3)}
"""Bits of an element -> (elements, bytes) of the smallest group that fills whole bytes."""


def unpack(bits: int, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Unpack elements of 4 or 6 bits into one byte each. The first element has the lowest bits.

    >>> unpack(4, np.array([0x21, 0x43], np.uint8)).tolist()
    [1, 2, 3, 4]
    """
    count, size = GROUPS[bits]
    groups = data.reshape(-1, size)
    out: np.ndarray[Any, Any] = np.empty((len(groups), count), np.uint8)
    mask = (1 << bits) - 1
    for i in range(count):
        byte, shift = divmod(i * bits, 8)
        np.right_shift(groups[:, byte], shift, out=out[:, i])
        if shift + bits > 8:
            out[:, i] |= groups[:, byte + 1] << (8 - shift)
        out[:, i] &= mask
    return out.reshape(-1)


def noncanonical(row: DType, values: np.ndarray[Any, Any]) -> int | None:
    """Return the index of the first byte in flat uint8 `values` that is not a valid element.

    A bool is 0 or 1, and the upper bits of a type of less than a byte are zero. None if all bytes
    are valid.

    >>> noncanonical(named("bool"), np.array([0, 1, 2], np.uint8))
    2
    """
    highest = 1 if row.name == "bool" else (1 << row.bits) - 1
    if highest >= 255 or not len(values) or values.max() <= highest:
        return None
    # If another thread has changed the memory since the check above, argmax returns 0.
    return int((values > highest).argmax())
