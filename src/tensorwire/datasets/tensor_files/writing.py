"""How each format is written: as the tensors come, or of a whole value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ... import lowering, storage
from ..._errors import EncodeError, UnknownFormatError, choices
from ...api import lazy, rename_rules
from ...api import values as api
from ...codecs import TENSOR_FORMATS
from ...codecs import sharded as shards
from ...codecs.checkpoint.bundle import spec_of
from ...codecs.checkpoint.data import index_path
from ...codecs.checkpoint.layout import holds as checkpoint_holds
from ...codecs.checkpoint.writer import Writer, data_files, free_shards
from ...codecs.identify import format_of
from ...codecs.opening import codec
from ...lowering.lower import holds_everything
from ...storage import files
from ...transforms import compression as compressions
from . import npz, safetensors, sharded
from .parts import Target
from .plan import Step, TensorPlan

_WHOLE = Target(holds_everything, True)
HUB = "5GB"
"""The size of a shard where only an index is asked for."""


class OutputFormat(NamedTuple):
    """What is to be written."""

    format: str
    target: Target
    options: dict[str, Any]
    """Of `tw.save`."""
    own: dict[str, Any]
    """Of the codec."""
    stream: str | None
    """The compression of the whole."""
    shard_size: int | None

    @property
    def ties(self) -> bool:
        return self.shard_size is None and self.format != "checkpoint"


def way(
    path: str,
    to: str | None,
    compression: str | None,
    shard_size: str | int | None,
    options: dict[str, Any],
) -> OutputFormat:
    """The format that is asked for, and whether it can have what else is."""
    name = to or _named(path)
    if name in TENSOR_FORMATS and not TENSOR_FORMATS[name].writes:
        able = ", ".join(row.name for row in TENSOR_FORMATS.values() if row.writes)
        raise EncodeError(f"{name} is only read; written are {able}", format=name, path=path)
    if name not in TENSOR_FORMATS:
        raise UnknownFormatError(f"no format {name!r}{choices(name, TENSOR_FORMATS)}")
    sharding = shard_size is not None or sharded.is_index(path)
    if sharding and name != "safetensors":
        raise EncodeError(
            "only safetensors is written in shards; leave shard_size= out", format=name, path=path
        )
    said = dict(options) if compression is None else {**options, "compression": compression}
    if not sharding and name != "checkpoint":
        said = api.as_named(path, name, said)
    rest = {key: option for key, option in said.items() if key not in _PACKING}
    packing = {key: said.get(key, empty) for key, empty in _PACKING.items()}
    own, stream = api.compressing(name, **packing)
    if sharding and (own or stream):
        raise EncodeError(
            "the hubs' files are not compressed; leave compression= and shuffle= out, or"
            " shard_size=",
            path=path,
        )
    if name == "checkpoint" and (strange := said.keys() - {"graph"}):
        raise TypeError(
            f"a checkpoint is converted to without {sorted(strange)[0]}=; tw.save may have it"
        )
    codec(name, rest | own)  # which knows its options
    size = rename_rules.size(HUB if shard_size is None else shard_size) if sharding else None
    return OutputFormat(name, _target(name), said, rest | own, stream, size)


_PACKING: dict[str, Any] = {
    "compression": None,
    "level": None,
    "threads": None,
    "per_tensor": False,
    "shuffle": False,
}


def _named(path: str) -> str:
    if sharded.is_index(path):
        return "safetensors"
    try:
        return format_of(path)
    except UnknownFormatError as error:
        error.hint = "pass to= for its format"
        raise


def _target(name: str) -> Target:
    if name == "safetensors":
        return safetensors.TARGET
    if name == "npz":
        return npz.TARGET
    return Target(checkpoint_holds, True) if name == "checkpoint" else _WHOLE


class WriteJob:
    """A plan, and the files that it becomes."""

    def __init__(
        self,
        way: OutputFormat,
        plan: TensorPlan,
        path: str,
        place: str,
        told: bool,
        durable: bool,
        overwrite: bool,
    ) -> None:
        """`path` is written.

        `place` is where the files go in the end, which is a URL if they are uploaded from `path`.
        """
        self._way, self._plan, self._path, self._told, self._durable = (
            way,
            plan,
            path,
            told,
            durable,
        )
        self._place, self._overwrite = place, overwrite
        self._layout = None
        if way.shard_size is not None:
            taken = (
                storage.names_within("".join(place.rpartition("/")[:2]), "") if overwrite else set()
            )
            self._layout = sharded.layout(path, plan, way.shard_size, taken)
        self.paths = [path] if self._layout is None else self._layout.paths
        if way.format == "checkpoint":
            self.paths = [index_path(path)]

    def stale(self) -> list[str]:
        """The shards at `place` that the new files replace, if they may."""
        return (
            stale(self._place, self._way.format, self.paths)
            if self._overwrite and self._layout
            else []
        )

    def write(self, step: Step) -> None:
        way, plan = self._way, self._plan
        if self._layout is not None:
            sharded.write(
                self._layout,
                lambda fd, one: self._put(fd, self._safetensors(one, step)),
                self._durable,
                self.stale,
            )
        elif way.format == "safetensors":
            with files.replacing(self._path, self._durable) as fd:
                self._put(fd, self._safetensors(plan, step))
        elif way.format == "npz":
            with files.replacing(self._path, self._durable) as fd:
                npz.write(
                    fd, plan, step, **{key: way.own.get(key) for key in ("compression", "level")}
                )
        elif way.format == "checkpoint":
            self._checkpoint(step)
        else:
            self._whole(step)

    def _safetensors(self, plan: TensorPlan, step: Step) -> Iterator[Any]:
        folder = os.path.dirname(os.path.realpath(self._path))
        return safetensors.chunks(
            plan, step, folder, self._way.own.get("checksum", False), self._way.own.get("packing")
        )

    def _put(self, fd: int, chunks: Iterable[Any]) -> None:
        """Each buffer as it comes, compressed if that was asked for."""
        if self._way.stream is None:
            for chunk in chunks:
                files.write_vector(fd, [chunk])
                del chunk  # or it would stay until the next one is read
            return
        stream = compressions.compressor(
            self._way.stream, self._way.options.get("level"), self._way.options.get("threads")
        )
        for chunk in chunks:
            files.write_vector(fd, [part for part in stream.write(chunk) if len(part)])
            del chunk
        files.write_vector(fd, [part for part in stream.finish() if len(part)])

    def _checkpoint(self, step: Step) -> None:
        """Tensors by name are what TensorFlow has; the spec says the rest, and is left out where
        there is none.
        """
        plan, spec = self._plan, self._plan.spec
        inner = spec.get("dict", spec.get("bundle")) if isinstance(spec, dict) else None
        plain = isinstance(inner, dict) and all(node == {} for node in inner.values())
        graph = self._way.own.get("graph", True)
        shards = free_shards(self._place)
        with Writer(self._path, graph=graph, durable=self._durable, shards=shards) as writer:
            for name, part in _with_names(plan):
                writer.add(name, part.read())
                step(0 if part.dtype == "strings" else part.nbytes, name)
            if plan.metadata or not plain:
                bare = (
                    {key: item for key, item in spec.items() if key != "metadata"}
                    if isinstance(spec, dict)
                    else spec
                )
                writer.spec = spec_of(bare, plan.metadata, graph)
        self.paths = writer.paths

    def _whole(self, step: Step) -> None:
        """For formats that need the whole value."""
        plan, way = self._plan, self._way
        read = []
        for entry, part in _with_names(plan):
            read.append(part.read())
            step(read[-1].nbytes, entry)
        value = lowering.lift(_alone(plan.spec, way.format), read)
        texts = plan.metadata if TENSOR_FORMATS[way.format].metadata or self._told else {}
        api.untyped_save(
            self._path,
            value,
            way.format,
            durable=self._durable,
            metadata=texts or None,
            **way.options,
        )


def stale(place: str, format: str, paths: Iterable[str]) -> list[str]:
    """The files at `place`, a path or URL, that belong to it and are of other generations than
    those called like `paths`.
    """
    new = {os.path.basename(path) for path in paths}
    if format == "checkpoint":
        members = data_files(place)
    else:
        members = sharded.shards_of(place) if any(map(sharded.is_index, new)) else []
    return [path for path in members if os.path.basename(path) not in new]


def _with_names(plan: TensorPlan) -> Iterator[tuple[str, Any]]:
    return zip(lowering.names(plan.spec, len(plan.parts)), plan.parts, strict=True)


def _alone(spec: Any, format: str) -> Any:
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
    if file.path is not None and shards.is_index(file.path):
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
    if not shards.is_index(file.path):
        return [file.path]
    folder = os.path.dirname(file.path)
    return [
        file.path,
        *(os.path.join(folder, name) for name in set(shards.read_index(file.path)[0].values())),
    ]
