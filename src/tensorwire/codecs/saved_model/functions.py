"""Function arguments behind a signature: which inputs come from one sparse or ragged argument.

A signature is a wrapper function that takes plain tensors by name and calls the saved function:

1. The wrapper's call lists the tensors in the order of the saved function's arguments.
2. If the function is an attribute of the saved object, the object graph has its exact specs. For
   example, three of the tensors are one SparseTensorSpec.
3. Otherwise the function's argument attributes have the name that its author gave each argument.
   Adjacent tensors with the same name may come from one argument.
4. A model that was loaded and saved again has wrappers around wrappers. So calls are followed as
   long as a function passes all of its inputs on to exactly one other function.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...wire.protobuf import MessageReader, Span
from .specs import Argument, arguments

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_WRAPPERS = 8
"""Nested wrappers that are followed: one for each time the model was saved again."""
_SAME = ("Identity", "PlaceholderWithDefault", "Reshape")
"""Operations that return their first input, at most with another shape."""
_IDENTITIES = 8
"""Such operations that are followed between a wrapper's input and its call."""
_NODES = 1024
"""A function with more nodes than this is not taken for a wrapper."""
_USER_NAME = "_user_specified_name"


class Functions:
    """The functions of one MetaGraph, parsed on first use."""

    def __init__(self, reader: MessageReader, graph: Span | None, objects: Span | None) -> None:
        self._reader, self._graph, self._objects = reader, graph, objects
        self._bodies: dict[str, Span] | None = None
        self._specs: dict[str, Span] | None = None

    def wrappers(self) -> dict[str, tuple[str, list[str]]]:
        """Maps each signature to its wrapper function and its input names in argument order."""
        if self._objects is None:
            return {}
        reader = self._reader
        root = self._nodes({0}).get(0)
        map_id = self._children(root).get("signatures") if root is not None else None
        signatures = self._nodes({map_id}).get(map_id) if map_id is not None else None
        ids = self._children(signatures) if signatures is not None else {}
        nodes, wrappers = self._nodes(set(ids.values())), {}
        for name, number in ids.items():
            kind = reader.take(nodes[number], once=(8,))[8] if number in nodes else None
            if kind is not None:
                function = reader.take(kind, once=(1,), many=(2,))
                wrappers[name] = (
                    reader.text(function[1]),
                    [reader.text(word) for word in function[2]],
                )
        return wrappers

    def arguments(
        self, wrapper: str, names: Sequence[str]
    ) -> tuple[list[tuple[Argument, list[str]]] | None, list[list[str]] | None]:
        """Returns (arguments, rows) of the function behind a wrapper.

        `arguments` pairs each argument with the signature's names for its tensors. Where only
        argument names are known, `rows` groups the names that may be one argument. Both are None if
        neither can be determined.
        """
        given, function = list(names), wrapper
        exact: list[tuple[Argument, list[str]]] | None = None
        rows: list[list[str]] | None = None
        for _ in range(_WRAPPERS):
            body = self._body(function)
            call = self._only_call(body, given) if body is not None else None
            if call is None:
                break
            function, given = call
            specs = self._spec(function)
            exact = _shared(specs, given) if specs is not None else None
            if exact is not None and any(argument.count > 1 for argument, _ in exact):
                break
            rows = self._rows(function, given) if exact is None else None
            if rows is not None and any(len(row) > 1 for row in rows):
                break
        return exact, rows

    def _nodes(self, wanted: set[int]) -> dict[int, Span]:
        """Returns nodes of the object graph by number, which is their position in it."""
        nodes: dict[int, Span] = {}
        number = 0
        if self._objects is not None and wanted:
            for field in self._reader.fields(self._objects):
                if field.number == 1 and isinstance(field.value, tuple):
                    if number in wanted:
                        nodes[number] = field.value
                    number += 1
        return nodes

    def _children(self, node: Span) -> dict[str, int]:
        children = {}
        for child in self._reader.take(node, many=(1,))[1]:
            reference = self._reader.take(child, once=(2,), numbers=(1,))
            children[self._reader.text(reference[2])] = reference[1]
        return children

    def _spec(self, function: str) -> list[Argument] | None:
        if self._specs is None:
            entries = (
                self._reader.take(self._objects, many=(2,))[2] if self._objects is not None else []
            )
            self._specs = self._reader.entries(entries)
        if function not in self._specs:
            return None
        value = self._reader.take(self._specs[function], once=(3,))[3]
        return arguments(self._reader, value) if value is not None else None

    def _body(self, function: str) -> Span | None:
        if self._bodies is None:
            self._bodies = {}
            library = (
                self._reader.take(self._graph, once=(2,))[2] if self._graph is not None else None
            )
            for field in self._reader.fields(library) if library is not None else ():
                if field.number == 1 and isinstance(field.value, tuple):
                    self._bodies[self._name(field.value)] = field.value
        return self._bodies.get(function)

    def _name(self, body: Span) -> str:
        """Returns a function's name. It is the first field, so the rest is not parsed."""
        for field in self._reader.fields(body):
            if field.number == 1 and isinstance(field.value, tuple):
                for inner in self._reader.fields(field.value):
                    if inner.number == 1 and isinstance(inner.value, tuple):
                        return self._reader.text(inner.value)
        return ""

    def _only_call(self, body: Span, given: list[str]) -> tuple[str, list[str]] | None:
        """Returns the only function that a wrapper calls, and the inputs in call order."""
        reader = self._reader
        parts = reader.take(body, once=(1,), many=(3,))
        if parts[1] is None:
            return None
        declared = reader.take(parts[1], many=(2,))[2][: len(given)]
        words = [reader.text(reader.take(argument, once=(1,))[1]) for argument in declared]
        by_word = dict(zip(words, given, strict=False))
        calls, same = [], dict[str, str]()
        for node in parts[3] if len(parts[3]) <= _NODES else ():
            fields = reader.take(node, once=(1, 2), many=(3, 5))
            kind = reader.text(fields[2])
            if kind in _CALLS:
                calls.append(fields)
            elif kind in _SAME and fields[3]:
                same[f"{reader.text(fields[1])}:output:0"] = reader.text(fields[3][0])
        if len(calls) != 1 or len(by_word) != len(given):
            return None
        words = [_first(reader.text(word), same) for word in calls[0][3]]
        passed = [by_word[word] for word in words if word in by_word]
        function = reader.entries(calls[0][5]).get("f")
        named = reader.take(function, once=(10,))[10] if function is not None else None
        if named is None or sorted(passed) != sorted(given):
            return None
        return reader.text(reader.take(named, once=(1,))[1]), passed

    def _rows(self, function: str, given: list[str]) -> list[list[str]] | None:
        """Groups adjacent inputs whose arguments had the same name."""
        body = self._body(function)
        if body is None:
            return None
        reader, users = self._reader, {}
        for entry in reader.take(body, many=(7,))[7]:
            arg_attrs = reader.take(entry, once=(2,), numbers=(1,))
            attributes = (
                reader.entries(reader.take(arg_attrs[2], many=(1,))[1])
                if arg_attrs[2] is not None
                else {}
            )
            if _USER_NAME in attributes:
                users[arg_attrs[1]] = reader.text(reader.take(attributes[_USER_NAME], once=(2,))[2])
        rows: list[list[str]] = []
        for number, name in enumerate(given):
            if (
                number
                and users.get(number) is not None
                and users.get(number) == users.get(number - 1)
            ):
                rows[-1].append(name)
            else:
                rows.append([name])
        return rows


def _first(word: str, same: dict[str, str]) -> str:
    """Follows identity operations from a tensor back to its source.

    Nodes come in any order and may form a cycle, so the number of steps is limited.
    """
    for _ in range(_IDENTITIES):
        if word not in same:
            break
        word = same[word]
    return word


def _shared(specs: list[Argument], given: list[str]) -> list[tuple[Argument, list[str]]] | None:
    """Assigns the tensors to the arguments in order; None if their counts differ."""
    if sum(argument.count for argument in specs) != len(given):
        return None
    shares, first = [], 0
    for argument in specs:
        shares.append((argument, given[first : first + argument.count]))
        first += argument.count
    return shares
