"""tf.train.SequenceExample messages as tensors."""

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
    """A batch of serialized SequenceExamples as (context tensors, feature-list tensors, lengths of
    the dense feature lists).

    >>> from tensorwire.io import FixedLenSequenceFeature
    >>> record = bytes.fromhex("12140a120a0161120d0a051a030a01050a041a020802")  # {"a": [[5], [2]]}
    >>> context, lists, lengths = parse_sequence_example([record], sequence_features={"a":
    ...     FixedLenSequenceFeature([], "int64")})
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
    """One serialized SequenceExample as (context tensors, feature-list tensors).

    >>> from tensorwire.io import VarLenFeature
    >>> context, lists = parse_single_sequence_example(b"", {"a": VarLenFeature("int64")}, {"b":
    ...     VarLenFeature("int64")})
    >>> context["a"].shape, lists["b"].shape
    ((0,), (0, 0))
    """
    return _parse(
        arguments.messages(serialized, example_name, one=True),
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
        raise SchemaError(
            "which features? Neither context_features nor sequence_features names any"
        )
    context = given(context_features or {}, (VarLenFeature, FixedLenFeature, RaggedFeature))
    lists = given(sequence_features or {}, (VarLenFeature, FixedLenSequenceFeature, RaggedFeature))
    for key, feature in lists.items():
        if isinstance(feature, FixedLenSequenceFeature) and feature.default_value is not None:
            raise SchemaError(
                f"feature lists are padded with zeros; {key!r} takes no default_value",
                tensor=str(key),
            )
    defaults = {key: default(key, feature) for key, feature in context.items()}
    wanted = columns.needs(context)
    outer, inner = columns.read_sequences(
        messages, wanted, columns.needs(lists, in_list=True), tf_compat
    )
    one = messages.one
    required = [
        key
        for key, feature in context.items()
        if isinstance(feature, FixedLenFeature) and defaults[key] is None
    ]
    if tf_compat and not len(messages.sizes) and any(wanted[key].length for key in required):
        raise SchemaError(
            "TensorFlow reads no empty batch with a FixedLenFeature in the context that has no"
            " default_value"
        )
    return (
        {
            key: tensor_of(key, feature, defaults[key], outer, one, tf_compat)
            for key, feature in context.items()
        },
        {key: _list(key, feature, inner, one, tf_compat) for key, feature in lists.items()},
        {
            key: _lengths(inner[key], one)
            for key, feature in lists.items()
            if isinstance(feature, FixedLenSequenceFeature)
        },
    )


def _list(
    key: Key,
    feature: FixedLenSequenceFeature | VarLenFeature | RaggedFeature,
    found: dict[Any, Filled],
    one: bool,
    tf_compat: bool,
) -> Any:
    if isinstance(feature, FixedLenSequenceFeature):
        return _dense(key, feature, found[key], one)
    if isinstance(feature, VarLenFeature):
        return _sparse(found[key], one)
    return partitions.ragged(key, feature, found, one, tf_compat)


def _dense(key: Key, feature: FixedLenSequenceFeature, filled: Filled, one: bool) -> Array:
    assert filled.steps is not None
    if not feature.allow_missing and not filled.present.all():
        raise columns.missing_error(
            key, int(np.flatnonzero(~filled.present)[0]), "; allow_missing=True takes it as empty"
        )
    values = columns.objects_of(filled).reshape(-1, *shape_of(feature.shape, key))
    return (
        values
        if one
        else columns.padded(
            values, np.diff(filled.steps), columns.padding_of(kind_of(feature.dtype))
        )
    )


def _sparse(filled: Filled, one: bool) -> Sparse:
    """[records, most steps, most values of a step]"""
    assert filled.steps is not None and filled.splits is not None
    step, column = columns.places(filled.splits)
    row, inside = columns.places(filled.steps)
    parts, shape = (
        [inside[step], column],
        [int(np.diff(part).max(initial=0)) for part in (filled.steps, filled.splits)],
    )
    if not one:
        parts, shape = [row[step], *parts], [len(filled.present), *shape]
    return trusted(Sparse, np.column_stack(parts), columns.values_of(filled), np.array(shape))


def _lengths(filled: Filled, one: bool) -> Array:
    assert filled.steps is not None
    lengths = np.diff(filled.steps)
    return lengths.reshape(()) if one else lengths
