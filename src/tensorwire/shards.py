"""A model in many files, as the hubs keep it: `model.safetensors.index.json` says which tensor is in which of its siblings."""

from __future__ import annotations

import os
from typing import Any

from . import files
from ._errors import DecodeError, TensorwireError
from ._limits import DEFAULT, Limits
from .codecs.container import Container
from .codecs.safetensors import Safetensors
from .wire import jsontext

SUFFIX = ".safetensors.index.json"


def is_index(path: str) -> bool:
    return path.endswith(SUFFIX)


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
    with open(path, "rb") as file:
        found = jsontext.parse(file.read(DEFAULT.safetensors_header), "safetensors")
    places = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise DecodeError("an index has a weight_map of tensor names to file names", format="safetensors", path=path, offset=0)
    for name in set(places.values()):
        if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name:
            raise DecodeError(f"the index names {name!r:.80}, which is no plain file name", format="safetensors", path=path, offset=0)
    metadata = found.get("metadata", {})
    texts = metadata if isinstance(metadata, dict) else {}
    return places, {str(key): text if isinstance(text, str) else jsontext.write(text).decode() for key, text in texts.items()}


def open_shards(path: str, mmap: bool, limits: Limits | None) -> tuple[files.Source, Container]:
    """All shards as one container, in the order of the index."""
    places, metadata = read_index(path)
    sources: list[files.Source] = []
    containers: dict[str, Container] = {}
    try:
        for name in dict.fromkeys(places.values()):
            sources.append(files.source(os.path.join(os.path.dirname(path), name), mmap))
            try:
                containers[name] = Safetensors(limits=limits or DEFAULT).open(sources[-1])
            except TensorwireError as error:
                raise error.add(path=sources[-1].path) from None
        parts: list[Any] = []
        for tensor, name in places.items():
            if tensor not in containers[name]:
                raise DecodeError(
                    f"the index says that {name} has it, and it has not", format="safetensors", path=path, tensor=tensor, offset=0
                )
            parts.append(containers[name].part(tensor))
        return ShardedSource(path, sources), Container({"dict": {name: {} for name in places}}, parts, metadata, limits or DEFAULT)
    except BaseException:
        for source in sources:
            source.close()
        raise
