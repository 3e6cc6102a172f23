"""What a conversion will do, known before anything is written: the new spec, and each tensor's
name, dtype, shape and parts.

The value keeps its structure: a dict stays a dict, a Bundle a Bundle, nested values stay nested,
and tied tensors tied. Names that are changed or left out are those of tensors ("layers/2/kernel"),
so then a nested value becomes a flat dict of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from ..._errors import SchemaError
from ...api import rename_rules
from ...codecs.container import Container
from ...codecs.tree_items import TreeItem, tree_of
from ...codecs.tree_items import items as tree_items
from .parts import Change, Held, Leaf, Out, Target, convert

Step = Callable[[int, str], None]
"""Told of every so many bytes that were written of a tensor."""


class ConvertedTensor(NamedTuple):
    """One tensor of the new file."""

    name: str
    source: str
    """What it is called in the old one."""
    kind: str
    dtype: str
    was: str
    shape: tuple[int | None, ...]
    nbytes: int
    """Of its parts in the new file, before compression; strings count what they take in the old
    one.
    """

    def __str__(self) -> str:
        renamed = f"  (was {self.source})" if self.source != self.name else ""
        cast = f" (was {self.was})" if self.was != self.dtype else ""
        return (
            f"{self.name}  {self.kind}  {self.dtype}{cast} ({', '.join(map(str, self.shape))}) "
            f" {self.nbytes:,} bytes{renamed}"
        )


class TensorPlan(NamedTuple):
    spec: Any
    parts: list[Out]
    entries: list[ConvertedTensor]
    metadata: dict[str, str]


def make(
    container: Container,
    target: Target,
    metadata: dict[str, str],
    *,
    rename: rename_rules.Rename | None = None,
    dtype: Any = None,
    quantize: Any = None,
    axis: int | None = None,
    include: Any = None,
    exclude: Any = None,
    ties: bool = True,
) -> TensorPlan:
    """Looks at every tensor, and reads only those whose sizes it cannot know. Without `ties` tied
    tensors are written each by itself.
    """
    tree = tree_of(container)
    items = list(tree_items(container, tree))
    tensors = [item.name for item in items if item.at is not None]
    kept = rename_rules.chosen([item.name for item in items], include, exclude)
    if tensors and not set(kept) & set(tensors):
        raise SchemaError(f"include= and exclude= leave none of {len(tensors)} tensors")
    names = rename_rules.renamed(kept, rename)
    work = _Work(
        container,
        target,
        rename_rules.NameRules(dtype, tensors, "dtype"),
        rename_rules.NameRules(quantize, tensors, "quantize"),
        axis,
        ties,
    )
    chosen = [item for item in items if item.name in names]
    if len(chosen) == len(items) and all(old == new for old, new in names.items()):
        nodes = iter([work.add(item, item.name) for item in chosen])
        spec = _rebuilt(tree, nodes)
    else:
        spec = _flat(
            tree, {names[item.name]: work.add(item, names[item.name]) for item in chosen}, names
        )
    if quantize is not None and tensors and not work.quantized:
        raise SchemaError("there is nothing to quantize: no tensor of floats; leave quantize= out")
    return TensorPlan(spec, work.parts, work.entries, metadata)


class _Work:
    def __init__(
        self,
        container: Container,
        target: Target,
        dtype: Any,
        quantize: Any,
        axis: int | None,
        ties: bool,
    ) -> None:
        self.container, self.target, self.dtype, self.quantize = container, target, dtype, quantize
        self.axis, self.ties = axis, ties
        self.old = container.parts  # which some make when they are asked for
        self.parts: list[Out] = []
        self.entries: list[ConvertedTensor] = []
        self.quantized = False
        self._held = Held()
        self._made: dict[tuple[int, Change], int] = {}
        """Where the first part is of what was made of an old tensor, in one way."""

    def add(self, item: TreeItem, name: str) -> Any:
        """The new node of a leaf; its parts are added to those that there are."""
        if item.at is None:
            return item.node
        spec = self.container.spec(item.name)  # which checks that node and parts fit each other
        if spec.kind == "unreadable":
            self.container.read(item.name)
        dtype, named = self.dtype.of(item.name)
        change = Change(dtype, named, self.quantize.of(item.name)[0], self.axis)
        parts = list(self.old[item.at : item.at + item.size])
        leaf = Leaf(
            item.name,
            item.node,
            parts,
            partial(self.container.read, item.name),
            self._held,
            self.container.budget,
        )
        key, at = (item.at, change), len(self.parts)
        made = convert(leaf, self.target, change)
        self.quantized = self.quantized or "quantized" in str(made.node)
        if self.ties and item.same and key in self._made:
            self.entries.append(
                ConvertedTensor(name, item.name, spec.kind, made.dtype, made.was, spec.shape, 0)
            )
            return {"same": self._made[key]}
        self._made[key] = at
        self.parts += made.parts
        size = sum(spec.nbytes if part.dtype == "strings" else part.nbytes for part in made.parts)
        self.entries.append(
            ConvertedTensor(name, item.name, spec.kind, made.dtype, made.was, spec.shape, size)
        )
        return made.node


def _rebuilt(node: Any, leaves: Iterator[Any]) -> Any:
    """The same tree with other leaves."""
    kind = next(iter(node), None) if isinstance(node, dict) else None
    if kind == "dict" and isinstance(node[kind], list):
        return {kind: [[key, _rebuilt(item, leaves)] for key, item in node[kind]]}
    if kind in ("dict", "bundle"):
        return node | {kind: {key: _rebuilt(item, leaves) for key, item in node[kind].items()}}
    if kind in ("list", "tuple"):
        items = [
            _rebuilt(item, leaves)
            for item in ([{}] * node[kind] if type(node[kind]) is int else node[kind])
        ]
        return {kind: len(items) if all(item == {} for item in items) else items}
    return next(leaves)


def _flat(tree: Any, nodes: dict[str, Any], names: dict[str, str]) -> Any:
    """A dict of leaves by their names, or a Bundle if it was one."""
    if not isinstance(tree, dict) or "bundle" not in tree:
        return {"dict": nodes}
    about = {
        names[name]: texts
        for name, texts in tree.get("tensor_metadata", {}).items()
        if name in names
    }
    rest = {key: texts for key, texts in tree.items() if key == "metadata"}
    return {"bundle": nodes} | rest | ({"tensor_metadata": about} if about else {})
