"""TensorFlow Serving's rules for the JSON of a request: what it refuses, with which status, message
and path.

This is the slow and readable twin of `requests`, which reads valid bodies quickly. A body that it
does not accept is parsed again into Python values and checked here. The messages are Serving's own,
letter by letter, so they do not follow our style; the hints are ours. Where Serving would silently
use another value (300 for an int8, a duplicate key), the body is refused, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeGuard

from ...core import dtypes, validate
from .faults import (
    INVALID,
    NOT_FOUND,
    UNIMPLEMENTED,
    RequestRefused,
    dims_text,
    is_base64,
    refuse,
    show,
    step,
    type_of,
)
from .json_strings import from_base64
from .json_text import DTYPES

if TYPE_CHECKING:
    from ..signature import Signature

_WORDS = {INVALID: "INVALID_ARGUMENT", NOT_FOUND: "NOT_FOUND", UNIMPLEMENTED: "UNIMPLEMENTED"}
_TF_NAMES = {"float32": "float", "float64": "double", "float16": "half"}
_FLOATS = ("float32", "float64")


class Given(NamedTuple):
    """The shape and the flat values of a tensor that was given as nested lists."""

    shape: tuple[int, ...]
    values: list[Any]


class PredictRules(NamedTuple):
    """An accepted predict request."""

    signature_name: str
    signature: Signature
    layout: str
    inputs: dict[str, Given]


class FeatureRule(NamedTuple):
    """The values of a feature, which all have one kind."""

    kind: str
    """"bytes", "float", "int64", or "" if the feature is empty."""
    values: list[Any]


class Classify(NamedTuple):
    """An accepted classify or regress request."""

    signature_name: str
    examples: list[dict[str, FeatureRule]]
    context: dict[str, FeatureRule] | None


def tf_name(dtype: str) -> str:
    """Return TensorFlow's name of a dtype."""
    return _TF_NAMES.get(dtype, dtype)


# Tensors


def given(value: object, dtype: str, path: str) -> Given:
    """Return a tensor from nested lists. The first list of each depth determines the shape."""
    shape: list[int] = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    if len(shape) > validate.NUMPY_RANK:
        refuse(
            f"Encountered list at unexpected level: {validate.NUMPY_RANK} expected <"
            f" {validate.NUMPY_RANK}",
            path,
        )
    out = Given(tuple(shape), [])
    _fill(value, 0, dtype, out, path)
    return out


def _fill(value: object, level: int, dtype: str, out: Given, path: str) -> None:
    rank = len(out.shape)
    if not isinstance(value, list):
        if level != rank:
            where = (
                f"found at incorrect level: {level + 1} in the JSON DOM. Expected at level: {rank}"
            )
            refuse(f"JSON Value: {show(value)} {where}", path, hint=_RAGGED)
        out.values.append(_element(value, dtype, path))
        return
    if level >= rank:
        refuse(
            f"Encountered list at unexpected level: {level} expected < {rank}", path, hint=_RAGGED
        )
    if len(value) != out.shape[level]:
        size = (
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size:"
            f" {out.shape[level]}"
        )
        refuse(size, path, hint=_RAGGED)
    for i, item in enumerate(value):
        _fill(item, level + 1, dtype, out, f"{path}[{i}]")


_RAGGED = (
    "all lists of a depth must have the same length; a ragged tensor is sent as its values and"
    " row_splits, if the signature has inputs for them"
)
_GRPC = "JSON does not support this dtype; use gRPC"


def _element(value: object, dtype: str, path: str) -> Any:
    """Return one value, checked against the dtype."""
    if isinstance(value, dict):
        if dtype != "string":
            _wrong(value, dtype, path)
        return _bytes(value, path)
    if dtype not in DTYPES:
        refuse(
            f"Conversion of JSON Value: {show(value)} to type: {tf_name(dtype)}",
            path,
            UNIMPLEMENTED,
            _GRPC,
        )
    if dtype == "string":
        return (
            value.encode("utf-8", "surrogateescape")
            if isinstance(value, str)
            else _wrong(value, dtype, path)
        )
    if dtype == "bool":
        return (
            value
            if isinstance(value, bool)
            else _wrong(value, dtype, path, "a bool is true or false, not a number")
        )
    if type(value) not in (int, float):
        quoted = value in ("NaN", "Infinity", "-Infinity") and dtype in _FLOATS
        _wrong(
            value,
            dtype,
            path,
            "NaN and the infinities are written without quotes" if quoted else "",
        )
    if dtype in _FLOATS:
        # The value is rounded later, and becomes infinite out of the range of float32.
        return value
    lowest, highest = dtypes.bounds(dtypes.BY_NAME[dtype])
    if type(value) is not int:
        _wrong(value, dtype, path, "integers have neither a decimal point nor an exponent")
    if not lowest <= value <= highest:
        _wrong(value, dtype, path, f"{dtype} goes from {lowest} to {highest}")
    return value


def _bytes(value: dict[str, Any], path: str) -> bytes:
    if not is_base64(value):
        hint = "only an object with exactly the key b64 is a string of bytes"
        refuse(
            f"JSON Value: {show(value)} not formatted correctly for base64 data", path, hint=hint
        )
    decoded = from_base64(value["b64"])
    if decoded is None:
        refuse(
            "Unable to base64 decode",
            path,
            hint="use the standard alphabet, with + and /, not that of tf.io.encode_base64",
        )
    return decoded


def _wrong(value: object, dtype: str, path: str, hint: str = "") -> NoReturn:
    if dtype not in DTYPES and not hint:
        hint = _GRPC
    why = (
        f"JSON Value: {show(value)} Type: {type_of(value)} is not of expected type:"
        f" {tf_name(dtype)}"
    )
    refuse(why, path, hint=hint)


# Requests


def signature_name(doc: Mapping[str, Any]) -> str:
    """Return the signature_name of a request, or an empty string."""
    name = doc.get("signature_name", "")
    if not isinstance(name, str):
        why = (
            f"JSON Value: {show(doc)} not formatted correctly. 'signature_name' key must be a"
            " string value."
        )
        refuse(why, "$.signature_name")
    return name


def predict(doc: dict[str, Any], find: Callable[[str], Signature]) -> PredictRules:
    """Return the tensors of a predict request. `find` returns the signature of a name, or refuses
    it.
    """
    name = signature_name(doc)
    signature = find(name)
    kinds = {key: spec.dtype for key, spec in signature.inputs.items()}
    if not kinds:
        refuse(f"Failed to get input map for signature: {name or 'DEFAULT'}", "$")
    if "instances" in doc:
        if "inputs" in doc:
            only = (
                "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to"
                " exist "
            )
            refuse(
                f"JSON Value: {show(doc)} {only}",
                "$",
                hint="use 'instances' for rows, or 'inputs' for columns",
            )
        if not isinstance(doc["instances"], list):
            refuse(
                f"JSON Value: {show(doc)} Excepting 'instances' to be an list/array", "$.instances"
            )
        if not doc["instances"]:
            return PredictRules(name, signature, "rows", _no_rows(signature))
        return PredictRules(name, signature, "rows", _rows(doc["instances"], kinds))
    if "inputs" in doc:
        return PredictRules(name, signature, "columns", _columns(doc["inputs"], kinds))
    return refuse(
        "Missing 'inputs' or 'instances' key",
        "$",
        hint="put the tensors under 'inputs' (columns) or 'instances' (rows)",
    )


def _no_rows(signature: Signature) -> dict[str, Given]:
    """Return an empty batch with the inner dimensions of the signature; unknown ones are 0."""
    inner = {name: (spec.shape or ())[1:] for name, spec in signature.inputs.items()}
    return {name: Given((0, *(dim or 0 for dim in dims)), []) for name, dims in inner.items()}


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and not is_base64(value)


def _rows(rows: list[Any], kinds: Mapping[str, str]) -> dict[str, Given]:
    if not isinstance(rows[0], dict) and len(kinds) > 1:
        why = (
            "instances is a plain list, but expecting list of objects as multiple input tensors"
            " required as per tensorinfo_map"
        )
        refuse(
            why,
            "$.instances",
            hint=f"each row is an object with the keys {', '.join(sorted(kinds))}",
        )
    named = _is_object(rows[0])
    out: dict[str, Given] = {}
    for i, row in enumerate(rows):
        path = f"$.instances[{i}]"
        if _is_object(row) != named:
            expected, got = ("object", "list") if named else ("value/list", "object")
            refuse(f"Expecting {expected} but got {got} at item {i} of input list", path)
        for name, value in row.items() if named else ((next(iter(kinds)), row),):
            try:
                _add(value, name, kinds, out, step(path, name) if named else path)
            except RequestRefused as refused:
                fault, key = refused.fault, f" key: {name}" if named else ""
                why = (
                    f"Failed to process element: {i}{key} of 'instances' list. Error:"
                    f" {_WORDS[fault.status]}: {fault.message}"
                )
                refuse(why, fault.path, hint=fault.hint)
        if named and row.keys() != kinds.keys():
            why = f"JSON object: {show(row)} keys must be equal to: {','.join(sorted(kinds))}"
            missing = ", ".join(sorted(kinds.keys() - row.keys()))
            refuse(
                f"Failed to process element: {i} of 'instances' list. {why}",
                path,
                hint=f"missing in this row: {missing}",
            )
    # With several inputs, a first row that is a string in base64 passes the check above, because it
    # is a dict in Python, but it is not an object of inputs.
    if out.keys() != kinds.keys():
        missing = ",".join(sorted(kinds.keys() - out.keys()))
        sent, names = ",".join(out), ",".join(sorted(kinds))
        why = (
            f"input size does not match signature: {len(out)}!={len(kinds)} len({{{sent}}}) !="
            f" len({{{names}}})."
        )
        refuse(f"{why} Sent extra: {{}}. Missing but required: {{{missing}}}.", "$.instances")
    return {name: Given((len(rows), *tensor.shape), tensor.values) for name, tensor in out.items()}


def _add(
    value: object, name: str, kinds: Mapping[str, str], out: dict[str, Given], path: str
) -> None:
    if name not in kinds:
        refuse(
            f"JSON object: does not have named input: {name}",
            path,
            hint=f"the signature has {', '.join(sorted(kinds))}",
        )
    row = given(value, kinds[name], path)
    column = out.setdefault(name, row)
    if column is row:
        return
    size = math.prod(column.shape)
    if len(row.values) != size:
        refuse(f"Expecting tensor size: {size} but got: {len(row.values)}", path, hint=_UNEQUAL)
    if column.shape != row.shape:
        refuse(
            f"Expecting shape {dims_text(column.shape)} but got: {dims_text(row.shape)}",
            path,
            hint=_UNEQUAL,
        )
    column.values.extend(row.values)


_UNEQUAL = "all rows must have the shape of the first one"


def _columns(value: object, kinds: Mapping[str, str]) -> dict[str, Given]:
    if not _is_object(value):
        if len(kinds) > 1:
            why = (
                "inputs is a plain value/list, but expecting an object as multiple input tensors"
                " required as per tensorinfo_map"
            )
            refuse(why, "$.inputs", hint=f"an object with the keys {', '.join(sorted(kinds))}")
        name = next(iter(kinds))
        return {name: given(value, kinds[name], "$.inputs")}
    out = {}
    for name, dtype in kinds.items():
        if name not in value:
            why = f"Missing named input: {name} in 'inputs' object."
            refuse(why, "$.inputs", hint=f"the signature has {', '.join(sorted(kinds))}")
        out[name] = given(value[name], dtype, step("$.inputs", name))
    return out


# Examples, for classify and regress


def classify(doc: dict[str, Any]) -> Classify:
    """Return the examples of a classify or regress request."""
    name = signature_name(doc)
    context = example(doc["context"], "$.context") if "context" in doc else None
    if "examples" not in doc:
        why = "When method is classify, key 'examples' is expected and was not found"
        refuse(f"JSON Value: {show(doc)} {why}", "$")
    if not isinstance(doc["examples"], list):
        refuse(
            f"JSON Value: {show(doc)} Expecting 'examples' value to be an list/array", "$.examples"
        )
    if not doc["examples"]:
        refuse(f"JSON Value: {show(doc)} 'examples' value is an empty array", "$.examples")
    return Classify(
        name,
        [example(value, f"$.examples[{i}]") for i, value in enumerate(doc["examples"])],
        context,
    )


def example(value: object, path: str) -> dict[str, FeatureRule]:
    """Return the features of an example."""
    if not isinstance(value, dict):
        refuse(f"Example must be JSON object but got JSON {type_of(value)}", path)
    return {name: _feature(name, content, step(path, name)) for name, content in value.items()}


def _feature(name: str, content: object, path: str) -> FeatureRule:
    """Return a feature. The first value determines the kind: numbers with a decimal point are
    floats, other numbers and bools are int64.
    """
    kind, values = "", []
    for i, value in enumerate(content if isinstance(content, list) else [content]):
        here = f"{path}[{i}]" if isinstance(content, list) else path
        if isinstance(value, (list, type(None))) or (
            isinstance(value, dict) and not is_base64(value)
        ):
            refuse(f"Feature: {name} has element with unexpected JSON type: {type_of(value)}", here)
        value_kind = (
            "bytes"
            if isinstance(value, (str, dict))
            else "float"
            if type(value) is float
            else "int64"
        )
        if kind not in ("", value_kind):
            refuse(
                f"Unexpected element type in feature: {name} expecting type: {kind}",
                here,
                hint=_MIXED,
            )
        kind = value_kind
        if kind == "int64" and value >= 1 << 63:
            refuse(f"Feature: {name} has uint64 element. Only int64 is supported.", here)
        values.append(_element(value, "string", here) if kind == "bytes" else value)
    return FeatureRule(kind, [int(value) for value in values] if kind == "int64" else values)


_MIXED = "all values of a feature must have the same kind; write 1.0 for a float"
