"""Bodies of TensorFlow Serving's REST API: requests and answers are built and parsed, without I/O.

    predict, by rows       {"instances": [ROW, ...]}
                           -> {"predictions": [ROW, ...]}
    predict, by columns    {"inputs": TENSOR | {NAME: TENSOR}}
                           -> {"outputs": TENSOR | {NAME: TENSOR}}
    classify               {"examples": [{FEATURE: VALUES}], "context": {...}}
                           -> {"results": [[[LABEL, SCORE], ...], ...]}
    regress                the same request
                           -> {"results": [VALUE, ...]}
    any error              {"error": MESSAGE}, and a status

A client uses `build`, `check` and `parse_answer`; a server `parse_request` and `build_answer`.
JSON has no dtypes, so they come from the signature. float16, bfloat16, uint16 and complex numbers
cannot be sent as JSON, but by gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ... import frameworks
from ..._errors import EncodeError, TensorwireError, choices
from ..._limits import DEFAULT, Limits
from ...core import dtypes
from ...core.memory import Buffer
from ...core.tensors import Array, Strings, TensorLike, describe
from ..lower import APART, LoweringPlan, plan
from . import answers, examples, requests
from .answers import parse_answer
from .examples import FORMAT, Examples, RestExamples
from .faults import RequestRefused, RestFault, step
from .json_text import DTYPES, write, write_rows
from .requests import DEFAULT_NAME, RestRequest

if TYPE_CHECKING:
    from ..signature import Signature

LAYOUTS = ("auto", "rows", "columns")
VERBS = ("predict", "classify", "regress")

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "VERBS",
    "RestExamples",
    "RestFault",
    "RestRequest",
    "build",
    "build_answer",
    "check",
    "parse_answer",
    "parse_request",
]


def build(
    inputs: LoweringPlan | Examples | TensorLike,
    signature: Signature | None = None,
    *,
    layout: str = "auto",
    verb: str = "predict",
    signature_name: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> list[bytes]:
    """Return the body of a request, in chunks.

    inputs      a LoweringPlan, or tensors by name, which are lowered to the signature; without a
                signature they are sent as they are. For classify and regress, examples: a list of
                dicts of features, or a dict of columns.
    layout      "columns", "rows", for which all inputs must share their first dimension, or "auto":
                columns, except for an empty batch, whose inner dimensions only rows keep
    context     for classify and regress: the features that all examples share

    Raises EncodeError if the inputs do not fit the signature or cannot be sent as JSON.

    >>> b"".join(build({"x": np.float32([[1, 0.1]])}))
    b'{"inputs":{"x":[[1.0,0.1]]}}'
    >>> b"".join(build({"a": np.array([1, 2]), "b": ["u", "v"]}, layout="rows",
    ...     signature_name="score"))
    b'{"signature_name":"score","instances":[{"a":1,"b":"u"},{"a":2,"b":"v"}]}'
    >>> b"".join(build([{"age": 20, "names": ["foo", "bar"]}], verb="classify"))
    b'{"examples":[{"age":20,"names":["foo","bar"]}]}'
    """
    if layout not in LAYOUTS:
        raise EncodeError(f"unknown layout {layout!r}{choices(layout, LAYOUTS)}", format=FORMAT)
    _check_verb(verb)
    if signature_name is None:
        named = (
            signature
            if signature is not None
            else inputs.signature
            if isinstance(inputs, LoweringPlan)
            else None
        )
        signature_name = named.name if named is not None and named.name != DEFAULT_NAME else None
    if verb != "predict":
        return examples.build(cast(Examples, inputs), context, signature_name)
    if not isinstance(inputs, LoweringPlan) and signature is not None:
        inputs = plan(inputs, signature)
    tensors = _tensors(inputs)
    if layout == "auto":
        layout = "rows" if _without_rows(tensors) and not _has_parts(inputs) else "columns"
    head = (
        b"{"
        if signature_name is None
        else b'{"signature_name":' + examples.key(signature_name) + b","
    )
    return [head, *(_rows(tensors) if layout == "rows" else _columns(tensors))]


def check(
    body: Buffer,
    signature: Signature | Mapping[str, Signature],
    *,
    verb: str = "predict",
    limits: Limits = DEFAULT,
) -> RestFault | None:
    """Return the error that TensorFlow Serving would answer to a body, or None if it accepts it.

    The fault has the status, Serving's message, the path of the faulty value, and a hint. With
    several signatures, by name, the body's signature_name selects one. Shapes are checked last;
    their messages are not Serving's.

    >>> from tensorwire.serving.signature import Signature
    >>> print(check(b'{"inputs": [[1, 2.5]]}', Signature.given({"x": ("int32", [None, 2])})))
    400 at $.inputs[0][1]: JSON Value: 2.5 Type: Number is not of expected type: int32
    integers have neither a decimal point nor an exponent
    """
    _check_verb(verb)
    return requests.check(body, signature, verb, limits)


def parse_request(
    body: Buffer,
    signature: Signature | Mapping[str, Signature],
    *,
    verb: str = "predict",
    limits: Limits = DEFAULT,
) -> RestRequest | RestExamples:
    """Return the tensors of a predict request, or the examples of a classify or regress request.

    Raises ModelError with Serving's status and message if Serving would refuse the body.

    >>> from tensorwire.serving.signature import Signature
    >>> signature = Signature.given({"x": ("float32", [None, 2])})
    >>> parse_request(b'{"instances": [[1, 2.5], [NaN, 4]]}', signature)
    RestRequest(inputs={'x': array([[1. , 2.5],
           [nan, 4. ]], dtype=float32)}, layout='rows', signature_name='')
    """
    _check_verb(verb)
    try:
        return requests.read(body, signature, verb, limits)
    except RequestRefused as refused:
        raise refused.fault.error() from None


def build_answer(
    outputs: Mapping[str, Any], layout: str = "columns", *, verb: str = "predict"
) -> list[bytes]:
    """Return the body of an answer, in chunks.

    Strings are written as text, or as {"b64": ...} if the name of the output ends in "_bytes".

    >>> b"".join(build_answer({"y": np.float32([1, 2])}, "rows"))
    b'{"predictions":[1.0,2.0]}'
    """
    _check_verb(verb)
    return answers.build(outputs, layout, verb)


def _check_verb(verb: str) -> None:
    if verb not in VERBS:
        raise EncodeError(f"unknown verb {verb!r}{choices(verb, VERBS)}", format=FORMAT)


def loses_dimensions(shape: tuple[int, ...]) -> bool:
    """Return whether JSON loses dimensions of the shape, because empty lists have no inner lists.

    >>> loses_dimensions((0, 2)), loses_dimensions((2, 0)), loses_dimensions((0,))
    (True, False, False)
    """
    return 0 in shape[:-1]


def _without_rows(tensors: Mapping[str, Array | Strings]) -> bool:
    """Return whether the tensors are an empty batch whose inner dimensions columns would lose."""
    shapes = [tensor.shape for tensor in tensors.values()]
    return all(shape and not shape[0] for shape in shapes) and any(map(loses_dimensions, shapes))


def _has_parts(inputs: object) -> bool:
    return isinstance(inputs, LoweringPlan) and any(step.form in APART for step in inputs.steps)


def _tensors(inputs: object) -> dict[str, Array | Strings]:
    """Return the tensors of the body; raise EncodeError for those that JSON cannot represent."""
    if isinstance(inputs, LoweringPlan):
        for name, output in inputs.signature.outputs.items():
            if output.kind != "dense":
                raise EncodeError(
                    f"TensorFlow Serving's REST API cannot return a {output.kind} output",
                    tensor=name,
                    format=FORMAT,
                    hint="use gRPC with outputs=, or export the model with tw.serving.export",
                )
        inputs = inputs.inputs
    if not isinstance(inputs, Mapping) or not inputs:
        raise EncodeError(
            f"expected tensors by name, got {type(inputs).__name__}" if inputs else "no inputs",
            format=FORMAT,
        )
    return {name: _sendable(name, value) for name, value in inputs.items()}


def _sendable(name: object, value: TensorLike) -> Array | Strings:
    try:
        tensor = frameworks.tensor(value)
    except TensorwireError as error:
        raise error.add(tensor=str(name), format=FORMAT) from None
    if not isinstance(tensor, (np.ndarray, Strings)):
        raise EncodeError(
            f"cannot write {describe(tensor)} as JSON without a signature",
            tensor=str(name),
            format=FORMAT,
            path=step("$.inputs", str(name)),
            hint="pass the model's signature",
        )
    dtype = "string" if isinstance(tensor, Strings) else dtypes.of(tensor.dtype).name
    if dtype not in DTYPES:
        raise EncodeError(
            f"TensorFlow Serving's JSON does not support {dtype}",
            tensor=str(name),
            format=FORMAT,
            path=step("$.inputs", str(name)),
            hint="use gRPC: Client('grpc://...')",
        )
    return tensor


def _columns(tensors: Mapping[str, Array | Strings]) -> list[bytes]:
    # {"inputs": {"b64": ...}} would be read as a string, so the name of such an input is left out.
    if list(tensors) == ["b64"]:
        return [b'"inputs":', write(tensors["b64"]), b"}"]
    chunks, before = [], b'"inputs":{'
    for name, tensor in tensors.items():
        chunks += [before + examples.key(name) + b":", write(tensor)]
        before = b","
    return [*chunks, b"}}"]


def _rows(tensors: Mapping[str, Array | Strings]) -> list[bytes]:
    counts = {name: tensor.shape[0] if tensor.shape else None for name, tensor in tensors.items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        shown = ", ".join(
            f"{name}: {'a scalar' if count is None else count}" for name, count in counts.items()
        )
        raise EncodeError(
            f"rows need the same first dimension for all inputs, got {shown}",
            format=FORMAT,
            hint='use layout="columns"',
        )
    if not any(counts.values()):
        return [b'"instances":[]}']
    if len(tensors) == 1:
        return [b'"instances":', *map(write, tensors.values()), b"}"]
    return [
        b'"instances":[',
        answers.rows_of({name: write_rows(tensor) for name, tensor in tensors.items()}),
        b"]}",
    ]
