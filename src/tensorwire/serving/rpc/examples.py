"""Messages of Classify and Regress. The requests are serialized tf.train.Examples, the answers are
classes with scores, or values.

    both requests             {1 model_spec, 2 Input {1 ExampleList {1 examples}
                              | 2 ExampleListWithContext {1 examples, 2 context}}}
    ClassificationResponse    {1 result {1 for each example {1 classes {1 label, 2 score}}},
                              2 model_spec}
    RegressionResponse        {1 result {1 for each example {1 value}}, 2 model_spec}

Labels stay bytes: protobuf requires UTF-8, but a model may return other bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import frameworks
from ..._errors import DecodeError, EncodeError
from ..._limits import DEFAULT, Limits
from ...core.memory import Buffer
from ...core.tensors import Array, Strings, TensorLike, describe
from ...wire.protobuf import LEN, Span
from ...wire.status import REPEATED, UNKNOWN_FIELD, problem
from .fields import FORMAT, Fields, ModelSpec, header, piece, whole, write_spec

_FIXED32 = 5
_ZERO = bytes(4)
_VALUE = b"\x0a\x05\x0d"
"""The tags and lengths before the four bytes of a regression's value."""


class RpcExamples(NamedTuple):
    """A parsed classify or regress request."""

    model: ModelSpec
    examples: Strings
    """Serialized tf.train.Examples."""
    context: bytes | None = None
    """A serialized Example whose features all examples share."""


# Requests


def build_examples(model: ModelSpec, examples: Strings, context: bytes | None = None) -> list[Any]:
    """Return a classify or regress request, which are the same message, in chunks.

    >>> b"".join(build_examples(ModelSpec("m"), Strings.of([b"", b"\\n\\0"]))).hex(" ")
    '0a 03 0a 01 6d 12 08 0a 06 0a 00 0a 02 0a 00'
    """
    if not isinstance(examples, Strings) or examples.text or len(examples.shape) != 1:
        raise EncodeError(
            "expected examples as a vector of serialized tf.train.Examples (Strings of bytes)",
            format=FORMAT,
        )
    messages = [
        part for message in examples.tolist() for part in (header(1, len(message)), message)
    ]
    number = 1 if context is None else 2
    content = b"".join(messages if context is None else [*messages, piece(2, bytes(context))])
    head = header(number, len(content))
    return whole(
        [piece(1, write_spec(model)) + header(2, len(head) + len(content)) + head, content]
    )


def parse_examples(data: Buffer, limits: Limits = DEFAULT) -> RpcExamples:
    """Return a parsed classify or regress request; the Examples themselves stay serialized.

    >>> request = build_examples(ModelSpec("m"), Strings.of([b"\\n\\0"]), b"")
    >>> parse_examples(b"".join(request)).context
    b''
    """
    reader = Fields(data, limits)
    fields = reader.take(reader.whole, once=(1, 2))
    model = reader.spec(fields[1])
    kinds = {1: None, 2: None} if fields[2] is None else reader.take(fields[2], once=(1, 2))
    if kinds[1] is not None and kinds[2] is not None:
        raise DecodeError(
            "expected examples with or without a context, got both",
            format=FORMAT,
            offset=fields[2][0],
        )
    listed = kinds[1] or kinds[2]
    if listed is None:
        return RpcExamples(model, Strings.of([], text=False))
    examples, context = [], None if kinds[2] is None else b""
    for number, span in reader.pieces(listed, "examples", (1,) if context is None else (1, 2)):
        if number == 1:
            examples.append(reader.bytes(span))
        elif context:
            raise problem(REPEATED, span[0], FORMAT)
        else:
            context = reader.bytes(span)
    return RpcExamples(model, Strings.of(examples, text=False), context)


# Classify


def build_classify_answer(
    model: ModelSpec, classes: TensorLike | None = None, scores: TensorLike | None = None
) -> list[Any]:
    """Return the answer to a classify request, in chunks: labels, scores, or both, of shape
    [examples, classes].

    >>> labels, scores = Strings.of([b"a"], (1, 1)), np.float32([[1]])
    >>> b"".join(build_classify_answer(ModelSpec(""), labels, scores)).hex(" ")
    '0a 0c 0a 0a 0a 08 0a 01 61 15 00 00 80 3f 12 00'
    """
    labels = None if classes is None else frameworks.tensor(classes)
    values = None if scores is None else _float32(scores, 2, "scores")
    if labels is not None and (not isinstance(labels, Strings) or len(labels.shape) != 2):
        raise EncodeError(
            f"expected classes as strings [examples, classes], got {describe(labels)}",
            format=FORMAT,
        )
    shapes = {content.shape for content in (labels, values) if content is not None}
    if len(shapes) != 1:
        raise EncodeError(
            (
                f"classes and scores have different shapes: {sorted(shapes)}"
                if shapes
                else "neither classes nor scores are given"
            ),
            format=FORMAT,
        )
    rows, columns = shapes.pop()
    texts = (
        [b""] * (rows * columns) if labels is None else labels.astext(False).reshape(-1).tolist()
    )
    numbers = (
        [b""] * (rows * columns)
        if values is None
        else [b"\x15" + bits if bits != _ZERO else b"" for bits in _bits(values)]
    )
    contents = [
        (piece(1, text) if text else b"") + number
        for text, number in zip(texts, numbers, strict=True)
    ]
    framed = [piece(1, content) for content in contents]
    examples = [
        piece(1, b"".join(framed[row * columns : (row + 1) * columns])) for row in range(rows)
    ]
    return whole([piece(1, b"".join(examples)), piece(2, write_spec(model))])


def parse_classify_answer(
    data: Buffer, limits: Limits = DEFAULT
) -> tuple[ModelSpec, dict[str, Array | Strings]]:
    """Return the model and the "classes" and "scores" of an answer, of shape [examples, classes].

    Labels that the model does not return are empty, and scores are zeros.

    >>> labels, scores = Strings.of([b"a", b"b"], (1, 2)), np.float32([[0.25, 0.75]])
    >>> answer = build_classify_answer(ModelSpec("m"), labels, scores)
    >>> parse_classify_answer(b"".join(answer))[1]
    {'classes': Strings(b'a', b'b'; shape=(1, 2), bytes), 'scores': array([[0.25, 0.75]],
    dtype=float32)}
    """
    reader = Fields(data, limits)
    fields = reader.take(reader.whole, once=(1, 2))
    labels: list[bytes] = []
    scores = bytearray()
    columns: int | None = None
    rows = 0
    for _, example in reader.pieces(fields[1] or (0, 0), "examples"):
        before = len(labels)
        for label, score in _short_classes(reader, example) or (
            _class(reader, span) for _, span in reader.pieces(example, "classes")
        ):
            labels.append(label)
            scores += score
        if columns not in (None, len(labels) - before):
            raise DecodeError(
                "examples with different numbers of classes", format=FORMAT, offset=example[0]
            )
        columns = len(labels) - before
        rows += 1
    shape = rows, columns or 0
    classes = Strings.of(labels, shape, text=False)
    return reader.spec(fields[2]), {"classes": classes, "scores": _numbers(scores).reshape(shape)}


def _short_classes(reader: Fields, span: Span) -> list[tuple[bytes, bytes]]:
    """Return the classes of an example on the fast path: each less than 128 bytes long, a label and
    a score. Empty if one of them has another form.
    """
    # The bytes of a class: 0a SIZE 0a LENGTH label 15 score, with a score of four bytes.
    data, (offset, stop) = reader.data, span
    classes = []
    while offset < stop:
        if stop - offset < 9:
            return []
        end, middle = offset + 2 + data[offset + 1], offset + 4 + data[offset + 3]
        if (
            data[offset] != 0x0A
            or data[offset + 2] != 0x0A
            or data[offset + 1] > 0x7F
            or middle + 5 != end
            or end > stop
            or data[middle] != 0x15
        ):
            return []
        classes.append((bytes(data[offset + 4 : middle]), data[middle + 1 : end]))
        offset = end
    reader.spend(len(classes), span[0])
    return classes


def _class(reader: Fields, span: Span) -> tuple[bytes, bytes]:
    """Return the label, and the score's four bytes. An empty label or a zero may be missing."""
    (start, stop), data = span, reader.data
    if start == stop:
        return b"", _ZERO
    if stop - start == 5 and data[start] == 0x15:
        return b"", data[start + 1 : stop]
    if stop - start > 1 and data[start] == 0x0A and data[start + 1] < 0x80:
        end = start + 2 + data[start + 1]
        if end == stop or (end + 5 == stop and data[end] == 0x15):
            return bytes(data[start + 2 : end]), data[end + 1 : stop] or _ZERO
    fields = _once(reader, span, {1: LEN, 2: _FIXED32})
    return reader.bytes(fields[1]) if 1 in fields else b"", (
        reader.bytes(fields[2]) if 2 in fields else _ZERO
    )


# Regress


def build_regress_answer(model: ModelSpec, values: TensorLike) -> list[Any]:
    """Return the answer to a regress request, in chunks.

    >>> b"".join(build_regress_answer(ModelSpec(""), np.float32([1, 0]))).hex(" ")
    '0a 09 0a 05 0d 00 00 80 3f 0a 00 12 00'
    """
    entries = [
        _VALUE + bits if bits != _ZERO else piece(1, b"")
        for bits in _bits(_float32(values, 1, "values"))
    ]
    return whole([piece(1, b"".join(entries)), piece(2, write_spec(model))])


def parse_regress_answer(
    data: Buffer, limits: Limits = DEFAULT
) -> tuple[ModelSpec, dict[str, Array | Strings]]:
    """Return the model and the "outputs" of an answer, one for each example.

    >>> parse_regress_answer(b"".join(build_regress_answer(ModelSpec("m"), np.float32([1, 0]))))[1]
    {'outputs': array([1., 0.], dtype=float32)}
    """
    reader = Fields(data, limits)
    fields = reader.take(reader.whole, once=(1, 2))
    values = np.zeros(0, np.float32) if fields[1] is None else _values(reader, fields[1])
    return reader.spec(fields[2]), {"outputs": values}


def _values(reader: Fields, span: Span) -> Array:
    size = span[1] - span[0]
    # The fast path: seven bytes for each value. A zero is shorter, because proto3 omits it.
    if size % 7 == 0 and size // 7 <= reader.limits.names:
        rows = np.frombuffer(reader.view, np.uint8, size, span[0]).reshape(-1, 7)
        if (rows[:, :3] == np.frombuffer(_VALUE, np.uint8)).all():
            return _numbers(rows[:, 3:].tobytes())
    numbers = bytearray()
    for _, (start, stop) in reader.pieces(span, "values"):
        if stop - start == 5 and reader.data[start] == 0x0D:
            numbers += reader.data[start + 1 : stop]
        else:
            fields = _once(reader, (start, stop), {1: _FIXED32}) if start < stop else {}
            numbers += reader.bytes(fields[1]) if fields else _ZERO
    return _numbers(numbers)


def _numbers(data: bytes | bytearray) -> Array:
    return np.frombuffer(data, "<f4").astype(np.float32)


def _bits(values: Array) -> list[bytes]:
    """Return each number's four bytes. Only the bytes of a positive zero are all zero, so a
    negative zero is not omitted.
    """
    data = values.astype("<f4").tobytes()
    return [data[offset : offset + 4] for offset in range(0, len(data), 4)]


def _once(reader: Fields, span: Span, wires: dict[int, int]) -> dict[int, Any]:
    """Return the singular fields of a message, each with its wire type checked."""
    # This path is slow, and real servers write few such messages, so they cost more of the budget.
    reader.spend(4, span[0])
    values: dict[int, Any] = {}
    for field in reader.fields(span):
        if field.number in wires:
            if field.wire != wires[field.number] or field.number in values:
                raise problem(
                    REPEATED if field.number in values else UNKNOWN_FIELD, field.offset, FORMAT
                )
            values[field.number] = field.value
    return values


def _float32(values: TensorLike, rank: int, what: str) -> Array:
    array = frameworks.tensor(values)
    if not isinstance(array, np.ndarray) or array.ndim != rank or array.dtype != np.float32:
        raise EncodeError(
            f"expected {what} as float32 with {rank} dimension{'s' * (rank > 1)}, got"
            f" {describe(array)}",
            format=FORMAT,
        )
    return array
