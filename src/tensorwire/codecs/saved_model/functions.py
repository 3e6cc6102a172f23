"""Which inputs of a signature TensorFlow 2 made of one argument of the function behind it.

A signature is a wrapper function that takes plain tensors by name and calls the function that was
saved. The call has them in the order of that function's arguments. Where the object graph knows the
function (it is an attribute of what was saved) its specs stand there, exact: three of the tensors
are one SparseTensorSpec, and so on. Where it does not, the function itself still knows what its
caller had called each argument, and tensors of one argument stand in a row. A model that was loaded
and saved again has wrappers around wrappers, and one that puts sparse tensors together itself calls
another function with them: so calls are followed as long as a function hands all that it has on to
one other.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...wire.protobuf import MessageReader, Span
from .specs import Argument, arguments

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_WRAPPERS = 8
"""How often a model may have been saved again."""
_SAME = ("Identity", "PlaceholderWithDefault", "Reshape")
"""Operations whose output is their first input, of another shape at most."""
_IDENTITIES = 8
"""Steps by which a wrapper passes on an argument, at the most."""
_NODES = 1024
"""A function with more nodes than this is no wrapper."""
_USER_NAME = "_user_specified_name"


class Functions:
    """The functions of one MetaGraph, found when they are asked for."""

    def __init__(self, reader: MessageReader, graph: Span | None, objects: Span | None) -> None:
        self._reader, self._graph, self._objects = reader, graph, objects
        self._bodies: dict[str, Span] | None = None
        self._specs: dict[str, Span] | None = None

    def wrappers(self) -> dict[str, tuple[str, list[str]]]:
        """The function of each signature, and the names of its inputs in that function's order."""
        if self._objects is None:
            return {}
        reader = self._reader
        root = self._nodes({0}).get(0)
        map_id = self._children(root).get("signatures") if root is not None else None
        signatures = self._nodes({map_id}).get(map_id) if map_id is not None else None
        ids = self._children(signatures) if signatures is not None else {}
        nodes, found = self._nodes(set(ids.values())), {}
        for name, number in ids.items():
            kind = reader.take(nodes[number], once=(8,))[8] if number in nodes else None
            if kind is not None:
                function = reader.take(kind, once=(1,), many=(2,))
                found[name] = reader.text(function[1]), [reader.text(word) for word in function[2]]
        return found

    def arguments(
        self, wrapper: str, names: Sequence[str]
    ) -> tuple[list[tuple[Argument, list[str]]] | None, list[list[str]] | None]:
        """What the function behind a wrapper takes: its arguments with the signature's names for
        each, or else only rows of names that one argument may have been; (None, None) if neither
        can be told."""
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
        """Nodes of the object graph by their numbers, which are their places in it."""
        found: dict[int, Span] = {}
        at = 0
        if self._objects is not None and wanted:
            for field in self._reader.fields(self._objects):
                if field.number == 1 and isinstance(field.value, tuple):
                    if at in wanted:
                        found[at] = field.value
                    at += 1
        return found

    def _children(self, node: Span) -> dict[str, int]:
        children = {}
        for child in self._reader.take(node, many=(1,))[1]:
            about = self._reader.take(child, once=(2,), numbers=(1,))
            children[self._reader.text(about[2])] = about[1]
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
        """A function's name, which stands at its start: nothing behind it is looked at."""
        for field in self._reader.fields(body):
            if field.number == 1 and isinstance(field.value, tuple):
                for inner in self._reader.fields(field.value):
                    if inner.number == 1 and isinstance(inner.value, tuple):
                        return self._reader.text(inner.value)
        return ""

    def _only_call(self, body: Span, given: list[str]) -> tuple[str, list[str]] | None:
        """The one function that a wrapper calls, and what it passes on, in that function's order."""
        reader = self._reader
        found = reader.take(body, once=(1,), many=(3,))
        if found[1] is None:
            return None
        declared = reader.take(found[1], many=(2,))[2][: len(given)]
        words = [reader.text(reader.take(argument, once=(1,))[1]) for argument in declared]
        by_word = dict(zip(words, given, strict=False))
        calls, same = [], dict[str, str]()
        for node in found[3] if len(found[3]) <= _NODES else ():
            about = reader.take(node, once=(1, 2), many=(3, 5))
            kind = reader.text(about[2])
            if kind in _CALLS:
                calls.append(about)
            elif kind in _SAME and about[3]:
                same[f"{reader.text(about[1])}:output:0"] = reader.text(about[3][0])
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
        """Neighbours whose arguments had the same name."""
        body = self._body(function)
        if body is None:
            return None
        reader, users = self._reader, {}
        for entry in reader.take(body, many=(7,))[7]:
            about = reader.take(entry, once=(2,), numbers=(1,))
            attributes = (
                reader.entries(reader.take(about[2], many=(1,))[1]) if about[2] is not None else {}
            )
            if _USER_NAME in attributes:
                users[about[1]] = reader.text(reader.take(attributes[_USER_NAME], once=(2,))[2])
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
    """What a tensor is the same as, as far as it goes; the nodes stand in any order, and may even
    stand in a circle.
    """
    for _ in range(_IDENTITIES):
        if word not in same:
            break
        word = same[word]
    return word


def _shared(specs: list[Argument], given: list[str]) -> list[tuple[Argument, list[str]]] | None:
    """Each argument with its share of the tensors; None if there are more or fewer of them."""
    if sum(argument.count for argument in specs) != len(given):
        return None
    found, at = [], 0
    for argument in specs:
        found.append((argument, given[at : at + argument.count]))
        at += argument.count
    return found
