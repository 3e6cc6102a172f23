"""Signatures of a SavedModel, from saved_model.pb alone: neither TensorFlow nor the protobuf
runtime is needed.

Only what signatures need is looked at. Messages must be valid where they are, and what is not of
interest is skipped by its length.
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
"""Signatures that TensorFlow keeps for itself."""
_METHOD = "tensorflow/serving/"


@dataclass(frozen=True, slots=True)
class Composite:
    """Inputs that are one sparse or ragged tensor, in TensorFlow's order: indices, values,
    dense_shape; or values and the row_splits.
    """

    kind: str
    dtype: str
    shape: Shape
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignatureDef:
    """What a SavedModel says of one signature."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]
    method: str
    """"predict", "classify" or "regress"."""
    composites: tuple[Composite, ...] | None = None
    """The inputs that are parts of one tensor, as the function that was saved says; None if it does
    not.
    """
    arguments: tuple[tuple[str, ...], ...] | None = None
    """If it does not: the inputs by the argument that they came of. An argument may be one ragged
    tensor, or a dict of two vectors.
    """


def signatures(
    where: Any, tags: Sequence[str] | None = ("serve",), limits: Limits = DEFAULT
) -> dict[str, SignatureDef]:
    """The signatures of a SavedModel, by name.

    `where` is its folder, a folder of versions (the latest counts), its saved_model.pb, or the
    bytes of that. A SavedModel may hold several MetaGraphs, told apart by their tags; `tags=None`
    takes the only one.
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
    """The saved_model.pb that a path means; DecodeError if there is a SavedModel of a form that is
    not read here.
    """
    name = os.fspath(path)
    if not os.path.isdir(name):
        return name
    found = _folder(name)
    for other, what in (("saved_model.pbtxt", "as text"), ("saved_model.cpb", "in chunks")):
        if os.path.exists(os.path.join(found, other)) and not os.path.exists(
            os.path.join(found, FILE)
        ):
            raise DecodeError(
                f"a SavedModel {what} ({other}); load and save it with TensorFlow to have {FILE}",
                format=FORMAT,
                path=found,
                offset=0,
            )
    return os.path.join(found, FILE)


def _folder(name: str) -> str:
    if any(entry.startswith("saved_model.") for entry in os.listdir(name)):
        return name
    versions = [entry for entry in os.listdir(name) if re.fullmatch(r"\d{1,19}", entry, re.A)]
    return os.path.join(name, max(versions, key=int)) if versions else name


def method(name: str) -> str:
    """ "predict" of "tensorflow/serving/predict". Whoever says nothing means that.

    >>> method("tensorflow/serving/classify"), method("")
    ('classify', 'predict')
    """
    return name.removeprefix(_METHOD) or "predict"


def order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Names as people count: x_2 before x_10. (A map's own order means nothing.)

    >>> sorted(["x_10", "x_2", "x"], key=order)
    ['x', 'x_2', 'x_10']
    """
    words = re.split(r"(\d{1,18})", name, flags=re.A)
    return tuple(
        (0, int(word), "") if number % 2 else (1, 0, word) for number, word in enumerate(words)
    )


def _chosen(reader: MessageReader, tags: Sequence[str] | None) -> dict[int, Any]:
    """The parts of the MetaGraph with these tags."""
    graphs = reader.take((0, reader.size), many=(2,))[2]
    wanted = None if tags is None else frozenset([tags] if isinstance(tags, str) else tags)
    known: list[frozenset[str]] = []
    chosen: list[dict[int, Any]] = []
    for span in graphs:
        parts = reader.take(span, once=(1, 2, 7), many=(5,))
        about = reader.take(parts[1], many=(4,))[4] if parts[1] is not None else []
        known.append(frozenset(reader.text(tag) for tag in about))
        if wanted is None or known[-1] == wanted:
            chosen.append(parts)
    if not graphs:
        raise DecodeError("no MetaGraph: this is no SavedModel", format=FORMAT, offset=0)
    if len(chosen) != 1:
        there = ", ".join("{" + ", ".join(sorted(one)) + "}" for one in known)
        asked = (
            "no tags were asked for"
            if wanted is None
            else f"tags={tuple(sorted(wanted))} fit {len(chosen)} of them"
        )
        raise SchemaError(f"a SavedModel of MetaGraphs tagged {there}, and {asked}")
    return chosen[0]


def _signatures(reader: MessageReader, graph: dict[int, Any]) -> dict[str, SignatureDef]:
    entries = reader.entries(graph[5])
    functions = Functions(reader, graph[2], graph[7])
    wrappers: dict[str, tuple[str, list[str]]] | None = None
    found = {}
    for name in sorted(entries, key=order):
        if name in INTERNAL:
            continue
        about = reader.take(entries[name], once=(3,), many=(1, 2))
        inputs, outputs = (_tensors(reader, about[number]) for number in (1, 2))
        composites: tuple[Composite, ...] | None = ()
        arguments = None
        if any(_may_be_splits(info) for info in inputs.values()):
            wrappers = functions.wrappers() if wrappers is None else wrappers
            composites, arguments = _composites(functions, wrappers.get(name), inputs)
        found[name] = SignatureDef(
            inputs, outputs, method(reader.text(about[3])), composites, arguments
        )
    return found


def _tensors(reader: MessageReader, spans: Sequence[Span]) -> dict[str, TensorInfo]:
    entries = reader.entries(spans)
    return {alias: tensor_info(reader, entries[alias]) for alias in sorted(entries, key=order)}


def _may_be_splits(info: TensorInfo) -> bool:
    """Every sparse or ragged tensor has a part like this, so the functions of models without one
    need not be looked at.
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
            Composite(one.kind, one.dtype, one.shape, tuple(names))
            for one, names in exact
            if one.kind in ("sparse", "ragged")
        ]
        return tuple(composites), None
    return None, None if rows is None else tuple(map(tuple, rows))


def is_complete(folder: str) -> bool:
    """Return whether a folder is a complete SavedModel: TensorFlow writes saved_model.pb last."""
    return os.path.isfile(os.path.join(folder, FILE))
