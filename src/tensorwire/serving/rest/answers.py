"""Answers of TensorFlow Serving's REST, both ways: to tensors for a client, from tensors for a
server.
"""

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
"""What an output is called whose name neither the answer nor a signature says; TensorFlow gives it
the same name.
"""
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
    """The tensors of an answer, by name; ModelError if it is an error.

    Dtypes are those of the signature's outputs. Without one, numbers are int64 (uint64 past it) if
    none has a point, else float64; and a single output, which loses its name on the way, is called
    "output_0". Strings are bytes. classify gives "classes" and "scores", regress "outputs". `watch`
    is called now and then, and may end it by raising an error.

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
    found: dict[str, Tensors] = {}
    keys = []

    def take(key: str, at: int) -> int:
        keys.append(key)
        if key not in _READERS:
            return text.ignore(at)
        found[key], end = _READERS[key](text, at, signature)
        return end

    try:
        text.finish(text.each_key(text.space(0), take))
        if not found and "error" in keys:
            raise ModelError(status, message(data))
        if len(found) != 1:
            text.fail(
                f"an answer has one of {', '.join(_READERS)}, and this one has"
                f" {' and '.join(found) or 'none'}",
                0,
            )
        return found.popitem()[1]
    except TensorwireError as error:
        raise error.add(format=FORMAT) from None


def message(data: memoryview) -> str:
    """What an error says; what is no error of Serving's is shown as it is."""
    try:
        found = json.loads(bytes(data[: 1 << 20]))
        if isinstance(found, dict) and isinstance(found.get("error"), str):
            return str(found["error"])
    except (ValueError, RecursionError):
        pass
    shown = bytes(data[:_SHOWN]).decode("utf-8", "replace")
    return f"an answer without an error message: {shown}" if shown else "an empty answer"


def _columns(text: RequestText, at: int, signature: Signature | None) -> tuple[Tensors, int]:
    if not text.is_object(at):
        return _one(text, at, signature)
    found: Tensors = {}

    def take(name: str, place: int) -> int:
        known = _known(signature, name)
        try:
            tensor, end = text.tensor(place, known.dtype if known else None)
        except DecodeError as error:
            raise error.add(tensor=name) from None
        found[name] = _completed(tensor, known)
        return end

    end = text.each_key(at, take)
    return _complete(found, signature), end


def _rows(text: RequestText, at: int, signature: Signature | None) -> tuple[Tensors, int]:
    first = text.space(at + 1)
    if text.data[at] != ord("[") or not text.is_object(first):
        return _one(text, at, signature)
    kinds: dict[str, str | None] = {}

    def take(name: str, place: int) -> int:
        known = _known(signature, name)
        kinds[name] = known.dtype if known else None
        return text.end(place)

    text.each_key(first, take)
    found, end = read_rows(text, at, kinds)
    return (
        _complete(
            {name: _completed(tensor, _known(signature, name)) for name, tensor in found.items()},
            signature,
        ),
        end,
    )


def _one(text: RequestText, at: int, signature: Signature | None) -> tuple[Tensors, int]:
    """The only output, which has lost its name."""
    if signature is None:
        tensor, end = text.tensor(at, None)
        return {UNNAMED: tensor}, end
    if len(signature.outputs) != 1 and not text.is_empty(at):
        raise SchemaError(
            "one tensor without a name, and the signature has"
            f" {', '.join(signature.outputs) or 'no outputs'}"
        )
    found, end = {}, at if signature.outputs else text.end(at)
    for name, each in signature.outputs.items():  # several only if there is nothing in them
        tensor, end = text.tensor(at, each.dtype)
        found[name] = _completed(tensor, each)
    return found, end


def _known(signature: Signature | None, name: str) -> Any:
    if signature is None:
        return None
    if name not in signature.outputs:
        raise SchemaError(
            f"the output {name!r:.60}, and the signature has {', '.join(signature.outputs)}"
        )
    return signature.outputs[name]


def _complete(found: Tensors, signature: Signature | None) -> Tensors:
    if signature is None:
        return found
    missing = [name for name in signature.outputs if name not in found]
    if missing:
        raise SchemaError(f"the output {missing[0]!r:.60} is missing")
    return {name: found[name] for name in signature.outputs}


def _completed(tensor: Array | Strings, known: Input | None) -> Array | Strings:
    """Lists that hold nothing say nothing of the dimensions inside of them; a signature may."""
    rank = len(tensor.shape)
    if known is None or known.shape is None or tensor.size or rank >= len(known.shape):
        return tensor
    inner = known.shape[rank:]
    return tensor.reshape((*tensor.shape, *(dim or 0 for dim in inner)))


def _results(text: RequestText, at: int, signature: Signature | None) -> tuple[Tensors, int]:
    """regress gives a number for each example, classify a list of pairs, a label and a score."""
    if text.data[at] != ord("["):
        text.fail("a list should stand here", at)
    if text.data[text.space(at + 1)] != ord("["):
        values, end = text.tensor(at, "float32")
        return {"outputs": values}, end
    labels, scores, counts = bytearray(b"["), bytearray(b"["), array("q")

    def take_example(number: int, place: int) -> int:
        if number == text.limits.names:
            text.fail(f"more than {number} examples", place, LimitError)
        counts.append(0)
        return text.each_item(place, take_pair)

    def take_pair(number: int, place: int) -> int:
        found = _PAIR.match(text.data, place)
        if found is None:
            text.fail("a class is a pair of a label and a score", place)
        labels.extend(found[1] if len(labels) == 1 else b"," + bytes(found[1]))
        scores.extend(found[2] if len(scores) == 1 else b"," + bytes(found[2]))
        counts[-1] += 1
        return found.end()

    end = text.each_item(at, take_example)
    if min(counts) != max(counts):
        text.fail("examples with different numbers of classes", at)
    try:
        words = text.of(labels + b"]").tensor(0, "string")[0]
        numbers = text.of(scores + b"]").tensor(0, "float32")[0]
    except DecodeError as error:
        error.offset = at  # the texts were put together here
        raise
    shape = len(counts), counts[0]
    return {"classes": words.reshape(shape), "scores": numbers.reshape(shape)}, end


_READERS = {"predictions": _rows, "outputs": _columns, "results": _results}


# From tensors


def build(
    outputs: Mapping[str, Any], layout: str = "columns", verb: str = "predict"
) -> list[bytes]:
    """The body of an answer, by the rules of `rest.build_answer`."""
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
                f"TensorFlow Serving answers no {describe(tensor)}; give its {parts} as outputs of"
                " their own",
                tensor=name,
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
    """Strings are written as they are, unless the name says that they are bytes."""
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
    """Objects side by side, out of the texts of their members.

    >>> rows_of({"a": [b"1", b"2"], "b": [b"[]", b"[]"]})
    b'{"a":1,"b":[]},{"a":2,"b":[]}'
    """
    keys = [examples.key(name) + b":" for name in columns]
    form = b"{" + b",".join(key.replace(b"%", b"%%") + b"%b" for key in keys) + b"}"
    return b",".join([form % row for row in zip(*columns.values(), strict=True)])
