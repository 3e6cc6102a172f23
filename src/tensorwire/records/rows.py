"""Values of rows, one a record and of any type, as a column."""

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
    name: str, values: Sequence[Any], options: Options, known: Feature | None = None
) -> PackedColumn | None:
    """One value a row; None is missing. No column comes of rows that have no value, or only empty
    lists of which nobody knows the kind.
    """
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if not present.any():
        return None
    there = None if present.all() else present
    encoding = options.encoding(name) or (
        "tensor" if known is not None and known.encoding == "tensor" else ""
    )
    if (
        there is None
        and encoding in ("", "base64")
        and (alike := _alike(values, encoding, options.feature(name) or known)) is not None
    ):
        return alike
    items = [row_value(value, number) for number, value in enumerate(values)]
    if encoding == "quantized":
        return _quantized_rows(items, (options.quantize or {})[name], there)
    asked = options.feature(name)
    shape = (
        asked.shape
        if asked is not None and not asked.encoding and asked.fixed and len(asked.shape or ()) > 1
        else None
    )
    if shape is not None:
        items = [_flattened(item, shape, number) for number, item in enumerate(items)]
    odd = next(
        (number for number, item in enumerate(items) if item is not None and _is_tensor(item)), None
    )
    if odd is not None and not encoding and (plain := known or asked) is not None:
        of = "those before are" if known is not None else "the schema says"
        raise EncodeError(
            f"a tensor of shape {items[odd].shape} in this row, and {of} {plain!r}{EXACTLY}",
            record=odd,
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
    lists = _lists(items, there, encoding, known, asked)
    return (
        lists
        if lists is None or shape is None
        else replace(lists, feature=replace(lists.feature, shape=shape))
    )


def _alike(values: Sequence[Any], encoding: str, plain: Feature | None) -> PackedColumn | None:
    """The column of rows of one type, and one shape if they are arrays, in one step; None for
    others, and errors: those go the long way.
    """
    kind = type(values[0])
    if kind not in _ALIKE or any(type(value) is not kind for value in values):
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
            tensor = np.array(values, _ALIKE[kind])
            tensor = _python_floats(tensor) if kind is float else tensor
        if plain is not None and (plain.kind != _kind(tensor) or len(plain.shape or ()) > 1):
            return None
        column = pack.as_lists(tensor.reshape(-1), encoding, math.prod(tensor.shape[1:]))
    except (OverflowError, EncodeError):
        return None
    return replace(column, feature=replace(column.feature, shape=tensor.shape[1:]))


_ALIKE = {
    str: None,
    bytes: None,
    bool: np.bool_,
    int: np.int64,
    float: np.float64,
    np.ndarray: None,
}


def _is_tensor(item: Tensor) -> bool:
    return not isinstance(item, (np.ndarray, Strings)) or item.ndim > 1 or pack.needs_tensor(item)


def _flattened(item: Array | Strings | None, shape: tuple[int | None, ...], number: int) -> Any:
    """A row as the list that the schema asks for instead of a TensorProto."""
    if item is None:
        return None
    if item.shape != shape:
        raise SchemaError(
            f"a row of shape {item.shape}, and the schema says {shape}", record=number
        )
    return item.reshape(-1)


def row_value(value: object, number: int) -> Any:
    """A row's value as a tensor: Python's own numbers are int64 and float32, which is what an
    Example has.
    """
    if value is None:
        return None
    try:
        # np.float64 is a float, np.str_ a str; but they say what they are
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
            made = frameworks.tensor(list(value))
            plain = (
                isinstance(made, np.ndarray) and made.dtype == np.float64 and not _has_arrays(value)
            )
            return _python_floats(made) if plain else made
        if isinstance(value, Mapping):
            raise EncodeError(
                "a dict inside of a row: Examples do not nest; give its entries names of their own,"
                " such as 'image/height'"
            )
        return pack.foreign(value)
    except OverflowError:
        raise EncodeError(
            f"{value!r:.40} does not fit int64; make it np.uint64(x){EXACTLY}", record=number
        ) from None
    except TensorwireError as error:
        raise error.add(record=number) from None


_NOTHING = np.zeros(0, np.int64)
"""An empty list: of which kind, the other rows say."""


def _has_arrays(value: Iterable[object]) -> bool:
    return any(
        isinstance(item, np.generic | np.ndarray)
        or (isinstance(item, (list, tuple)) and _has_arrays(item))
        for item in value
    )


def _python_floats(array: Array) -> Array:
    """Python's floats mean float32 here, as they do to tf.train.FloatList; but not infinity where a
    number was meant.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        out: Array = array.astype(np.float32)
    lost = np.isinf(out) & np.isfinite(array)
    if lost.any():
        raise EncodeError(f"{array[lost][0]} does not fit float32; make it np.float64(x){EXACTLY}")
    return out


def _stacked(rows: list[Any]) -> Any:
    """One array where all rows are alike: their TensorProtos are written in one step."""
    if rows and all(
        isinstance(row, np.ndarray) and row.shape == rows[0].shape and row.dtype == rows[0].dtype
        for row in rows
    ):
        return np.stack(rows)
    return rows


def _spread(column: PackedColumn, present: Array) -> PackedColumn:
    """A column of the rows that are there, with gaps for those that are not."""
    assert column.offsets is not None
    offsets = column.offsets[np.r_[0, np.cumsum(present)]]
    return replace(column, offsets=offsets, present=present)


def _lists(
    items: list[Any],
    present: Array | None,
    encoding: str,
    known: Feature | None,
    asked: Feature | None,
) -> PackedColumn | None:
    kinds = {_kind(item) for item in items if item is not None and item is not _NOTHING}
    of = "those before are" if asked is None else "the schema says"
    known = asked or known
    if known is not None:
        kinds.add(known.kind)
    if not kinds:
        return None
    if known is None and len(kinds) > 1 and kinds != {INT64, FLOAT}:
        odd = _first_other(items, None)
        kind, others = _kind(items[odd]), " and ".join(sorted(kinds - {_kind(items[odd])}))
        raise EncodeError(
            f"a row of kind {kind} among rows of kind {others}; a feature is of one kind in all"
            " records",
            record=odd,
        )
    wanted = BYTES if BYTES in kinds else FLOAT if FLOAT in kinds else INT64
    if known is not None and (known.kind != wanted or (BYTES in kinds and len(kinds) > 1)):
        odd = _first_other(items, known)
        way = (
            "; write them as float(x), or pass schema="
            if (known.kind, wanted, asked) == (INT64, FLOAT, None)
            else ""
        )
        raise EncodeError(
            f"a row of kind {_kind(items[odd])}, and {of} {known.kind}{way}", record=odd
        )
    lengths = np.fromiter(
        (0 if item is None else item.size for item in items), np.int64, len(items)
    )
    scalars = all(item is None or item.ndim == 0 for item in items)
    there = [item for item in items if item is not None and (item is not _NOTHING)]
    if wanted == BYTES:
        texts = {item.text for item in there}
        flat: Any = Strings.of(
            [one for item in there for one in item.astext(False).reshape(-1)], text=False
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
    if isinstance(item, Strings):
        return BYTES
    return FLOAT if dtypes.of(item.dtype).name.startswith(("float", "bfloat")) else INT64


def _first_other(items: list[Any], known: Feature | None) -> int:
    kinds = [None if item is None or item is _NOTHING else _kind(item) for item in items]
    first = known.kind if known is not None else next(kind for kind in kinds if kind)
    return next((number for number, kind in enumerate(kinds) if kind not in (None, first)), 0)


def _as_kind(values: Array, wanted: str, number: int) -> Array:
    try:
        kind, array = pack.as_numbers(values)
    except EncodeError as error:
        error.record = number
        raise
    if kind == wanted:
        return array
    wide = array.astype(np.float32)  # whole numbers among floats
    if (wide.astype(np.int64) != array).any():
        raise EncodeError(
            f"the whole number {array[0]} among floats does not fit float32", record=number
        )
    return wide


def _quantized_rows(items: list[Any], scheme: str, present: Array | None) -> PackedColumn:
    rows = [item for item in items if item is not None]
    for number, item in enumerate(items):
        if item is not None and not isinstance(item, np.ndarray):
            raise EncodeError("quantize is for rows of floats", record=number)
    there = np.ones(len(items), np.bool_) if present is None else present
    stacked = _stacked(rows)
    if isinstance(stacked, np.ndarray):
        column = pack.as_quantized(stacked, scheme, None)
        one = column.splits
        assert one is not None and column.offsets is not None
        count = len(column.offsets) - 1
        strings = trusted(Strings, column.values, column.offsets, (count,), False)
        counts = np.where(there, np.int64(one[1]) if len(one) > 1 else 0, 0)
        feature = column.feature
    else:
        columns = [pack.as_quantized(row[None], scheme, None) for row in rows]
        packed = [
            trusted(Strings, c.values, c.offsets, (len(c.offsets) - 1,), False)
            for c in columns
            if c.offsets is not None
        ]
        strings = Strings.of([item for part in packed for item in part], text=False)
        each = iter(int(c.splits[-1]) for c in columns if c.splits is not None)
        counts = np.fromiter(
            (next(each) if one else 0 for one in there.tolist()), np.int64, len(items)
        )
        feature = columns[0].feature
        for other in columns[1:]:
            feature = merge(feature, other.feature)
    splits = np.zeros(len(items) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return PackedColumn(
        feature, np.ascontiguousarray(strings.data), strings.offsets, splits, present
    )
