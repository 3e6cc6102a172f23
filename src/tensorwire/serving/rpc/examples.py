"""Classify and Regress: both take serialized tf.train.Examples, and give classes with scores, or
values.

    both requests             {1 model_spec, 2 Input {1 ExampleList {1 examples} | 2
                              ExampleListWithContext {1 examples, 2 context}}}
    ClassificationResponse    {1 result {1 for each example {1 classes {1 label, 2 score}}}, 2
                              model_spec}
    RegressionResponse        {1 result {1 for each example {1 value}}, 2 model_spec}

Labels stay bytes: protobuf wants UTF-8 there, and a model may have others.
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
"""What stands before the four bytes of a regression's value."""


class RpcExamples(NamedTuple):
    """What a classify or regress request asks for."""

    model: ModelSpec
    examples: Strings
    """Serialized tf.train.Examples."""
    context: bytes | None = None
    """One more, whose features belong to every example."""


# Requests


def build_examples(model: ModelSpec, examples: Strings, context: bytes | None = None) -> list[Any]:
    """A classify or regress request, which are the same message, in pieces.

    >>> b"".join(build_examples(ModelSpec("m"), Strings.of([b"", b"\\n\\0"]))).hex(" ")
    '0a 03 0a 01 6d 12 08 0a 06 0a 00 0a 02 0a 00'
    """
    if not isinstance(examples, Strings) or examples.text or len(examples.shape) != 1:
        raise EncodeError(
            "examples are a vector of serialized tf.train.Examples, as Strings of bytes",
            format=FORMAT,
        )
    messages = [part for one in examples.tolist() for part in (header(1, len(one)), one)]
    number = 1 if context is None else 2
    listed = b"".join(messages if context is None else [*messages, piece(2, bytes(context))])
    head = header(number, len(listed))
    return whole([piece(1, write_spec(model)) + header(2, len(head) + len(listed)) + head, listed])


def parse_examples(data: Buffer, limits: Limits = DEFAULT) -> RpcExamples:
    """What a classify or regress request says; the Examples themselves are not looked at.

    >>> parse_examples(b"".join(build_examples(ModelSpec("m"), Strings.of([b"\\n\\0"]),
    ...     b""))).context
    b''
    """
    where = Fields(data, limits)
    found = where.take(where.whole, once=(1, 2))
    model = where.spec(found[1])
    kinds = {1: None, 2: None} if found[2] is None else where.take(found[2], once=(1, 2))
    if kinds[1] is not None and kinds[2] is not None:
        raise DecodeError(
            "examples with and without a context at once", format=FORMAT, offset=found[2][0]
        )
    place = kinds[1] or kinds[2]
    if place is None:
        return RpcExamples(model, Strings.of([], text=False))
    examples, context = [], None if kinds[2] is None else b""
    for number, at in where.pieces(place, "examples", (1,) if context is None else (1, 2)):
        if number == 1:
            examples.append(where.bytes(at))
        elif context:
            raise problem(REPEATED, at[0], FORMAT)
        else:
            context = where.bytes(at)
    return RpcExamples(model, Strings.of(examples, text=False), context)


# Classify


def build_classify_answer(
    model: ModelSpec, classes: TensorLike | None = None, scores: TensorLike | None = None
) -> list[Any]:
    """The answer to a classify request, in pieces: labels, scores, or both, [examples, classes].

    >>> b"".join(build_classify_answer(ModelSpec(""), Strings.of([b"a"], (1, 1)),
    ...     np.float32([[1]]))).hex(" ")
    '0a 0c 0a 0a 0a 08 0a 01 61 15 00 00 80 3f 12 00'
    """
    labels = None if classes is None else frameworks.tensor(classes)
    values = None if scores is None else _float32(scores, 2, "scores")
    if labels is not None and (not isinstance(labels, Strings) or len(labels.shape) != 2):
        raise EncodeError(
            f"classes are strings [examples, classes], not {describe(labels)}", format=FORMAT
        )
    shapes = {one.shape for one in (labels, values) if one is not None}
    if len(shapes) != 1:
        raise EncodeError(
            (
                f"classes and scores of shapes {sorted(shapes)}"
                if shapes
                else "neither classes nor scores"
            ),
            format=FORMAT,
        )
    rows, columns = shapes.pop()
    words = (
        [b""] * (rows * columns) if labels is None else labels.astext(False).reshape(-1).tolist()
    )
    numbers = (
        [b""] * (rows * columns)
        if values is None
        else [b"\x15" + bits if bits != _ZERO else b"" for bits in _bits(values)]
    )
    each = [
        (piece(1, word) if word else b"") + number
        for word, number in zip(words, numbers, strict=True)
    ]
    framed = [piece(1, one) for one in each]
    examples = [piece(1, b"".join(framed[at * columns : (at + 1) * columns])) for at in range(rows)]
    return whole([piece(1, b"".join(examples)), piece(2, write_spec(model))])


def parse_classify_answer(
    data: Buffer, limits: Limits = DEFAULT
) -> tuple[ModelSpec, dict[str, Array | Strings]]:
    """The "classes" and "scores" of an answer, [examples, classes]. A model that gives no labels
    has empty ones, one without scores zeros.

    >>> answer = build_classify_answer(ModelSpec("m"), Strings.of([b"a", b"b"], (1, 2)),
    ...     np.float32([[0.25, 0.75]]))
    >>> parse_classify_answer(b"".join(answer))[1]
    {'classes': Strings(b'a', b'b'; shape=(1, 2), bytes), 'scores': array([[0.25, 0.75]],
    dtype=float32)}
    """
    where = Fields(data, limits)
    found = where.take(where.whole, once=(1, 2))
    labels: list[bytes] = []
    scores = bytearray()
    columns: int | None = None
    rows = 0
    for _, example in where.pieces(found[1] or (0, 0), "examples"):
        before = len(labels)
        for label, score in _usual(where, example) or (
            _class(where, one) for _, one in where.pieces(example, "classes")
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
    return where.spec(found[2]), {"classes": classes, "scores": _numbers(scores).reshape(shape)}


def _usual(where: Fields, at: Span) -> list[tuple[bytes, bytes]]:
    """The classes of an example if they are as everyone writes them: short, label and score, and
    nothing else. Empty if one is not.
    """
    data, (place, stop) = where.data, at
    found = []
    while place < stop:
        if stop - place < 9:
            return []
        end, middle = place + 2 + data[place + 1], place + 4 + data[place + 3]
        if (
            data[place] != 0x0A
            or data[place + 2] != 0x0A
            or data[place + 1] > 0x7F
            or middle + 5 != end
            or end > stop
            or data[middle] != 0x15
        ):
            return []
        found.append((bytes(data[place + 4 : middle]), data[middle + 1 : end]))
        place = end
    where.spend(len(found), at[0])
    return found


def _class(where: Fields, at: Span) -> tuple[bytes, bytes]:
    """The label, and the score's four bytes. What is empty or zero need not be there."""
    (start, stop), data = at, where.data
    if start == stop:
        return b"", _ZERO
    if stop - start == 5 and data[start] == 0x15:
        return b"", data[start + 1 : stop]
    if stop - start > 1 and data[start] == 0x0A and data[start + 1] < 0x80:
        end = start + 2 + data[start + 1]
        if end == stop or (end + 5 == stop and data[end] == 0x15):
            return bytes(data[start + 2 : end]), data[end + 1 : stop] or _ZERO
    found = _once(where, at, {1: LEN, 2: _FIXED32})
    return where.bytes(found[1]) if 1 in found else b"", (
        where.bytes(found[2]) if 2 in found else _ZERO
    )


# Regress


def build_regress_answer(model: ModelSpec, values: TensorLike) -> list[Any]:
    """The answer to a regress request, in pieces.

    >>> b"".join(build_regress_answer(ModelSpec(""), np.float32([1, 0]))).hex(" ")
    '0a 09 0a 05 0d 00 00 80 3f 0a 00 12 00'
    """
    each = [
        _VALUE + bits if bits != _ZERO else piece(1, b"")
        for bits in _bits(_float32(values, 1, "values"))
    ]
    return whole([piece(1, b"".join(each)), piece(2, write_spec(model))])


def parse_regress_answer(
    data: Buffer, limits: Limits = DEFAULT
) -> tuple[ModelSpec, dict[str, Array | Strings]]:
    """The "outputs" of an answer, one for each example.

    >>> parse_regress_answer(b"".join(build_regress_answer(ModelSpec("m"), np.float32([1, 0]))))[1]
    {'outputs': array([1., 0.], dtype=float32)}
    """
    where = Fields(data, limits)
    found = where.take(where.whole, once=(1, 2))
    values = np.zeros(0, np.float32) if found[1] is None else _values(where, found[1])
    return where.spec(found[2]), {"outputs": values}


def _values(where: Fields, at: Span) -> Array:
    size = at[1] - at[0]
    # as everyone writes it, as long as none is zero
    if size % 7 == 0 and size // 7 <= where.limits.names:
        rows = np.frombuffer(where.view, np.uint8, size, at[0]).reshape(-1, 7)
        if (rows[:, :3] == np.frombuffer(_VALUE, np.uint8)).all():
            return _numbers(rows[:, 3:].tobytes())
    numbers = bytearray()
    for _, (start, stop) in where.pieces(at, "values"):
        if stop - start == 5 and where.data[start] == 0x0D:
            numbers += where.data[start + 1 : stop]
        else:
            found = _once(where, (start, stop), {1: _FIXED32}) if start < stop else {}
            numbers += where.bytes(found[1]) if found else _ZERO
    return _numbers(numbers)


def _numbers(data: bytes | bytearray) -> Array:
    return np.frombuffer(data, "<f4").astype(np.float32)


def _bits(values: Array) -> list[bytes]:
    """Each number's four bytes. A zero is left out, and a negative zero is none."""
    data = values.astype("<f4").tobytes()
    return [data[at : at + 4] for at in range(0, len(data), 4)]


def _once(where: Fields, at: Span, wires: dict[int, int]) -> dict[int, Any]:
    """Fields that may stand once, each in its wire type."""
    where.spend(4, at[0])  # nobody writes many of those that come here, and they take their time
    found: dict[int, Any] = {}
    for field in where.fields(at):
        if field.number in wires:
            if field.wire != wires[field.number] or field.number in found:
                raise problem(
                    REPEATED if field.number in found else UNKNOWN_FIELD, field.offset, FORMAT
                )
            found[field.number] = field.value
    return found


def _float32(values: TensorLike, rank: int, what: str) -> Array:
    array = frameworks.tensor(values)
    if not isinstance(array, np.ndarray) or array.ndim != rank or array.dtype != np.float32:
        raise EncodeError(
            f"{what} are float32 with {rank} dimension{'s' * (rank > 1)}, not {describe(array)}",
            format=FORMAT,
        )
    return array
