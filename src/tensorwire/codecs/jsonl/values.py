"""Conversion between the values of JSON lines and columns.

No number is changed silently. Decimal fractions are rounded to the dtype of the column. Everything
else is converted exactly, or raises SchemaError.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._errors import EncodeError, SchemaError
from ...core import dtypes
from ...core.tensors import Array, Ragged, Strings
from ...records.batch import BatchColumn, spread
from ...records.schema import BYTES, FLOAT, INT64, Feature

FORMAT = "jsonl"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAN = re.compile(r"NaN\(((?:[0-9a-f]{2}){1,8})\)")
"""A NaN with other bits than the default one, by its bits in hexadecimal: `"NaN(ffc00000)"`."""
_ANOTHER = "schema= declares another dtype"
_EXACT = 2.0**53
"""float64 holds every integer up to this one."""


class _Nan(float):
    """A NaN with the bits that the text gives."""

    bits: bytes
    """Big-endian, with the width of the dtype that was written."""

    def __new__(cls, bits: bytes) -> _Nan:
        made = super().__new__(cls, math.nan)
        made.bits = bits
        return made


def is_number(text: str) -> bool:
    """Whether a string is the word for a float that is not a JSON number."""
    return text in _WORDS or _NAN.fullmatch(text) is not None


def to_column(values: list[Any], there: Array, feature: Feature) -> Any:
    """Returns the values of all rows as a column. The `record` of an error is its row.

    `there` is true for the rows that have a value.
    """
    if feature.encoding == "tensor" and feature.shape is not None and not feature.fixed:
        return _lists(values, feature)
    plain = _plain(feature)
    items, splits = _flat(values, plain)
    try:
        packed = _packed(items, plain)
    except SchemaError as error:
        # Until now the record is the position among all values. The splits give its row.
        if error.record is not None:
            error.record = int(np.searchsorted(splits, error.record, "right")) - 1
        raise
    shape = plain.shape or ()
    if None in shape:
        return Ragged(packed, splits)
    return spread(packed.reshape(int(there.sum()), *shape), there)


_BLANK = object()
"""An item of a missing row. It differs from a null within a row, which no tensor can hold."""


def _lists(values: list[Any], feature: Feature) -> Any:
    """Returns nested lists as a Ragged with the shape of the feature.

    A missing row is empty in ragged dimensions, and has zeros or empty strings in fixed ones.
    """
    shape = feature.shape or ()
    plain = _plain(Feature(BYTES, (), feature.dtype, encoding="tensor", text=feature.text))
    convert = _converter(plain)
    lengths: list[list[int]] = [[] for _ in shape]
    items: list[Any] = []
    rows: list[int] = []
    zero: Any = b"" if plain.kind == BYTES else 0

    def add(value: object, axis: int) -> None:
        if axis == len(shape):
            items.append(zero if value is _BLANK else convert(value))
            return
        dim = shape[axis]
        inside = [_BLANK] * (dim or 0) if value is _BLANK else value
        if not isinstance(inside, list) or dim not in (None, len(inside)):
            raise SchemaError(f"expected lists of the schema's shape {shape}, found {value!r:.60}")
        lengths[axis].append(len(inside))
        for item in inside:
            add(item, axis + 1)

    for row, value in enumerate(values):
        try:
            add(_BLANK if value is None else value, 0)
        except SchemaError as error:
            raise error.add(record=row) from None
        rows.append(len(items))
    try:
        packed = _packed(items, plain)
    except SchemaError as error:
        # Until now the record is the position among all values. `rows` has the end of each row.
        if error.record is not None:
            error.record = int(np.searchsorted(rows, error.record, "right"))
        raise
    depth = 1 + max(axis for axis, dim in enumerate(shape) if dim is None)
    splits = [
        np.concatenate([[0], np.cumsum(lengths_of_axis, dtype=np.int64)])
        for lengths_of_axis in lengths[:depth]
    ]
    return Ragged(
        packed.reshape(int(splits[-1][-1]), *(dim or 0 for dim in shape[depth:])),
        splits,
        shape[:depth],
    )


def _plain(feature: Feature) -> Feature:
    """Returns the feature of the plain values of a tensor that an Example holds as bytes."""
    if feature.encoding not in ("tensor", "raw") or not feature.fixed:
        return feature
    if feature.dtype == "string":
        return Feature(BYTES, feature.shape, text=feature.text)
    kind = INT64 if dtypes.named(feature.dtype).numpy.kind in "iub" else FLOAT
    return Feature(kind, feature.shape, feature.dtype)


def _flat(values: list[Any], feature: Feature) -> tuple[list[Any], Array]:
    """Returns the values of all rows in one list, and the offset of each row in it."""
    convert, shape = _converter(feature), feature.shape or ()
    items: list[Any] = []
    ends = [0]
    for row, value in enumerate(values):
        try:
            if value is not None and shape:
                items += map(convert, _leaves(value, shape, feature.length))
            elif value is not None:
                items.append(convert(value))
        except SchemaError as error:
            raise error.add(record=row) from None
        ends.append(len(items))
    return items, np.array(ends, np.int64)


def _leaves(value: object, shape: tuple[int | None, ...], length: int) -> list[Any]:
    """Returns the values of a list that is nested like the shape.

    A flat list of all values is accepted too, and a single value for a list of one.
    """
    items: list[Any] = value if isinstance(value, list) else [value]
    if list in map(type, items):
        fits = shape[0] in (None, len(items))
        for dim in shape[1:]:
            fits = fits and all(type(item) is list and len(item) == dim for item in items)
            items = [leaf for item in items for leaf in item] if fits else items
        if not fits or list in map(type, items):
            raise SchemaError(
                f"expected nested lists of the schema's shape {shape}, found {value!r:.60}"
            )
    if 0 <= length != len(items):
        raise SchemaError(f"expected {length} values by the schema, found {len(items)}")
    return items


def _converter(feature: Feature) -> Callable[[Any], Any]:
    if feature.kind == BYTES:
        return _string
    return _integer(feature.dtype) if _are_integers(feature) else _number


def _are_integers(feature: Feature) -> bool:
    return feature.kind == INT64 and dtypes.named(feature.dtype).numpy.kind in "iub"


def _string(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise SchemaError(f"invalid base64 in {value!r:.60} ({error})") from None
    raise SchemaError(f'expected text or {{"b64": ...}}, found {value!r:.60}')


def _integer(dtype: str) -> Callable[[Any], int]:
    low, high = dtypes.bounds(dtypes.named(dtype))

    def convert(value: object) -> int:
        if type(value) is not int and (dtype != "bool" or type(value) is not bool):
            raise SchemaError(f"expected {dtype}, found {value!r:.60}", hint=_ANOTHER)
        if not low <= value <= high:
            raise SchemaError(f"{value!r:.60} is out of range for {dtype}", hint=_ANOTHER)
        return value

    return convert


def _number(value: object) -> int | float:
    if type(value) is float:
        return value
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, str) and (match := _NAN.fullmatch(value)):
        return _Nan(bytes.fromhex(match[1]))
    if type(value) is not int:
        raise SchemaError(f"expected a number, found {value!r:.60}")
    try:
        float(value)
    except OverflowError:
        raise SchemaError(
            f"{value!r:.60} is out of range for any float", hint="columns= leaves the feature out"
        ) from None
    return value


def _packed(items: list[Any], feature: Feature) -> Any:
    if feature.kind == BYTES:
        strings = Strings.of(items, text=False)
        return strings.astext() if feature.text else strings
    if not _are_integers(feature):
        return _floats(items, feature.dtype)
    return np.array(items, np.uint64 if feature.dtype == "uint64" else np.int64).astype(
        dtypes.named(feature.dtype).numpy
    )


def _floats(items: list[Any], dtype: str) -> Array:
    """Converts numbers to a dtype that may round decimal fractions, and nothing else.

    The `record` of an error is the position of the number.
    """
    wide = np.array(items, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        made: Array = wide.astype(dtypes.named(dtype).numpy)
        back = made.real.astype(np.float64)
    same = (back == wide) | (np.isnan(back) & np.isnan(wide))
    rounds = np.isfinite(wide) & np.isfinite(back) & (not dtype.startswith(("int", "uint", "bool")))
    if len(lost := np.flatnonzero(~same & ~rounds)):
        raise _changed(items, int(lost[0]), f"does not fit {dtype}", dtype)
    # An integer must not be rounded. Only those that changed, or that are too large for the
    # comparison in float64 to be exact, are compared one by one.
    for place in np.flatnonzero(
        (~same & (wide == np.rint(wide))) | (np.abs(wide) >= _EXACT)
    ).tolist():
        if type(items[place]) is int and items[place] != int(back[place]):
            raise _changed(items, place, f"is an integer that {dtype} cannot hold exactly", dtype)
    for place in np.flatnonzero(np.isnan(wide)).tolist():
        item = items[place]
        if isinstance(item, _Nan):
            exact = _nan_of(item.bits, made.dtype)
            if exact is None:
                why = f"NaN({item.bits.hex()}) is not a NaN of {dtype}"
                raise SchemaError(why, record=place, hint=_ANOTHER)
            made[place : place + 1] = exact
    return made


def _nan_of(bits: bytes, dtype: np.dtype[Any]) -> Array | None:
    """Returns a NaN with these bits as an array of one element.

    None if the dtype cannot hold the bits, or they are not a NaN. The bits of a float16 or bfloat16
    are kept only if the schema declares that dtype, since both have 16 bits.
    """
    if len(bits) < 4 <= dtype.itemsize:
        return np.array([math.nan], dtype)
    raw: Array = np.frombuffer(bits[::-1], np.uint8)
    if len(bits) == dtype.itemsize:
        made: Array = raw.view(dtype)
    elif {len(bits), dtype.itemsize} == {4, 8}:
        # A NaN of float32 can be a float64, and the other way round if its low bits are zero.
        with np.errstate(invalid="ignore"):
            given = raw.view(f"f{len(bits)}")
            made = given.astype(dtype)
            if made.astype(given.dtype).tobytes() != given.tobytes():
                return None
    else:
        return None
    return made if np.isnan(made[0]) else None


def _changed(items: list[Any], place: int, why: str, dtype: str) -> SchemaError:
    """Returns the error for a number that the conversion to `dtype` would change."""
    hint = _ANOTHER
    if dtype != "float64":
        hint += "; without schema=, tensors= keeps float64 and cast= rounds"
    return SchemaError(f"{items[place]!r:.60} {why}", record=place, hint=hint)


def from_column(column: BatchColumn) -> list[Any]:
    """Returns a column as a list of JSON values, one per row."""
    if isinstance(column, Ragged):
        return _nested(column)
    if isinstance(column, Strings):
        flat = column.reshape(-1).tolist()
        items = flat if column.text else [{"b64": base64.b64encode(item).decode()} for item in flat]
        return _shaped(items, column.shape)
    row = dtypes.of(column.dtype)
    if row.name.startswith(("int", "uint", "bool")):
        # NumPy has no tolist() for int4 and the other types of ml_dtypes.
        whole = column if column.dtype.kind in "iub" else column.astype(np.int64)
        return whole.tolist()  # type: ignore[no-any-return]
    if column.dtype.kind == "c":
        raise EncodeError("JSON cannot store complex numbers", format=FORMAT)
    # Signalling NaNs would raise a warning.
    with np.errstate(invalid="ignore"):
        wide = column.astype(np.float64)
    if np.isfinite(wide).all():
        return wide.tolist()  # type: ignore[no-any-return]
    return _shaped(_words(np.ascontiguousarray(column).reshape(-1), wide.reshape(-1)), column.shape)


def _words(flat: Array, wide: Array) -> list[Any]:
    """Returns numbers as a list, with words for floats that are not JSON numbers."""
    items: list[Any] = wide.tolist()
    bits = flat.view(f"u{flat.itemsize}")
    usual = np.array([math.nan]).astype(flat.dtype).view(bits.dtype)[0]
    for place in np.flatnonzero(~np.isfinite(wide)).tolist():
        if math.isinf(items[place]):
            items[place] = "Infinity" if items[place] > 0 else "-Infinity"
        elif bits[place] == usual:
            items[place] = "NaN"
        else:
            items[place] = f"NaN({int(bits[place]):0{2 * flat.itemsize}x})"
    return items


def _shaped(items: list[Any], shape: tuple[int, ...]) -> list[Any]:
    for axis in reversed(range(1, len(shape))):
        dim = shape[axis]
        items = [items[i * dim : (i + 1) * dim] for i in range(math.prod(shape[:axis]))]
    return items


def _nested(column: Ragged) -> list[Any]:
    rows = from_column(column.values)
    for splits in reversed(column.row_splits):
        bounds = splits.tolist()
        rows = [rows[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return rows
