"""Columns from rows: one Python value or tensor per record, packed for the encoder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import frameworks
from .._errors import EncodeError, SchemaError, TensorwireError
from ..core import dtypes
from ..core.tensors import Array, Ragged, Strings, Tensor, trusted
from . import pack
from .pack import EXACTLY, Options, PackedColumn, merge
from .schema import BYTES, FLOAT, INT64, Feature


def from_list(
    name: str, values: Sequence[Any], options: Options, feature_before: Feature | None = None
) -> PackedColumn | None:
    """Pack one value per row; None is a missing value.

    Returns None if no row has a value, or if all have empty lists whose kind is unknown.
    `feature_before` is the feature of the rows before.
    """
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if not present.any():
        return None
    there = None if present.all() else present
    encoding = options.encoding(name) or (
        "tensor" if feature_before is not None and feature_before.encoding == "tensor" else ""
    )
    if (
        there is None
        and encoding in ("", "base64")
        and (uniform := _uniform(values, encoding, options.feature(name) or feature_before))
        is not None
    ):
        return uniform
    items = [row_value(value, number) for number, value in enumerate(values)]
    if encoding == "quantized":
        return _quantized_rows(items, (options.quantize or {})[name], there)
    declared = options.feature(name)
    shape = (
        declared.shape
        if declared is not None
        and not declared.encoding
        and declared.fixed
        and len(declared.shape or ()) > 1
        else None
    )
    if shape is not None:
        items = [_flattened(item, shape, number) for number, item in enumerate(items)]
    odd = next(
        (number for number, item in enumerate(items) if item is not None and _is_tensor(item)), None
    )
    if odd is not None and not encoding and (plain := feature_before or declared) is not None:
        source = "earlier rows have" if feature_before is not None else "the schema declares"
        raise EncodeError(
            f"the row is a tensor of shape {items[odd].shape}, but {source} {plain!r}",
            record=odd,
            hint=EXACTLY,
        )
    if encoding in ("tensor", "raw") or odd is not None:
        rows = _stacked([item for item in items if item is not None])
        vectors = isinstance(rows, list) and all(
            isinstance(row, np.ndarray) and row.ndim == 1 for row in rows
        )
        if encoding == "raw" and vectors and len({row.dtype for row in rows}) == 1:
            rows = Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
        column = pack.as_raw(rows, None) if encoding == "raw" else pack.as_tensors(rows, None)
        return column if there is None else _spread(column, present)
    lists = _lists(items, there, encoding, feature_before, declared)
    return (
        lists
        if lists is None or shape is None
        else replace(lists, feature=replace(lists.feature, shape=shape))
    )


def _uniform(values: Sequence[Any], encoding: str, plain: Feature | None) -> PackedColumn | None:
    """Pack rows of one type, and of one shape if they are arrays, in one step.

    Returns None for any other rows, and for values with errors. Those take the slow path, which
    handles each row and reports errors by row.
    """
    kind = type(values[0])
    if kind not in _UNIFORM_TYPES or any(type(value) is not kind for value in values):
        return None
    try:
        if kind is np.ndarray:
            dtype, shape = values[0].dtype, values[0].shape
            if (
                len(shape) > 1
                or 0 in shape
                or dtype.kind not in "biuf"
                or any(x.dtype != dtype or x.shape != shape for x in values)
            ):
                return None
            tensor: Any = frameworks.leaf(np.stack(values))
        elif kind is str or kind is bytes:
            tensor = Strings.of(values)
        else:
            tensor = np.array(values, _UNIFORM_TYPES[kind])
            tensor = _python_floats(tensor) if kind is float else tensor
        if plain is not None and (plain.kind != _kind(tensor) or len(plain.shape or ()) > 1):
            return None
        column = pack.as_lists(tensor.reshape(-1), encoding, math.prod(tensor.shape[1:]))
    except (OverflowError, EncodeError):
        return None
    return replace(column, feature=replace(column.feature, shape=tensor.shape[1:]))


_UNIFORM_TYPES = {
    str: None,
    bytes: None,
    bool: np.bool_,
    int: np.int64,
    float: np.float64,
    np.ndarray: None,
}


def _is_tensor(item: Tensor) -> bool:
    """Return whether a row must be a TensorProto."""
    return not isinstance(item, (np.ndarray, Strings)) or item.ndim > 1 or pack.needs_tensor(item)


def _flattened(item: Array | Strings | None, shape: tuple[int | None, ...], number: int) -> Any:
    """Return a row as the flat list that the schema declares instead of a TensorProto."""
    if item is None:
        return None
    if item.shape != shape:
        raise SchemaError(
            f"the schema declares shape {shape}, but the row has shape {item.shape}", record=number
        )
    return item.reshape(-1)


def row_value(value: object, number: int) -> Any:
    """Return the value of a row as a tensor.

    Python numbers become int64 and float32, the types of an Example.
    """
    if value is None:
        return None
    try:
        # np.float64 is a subclass of float and np.str_ of str, but they have explicit dtypes. So
        # NumPy scalars come first.
        if isinstance(value, np.ndarray | np.generic):
            return frameworks.leaf(value)
        if isinstance(value, (str, bytes)):
            return Strings.of([value], ())  # type: ignore[arg-type]
        if isinstance(value, bool):
            return np.asarray(value)
        if isinstance(value, int):
            return np.asarray(value, np.int64)
        if isinstance(value, float):
            return _python_floats(np.asarray(value))
        if isinstance(value, (list, tuple)):
            if not len(value):
                return _NOTHING
            tensor = frameworks.tensor(list(value))
            plain = (
                isinstance(tensor, np.ndarray)
                and tensor.dtype == np.float64
                and not _has_arrays(value)
            )
            return _python_floats(tensor) if plain else tensor
        if isinstance(value, Mapping):
            raise EncodeError(
                "a row cannot contain a dict: Examples are not nested",
                hint="give its entries names of their own, such as 'image/height'",
            )
        return pack.foreign(value)
    except OverflowError:
        raise EncodeError(
            f"{value!r:.40} does not fit int64",
            record=number,
            hint=f"make it np.uint64(x); {EXACTLY}",
        ) from None
    except TensorwireError as error:
        raise error.add(record=number) from None


_NOTHING = np.zeros(0, np.int64)
"""The value of an empty list. Its kind is determined by the other rows."""


def _has_arrays(value: Iterable[object]) -> bool:
    return any(
        isinstance(item, np.generic | np.ndarray)
        or (isinstance(item, (list, tuple)) and _has_arrays(item))
        for item in value
    )


def _python_floats(array: Array) -> Array:
    """Round Python floats to float32, as tf.train.FloatList does.

    Raises EncodeError if a finite number would become infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        out: Array = array.astype(np.float32)
    lost = np.isinf(out) & np.isfinite(array)
    if lost.any():
        raise EncodeError(
            f"{array[lost][0]} does not fit float32", hint=f"make it np.float64(x); {EXACTLY}"
        )
    return out


def _stacked(rows: list[Any]) -> Any:
    """Return uniform rows as one array, whose TensorProtos are written in one step; else the rows."""
    if rows and all(
        isinstance(row, np.ndarray) and row.shape == rows[0].shape and row.dtype == rows[0].dtype
        for row in rows
    ):
        return np.stack(rows)
    return rows


def _spread(column: PackedColumn, present: Array) -> PackedColumn:
    """Expand a column of the present rows to all rows; missing rows have no bytes."""
    assert column.offsets is not None
    offsets = column.offsets[np.r_[0, np.cumsum(present)]]
    return replace(column, offsets=offsets, present=present)


def _lists(
    items: list[Any],
    present: Array | None,
    encoding: str,
    feature_before: Feature | None,
    declared: Feature | None,
) -> PackedColumn | None:
    """Pack rows as lists of one kind, which all rows and the feature before them must share."""
    kinds = {_kind(item) for item in items if item is not None and item is not _NOTHING}
    source = "earlier rows are" if declared is None else "the schema declares"
    feature_before = declared or feature_before
    if feature_before is not None:
        kinds.add(feature_before.kind)
    if not kinds:
        return None
    if feature_before is None and len(kinds) > 1 and kinds != {INT64, FLOAT}:
        odd = _first_other(items, None)
        kind, others = _kind(items[odd]), " and ".join(sorted(kinds - {_kind(items[odd])}))
        raise EncodeError(
            f"the row is {kind}, but other rows are {others}: a feature must have the same kind in"
            " all records",
            record=odd,
        )
    wanted = BYTES if BYTES in kinds else FLOAT if FLOAT in kinds else INT64
    if feature_before is not None and (
        feature_before.kind != wanted or (BYTES in kinds and len(kinds) > 1)
    ):
        odd = _first_other(items, feature_before)
        hint = (
            "write all as float(x), or pass schema="
            if (feature_before.kind, wanted, declared) == (INT64, FLOAT, None)
            else None
        )
        raise EncodeError(
            f"the row is {_kind(items[odd])}, but {source} {feature_before.kind}",
            record=odd,
            hint=hint,
        )
    lengths = np.fromiter(
        (0 if item is None else item.size for item in items), np.int64, len(items)
    )
    scalars = all(item is None or item.ndim == 0 for item in items)
    there = [item for item in items if item is not None and (item is not _NOTHING)]
    if wanted == BYTES:
        texts = {item.text for item in there}
        flat: Any = Strings.of(
            [string for item in there for string in item.astext(False).reshape(-1)], text=False
        )
        inner = pack.as_lists(
            trusted(Strings, flat.data, flat.offsets, flat.shape, texts == {True}), encoding, 1
        )
    else:
        numbered = [
            (number, item)
            for number, item in enumerate(items)
            if item is not None and item is not _NOTHING
        ]
        parts = [_as_kind(item.reshape(-1), wanted, number) for number, item in numbered]
        names = {dtypes.of(item.dtype).name for item in there}
        inner = pack.as_lists(
            np.concatenate([*parts, np.zeros(0, pack.WIDEN[wanted])]), encoding, 1
        )
        inner = replace(
            inner, feature=replace(inner.feature, dtype=names.pop() if len(names) == 1 else "")
        )
    splits = np.zeros(len(items) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    same = {
        length for length, item in zip(lengths.tolist(), items, strict=True) if item is not None
    }
    shape: tuple[int | None, ...] = (
        () if scalars else tuple(same) if len(same) == 1 and same != {0} else (None,)
    )
    return replace(
        inner, feature=replace(inner.feature, shape=shape), splits=splits, present=present
    )


def _kind(item: Array | Strings) -> str:
    """Return the kind of list that holds an item."""
    if isinstance(item, Strings):
        return BYTES
    return FLOAT if dtypes.of(item.dtype).name.startswith(("float", "bfloat")) else INT64


def _first_other(items: list[Any], feature: Feature | None) -> int:
    """Return the number of the first row that is not of the feature's, or the first row's, kind."""
    kinds = [None if item is None or item is _NOTHING else _kind(item) for item in items]
    first = feature.kind if feature is not None else next(kind for kind in kinds if kind)
    return next((number for number, kind in enumerate(kinds) if kind not in (None, first)), 0)


def _as_kind(values: Array, wanted: str, number: int) -> Array:
    try:
        kind, array = pack.as_numbers(values)
    except EncodeError as error:
        error.record = number
        raise
    if kind == wanted:
        return array
    # An integer among floats is written as a float if that is exact.
    wide = array.astype(np.float32)
    if (wide.astype(np.int64) != array).any():
        raise EncodeError(
            f"the integer {array[0]} among floats does not fit float32", record=number
        )
    return wide


def _quantized_rows(items: list[Any], scheme: str, present: Array | None) -> PackedColumn:
    rows = [item for item in items if item is not None]
    for number, item in enumerate(items):
        if item is not None and not isinstance(item, np.ndarray):
            raise EncodeError("quantize needs rows of floats", record=number)
    there = np.ones(len(items), np.bool_) if present is None else present
    stacked = _stacked(rows)
    if isinstance(stacked, np.ndarray):
        column = pack.as_quantized(stacked, scheme, None)
        row_splits = column.splits
        assert row_splits is not None and column.offsets is not None
        count = len(column.offsets) - 1
        strings = trusted(Strings, column.values, column.offsets, (count,), False)
        counts = np.where(there, np.int64(row_splits[1]) if len(row_splits) > 1 else 0, 0)
        feature = column.feature
    else:
        columns = [pack.as_quantized(row[None], scheme, None) for row in rows]
        packed = [
            trusted(Strings, c.values, c.offsets, (len(c.offsets) - 1,), False)
            for c in columns
            if c.offsets is not None
        ]
        strings = Strings.of([item for part in packed for item in part], text=False)
        string_counts = iter(int(c.splits[-1]) for c in columns if c.splits is not None)
        counts = np.fromiter(
            (next(string_counts) if is_there else 0 for is_there in there.tolist()),
            np.int64,
            len(items),
        )
        feature = columns[0].feature
        for other in columns[1:]:
            feature = merge(feature, other.feature)
    splits = np.zeros(len(items) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return PackedColumn(
        feature, np.ascontiguousarray(strings.data), strings.offsets, splits, present
    )
