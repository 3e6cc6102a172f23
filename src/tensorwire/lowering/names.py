"""What follows from a spec alone: the name of every part, and the way to every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .._errors import DecodeError
from .._limits import DEFAULT

Node = Any
DENSE: dict[str, Any] = {}
"""The node of a part as it is; one object, so that a list of nothing else is told at a glance."""
DEPTH = DEFAULT.json_depth


def names(spec: Node, most: int) -> list[str]:
    """The name of each part, in order; a spec that asks for more than `most` is refused before it costs anything.

    >>> names({"dict": {"x": {"sparse": {}}, "y": {"list": 2}}}, 5)
    ['x/indices', 'x/values', 'x/dense_shape', 'y/0', 'y/1']
    """
    if isinstance(spec, dict) and "packed" in spec:  # which says something of the parts, and names none
        spec = spec["packed"]
    kind = next(iter(spec)) if isinstance(spec, dict) and len(spec) == 1 else None
    if kind in ("list", "tuple") and type(spec[kind]) is int and 0 <= spec[kind] <= most:
        return list(map(str, range(spec[kind])))  # the long list of arrays, which needs no second look
    found: list[str] = []
    for name in unique(_names(spec, None, 0)):
        if len(found) == most:
            raise DecodeError(f"the spec asks for more than the {most} parts that there are")
        found.append(name)
    return found


def unique(names: Iterable[str]) -> Iterator[str]:
    """Each name once: one that is taken gets ~1, ~2 and so on.

    >>> list(unique(["a", "b", "a", "a"]))
    ['a', 'b', 'a~1', 'a~2']
    """
    taken: set[str] = set()
    again: dict[str, int] = {}
    for base in names:
        name = base
        while name in taken:
            again[base] = again.get(base, 0) + 1
            name = f"{base}~{again[base]}"
        taken.add(name)
        yield name


def tensors(spec: Node, most: int) -> Iterator[tuple[str, Node, int]]:
    """Each tensor of a value: the way to it, its node, and how many parts it takes.

    >>> list(tensors({"dict": {"x": {"sparse": {}}, "n": 3, "y": {"list": 2}}}, 5))
    [('x', {'sparse': {}}, 3), ('y/0', {}, 1), ('y/1', {}, 1)]
    """
    for way, node in _tensors(spec, None, 0):
        size = len(names(node, most))
        most -= size
        yield "tensor" if way is None else way, node, size


def _tensors(node: Node, way: str | None, depth: int) -> Iterator[tuple[str | None, Node]]:
    if not isinstance(node, dict) or depth > 2 * DEPTH:
        return
    kind = next(iter(node), None)
    inner = node[kind] if kind else None
    start = "" if way is None else f"{way}/"
    if kind in ("dict", "bundle", "list", "tuple"):
        items = inner.items() if isinstance(inner, dict) else enumerate(inner if isinstance(inner, list) else _dense(inner))
        for key, item in items:
            yield from _tensors(item, f"{start}{key}", depth + 1)
    elif kind not in ("float", "bytes"):
        yield way, node


def _dense(count: Any) -> Iterator[Node]:
    return (DENSE for _ in range(count if type(count) is int else 0))


def _names(node: Node, way: str | None, depth: int) -> Iterator[str]:
    """The name that each part should have. The spec may be hostile: what is not as it should be has no parts; `lift` says what is wrong."""
    if not isinstance(node, dict) or depth > 2 * DEPTH:
        return
    kind = next(iter(node), None)
    inner = node[kind] if kind else None
    start = "" if way is None else f"{way}/"
    if kind in (None, "dtype", "text"):
        yield "tensor" if way is None else way
    elif kind == "strings":
        yield from (f"{start}data", f"{start}offsets")
    elif kind == "sparse":
        yield f"{start}indices"
        yield from _names(inner, f"{start}values", depth + 1)
        yield f"{start}dense_shape"
    elif kind == "quantized":
        yield from _names(inner, way, depth + 1)
        if "axis" in node:
            yield from (f"{start}scale", f"{start}zero_point")
    elif kind == "ragged":
        yield from _names(inner, f"{start}values", depth + 1)
        splits = node.get("splits")
        yield from (f"{start}row_splits/{i}" for i in range(splits if type(splits) is int else 0))
    elif kind in ("dict", "bundle") and isinstance(inner, dict):
        for key, item in inner.items():
            yield from _names(item, f"{start}{key}", depth + 1)
    elif kind in ("list", "tuple") and type(inner) is int:
        yield from (f"{start}{i}" for i in range(inner))
    elif kind in ("list", "tuple") and isinstance(inner, list):
        for i, item in enumerate(inner):
            yield from _names(item, f"{start}{i}", depth + 1)
