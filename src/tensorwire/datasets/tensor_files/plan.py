"""The plan of a conversion of tensors, made before anything is written: the new spec, and the name,
dtype, shape and parts of each tensor.

The value keeps its structure: a dict stays a dict, a Bundle a Bundle, nested values stay nested,
and tied tensors tied. Tensors are renamed and left out by their path ("layers/2/kernel"), and then
a nested value becomes a flat dict of paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from ... import lowering
from ..._errors import SchemaError
from ..._limits import Limits
from ...api import rename_rules
from ...codecs.container import Container
from ...codecs.tree_items import TreeItem, tree_of
from ...codecs.tree_items import items as tree_items
from ...lowering import Node
from .parts import Change, ConvertedPart, Held, Leaf, Target, convert


class ProgressStep(Protocol):
    """A callback with the number of bytes that were written of a tensor."""

    def __call__(self, count: int, name: str) -> None: ...


class ConvertedTensor(NamedTuple):
    """One tensor of the new file."""

    name: str
    source: str
    """Its name in the source."""
    kind: str
    dtype: str
    was: str
    """Its dtype in the source."""
    shape: tuple[int | None, ...]
    nbytes: int
    """The size of its parts in the new file, before compression; for strings, that in the source.
    """

    def __str__(self) -> str:
        renamed = f"  (was {self.source})" if self.source != self.name else ""
        cast = f" (was {self.was})" if self.was != self.dtype else ""
        return (
            f"{self.name}  {self.kind}  {self.dtype}{cast} ({', '.join(map(str, self.shape))}) "
            f" {self.nbytes:,} bytes{renamed}"
        )


class TensorPlan(NamedTuple):
    """The parts of the new file, in the order in which they are written."""

    spec: Node
    parts: list[ConvertedPart]
    entries: list[ConvertedTensor]
    metadata: dict[str, str]

    def named_parts(self) -> Iterator[tuple[str, ConvertedPart]]:
        """The parts by their names in the new file."""
        return zip(lowering.names(self.spec, len(self.parts)), self.parts, strict=True)

    def watched(self, step: ProgressStep) -> TensorPlan:
        """The same plan, which calls `step` for what is written."""
        parts = [
            part._replace(written=partial(step, name=name)) for name, part in self.named_parts()
        ]
        return self._replace(parts=parts)


@dataclass(frozen=True)
class ConversionOptions:
    """The options of `convert`, where they are explained."""

    to: str | None
    format: str | tuple[str, ...] | None
    rename: rename_rules.Rename | None
    dtype: str | Mapping[str, str] | None
    include: str | Iterable[str] | None
    exclude: str | Iterable[str] | None
    shard_size: str | int | None
    compression: str | None
    quantize: str | Mapping[str, str] | None
    axis: int | None
    metadata: dict[str, str] | None
    overwrite: bool
    durable: bool
    dry_run: bool
    progress: Callable[[float, str], None] | None
    limits: Limits | None
    save: dict[str, Any]
    """Other options of `tw.save` for the target format."""


def make(
    container: Container,
    target: Target,
    metadata: dict[str, str],
    options: ConversionOptions,
    ties: bool = True,
) -> TensorPlan:
    """Makes the plan. Only tensors whose sizes are not known otherwise are read.

    Without `ties`, each of the tied tensors is written.
    """
    tree = tree_of(container)
    items = list(tree_items(container, tree))
    tensors = [item.name for item in items if item.at is not None]
    kept = rename_rules.chosen([item.name for item in items], options.include, options.exclude)
    if tensors and not set(kept) & set(tensors):
        raise SchemaError(f"include= and exclude= select none of the {len(tensors)} tensors")
    names = rename_rules.renamed(kept, options.rename)
    planner = _Planner(container, target, tensors, options, ties)
    chosen = [item for item in items if item.name in names]
    if len(chosen) == len(items) and all(old == new for old, new in names.items()):
        nodes = iter([planner.add(item, item.name) for item in chosen])
        spec = _rebuilt(tree, nodes)
    else:
        spec = _flat(
            tree, {names[item.name]: planner.add(item, names[item.name]) for item in chosen}, names
        )
    if options.quantize is not None and tensors and not planner.quantized:
        raise SchemaError("there is no float tensor to quantize", hint="leave quantize= out")
    return TensorPlan(spec, planner.parts, planner.entries, metadata)


class _Planner:
    """Collects the parts and entries of a plan."""

    def __init__(
        self,
        container: Container,
        target: Target,
        tensors: list[str],
        options: ConversionOptions,
        ties: bool,
    ) -> None:
        self.container, self.target, self.axis, self.ties = container, target, options.axis, ties
        self.dtype = rename_rules.NameRules(options.dtype, tensors, "dtype")
        self.quantize = rename_rules.NameRules(options.quantize, tensors, "quantize")
        # Some containers make the list of parts at every access.
        self.old = container.parts
        self.parts: list[ConvertedPart] = []
        self.entries: list[ConvertedTensor] = []
        self.quantized = False
        self._held = Held()
        self._made: dict[tuple[int, Change], int] = {}
        """The index of the first new part, for each first old part and change."""

    def add(self, item: TreeItem, name: str) -> Node:
        """Adds the parts of a leaf, and returns its new node."""
        if item.at is None:
            return item.node
        # This also checks that the node and the parts fit each other.
        spec = self.container.spec(item.name)
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
        key, first = (item.at, change), len(self.parts)
        made = convert(leaf, self.target, change)
        self.quantized = self.quantized or "quantized" in str(made.node)
        if self.ties and item.same and key in self._made:
            self.entries.append(
                ConvertedTensor(name, item.name, spec.kind, made.dtype, made.was, spec.shape, 0)
            )
            return {"same": self._made[key]}
        self._made[key] = first
        self.parts += made.parts
        size = sum(spec.nbytes if part.dtype == "strings" else part.nbytes for part in made.parts)
        self.entries.append(
            ConvertedTensor(name, item.name, spec.kind, made.dtype, made.was, spec.shape, size)
        )
        return made.node


def _rebuilt(node: Node, leaves: Iterator[Node]) -> Node:
    """The same tree with new leaves."""
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


def _flat(tree: Node, nodes: dict[str, Node], names: dict[str, str]) -> Node:
    """A dict of leaves by their names, or a Bundle if it was one."""
    if not isinstance(tree, dict) or "bundle" not in tree:
        return {"dict": nodes}
    metadata = {
        names[name]: texts
        for name, texts in tree.get("tensor_metadata", {}).items()
        if name in names
    }
    rest = {key: texts for key, texts in tree.items() if key == "metadata"}
    return {"bundle": nodes} | rest | ({"tensor_metadata": metadata} if metadata else {})
