"""What stands in JSON lines as columns, and columns as what stands there.

No number is changed in silence: decimal fractions are rounded to what the column holds, all else is
kept exactly, or is an error.
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
"""A NaN with other bits than the usual one, by its bits in hexadecimal: `"NaN(ffc00000)"`."""
_ANOTHER = "schema= says another dtype"
_EXACT = 2.0**53
"""Up to here, float64 holds every integer."""


class _Nan(float):
    """A NaN that knows its bits."""

    bits: bytes
    """Big-endian, as many as its dtype has."""

    def __new__(cls, bits: bytes) -> _Nan:
        made = super().__new__(cls, math.nan)
        made.bits = bits
        return made


def is_number(text: str) -> bool:
    """Whether a string stands for a float that JSON has no number for."""
    return text in _WORDS or _NAN.fullmatch(text) is not None


def to_column(values: list[Any], there: Array, feature: Feature) -> Any:
    """One value a row (`there` says which rows have one), as a column. An error knows its row."""
    if feature.encoding == "tensor" and feature.shape is not None and not feature.fixed:
        return _lists(values, feature)
    plain = _plain(feature)
    items, splits = _flat(values, plain)
    try:
        packed = _packed(items, plain)
    except SchemaError as error:
        if error.record is not None:  # so far the place among all values
            error.record = int(np.searchsorted(splits, error.record, "right")) - 1
        raise
    shape = plain.shape or ()
    if None in shape:
        return Ragged(packed, splits)
    return spread(packed.reshape(int(there.sum()), *shape), there)


_BLANK = object()
"""An item of a row that is missing. A null inside a row is not one: no tensor holds it."""


def _lists(values: list[Any], feature: Feature) -> Any:
    """Lists of lists as a Ragged, by the shape of the feature.

    What is missing is empty, or has blank items, where the schema says how many.
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
            raise SchemaError(f"{value!r:.60}: not lists of the shape {shape} that the schema says")
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
        if error.record is not None:  # so far the place among all values
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
    """The values of a feature that an Example holds as one tensor stand here as what they are."""
    if feature.encoding not in ("tensor", "raw") or not feature.fixed:
        return feature
    if feature.dtype == "string":
        return Feature(BYTES, feature.shape, text=feature.text)
    kind = INT64 if dtypes.named(feature.dtype).numpy.kind in "iub" else FLOAT
    return Feature(kind, feature.shape, feature.dtype)


def _flat(values: list[Any], feature: Feature) -> tuple[list[Any], Array]:
    """(what is in all rows, one behind the other; where each row begins)"""
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
    """The values of a list that nests as the shape does. All in one list will do as well, and one
    value for a list of one.
    """
    items: list[Any] = value if isinstance(value, list) else [value]
    if list in map(type, items):
        fits = shape[0] in (None, len(items))
        for dim in shape[1:]:
            fits = fits and all(type(item) is list and len(item) == dim for item in items)
            items = [leaf for item in items for leaf in item] if fits else items
        if not fits or list in map(type, items):
            raise SchemaError(
                f"{value!r:.60}: lists in lists that are not of the shape {shape} that the schema"
                " says"
            )
    if 0 <= length != len(items):
        raise SchemaError(f"{len(items)} values, and the schema says {length}")
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
            raise SchemaError(f"{value!r:.60}: no base64 ({error})") from None
    raise SchemaError(f'{value!r:.60}: not text, nor {{"b64": ...}}')


def _integer(dtype: str) -> Callable[[Any], int]:
    low, high = dtypes.bounds(dtypes.named(dtype))

    def convert(value: object) -> int:
        if type(value) is not int and (dtype != "bool" or type(value) is not bool):
            raise SchemaError(f"{value!r:.60}: not {dtype}; {_ANOTHER}")
        if not low <= value <= high:
            raise SchemaError(f"{value!r:.60}: does not fit {dtype}; {_ANOTHER}")
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
        raise SchemaError(f"{value!r:.60}: no number")
    try:
        float(value)
    except OverflowError:
        raise SchemaError(
            f"{value!r:.60}: past what any float holds; columns= leaves the feature out"
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
    """Numbers in a dtype that may round decimal fractions, and nothing else. The `record` of an
    error is the place of the number.
    """
    wide = np.array(items, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        made: Array = wide.astype(dtypes.named(dtype).numpy)
        back = made.real.astype(np.float64)
    same = (back == wide) | (np.isnan(back) & np.isnan(wide))
    rounds = np.isfinite(wide) & np.isfinite(back) & (not dtype.startswith(("int", "uint", "bool")))
    if len(lost := np.flatnonzero(~same & ~rounds)):
        raise _changed(items, int(lost[0]), f"does not fit {dtype}", dtype)
    for place in np.flatnonzero(
        (~same & (wide == np.rint(wide))) | (np.abs(wide) >= _EXACT)
    ).tolist():
        if type(items[place]) is int and items[place] != int(back[place]):
            raise _changed(items, place, f"an integer that {dtype} does not hold exactly", dtype)
    for place in np.flatnonzero(np.isnan(wide)).tolist():
        item = items[place]
        if isinstance(item, _Nan):
            exact = _nan_of(item.bits, made.dtype)
            if exact is None:
                why = f"NaN({item.bits.hex()}) is not a NaN of {dtype}; {_ANOTHER}"
                raise SchemaError(why, record=place)
            made[place : place + 1] = exact
    return made


def _nan_of(bits: bytes, dtype: np.dtype[Any]) -> Array | None:
    """A NaN as an array of one element.

    None if the dtype does not hold those bits, or they are not a NaN. The bits of a narrower float
    are kept only where the schema names its dtype: float16 and bfloat16 look alike.
    """
    if len(bits) < 4 <= dtype.itemsize:
        return np.array([math.nan], dtype)
    raw: Array = np.frombuffer(bits[::-1], np.uint8)
    if len(bits) == dtype.itemsize:
        made: Array = raw.view(dtype)
    elif {len(bits), dtype.itemsize} == {
        4,
        8,
    }:  # float32 and float64 hold each other's, as far as they go
        with np.errstate(invalid="ignore"):
            given = raw.view(f"f{len(bits)}")
            made = given.astype(dtype)
            if made.astype(given.dtype).tobytes() != given.tobytes():
                return None
    else:
        return None
    return made if np.isnan(made[0]) else None


def _changed(items: list[Any], place: int, why: str, dtype: str) -> SchemaError:
    hint = (
        ""
        if dtype == "float64"
        else "; where none is given, tensors= keeps float64, and cast= rounds"
    )
    return SchemaError(f"{items[place]!r:.60}: {why}; {_ANOTHER}{hint}", record=place)


def from_column(column: BatchColumn) -> list[Any]:
    """A column as what JSON has, one value a row."""
    if isinstance(column, Ragged):
        return _nested(column)
    if isinstance(column, Strings):
        flat = column.reshape(-1).tolist()
        items = flat if column.text else [{"b64": base64.b64encode(item).decode()} for item in flat]
        return _shaped(items, column.shape)
    row = dtypes.of(column.dtype)
    if row.name.startswith(("int", "uint", "bool")):
        # NumPy knows no tolist() of int4 and its like.
        whole = column if column.dtype.kind in "iub" else column.astype(np.int64)
        return whole.tolist()  # type: ignore[no-any-return]
    if column.dtype.kind == "c":
        raise EncodeError("JSON has no complex numbers", format=FORMAT)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = column.astype(np.float64)
    if np.isfinite(wide).all():
        return wide.tolist()  # type: ignore[no-any-return]
    return _shaped(_words(np.ascontiguousarray(column).reshape(-1), wide.reshape(-1)), column.shape)


def _words(flat: Array, wide: Array) -> list[Any]:
    """Numbers, and words for what JSON has no number for."""
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
