"""A model in many files: as the hubs keep it, where `model.safetensors.index.json` says which
tensor is in which of its siblings, or a TensorFlow checkpoint, an index and data files under one
prefix."""

from __future__ import annotations

import os
from typing import Any

from .. import storage
from .._errors import DecodeError, TensorwireError
from .._limits import DEFAULT, Limits
from ..storage import files
from ..wire import json as jsontext
from .checkpoint import state
from .container import Container
from .opening import Opened, codec
from .recognition import of_name
from .safetensors import Safetensors
from .saved_model.variables import FORMAT as SAVED_MODEL
from .saved_model.variables import is_saved_model, open_saved_model

CHECKPOINT = "checkpoint"
SUFFIX = ".safetensors.index.json"


def is_index(path: str) -> bool:
    return path.endswith(SUFFIX)


def prefix_of(path: str, format: str | tuple[str, ...] | None) -> str | None:
    """The prefix of the checkpoint that a path means, None if it is a file of something else."""
    if storage.is_url(path):
        return None
    if format is None and of_name(path)[0] not in (None, CHECKPOINT):
        return None
    named = format == CHECKPOINT
    return state.find(path, named) if named or format is None or CHECKPOINT in format else None


def open_many(
    path: str,
    format: str | tuple[str, ...] | None,
    mmap: bool,
    limits: Limits | None,
    options: dict[str, Any],
) -> tuple[files.Source, Opened] | None:
    """What a path means if that is many files; None if it is one."""
    if is_index(path):
        source, container = open_shards(path, mmap, limits)
        return source, Opened(container, "safetensors", None, container.checksums, True)
    if storage.is_url(path):
        return None
    if is_saved_model(path, format):
        source, container = open_saved_model(path, mmap, limits)
        return source, Opened(container, SAVED_MODEL, None, container.checksums, True)
    prefix = prefix_of(path, format)
    if prefix is None:
        return None
    checkpoint: Any = codec(CHECKPOINT, options, limits)
    source, container = checkpoint.open_files(prefix, mmap)
    return source, Opened(container, CHECKPOINT, None, container.checksums, True)


class ShardedSource:
    """The shards of one index; each is read through its own container, so this only closes them."""

    def __init__(self, path: str, sources: list[files.Source]) -> None:
        self.path: str | None = path
        self._sources = sources
        self.size = sum(source.size for source in sources)

    def read_at(self, offset: int, count: int) -> memoryview:
        raise DecodeError("a sharded model is not one run of bytes", path=self.path, offset=offset)

    def close(self) -> None:
        for source in self._sources:
            source.close()


def read_index(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """(tensor -> file name, metadata). File names stay in the index's own folder."""
    found = jsontext.parse(storage.read_bytes(path, DEFAULT.safetensors_header), "safetensors")
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise DecodeError(
            "an index has a weight_map of tensor names to file names",
            format="safetensors",
            path=path,
            offset=0,
        )
    for name in set(places.values()):
        if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name:
            raise DecodeError(
                f"the index names {name!r:.80}, which is no plain file name",
                format="safetensors",
                path=path,
                offset=0,
            )
    metadata = found.get("metadata", {})
    texts = metadata if isinstance(metadata, dict) else {}
    return places, {
        str(key): text if isinstance(text, str) else jsontext.write(text).decode()
        for key, text in texts.items()
    }


def open_shards(path: str, mmap: bool, limits: Limits | None) -> tuple[files.Source, Container]:
    """All shards as one container, in the order of the index."""
    while True:
        index = read_index(path)
        try:
            return _open_all(path, *index, mmap, limits)
        except FileNotFoundError:
            # else the model was replaced just now, and the shards of the old one are gone
            if read_index(path) == index:
                raise


def _open_all(
    path: str,
    places: dict[str, str],
    metadata: dict[str, str],
    mmap: bool,
    limits: Limits | None,
) -> tuple[files.Source, Container]:
    sources: list[files.Source] = []
    containers: dict[str, Container] = {}
    try:
        files_of_index = list(dict.fromkeys(places.values()))
        for name in files_of_index:
            sources.append(storage.source_of(os.path.join(os.path.dirname(path), name), mmap))
        budget = (limits or DEFAULT).call(sum(source.size for source in sources))
        for name, source in zip(files_of_index, sources, strict=True):
            try:
                containers[name] = Safetensors(limits=budget).open(source)
            except TensorwireError as error:
                raise error.add(path=source.path) from None
        parts: list[Any] = []
        for tensor, name in places.items():
            if tensor not in containers[name]:
                raise DecodeError(
                    f"the index says that {name} has it, and it has not",
                    format="safetensors",
                    path=path,
                    tensor=tensor,
                    offset=0,
                )
            parts.append(containers[name].part(tensor))
        return ShardedSource(path, sources), Container(
            {"dict": {name: {} for name in places}}, parts, metadata, budget
        )
    except BaseException:
        for source in sources:
            source.close()
        raise
