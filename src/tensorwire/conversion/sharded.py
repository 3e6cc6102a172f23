"""A model in several safetensors files with an index, as the Hugging Face hub has them.

    model-00001-of-00002.safetensors   model-00002-of-00002.safetensors   model.safetensors.index.json

Tensors stay in their order; a new file begins where the next tensor would make it larger than asked for, and a tensor that is larger than
that has a file of its own. A model that fits one file is `model.safetensors`, without an index. All appear at the end, the index last.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import files, lowering, shards
from .._errors import EncodeError
from .parts import Out
from .plan import Plan

SUFFIX = ".safetensors"
_FORMAT = {"format": "pt"}
"""What transformers looks for in each file, and refuses a file without."""


class Shard(NamedTuple):
    path: str
    plan: Plan


class Layout(NamedTuple):
    shards: list[Shard]
    listing: str | None
    """Its path; None for one file without an index."""
    weights: dict[str, str]
    size: int

    @property
    def paths(self) -> list[str]:
        return [shard.path for shard in self.shards] + ([self.listing] if self.listing else [])


def is_index(path: str) -> bool:
    return shards.is_index(path)


def layout(path: str, plan: Plan, most: int) -> Layout:
    """Which tensor goes where. `path` is model.safetensors, or its index, which is then written in any case."""
    stem = path.removesuffix(".index.json").removesuffix(SUFFIX)
    if not path.endswith((SUFFIX, shards.SUFFIX)):
        raise EncodeError("shards are safetensors files: call it NAME.safetensors", path=path)
    names = lowering.names(_plain(plan), len(plan.parts))
    groups = _groups(list(zip(names, plan.parts, strict=True)), most)
    texts = _FORMAT | {key: text for key, text in plan.metadata.items() if key not in ("total_size", "total_parameters")}
    size = sum(part.nbytes for part in plan.parts)
    if len(groups) <= 1 and not is_index(path):
        return Layout([_shard(path, groups[0] if groups else [], texts)], None, {}, size)
    found = [_shard(f"{stem}-{i + 1:05d}-of-{len(groups):05d}{SUFFIX}", group, texts) for i, group in enumerate(groups)]
    weights = {name: os.path.basename(one.path) for one in found for name in one.plan.spec["dict"]}
    return Layout(found, f"{stem}{shards.SUFFIX}", weights, size)


def _plain(plan: Plan) -> Any:
    """The spec, which is of plain dense tensors: the hub's index says no more."""
    spec = plan.spec if isinstance(plan.spec, dict) else {}
    inner = spec.get("dict", spec.get("bundle"))
    if not isinstance(inner, dict):
        raise EncodeError("shards hold tensors by name: a dict of dense tensors, and not another value; leave shard_size= out")
    for name, node in inner.items():
        if node != {}:
            what = next(iter(node)) if isinstance(node, dict) else "a value of Python's"
            what = f"of {node['dtype']}" if what == "dtype" else what
            raise EncodeError(f"shards hold plain dense tensors, and this one is {what}; leave shard_size= out", tensor=name)
    return {"dict": inner}


def _groups(parts: list[tuple[str, Out]], most: int) -> list[list[tuple[str, Out]]]:
    found: list[list[tuple[str, Out]]] = []
    current: list[tuple[str, Out]] = []
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


def _shard(path: str, group: list[tuple[str, Out]], texts: dict[str, str]) -> Shard:
    return Shard(path, Plan({"dict": {name: {} for name, _ in group}}, [part for _, part in group], [], texts))


def write(found: Layout, one: Callable[[int, Plan], None], durable: bool) -> None:
    """Writes all files, or leaves all as they were. `one` writes a file through its descriptor."""
    with contextlib.ExitStack() as stack:
        if found.listing is not None:  # the first to be opened is the last to appear
            index = stack.enter_context(files.replacing(found.listing, durable))
            text = json.dumps({"metadata": {"total_size": found.size}, "weight_map": found.weights}, indent=2, sort_keys=True) + "\n"
            files.write_vector(index, [text.encode()])
        for shard in reversed(found.shards):
            one(stack.enter_context(files.replacing(shard.path, durable)), shard.plan)
