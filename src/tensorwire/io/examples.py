"""tf.io.parse_example and parse_single_example."""

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
    """Parse a batch of serialized Examples into a dict of tensors, one per feature.

    `serialized` is a vector of serialized messages, or a scalar, which gives tensors without the
    batch dimension. `features` maps keys to feature classes of `tw.io` or `tf.io`. Raises
    DecodeError for invalid messages and SchemaError for messages that do not fit the features.

    >>> import tensorwire as tw
    >>> record = bytes.fromhex("0a0d0a0b0a016112061a040a020503")  # {"a": [5, 3]}
    >>> tw.io.parse_example([record, record], {"a": tw.io.FixedLenFeature([2], "int64")})
    {'a': array([[5, 3],
           [5, 3]])}
    >>> tw.io.parse_example([record, b""], {"a": tw.io.VarLenFeature("int64")})["a"].shape
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
    """Parse one serialized Example into a dict of tensors, one per feature.

    The arguments and errors are those of `parse_example`.

    >>> import tensorwire as tw
    >>> features = {"a": tw.io.FixedLenFeature([], "string", default_value="none")}
    >>> tw.io.parse_single_example(b"", features)
    {'a': b'none'}
    """
    return _parse(arguments.messages(serialized, example_names, single=True), features, tf_compat)


def _parse(messages: arguments.Messages, features: FeatureSpecs, tf_compat: bool) -> dict[Any, Any]:
    if not features:
        raise SchemaError(f"features must name at least one feature, not {features!r}")
    wanted = given(features, FEATURES)
    for key, feature in wanted.items():
        if isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
            raise SchemaError(
                f"the FixedLenSequenceFeature {key!r} of an Example needs allow_missing=True",
                tensor=str(key),
            )
    defaults = {key: default(key, feature) for key, feature in wanted.items()}
    filled = columns.read_examples(messages, columns.needs(wanted), tf_compat)
    return {
        key: tensor_of(key, feature, defaults[key], filled, messages.single, tf_compat)
        for key, feature in wanted.items()
    }


def default(key: Key, feature: Feature) -> Any:
    """Return the default of a feature as an array, or None.

    For a FixedLenSequenceFeature, return the padding as a number or bytes.
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
    key: Key,
    feature: Feature,
    default: Any,
    filled: dict[Any, Filled],
    single: bool,
    tf_compat: bool,
) -> Any:
    """Return the tensor of a feature from the decoded columns."""
    if isinstance(feature, FixedLenFeature):
        return columns.dense(filled[key], key, shape_of(feature.shape, key), default, single)
    if isinstance(feature, FixedLenSequenceFeature):
        return columns.blocks(filled[key], key, shape_of(feature.shape, key), default, single)
    if isinstance(feature, VarLenFeature):
        return columns.sparse(filled[key], single)
    if isinstance(feature, SparseFeature):
        return _merged(key, feature, filled, single, tf_compat)
    return partitions.ragged(key, feature, filled, single, tf_compat)


def _merged(
    key: Key, feature: SparseFeature, filled: dict[Any, Filled], single: bool, tf_compat: bool
) -> Sparse:
    """Return values at the indices that other features hold.

    TensorFlow lets a record have more values than indices if others have fewer.
    """
    is_string = isinstance(feature.index_key, str)
    index_keys, sizes = (
        ([feature.index_key], [feature.size])
        if is_string
        else (list(feature.index_key), list(feature.size))
    )
    values = filled[feature.value_key]
    for index in index_keys:
        splits, expected = filled[index].splits, values.splits
        assert splits is not None and expected is not None
        if splits[-1] != expected[-1] or (not tf_compat and not np.array_equal(splits, expected)):
            record = int(np.flatnonzero(splits != expected)[0]) - 1
            message = (
                f"the features {index!r} and {feature.value_key!r} of the SparseFeature {key!r}"
                " have different numbers of values"
            )
            raise SchemaError(message, tensor=str(key), record=record, format=FORMAT)
    first = filled[index_keys[0]]
    assert first.splits is not None
    row, _ = columns.places(first.splits)
    indices = np.column_stack(
        ([] if single else [row]) + [filled[index].values for index in index_keys]
    )
    shape = ([] if single else [len(first.present)]) + [int(size) for size in sizes]
    try:
        merged = Sparse(indices, columns.values_of(values), shape)
    except EncodeError as error:
        raise SchemaError(
            f"the SparseFeature {key!r}: {error.message}", tensor=str(key), format=FORMAT
        ) from None
    return merged if feature.already_sorted else merged.sort()
