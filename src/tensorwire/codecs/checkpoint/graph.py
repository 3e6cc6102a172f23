"""The object graph of a TensorFlow 2 checkpoint: which object holds which, and under which key each
variable's value is.

It is a TrackableObjectGraph, kept as a string under `_CHECKPOINTABLE_OBJECT_GRAPH`.
`tf.train.Checkpoint(...).restore` walks it together with the objects that it is given. Names need
none of it, because keys say the same; what keys do not say is what a variable was called when it
was made (`full_name`), and by which other ways it can be reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..._errors import DecodeError
from ..._limits import DEFAULT, Limits
from ...storage.files import BytesSource
from ...wire.protobuf import MessageReader, Span, varint
from .entries import FORMAT
from .names import SUFFIX

_SLOT = "/.OPTIMIZER_SLOT/"
_ATTRIBUTE = "VARIABLE_VALUE"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A tensor of an object."""

    name: str
    """VARIABLE_VALUE for variables."""
    full_name: str
    """What the variable was called when it was made; empty for what is none."""
    key: str


@dataclass(frozen=True, slots=True)
class Slot:
    """What an optimizer keeps for a variable: numbers of nodes, and what it is (m, v, momentum)."""

    variable: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An object. The first is the root."""

    children: dict[str, int] = field(default_factory=dict)
    attributes: list[Attribute] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)


def full_names(nodes: Iterable[GraphNode]) -> dict[str, str]:
    """Key -> what the variable was called when it was made, where that is known.

    >>> full_names([GraphNode(attributes=[Attribute("VARIABLE_VALUE", "dense/kernel",
    ...     "w/.ATTRIBUTES/VARIABLE_VALUE")])])
    {'w/.ATTRIBUTES/VARIABLE_VALUE': 'dense/kernel'}
    """
    return {one.key: one.full_name for node in nodes for one in node.attributes if one.full_name}


def read_graph(message: bytes, limits: Limits = DEFAULT) -> list[GraphNode]:
    """The nodes of an object graph.

    >>> read_graph(write_graph(["a/b/.ATTRIBUTES/VARIABLE_VALUE"]))[1].children
    {'b': 2}
    """
    reader = MessageReader(BytesSource(message), FORMAT, limits)
    spans = reader.take((0, len(message)), many=(1,))[1]
    return [_node(reader, span, len(spans)) for span in spans]


def _node(reader: MessageReader, span: Span, count: int) -> GraphNode:
    found = reader.take(span, many=(1, 2, 3))
    children = {}
    for child in found[1]:
        said = reader.take(child, once=(2,), numbers=(1,))
        children[reader.text(said[2])] = _known(said[1], count, child)
    attributes = []
    for one in found[2]:
        said = reader.take(one, once=(1, 2, 3))
        attributes.append(Attribute(*(reader.text(said[number]) for number in (1, 2, 3))))
    slots = []
    for one in found[3]:
        said = reader.take(one, once=(2,), numbers=(1, 3))
        slots.append(
            Slot(_known(said[1], count, one), reader.text(said[2]), _known(said[3], count, one))
        )
    return GraphNode(children, attributes, slots)


def _known(number: int, count: int, span: Span) -> int:
    if number >= count:
        raise DecodeError(
            f"the object graph speaks of node {number} of {count}", format=FORMAT, offset=span[0]
        )
    return number


def make_graph(keys: Iterable[str]) -> list[GraphNode]:
    """The objects that variables with these keys are attributes of. Keys that are no way through
    objects are left out.

    >>> [list(node.children) for node in make_graph(["net/kernel/.ATTRIBUTES/VARIABLE_VALUE"])]
    [['net'], ['kernel'], []]
    """
    nodes = [GraphNode()]

    def walk(path: str) -> int:
        at = 0
        for part in path.split("/") if path else []:
            name = re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else match[1], part)
            if name not in nodes[at].children:
                nodes[at].children[name] = len(nodes)
                nodes.append(GraphNode())
            at = nodes[at].children[name]
        return at

    for key in keys:
        if not key.endswith(SUFFIX):
            continue
        path, slot, where = key.removesuffix(SUFFIX).partition(_SLOT)
        node = walk(path)
        if slot:
            optimizer, _, name = where.rpartition("/")
            variable, node = node, len(nodes)
            nodes.append(GraphNode())
            nodes[walk(optimizer)].slots.append(Slot(variable, name, node))
        nodes[node].attributes.append(Attribute(_ATTRIBUTE, path, key))
    return nodes


def write_graph(keys: Iterable[str]) -> bytes:
    """The message of `make_graph`."""
    return b"".join(_field(1, _encoded(node)) for node in make_graph(keys))


def _encoded(node: GraphNode) -> bytes:
    out = [
        _field(1, _number(1, child) + _field(2, name.encode()))
        for name, child in node.children.items()
    ]
    for one in node.attributes:
        out.append(
            _field(
                2,
                _field(1, one.name.encode())
                + _field(2, one.full_name.encode())
                + _field(3, one.key.encode()),
            )
        )
    out += [
        _field(3, _number(1, slot.variable) + _field(2, slot.name.encode()) + _number(3, slot.node))
        for slot in node.slots
    ]
    # has_checkpoint_values: there are only nodes that lead to some
    return b"".join(out) + _field(5, _number(1, 1))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return bytes([number << 3]) + varint(value) if value else b""
