"""tf.io.parse_sequence_example and parse_single_sequence_example."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._errors import SchemaError
from ..core.tensors import Array, Sparse, TensorLike, trusted
from ..wire.example import Filled
from . import arguments, columns, partitions
from .examples import default, tensor_of
from .features import (
    FeatureSpecs,
    FixedLenFeature,
    FixedLenSequenceFeature,
    Key,
    RaggedFeature,
    VarLenFeature,
    given,
    kind_of,
    shape_of,
)

Parsed = tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]


def parse_sequence_example(
    serialized: TensorLike,
    context_features: FeatureSpecs | None = None,
    sequence_features: FeatureSpecs | None = None,
    example_names: ArrayLike | None = None,
    name: str | None = None,
    *,
    tf_compat: bool = False,
) -> Parsed:
    """Parse a batch of serialized SequenceExamples into tensors.

    Returns (context tensors, feature-list tensors, lengths of the dense feature lists), each a dict
    by key. Raises DecodeError for invalid messages and SchemaError for messages that do not fit the
    features.

    >>> import tensorwire as tw
    >>> record = bytes.fromhex("12140a120a0161120d0a051a030a01050a041a020802")  # {"a": [[5], [2]]}
    >>> context, lists, lengths = tw.io.parse_sequence_example([record], sequence_features={"a":
    ...     tw.io.FixedLenSequenceFeature([], "int64")})
    >>> lists["a"], lengths["a"]
    (array([[5, 2]]), array([2]))
    """
    return _parse(
        arguments.messages(serialized, example_names),
        context_features,
        sequence_features,
        tf_compat,
    )


def parse_single_sequence_example(
    serialized: TensorLike,
    context_features: FeatureSpecs | None = None,
    sequence_features: FeatureSpecs | None = None,
    example_name: ArrayLike | None = None,
    name: str | None = None,
    *,
    tf_compat: bool = False,
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Parse one serialized SequenceExample into (context tensors, feature-list tensors).

    The arguments and errors are those of `parse_sequence_example`.

    >>> import tensorwire as tw
    >>> ids = tw.io.VarLenFeature("int64")
    >>> context, lists = tw.io.parse_single_sequence_example(b"", {"a": ids}, {"b": ids})
    >>> context["a"].shape, lists["b"].shape
    ((0,), (0, 0))
    """
    return _parse(
        arguments.messages(serialized, example_name, single=True),
        context_features,
        sequence_features,
        tf_compat,
    )[:2]


def _parse(
    messages: arguments.Messages,
    context_features: FeatureSpecs | None,
    sequence_features: FeatureSpecs | None,
    tf_compat: bool,
) -> Parsed:
    if not context_features and not sequence_features:
        raise SchemaError("context_features and sequence_features name no feature")
    context = given(context_features or {}, (VarLenFeature, FixedLenFeature, RaggedFeature))
    lists = given(sequence_features or {}, (VarLenFeature, FixedLenSequenceFeature, RaggedFeature))
    for key, feature in lists.items():
        if isinstance(feature, FixedLenSequenceFeature) and feature.default_value is not None:
            raise SchemaError(
                f"the feature list {key!r} cannot have a default_value: it is padded with zeros",
                tensor=str(key),
            )
    defaults = {key: default(key, feature) for key, feature in context.items()}
    wanted = columns.needs(context)
    outer, inner = columns.read_sequences(
        messages, wanted, columns.needs(lists, in_list=True), tf_compat
    )
    single = messages.single
    required = [
        key
        for key, feature in context.items()
        if isinstance(feature, FixedLenFeature) and defaults[key] is None
    ]
    if tf_compat and not len(messages.sizes) and any(wanted[key].length for key in required):
        raise SchemaError(
            "with tf_compat=True an empty batch cannot have a context FixedLenFeature without a"
            " default_value"
        )
    return (
        {
            key: tensor_of(key, feature, defaults[key], outer, single, tf_compat)
            for key, feature in context.items()
        },
        {key: _list(key, feature, inner, single, tf_compat) for key, feature in lists.items()},
        {
            key: _lengths(inner[key], single)
            for key, feature in lists.items()
            if isinstance(feature, FixedLenSequenceFeature)
        },
    )


def _list(
    key: Key,
    feature: FixedLenSequenceFeature | VarLenFeature | RaggedFeature,
    filled: dict[Any, Filled],
    single: bool,
    tf_compat: bool,
) -> Any:
    if isinstance(feature, FixedLenSequenceFeature):
        return _dense(key, feature, filled[key], single)
    if isinstance(feature, VarLenFeature):
        return _sparse(filled[key], single)
    return partitions.ragged(key, feature, filled, single, tf_compat)


def _dense(key: Key, feature: FixedLenSequenceFeature, filled: Filled, single: bool) -> Array:
    assert filled.steps is not None
    if not feature.allow_missing and not filled.present.all():
        raise columns.missing_error(
            key, int(np.flatnonzero(~filled.present)[0]), "allow_missing=True reads it as empty"
        )
    values = columns.objects_of(filled).reshape(-1, *shape_of(feature.shape, key))
    return (
        values
        if single
        else columns.padded(
            values, np.diff(filled.steps), columns.padding_of(kind_of(feature.dtype))
        )
    )


def _sparse(filled: Filled, single: bool) -> Sparse:
    """Return a Sparse [records, most steps, most values of a step]."""
    assert filled.steps is not None and filled.splits is not None
    step, column = columns.places(filled.splits)
    row, position = columns.places(filled.steps)
    parts, shape = (
        [position[step], column],
        [int(np.diff(part).max(initial=0)) for part in (filled.steps, filled.splits)],
    )
    if not single:
        parts, shape = [row[step], *parts], [len(filled.present), *shape]
    return trusted(Sparse, np.column_stack(parts), columns.values_of(filled), np.array(shape))


def _lengths(filled: Filled, single: bool) -> Array:
    assert filled.steps is not None
    lengths = np.diff(filled.steps)
    return lengths.reshape(()) if single else lengths
