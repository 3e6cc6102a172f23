"""Tree items: the leaves of a container's value, which are tensors and Python values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import lowering
from .._errors import DecodeError, LimitError
from .._limits import DEFAULT
from ..lowering import Node
from .checkpoint.bundle import Variables
from .container import Container

_INSIDE: dict[str, Any] = {
    "dict": (dict, list),
    "bundle": dict,
    "list": (list, int),
    "tuple": (list, int),
}


class TreeItem(NamedTuple):
    """A leaf of the tree: a tensor, or a Python value."""

    name: str
    node: Node
    at: int | None
    """The index of the first part of a tensor; None for a Python value."""
    size: int
    """The number of parts."""
    same: bool = False
    """Whether the tensor is tied to an earlier one."""


def tree_of(container: Container) -> Node:
    """Returns the spec of a container. A checkpoint counts as a flat dict of its variables."""
    if isinstance(container, Variables):
        names = container.keys()
        return {"dict": {name: {} for name in names}}
    return container.tree


def items(container: Container, tree: Node) -> Iterator[TreeItem]:
    """Yields every leaf of the tree. Tensors have their names in the container."""
    names = iter(container.keys())
    tensors: dict[int, TreeItem] = {}
    taken = set(container.keys())
    index, left = 0, len(container.parts)
    for path, node in _leaves(tree, "", 0):
        if not is_tensor(node):
            name = path or "value"
            while name in taken:
                name += "~"
            taken.add(name)
            yield TreeItem(name, node, None, 0)
            continue
        name = next(names)
        if "same" in node:
            yield tensors[node["same"]]._replace(name=name, same=True)
            continue
        size = len(lowering.names(node, left))
        tensors[index] = item = TreeItem(name, node, index, size)
        index, left = index + size, left - size
        yield item


def is_tensor(node: Node) -> bool:
    return isinstance(node, dict) and next(iter(node), None) not in ("float", "bytes")


def _leaves(node: Node, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > DEFAULT.json_depth:
        raise LimitError(f"the value is nested more than {DEFAULT.json_depth} levels deep")
    kind = next(iter(node), None) if isinstance(node, dict) else None
    start = f"{path}/" if path else ""
    if kind in _INSIDE and not isinstance(node[kind], _INSIDE[kind]):
        raise DecodeError(f"invalid spec: a {kind} node contains a {type(node[kind]).__name__}")
    if kind in lowering.CONTAINERS:
        for key, item in lowering.members(node):
            yield from _leaves(item, f"{start}{key}", depth + 1)
    else:
        yield path, node


def python_values(container: Container) -> dict[str, Any]:
    """Returns the Python values next to the tensors by name, as nodes of the spec."""
    return {
        item.name: item.node for item in items(container, tree_of(container)) if item.at is None
    }
