"""tf.train.Example messages as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._errors import EncodeError, SchemaError
from ..core.tensors import Sparse, TensorLike
from ..wire.example import FORMAT, Filled
from . import arguments, columns, partitions
from .features import (
    FEATURES,
    Feature,
    FeatureSpecs,
    FixedLenFeature,
    FixedLenSequenceFeature,
    Key,
    SparseFeature,
    VarLenFeature,
    default_of,
    given,
    kind_of,
    shape_of,
)


def parse_example(
    serialized: TensorLike,
    features: FeatureSpecs,
    example_names: ArrayLike | None = None,
    name: str | None = None,
    *,
    tf_compat: bool = False,
) -> dict[Any, Any]:
    """A batch of serialized Examples as one tensor for each feature; one Example (a scalar) gives
    tensors without the batch dimension.

    >>> from tensorwire.io import FixedLenFeature, VarLenFeature
    >>> record = bytes.fromhex("0a0d0a0b0a016112061a040a020503")  # {"a": [5, 3]}
    >>> parse_example([record, record], {"a": FixedLenFeature([2], "int64")})
    {'a': array([[5, 3],
           [5, 3]])}
    >>> parse_example([record, b""], {"a": VarLenFeature("int64")})["a"].shape
    (2, 2)
    """
    return _parse(arguments.messages(serialized, example_names), features, tf_compat)


def parse_single_example(
    serialized: TensorLike,
    features: FeatureSpecs,
    example_names: ArrayLike | None = None,
    name: str | None = None,
    *,
    tf_compat: bool = False,
) -> dict[Any, Any]:
    """One serialized Example as one tensor for each feature.

    >>> from tensorwire.io import FixedLenFeature
    >>> parse_single_example(b"", {"a": FixedLenFeature([], "string", default_value="none")})
    {'a': b'none'}
    """
    return _parse(arguments.messages(serialized, example_names, one=True), features, tf_compat)


def _parse(messages: arguments.Messages, features: FeatureSpecs, tf_compat: bool) -> dict[Any, Any]:
    if not features:
        raise SchemaError(f"which features? {features!r} names none")
    wanted = given(features, FEATURES)
    for key, feature in wanted.items():
        if isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
            raise SchemaError(
                f"the FixedLenSequenceFeature {key!r} needs allow_missing=True outside of"
                " SequenceExamples",
                tensor=str(key),
            )
    defaults = {key: default(key, feature) for key, feature in wanted.items()}
    found = columns.read_examples(messages, columns.needs(wanted), tf_compat)
    return {
        key: tensor_of(key, feature, defaults[key], found, messages.one, tf_compat)
        for key, feature in wanted.items()
    }


def default(key: Key, feature: Feature) -> Any:
    """A feature's default as an array, the padding of a FixedLenSequenceFeature as a number or
    bytes, or None.
    """
    if isinstance(feature, FixedLenSequenceFeature):
        kind = kind_of(feature.dtype)
        return (
            columns.padding_of(kind)
            if feature.default_value is None
            else default_of(feature.default_value, kind, (), key)[()]
        )
    if isinstance(feature, FixedLenFeature) and feature.default_value is not None:
        return default_of(
            feature.default_value, kind_of(feature.dtype), shape_of(feature.shape, key), key
        )
    return None


def tensor_of(
    key: Key, feature: Feature, default: Any, found: dict[Any, Filled], one: bool, tf_compat: bool
) -> Any:
    if isinstance(feature, FixedLenFeature):
        return columns.dense(found[key], key, shape_of(feature.shape, key), default, one)
    if isinstance(feature, FixedLenSequenceFeature):
        return columns.blocks(found[key], key, shape_of(feature.shape, key), default, one)
    if isinstance(feature, VarLenFeature):
        return columns.sparse(found[key], one)
    if isinstance(feature, SparseFeature):
        return _merged(key, feature, found, one, tf_compat)
    return partitions.ragged(key, feature, found, one, tf_compat)


def _merged(
    key: Key, feature: SparseFeature, found: dict[Any, Filled], one: bool, tf_compat: bool
) -> Sparse:
    """Values at the indices that other features give. TensorFlow lets records have more values than
    indices if others have fewer.
    """
    single = isinstance(feature.index_key, str)
    index_keys, sizes = (
        ([feature.index_key], [feature.size])
        if single
        else (list(feature.index_key), list(feature.size))
    )
    values = found[feature.value_key]
    for index in index_keys:
        splits, expected = found[index].splits, values.splits
        assert splits is not None and expected is not None
        if splits[-1] != expected[-1] or (not tf_compat and not np.array_equal(splits, expected)):
            record = int(np.flatnonzero(splits != expected)[0]) - 1
            why = (
                f"the features {index!r} and {feature.value_key!r} of the SparseFeature {key!r}"
                " have different numbers of values"
            )
            raise SchemaError(why, tensor=str(key), record=record, format=FORMAT)
    first = found[index_keys[0]]
    assert first.splits is not None
    row, _ = columns.places(first.splits)
    indices = np.column_stack(
        ([] if one else [row]) + [found[index].values for index in index_keys]
    )
    shape = ([] if one else [len(first.present)]) + [int(size) for size in sizes]
    try:
        merged = Sparse(indices, columns.values_of(values), shape)
    except EncodeError as error:
        raise SchemaError(
            f"the SparseFeature {key!r}: {error.message}", tensor=str(key), format=FORMAT
        ) from None
    return merged if feature.already_sorted else merged.sort()
