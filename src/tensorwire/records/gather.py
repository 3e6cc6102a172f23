"""Values on their way into Examples: columns and rows of anything, as the lists that an Example has.

An Example holds lists of int64, float32 and bytes. What fits one of these exactly is written so, and the schema remembers what it was
(bool, int32, bfloat16, text, a shape). Every other tensor becomes a TensorProto in a bytes list. What fits neither is refused, never
rounded or wrapped: uint64 past 2**63, and float64, of which nobody can know whether it was meant to be exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import dtypes, frameworks, validate
from .._errors import EncodeError, SchemaError, TensorwireError, choices
from ..tensors import KINDS, Array, Ragged, Sparse, Strings, trusted
from ..wire import example
from . import encodings
from .batch import Batch, ForeignBatch
from .schema import BYTES, FLOAT, INT64, Feature, Schema

EXACTLY = "; tensors=[name] keeps it exactly"
"""The way out of most refusals."""
_WIDEN = {"int64": np.int64, "float": np.float32}


@dataclass(frozen=True)
class Options:
    """How columns are to be written: those of `tensors` as TensorProtos, and so on; the schema says it too."""

    tensors: Sequence[str] | Set[str] = ()
    base64: Sequence[str] | Set[str] = ()
    quantize: Mapping[str, str] | None = None
    schema: Schema | None = None

    def __post_init__(self) -> None:
        for what in ("tensors", "base64"):
            names = getattr(self, what)
            if isinstance(names, (str, bytes)):
                raise EncodeError(f"{what} is a list of columns: {what}=[{names!r}]")
            object.__setattr__(self, what, frozenset(names))
        if self.quantize is not None and not isinstance(self.quantize, Mapping):
            raise EncodeError(f"quantize says the scheme of each column, as in quantize={{'x': 'int8'}}, not {self.quantize!r}")
        named = [*self.tensors, *self.base64, *(self.quantize or {})]
        for name in named:
            if named.count(name) > 1:
                raise EncodeError("only one of tensors, base64 and quantize can hold for a column", tensor=name)

    def check(self, names: Set[str]) -> None:
        """Options for columns that are not there are mistakes."""
        for what, asked in (("tensors", self.tensors), ("base64", self.base64), ("quantize", (self.quantize or {}).keys())):
            for name in sorted(set(asked) - names):
                raise EncodeError(f"{what} names {name!r}, and there is no such column{choices(name, sorted(names))}")

    def feature(self, name: str) -> Feature | None:
        """What the schema says of a column."""
        return None if self.schema is None else self.schema.get(name)

    def encoding(self, name: str) -> str:
        """How a column is kept in a bytes list, if it must be."""
        if name in self.tensors:
            return "tensor"
        if name in self.base64:
            return "base64"
        if name in (self.quantize or {}):
            return "quantized"
        asked = self.feature(name)
        if asked is not None and asked.encoding == "quantized":
            raise EncodeError(f"the schema says that it is quantized, and not by which scheme: quantize={{{name!r}: 'int8'}}")
        return "" if asked is None else asked.encoding


@dataclass(frozen=True)
class Column:
    """A column ready for the encoder."""

    feature: Feature
    values: Array
    offsets: Array | None
    splits: Array | None
    present: Array | None
    steps: Array | None = None

    def input(self, name: bytes) -> tuple[Any, ...]:
        """What the kernel takes."""
        length = -1 if self.splits is not None else self.feature.length
        kind = example.BYTES if self.feature.kind == BYTES else example.FLOAT if self.feature.kind == FLOAT else example.INT64
        return name, kind, self.steps is not None, length, self.values, self.offsets, self.splits, self.steps, self.present


def from_columns(columns: Any, options: Options, first: int, known: Mapping[str, Feature]) -> tuple[dict[str, Column], int]:
    """Columns, and the number of rows, which must be the same for all. `first` and `known` as for rows."""
    if not isinstance(columns, Mapping):
        raise EncodeError(f"a batch is a dict of columns, not {type(columns).__name__}")
    present = getattr(columns, "present", {})
    count, of = -1, ""
    out = {}
    for name, value in columns.items():
        check_name(name)
        try:
            made: Column | None
            if isinstance(value, (list, tuple)):
                made, rows = from_list(name, value, options, known.get(name)), len(value)
            else:
                tensor = _column_value(value)
                made, rows = _from_tensor(name, tensor, options, present.get(name), known.get(name)), int(tensor.shape[0])
        except TensorwireError as error:
            if error.record is not None:
                error.record += first
            raise error.add(tensor=name) from None
        if count >= 0 and rows != count:
            raise EncodeError(f"{rows} rows, and column {of!r} has {count}", tensor=name)
        count, of = rows, name
        if made is not None:
            out[name] = made
    return out, max(count, 0)


def check_name(name: Any) -> None:
    """Whether a name can be that of a feature."""
    if not isinstance(name, str):
        raise EncodeError(f"names of features are str, not {type(name).__name__}: {name!r:.40}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"the name {name!r:.60} has a lone surrogate, so it is not text that UTF-8 can hold") from None


def from_rows(rows: Sequence[Mapping[str, Any]], options: Options, first: int, known: Mapping[str, Feature]) -> dict[str, Column]:
    """Rows as columns. `first` is the number of the first one; `known` are the features of the rows before."""
    names = dict.fromkeys(name for row in rows for name in row)
    out = {}
    for name in names:
        check_name(name)
        values = [row.get(name) for row in rows]
        try:
            column = from_list(name, values, options, known.get(name))
        except TensorwireError as error:
            if error.record is not None:
                error.record += first
            raise error.add(tensor=name) from None
        if column is not None:
            out[name] = column
    return out


# ---------------------------------------------------------------------------------------------------------------- columns


def _column_value(value: Any) -> Any:
    """A column as a tensor; an array of objects stays one if they are tensors of their own."""
    one = None if value is None else "one " + type(value).__name__ if isinstance(value, (str, bytes, bool, int, float, complex)) else ""
    if one != "":
        raise EncodeError(f"a column has a value for each record, and this is {one}{_ONE_RECORD}")
    if isinstance(value, Mapping):
        raise EncodeError("a dict is no column; for rows or batches pass a list of them")
    if isinstance(value, np.ndarray) and value.dtype.kind == "O" and any(not isinstance(item, (str, bytes)) for item in value.reshape(-1)):
        return value
    tensor = _foreign(value)
    if not isinstance(tensor, KINDS):
        raise EncodeError(f"{type(value).__name__} is no column; pass a list with one value a row")
    if not tensor.shape:
        raise EncodeError(f"a column has a value for each record, and this is a scalar{_ONE_RECORD}")
    return tensor


_ONE_RECORD = "; to write one record pass a list of one row: [{...}]"


def _foreign(value: Any) -> Any:
    """Any framework's tensor as ours, in the layout that all below rely on."""
    if isinstance(value, (Set, range, Iterator)):
        raise EncodeError(f"{type(value).__name__} is no tensor; pass list(x)")
    return frameworks.tensor(value)


def _from_tensor(name: str, tensor: Any, options: Options, present: Array | None, known: Feature | None) -> Column | None:
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "O":
        return from_list(name, list(tensor), options, known)
    encoding = options.encoding(name)
    if encoding == "quantized":
        return _quantized(tensor, (options.quantize or {})[name], present)
    if encoding == "raw":
        return _raw(tensor, present)
    if encoding == "tensor" and isinstance(tensor, Sparse):
        return _tensors(_sparse_rows(tensor), present)
    if isinstance(tensor, Sparse):
        tensor = _left_packed(tensor)
    if encoding == "tensor" or _needs_tensor(tensor):
        return _tensors(tensor if isinstance(tensor, np.ndarray) else [_row_value(row, 0) for row in tensor], present)
    if isinstance(tensor, Ragged):
        splits = np.ascontiguousarray(tensor.row_splits[0], np.int64)
        inner = _flat(tensor.values, encoding, splits)
        return replace(inner, feature=replace(inner.feature, shape=(None,)), splits=splits, present=present)
    inner = _flat(tensor.reshape(-1), encoding, math.prod(tensor.shape[1:]))
    return replace(inner, feature=replace(inner.feature, shape=tensor.shape[1:]), present=present)


def _needs_tensor(tensor: Any) -> bool:
    """Whether a column does not fit lists, whatever its values."""
    if isinstance(tensor, Ragged):
        return tensor.ragged_rank > 1 or tensor.values.ndim > 1 or _needs_tensor(tensor.values)
    return isinstance(tensor, np.ndarray) and tensor.dtype.kind == "c"


def _left_packed(sparse: Sparse) -> Ragged:
    """Rows of a sparse matrix whose values stand at 0, 1, 2 ...: what tf.io.VarLenFeature gives."""
    sparse = sparse.sort()
    if sparse.indices.shape[1] != 2:
        raise EncodeError("a Sparse column is a matrix of rows; tensors=[name] keeps any")
    counts = np.bincount(sparse.indices[:, 0], minlength=int(sparse.dense_shape[0]))
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    if not (sparse.indices[:, 1] == np.arange(sparse.nnz) - np.repeat(splits[:-1], counts)).all():
        raise EncodeError("the values of a Sparse column must fill each row from its start; tensors=[name] keeps any")
    return Ragged(sparse.values, splits)


def _sparse_rows(sparse: Sparse) -> list[Sparse]:
    """The rows of a sparse tensor, each a sparse tensor of its own."""
    sparse = sparse.sort()
    bounds = np.searchsorted(sparse.indices[:, 0], np.arange(sparse.shape[0] + 1)).tolist()
    inner = sparse.dense_shape[1:]
    return [Sparse(sparse.indices[a:b, 1:], sparse.values[a:b], inner) for a, b in itertools.pairwise(bounds)]


def _flat(values: Any, encoding: str, splits: Array | int) -> Column:
    """A vector of numbers or strings as the values of a list. Errors name the row, by the splits or by the values that each row has."""
    if isinstance(values, Strings):
        feature = Feature(BYTES, (), text=values.text)
        if encoding == "base64":
            values, feature = encodings.pack_base64(values), replace(feature, encoding="base64")
        return Column(feature, np.ascontiguousarray(values.data), np.ascontiguousarray(values.offsets), None, None)
    if encoding == "base64":
        raise EncodeError(f"base64 is for strings, not {values.dtype}")
    try:
        kind, array = _numbers(values)
    except EncodeError as error:
        if error.record is not None:
            at = error.record
            error.record = at // splits if isinstance(splits, int) else int(np.searchsorted(splits, at, side="right")) - 1
        raise
    return Column(Feature(kind, (), dtypes.of(values.dtype).name), array, None, None, None)


def _numbers(values: Array) -> tuple[str, Array]:
    """Numbers as int64 or float32, exactly. An error's record is the place of the value."""
    row = dtypes.of(values.dtype)
    if row.name == "float64":
        raise EncodeError("float64 does not fit a float list, which is float32; .astype(np.float32) rounds it" + EXACTLY)
    if row.name == "uint64" and values.size and values.max() > validate.INT64_MAX:
        at = int(np.argmax(values.reshape(-1) > validate.INT64_MAX))
        raise EncodeError(f"the value {values.reshape(-1)[at]} does not fit int64{EXACTLY}", record=at)
    if not row.name.startswith(("float", "bfloat")):
        return INT64, np.require(values, np.int64, ("C", "A"))
    if row.name == "bfloat16":  # by its bits, which are the upper half of a float32: a cast would make all NaNs one
        return FLOAT, (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):
        wide = np.require(values, np.float32, ("C", "A"))
    if row.name.startswith("float8"):  # some have many NaNs
        with np.errstate(invalid="ignore"):
            lost = np.flatnonzero(wide.astype(values.dtype).view(np.uint8) != values.view(np.uint8))
        if len(lost):
            raise EncodeError(f"a NaN whose bits float32 does not keep{EXACTLY}", record=int(lost[0]))
    return FLOAT, wide


def _raw(tensor: Any, present: Array | None) -> Column:
    """Rows as `tobytes()` gives them, because the schema says so."""
    if isinstance(tensor, Ragged) and isinstance(tensor.values, np.ndarray) and tensor.values.ndim == 1:
        flat = np.ascontiguousarray(tensor.values)
        feature = Feature(BYTES, (None,), dtypes.of(flat.dtype).name, encoding="raw")
        return Column(feature, flat.view(np.uint8), np.ascontiguousarray(tensor.row_splits[0], np.int64) * flat.itemsize, None, present)
    if not isinstance(tensor, np.ndarray):
        raise EncodeError("raw bytes are for dense tensors of one dtype, and of one shape or vectors")
    offsets = np.arange(len(tensor) + 1, dtype=np.int64) * (tensor.itemsize * math.prod(tensor.shape[1:]))
    values = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    return Column(Feature(BYTES, tensor.shape[1:], dtypes.of(tensor.dtype).name, encoding="raw"), values, offsets, None, present)


def _tensors(rows: Any, present: Array | None) -> Column:
    packed = encodings.pack_tensors(rows)
    return Column(_tensor_feature(rows), np.ascontiguousarray(packed.data), packed.offsets, None, present)


def _tensor_feature(rows: Any) -> Feature:
    if isinstance(rows, np.ndarray):
        return Feature(BYTES, rows.shape[1:], dtypes.of(rows.dtype).name, encoding="tensor")
    features = [_one_tensor(row) for row in rows]
    merged = features[0] if features else Feature(BYTES, None, encoding="tensor")
    for feature in features[1:]:
        merged = merge(merged, feature)
    return merged


def _one_tensor(row: Any) -> Feature:
    if isinstance(row, Strings):
        return Feature(BYTES, row.shape, "string", encoding="tensor", text=row.text)
    if isinstance(row, np.ndarray):
        return Feature(BYTES, row.shape, dtypes.of(row.dtype).name, encoding="tensor")
    return Feature(BYTES, None, encoding="tensor")


def _quantized(tensor: Any, scheme: str, present: Array | None) -> Column:
    if not isinstance(tensor, np.ndarray) or dtypes.of(tensor.dtype).name not in ("float16", "bfloat16", "float32", "float64"):
        raise EncodeError("quantize is for dense columns of floats, or rows of them")
    try:
        strings, splits = encodings.pack_quantized(tensor, scheme)
    except EncodeError as error:  # its hint is an option of quantize() alone
        error.args = (error.message.partition("; nonfinite=")[0],)
        raise
    feature = Feature(BYTES, tensor.shape[1:], dtypes.of(tensor.dtype).name, encoding="quantized")
    return Column(feature, np.ascontiguousarray(strings.data), strings.offsets, splits, present)


# ------------------------------------------------------------------------------------------------------------------- rows


def from_list(name: str, values: Sequence[Any], options: Options, known: Feature | None = None) -> Column | None:
    """One value a row; None is missing. No column comes of rows that have no value, or only empty lists of which nobody knows the kind."""
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if not present.any():
        return None
    there = None if present.all() else present
    encoding = options.encoding(name) or ("tensor" if known is not None and known.encoding == "tensor" else "")
    if there is None and encoding in ("", "base64") and (alike := _alike(values, encoding, options.feature(name) or known)) is not None:
        return alike
    items = [_row_value(value, number) for number, value in enumerate(values)]
    if encoding == "quantized":
        return _quantized_rows(items, (options.quantize or {})[name], there)
    asked = options.feature(name)
    shape = asked.shape if asked is not None and not asked.encoding and asked.fixed and len(asked.shape or ()) > 1 else None
    if shape is not None:
        items = [_flattened(item, shape, number) for number, item in enumerate(items)]
    odd = next((number for number, item in enumerate(items) if item is not None and _is_tensor(item)), None)
    if odd is not None and not encoding and (plain := known or asked) is not None:
        of = "those before are" if known is not None else "the schema says"
        raise EncodeError(f"a tensor of shape {items[odd].shape} in this row, and {of} {plain!r}{EXACTLY}", record=odd)
    if encoding in ("tensor", "raw") or odd is not None:
        rows = _stacked([item for item in items if item is not None])
        vectors = isinstance(rows, list) and all(isinstance(row, np.ndarray) and row.ndim == 1 for row in rows)
        if encoding == "raw" and vectors and len({row.dtype for row in rows}) == 1:
            rows = Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
        column = _raw(rows, None) if encoding == "raw" else _tensors(rows, None)
        return column if there is None else _spread(column, present)
    lists = _lists(items, there, encoding, known, asked)
    return lists if lists is None or shape is None else replace(lists, feature=replace(lists.feature, shape=shape))


def _alike(values: Sequence[Any], encoding: str, plain: Feature | None) -> Column | None:
    """The column of rows of one type, and one shape if they are arrays, in one step; None for others, and errors: those go the long way."""
    kind = type(values[0])
    if kind not in _ALIKE or any(type(value) is not kind for value in values):
        return None
    try:
        if kind is np.ndarray:
            dtype, shape = values[0].dtype, values[0].shape
            if len(shape) > 1 or 0 in shape or dtype.kind not in "biuf" or any(x.dtype != dtype or x.shape != shape for x in values):
                return None
            tensor: Any = frameworks.leaf(np.stack(values))
        elif kind is str or kind is bytes:
            tensor = Strings.of(values)
        else:
            tensor = np.array(values, _ALIKE[kind])
            tensor = _python_floats(tensor) if kind is float else tensor
        if plain is not None and (plain.kind != _kind(tensor) or len(plain.shape or ()) > 1):
            return None
        column = _flat(tensor.reshape(-1), encoding, math.prod(tensor.shape[1:]))
    except (OverflowError, EncodeError):
        return None
    return replace(column, feature=replace(column.feature, shape=tensor.shape[1:]))


_ALIKE = {str: None, bytes: None, bool: np.bool_, int: np.int64, float: np.float64, np.ndarray: None}


def _is_tensor(item: Any) -> bool:
    return not isinstance(item, (np.ndarray, Strings)) or item.ndim > 1 or _needs_tensor(item)


def _flattened(item: Any, shape: tuple[int | None, ...], number: int) -> Any:
    """A row as the list that the schema asks for instead of a TensorProto."""
    if item is None:
        return None
    if item.shape != shape:
        raise SchemaError(f"a row of shape {item.shape}, and the schema says {shape}", record=number)
    return item.reshape(-1)


def _row_value(value: Any, number: int) -> Any:
    """A row's value as a tensor: Python's own numbers are int64 and float32, which is what an Example has."""
    if value is None:
        return None
    try:
        if isinstance(value, np.ndarray | np.generic):  # np.float64 is a float, np.str_ a str; but they say what they are
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
            plain = isinstance(made, np.ndarray) and made.dtype == np.float64 and not _has_arrays(value)
            return _python_floats(made) if plain else made
        if isinstance(value, Mapping):
            raise EncodeError("a dict inside of a row: Examples do not nest; give its entries names of their own, such as 'image/height'")
        return _foreign(value)
    except OverflowError:
        raise EncodeError(f"{value!r:.40} does not fit int64; make it np.uint64(x){EXACTLY}", record=number) from None
    except TensorwireError as error:
        raise error.add(record=number) from None


_NOTHING = np.zeros(0, np.int64)
"""An empty list: of which kind, the other rows say."""


def _has_arrays(value: Any) -> bool:
    return any(isinstance(item, np.generic | np.ndarray) or (isinstance(item, (list, tuple)) and _has_arrays(item)) for item in value)


def _python_floats(array: Array) -> Array:
    """Python's floats mean float32 here, as they do to tf.train.FloatList; but not infinity where a number was meant."""
    with np.errstate(over="ignore", invalid="ignore"):
        out: Array = array.astype(np.float32)
    lost = np.isinf(out) & np.isfinite(array)
    if lost.any():
        raise EncodeError(f"{array[lost][0]} does not fit float32; make it np.float64(x){EXACTLY}")
    return out


def _stacked(rows: list[Any]) -> Any:
    """One array where all rows are alike: their TensorProtos are written in one step."""
    if rows and all(isinstance(row, np.ndarray) and row.shape == rows[0].shape and row.dtype == rows[0].dtype for row in rows):
        return np.stack(rows)
    return rows


def _spread(column: Column, present: Array) -> Column:
    """A column of the rows that are there, with gaps for those that are not."""
    assert column.offsets is not None
    offsets = column.offsets[np.r_[0, np.cumsum(present)]]
    return replace(column, offsets=offsets, present=present)


def _lists(items: list[Any], present: Array | None, encoding: str, known: Feature | None, asked: Feature | None) -> Column | None:
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
        raise EncodeError(f"a row of kind {kind} among rows of kind {others}; a feature is of one kind in all records", record=odd)
    wanted = BYTES if BYTES in kinds else FLOAT if FLOAT in kinds else INT64
    if known is not None and (known.kind != wanted or (BYTES in kinds and len(kinds) > 1)):
        odd = _first_other(items, known)
        way = "; write them as float(x), or pass schema=" if (known.kind, wanted, asked) == (INT64, FLOAT, None) else ""
        raise EncodeError(f"a row of kind {_kind(items[odd])}, and {of} {known.kind}{way}", record=odd)
    lengths = np.fromiter((0 if item is None else item.size for item in items), np.int64, len(items))
    scalars = all(item is None or item.ndim == 0 for item in items)
    there = [item for item in items if item is not None and (item is not _NOTHING)]
    if wanted == BYTES:
        texts = {item.text for item in there}
        flat: Any = Strings.of([one for item in there for one in item.astext(False).reshape(-1)], text=False)
        inner = _flat(trusted(Strings, flat.data, flat.offsets, flat.shape, texts == {True}), encoding, 1)
    else:
        numbered = [(number, item) for number, item in enumerate(items) if item is not None and item is not _NOTHING]
        parts = [_as_kind(item.reshape(-1), wanted, number) for number, item in numbered]
        names = {dtypes.of(item.dtype).name for item in there}
        inner = _flat(np.concatenate([*parts, np.zeros(0, _WIDEN[wanted])]), encoding, 1)
        inner = replace(inner, feature=replace(inner.feature, dtype=names.pop() if len(names) == 1 else ""))
    splits = np.zeros(len(items) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    same = {length for length, item in zip(lengths.tolist(), items, strict=True) if item is not None}
    shape: tuple[int | None, ...] = () if scalars else tuple(same) if len(same) == 1 and same != {0} else (None,)
    return replace(inner, feature=replace(inner.feature, shape=shape), splits=splits, present=present)


def _kind(item: Any) -> str:
    if isinstance(item, Strings):
        return BYTES
    return FLOAT if dtypes.of(item.dtype).name.startswith(("float", "bfloat")) else INT64


def _first_other(items: list[Any], known: Feature | None) -> int:
    kinds = [None if item is None or item is _NOTHING else _kind(item) for item in items]
    first = known.kind if known is not None else next(kind for kind in kinds if kind)
    return next((number for number, kind in enumerate(kinds) if kind not in (None, first)), 0)


def _as_kind(values: Array, wanted: str, number: int) -> Array:
    try:
        kind, array = _numbers(values)
    except EncodeError as error:
        error.record = number
        raise
    if kind == wanted:
        return array
    wide = array.astype(np.float32)  # whole numbers among floats
    if (wide.astype(np.int64) != array).any():
        raise EncodeError(f"the whole number {array[0]} among floats does not fit float32", record=number)
    return wide


def _quantized_rows(items: list[Any], scheme: str, present: Array | None) -> Column:
    rows = [item for item in items if item is not None]
    for number, item in enumerate(items):
        if item is not None and not isinstance(item, np.ndarray):
            raise EncodeError("quantize is for rows of floats", record=number)
    there = np.ones(len(items), np.bool_) if present is None else present
    stacked = _stacked(rows)
    if isinstance(stacked, np.ndarray):
        column = _quantized(stacked, scheme, None)
        strings, one = trusted(Strings, column.values, column.offsets, (len(column.offsets) - 1,), False), column.splits  # type: ignore[arg-type]
        assert one is not None
        counts = np.where(there, np.int64(one[1]) if len(one) > 1 else 0, 0)
        feature = column.feature
    else:
        columns = [_quantized(row[None], scheme, None) for row in rows]
        packed = [trusted(Strings, c.values, c.offsets, (len(c.offsets) - 1,), False) for c in columns if c.offsets is not None]
        strings = Strings.of([item for part in packed for item in part], text=False)
        each = iter(int(c.splits[-1]) for c in columns if c.splits is not None)
        counts = np.fromiter((next(each) if one else 0 for one in there.tolist()), np.int64, len(items))
        feature = columns[0].feature
        for other in columns[1:]:
            feature = merge(feature, other.feature)
    splits = np.zeros(len(items) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return Column(feature, np.ascontiguousarray(strings.data), strings.offsets, splits, present)


def merge(a: Feature, b: Feature) -> Feature:
    """One feature for two lots of rows: what they agree on is kept, what differs is left open."""
    if a.kind != b.kind or a.encoding != b.encoding:
        raise EncodeError(f"{b!r} after {a!r}: a feature is of one kind in all records")
    shape = a.shape
    if a.shape != b.shape:
        if a.encoding in ("tensor", "quantized"):
            same_rank = a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape)
            shape = tuple(x if x == y else None for x, y in zip(a.shape or (), b.shape or (), strict=True)) if same_rank else None
            shape = None if None in (shape or ())[1:] else shape  # a column has one dimension that varies, or is an array of tensors
        else:
            shape = (None,)
    dtype = a.dtype if a.dtype == b.dtype else ""
    if a.encoding == "tensor" and a.dtype != b.dtype:
        shape = None
    return replace(a, shape=shape, dtype=dtype, required=a.required and b.required, text=a.text and b.text)


def is_batch(item: Any) -> bool:
    """Whether an item among many is columns of its own, rather than a row."""
    return isinstance(item, (Batch, ForeignBatch)) or (isinstance(item, Mapping) and not isinstance(item, dict))
