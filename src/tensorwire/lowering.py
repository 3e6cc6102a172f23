"""Any value as a spec (JSON) and dense parts: the one lowering, which every container of named arrays shares.

A spec is a tree of nodes; parts are consumed in the order in which the tree is walked.

    {}                                  the next part as it is
    {"dtype": "int4"}                   the next part, stored as unsigned integers of the same width because the container lacks the type
                                        (complex128: as float64 with a trailing 2)
    {"text": true}                      the next part, a string tensor whose strings are text (containers that hold strings themselves)
    {"strings": [3], "text": true}      two parts, data (uint8) and offsets (int64); the list is the shape
    {"sparse": NODE, "sorted": true}    indices, then the values as NODE says, then dense_shape; sorted: rows never go back
    {"ragged": NODE, "splits": 2, "uniform": [2, null]}   the values as NODE says, then 2 row_splits, outer to inner
    {"list": [NODE, ...]}  {"tuple": [NODE, ...]}  {"dict": {"key": NODE, ...}}
    {"list": 3}            {"tuple": 3}            all of {}: three parts as they are
    {"bundle": {"name": NODE, ...}, "metadata": {...}, "tensor_metadata": {...}}
    {"float": "7ff8000000000001"}       a NaN or infinity by its bits, big-endian      {"bytes": "AAE="}   base64
    null, true, 12, 1.5, "text"         Python's None, bool, int, float and str

Parts have names, which follow from the spec alone: the keys and positions on the way to them, joined by "/" ("tokens/values",
"tokens/row_splits/0", "layers/2/kernel"); a name that is taken already gets "~1", "~2" and so on. A part without a way is "tensor".
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from . import dtypes, frameworks, validate
from ._errors import DecodeError, EncodeError, LimitError
from ._limits import DEFAULT, Limits
from .tensors import Array, Bundle, Ragged, Sparse, Strings, trusted

Part = Array | Strings
Node = Any

_DENSE: dict[str, Any] = {}
DEPTH = DEFAULT.json_depth


class Lowered(NamedTuple):
    spec: Node
    parts: list[Part]


def holds_everything(row: dtypes.DType) -> bool:
    """For containers that can name every dtype of the table."""
    return True


class _Lower:
    def __init__(self, holds: Callable[[dtypes.DType], bool], strings: bool) -> None:
        self.holds, self.strings = holds, strings
        self.parts: list[Part] = []

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
            raise EncodeError(f"values nested more than {DEPTH} deep, or inside themselves")
        if kind is list or kind is tuple:
            nodes = [self.node(item, depth + 1) for item in value]
            return {kind.__name__: len(nodes) if all(node is _DENSE for node in nodes) else nodes}
        if isinstance(value, dict):  # state_dict() of torch is an OrderedDict
            return {"dict": {self.key(key): self.named(key, item, depth) for key, item in value.items()}}
        if kind is Bundle:
            node = {"bundle": {self.key(name): self.named(name, item, depth) for name, item in value.items()}}
            texts = {"metadata": value.metadata, "tensor_metadata": value.tensor_metadata}
            return node | {key: text for key, text in texts.items() if text}
        return self.tensor(frameworks.leaf(value))

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
            raise EncodeError("a Python int of more than 4096 bits")
        return value

    def key(self, key: Any) -> str:
        if type(key) is not str:
            raise EncodeError(f"keys must be str, not {type(key).__name__} ({key!r:.40})")
        try:
            key.encode()
        except UnicodeEncodeError:
            raise EncodeError(f"{key!r:.60} has a lone surrogate, so it is not text that UTF-8 can hold") from None
        return key

    def tensor(self, value: Any) -> Node:
        if isinstance(value, Strings):
            if self.strings:
                self.parts.append(value)
                return {"text": True} if value.text else _DENSE
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
            return node | ({"uniform": list(value.uniform)} if any(length is not None for length in value.uniform) else {})
        return self.dense(value)

    def dense(self, array: Array) -> Node:
        array = frameworks.plain(array)
        row = dtypes.of(array.dtype)
        if self.holds(row):
            self.parts.append(array)
            return _DENSE
        self.parts.append(stored(array))
        return {"dtype": row.name}


def stored(array: Array) -> Array:
    """An array of a dtype that a container lacks, as integers of the same width, or as floats with a trailing 2."""
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array).reshape(*array.shape, 1).view(np.dtype(f"f{array.dtype.itemsize // 2}"))
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def lower(value: Any, *, holds: Callable[[dtypes.DType], bool] = holds_everything, strings: bool = False) -> Lowered:
    """Takes a value apart. `holds` says which dtypes the container has, `strings` whether it has string tensors.

    >>> lower({"a": np.float32([1]), "n": 3}).spec
    {'dict': {'a': {}, 'n': 3}}
    """
    work = _Lower(holds, strings)
    return Lowered(work.node(value, 0), work.parts)


class _Lift:
    def __init__(self, parts: list[Any], limits: Limits) -> None:
        self.parts, self.next, self.limits = parts, 0, limits

    def part(self) -> Any:
        if self.next == len(self.parts):
            raise DecodeError(f"the spec asks for more than the {len(self.parts)} parts that there are")
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
            return self.part()
        kind = next(iter(node))
        if depth >= self.limits.json_depth and kind in ("list", "tuple", "dict", "bundle"):
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
                raise DecodeError(f"the spec asks for {items} of {len(self.parts) - self.next} parts")
            self.next += items
            found = self.parts[self.next - items : self.next]
        elif isinstance(items, list):
            found = [self.node(item, depth + 1) for item in items]
        else:
            raise DecodeError(f"a {kind} in a spec is a list or a number, not {type(items).__name__}")
        return found if kind == "list" else tuple(found)

    def mapping(self, node: Node, depth: int) -> dict[str, Any]:
        return {key: self.node(item, depth + 1) for key, item in _dict(node, next(iter(node))).items()}

    def bundle(self, node: Node, depth: int) -> Bundle:
        tensors = self.mapping(node, depth)
        try:
            return Bundle(
                tensors, _dict(node, "metadata"), {key: _dict({"x": texts}, "x") for key, texts in _dict(node, "tensor_metadata").items()}
            )
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
        validate.utf8(part.data, part.offsets, DecodeError)
        return part.astext()

    def flag(self, node: Node) -> bool:
        if type(text := node.get("text", False)) is not bool:
            raise DecodeError("text in a spec is true or false")
        return text

    def dtype(self, node: Node, depth: int) -> Array:
        row = dtypes.BY_NAME.get(node["dtype"]) if isinstance(node["dtype"], str) else None
        part = self.dense_part()
        if row is None or row.reading_only:
            raise DecodeError(f"a spec names the unknown dtype {node['dtype']!r:.40}")
        if row.numpy.kind == "c":
            if part.dtype != np.dtype(f"f{row.numpy.itemsize // 2}") or part.shape[-1:] != (2,):
                raise DecodeError(f"{row.name} is stored as floats with a trailing 2, not {part.dtype} {part.shape}")
            return part.view(row.numpy).reshape(part.shape[:-1])
        if part.dtype != np.dtype(f"u{row.numpy.itemsize}"):
            raise DecodeError(f"{row.name} is stored as uint{8 * row.numpy.itemsize}, not {part.dtype}")
        if dtypes.noncanonical(row, part.reshape(-1).view(np.uint8)) is not None:
            raise DecodeError(f"a byte that is no value of {row.name}")
        return part.view(row.numpy)

    def values(self, node: Node, depth: int) -> Part:
        if not isinstance(node, dict) or next(iter(node), "dtype") not in ("dtype", "text", "strings"):
            raise DecodeError("the values of a sparse or ragged tensor are dense or strings")
        found: Part = self.node(node, depth + 1)
        return found

    def sparse(self, node: Node, depth: int) -> Sparse:
        indices, values, shape = self.dense_part(), self.values(node["sparse"], depth), self.dense_part()
        validate.sparse(indices, values.shape, shape, DecodeError)
        return trusted(Sparse, indices, values, shape)

    def ragged(self, node: Node, depth: int) -> Ragged:
        count, values = node.get("splits"), self.values(node["ragged"], depth)
        if type(count) is not int or not 0 < count <= len(self.parts) - self.next:
            raise DecodeError(f"a ragged tensor with {count!r:.40} row_splits")
        splits = tuple(self.dense_part() for _ in range(count))
        uniform = node.get("uniform", [None] * count)
        if not isinstance(uniform, list) or not all(length is None or type(length) is int for length in uniform) or not values.shape:
            raise DecodeError("the uniform lengths of a ragged tensor are integers or null, and its values have rows")
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
    "sparse": _Lift.sparse,
    "ragged": _Lift.ragged,
    "float": _Lift.float,
    "bytes": _Lift.bytes,
}
_KEYS = {kind: {kind} for kind in _KINDS} | {
    "bundle": {"bundle", "metadata", "tensor_metadata"},
    "strings": {"strings", "text"},
    "sparse": {"sparse", "sorted"},
    "ragged": {"ragged", "splits", "uniform"},
}


def _dict(node: Node, key: str) -> dict[str, Any]:
    value = node.get(key, {})
    if not isinstance(value, dict):
        raise DecodeError(f"{key} in a spec is an object, not {type(value).__name__}")
    return value


def lift(spec: Node, parts: list[Any], limits: Limits = DEFAULT) -> Any:
    """Puts a value together again; DecodeError if spec and parts do not fit each other, all parts used.

    >>> lift({"dict": {"a": {}, "n": 3}}, [np.float32([1])])
    {'a': array([1.], dtype=float32), 'n': 3}
    """
    work = _Lift(parts, limits)
    value = work.node(spec, 0)
    if work.next != len(parts):
        raise DecodeError(f"the spec uses {work.next} of {len(parts)} parts")
    return value


def names(spec: Node, most: int) -> list[str]:
    """The name of each part, in order; a spec that asks for more than `most` is refused before it costs anything.

    >>> names({"dict": {"x": {"sparse": {}}, "y": {"list": 2}}}, 5)
    ['x/indices', 'x/values', 'x/dense_shape', 'y/0', 'y/1']
    """
    found: dict[str, None] = {}
    again: dict[str, int] = {}
    for base in _names(spec, None, 0):
        if len(found) == most:
            raise DecodeError(f"the spec asks for more than the {most} parts that there are")
        name = base
        while name in found:
            again[base] = again.get(base, 0) + 1
            name = f"{base}~{again[base]}"
        found[name] = None
    return list(found)


def tensors(spec: Node, most: int) -> Iterator[tuple[str, Node, int]]:
    """Each tensor of a value: the way to it, its node, and how many parts it takes.

    >>> list(tensors({"dict": {"x": {"sparse": {}}, "n": 3, "y": {"list": 2}}}, 5))
    [('x', {'sparse': {}}, 3), ('y/0', {}, 1), ('y/1', {}, 1)]
    """
    for way, node in _tensors(spec, None, 0):
        size = len(names(node, most))
        most -= size
        yield "tensor" if way is None else way, node, size


def _tensors(node: Node, way: str | None, depth: int) -> Iterator[tuple[str | None, Node]]:
    if not isinstance(node, dict) or depth > 2 * DEPTH:
        return
    kind = next(iter(node), None)
    inner = node[kind] if kind else None
    start = "" if way is None else f"{way}/"
    if kind in ("dict", "bundle", "list", "tuple"):
        items = inner.items() if isinstance(inner, dict) else enumerate(inner if isinstance(inner, list) else _dense(inner))
        for key, item in items:
            yield from _tensors(item, f"{start}{key}", depth + 1)
    elif kind not in ("float", "bytes"):
        yield way, node


def _dense(count: Any) -> Iterator[Node]:
    return (_DENSE for _ in range(count if type(count) is int else 0))


def _names(node: Node, way: str | None, depth: int) -> Iterator[str]:
    """The name that each part should have. The spec may be hostile: what is not as it should be has no parts; `lift` says what is wrong."""
    if not isinstance(node, dict) or depth > 2 * DEPTH:
        return
    kind = next(iter(node), None)
    inner = node[kind] if kind else None
    start = "" if way is None else f"{way}/"
    if kind in (None, "dtype", "text"):
        yield "tensor" if way is None else way
    elif kind == "strings":
        yield from (f"{start}data", f"{start}offsets")
    elif kind == "sparse":
        yield f"{start}indices"
        yield from _names(inner, f"{start}values", depth + 1)
        yield f"{start}dense_shape"
    elif kind == "ragged":
        yield from _names(inner, f"{start}values", depth + 1)
        splits = node.get("splits")
        yield from (f"{start}row_splits/{i}" for i in range(splits if type(splits) is int else 0))
    elif kind in ("dict", "bundle") and isinstance(inner, dict):
        for key, item in inner.items():
            yield from _names(item, f"{start}{key}", depth + 1)
    elif kind in ("list", "tuple") and type(inner) is int:
        yield from (f"{start}{i}" for i in range(inner))
    elif kind in ("list", "tuple") and isinstance(inner, list):
        for i, item in enumerate(inner):
            yield from _names(item, f"{start}{i}", depth + 1)
