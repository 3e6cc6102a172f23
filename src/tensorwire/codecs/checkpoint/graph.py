"""Object graph of a TensorFlow 2 checkpoint: the tracked objects, and the key of each variable.

It is a TrackableObjectGraph message, stored as a string under `_CHECKPOINTABLE_OBJECT_GRAPH`.
`tf.train.Checkpoint(...).restore` walks it together with the objects to restore. Readable names are
made from the keys alone. The graph adds the name that each variable was created with (`full_name`),
and further paths to it.
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
    """A saved tensor of an object."""

    name: str
    """VARIABLE_VALUE for the value of a variable."""
    full_name: str
    """The name that the variable was created with; empty if the object is not a variable."""
    key: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot variable of an optimizer: node numbers of both variables, and its name (m, v)."""

    variable: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A tracked object. The first node of a graph is the root."""

    children: dict[str, int] = field(default_factory=dict)
    attributes: list[Attribute] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)


def full_names(nodes: Iterable[GraphNode]) -> dict[str, str]:
    """Maps the key of each variable to the name that it was created with.

    `nodes` is the result of `read_graph`. Variables without such a name are left out.

    >>> import tensorwire as tw
    >>> from tensorwire import checkpoint
    >>> blob = tw.dumps({"net": {"kernel": tw.tensor([1.0, 2.0])}}, "checkpoint")
    >>> with tw.open(blob, format="checkpoint") as file:
    ...     graph = file["_CHECKPOINTABLE_OBJECT_GRAPH"].read()
    >>> nodes = checkpoint.read_graph(graph.tolist())
    >>> checkpoint.full_names(nodes)
    {'net/kernel/.ATTRIBUTES/VARIABLE_VALUE': 'net/kernel'}
    """
    return {
        attribute.key: attribute.full_name
        for node in nodes
        for attribute in node.attributes
        if attribute.full_name
    }


def read_graph(message: bytes, limits: Limits = DEFAULT) -> list[GraphNode]:
    """Returns the nodes of an object graph, the root first.

    `message` is the string that a checkpoint stores under `_CHECKPOINTABLE_OBJECT_GRAPH`. Nodes
    have `children` (name -> node number), `attributes` (name, full_name, key) and `slots`. Raises
    DecodeError if the message is not a valid graph.

    >>> import tensorwire as tw
    >>> from tensorwire import checkpoint
    >>> blob = tw.dumps({"net": {"kernel": tw.tensor([1.0, 2.0])}}, "checkpoint")
    >>> with tw.open(blob, format="checkpoint") as file:
    ...     graph = file["_CHECKPOINTABLE_OBJECT_GRAPH"].read()
    >>> nodes = checkpoint.read_graph(graph.tolist())
    >>> nodes[0].children, nodes[1].children
    ({'net': 1}, {'kernel': 2})
    """
    reader = MessageReader(BytesSource(message), FORMAT, limits)
    spans = reader.take((0, len(message)), many=(1,))[1]
    return [_node(reader, span, len(spans)) for span in spans]


def _node(reader: MessageReader, span: Span, count: int) -> GraphNode:
    parts = reader.take(span, many=(1, 2, 3))
    children = {}
    for child in parts[1]:
        fields = reader.take(child, once=(2,), numbers=(1,))
        children[reader.text(fields[2])] = _checked_number(fields[1], count, child)
    attributes = []
    for message in parts[2]:
        fields = reader.take(message, once=(1, 2, 3))
        attributes.append(Attribute(*(reader.text(fields[number]) for number in (1, 2, 3))))
    slots = []
    for message in parts[3]:
        fields = reader.take(message, once=(2,), numbers=(1, 3))
        slots.append(
            Slot(
                _checked_number(fields[1], count, message),
                reader.text(fields[2]),
                _checked_number(fields[3], count, message),
            )
        )
    return GraphNode(children, attributes, slots)


def _checked_number(number: int, count: int, span: Span) -> int:
    if number >= count:
        raise DecodeError(
            f"node {number} is not one of the {count} object graph nodes",
            format=FORMAT,
            offset=span[0],
        )
    return number


def make_graph(keys: Iterable[str]) -> list[GraphNode]:
    """Returns the objects that variables with these keys belong to.

    A key without the suffix is not a path through objects, and is left out.

    >>> [list(node.children) for node in make_graph(["net/kernel/.ATTRIBUTES/VARIABLE_VALUE"])]
    [['net'], ['kernel'], []]
    """
    nodes = [GraphNode()]

    def walk(path: str) -> int:
        node = 0
        for part in path.split("/") if path else []:
            name = re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else match[1], part)
            if name not in nodes[node].children:
                nodes[node].children[name] = len(nodes)
                nodes.append(GraphNode())
            node = nodes[node].children[name]
        return node

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
    """Returns the graph of `make_graph` as a message."""
    return b"".join(_field(1, _encoded(node)) for node in make_graph(keys))


def _encoded(node: GraphNode) -> bytes:
    out = [
        _field(1, _number(1, child) + _field(2, name.encode()))
        for name, child in node.children.items()
    ]
    for attribute in node.attributes:
        out.append(
            _field(
                2,
                _field(1, attribute.name.encode())
                + _field(2, attribute.full_name.encode())
                + _field(3, attribute.key.encode()),
            )
        )
    out += [
        _field(3, _number(1, slot.variable) + _field(2, slot.name.encode()) + _number(3, slot.node))
        for slot in node.slots
    ]
    # has_checkpoint_values: every node here leads to a saved value.
    return b"".join(out) + _field(5, _number(1, 1))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return bytes([number << 3]) + varint(value) if value else b""
