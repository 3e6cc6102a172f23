"""Writing the files of a plan: streamed tensor by tensor, or from a whole value."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import lowering, storage
from ..._errors import EncodeError, UnknownFormatError, UsageError, choices
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
"""The shard size if the target is an index and `shard_size=` is not given."""
_PACKING: dict[str, Any] = {
    "compression": None,
    "level": None,
    "threads": None,
    "per_tensor": False,
    "shuffle": False,
}


class OutputFormat(NamedTuple):
    """The target format with its options."""

    format: str
    codec: TensorFormat
    options: dict[str, Any]
    """The options of `tw.save`."""
    stream: str | None
    """The compression of the whole file."""
    shard_size: int | None

    @property
    def ties(self) -> bool:
        """Whether the format can store tied tensors once."""
        return self.shard_size is None and self.format != "checkpoint"

    @property
    def target(self) -> Target:
        """The dtypes and kinds that the format holds. Formats that are not streamed get a value,
        and convert it themselves.
        """
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
        writable = ", ".join(row.name for row in TENSOR_FORMATS.values() if row.writes)
        raise EncodeError(
            f"{name} files can be read, but not written",
            format=name,
            path=path,
            hint=f"formats that can be written: {writable}",
        )
    if name not in TENSOR_FORMATS:
        raise UnknownFormatError(f"unknown format {name!r}{choices(name, TENSOR_FORMATS)}")
    sharding = options.shard_size is not None or is_hub_index(path)
    if sharding and name != "safetensors":
        raise EncodeError(
            "only safetensors can be written in shards",
            format=name,
            path=path,
            hint="leave shard_size= out",
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
        raise UsageError(
            "shards cannot be compressed",
            path=path,
            hint="leave out compression= and shuffle=, or shard_size=",
        )
    if name == "checkpoint" and (unknown := save.keys() - {"graph"}):
        raise TypeError(
            f"a conversion to a checkpoint has no option {sorted(unknown)[0]}=; tw.save may have it"
        )
    own |= {key: option for key, option in save.items() if key not in _PACKING}
    shard_size = HUB if options.shard_size is None else options.shard_size
    size = rename_rules.size(shard_size) if sharding else None
    return OutputFormat(name, codec(name, own), save, stream, size)


def _named(path: str) -> str:
    if is_hub_index(path):
        return "safetensors"
    try:
        return format_of(path)
    except UnknownFormatError as error:
        error.hint = "pass the format as to="
        raise


class WriteJob:
    """A plan, and the files that are written for it."""

    def __init__(
        self,
        output: OutputFormat,
        plan: TensorPlan,
        path: str,
        place: str,
        options: ConversionOptions,
    ) -> None:
        """`path` is written; `place` is the final target, a URL if the files are uploaded."""
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
        """The old shards at `place` that the new files replace, if `overwrite` allows it."""
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
        """Writes a checkpoint, one tensor at a time.

        A spec is stored only if the value is more than a dict of dense tensors, which is all that
        TensorFlow itself has.
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
        """Writes a format that needs the whole value."""
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
    """The files of the model at `place`, a path or URL, that are of older generations than those
    with the names of `paths`.
    """
    new = {os.path.basename(path) for path in paths}
    if format == "checkpoint":
        members = data_files(place)
    else:
        members = sharded.shards_of(place) if any(map(is_hub_index, new)) else []
    return [path for path in members if os.path.basename(path) not in new]


def _alone(spec: Node, format: str) -> Node:
    """The spec for npy and raw files, which hold one array: a dict of one dense tensor becomes that
    tensor. npy keeps its name.
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
    """The metadata to copy. The totals of an index are left out: they describe its own files."""
    texts = file.metadata
    if file.path is not None and is_hub_index(file.path):
        return {
            key: text
            for key, text in texts.items()
            if key not in ("total_size", "total_parameters")
        }
    return texts


def files_of(file: lazy.File) -> list[str]:
    """The files that the source is read from."""
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
