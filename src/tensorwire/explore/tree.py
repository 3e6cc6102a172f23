"""Nested values as a tree of text: dicts, lists, dtypes and shapes of tensors, Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import lowering
from .._errors import TensorwireError
from ..api.lazy import File
from ..core import formatting

_NAMES, _ITEMS = 40, 8
"""The most children that are shown of a dict and of a list."""
_DEEP = 8
"""The most levels that are shown."""


def is_nested(file: File) -> bool:
    """Return whether the value of a file is more than a flat dict of tensors."""
    node = file.container.tree
    if _kind(node) not in ("dict", "bundle"):
        return _kind(node) in lowering.CONTAINERS or not isinstance(node, dict)
    children = [child for _, child in lowering.members(node)]
    return any(_kind(child) in lowering.CONTAINERS or _is_python(child) for child in children)


def lines(file: File) -> list[str]:
    """Return the tree as lines.

    >>> import numpy as np
    >>> import tensorwire as tw
    >>> print(*lines(tw.open(tw.dumps({"x": [np.zeros(3), np.ones(2)], "step": 7}))), sep="\\n")
    dict of 2
    ├─ x: list of 2
    │  ├─ 0: float64 (3,)
    │  └─ 1: float64 (2,)
    └─ step: 7
    """
    names = iter(file)

    def tensor() -> str:
        entry = file[next(names)]
        return (
            f"{'' if entry.kind == 'dense' else entry.kind + ' '}{entry.dtype}"
            f" {formatting.shape(entry.shape)}"
        )

    return list(_lines(file.container.tree, "", 0, tensor))


def python_values(file: File) -> dict[str, Any]:
    """Return the values that are not tensors, by path."""
    return dict(_values(file.container.tree, "", 0))


def _kind(node: Any) -> str | None:
    return next(iter(node), None) if isinstance(node, dict) else None


def _is_python(node: Any) -> bool:
    return not isinstance(node, dict) or _kind(node) in ("float", "bytes")


def _children(node: Any) -> list[tuple[str, Any]]:
    return [(str(key), child) for key, child in lowering.members(node)]


def _lines(node: Any, start: str, depth: int, tensor: Callable[[], str]) -> Iterator[str]:
    """Yield the lines of a subtree. The caller adds the prefix of the first line.

    `tensor()` returns the text of the next tensor of the file. The tree and the file have their
    tensors in the same order, so every one must be taken, shown or not.
    """
    if _is_python(node):
        yield _shown(node)
        return
    if _kind(node) not in lowering.CONTAINERS:
        yield tensor()
        return
    children = _children(node)
    yield f"{_kind(node)} of {len(children)}"
    most = _NAMES if _kind(node) in ("dict", "bundle") else _ITEMS
    hidden = len(children) - most if len(children) > most + 1 else 0
    for number, (name, child) in enumerate(children):
        # Hidden children are visited too, to take their tensors in order.
        inner = list(_lines(child, "", depth + 1, tensor))
        if depth >= _DEEP or number >= len(children) - hidden:
            continue
        last = number == len(children) - 1
        yield f"{start}{'└─' if last else '├─'} {formatting.safe(name)}: {inner[0]}"
        yield from (f"{start}{'   ' if last else '│  '}{line}" for line in inner[1:])
    if hidden and depth < _DEEP:
        yield f"{start}└─ ... {hidden:,} more"


def _shown(node: Any) -> str:
    value = _python(node)
    return formatting.quoted(value) if isinstance(value, (str, bytes)) else repr(value)


def _python(node: Any) -> Any:
    """Return the Python value of a leaf of the spec."""
    try:
        return lowering.lift(node, [])
    except TensorwireError:
        return node


def _values(node: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if _is_python(node):
        yield path or "value", _python(node)
    elif _kind(node) in lowering.CONTAINERS and depth < 100:
        for name, child in _children(node):
            yield from _values(child, f"{path}/{name}" if path else name, depth + 1)
