"""Features of Examples in a conversion: as columns, in the Examples written, and in the schema.

1. A tensor of a known shape becomes a column of that shape.
2. A tensor with varying dimensions becomes a column of lists, if the target has lists of any depth.
3. A tensor without a shape, or a quantized one, is copied as the bytes that it is in the Example.
   It is not encoded again, and the schema file of the target still describes its content.
"""

from __future__ import annotations

from dataclasses import replace

from .._errors import EncodeError
from ..core import dtypes
from ..records.schema import BYTES, FLOAT, INT64, Feature, Schema
from .conversion_spec import ConversionSpec

_LISTS = ("parquet", "arrow", "npz", "safetensors")
"""Formats whose columns may be lists of any depth."""


def travelling(spec: ConversionSpec) -> dict[str, Feature]:
    """Returns the features of the columns that are read.

    >>> any_shape = Feature("bytes", None, encoding="tensor")
    >>> schema = Schema({"x": Feature("float", (4,)), "any": any_shape})
    >>> names = bare(schema, "tfrecord", "parquet")
    >>> travelling(ConversionSpec("tfrecord", "parquet", schema.json(), bare=names))
    {'x': Feature(float (4,)), 'any': Feature(bytes ())}
    """
    return {
        name: _bytes(feature) if name in spec.bare else feature
        for name, feature in _all(spec).items()
    }


def in_examples(spec: ConversionSpec) -> Schema:
    """Returns the schema of the Examples that are written."""
    return Schema(
        {
            name: _packed(name, feature, spec)
            for name, feature in _written(spec, travelling(spec)).items()
        }
    )


def remembered(spec: ConversionSpec) -> Schema:
    """Returns the schema for the schema file of the target, which describes the written columns."""
    features = {}
    for name, feature in _written(spec, dict(_all(spec))).items():
        features[name] = feature if name in spec.bare else _packed(name, feature, spec)
    return Schema({name: replace(feature, seen={}) for name, feature in features.items()})


def _all(spec: ConversionSpec) -> Schema:
    assert spec.schema is not None
    return spec.schema


def _written(spec: ConversionSpec, features: dict[str, Feature]) -> dict[str, Feature]:
    return features if spec.columns is None else {name: features[name] for name in spec.columns}


def bare(schema: Schema, source: str, target: str) -> list[str]:
    """Returns the names of the features that are copied as bytes when Examples are read."""
    lists = source == "tfrecord" and target in _LISTS
    as_bytes = {name: feature for name, feature in schema.items() if _bytes(feature) is not feature}
    return [name for name, feature in as_bytes.items() if not (lists and _is_lists(feature))]


def _is_lists(feature: Feature) -> bool:
    """Whether the tensors of a feature can be a column of lists.

    Lists of strings cannot: they would look like quantized tensors.
    """
    varies = feature.encoding == "tensor" and feature.shape is not None and not feature.fixed
    return varies and (feature.dtype != "string" or len(feature.shape or ()) > 1)


def _bytes(feature: Feature) -> Feature:
    if feature.encoding == "quantized":
        return Feature(BYTES, (None,), required=feature.required)
    if feature.encoding in ("tensor", "raw") and not feature.fixed:
        return Feature(BYTES, (), required=feature.required)
    return feature


def _packed(name: str, feature: Feature, spec: ConversionSpec) -> Feature:
    """Returns the feature after quantize=, cast= and tensors= have been applied."""
    if name in spec.quantize:
        return Feature(BYTES, feature.shape, feature.dtype, encoding="quantized")
    if name in spec.cast:
        feature = _cast(feature, spec.cast[name])
    if name not in spec.tensors or name in spec.bare or feature.encoding:
        return feature
    numbers = feature.kind != BYTES and feature.fixed
    return Feature(
        BYTES,
        feature.shape if numbers else None,
        feature.dtype if numbers else "",
        encoding="tensor",
    )


def _cast(feature: Feature, dtype: str) -> Feature:
    kind = (
        feature.kind
        if feature.encoding
        else INT64
        if dtypes.named(dtype).numpy.kind in "iub"
        else FLOAT
    )
    return replace(feature, kind=kind, dtype=dtype, default=None)


def check_casts(spec: ConversionSpec) -> None:
    """Raises EncodeError if cast= names a feature that is not a number."""
    for name, feature in travelling(spec).items() if spec.cast else ():
        if name in spec.cast and feature.dtype == "string":
            raise EncodeError(
                "cast= applies to numbers, not to strings or tensors without a fixed shape",
                tensor=name,
            )
