"""Lowering: splits a value into its spec and parts."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import frameworks
from .._errors import EncodeError
from ..core import dtypes, validate
from ..core.quantized import Quantized
from ..core.tensors import Array, Bundle, Ragged, Sparse, Strings
from .names import CONTAINERS, DENSE, DEPTH, Node, is_key

Part = Array | Strings


class Lowered(NamedTuple):
    spec: Node
    parts: list[Part]


def holds_everything(row: dtypes.DType) -> bool:
    """The `holds` of containers that support every dtype of the table."""
    return True


class _Lower:
    def __init__(self, holds: Callable[[dtypes.DType], bool], strings: bool) -> None:
        self.holds, self.strings = holds, strings
        self.parts: list[Part] = []
        self.tied: dict[Any, tuple[int, Any]] = {}
        """Identity of a tensor -> its first part number, and the tensor itself. The reference keeps
        the identity from being reused.
        """

    def node(self, value: Any, depth: int) -> Node:
        kind = type(value)
        if kind is np.ndarray and value.dtype.kind not in "OSUT":
            return self.dense(value)
        if value is None or kind is bool or kind is int or kind is str:
            return self.leaf(value)
        if kind is float:
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if depth >= DEPTH:
            raise EncodeError(
                f"values are nested more than {DEPTH} levels deep, or contain themselves"
            )
        if kind is list or kind is tuple:
            nodes = [self.node(item, depth + 1) for item in value]
            return {kind.__name__: len(nodes) if all(node is DENSE for node in nodes) else nodes}
        # Subclasses of dict are accepted, because state_dict() of torch is an OrderedDict.
        if isinstance(value, dict) and frameworks.is_python(value):
            return self.mapping(value, depth)
        if kind is Bundle:
            items = value.items()
            node = {"bundle": {self.key(name): self.member(name, x, depth) for name, x in items}}
            texts = {"metadata": value.metadata, "tensor_metadata": value.tensor_metadata}
            return node | {key: text for key, text in texts.items() if text}
        return self.foreign(value, depth)

    def mapping(self, value: dict[Any, Any], depth: int) -> Node:
        pairs = [[self.dict_key(key), self.named(str(key), x, depth)] for key, x in value.items()]
        if all(type(key) is str for key, _ in pairs):
            return {"dict": dict(pairs)}
        return {"dict": pairs}

    def foreign(self, value: Any, depth: int) -> Node:
        """Lowers an object of a framework; one that was lowered before becomes a "same" node."""
        if isinstance(value, Quantized):
            return self.quantized(value)
        identity = frameworks.identity(value)
        if identity in self.tied and identity is not None:
            return {"same": self.tied[identity][0]}
        tensor = frameworks.leaf(value)
        if isinstance(tensor, (list, dict)):
            return self.node(tensor, depth)
        if identity is not None and isinstance(tensor, np.ndarray):
            self.tied[identity] = len(self.parts), value
        return self.tensor(tensor)

    def member(self, name: str, value: Any, depth: int) -> Node:
        """Lowers a tensor of a Bundle.

        Objects that are several tensors are refused: strided nested tensors of torch, and
        DataFrames.
        """
        node = self.named(name, value, depth)
        if next(iter(node), None) in CONTAINERS:
            raise EncodeError(
                "a Bundle holds single tensors, but this value is several",
                tensor=name,
                hint="use a dict instead of a Bundle",
            )
        return node

    def named(self, name: str, value: Any, depth: int) -> Node:
        try:
            return self.node(value, depth + 1)
        except EncodeError as error:
            error.tensor = name if error.tensor is None else f"{name}/{error.tensor}"
            raise

    def leaf(self, value: Any) -> Node:
        if type(value) is str:
            self.key(value)
        elif type(value) is int and abs(value) >= 1 << 4096:
            raise EncodeError("a Python int has more than 4096 bits")
        return value

    def dict_key(self, key: Any) -> str | int:
        if type(key) is int and not is_key(key):
            raise EncodeError(
                "a dict key of type int must fit in 64 bits", hint="convert the key with str(key)"
            )
        return key if type(key) is int else self.key(key)

    def key(self, key: Any) -> str:
        if type(key) is not str:
            raise EncodeError(
                f"dict keys must be str or int, not {type(key).__name__} ({key!r:.40})",
                hint="convert the keys, as in {str(k): v for k, v in x.items()}",
            )
        try:
            key.encode()
        except UnicodeEncodeError:
            raise EncodeError(
                f"the string {key!r:.60} has a lone surrogate, which cannot be encoded as UTF-8"
            ) from None
        return key

    def tensor(self, value: Any) -> Node:
        if isinstance(value, Quantized):
            return self.quantized(value)
        if isinstance(value, Strings):
            if self.strings:
                self.parts.append(value)
                return {"text": True} if value.text else DENSE
            self.parts += [np.ascontiguousarray(value.data), np.ascontiguousarray(value.offsets)]
            return {"strings": list(value.shape)} | ({"text": True} if value.text else {})
        if isinstance(value, Sparse):
            self.parts.append(np.ascontiguousarray(value.indices))
            node: dict[str, Any] = {"sparse": self.tensor(value.values)}
            if value.indices.shape[1] and validate.rows_sorted(value.indices):
                node["sorted"] = True
            self.parts.append(np.ascontiguousarray(value.dense_shape))
            return node
        if isinstance(value, Ragged):
            node = {"ragged": self.tensor(value.values), "splits": len(value.row_splits)}
            self.parts += [np.ascontiguousarray(splits) for splits in value.row_splits]
            return node | (
                {"uniform": list(value.uniform)}
                if any(length is not None for length in value.uniform)
                else {}
            )
        return self.dense(value)

    def quantized(self, value: Quantized) -> Node:
        if id(value) in self.tied:
            return {"same": self.tied[id(value)][0]}
        # Imported here, so that values without quantized tensors do not load it.
        from ..transforms import quantization

        quantization.check(value)
        self.tied[id(value)] = len(self.parts), value
        node: dict[str, Any] = {
            "quantized": self.dense(value.codes),
            "scheme": value.scheme,
            "dtype": value.original,
        }
        if value.scale is None or value.zero_point is None:
            return node
        self.parts += [frameworks.layout(value.scale), frameworks.layout(value.zero_point)]
        return node | {"axis": value.axis}

    def dense(self, array: Array) -> Node:
        row = dtypes.of(array.dtype)
        array = frameworks.layout(array)
        if self.holds(row):
            self.parts.append(array)
            return DENSE
        self.parts.append(stored(array))
        return {"dtype": row.name}


def stored(array: Array) -> Array:
    """Returns the stored form of an array whose dtype a container lacks.

    That is integers of the same width, or floats with a trailing dimension of 2 for complex ones.
    """
    if array.dtype.kind == "c":
        return (
            np.ascontiguousarray(array)
            .reshape(*array.shape, 1)
            .view(np.dtype(f"f{array.dtype.itemsize // 2}"))
        )
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def lower(
    value: Any, *, holds: Callable[[dtypes.DType], bool] = holds_everything, strings: bool = False
) -> Lowered:
    """Splits a value into (spec, parts).

    `holds` tells which dtypes the container supports, and `strings` whether it stores string
    tensors. Raises EncodeError, with the path as `tensor`, for what cannot be lowered.

    >>> lower({"a": np.float32([1]), "n": 3}).spec
    {'dict': {'a': {}, 'n': 3}}
    """
    work = _Lower(holds, strings)
    return Lowered(work.node(value, 0), work.parts)
