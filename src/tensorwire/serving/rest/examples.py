"""classify and regress: tf.train.Examples as objects of features, and what comes back.

A feature is a list or one value. Strings are a bytes list, numbers with a point a float list
(float32), other numbers and bools an int64 list; all values of one feature are of one kind.
`context` has the features that belong to every example.
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
"""Objects of features one by one, or columns that share their first dimension."""
Context = Mapping[str, TensorLike] | None
"""Features that belong to every example."""
Features = dict[str, Array | Strings]
"""Vectors: float32, int64, or strings of bytes."""
_INTEGER = re.compile(rb"(?<![\d.eE+-])-?\d++(?![.eE])")
_POINT = re.compile(rb"[.eEN]|I")
_SHORT = 4096
"""Bytes of an example that Python's parser reads quicker than ours, whose numbers become no Python
objects.
"""
_MOST = 100_000
"""Examples in one request: each is a dict of arrays."""


class RestExamples(NamedTuple):
    """What a classify or regress request asks for."""

    examples: list[Features]
    context: Features | None
    signature_name: str

    def serialized(self) -> Strings:
        """Each example as a tf.train.Example message, with the context's features where it has no
        such feature itself.

        >>> RestExamples([{"a": np.array([5, 3])}], None, "").serialized()[0].hex(" ")
        '0a 0d 0a 0b 0a 01 61 12 06 1a 04 0a 02 05 03'
        """
        return Strings.of(
            [serialize({**(self.context or {}), **features}) for features in self.examples],
            text=False,
        )

    def messages(self) -> tuple[Strings, bytes | None]:
        """Each example as a message without the context's features, and those as a message of their
        own, as gRPC sends them.
        """
        alone = self._replace(context=None).serialized()
        return alone, None if self.context is None else serialize(self.context)


# Requests


def read(text: RequestText) -> RestExamples:
    """A body that may be a good one; DecodeError if it is not, or if its rules are not known here."""
    found: dict[str, Any] = {}

    def take(key: str, at: int) -> int:
        if key == "context":
            found[key], at = _read_object(text, at)
        elif key == "examples":
            found[key], at = _read_objects(text, at)
        elif key == "signature_name":
            found[key], at = text.string(at)
        else:
            at = text.ignore(at)
        return at

    text.finish(text.each_key(text.space(0), take))
    if not found.get("examples"):
        text.fail("examples are missing", 0)
    return RestExamples(found["examples"], found.get("context"), found.get("signature_name", ""))


def _read_objects(text: RequestText, at: int) -> tuple[list[Features], int]:
    found: list[Features] = []

    def take(number: int, at: int) -> int:
        if number == min(_MOST, text.limits.names):
            text.fail(f"more than {number} examples", at, LimitError)
        features, end = _read_object(text, at)
        found.append(features)
        return end

    end = text.each_item(at, take)
    return found, end


def _read_object(text: RequestText, at: int) -> tuple[Features, int]:
    end = text.end(at)
    value = plain(text.data[at:end]) if end - at <= _SHORT else None
    if value is not None:
        try:
            return {
                name: _array(feature) for name, feature in serving_rules.example(value, "$").items()
            }, end
        except RequestRefused as refused:
            text.fail(refused.fault.message, at)
    found: Features = {}

    def take(name: str, at: int) -> int:
        values, end = _read_feature(text, at)
        found[name] = values.reshape(-1)
        return end

    end = text.each_key(at, take)
    return found, end


def _read_feature(text: RequestText, at: int) -> tuple[Array | Strings, int]:
    first = text.space(at + 1) if text.data[at] == ord("[") else at
    if text.data[first] in b'"{':
        values, end = text.tensor(at, "string")
    elif text.data[first] in b"[tf":
        text.fail("a feature that needs a closer look", at)
    else:
        end = text.end(at)
        is_float = _POINT.search(text.data, at, end) is not None
        values, end = text.tensor(at, "float32" if is_float else "int64")
        if is_float and _INTEGER.search(text.data, at, end):
            text.fail("integers among the floats", at)
    if len(values.shape) > 1:
        text.fail("lists in the list of a feature", at)
    return values, end


def made(found: serving_rules.Classify) -> RestExamples:
    """What the rules found, as arrays."""
    context = (
        None
        if found.context is None
        else {name: _array(feature) for name, feature in found.context.items()}
    )
    return RestExamples(
        [{name: _array(feature) for name, feature in each.items()} for each in found.examples],
        context,
        found.signature_name,
    )


def _array(feature: serving_rules.FeatureRule) -> Array | Strings:
    if feature.kind == "float":
        with np.errstate(over="ignore"):  # past the range of float32 it is infinite, as in Serving
            return np.array(feature.values, np.float32)
    return (
        Strings.of(feature.values, text=False)
        if feature.kind == "bytes"
        else np.array(feature.values, np.int64)
    )


def build(examples: Examples, context: Context, signature_name: str | None) -> list[bytes]:
    """The body of a classify or regress request."""
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
    """Examples from the same values that `build` takes, for whoever does not send JSON."""
    rows = list(_rows(examples))
    if not rows:
        raise EncodeError("classify and regress take at least one example", format=FORMAT)
    known = [_features(row, f"$.examples[{i}]") for i, row in enumerate(rows)]
    return RestExamples(known, None if context is None else _features(context, "$.context"), "")


def _features(features: Mapping[str, TensorLike], path: str) -> Features:
    found: Features = {}
    for name, feature in _each_feature(features, path):
        numbers = (
            feature.astype(np.float32 if feature.dtype.kind == "f" else np.int64)
            if isinstance(feature, np.ndarray)
            else feature
        )
        found[name] = numbers.reshape(-1)
    return found


def _rows(examples: Examples) -> Iterable[Mapping[str, Any]]:
    """Objects of features, given one by one, or as columns that share their first dimension."""
    if not isinstance(examples, Mapping):
        if not isinstance(examples, Sequence) or isinstance(examples, (str, bytes)):
            raise EncodeError(
                "examples are a list of dicts, or a dict of columns, not"
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
            f"columns of examples share their first dimension, and these have {counts}",
            format=FORMAT,
        )
    return [
        {name: column[i] for name, column in columns.items()}
        for i in range(next(iter(counts.values())))
    ]


def key(name: object) -> bytes:
    """A name as JSON."""
    if not isinstance(name, str):
        raise EncodeError(f"names are text, not {name!r:.60}", format=FORMAT)
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
            f"an example is a dict of features, not {type(features).__name__}, at {path}",
            format=FORMAT,
        )
    for name, value in features.items():
        if not isinstance(name, str):
            raise EncodeError(f"names are text, not {name!r:.60}, at {path}", format=FORMAT)
        try:
            yield name, _feature(value)
        except TensorwireError as error:
            raise EncodeError(
                f"{error.message}, at {step(path, name)}", tensor=name, format=FORMAT
            ) from None


def _feature(value: TensorLike) -> Array | Strings:
    """A value as what a feature holds: one or a vector of bools, integers, float32 or strings."""
    if isinstance(value, (list, tuple)) and not value:
        return np.empty(0, np.int64)
    tensor = frameworks.tensor(value)
    if not isinstance(tensor, (np.ndarray, Strings)) or len(tensor.shape) > 1:
        raise EncodeError(
            f"a feature is one value or a list of them, not {describe(tensor)}; flatten it first"
        )
    if isinstance(tensor, Strings) or tensor.dtype == np.bool_:
        return tensor
    row = dtypes.of(tensor.dtype)
    if tensor.dtype.kind in "iu":
        if row.name == "uint64" and tensor.size and tensor.max() > validate.INT64_MAX:
            raise EncodeError("an int64 list holds no number past 2**63 - 1")
        return tensor
    if row.name not in ("float32", "float64", "float16", "bfloat16"):
        raise EncodeError(f"an Example holds no {row.name}; x.astype(np.float32) is a float list")
    if row.name == "float64" and (
        isinstance(value, np.generic) or not isinstance(value, (int, float, list, tuple))
    ):
        raise EncodeError("a float list is float32; x.astype(np.float32) rounds this float64")
    with np.errstate(over="ignore"):
        single = tensor.astype(np.float32)
    if (np.isinf(single) & np.isfinite(tensor)).any():
        raise EncodeError("a number past what a float32 holds")
    return single


# Answers


def write_classes(outputs: Mapping[str, Any]) -> list[bytes]:
    """{"classes": strings [N, C], "scores": float32 [N, C]}, or one of the two, as `results`: pairs
    of a label and a score.
    """
    labels, scores = outputs.get("classes"), outputs.get("scores")
    for tensor in (labels, scores):
        if tensor is not None and len(tensor.shape) != 2:
            raise ModelError(
                INVALID,
                "Expected Tensor shape: [batch_size num_classes] but got"
                f" {dims_text(tensor.shape)}",
            )
    known = labels if scores is None else scores
    if known is None or not known.shape[0]:
        raise ModelError(INVALID, "Cannot convert empty ClassificationResults to JSON")
    if labels is not None and labels.shape != known.shape:
        raise ModelError(
            INVALID,
            f"Tensors of classes and scores differ: {dims_text(labels.shape)} and"
            f" {dims_text(known.shape)}",
        )
    rows, columns = known.shape
    words = (
        write_rows(labels.reshape(-1), False) if labels is not None else [b'""'] * (rows * columns)
    )
    numbers = (
        write_rows(np.ascontiguousarray(scores, np.float32).reshape(-1))
        if scores is not None
        else [b"0.0"] * (rows * columns)
    )
    pairs = [b"[%b,%b]" % pair for pair in zip(words, numbers, strict=True)]
    return [
        b'{"results":['
        + b",".join(
            b"[" + b",".join(pairs[i * columns : (i + 1) * columns]) + b"]" for i in range(rows)
        )
        + b"]}"
    ]


def write_values(outputs: Mapping[str, Any]) -> list[bytes]:
    """One float32 [N] or [N, 1] as `results`."""
    tensors = list(outputs.values())
    one = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], np.ndarray) else None
    if one is None or one.ndim not in (1, 2) or one.shape[1:] not in ((), (1,)):
        found = " and ".join(dims_text(tensor.shape) for tensor in tensors) or "none"
        raise ModelError(
            INVALID,
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got"
            f" {found}",
        )
    if not len(one):
        raise ModelError(INVALID, "Cannot convert empty RegressionResults to JSON")
    return [b'{"results":', write(np.ascontiguousarray(one, np.float32).reshape(-1)), b"}"]
