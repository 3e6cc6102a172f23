"""Sharded models: tensors in several files that are opened as one container.

A model of the Hugging Face hub has an index, `model.safetensors.index.json`, that maps each tensor
to a file in the same folder. A TensorFlow checkpoint has an index and data files with one prefix.
"""

from __future__ import annotations

import os
from typing import Any

from .. import storage
from .._errors import DecodeError, TensorwireError, UsageError
from .._limits import DEFAULT, Limits
from ..storage import files
from ..wire import json as jsontext
from .container import Container
from .identify import Allowed, Identified
from .opening import Opened, codec, open_container
from .safetensors import Safetensors
from .saved_model.variables import open_saved_model


def open_tensors(
    where: object,
    identified: Identified,
    format: Allowed,
    compression: str | None,
    mmap: bool,
    limits: Limits | None,
    options: dict[str, Any],
) -> tuple[files.Source, Opened]:
    """Opens what `identify` returned: the source, which the caller closes, and the container."""
    if identified.layout == "files" and identified.path is not None:
        if identified.format == "checkpoint":
            checkpoint: Any = codec("checkpoint", options, limits)
            source, container = checkpoint.open_files(identified.path, mmap)
        else:
            source, container = open_shards(identified.path, mmap, limits)
    elif identified.kind == "model" and identified.path is not None:
        source, container = open_saved_model(identified.path, mmap, limits)
    elif identified.source is None:
        # A folder, a pattern or a list: opening it as a file raises the error that explains it.
        storage.source_of(where, mmap).close()
        raise UsageError(f"expected the path of one file, not {where!r:.80}")
    else:
        packed = compression or identified.compression
        return identified.source, open_container(
            identified.source, format, packed, limits, options, identified.head
        )
    assert identified.format is not None
    return source, Opened(container, identified.format, None, container.checksums, True)


class ShardedSource:
    """The sources of all shards, which it closes. Each shard is read through its own container."""

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
    """Returns the map of tensors to file names, and the metadata.

    A file name must not contain a path, so that a shard is always in the folder of the index.
    """
    index = jsontext.parse(storage.read_bytes(path, DEFAULT.safetensors_header), "safetensors")
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(
        isinstance(name, str) for name in weight_map.values()
    ):
        raise DecodeError(
            "invalid index: expected a 'weight_map' of tensor names to file names",
            format="safetensors",
            path=path,
            offset=0,
        )
    for name in set(weight_map.values()):
        if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name:
            raise DecodeError(
                f"invalid shard name {name!r:.80} in the index: expected a plain file name",
                format="safetensors",
                path=path,
                offset=0,
            )
    metadata = index.get("metadata", {})
    texts = metadata if isinstance(metadata, dict) else {}
    return weight_map, {
        str(key): text if isinstance(text, str) else jsontext.write(text).decode()
        for key, text in texts.items()
    }


def open_shards(path: str, mmap: bool, limits: Limits | None) -> tuple[files.Source, Container]:
    """Opens all shards as one container, with the tensors in the order of the index."""
    while True:
        index = read_index(path)
        try:
            return _open_all(path, *index, mmap, limits)
        except FileNotFoundError:
            # The model may have been replaced after the index was read: the new index then names
            # other shards. If the index is unchanged, a shard is really missing.
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
                    f"the index maps this tensor to {name}, which does not contain it",
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
