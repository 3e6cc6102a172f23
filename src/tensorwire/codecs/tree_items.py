"""The leaves of a container's tree: its tensors, and the Python values beside them."""

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
    """A leaf of the old tree: a tensor, or a value of Python's (which has no place)."""

    name: str
    node: Node
    at: int | None
    size: int
    same: bool = False


def tree_of(container: Container) -> Node:
    """The spec of a container. A checkpoint of TensorFlow's is tensors by name, and no more: its
    own keys stay its own affair.
    """
    if isinstance(container, Variables):
        names = container.keys()
        return {"dict": {name: {} for name in names}}
    return container.tree


def items(container: Container, tree: Node) -> Iterator[TreeItem]:
    """Every leaf with its name; tensors are called what the container calls them."""
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
        raise LimitError(f"a value nested more than {DEFAULT.json_depth} deep")
    kind = next(iter(node), None) if isinstance(node, dict) else None
    start = f"{path}/" if path else ""
    if kind in _INSIDE and not isinstance(node[kind], _INSIDE[kind]):
        raise DecodeError(f"invalid spec: a {kind} node with {type(node[kind]).__name__} inside")
    if kind in lowering.CONTAINERS:
        for key, item in lowering.members(node):
            yield from _leaves(item, f"{start}{key}", depth + 1)
    else:
        yield path, node


def python_values(container: Container) -> dict[str, Any]:
    """Numbers and text of Python's that stand beside the tensors, by name, as the spec has them."""
    return {
        item.name: item.node for item in items(container, tree_of(container)) if item.at is None
    }
