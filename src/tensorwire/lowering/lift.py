"""A spec and its parts to the value. Both may be hostile: whatever does not fit is a DecodeError."""

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

    def part(self) -> Any:
        if self.next == len(self.parts):
            raise DecodeError(
                f"the spec asks for more than the {len(self.parts)} parts that there are"
            )
        self.next += 1
        return self.parts[self.next - 1]

    def dense_part(self) -> Array:
        part = self.part()
        if not isinstance(part, np.ndarray):
            raise DecodeError(f"part {self.next - 1} holds strings where the spec needs numbers")
        return part

    def node(self, node: Node, depth: int) -> Any:
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise DecodeError("a spec has a bare list where a node should be")
            return node
        if not node:
            at = self.next
            self.made[at] = found = self.part()
            return found
        kind = next(iter(node))
        if depth >= self.limits.json_depth and kind in CONTAINERS:
            raise LimitError(f"a value nested more than {self.limits.json_depth} deep")
        read = _KINDS.get(kind)
        if read is None or not node.keys() <= _KEYS[kind]:
            raise DecodeError(f"a spec has a node of the unknown kind {sorted(node)!r:.80}")
        return read(self, node, depth)

    def sequence(self, node: Node, depth: int) -> list[Any] | tuple[Any, ...]:
        kind = next(iter(node))
        items = node[kind]
        if type(items) is int:
            if not 0 <= items <= len(self.parts) - self.next:
                raise DecodeError(
                    f"the spec asks for {items} of {len(self.parts) - self.next} parts"
                )
            self.next += items
            found = self.parts[self.next - items : self.next]
            self.made.update(zip(range(self.next - items, self.next), found, strict=True))
        elif isinstance(items, list):
            found = [self.node(item, depth + 1) for item in items]
        else:
            raise DecodeError(
                f"a {kind} in a spec is a list or a number, not {type(items).__name__}"
            )
        return found if kind == "list" else tuple(found)

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
            raise DecodeError("the shape of strings in a spec is a list of integers")
        data, offsets = self.dense_part(), self.dense_part()
        validate.strings(data, offsets, tuple(shape), self.flag(node), DecodeError)
        return trusted(Strings, data, offsets, tuple(shape), self.flag(node))

    def text(self, node: Node, depth: int) -> Strings:
        part = self.part()
        if not isinstance(part, Strings) or not self.flag(node):
            raise DecodeError("the spec says text where the part holds numbers")
        if not part.text:  # else whoever made it has looked
            validate.utf8(part.data, part.offsets, DecodeError)
        return trusted(Strings, part.data, part.offsets, part.shape, True)

    def flag(self, node: Node) -> bool:
        if type(text := node.get("text", False)) is not bool:
            raise DecodeError("text in a spec is true or false")
        return text

    def dtype(self, node: Node, depth: int) -> Array:
        at = self.next
        row = dtypes.BY_NAME.get(node["dtype"]) if isinstance(node["dtype"], str) else None
        self.made[at] = found = self.stored(node, row, self.dense_part())
        return found

    def same(self, node: Node, depth: int) -> Array | Quantized:
        found = self.made.get(node["same"]) if type(node["same"]) is int else None
        if not isinstance(found, (np.ndarray, Quantized)):
            raise DecodeError(
                f"a spec says that a tensor is the same as part {node['same']!r:.20}, which is none"
            )
        return found

    def stored(self, node: Node, row: dtypes.DType | None, part: Array) -> Array:
        if row is None or row.reading_only:
            raise DecodeError(f"a spec names the unknown dtype {node['dtype']!r:.40}")
        if row.numpy.kind == "c":
            if part.dtype != np.dtype(f"f{row.numpy.itemsize // 2}") or part.shape[-1:] != (2,):
                raise DecodeError(
                    f"{row.name} is stored as floats with a trailing 2, not {part.dtype}"
                    f" {part.shape}"
                )
            return part.view(row.numpy).reshape(part.shape[:-1])
        if part.dtype != np.dtype(f"u{row.numpy.itemsize}"):
            raise DecodeError(
                f"{row.name} is stored as uint{8 * row.numpy.itemsize}, not {part.dtype}"
            )
        if dtypes.noncanonical(row, part.reshape(-1).view(np.uint8)) is not None:
            raise DecodeError(f"a byte that is no value of {row.name}")
        return part.view(row.numpy)

    def quantized(self, node: Node, depth: int) -> Quantized:
        at, inner = self.next, node["quantized"]
        if not isinstance(inner, dict) or next(iter(inner), "dtype") != "dtype":
            raise DecodeError("the codes of a quantized tensor are dense")
        from ..transforms import quantization  # not for those who quantize nothing

        codes = self.node(inner, depth + 1)
        scale, zero = (self.dense_part(), self.dense_part()) if "axis" in node else (None, None)
        axis = node.get("axis")
        if axis is not None and type(axis) is not int:
            raise DecodeError(
                f"the axis of a quantized tensor is an integer or null, not {axis!r:.40}"
            )
        found = Quantized(codes, node.get("scheme"), axis, scale, zero, node.get("dtype"))
        quantization.check(found, DecodeError)
        self.made[at] = found
        return found

    def values(self, node: Node, depth: int) -> Part | Quantized:
        if not isinstance(node, dict) or next(iter(node), "dtype") not in (
            "dtype",
            "text",
            "strings",
            "quantized",
        ):
            raise DecodeError("the values of a sparse or ragged tensor are dense or strings")
        found: Part | Quantized = self.node(node, depth + 1)
        return found

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
            raise DecodeError(f"a ragged tensor with {count!r:.40} row_splits")
        splits = tuple(self.dense_part() for _ in range(count))
        uniform = node.get("uniform", [None] * count)
        if (
            not isinstance(uniform, list)
            or not all(length is None or type(length) is int for length in uniform)
            or not values.shape
        ):
            raise DecodeError(
                "the uniform lengths of a ragged tensor are integers or null, and its values have"
                " rows"
            )
        validate.ragged(len(values), splits, uniform, DecodeError)
        return trusted(Ragged, values, splits, tuple(uniform))

    def float(self, node: Node, depth: int) -> float:
        try:
            (value,) = struct.unpack(">d", bytes.fromhex(node["float"]))
        except (TypeError, ValueError, struct.error):
            raise DecodeError("a float in a spec is 16 hexadecimal digits") from None
        return float(value)

    def bytes(self, node: Node, depth: int) -> bytes:
        try:
            return base64.b64decode(node["bytes"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise DecodeError("bytes in a spec are base64") from None


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
    """The texts about each tensor of a bundle; DecodeError if they are not text by name."""
    found = _dict(node, "tensor_metadata")
    for name, texts in found.items():
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise DecodeError(
                "tensor_metadata in a spec is text by name, for each tensor", tensor=str(name)
            )
    return found


def _dict(node: Node, key: str) -> dict[str, Any]:
    value = node.get(key, {})
    if not isinstance(value, dict):
        raise DecodeError(f"{key} in a spec is an object, not {type(value).__name__}")
    return value


def _place(spec: Node, number: int, count: int) -> str | None:
    """The name of the tensor that takes a part; None if the spec is of one tensor, or is broken."""
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
    """Puts a value together again; DecodeError if spec and parts do not fit each other, all parts
    used.

    >>> lift({"dict": {"a": {}, "n": 3}}, [np.float32([1])])
    {'a': array([1.], dtype=float32), 'n': 3}
    """
    spec, parts = unpacked(spec, parts, limits)
    work = _Lift(parts, limits)
    try:
        value = work.node(spec, 0)
    except DecodeError as error:
        raise error.add(tensor=_place(spec, work.next - 1, len(parts))) from None
    if work.next != len(parts):
        raise DecodeError(f"the spec uses {work.next} of {len(parts)} parts")
    return value
