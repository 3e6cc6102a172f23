"""Signatures of a SavedModel, parsed from saved_model.pb without TensorFlow or protobuf.

Only the fields that signatures need are parsed and validated. All others are skipped by their
length.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..._errors import DecodeError, SchemaError
from ..._limits import DEFAULT, Limits
from ...storage import files
from ...wire.protobuf import MessageReader, Span
from .functions import Functions
from .specs import Shape, TensorInfo, tensor_info

FORMAT = "saved_model"
FILE = "saved_model.pb"
INTERNAL = ("__saved_model_init_op", "__saved_model_train_op")
"""Signatures that TensorFlow uses internally."""
_METHOD = "tensorflow/serving/"


@dataclass(frozen=True, slots=True)
class Composite:
    """Inputs that together are one sparse or ragged tensor.

    They are in TensorFlow's order: indices, values, dense_shape, or values and row_splits.
    """

    kind: str
    dtype: str
    shape: Shape
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignatureDef:
    """One signature of a SavedModel."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    method: str
    """"predict", "classify" or "regress"."""
    composites: tuple[Composite, ...] | None = None
    """The sparse and ragged tensors among the inputs, if the saved function's specs are known; else
    None.
    """
    arguments: tuple[tuple[str, ...], ...] | None = None
    """If the specs are unknown: the inputs grouped by the argument that they come from. One
    argument may be a ragged tensor, or a dict of two vectors.
    """


def signatures(
    where: Any, tags: Sequence[str] | None = ("serve",), limits: Limits = DEFAULT
) -> dict[str, SignatureDef]:
    """Returns the signatures of a SavedModel by name.

    `where` is its folder, a folder of numbered versions (the latest is read), its saved_model.pb,
    or the bytes of that file. `tags` selects one of several MetaGraphs; None takes the only one.
    Raises SchemaError if not exactly one MetaGraph has these tags.
    """
    path = locate(where) if isinstance(where, (str, os.PathLike)) else None
    source = files.source(path if path is not None else where)
    try:
        reader = MessageReader(source, FORMAT, limits)
        return _signatures(reader, _chosen(reader, tags))
    except (DecodeError, SchemaError) as error:
        raise error.add(format=FORMAT, offset=0, path=path) from None
    finally:
        source.close()


def locate(path: str | os.PathLike[str]) -> str:
    """Returns the saved_model.pb that a path refers to.

    Raises DecodeError for a SavedModel in an unsupported encoding (text or chunked).
    """
    name = os.fspath(path)
    if not os.path.isdir(name):
        return name
    folder = _folder(name)
    for other, what in (("saved_model.pbtxt", "as text"), ("saved_model.cpb", "in chunks")):
        if os.path.exists(os.path.join(folder, other)) and not os.path.exists(
            os.path.join(folder, FILE)
        ):
            raise DecodeError(
                f"a SavedModel stored {what} ({other}) is not supported",
                format=FORMAT,
                path=folder,
                offset=0,
                hint=f"load and save it with TensorFlow to get {FILE}",
            )
    return os.path.join(folder, FILE)


def _folder(name: str) -> str:
    if any(entry.startswith("saved_model.") for entry in os.listdir(name)):
        return name
    versions = [entry for entry in os.listdir(name) if re.fullmatch(r"\d{1,19}", entry, re.A)]
    return os.path.join(name, max(versions, key=int)) if versions else name


def method(name: str) -> str:
    """Returns a method name without its prefix; an empty one is "predict".

    >>> method("tensorflow/serving/classify"), method("")
    ('classify', 'predict')
    """
    return name.removeprefix(_METHOD) or "predict"


def order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Returns a sort key in natural order, x_2 before x_10. (Protobuf maps have no order.)

    >>> sorted(["x_10", "x_2", "x"], key=order)
    ['x', 'x_2', 'x_10']
    """
    words = re.split(r"(\d{1,18})", name, flags=re.A)
    return tuple(
        (0, int(word), "") if number % 2 else (1, 0, word) for number, word in enumerate(words)
    )


def _chosen(reader: MessageReader, tags: Sequence[str] | None) -> dict[int, Any]:
    """Returns the fields of the MetaGraph with these tags."""
    graphs = reader.take((0, reader.size), many=(2,))[2]
    wanted = None if tags is None else frozenset([tags] if isinstance(tags, str) else tags)
    tag_sets: list[frozenset[str]] = []
    chosen: list[dict[int, Any]] = []
    for span in graphs:
        parts = reader.take(span, once=(1, 2, 7), many=(5,))
        graph_tags = reader.take(parts[1], many=(4,))[4] if parts[1] is not None else []
        tag_sets.append(frozenset(reader.text(tag) for tag in graph_tags))
        if wanted is None or tag_sets[-1] == wanted:
            chosen.append(parts)
    if not graphs:
        raise DecodeError("not a SavedModel: it contains no MetaGraph", format=FORMAT, offset=0)
    if len(chosen) != 1:
        available = ", ".join("{" + ", ".join(sorted(tag_set)) + "}" for tag_set in tag_sets)
        request = (
            "tags=None needs exactly one"
            if wanted is None
            else f"tags={tuple(sorted(wanted))} matches {len(chosen)} of them"
        )
        raise SchemaError(f"the SavedModel has MetaGraphs tagged {available}; {request}")
    return chosen[0]


def _signatures(reader: MessageReader, graph: dict[int, Any]) -> dict[str, SignatureDef]:
    entries = reader.entries(graph[5])
    functions = Functions(reader, graph[2], graph[7])
    wrappers: dict[str, tuple[str, list[str]]] | None = None
    result = {}
    for name in sorted(entries, key=order):
        if name in INTERNAL:
            continue
        fields = reader.take(entries[name], once=(3,), many=(1, 2))
        inputs, outputs = (_tensors(reader, fields[number]) for number in (1, 2))
        composites: tuple[Composite, ...] | None = ()
        arguments = None
        if any(_may_be_splits(info) for info in inputs.values()):
            wrappers = functions.wrappers() if wrappers is None else wrappers
            composites, arguments = _composites(functions, wrappers.get(name), inputs)
        result[name] = SignatureDef(
            inputs, outputs, method(reader.text(fields[3])), composites, arguments
        )
    return result


def _tensors(reader: MessageReader, spans: Sequence[Span]) -> dict[str, TensorInfo]:
    entries = reader.entries(spans)
    return {alias: tensor_info(reader, entries[alias]) for alias in sorted(entries, key=order)}


def _may_be_splits(info: TensorInfo) -> bool:
    """Whether an input can be the row_splits or dense_shape of a composite tensor.

    Every sparse or ragged tensor has such an input. A model without one need not be searched for
    functions.
    """
    return info.dtype in ("int64", "int32") and (info.shape is None or len(info.shape) == 1)


def _composites(
    functions: Functions, wrapper: tuple[str, list[str]] | None, inputs: dict[str, TensorInfo]
) -> tuple[tuple[Composite, ...] | None, tuple[tuple[str, ...], ...] | None]:
    if wrapper is None or sorted(wrapper[1]) != sorted(inputs):
        return None, None
    exact, rows = functions.arguments(*wrapper)
    if exact is not None:
        composites = [
            Composite(argument.kind, argument.dtype, argument.shape, tuple(names))
            for argument, names in exact
            if argument.kind in ("sparse", "ragged")
        ]
        return tuple(composites), None
    return None, None if rows is None else tuple(map(tuple, rows))
