"""A model in several safetensors files with an index, as the Hugging Face hub has them.

    model-00001-of-00002.safetensors   model-00002-of-00002.safetensors
                                       model.safetensors.index.json

Tensors stay in their order; a new file begins where the next tensor would make it larger than asked
for, and a tensor that is larger than that has a file of its own. A model that fits one file is
`model.safetensors`, without an index. All appear at the end, the index last.

A model that replaces another never reuses the names of its files: where those of the hub are taken,
the next free number tells the generations apart (`model-g1-00001-of-00002.safetensors`). Readers
follow the index, so a crash leaves the old model or the new one.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Container
from typing import NamedTuple

from ... import storage
from ..._errors import EncodeError
from ...codecs.identify import HUB_INDEX, is_hub_index
from ...lowering import Node
from ...storage import files
from ...storage.generation import Generation
from .parts import ConvertedPart
from .plan import TensorPlan

SUFFIX = ".safetensors"
_FORMAT = {"format": "pt"}
"""What transformers looks for in each file, and refuses a file without."""


class Shard(NamedTuple):
    path: str
    plan: TensorPlan


class ShardLayout(NamedTuple):
    shards: list[Shard]
    listing: str | None
    """Its path; None for one file without an index."""
    weights: dict[str, str]
    size: int

    @property
    def paths(self) -> list[str]:
        return [shard.path for shard in self.shards] + ([self.listing] if self.listing else [])


def layout(path: str, plan: TensorPlan, most: int, taken: Container[str] = ()) -> ShardLayout:
    """Which tensor goes where. `path` is model.safetensors, or its index, which is then written
    in any case.

    `taken` has the names of files that shards must not replace.
    """
    stem = _stem(path)
    if not path.endswith((SUFFIX, HUB_INDEX)):
        raise EncodeError("shards are safetensors files: call it NAME.safetensors", path=path)
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
    """The files beside `path`, a path or URL, that are shards of this model, of any generation."""
    folder, slash, stem = _stem(path).rpartition("/")
    shard = re.compile(
        re.escape(stem) + r"(-g[0-9]+)?-\d{5,}-of-\d{5,}" + re.escape(SUFFIX), re.ASCII
    )
    names = storage.names_within(folder + slash, "")
    found = []
    for name in sorted(names):
        match = shard.fullmatch(name)
        # a model of its own
        if match and not (match[1] and f"{stem}{match[1]}{HUB_INDEX}" in names):
            found.append(f"{folder}{slash}{name}")
    return found


def _plain(plan: TensorPlan) -> Node:
    """The spec, which is of plain dense tensors: the hub's index says no more."""
    spec = plan.spec if isinstance(plan.spec, dict) else {}
    inner = spec.get("dict", spec.get("bundle"))
    if not isinstance(inner, dict):
        raise EncodeError(
            "shards hold tensors by name: a dict of dense tensors, and not another value; leave"
            " shard_size= out"
        )
    for name, node in inner.items():
        if node != {}:
            what = next(iter(node)) if isinstance(node, dict) else "a value of Python's"
            what = f"of {node['dtype']}" if what == "dtype" else what
            raise EncodeError(
                f"shards hold plain dense tensors, and this one is {what}; leave shard_size= out",
                tensor=name,
            )
    return {"dict": inner}


def _groups(
    parts: list[tuple[str, ConvertedPart]], most: int
) -> list[list[tuple[str, ConvertedPart]]]:
    found: list[list[tuple[str, ConvertedPart]]] = []
    current: list[tuple[str, ConvertedPart]] = []
    size = 0
    for item in parts:
        bytes = item[1].nbytes
        if bytes > most:
            found.append([item])
            continue
        if size + bytes > most:
            found.append(current)
            current, size = [], 0
        current.append(item)
        size += bytes
    return [*found, current] if current else found


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
    """Writes all files, or leaves all as they were. `write_shard` writes a file through its
    descriptor.

    `stale` is asked, after the new index is there, for the files of older generations to remove.
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
