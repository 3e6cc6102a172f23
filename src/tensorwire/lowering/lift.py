"""Lifting: builds a value from its spec and parts, either of which may be hostile."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .._errors import DecodeError, EncodeError, LimitError
from .._limits import DEFAULT, Limits
from ..core import dtypes, validate
from ..core.quantized import Quantized
from ..core.tensors import Array, Bundle, Ragged, Sparse, Strings, trusted
from .names import CONTAINERS, Node, members, tensors
from .packed import unpacked

Part = Array | Strings


class _Lift:
    def __init__(self, parts: list[Any], limits: Limits) -> None:
        self.parts, self.next, self.limits = parts, 0, limits
        self.made: dict[int, Array | Quantized] = {}
        """Number of the first part -> the tensor, for nodes that refer to it ("same")."""

    def part(self) -> Any:
        if self.next == len(self.parts):
            raise DecodeError(
                f"invalid spec: it needs more than the {len(self.parts)} stored parts"
            )
        self.next += 1
        return self.parts[self.next - 1]

    def dense_part(self) -> Array:
        part = self.part()
        if not isinstance(part, np.ndarray):
            raise DecodeError(f"part {self.next - 1} holds strings, but the spec expects numbers")
        return part

    def node(self, node: Node, depth: int) -> Any:
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise DecodeError("invalid spec: expected a node, not a list")
            return node
        if not node:
            number = self.next
            self.made[number] = part = self.part()
            return part
        kind = next(iter(node))
        if depth >= self.limits.json_depth and kind in CONTAINERS:
            raise LimitError(f"the value is nested more than {self.limits.json_depth} levels deep")
        read = _KINDS.get(kind)
        if read is None or not node.keys() <= _KEYS[kind]:
            raise DecodeError(f"invalid spec: unknown node with the keys {sorted(node)!r:.80}")
        return read(self, node, depth)

    def sequence(self, node: Node, depth: int) -> list[Any] | tuple[Any, ...]:
        kind = next(iter(node))
        items = node[kind]
        if type(items) is int:
            if not 0 <= items <= len(self.parts) - self.next:
                raise DecodeError(
                    f"invalid spec: it needs {items} parts, but {len(self.parts) - self.next} are"
                    " left"
                )
            self.next += items
            values = self.parts[self.next - items : self.next]
            self.made.update(zip(range(self.next - items, self.next), values, strict=True))
        elif isinstance(items, list):
            values = [self.node(item, depth + 1) for item in items]
        else:
            raise DecodeError(
                f"invalid spec: a {kind} must be a list or a count, not {type(items).__name__}"
            )
        return values if kind == "list" else tuple(values)

    def mapping(self, node: Node, depth: int) -> dict[Any, Any]:
        kind = next(iter(node))
        if kind == "bundle" or not isinstance(node[kind], list):
            _dict(node, kind)
        return {key: self.node(item, depth + 1) for key, item in members(node)}

    def bundle(self, node: Node, depth: int) -> Bundle:
        tensors = self.mapping(node, depth)
        try:
            return Bundle(tensors, _dict(node, "metadata"), tensor_metadata(node))
        except EncodeError as error:
            raise DecodeError(error.message, tensor=error.tensor) from None

    def strings(self, node: Node, depth: int) -> Strings:
        shape = node["strings"]
        if not isinstance(shape, list) or not all(type(dim) is int for dim in shape):
            raise DecodeError("invalid spec: the shape of strings must be a list of integers")
        data, offsets = self.dense_part(), self.dense_part()
        validate.strings(data, offsets, tuple(shape), self.flag(node), DecodeError)
        return trusted(Strings, data, offsets, tuple(shape), self.flag(node))

    def text(self, node: Node, depth: int) -> Strings:
        part = self.part()
        if not isinstance(part, Strings) or not self.flag(node):
            raise DecodeError("the spec expects text, but the part holds numbers")
        # Strings that are marked as text have been validated by the codec.
        if not part.text:
            validate.utf8(part.data, part.offsets, DecodeError)
        return trusted(Strings, part.data, part.offsets, part.shape, True)

    def flag(self, node: Node) -> bool:
        if type(text := node.get("text", False)) is not bool:
            raise DecodeError("invalid spec: text must be true or false")
        return text

    def dtype(self, node: Node, depth: int) -> Array:
        number = self.next
        row = dtypes.BY_NAME.get(node["dtype"]) if isinstance(node["dtype"], str) else None
        self.made[number] = array = self.stored(node, row, self.dense_part())
        return array

    def same(self, node: Node, depth: int) -> Array | Quantized:
        tensor = self.made.get(node["same"]) if type(node["same"]) is int else None
        if not isinstance(tensor, (np.ndarray, Quantized)):
            raise DecodeError(
                f"invalid spec: no earlier tensor begins with part {node['same']!r:.20}"
            )
        return tensor

    def stored(self, node: Node, row: dtypes.DType | None, part: Array) -> Array:
        if row is None or row.reading_only:
            raise DecodeError(f"invalid spec: unknown dtype {node['dtype']!r:.40}")
        if row.numpy.kind == "c":
            if part.dtype != np.dtype(f"f{row.numpy.itemsize // 2}") or part.shape[-1:] != (2,):
                raise DecodeError(
                    f"{row.name} must be stored as floats with a trailing dimension of 2, not"
                    f" {part.dtype} {part.shape}"
                )
            return part.view(row.numpy).reshape(part.shape[:-1])
        if part.dtype != np.dtype(f"u{row.numpy.itemsize}"):
            raise DecodeError(
                f"{row.name} must be stored as uint{8 * row.numpy.itemsize}, not {part.dtype}"
            )
        if dtypes.noncanonical(row, part.reshape(-1).view(np.uint8)) is not None:
            raise DecodeError(f"invalid byte for the dtype {row.name}")
        return part.view(row.numpy)

    def quantized(self, node: Node, depth: int) -> Quantized:
        number, inner = self.next, node["quantized"]
        if not isinstance(inner, dict) or next(iter(inner), "dtype") != "dtype":
            raise DecodeError("invalid spec: the codes of a quantized tensor must be dense")
        # Imported here, so that values without quantized tensors do not load it.
        from ..transforms import quantization

        codes = self.node(inner, depth + 1)
        scale, zero = (self.dense_part(), self.dense_part()) if "axis" in node else (None, None)
        axis = node.get("axis")
        if axis is not None and type(axis) is not int:
            raise DecodeError(
                "invalid spec: the axis of a quantized tensor must be an integer or null, not"
                f" {axis!r:.40}"
            )
        tensor = Quantized(codes, node.get("scheme"), axis, scale, zero, node.get("dtype"))
        quantization.check(tensor, DecodeError)
        self.made[number] = tensor
        return tensor

    def values(self, node: Node, depth: int) -> Part | Quantized:
        if not isinstance(node, dict) or next(iter(node), "dtype") not in (
            "dtype",
            "text",
            "strings",
            "quantized",
        ):
            raise DecodeError(
                "invalid spec: the values of a sparse or ragged tensor must be dense or strings"
            )
        tensor: Part | Quantized = self.node(node, depth + 1)
        return tensor

    def sparse(self, node: Node, depth: int) -> Sparse:
        indices, values, shape = (
            self.dense_part(),
            self.values(node["sparse"], depth),
            self.dense_part(),
        )
        validate.sparse(indices, values.shape, shape, DecodeError)
        return trusted(Sparse, indices, values, shape)

    def ragged(self, node: Node, depth: int) -> Ragged:
        count, values = node.get("splits"), self.values(node["ragged"], depth)
        if type(count) is not int or not 0 < count <= len(self.parts) - self.next:
            raise DecodeError(f"invalid spec: a ragged tensor cannot have {count!r:.40} row_splits")
        splits = tuple(self.dense_part() for _ in range(count))
        uniform = node.get("uniform", [None] * count)
        if (
            not isinstance(uniform, list)
            or not all(length is None or type(length) is int for length in uniform)
            or not values.shape
        ):
            raise DecodeError(
                "invalid spec: a ragged tensor needs integers or null as uniform lengths, and"
                " values with rows"
            )
        validate.ragged(len(values), splits, uniform, DecodeError)
        return trusted(Ragged, values, splits, tuple(uniform))

    def float(self, node: Node, depth: int) -> float:
        try:
            (value,) = struct.unpack(">d", bytes.fromhex(node["float"]))
        except (TypeError, ValueError, struct.error):
            raise DecodeError("invalid spec: a float must have 16 hexadecimal digits") from None
        return float(value)

    def bytes(self, node: Node, depth: int) -> bytes:
        try:
            return base64.b64decode(node["bytes"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise DecodeError("invalid spec: bytes must be base64") from None


_KINDS: dict[str, Callable[[_Lift, Node, int], Any]] = {
    "list": _Lift.sequence,
    "tuple": _Lift.sequence,
    "dict": _Lift.mapping,
    "bundle": _Lift.bundle,
    "strings": _Lift.strings,
    "text": _Lift.text,
    "dtype": _Lift.dtype,
    "quantized": _Lift.quantized,
    "same": _Lift.same,
    "sparse": _Lift.sparse,
    "ragged": _Lift.ragged,
    "float": _Lift.float,
    "bytes": _Lift.bytes,
}
_KEYS = {kind: {kind} for kind in _KINDS} | {
    "bundle": {"bundle", "metadata", "tensor_metadata"},
    "strings": {"strings", "text"},
    "quantized": {"quantized", "scheme", "dtype", "axis"},
    "sparse": {"sparse", "sorted"},
    "ragged": {"ragged", "splits", "uniform"},
}


def tensor_metadata(node: Node) -> dict[str, dict[str, str]]:
    """Returns the metadata of each tensor of a bundle; raises DecodeError if it is not text."""
    texts_by_name = _dict(node, "tensor_metadata")
    for name, texts in texts_by_name.items():
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise DecodeError(
                "invalid spec: tensor_metadata must be a dict of strings for each tensor",
                tensor=str(name),
            )
    return texts_by_name


def _dict(node: Node, key: str) -> dict[str, Any]:
    value = node.get(key, {})
    if not isinstance(value, dict):
        raise DecodeError(f"invalid spec: {key} must be an object, not {type(value).__name__}")
    return value


def _tensor_of(spec: Node, number: int, count: int) -> str | None:
    """Returns the path of the tensor that a part belongs to; None if it has none, or is invalid."""
    kind = next(iter(spec), None) if isinstance(spec, dict) else None
    if kind not in CONTAINERS or number < 0:
        return None
    try:
        for name, _, size in tensors(spec, count):
            if number < size:
                return name
            number -= size
    except DecodeError:
        pass
    return None


def lift(spec: Node, parts: list[Any], limits: Limits = DEFAULT) -> Any:
    """Builds the value of a spec and its parts.

    Raises DecodeError if they do not fit, or if parts are left over.

    >>> lift({"dict": {"a": {}, "n": 3}}, [np.float32([1])])
    {'a': array([1.], dtype=float32), 'n': 3}
    """
    spec, parts = unpacked(spec, parts, limits)
    work = _Lift(parts, limits)
    try:
        value = work.node(spec, 0)
    except DecodeError as error:
        raise error.add(tensor=_tensor_of(spec, work.next - 1, len(parts))) from None
    if work.next != len(parts):
        raise DecodeError(f"invalid spec: it uses {work.next} of the {len(parts)} stored parts")
    return value
