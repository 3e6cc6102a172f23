"""Answers of TensorFlow Serving's REST API: parsed for a client, built for a server."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ... import frameworks
from ..._errors import (
    DecodeError,
    EncodeError,
    LimitError,
    ModelError,
    SchemaError,
    TensorwireError,
)
from ..._limits import DEFAULT, Limits
from ...codecs.json.tokens import FORMAT
from ...core import dtypes, memory
from ...core.memory import Buffer
from ...core.tensors import Array, Ragged, Sparse, Strings, describe
from ..spec import Input
from . import examples
from .faults import INVALID
from .json_rows import read_rows
from .json_text import DTYPES, RequestText, write, write_rows
from .serving_rules import tf_name

if TYPE_CHECKING:
    from ..signature import Signature

UNNAMED = "output_0"
"""The name of an output that has no name in the answer or a signature; TensorFlow uses it, too."""
_SHOWN = 1000
_SPACES = rb"[ \t\n\r]*+"
_PAIR = re.compile(
    rb'\[%b("(?:[^"\\]|\\.)*+")%b,%b([^\s,\[\]"{}]++)%b\]' % ((_SPACES,) * 4), re.DOTALL
)
Tensors = dict[str, Array | Strings]


def parse_answer(
    body: Buffer,
    signature: Signature | None = None,
    *,
    status: int = 200,
    limits: Limits = DEFAULT,
    watch: Callable[[], object] | None = None,
) -> Tensors:
    """Return the tensors of an answer, by name.

    The dtypes are those of the signature's outputs. Without a signature, numbers are int64 (uint64
    if they are larger) if none has a decimal point, else float64; a single output, which has no
    name in JSON, is called "output_0". Strings are bytes. The outputs of classify are "classes" and
    "scores", that of regress is "outputs". `watch` is called from time to time, and can stop the
    parser by raising an exception. Raises ModelError if the answer is an error.

    >>> parse_answer(b'{"predictions": [[0.5, NaN], [1.0, 2.0]]}')
    {'output_0': array([[0.5, nan],
           [1. , 2. ]])}
    >>> parse_answer(b'{"error": "Servable not found"}', status=404)
    Traceback (most recent call last):
        ...
    tensorwire._errors.ModelError: 404: Servable not found
    """
    data = memory.flat(body)
    if status != 200:
        raise ModelError(status, message(data))
    text = RequestText(data, limits, exact=False)
    text.watch = watch
    outputs: dict[str, Tensors] = {}
    keys = []

    def take(key: str, offset: int) -> int:
        keys.append(key)
        if key not in _READERS:
            return text.ignore(offset)
        outputs[key], end = _READERS[key](text, offset, signature)
        return end

    try:
        text.finish(text.each_key(text.space(0), take))
        if not outputs and "error" in keys:
            raise ModelError(status, message(data))
        if len(outputs) != 1:
            text.fail(
                f"expected an answer with exactly one of the keys {', '.join(_READERS)}, got"
                f" {' and '.join(outputs) or 'none'}",
                0,
            )
        return outputs.popitem()[1]
    except TensorwireError as error:
        raise error.add(format=FORMAT) from None


def message(data: memoryview) -> str:
    """Return the message of an error answer; a body in another form is quoted."""
    try:
        answer = json.loads(bytes(data[: 1 << 20]))
        if isinstance(answer, dict) and isinstance(answer.get("error"), str):
            return str(answer["error"])
    except (ValueError, RecursionError):
        pass
    shown = bytes(data[:_SHOWN]).decode("utf-8", "replace")
    return f"no error message in the answer: {shown}" if shown else "empty answer"


def _columns(text: RequestText, start: int, signature: Signature | None) -> tuple[Tensors, int]:
    if not text.is_object(start):
        return _single(text, start, signature)
    outputs: Tensors = {}

    def take(name: str, offset: int) -> int:
        output = _output(signature, name)
        try:
            tensor, end = text.tensor(offset, output.dtype if output else None)
        except DecodeError as error:
            raise error.add(tensor=name) from None
        outputs[name] = _with_rank(tensor, output)
        return end

    end = text.each_key(start, take)
    return _in_order(outputs, signature), end


def _rows(text: RequestText, start: int, signature: Signature | None) -> tuple[Tensors, int]:
    first = text.space(start + 1)
    if text.data[start] != ord("[") or not text.is_object(first):
        return _single(text, start, signature)
    kinds: dict[str, str | None] = {}

    def take(name: str, offset: int) -> int:
        output = _output(signature, name)
        kinds[name] = output.dtype if output else None
        return text.end(offset)

    text.each_key(first, take)
    columns, end = read_rows(text, start, kinds)
    return (
        _in_order(
            {
                name: _with_rank(tensor, _output(signature, name))
                for name, tensor in columns.items()
            },
            signature,
        ),
        end,
    )


def _single(text: RequestText, start: int, signature: Signature | None) -> tuple[Tensors, int]:
    """Read the only output, which has no name."""
    if signature is None:
        tensor, end = text.tensor(start, None)
        return {UNNAMED: tensor}, end
    if len(signature.outputs) != 1 and not text.is_empty(start):
        raise SchemaError(
            "expected an object with the outputs"
            f" {', '.join(signature.outputs) or '(none)'}, got one tensor without a name"
        )
    outputs, end = {}, start if signature.outputs else text.end(start)
    # If there are several outputs, an empty list means that all of them are empty.
    for name, output in signature.outputs.items():
        tensor, end = text.tensor(start, output.dtype)
        outputs[name] = _with_rank(tensor, output)
    return outputs, end


def _output(signature: Signature | None, name: str) -> Any:
    """Return an output of the signature; None without a signature."""
    if signature is None:
        return None
    if name not in signature.outputs:
        raise SchemaError(
            f"unknown output {name!r:.60}; the signature has {', '.join(signature.outputs)}"
        )
    return signature.outputs[name]


def _in_order(outputs: Tensors, signature: Signature | None) -> Tensors:
    """Return the outputs in the order of the signature; raise SchemaError if one is missing."""
    if signature is None:
        return outputs
    missing = [name for name in signature.outputs if name not in outputs]
    if missing:
        raise SchemaError(f"missing output {missing[0]!r:.60}")
    return {name: outputs[name] for name in signature.outputs}


def _with_rank(tensor: Array | Strings, output: Input | None) -> Array | Strings:
    """Return an empty tensor with the inner dimensions of the output, because empty lists have
    none.
    """
    rank = len(tensor.shape)
    if output is None or output.shape is None or tensor.size or rank >= len(output.shape):
        return tensor
    inner = output.shape[rank:]
    return tensor.reshape((*tensor.shape, *(dim or 0 for dim in inner)))


def _results(text: RequestText, start: int, signature: Signature | None) -> tuple[Tensors, int]:
    """Read the results of regress, a number for each example, or of classify, a list of pairs of a
    label and a score.
    """
    if text.data[start] != ord("["):
        text.fail("expected a list", start)
    if text.data[text.space(start + 1)] != ord("["):
        values, end = text.tensor(start, "float32")
        return {"outputs": values}, end
    # The labels and the scores are collected as two texts of JSON lists, which are then parsed like
    # any other tensor. So there is no Python object for a pair.
    labels, scores, counts = bytearray(b"["), bytearray(b"["), array("q")

    def take_example(number: int, offset: int) -> int:
        if number == text.limits.names:
            text.fail(f"more than {number} examples", offset, LimitError)
        counts.append(0)
        return text.each_item(offset, take_pair)

    def take_pair(number: int, offset: int) -> int:
        pair = _PAIR.match(text.data, offset)
        if pair is None:
            text.fail("expected a pair of a label and a score", offset)
        labels.extend(pair[1] if len(labels) == 1 else b"," + bytes(pair[1]))
        scores.extend(pair[2] if len(scores) == 1 else b"," + bytes(pair[2]))
        counts[-1] += 1
        return pair.end()

    end = text.each_item(start, take_example)
    if min(counts) != max(counts):
        text.fail("examples with different numbers of classes", start)
    try:
        words = text.of(labels + b"]").tensor(0, "string")[0]
        numbers = text.of(scores + b"]").tensor(0, "float32")[0]
    except DecodeError as error:
        # The offset is one in the collected text, which the caller does not have.
        error.offset = start
        raise
    shape = len(counts), counts[0]
    return {"classes": words.reshape(shape), "scores": numbers.reshape(shape)}, end


_READERS = {"predictions": _rows, "outputs": _columns, "results": _results}


# From tensors


def build(
    outputs: Mapping[str, Any], layout: str = "columns", verb: str = "predict"
) -> list[bytes]:
    """Return the body of an answer; see `rest.build_answer`."""
    tensors: dict[str, Any] = {}
    for name, value in outputs.items():
        tensor = frameworks.tensor(value)
        if isinstance(tensor, (Sparse, Ragged)):
            parts = (
                "indices, values and dense_shape"
                if isinstance(tensor, Sparse)
                else "values and row_splits"
            )
            raise EncodeError(
                f"TensorFlow Serving cannot answer {describe(tensor)}",
                tensor=name,
                hint=f"return its {parts} as separate outputs",
            )
        dtype = "string" if isinstance(tensor, Strings) else dtypes.of(tensor.dtype).name
        if dtype not in DTYPES and tensor.size:
            raise ModelError(
                INVALID, f"Failed to write JSON value for tensor type: {tf_name(dtype)}"
            )
        tensors[name] = tensor
    if not tensors:
        raise ModelError(INVALID, "Cannot convert empty tensor map to JSON")
    if verb != "predict":
        return (
            examples.write_classes(tensors)
            if verb == "classify"
            else examples.write_values(tensors)
        )
    return _write_rows(tensors) if layout == "rows" else _write_columns(tensors)


def _coded(name: str) -> bool:
    """Return whether the strings of an output are written in base64."""
    return name.endswith("_bytes")


def _write_columns(tensors: Mapping[str, Any]) -> list[bytes]:
    if len(tensors) == 1:
        return [
            b'{"outputs":',
            *(write(tensor, _coded(name)) for name, tensor in tensors.items()),
            b"}",
        ]
    chunks, before = [], b'{"outputs":{'
    for name, tensor in tensors.items():
        chunks += [before + examples.key(name) + b":", write(tensor, _coded(name))]
        before = b","
    return [*chunks, b"}}"]


def _write_rows(tensors: Mapping[str, Any]) -> list[bytes]:
    count: int | None = None
    for name, tensor in tensors.items():
        if not tensor.shape:
            raise ModelError(INVALID, f"Tensor name: {name} has no shape information ")
        if count not in (None, tensor.shape[0]):
            raise ModelError(
                INVALID,
                f"Tensor name: {name} has inconsistent batch size: {tensor.shape[0]} expecting:"
                f" {count}",
            )
        count = tensor.shape[0]
    if not count:
        return [b'{"predictions":[]}']
    if len(tensors) == 1:
        return [
            b'{"predictions":',
            *(write(tensor, _coded(name)) for name, tensor in tensors.items()),
            b"}",
        ]
    return [
        b'{"predictions":[',
        rows_of({name: write_rows(tensor, _coded(name)) for name, tensor in tensors.items()}),
        b"]}",
    ]


def rows_of(columns: Mapping[str, list[bytes]]) -> bytes:
    """Return JSON objects separated by commas, from the texts of their members.

    >>> rows_of({"a": [b"1", b"2"], "b": [b"[]", b"[]"]})
    b'{"a":1,"b":[]},{"a":2,"b":[]}'
    """
    keys = [examples.key(name) + b":" for name in columns]
    form = b"{" + b",".join(key.replace(b"%", b"%%") + b"%b" for key in keys) + b"}"
    return b",".join([form % row for row in zip(*columns.values(), strict=True)])
