"""Examples and results of classify and regress: tf.train.Examples as JSON objects of features.

A feature is a list or a single value. Strings are a bytes list, numbers with a decimal point a
float list (float32), other numbers and bools an int64 list. All values of a feature have the same
kind. `context` has the features that all examples share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import frameworks
from ..._errors import EncodeError, LimitError, ModelError, TensorwireError
from ...core import dtypes, validate
from ...core.tensors import Array, Strings, TensorLike, describe
from ..lower import example_rows
from ..lower.example_rows import serialize
from . import serving_rules
from .faults import INVALID, RequestRefused, dims_text, plain, step
from .json_text import RequestText, write, write_rows

FORMAT = "rest"
Examples = Sequence[Mapping[str, TensorLike]] | Mapping[str, TensorLike]
"""A list of dicts of features, or a dict of columns that share their first dimension."""
Context = Mapping[str, TensorLike] | None
"""Features that all examples share."""
Features = dict[str, Array | Strings]
"""Vectors: float32, int64, or strings of bytes."""
_INTEGER = re.compile(rb"(?<![\d.eE+-])-?\d++(?![.eE])")
_POINT = re.compile(rb"[.eEN]|I")
_SHORT = 4096
"""Examples of up to so many bytes are parsed by Python's parser, which is faster for short ones.
Longer ones are parsed without a Python object for each number.
"""
_MOST = 100_000
"""The number of examples in a request, because each becomes a dict of arrays."""


class RestExamples(NamedTuple):
    """A parsed classify or regress request."""

    examples: list[Features]
    context: Features | None
    signature_name: str

    def serialized(self) -> Strings:
        """Return each example as a serialized tf.train.Example, with the features of the context
        that the example does not have itself.

        >>> RestExamples([{"a": np.array([5, 3])}], None, "").serialized()[0].hex(" ")
        '0a 0d 0a 0b 0a 01 61 12 06 1a 04 0a 02 05 03'
        """
        return Strings.of(
            [serialize({**(self.context or {}), **features}) for features in self.examples],
            text=False,
        )

    def messages(self) -> tuple[Strings, bytes | None]:
        """Return the serialized examples without the context, and the serialized context, as in
        gRPC.
        """
        alone = self._replace(context=None).serialized()
        return alone, None if self.context is None else serialize(self.context)


# Requests


def read(text: RequestText) -> RestExamples:
    """Read a body on the fast path; DecodeError means that `serving_rules` must decide."""
    members: dict[str, Any] = {}

    def take(key: str, offset: int) -> int:
        if key == "context":
            members[key], offset = _read_object(text, offset)
        elif key == "examples":
            members[key], offset = _read_objects(text, offset)
        elif key == "signature_name":
            members[key], offset = text.string(offset)
        else:
            offset = text.ignore(offset)
        return offset

    text.finish(text.each_key(text.space(0), take))
    if not members.get("examples"):
        text.fail("examples are missing", 0)
    return RestExamples(
        members["examples"], members.get("context"), members.get("signature_name", "")
    )


def _read_objects(text: RequestText, start: int) -> tuple[list[Features], int]:
    examples: list[Features] = []

    def take(number: int, offset: int) -> int:
        if number == min(_MOST, text.limits.names):
            text.fail(f"more than {number} examples", offset, LimitError)
        features, end = _read_object(text, offset)
        examples.append(features)
        return end

    end = text.each_item(start, take)
    return examples, end


def _read_object(text: RequestText, start: int) -> tuple[Features, int]:
    end = text.end(start)
    value = plain(text.data[start:end]) if end - start <= _SHORT else None
    if value is not None:
        try:
            return {
                name: _array(feature) for name, feature in serving_rules.example(value, "$").items()
            }, end
        except RequestRefused as refused:
            text.fail(refused.fault.message, start)
    features: Features = {}

    def take(name: str, offset: int) -> int:
        values, end = _read_feature(text, offset)
        features[name] = values.reshape(-1)
        return end

    end = text.each_key(start, take)
    return features, end


def _read_feature(text: RequestText, start: int) -> tuple[Array | Strings, int]:
    first = text.space(start + 1) if text.data[start] == ord("[") else start
    if text.data[first] in b'"{':
        values, end = text.tensor(start, "string")
    elif text.data[first] in b"[tf":
        text.fail("unsupported feature on the fast path", start)
    else:
        end = text.end(start)
        is_float = _POINT.search(text.data, start, end) is not None
        values, end = text.tensor(start, "float32" if is_float else "int64")
        if is_float and _INTEGER.search(text.data, start, end):
            text.fail("mixed integers and floats in a feature", start)
    if len(values.shape) > 1:
        text.fail("nested lists in a feature", start)
    return values, end


def made(request: serving_rules.Classify) -> RestExamples:
    """Return the examples that `serving_rules` accepted, as arrays."""
    context = (
        None
        if request.context is None
        else {name: _array(feature) for name, feature in request.context.items()}
    )
    return RestExamples(
        [
            {name: _array(feature) for name, feature in example.items()}
            for example in request.examples
        ],
        context,
        request.signature_name,
    )


def _array(feature: serving_rules.FeatureRule) -> Array | Strings:
    if feature.kind == "float":
        # A number out of the range of float32 becomes infinite, as in Serving.
        with np.errstate(over="ignore"):
            return np.array(feature.values, np.float32)
    return (
        Strings.of(feature.values, text=False)
        if feature.kind == "bytes"
        else np.array(feature.values, np.int64)
    )


def build(examples: Examples, context: Context, signature_name: str | None) -> list[bytes]:
    """Return the body of a classify or regress request, in chunks."""
    rows = list(_rows(examples))
    if not rows:
        raise EncodeError("classify and regress take at least one example", format=FORMAT)
    head = b"{" if signature_name is None else b'{"signature_name":' + key(signature_name) + b","
    if context is not None:
        head += b'"context":' + _object(context, "$.context") + b","
    return [
        head + b'"examples":[',
        b",".join(_object(row, f"$.examples[{i}]") for i, row in enumerate(rows)),
        b"]}",
    ]


def given(examples: Examples, context: Context) -> RestExamples:
    """Return examples from the values that `build` takes, for requests by gRPC."""
    rows = list(_rows(examples))
    if not rows:
        raise EncodeError("classify and regress take at least one example", format=FORMAT)
    features = [_features(row, f"$.examples[{i}]") for i, row in enumerate(rows)]
    return RestExamples(features, None if context is None else _features(context, "$.context"), "")


def _features(features: Mapping[str, TensorLike], path: str) -> Features:
    vectors: Features = {}
    for name, feature in _each_feature(features, path):
        numbers = (
            feature.astype(np.float32 if feature.dtype.kind == "f" else np.int64)
            if isinstance(feature, np.ndarray)
            else feature
        )
        vectors[name] = numbers.reshape(-1)
    return vectors


def _rows(examples: Examples) -> Iterable[Mapping[str, Any]]:
    """Return the examples as dicts of features."""
    if not isinstance(examples, Mapping):
        if not isinstance(examples, Sequence) or isinstance(examples, (str, bytes)):
            raise EncodeError(
                "expected examples as a list of dicts or a dict of columns, got"
                f" {type(examples).__name__}",
                format=FORMAT,
            )
        return examples
    columns: dict[str, Any] = {}
    for name, given in examples.items():
        columns |= (
            {name: given}
            if isinstance(given, (list, tuple))
            else example_rows.columns(name, frameworks.tensor(given))
        )
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) != 1:
        raise EncodeError(
            f"columns of examples must have the same first dimension, got {counts}",
            format=FORMAT,
        )
    return [
        {name: column[i] for name, column in columns.items()}
        for i in range(next(iter(counts.values())))
    ]


def key(name: object) -> bytes:
    """Return a name as a JSON string."""
    if not isinstance(name, str):
        raise EncodeError(f"expected a name that is a string, got {name!r:.60}", format=FORMAT)
    return write(Strings.of([name], ()))


def _object(features: Mapping[str, TensorLike], path: str) -> bytes:
    return (
        b"{"
        + b",".join(
            key(name) + b":" + write(feature) for name, feature in _each_feature(features, path)
        )
        + b"}"
    )


def _each_feature(
    features: Mapping[str, TensorLike], path: str
) -> Iterator[tuple[str, Array | Strings]]:
    if not isinstance(features, Mapping):
        raise EncodeError(
            f"expected an example that is a dict of features, got {type(features).__name__}",
            format=FORMAT,
            path=path,
        )
    for name, value in features.items():
        if not isinstance(name, str):
            raise EncodeError(
                f"expected a feature name that is a string, got {name!r:.60}",
                format=FORMAT,
                path=path,
            )
        try:
            yield name, _feature(value)
        except TensorwireError as error:
            raise EncodeError(
                error.message,
                tensor=name,
                format=FORMAT,
                path=step(path, name),
                hint=error.hint,
            ) from None


def _feature(value: TensorLike) -> Array | Strings:
    """Return a value as a scalar or vector of bools, integers, float32 or strings."""
    if isinstance(value, (list, tuple)) and not value:
        return np.empty(0, np.int64)
    tensor = frameworks.tensor(value)
    if not isinstance(tensor, (np.ndarray, Strings)) or len(tensor.shape) > 1:
        raise EncodeError(
            f"expected a feature that is a scalar or a vector, got {describe(tensor)}",
            hint="flatten it first",
        )
    if isinstance(tensor, Strings) or tensor.dtype == np.bool_:
        return tensor
    row = dtypes.of(tensor.dtype)
    if tensor.dtype.kind in "iu":
        if row.name == "uint64" and tensor.size and tensor.max() > validate.INT64_MAX:
            raise EncodeError("an int64 list cannot hold numbers above 2**63 - 1")
        return tensor
    if row.name not in ("float32", "float64", "float16", "bfloat16"):
        raise EncodeError(f"an Example cannot hold {row.name}", hint="use x.astype(np.float32)")
    if row.name == "float64" and (
        isinstance(value, np.generic) or not isinstance(value, (int, float, list, tuple))
    ):
        raise EncodeError(
            "an Example holds float32, and float64 would be rounded",
            hint="use x.astype(np.float32)",
        )
    with np.errstate(over="ignore"):
        single = tensor.astype(np.float32)
    if (np.isinf(single) & np.isfinite(tensor)).any():
        raise EncodeError("a number is out of range for float32")
    return single


# Answers


def write_classes(outputs: Mapping[str, Any]) -> list[bytes]:
    """Return the `results` of classify, pairs of a label and a score, from {"classes": strings
    [N, C], "scores": float32 [N, C]} or one of the two.
    """
    labels, scores = outputs.get("classes"), outputs.get("scores")
    for tensor in (labels, scores):
        if tensor is not None and len(tensor.shape) != 2:
            raise ModelError(
                INVALID,
                "Expected Tensor shape: [batch_size num_classes] but got"
                f" {dims_text(tensor.shape)}",
            )
    reference = labels if scores is None else scores
    if reference is None or not reference.shape[0]:
        raise ModelError(INVALID, "Cannot convert empty ClassificationResults to JSON")
    if labels is not None and labels.shape != reference.shape:
        raise ModelError(
            INVALID,
            f"Tensors of classes and scores differ: {dims_text(labels.shape)} and"
            f" {dims_text(reference.shape)}",
        )
    rows, columns = reference.shape
    texts = (
        write_rows(labels.reshape(-1), False) if labels is not None else [b'""'] * (rows * columns)
    )
    numbers = (
        write_rows(np.ascontiguousarray(scores, np.float32).reshape(-1))
        if scores is not None
        else [b"0.0"] * (rows * columns)
    )
    pairs = [b"[%b,%b]" % pair for pair in zip(texts, numbers, strict=True)]
    return [
        b'{"results":['
        + b",".join(
            b"[" + b",".join(pairs[i * columns : (i + 1) * columns]) + b"]" for i in range(rows)
        )
        + b"]}"
    ]


def write_values(outputs: Mapping[str, Any]) -> list[bytes]:
    """Return the `results` of regress from one float32 [N] or [N, 1]."""
    tensors = list(outputs.values())
    values = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], np.ndarray) else None
    if values is None or values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        shapes = " and ".join(dims_text(tensor.shape) for tensor in tensors) or "none"
        raise ModelError(
            INVALID,
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got"
            f" {shapes}",
        )
    if not len(values):
        raise ModelError(INVALID, "Cannot convert empty RegressionResults to JSON")
    return [b'{"results":', write(np.ascontiguousarray(values, np.float32).reshape(-1)), b"}"]
