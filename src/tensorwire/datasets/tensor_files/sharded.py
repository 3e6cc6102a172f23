"""Sharded models: several safetensors files with an index, as on the Hugging Face hub.

    model-00001-of-00002.safetensors   model-00002-of-00002.safetensors
                                       model.safetensors.index.json

Tensors stay in their order. A new file begins where the next tensor would make the file larger than
the shard size, and a tensor larger than that has a file of its own. A model that fits into one file
is `model.safetensors`, without an index. All files become visible at the end, the index last.

A model that replaces another never reuses the names of its files: if the usual names are taken, the
next free generation number is added (`model-g1-00001-of-00002.safetensors`). Readers follow the
index, so a crash leaves the old model or the new one.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Container
from typing import NamedTuple

from ... import storage
from ..._errors import EncodeError, UsageError
from ...codecs.identify import HUB_INDEX, is_hub_index
from ...lowering import Node
from ...storage import files
from ...storage.generation import Generation
from .parts import ConvertedPart
from .plan import TensorPlan

SUFFIX = ".safetensors"
_FORMAT = {"format": "pt"}
"""The metadata that transformers requires in each file."""


class Shard(NamedTuple):
    """One file of a sharded model."""

    path: str
    plan: TensorPlan


class ShardLayout(NamedTuple):
    """The files of a sharded model, and what its index says."""

    shards: list[Shard]
    listing: str | None
    """The path of the index; None for one file without an index."""
    weights: dict[str, str]
    """The file of each tensor, by name."""
    size: int
    """The bytes of all tensors."""

    @property
    def paths(self) -> list[str]:
        return [shard.path for shard in self.shards] + ([self.listing] if self.listing else [])


def layout(path: str, plan: TensorPlan, most: int, taken: Container[str] = ()) -> ShardLayout:
    """Assigns the tensors to files.

    `path` is that of model.safetensors, or of its index, which is then written even for one file.
    `taken` has the names of files that shards must not replace.
    """
    stem = _stem(path)
    if not path.endswith((SUFFIX, HUB_INDEX)):
        raise UsageError("the name of a sharded model must be NAME.safetensors", path=path)
    groups = _groups(list(plan._replace(spec=_plain(plan)).named_parts()), most)
    texts = _FORMAT | {
        key: text
        for key, text in plan.metadata.items()
        if key not in ("total_size", "total_parameters")
    }
    size = sum(part.nbytes for part in plan.parts)
    if len(groups) <= 1 and not is_hub_index(path):
        return ShardLayout([_shard(path, groups[0] if groups else [], texts)], None, {}, size)
    endings = [f"-{number + 1:05d}-of-{len(groups):05d}{SUFFIX}" for number in range(len(groups))]
    bases = itertools.chain([stem], (f"{stem}-g{number}" for number in itertools.count(1)))
    base = next(
        base
        for base in bases
        if not any(os.path.basename(base + ending) in taken for ending in endings)
    )
    files = [
        _shard(base + ending, group, texts) for ending, group in zip(endings, groups, strict=True)
    ]
    weights = {
        name: os.path.basename(file.path) for file in files for name in file.plan.spec["dict"]
    }
    return ShardLayout(files, f"{stem}{HUB_INDEX}", weights, size)


def _stem(path: str) -> str:
    return path.removesuffix(".index.json").removesuffix(SUFFIX)


def shards_of(path: str) -> list[str]:
    """The files next to `path`, a path or URL, that are shards of this model, of any generation."""
    folder, slash, stem = _stem(path).rpartition("/")
    shard = re.compile(
        re.escape(stem) + r"(-g[0-9]+)?-\d{5,}-of-\d{5,}" + re.escape(SUFFIX), re.ASCII
    )
    names = storage.names_within(folder + slash, "")
    paths = []
    for name in sorted(names):
        match = shard.fullmatch(name)
        # With an index of its own, "model-g1" is the name of another model, not a generation.
        if match and not (match[1] and f"{stem}{match[1]}{HUB_INDEX}" in names):
            paths.append(f"{folder}{slash}{name}")
    return paths


def _plain(plan: TensorPlan) -> Node:
    """The spec as a dict of dense tensors; raises for other values, which the index cannot
    describe.
    """
    spec = plan.spec if isinstance(plan.spec, dict) else {}
    inner = spec.get("dict", spec.get("bundle"))
    if not isinstance(inner, dict):
        raise EncodeError(
            "only a dict of dense tensors can be written in shards", hint="leave shard_size= out"
        )
    for name, node in inner.items():
        if node != {}:
            kind = next(iter(node)) if isinstance(node, dict) else "a Python value"
            kind = f"of {node['dtype']}" if kind == "dtype" else kind
            raise EncodeError(
                f"only dense tensors can be written in shards, and this one is {kind}",
                tensor=name,
                hint="leave shard_size= out",
            )
    return {"dict": inner}


def _groups(
    parts: list[tuple[str, ConvertedPart]], most: int
) -> list[list[tuple[str, ConvertedPart]]]:
    """The parts of each file."""
    groups: list[list[tuple[str, ConvertedPart]]] = []
    current: list[tuple[str, ConvertedPart]] = []
    size = 0
    for item in parts:
        bytes = item[1].nbytes
        if bytes > most:
            groups.append([item])
            continue
        if size + bytes > most:
            groups.append(current)
            current, size = [], 0
        current.append(item)
        size += bytes
    return [*groups, current] if current else groups


def _shard(path: str, group: list[tuple[str, ConvertedPart]], texts: dict[str, str]) -> Shard:
    return Shard(
        path,
        TensorPlan(
            {"dict": {name: {} for name, _ in group}}, [part for _, part in group], [], texts
        ),
    )


def write(
    layout: ShardLayout,
    write_shard: Callable[[int, TensorPlan], None],
    durable: bool,
    stale: Callable[[], list[str]],
) -> None:
    """Writes all files, or leaves all as they were.

    `write_shard` writes a file through its descriptor. `stale` is called after the new index is
    written, and returns the files of older generations to remove.
    """
    if layout.listing is None:
        (shard,) = layout.shards
        with files.replacing(shard.path, durable) as fd:
            write_shard(fd, shard.plan)
        return
    content = {"metadata": {"total_size": layout.size}, "weight_map": layout.weights}
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    with Generation(layout.listing, durable) as generation:
        for shard in layout.shards:
            write_shard(generation.member(shard.path), shard.plan)
        generation.publish([text.encode()], stale)
