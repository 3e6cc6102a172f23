"""Names that follow from a spec alone: of every part, and the path of every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .._errors import DecodeError
from .._limits import DEFAULT

Node = Any
DENSE: dict[str, Any] = {}
"""The node of an unchanged part. It is one object, so that `is` finds lists of nothing else."""
DEPTH = DEFAULT.json_depth
CONTAINERS = ("dict", "bundle", "list", "tuple")
"""The kinds of node that hold other nodes."""


def members(node: Node) -> Iterator[tuple[str | int, Node]]:
    """Yields (key or position, node) of a container; nothing for any other node.

    >>> list(members({"dict": [["lr", 0.1], [0, {}]]})), list(members({"tuple": 2}))
    ([('lr', 0.1), (0, {})], [(0, {}), (1, {})])
    """
    kind = next(iter(node), None) if isinstance(node, dict) else None
    inner = node[kind] if kind in CONTAINERS else None
    if kind in ("dict", "bundle") and isinstance(inner, dict):
        yield from inner.items()
    elif kind == "dict" and isinstance(inner, list):
        yield from _pairs(inner)
    elif kind in ("list", "tuple"):
        yield from enumerate(inner if isinstance(inner, list) else _dense(inner))


def is_key(key: Any) -> bool:
    """Whether a dict may have this key: str, or an int of 64 bits.

    >>> is_key("a"), is_key(-3), is_key(True), is_key(1 << 63)
    (True, True, False, False)
    """
    return type(key) is str or (type(key) is int and -(1 << 63) <= key < 1 << 63)


def _pairs(inner: list[Any]) -> Iterator[tuple[str | int, Node]]:
    seen: set[str | int] = set()
    for pair in inner:
        if not isinstance(pair, list) or len(pair) != 2 or not is_key(pair[0]):
            raise DecodeError(
                f"invalid spec: expected a pair of key and node in a dict, not {pair!r:.60}"
            )
        if pair[0] in seen:
            raise DecodeError(f"invalid spec: duplicate dict key {pair[0]!r:.60}")
        seen.add(pair[0])
        yield pair[0], pair[1]


def names(spec: Node, most: int) -> list[str]:
    """Returns the name of each part in order.

    Raises DecodeError as soon as a spec needs more than `most` parts, before a hostile spec costs
    memory.

    >>> names({"dict": {"x": {"sparse": {}}, "y": {"list": 2}}}, 5)
    ['x/indices', 'x/values', 'x/dense_shape', 'y/0', 'y/1']
    """
    # `packed` describes parts, and does not change their names.
    if isinstance(spec, dict) and "packed" in spec:
        spec = spec["packed"]
    kind = next(iter(spec)) if isinstance(spec, dict) and len(spec) == 1 else None
    if kind in ("list", "tuple") and type(spec[kind]) is int and 0 <= spec[kind] <= most:
        # Fast path for a long list of plain arrays, whose names cannot clash.
        return list(map(str, range(spec[kind])))
    result: list[str] = []
    for name in unique(_names(spec, None, 0)):
        if len(result) == most:
            raise DecodeError(f"invalid spec: it needs more than the {most} stored parts")
        result.append(name)
    return result


def unique(names: Iterable[str]) -> Iterator[str]:
    """Yields unique names: a name that is used already gets ~1, ~2 and so on.

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
    """Yields (path, node, number of parts) for each tensor of a value.

    >>> list(tensors({"dict": {"x": {"sparse": {}}, "n": 3, "y": {"list": 2}}}, 5))
    [('x', {'sparse': {}}, 3), ('y/0', {}, 1), ('y/1', {}, 1)]
    """
    for path, node in _tensors(spec, None, 0):
        size = len(names(node, most))
        most -= size
        yield "tensor" if path is None else path, node, size


def _tensors(node: Node, path: str | None, depth: int) -> Iterator[tuple[str | None, Node]]:
    if not isinstance(node, dict) or depth > 2 * DEPTH:
        return
    kind = next(iter(node), None)
    start = "" if path is None else f"{path}/"
    if kind in CONTAINERS:
        for key, item in members(node):
            yield from _tensors(item, f"{start}{key}", depth + 1)
    elif kind not in ("float", "bytes"):
        yield path, node


def _dense(count: Any) -> Iterator[Node]:
    return (DENSE for _ in range(count if type(count) is int else 0))


def _names(node: Node, path: str | None, depth: int) -> Iterator[str]:
    """Yields the preferred name of each part.

    The spec may be hostile. Invalid nodes yield nothing here, and `lift` raises for them.
    """
    if not isinstance(node, dict) or depth > 2 * DEPTH:
        return
    kind = next(iter(node), None)
    inner = node[kind] if kind else None
    start = "" if path is None else f"{path}/"
    if kind in (None, "dtype", "text"):
        yield "tensor" if path is None else path
    elif kind == "strings":
        yield from (f"{start}data", f"{start}offsets")
    elif kind == "sparse":
        yield f"{start}indices"
        yield from _names(inner, f"{start}values", depth + 1)
        yield f"{start}dense_shape"
    elif kind == "quantized":
        yield from _names(inner, path, depth + 1)
        if "axis" in node:
            yield from (f"{start}scale", f"{start}zero_point")
    elif kind == "ragged":
        yield from _names(inner, f"{start}values", depth + 1)
        splits = node.get("splits")
        yield from (f"{start}row_splits/{i}" for i in range(splits if type(splits) is int else 0))
    elif kind in ("list", "tuple") and type(inner) is int:
        yield from (f"{start}{i}" for i in range(inner))
    elif kind in CONTAINERS:
        for key, item in members(node):
            yield from _names(item, f"{start}{key}", depth + 1)
