"""The JSON writer: a spec and its parts as a document, in forms with "$" keys or as plain JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..._errors import EncodeError
from ...core import dtypes
from ...core.tensors import Array, Strings
from ...lowering import Node
from ...lowering.names import DENSE, members
from ...wire.json import NANS, Numbers, Text
from .tokens import FORMAT

FLOATS = {"7ff8000000000000": "nan", "7ff0000000000000": "inf", "fff0000000000000": "-inf"}
"""Python floats that are not JSON numbers, by their bits. Any other NaN is written as its bits."""


def pointer(path: str, step: str | int) -> str:
    """Appends a step to a JSON Pointer.

    >>> pointer("/layers/2", "w/b")
    '/layers/2/w~1b'
    """
    return f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}"


class Wrapped:
    """Writes values that JSON lacks as objects whose first key begins with "$".

    A key of the user that begins with "$" gets a second one.
    """

    def __init__(self, parts: Sequence[Array | Strings]) -> None:
        self.parts, self.next = parts, 0
        self.paths: dict[int, str] = {}
        """The JSON Pointer of each tensor, by the index of its first part, for tied tensors."""

    def take(self) -> Any:
        self.next += 1
        return self.parts[self.next - 1]

    def node(self, node: Node, path: str) -> Any:
        if not isinstance(node, dict):
            return node
        kind = next(iter(node), "tensor")
        if kind not in _KINDS:
            raise EncodeError(f"JSON cannot store a {kind} value", format=FORMAT)
        return getattr(self, "tensor" if kind == "text" else kind)(node, path)

    def list(self, node: Node, path: str) -> Any:
        items = node["list"]
        return [
            self.node(item, pointer(path, i))
            for i, item in enumerate([DENSE] * items if isinstance(items, int) else items)
        ]

    def tuple(self, node: Node, path: str) -> Any:
        return {"$tuple": self.list({"list": node["tuple"]}, f"{path}/$tuple")}

    def dict(self, node: Node, path: str) -> Any:
        if isinstance(node["dict"], list):
            pairs = enumerate(node["dict"])
            return {"$dict": [[key, self.node(x, f"{path}/$dict/{i}/1")] for i, (key, x) in pairs]}
        escaped = {f"${key}" if key[:1] == "$" else key: item for key, item in node["dict"].items()}
        return {key: self.node(item, pointer(path, key)) for key, item in escaped.items()}

    def bundle(self, node: Node, path: str) -> Any:
        texts = {key: node[key] for key in ("metadata", "tensor_metadata") if key in node}
        return {"$bundle": self.dict({"dict": node["bundle"]}, f"{path}/$bundle"), **texts}

    def float(self, node: Node, path: str) -> Any:
        return {"$float": FLOATS.get(node["float"], node["float"])}

    def bytes(self, node: Node, path: str) -> Any:
        return {"$bytes": node["bytes"]}

    def same(self, node: Node, path: str) -> Any:
        return {"$same": self.paths[node["same"]]}

    def tensor(self, node: Node, path: str) -> Any:
        self.paths.setdefault(self.next, path)
        part = self.take()
        if isinstance(part, Strings):
            return {
                "$tensor": "text" if part.text else "bytes",
                "shape": list(part.shape),
                "data": self.strings(part) if part.size else [],
            }
        data = numbers(part)
        document = {
            "$tensor": dtypes.of(part.dtype).name,
            "shape": list(part.shape),
            "data": data if part.size else [],
        }
        nans = _odd_nans(data.array)
        return document if nans is None else document | {"nan": nans}

    def strings(self, part: Strings) -> Any:
        return (
            part.tolist()
            if part.text
            else _each(part.tolist(), lambda item: base64.b64encode(item).decode())
        )

    def quantized(self, node: Node, path: str) -> Any:
        header = {key: node[key] for key in ("scheme", "dtype", "axis") if key in node}
        parts = ("codes", "scale", "zero_point") if "axis" in node else ("codes",)
        return {"$quantized": header | {key: self.tensor(DENSE, path) for key in parts}}

    def sparse(self, node: Node, path: str) -> Any:
        indices = self.take()
        values = self.node(node["sparse"], f"{path}/$sparse/values")
        return {
            "$sparse": {
                "indices": numbers(indices) if indices.size else [],
                "values": values,
                "dense_shape": numbers(self.take()),
            }
        }

    def ragged(self, node: Node, path: str) -> Any:
        values = self.node(node["ragged"], f"{path}/$ragged/values")
        splits = [self.take() for _ in range(node["splits"])]
        document = {
            "values": values,
            "splits_dtype": splits[0].dtype.name,
            "row_splits": [numbers(part) for part in splits],
        }
        return {"$ragged": document | ({"uniform": node["uniform"]} if "uniform" in node else {})}


_KINDS = {
    "tensor",
    "text",
    "list",
    "tuple",
    "dict",
    "bundle",
    "float",
    "bytes",
    "same",
    "quantized",
    "sparse",
    "ragged",
}
"""The first keys of the nodes of a spec. Each has a method; a node without keys is a tensor."""


class PlainForm(Wrapped):
    """Writes plain lists, numbers, strings and objects without dtypes. Bytes are {"b64": ...}, as
    in TensorFlow Serving.
    """

    def __init__(self, parts: Sequence[Array | Strings], bare: bool, limit: int) -> None:
        super().__init__(parts)
        self.bare, self.limit = bare, limit

    def tuple(self, node: Node, path: str) -> Any:
        return self.list({"list": node["tuple"]}, path)

    def dict(self, node: Node, path: str) -> Any:
        result: Any = {}
        for key, item in members(node):
            if str(key) in result:
                why = f"the keys {key!r} and '{key}' are the same in plain JSON"
                raise EncodeError(why, format=FORMAT)
            result[str(key)] = self.node(item, pointer(path, key))
        return result

    def bundle(self, node: Node, path: str) -> Any:
        if "metadata" in node or "tensor_metadata" in node:
            raise EncodeError(
                "plain JSON cannot store metadata",
                format=FORMAT,
                hint="drop_metadata=True leaves them out",
            )
        return self.dict({"dict": node["bundle"]}, path)

    def float(self, node: Node, path: str) -> Any:
        word = {"inf": "Infinity", "-inf": "-Infinity"}.get(FLOATS.get(node["float"], ""), "NaN")
        return Text(word) if self.bare else word

    def bytes(self, node: Node, path: str) -> Any:
        return {"b64": node["bytes"]}

    def same(self, node: Node, path: str) -> Any:
        return self.dense(self.parts[node["same"]])

    def tensor(self, node: Node, path: str) -> Any:
        part = self.take()
        return self.strings(part) if isinstance(part, Strings) else self.dense(part)

    def dense(self, part: Array) -> Any:
        if not part.size and math.prod(dim or 1 for dim in part.shape) * 3 > self.limit:
            raise EncodeError(
                f"the empty lists of shape {part.shape} would take more than {self.limit} bytes",
                format=FORMAT,
            )
        return numbers(part)

    def strings(self, part: Strings) -> Any:
        return part.tolist() if part.text else _each(part.tolist(), _b64)

    def quantized(self, node: Node, path: str) -> Any:
        raise EncodeError("plain JSON cannot store quantized tensors", format=FORMAT)

    def sparse(self, node: Node, path: str) -> Any:
        indices = self.take()
        return {
            "indices": numbers(indices),
            "values": self.node(node["sparse"], path),
            "dense_shape": numbers(self.take()),
        }

    def ragged(self, node: Node, path: str) -> Any:
        if "quantized" in node["ragged"]:
            self.quantized(node, path)
        values, splits = self.take(), [self.take().astype(np.int64) for _ in range(node["splits"])]
        if not isinstance(values, Strings):
            inner = numbers(values)
            return inner._replace(levels=(len(splits[0]) - 1, *splits, *inner.levels[1:]))
        rows = self.strings(values)
        for part in reversed(splits):
            bounds = part.tolist()
            rows = [rows[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
        return rows


def numbers(array: Array) -> Numbers:
    """Returns an array as nested lists of numbers. Complex numbers are pairs."""
    if array.dtype.kind == "c":
        array = array.reshape(*array.shape, 1).view(np.dtype(f"f{array.dtype.itemsize // 2}"))
    return Numbers(array, array.shape)


def _b64(item: bytes) -> Any:
    return {"b64": base64.b64encode(item).decode()}


def _each(items: Any, make: Callable[[Any], Any]) -> Any:
    return [_each(item, make) for item in items] if isinstance(items, list) else make(items)


def _odd_nans(array: Array) -> Any:
    """Returns positions and bits of the NaNs whose bits differ from the default NaN, or None."""
    usual = NANS.get(dtypes.of(array.dtype).name)
    if not usual:
        return None
    flat = array.reshape(-1)
    bits = flat.view(f"u{array.dtype.itemsize}")
    nans = np.isnan(flat)
    if not nans.any():
        return None
    positions = np.flatnonzero(nans & (bits != usual))
    return (
        {
            "at": Numbers(positions, positions.shape),
            "bits": Numbers(bits[positions], positions.shape),
        }
        if len(positions)
        else None
    )
