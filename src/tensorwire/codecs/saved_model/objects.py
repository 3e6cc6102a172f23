"""The object graph of a SavedModel: which objects were saved, under which names, and what its
functions can be called with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..._errors import DecodeError
from ...core import formatting
from ...wire.protobuf import LEN, VARINT, MessageReader, Span
from .specs import Shape, dtype, shape, type_spec

_KINDS = {
    4: "object",
    5: "asset",
    6: "function",
    7: "variable",
    8: "function",
    9: "constant",
    10: "resource",
    12: "captured",
}
_FIXED64 = 1
_FLOAT, _INT, _TEXT, _BOOL, _SHAPE, _DTYPE, _TENSOR, _TYPE, _BOUNDED = (
    11,
    12,
    13,
    14,
    31,
    32,
    33,
    34,
    35,
)
_LIST, _TUPLE, _DICT, _NAMED = 51, 52, 53, 54


class ObjectSpec(NamedTuple):
    """A tensor that a function takes or gives."""

    kind: str
    dtype: str
    shape: Shape
    name: str = ""

    def __str__(self) -> str:
        dims = "of any shape" if self.shape is None else formatting.shape(self.shape)
        return f"{'' if self.kind == 'dense' else f'{self.kind} '}{self.dtype} {dims}" + (
            f" {self.name!r}" if self.name else ""
        )


class Variable(NamedTuple):
    """A variable as the object graph has it."""

    name: str
    """What it was called when it was made."""
    dtype: str
    shape: Shape
    trainable: bool


class Object(NamedTuple):
    """A tracked object."""

    path: str
    """The way to it from the root; "" for the root."""
    kind: str
    about: str
    """The class of an object, the name of a variable."""
    variable: Variable | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One way to call a function: its arguments, each a Spec, a value of Python's, or lists, tuples
    and dicts of them.
    """

    arguments: tuple[Any, ...]
    named: dict[str, Any]
    gives: Any = None

    def json(self) -> dict[str, Any]:
        return {
            "arguments": [plain(one) for one in self.arguments],
            "named": plain(self.named),
            "gives": plain(self.gives),
        }


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the root, and every way in which it was traced."""

    name: str
    arguments: list[str] = field(default_factory=list)
    """What its author called them, where that is known."""
    calls: list[FunctionCall] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arguments": self.arguments,
            "calls": [call.json() for call in self.calls],
        }


def plain(value: Any) -> Any:
    """For JSON."""
    if isinstance(value, ObjectSpec):
        return {**value._asdict(), "shape": None if value.shape is None else list(value.shape)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def shown(value: Any) -> str:
    """For people.

    >>> shown((ObjectSpec("dense", "float32", (None, 3), "x"), {"n": None}))
    "(float32 [?, 3] 'x', {n: None})"
    """
    if isinstance(value, ObjectSpec):
        return str(value)
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else "()"
        return ends[0] + ", ".join(map(shown, value)) + ends[1]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    return repr(value)


class Objects:
    """The objects of one MetaGraph. TensorFlow 1 saved none."""

    def __init__(self, reader: MessageReader, span: Span | None) -> None:
        self._reader = reader
        found = reader.take(span, many=(1, 2)) if span is not None else {1: [], 2: []}
        self._nodes: list[Span] = found[1]
        self._concrete = reader.entries(found[2])
        self._paths = self._ways()

    def _ways(self) -> dict[int, str]:
        """The shortest way to each object, as TensorFlow makes its keys."""
        ways, at = {0: ""} if self._nodes else {}, 0
        order = list(ways)
        while at < len(order):
            number = order[at]
            at += 1
            for name, child in self._children(number):
                if child not in ways:
                    ways[child] = f"{ways[number]}/{name}" if ways[number] else name
                    order.append(child)
        return ways

    def _children(self, number: int) -> Iterator[tuple[str, int]]:
        for child in self._reader.take(self._nodes[number], many=(1,))[1]:
            about = self._reader.take(child, once=(2,), numbers=(1,))
            if about[1] >= len(self._nodes):
                why = f"the object graph speaks of node {about[1]} of {len(self._nodes)}"
                raise DecodeError(why, format=self._reader.format, offset=child[0])
            yield self._reader.text(about[2]), about[1]

    def objects(self) -> list[Object]:
        return [self._object(number, path) for number, path in self._paths.items()]

    def _object(self, number: int, path: str) -> Object:
        reader = self._reader
        found = reader.take(self._nodes[number], once=tuple(_KINDS))
        place = next((place for place in _KINDS if found[place] is not None), None)
        if place is None:
            return Object(path, "object", "")
        if place == 7:
            said = reader.take(found[7], once=(2, 6), numbers=(1, 3))
            one = Variable(
                reader.text(said[6]),
                dtype(reader, said[1], found[7][0]),
                shape(reader, said[2]),
                bool(said[3]),
            )
            return Object(path, "variable", one.name, one)
        about = reader.text(reader.take(found[4], once=(1,))[1]) if place == 4 else ""
        return Object(path, _KINDS[place], about)

    def functions(self) -> list[Function]:
        """The functions that are attributes of the root."""
        if not self._nodes:
            return []
        found = []
        for name, child in self._children(0):
            function = self._reader.take(self._nodes[child], once=(6,))[6]
            if function is not None:
                about = self._reader.take(function, once=(2,), many=(1,))
                calls = [self._call(self._reader.text(one)) for one in about[1]]
                found.append(
                    Function(
                        name, self._names(about[2]), [call for call in calls if call is not None]
                    )
                )
        return sorted(found, key=lambda function: function.name)

    def _call(self, name: str) -> FunctionCall | None:
        span = self._concrete.get(name)
        if span is None:
            return None
        said = self._reader.take(span, once=(3, 4))
        given = structured(self._reader, said[3]) if said[3] is not None else ()
        gives = structured(self._reader, said[4]) if said[4] is not None else None
        if (
            isinstance(given, tuple)
            and len(given) == 2
            and isinstance(given[0], tuple)
            and isinstance(given[1], dict)
        ):
            return FunctionCall(given[0], given[1], gives)
        return FunctionCall(given if isinstance(given, tuple) else (given,), {}, gives)

    def _names(self, span: Span | None) -> list[str]:
        """The arguments of Python's function, without self."""
        inner = self._reader.take(span, once=(1,))[1] if span is not None else None
        said = structured(self._reader, inner) if inner is not None else None
        names = said.get("args") if isinstance(said, dict) else None
        return (
            [name for name in names if isinstance(name, str) and name != "self"]
            if isinstance(names, list)
            else []
        )


def structured(reader: MessageReader, span: Span, depth: int = 0) -> Any:
    """A StructuredValue as a value of Python's; tensors are Specs. A named tuple is a dict."""
    depth = reader.deeper(depth, span)
    found: Any = None
    for one in reader.fields(span):
        number, value = one.number, one.value
        if isinstance(value, int):
            if one.wire == VARINT and number == _INT:
                found = value >> 1 ^ -(value & 1)  # zigzag
            elif number == _BOOL:
                found = bool(value)
            elif number == _DTYPE:
                found = dtype(reader, value, one.offset)
        elif number == _FLOAT and one.wire == _FIXED64:
            (found,) = struct.unpack("<d", reader.raw(value))
        elif one.wire == LEN:
            found = _message(reader, number, value, depth, found)
    return found


def _message(reader: MessageReader, number: int, span: Span, depth: int, otherwise: Any) -> Any:
    if number == _TEXT:
        return reader.text(span)
    if number == _SHAPE:
        return shape(reader, span)
    if number in (_TENSOR, _BOUNDED):
        spec = reader.take(span, once=(1, 2), numbers=(3,))
        return ObjectSpec(
            "dense", dtype(reader, spec[3], span[0]), shape(reader, spec[2]), reader.text(spec[1])
        )
    if number == _TYPE:
        one = type_spec(reader, span, depth)
        return ObjectSpec(one.kind, one.dtype, one.shape)
    if number in (_LIST, _TUPLE):
        items = [structured(reader, item, depth) for item in reader.take(span, many=(1,))[1]]
        return items if number == _LIST else tuple(items)
    if number == _DICT:
        return {
            key: structured(reader, item, depth)
            for key, item in reader.entries(reader.take(span, many=(1,))[1]).items()
        }
    if number == _NAMED:
        pairs = [reader.take(pair, once=(1, 2)) for pair in reader.take(span, many=(2,))[2]]
        return {
            reader.text(pair[1]): None if pair[2] is None else structured(reader, pair[2], depth)
            for pair in pairs
        }
    return otherwise
