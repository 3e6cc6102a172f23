"""tf.io's feature classes, which say what to read of an Example.

They have the fields, defaults and repr of TensorFlow's classes, which are accepted too. dtypes are
tf.DType, NumPy dtypes or names; an Example holds only float32, int64 and strings.
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
"""The kinds of NumPy dtypes that a default may have, by kind of list."""
NUMPY = {BYTES: np.dtype(object), FLOAT: np.dtype(np.float32), INT64: np.dtype(np.int64)}


class FixedLenFeature(NamedTuple):
    """A dense tensor: every record has as many values as `shape`, or gets `default_value`.

    >>> import tensorwire as tw
    >>> tw.io.FixedLenFeature([2], "float32")
    FixedLenFeature(shape=[2], dtype='float32', default_value=None)
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class VarLenFeature(NamedTuple):
    """A sparse tensor [batch, most values in a record].

    >>> import tensorwire as tw
    >>> tw.io.VarLenFeature("int64")
    VarLenFeature(dtype='int64')
    """

    dtype: Any


class SparseFeature(NamedTuple):
    """A sparse tensor whose values and indices are separate features.

    `value_key` names the feature with the values, `index_key` one feature for each dimension of
    `size`.

    >>> import tensorwire as tw
    >>> tw.io.SparseFeature(["x", "y"], "v", "float32", size=[640, 480]).already_sorted
    False
    """

    index_key: Any
    value_key: Any
    dtype: Any
    size: Any
    already_sorted: bool = False


class FixedLenSequenceFeature(NamedTuple):
    """A dense tensor with a varying number of blocks of `shape`, padded to the longest record.

    >>> import tensorwire as tw
    >>> tw.io.FixedLenSequenceFeature([], "int64", allow_missing=True).default_value is None
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
    """A ragged tensor: the values of a record, split into rows by other features.

    `partitions` go from the outermost dimension to the innermost. Raises SchemaError or TypeError
    for invalid arguments.

    >>> import tensorwire as tw
    >>> splits = tw.io.RaggedFeature.RowSplits("s")
    >>> tw.io.RaggedFeature("int64", value_key="v", partitions=[splits]).partitions
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
            raise SchemaError(f"value_key must be the name of a feature, not {value_key!r}")
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(
                f"partitions must be a list of partitions such as RowSplits(key), not {partitions!r}"
            )
        if not isinstance(validate, bool):
            raise TypeError(f"validate must be a bool, not {validate!r}")
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
    """Return a partition as our class. TensorFlow's classes are recognised by name."""
    kind = _PARTITION_BY_NAME.get(type(given).__name__)
    if kind is None or not isinstance(given, tuple):
        raise TypeError(
            f"a partition must be one of {', '.join(_PARTITION_BY_NAME)}, not {given!r}"
        )
    return given if isinstance(given, kind) else kind(*given)


def given(features: object, allowed: Iterable[Any]) -> dict[Any, Any]:
    """Return the features by key, each as our own class."""
    if not isinstance(features, Mapping):
        raise SchemaError(f"features must be a dict of names and features, not {features!r}")
    names = [kind.__name__ for kind in allowed]
    result = {}
    for key, feature in features.items():
        name = type(feature).__name__
        if name not in names or not isinstance(feature, tuple):
            raise SchemaError(
                f"the feature {key!r} must be one of {', '.join(names)}, not {name}",
                tensor=str(key),
            )
        result[key] = feature if isinstance(feature, _BY_NAME[name]) else _BY_NAME[name](*feature)
    return result


def kind_of(dtype: DTypeLike) -> int:
    """Return which of an Example's three lists holds a dtype.

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
    result = dtypes.named(dtype).numpy
    if result not in (np.int32, np.int64):
        raise SchemaError(f"row_splits_dtype must be int32 or int64, not {result}")
    return result


def shape_of(shape: object, key: Key) -> tuple[int, ...]:
    """Return a shape as a tuple. Raises SchemaError if a dimension is unknown."""
    dims = [shape] if isinstance(shape, (int, np.integer)) else shape
    if dims is None or not isinstance(dims, Iterable):
        raise SchemaError(f"the feature {key!r} needs a shape, not {shape!r}", tensor=str(key))
    result = []
    for dim in dims:
        # TensorFlow 1 had a class for dimensions.
        size = getattr(dim, "value", dim)
        if not isinstance(size, (int, np.integer)) or size < 0:
            hint = (
                "FixedLenSequenceFeature has an unknown first dimension" if size is None else None
            )
            raise SchemaError(
                f"the feature {key!r} needs a shape of known dimensions, not {shape!r}",
                tensor=str(key),
                hint=hint,
            )
        result.append(int(size))
    return tuple(result)


def default_of(value: TensorLike, kind: int, shape: tuple[int, ...], key: Key) -> Array:
    """Return a default in its dtype and shape. Like TensorFlow, it is reshaped but never repeated."""
    # 1e300 becomes infinite as a float32, as in TensorFlow.
    with np.errstate(over="ignore"):
        tensor = arguments.tensor(value) if not _is_empty(value) else np.empty(0, NUMPY[kind])
        if isinstance(tensor, Strings):
            array, fits = np.asarray(tensor.astext(False)), kind == BYTES
        else:
            array, fits = (
                np.asarray(tensor),
                isinstance(tensor, np.ndarray) and tensor.dtype.kind in _CAST[kind],
            )
        if not fits or (
            kind == INT64
            and array.dtype == np.uint64
            and array.max(initial=0) > np.iinfo(np.int64).max
        ):
            raise SchemaError(
                f"the default_value of {key!r} must be"
                f" {'string' if kind == BYTES else NUMPY[kind]}, not {value!r}",
                tensor=str(key),
            )
        if array.size != math.prod(shape):
            raise SchemaError(
                f"the default_value of {key!r} has {array.size} values, which does not fit its"
                f" shape {shape}",
                tensor=str(key),
            )
        return array.astype(NUMPY[kind]).reshape(shape)


def _is_empty(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_empty, value))
