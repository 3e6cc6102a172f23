"""Summary of a SavedModel: what `saved_model_cli show --all` prints, plus variables and assets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..._errors import DecodeError
from ..._limits import DEFAULT, Limits
from ...storage import files
from ...storage.files import Source
from ...wire.protobuf import MessageReader, Span
from .objects import Function, Object, Objects, shown
from .signatures import order
from .specs import TensorInfo, tensor_info
from .variables import FILE, FORMAT, folder_of, open_saved_model

_WHOLE = 64 << 20
"""A saved_model.pb up to this many bytes is read at once. Of a larger one only the needed fields
are read, and its ops are not listed.
"""
_HASHES = {
    1: "saved_model_checksum",
    2: "graph_def_program_hash",
    3: "signature_def_hash",
    4: "saved_object_graph_hash",
    5: "checkpoint_hash",
}


@dataclass(frozen=True)
class SignatureSummary:
    """One signature of a MetaGraph."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    method: str

    def json(self) -> dict[str, Any]:
        return {
            "inputs": _infos(self.inputs),
            "outputs": _infos(self.outputs),
            "method": self.method,
        }


@dataclass(frozen=True)
class MetaGraphSummary:
    """One MetaGraph, identified by its tags."""

    tags: list[str]
    tensorflow_version: str
    tensorflow_git_version: str
    stripped_default_attrs: bool
    producer: int
    """The version of the GraphDef format."""
    min_consumer: int
    signatures: dict[str, SignatureSummary]
    functions: list[Function]
    objects: list[Object]
    ops: list[str] | None
    """The operation types in the graph; None if the graph is too large to be parsed."""
    assets: dict[str, str]
    """File name -> the tensor that is fed with its path."""


@dataclass(frozen=True)
class VariableSummary:
    """One variable, without its value."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    nbytes: int
    called: str = ""
    """The name that it was created with."""
    trainable: bool | None = None


@dataclass(frozen=True)
class SavedModelSummary:
    """What a SavedModel contains. `json()` is for machines, `str()` for people."""

    path: str
    size: int
    """Total size of all files in bytes."""
    graphs: list[MetaGraphSummary]
    variables: list[VariableSummary]
    assets: dict[str, int]
    """The files in the assets folder -> their sizes in bytes."""
    fingerprint: dict[str, Any]
    format: str = FORMAT

    def json(self) -> dict[str, Any]:
        """Returns the summary as plain dicts and lists."""
        return {
            **vars(self),
            "graphs": [_graph_json(graph) for graph in self.graphs],
            "variables": [
                {**vars(variable), "shape": list(variable.shape)} for variable in self.variables
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"{self.path}: SavedModel, {self.size:,} bytes, {len(self.variables)} variables,"
            f" {len(self.assets)} assets"
        ]
        for graph in self.graphs:
            lines += _graph_lines(graph)
        if self.variables:
            lines.append("  variables")
            width = max(len(variable.name) for variable in self.variables)
            for variable in self.variables:
                dims = ", ".join(map(str, variable.shape))
                notes = (
                    "" if variable.trainable is None or variable.trainable else ", not trainable"
                ) + (f"  {variable.called}" if variable.called else "")
                lines.append(
                    f"    {variable.name:{width}}  {variable.dtype} ({dims})"
                    f"  {variable.nbytes:,} bytes{notes}"
                )
        if self.assets:
            lines.append("  assets")
            lines += [f"    {name}  {size:,} bytes" for name, size in self.assets.items()]
        if "uuid" in self.fingerprint:
            lines.append(f"  fingerprint {self.fingerprint['uuid']}")
        return "\n".join(lines)


def describe(where: str | os.PathLike[str], limits: Limits | None = None) -> SavedModelSummary:
    """Returns the summary of a SavedModel. The values of its variables are not read."""
    limits = limits or DEFAULT
    folder = folder_of(where)
    path = os.path.join(folder, FILE)
    source: Source = files.source(path)
    try:
        if source.size <= _WHOLE:
            source, small = files.BytesSource(source.read_at(0, source.size), path), source
            small.close()
        reader = MessageReader(source, FORMAT, limits)
        spans = reader.take((0, reader.size), many=(2,))[2]
        if not spans:
            raise DecodeError("not a SavedModel: it contains no MetaGraph", format=FORMAT, offset=0)
        graphs = [_graph(reader, span, source.size <= _WHOLE) for span in spans]
        return SavedModelSummary(
            folder,
            _size(folder),
            graphs,
            _variables(folder, graphs, limits),
            _assets(folder),
            _fingerprint(folder, limits),
        )
    except DecodeError as error:
        raise error.add(format=FORMAT, path=path, offset=0) from None
    finally:
        source.close()


def _graph(reader: MessageReader, span: Span, small: bool) -> MetaGraphSummary:
    parts = reader.take(span, once=(1, 2, 7), many=(5, 6))
    meta_info = reader.take(parts[1] or (0, 0), once=(5, 6), many=(4,), numbers=(7,))
    entries = reader.entries(parts[5])
    producer, consumer, ops = _body(reader, parts[2], small)
    objects = Objects(reader, parts[7])
    assets = {}
    for asset in parts[6]:
        asset_fields = reader.take(asset, once=(1, 2))
        info = tensor_info(reader, asset_fields[1]) if asset_fields[1] is not None else None
        assets[reader.text(asset_fields[2])] = (
            info.tensors[0] if info is not None and info.tensors else ""
        )
    return MetaGraphSummary(
        [reader.text(tag) for tag in meta_info[4]],
        reader.text(meta_info[5]),
        reader.text(meta_info[6]),
        bool(meta_info[7]),
        producer,
        consumer,
        {name: _signature(reader, entries[name]) for name in sorted(entries, key=order)},
        objects.functions(),
        objects.objects(),
        ops,
        assets,
    )


def _signature(reader: MessageReader, span: Span) -> SignatureSummary:
    fields = reader.take(span, once=(3,), many=(1, 2))
    return SignatureSummary(
        _tensors(reader, fields[1]), _tensors(reader, fields[2]), reader.text(fields[3])
    )


def _tensors(reader: MessageReader, spans: Sequence[Span]) -> dict[str, TensorInfo]:
    entries = reader.entries(spans)
    return {name: tensor_info(reader, entries[name]) for name in sorted(entries, key=order)}


def _body(
    reader: MessageReader, span: Span | None, small: bool
) -> tuple[int, int, list[str] | None]:
    """Returns (producer, min_consumer, ops) of a GraphDef.

    A node is parsed only up to its op, which precedes the large attributes.
    """
    if span is None:
        return 0, 0, []
    if not small:
        versions = reader.take(span, once=(4,))[4]
        version_fields = reader.take(versions or (0, 0), numbers=(1, 2))
        return version_fields[1], version_fields[2], None
    fields = reader.take(span, once=(2, 4), many=(1,))
    ops = {_op(reader, node) for node in fields[1]}
    for function in reader.take(fields[2], many=(1,))[1] if fields[2] is not None else []:
        ops |= {_op(reader, node) for node in reader.take(function, many=(3,))[3]}
    version_fields = reader.take(fields[4] or (0, 0), numbers=(1, 2))
    return version_fields[1], version_fields[2], sorted(ops - {""})


def _op(reader: MessageReader, node: Span) -> str:
    for field in reader.fields(node):
        if field.number == 2 and isinstance(field.value, tuple):
            return reader.text(field.value)
    return ""


def _variables(
    folder: str, graphs: list[MetaGraphSummary], limits: Limits
) -> list[VariableSummary]:
    graph_variables = {
        entry.path: entry.variable
        for graph in graphs
        for entry in graph.objects
        if entry.variable is not None
    }
    source, container = open_saved_model(folder, limits=limits)
    try:
        summaries = []
        for name in list(container.keys()):
            spec, variable = container.spec(name), graph_variables.get(name)
            name_trainable = (
                (variable.name, variable.trainable) if variable is not None else ("", None)
            )
            summaries.append(
                VariableSummary(name, spec.dtype, spec.shape, spec.nbytes, *name_trainable)
            )
        return summaries
    finally:
        source.close()


def _assets(folder: str) -> dict[str, int]:
    base = os.path.join(folder, "assets")
    sizes = {}
    for directory, _, names in os.walk(base):
        for name in names:
            path = os.path.join(directory, name)
            sizes[os.path.relpath(path, base)] = os.lstat(path).st_size
    return dict(sorted(sizes.items()))


def _size(folder: str) -> int:
    return sum(
        os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(folder)
        for name in names
    )


def _fingerprint(folder: str, limits: Limits) -> dict[str, Any]:
    """Reads fingerprint.pb, which TensorFlow 2.11 and later write; empty if there is none."""
    path = os.path.join(folder, "fingerprint.pb")
    if not os.path.exists(path):
        return {}
    source = files.source(path)
    try:
        reader = MessageReader(source, FORMAT, limits)
        fields = reader.take((0, reader.size), once=(7,), numbers=tuple(_HASHES))
        return {name: fields[number] for number, name in _HASHES.items()} | (
            {"uuid": reader.text(fields[7])} if fields[7] is not None else {}
        )
    except DecodeError as error:
        raise error.add(format=FORMAT, path=path, offset=0) from None
    finally:
        source.close()


def _infos(tensors: dict[str, TensorInfo]) -> dict[str, Any]:
    return {
        name: {
            "dtype": info.dtype,
            "shape": None if info.shape is None else list(info.shape),
            "kind": info.kind,
            "tensors": list(info.tensors),
        }
        for name, info in tensors.items()
    }


def _graph_json(graph: MetaGraphSummary) -> dict[str, Any]:
    return {
        **vars(graph),
        "signatures": {name: entry.json() for name, entry in graph.signatures.items()},
        "functions": [function.json() for function in graph.functions],
        "objects": [
            {"path": entry.path, "kind": entry.kind, "about": entry.about}
            for entry in graph.objects
        ],
    }


def _graph_lines(graph: MetaGraphSummary) -> list[str]:
    version = (
        f"TensorFlow {graph.tensorflow_version}"
        if graph.tensorflow_version
        else "an unknown TensorFlow"
    )
    lines = [
        f"  tags {', '.join(graph.tags) or 'none'}: saved by {version}, graph version"
        f" {graph.producer}"
    ]
    for name, signature in graph.signatures.items():
        lines.append(f"    signature {name}: {signature.method or 'no method'}")
        for what, tensors in (("input", signature.inputs), ("output", signature.outputs)):
            for alias, info in tensors.items():
                dims = (
                    "of any shape"
                    if info.shape is None
                    else f"({', '.join('?' if dim is None else str(dim) for dim in info.shape)})"
                )
                kind = "" if info.kind == "dense" else f"{info.kind} "
                lines.append(
                    f"      {what:6} {alias}: {kind}{info.dtype} {dims}  {', '.join(info.tensors)}"
                )
    for function in graph.functions:
        for call in function.calls:
            names = [*function.arguments, *[""] * len(call.arguments)]
            words = [
                f"{name}: {shown(argument)}" if name else shown(argument)
                for name, argument in zip(names, call.arguments, strict=False)
            ]
            words += [f"{name}={shown(argument)}" for name, argument in call.named.items()]
            lines.append(f"    function {function.name}({', '.join(words)}) -> {shown(call.gives)}")
    kinds: dict[str, int] = {}
    for entry in graph.objects:
        kinds[entry.kind] = kinds.get(entry.kind, 0) + 1
    if kinds:
        lines.append(
            f"    objects: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}"
        )
    if graph.ops:
        lines.append(f"    ops: {', '.join(graph.ops)}")
    return lines


__all__ = [
    "MetaGraphSummary",
    "SavedModelSummary",
    "SignatureSummary",
    "VariableSummary",
    "describe",
]
