"""What to read of an Example: tf.io's feature classes, with the same fields, defaults and looks.
TensorFlow's own are taken too.

dtypes are tf.DType, NumPy dtypes or names; an Example holds only float32, int64 and strings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._errors import EncodeError, SchemaError
from ..core import dtypes
from ..core.dtypes import DTypeLike
from ..core.tensors import Array, Strings, TensorLike
from ..wire.example import BYTES, FLOAT, INT64
from . import arguments

_CAST = {BYTES: "O", FLOAT: "biuf", INT64: "biu"}
"""The kinds of NumPy dtypes that a default may have."""
NUMPY = {BYTES: np.dtype(object), FLOAT: np.dtype(np.float32), INT64: np.dtype(np.int64)}


class FixedLenFeature(NamedTuple):
    """A dense tensor: every record has as many values as `shape`, or takes `default_value`.

    >>> FixedLenFeature([2], "float32")
    FixedLenFeature(shape=[2], dtype='float32', default_value=None)
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """A sparse tensor [batch, most values in a record].

    >>> VarLenFeature("int64")
    VarLenFeature(dtype='int64')
    """

    dtype: Any


class SparseFeature(NamedTuple):
    """A sparse tensor whose values are one feature, and whose indices are others, one for each
    dimension of `size`.

    >>> SparseFeature(index_key=["x", "y"], value_key="v", dtype="float32", size=[640,
    ...     480]).already_sorted
    False
    """

    index_key: Any
    value_key: Any
    dtype: Any
    size: Any
    already_sorted: bool = False


class FixedLenSequenceFeature(NamedTuple):
    """A dense tensor of a variable number of blocks of `shape`, padded to the longest record of the
    batch.

    >>> FixedLenSequenceFeature([], "int64", allow_missing=True).default_value is None
    True
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class RowSplits(NamedTuple):
    key: str


class RowLengths(NamedTuple):
    key: str


class RowStarts(NamedTuple):
    key: str


class RowLimits(NamedTuple):
    key: str


class ValueRowIds(NamedTuple):
    key: str


class UniformRowLength(NamedTuple):
    length: int


KeyedPartition = RowSplits | RowLengths | RowStarts | RowLimits | ValueRowIds
Partition = KeyedPartition | UniformRowLength
PARTITIONS = (RowSplits, RowLengths, RowStarts, RowLimits, ValueRowIds, UniformRowLength)


class _RaggedFields(NamedTuple):
    dtype: Any
    value_key: str | None
    partitions: tuple[Any, ...]
    row_splits_dtype: Any
    validate: bool


class RaggedFeature(_RaggedFields):
    """A ragged tensor: the values of a record, split into rows by other features of it, from the
    outermost dimension to the innermost.

    >>> RaggedFeature("int64", value_key="v", partitions=[RaggedFeature.RowSplits("s")]).partitions
    (RowSplits(key='s'),)
    """

    __slots__ = ()
    RowSplits, RowLengths, RowStarts, RowLimits, ValueRowIds, UniformRowLength = PARTITIONS

    def __new__(
        cls,
        dtype: DTypeLike,
        value_key: str | None = None,
        partitions: Sequence[Partition] = (),
        row_splits_dtype: DTypeLike = "int32",
        validate: bool = False,
    ) -> RaggedFeature:
        if value_key is not None and (not isinstance(value_key, str) or not value_key):
            raise SchemaError(f"value_key is a feature's name, not {value_key!r}")
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(
                f"partitions is a list of RowSplits(key) and the like, not {partitions!r}"
            )
        if not isinstance(validate, bool):
            raise TypeError(f"validate is a bool, not {validate!r}")
        kind_of(dtype)
        splits_dtype(row_splits_dtype)
        return super().__new__(
            cls, dtype, value_key, tuple(map(_partition, partitions)), row_splits_dtype, validate
        )


Key = str | bytes
"""The name of a feature."""
Feature = FixedLenFeature | VarLenFeature | SparseFeature | RaggedFeature | FixedLenSequenceFeature
FeatureSpecs = Mapping[Any, tuple[Any, ...]]
"""Features by name: ours, or TensorFlow's classes of the same names, which are tuples too."""
FEATURES = (FixedLenFeature, VarLenFeature, SparseFeature, RaggedFeature, FixedLenSequenceFeature)
_BY_NAME: dict[str, Any] = {kind.__name__: kind for kind in FEATURES}
_PARTITION_BY_NAME: dict[str, Any] = {kind.__name__: kind for kind in PARTITIONS}


def _partition(given: object) -> Any:
    """Ours, or TensorFlow's class of the same name."""
    kind = _PARTITION_BY_NAME.get(type(given).__name__)
    if kind is None or not isinstance(given, tuple):
        raise TypeError(f"{given!r} is none of {', '.join(_PARTITION_BY_NAME)}")
    return given if isinstance(given, kind) else kind(*given)


def given(features: object, allowed: Iterable[Any]) -> dict[Any, Any]:
    """The features by key, each as our own class."""
    if not isinstance(features, Mapping):
        raise SchemaError(f"features is a dict of names and features, not {features!r}")
    names = [kind.__name__ for kind in allowed]
    found = {}
    for key, feature in features.items():
        name = type(feature).__name__
        if name not in names or not isinstance(feature, tuple):
            raise SchemaError(
                f"{key!r} is a {name}, where one of {', '.join(names)} must stand", tensor=str(key)
            )
        found[key] = feature if isinstance(feature, _BY_NAME[name]) else _BY_NAME[name](*feature)
    return found


def kind_of(dtype: DTypeLike) -> int:
    """Which of an Example's three lists holds a dtype.

    >>> kind_of("string"), kind_of(np.float32), kind_of("int64")
    (1, 2, 3)
    """
    if dtype is not None and dtypes.is_string(dtype):
        return BYTES
    try:
        name = (
            "float32" if dtype is float else dtypes.named(dtype).name if dtype is not None else None
        )
    except EncodeError:
        name = None
    if name not in ("float32", "int64"):
        raise SchemaError(
            f"an Example holds float32, int64 and string, not {getattr(dtype, 'name', dtype)!r}"
        )
    return FLOAT if name == "float32" else INT64


def splits_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    found = dtypes.named(dtype).numpy
    if found not in (np.int32, np.int64):
        raise SchemaError(f"row_splits_dtype is int32 or int64, not {found}")
    return found


def shape_of(shape: object, key: Key) -> tuple[int, ...]:
    """A shape of known dimensions."""
    dims = [shape] if isinstance(shape, (int, np.integer)) else shape
    if dims is None or not isinstance(dims, Iterable):
        raise SchemaError(f"the feature {key!r} needs a shape, not {shape!r}", tensor=str(key))
    found = []
    for dim in dims:
        known = getattr(dim, "value", dim)  # TensorFlow 1 had a class for dimensions
        if not isinstance(known, (int, np.integer)) or known < 0:
            why = (
                "; FixedLenSequenceFeature has a first dimension that is not known"
                if known is None
                else ""
            )
            raise SchemaError(
                f"the feature {key!r} needs a shape of known dimensions, not {shape!r}{why}",
                tensor=str(key),
            )
        found.append(int(known))
    return tuple(found)


def default_of(value: TensorLike, kind: int, shape: tuple[int, ...], key: Key) -> Array:
    """A default in its dtype and shape; as with TensorFlow it is reshaped, never repeated."""
    with np.errstate(over="ignore"):  # 1e300 is infinite as a float32
        found = arguments.tensor(value) if not _is_empty(value) else np.empty(0, NUMPY[kind])
        if isinstance(found, Strings):
            array, fits = np.asarray(found.astext(False)), kind == BYTES
        else:
            array, fits = (
                np.asarray(found),
                isinstance(found, np.ndarray) and found.dtype.kind in _CAST[kind],
            )
        if not fits or (
            kind == INT64
            and array.dtype == np.uint64
            and array.max(initial=0) > np.iinfo(np.int64).max
        ):
            raise SchemaError(
                f"the default_value {value!r} of {key!r} is no"
                f" {'string' if kind == BYTES else NUMPY[kind]}",
                tensor=str(key),
            )
        if array.size != math.prod(shape):
            raise SchemaError(
                f"the default_value of {key!r} has {array.size} values, its shape {shape} another"
                " number",
                tensor=str(key),
            )
        return array.astype(NUMPY[kind]).reshape(shape)


def _is_empty(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_empty, value))
