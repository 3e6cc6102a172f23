"""How each format is written: as the tensors come, or of a whole value."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import lowering, storage
from ..._errors import EncodeError, UnknownFormatError, choices
from ...api import lazy, rename_rules
from ...api import values as api
from ...codecs import TENSOR_FORMATS
from ...codecs.checkpoint.bundle import spec_of
from ...codecs.checkpoint.codec import Checkpoint
from ...codecs.checkpoint.data import index_path
from ...codecs.checkpoint.layout import holds as checkpoint_holds
from ...codecs.checkpoint.writer import Writer, data_files, free_shards
from ...codecs.identify import format_of, is_hub_index
from ...codecs.opening import codec
from ...codecs.protocol import StreamedFormat, TensorFormat, without_metadata
from ...codecs.sharded import read_index
from ...codecs.sinks import FileSink
from ...lowering import Node
from ...storage import files
from ...transforms import compression as compressions
from . import sharded
from .parts import Target
from .plan import ConversionOptions, ProgressStep, TensorPlan

if TYPE_CHECKING:
    from ...transforms.compression.streams import Compressor

HUB = "5GB"
"""The size of a shard where only an index is asked for."""
_PACKING: dict[str, Any] = {
    "compression": None,
    "level": None,
    "threads": None,
    "per_tensor": False,
    "shuffle": False,
}


class OutputFormat(NamedTuple):
    """What is to be written."""

    format: str
    codec: TensorFormat
    options: dict[str, Any]
    """Of `tw.save`."""
    stream: str | None
    """The compression of the whole."""
    shard_size: int | None

    @property
    def ties(self) -> bool:
        return self.shard_size is None and self.format != "checkpoint"

    @property
    def target(self) -> Target:
        """What the format holds by itself. Formats that are not streamed are given a value."""
        if isinstance(self.codec, StreamedFormat):
            return Target(self.codec.holds, strings=False)
        return Target(checkpoint_holds) if self.format == "checkpoint" else Target()

    def compressor(self) -> Compressor | None:
        if self.stream is None:
            return None
        return compressions.compressor(
            self.stream, self.options.get("level"), self.options.get("threads")
        )


def output_format(path: str, options: ConversionOptions) -> OutputFormat:
    """Resolves the target format, and checks its options."""
    name = options.to or _named(path)
    if name in TENSOR_FORMATS and not TENSOR_FORMATS[name].writes:
        able = ", ".join(row.name for row in TENSOR_FORMATS.values() if row.writes)
        raise EncodeError(f"{name} is only read; written are {able}", format=name, path=path)
    if name not in TENSOR_FORMATS:
        raise UnknownFormatError(f"no format {name!r}{choices(name, TENSOR_FORMATS)}")
    sharding = options.shard_size is not None or is_hub_index(path)
    if sharding and name != "safetensors":
        raise EncodeError(
            "only safetensors is written in shards; leave shard_size= out", format=name, path=path
        )
    save = dict(options.save)
    if options.compression is not None:
        save["compression"] = options.compression
    if not sharding and name != "checkpoint":
        save = api.as_named(path, name, save)
    own, stream = api.compressing(
        name, **{key: save.get(key, empty) for key, empty in _PACKING.items()}
    )
    if sharding and (own or stream):
        raise EncodeError(
            "the hubs' files are not compressed; leave compression= and shuffle= out, or"
            " shard_size=",
            path=path,
        )
    if name == "checkpoint" and (strange := save.keys() - {"graph"}):
        raise TypeError(
            f"a checkpoint is converted to without {sorted(strange)[0]}=; tw.save may have it"
        )
    own |= {key: option for key, option in save.items() if key not in _PACKING}
    asked = HUB if options.shard_size is None else options.shard_size
    size = rename_rules.size(asked) if sharding else None
    return OutputFormat(name, codec(name, own), save, stream, size)


def _named(path: str) -> str:
    if is_hub_index(path):
        return "safetensors"
    try:
        return format_of(path)
    except UnknownFormatError as error:
        error.hint = "pass to= for its format"
        raise


class WriteJob:
    """A plan, and the files that it becomes."""

    def __init__(
        self,
        output: OutputFormat,
        plan: TensorPlan,
        path: str,
        place: str,
        options: ConversionOptions,
    ) -> None:
        """`path` is written.

        `place` is where the files go in the end, which is a URL if they are uploaded from `path`.
        """
        self._output, self._plan, self._path, self._place = output, plan, path, place
        self._options, self._layout = options, None
        if output.shard_size is not None:
            folder = "".join(place.rpartition("/")[:2])
            taken = storage.names_within(folder, "") if options.overwrite else set()
            self._layout = sharded.layout(path, plan, output.shard_size, taken)
        self.paths = [path] if self._layout is None else self._layout.paths
        if output.format == "checkpoint":
            self.paths = [index_path(path)]

    def stale(self) -> list[str]:
        """The shards at `place` that the new files replace, if they may."""
        if not self._options.overwrite or self._layout is None:
            return []
        return stale(self._place, self._output.format, self.paths)

    def write(self, step: ProgressStep) -> None:
        codec, durable = self._output.codec, self._options.durable
        if isinstance(codec, Checkpoint):
            self._checkpoint(codec.graph, step)
        elif not isinstance(codec, StreamedFormat):
            self._whole(step)
        elif self._layout is not None:
            put = partial(self._stream, codec, step)
            sharded.write(self._layout, put, durable, self.stale)
        else:
            with files.replacing(self._path, durable) as fd:
                self._stream(codec, step, fd, self._plan)

    def _stream(self, codec: StreamedFormat, step: ProgressStep, fd: int, plan: TensorPlan) -> None:
        folder = os.path.dirname(os.path.realpath(self._path))
        with FileSink(fd, folder, self._output.compressor()) as sink:
            codec.write(sink, plan.spec, plan.watched(step).parts, plan.metadata)
            sink.finish()

    def _checkpoint(self, graph: bool, step: ProgressStep) -> None:
        """Tensors by name are what TensorFlow has; the spec says the rest, and is left out where
        there is none.
        """
        plan, spec = self._plan, self._plan.spec
        inner = spec.get("dict", spec.get("bundle")) if isinstance(spec, dict) else None
        plain = isinstance(inner, dict) and all(node == {} for node in inner.values())
        shards, durable = free_shards(self._place), self._options.durable
        with Writer(self._path, graph=graph, durable=durable, shards=shards) as writer:
            for name, part in plan.watched(step).named_parts():
                writer.add(name, part.read())
            if plan.metadata or not plain:
                writer.spec = spec_of(without_metadata(spec), plan.metadata, graph)
        self.paths = writer.paths

    def _whole(self, step: ProgressStep) -> None:
        """For formats that need the whole value."""
        plan, format = self._plan.watched(step), self._output.format
        value = lowering.lift(_alone(plan.spec, format), [part.read() for part in plan.parts])
        texts = plan.metadata if TENSOR_FORMATS[format].metadata or self._options.metadata else {}
        api.untyped_save(
            self._path,
            value,
            format,
            durable=self._options.durable,
            metadata=texts or None,
            **self._output.options,
        )


def stale(place: str, format: str, paths: Iterable[str]) -> list[str]:
    """The files at `place`, a path or URL, that belong to it and are of other generations than
    those called like `paths`.
    """
    new = {os.path.basename(path) for path in paths}
    if format == "checkpoint":
        members = data_files(place)
    else:
        members = sharded.shards_of(place) if any(map(is_hub_index, new)) else []
    return [path for path in members if os.path.basename(path) not in new]


def _alone(spec: Node, format: str) -> Node:
    """npy and raw hold one array: a dict of one dense tensor is that tensor to them, and npy knows
    its name.
    """
    inner = spec.get("dict", spec.get("bundle")) if isinstance(spec, dict) else None
    if format not in ("npy", "raw") or not isinstance(inner, dict) or len(inner) != 1:
        return spec
    (name, node), *_ = inner.items()
    if not isinstance(node, dict) or next(iter(node), "dtype") != "dtype":
        return spec
    if format == "raw":
        return node
    return {"bundle": {name: node}} | {
        key: item for key, item in spec.items() if key not in ("dict", "bundle")
    }


def carried(file: lazy.File) -> dict[str, str]:
    """The metadata that go along: what an index says of its files is not true of others."""
    texts = file.metadata
    if file.path is not None and is_hub_index(file.path):
        return {
            key: text
            for key, text in texts.items()
            if key not in ("total_size", "total_parameters")
        }
    return texts


def files_of(file: lazy.File) -> list[str]:
    """The files that are read from."""
    if file.path is None:
        return []
    variables = (
        os.path.join(file.path, "variables", "variables") if os.path.isdir(file.path) else file.path
    )
    if os.path.exists(index_path(variables)):
        return [index_path(variables)]
    if not os.path.isfile(file.path):
        return []
    if not is_hub_index(file.path):
        return [file.path]
    folder = os.path.dirname(file.path)
    return [
        file.path,
        *(os.path.join(folder, name) for name in set(read_index(file.path)[0].values())),
    ]
