"""Object graph of a SavedModel: the tracked objects, their paths, and the functions' signatures."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..._errors import DecodeError
from ...wire.protobuf import LEN, VARINT, MessageReader, Span
from .specs import Shape, dtype, shape, type_spec

# Field numbers of SavedObject.kind.
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
# Field numbers of StructuredValue.
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
    """The type of a tensor that a function takes or returns."""

    kind: str
    dtype: str
    shape: Shape
    name: str = ""

    def __str__(self) -> str:
        dims = (
            "of any shape"
            if self.shape is None
            else f"({', '.join('?' if dim is None else str(dim) for dim in self.shape)})"
        )
        return f"{'' if self.kind == 'dense' else f'{self.kind} '}{self.dtype} {dims}" + (
            f" {self.name!r}" if self.name else ""
        )


class Variable(NamedTuple):
    """A variable as the object graph describes it."""

    name: str
    """The name that it was created with."""
    dtype: str
    shape: Shape
    trainable: bool


class Object(NamedTuple):
    """A tracked object."""

    path: str
    """The path to it from the root; "" for the root."""
    kind: str
    about: str
    """The class of an object, the name of a variable."""
    variable: Variable | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One traced signature of a function.

    Each argument is an ObjectSpec, a Python value, or lists, tuples and dicts of them.
    """

    arguments: tuple[Any, ...]
    named: dict[str, Any]
    gives: Any = None

    def json(self) -> dict[str, Any]:
        return {
            "arguments": [plain(argument) for argument in self.arguments],
            "named": plain(self.named),
            "gives": plain(self.gives),
        }


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the root object, with every signature it was traced with."""

    name: str
    arguments: list[str] = field(default_factory=list)
    """The argument names in the source code, where known."""
    calls: list[FunctionCall] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arguments": self.arguments,
            "calls": [call.json() for call in self.calls],
        }


def plain(value: Any) -> Any:
    """Returns a value as plain JSON types."""
    if isinstance(value, ObjectSpec):
        return {**value._asdict(), "shape": None if value.shape is None else list(value.shape)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def shown(value: Any) -> str:
    """Returns a value as text for people.

    >>> shown((ObjectSpec("dense", "float32", (None, 3), "x"), {"n": None}))
    "(float32 (?, 3) 'x', {n: None})"
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
    """The tracked objects of one MetaGraph; none if TensorFlow 1 saved it."""

    def __init__(self, reader: MessageReader, span: Span | None) -> None:
        self._reader = reader
        parts = reader.take(span, many=(1, 2)) if span is not None else {1: [], 2: []}
        self._nodes: list[Span] = parts[1]
        self._concrete = reader.entries(parts[2])
        self._paths = self._shortest_paths()

    def _shortest_paths(self) -> dict[int, str]:
        """Returns the shortest path to each object, as TensorFlow builds checkpoint keys."""
        paths, done = {0: ""} if self._nodes else {}, 0
        order = list(paths)
        while done < len(order):
            number = order[done]
            done += 1
            for name, child in self._children(number):
                if child not in paths:
                    paths[child] = f"{paths[number]}/{name}" if paths[number] else name
                    order.append(child)
        return paths

    def _children(self, number: int) -> Iterator[tuple[str, int]]:
        for child in self._reader.take(self._nodes[number], many=(1,))[1]:
            reference = self._reader.take(child, once=(2,), numbers=(1,))
            if reference[1] >= len(self._nodes):
                why = f"node {reference[1]} is not one of the {len(self._nodes)} object graph nodes"
                raise DecodeError(why, format=self._reader.format, offset=child[0])
            yield self._reader.text(reference[2]), reference[1]

    def objects(self) -> list[Object]:
        return [self._object(number, path) for number, path in self._paths.items()]

    def _object(self, number: int, path: str) -> Object:
        reader = self._reader
        fields = reader.take(self._nodes[number], once=tuple(_KINDS))
        place = next((place for place in _KINDS if fields[place] is not None), None)
        if place is None:
            return Object(path, "object", "")
        if place == 7:
            variable_fields = reader.take(fields[7], once=(2, 6), numbers=(1, 3))
            variable = Variable(
                reader.text(variable_fields[6]),
                dtype(reader, variable_fields[1], fields[7][0]),
                shape(reader, variable_fields[2]),
                bool(variable_fields[3]),
            )
            return Object(path, "variable", variable.name, variable)
        detail = reader.text(reader.take(fields[4], once=(1,))[1]) if place == 4 else ""
        return Object(path, _KINDS[place], detail)

    def functions(self) -> list[Function]:
        """Returns the functions that are attributes of the root object, sorted by name."""
        if not self._nodes:
            return []
        functions = []
        for name, child in self._children(0):
            function = self._reader.take(self._nodes[child], once=(6,))[6]
            if function is not None:
                fields = self._reader.take(function, once=(2,), many=(1,))
                calls = [self._call(self._reader.text(one)) for one in fields[1]]
                functions.append(
                    Function(
                        name, self._names(fields[2]), [call for call in calls if call is not None]
                    )
                )
        return sorted(functions, key=lambda function: function.name)

    def _call(self, name: str) -> FunctionCall | None:
        span = self._concrete.get(name)
        if span is None:
            return None
        fields = self._reader.take(span, once=(3, 4))
        given = structured(self._reader, fields[3]) if fields[3] is not None else ()
        gives = structured(self._reader, fields[4]) if fields[4] is not None else None
        if (
            isinstance(given, tuple)
            and len(given) == 2
            and isinstance(given[0], tuple)
            and isinstance(given[1], dict)
        ):
            return FunctionCall(given[0], given[1], gives)
        return FunctionCall(given if isinstance(given, tuple) else (given,), {}, gives)

    def _names(self, span: Span | None) -> list[str]:
        """Returns the argument names of the Python function, without self."""
        inner = self._reader.take(span, once=(1,))[1] if span is not None else None
        value = structured(self._reader, inner) if inner is not None else None
        names = value.get("args") if isinstance(value, dict) else None
        return (
            [name for name in names if isinstance(name, str) and name != "self"]
            if isinstance(names, list)
            else []
        )


def structured(reader: MessageReader, span: Span, depth: int = 0) -> Any:
    """Returns a StructuredValue as a Python value: tensors as ObjectSpec, named tuples as dicts."""
    depth = reader.deeper(depth, span)
    result: Any = None
    for entry in reader.fields(span):
        number, value = entry.number, entry.value
        if isinstance(value, int):
            if entry.wire == VARINT and number == _INT:
                # int64_value is sint64, which is zigzag-encoded.
                result = value >> 1 ^ -(value & 1)
            elif number == _BOOL:
                result = bool(value)
            elif number == _DTYPE:
                result = dtype(reader, value, entry.offset)
        elif number == _FLOAT and entry.wire == _FIXED64:
            (result,) = struct.unpack("<d", reader.raw(value))
        elif entry.wire == LEN:
            result = _message(reader, number, value, depth, result)
    return result


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
        argument = type_spec(reader, span, depth)
        return ObjectSpec(argument.kind, argument.dtype, argument.shape)
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
