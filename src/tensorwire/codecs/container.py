"""Reading one tensor, or some rows of one, out of many: the interface between formats and readers.

1. A format opens its bytes as a `Container`: a spec of `lowering`, and a `Part` for each array that
   is stored. No array has been read then.
2. The keys of a container are the tensors of the value, by their path: "tokens",
   "layers/2/kernel". `spec(name)` says what is known of one before it is read, `read(name, rows)`
   reads it or some of its rows, `value()` reads all.
3. Reading rows reads the bytes of those rows only, where the format allows it: through the offsets
   of strings, the splits of ragged tensors, and the sorted indices of sparse tensors.
4. What a read expands (compressed or repeated data) is drawn on the `budget` of the container. Its
   owner starts the budget again before each call of a user.
5. `close()` ends what reading needs besides the source, which the owner closes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import lowering
from .._errors import DecodeError
from .._limits import DEFAULT, Budget
from ..core import dtypes, validate
from ..core.quantized import Quantized
from ..core.tensors import Array, Bundle, Ragged, Sparse, Strings, trusted
from ..lowering import Node

Rows = tuple[int, int] | None
"""From, to; None for all."""


class Part(Protocol):
    """One stored array, which is read on demand. `BasePart` has the defaults."""

    @property
    def dtype(self) -> str:
        """A name of the dtype table, or "bytes" or "text" for a string tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""

    @property
    def checksum(self) -> bool:
        """Whether reading the array whole notices any change of its data."""

    @property
    def packed(self) -> str | None:
        """How the array is compressed, if it is so by itself."""

    @property
    def unreadable(self) -> bool:
        """Whether the dtype is not known here, so that reading raises UnsupportedTensor."""

    @property
    def offset(self) -> int:
        """Where the data begin in the file, 0 if that is not known."""

    def read(self, rows: Rows = None) -> Any:
        """The array (or Strings), or the rows from, to of its first dimension.

        Raises DecodeError if the bytes are not valid, ChecksumError if an array that is read whole
        does not match its checksum.
        """


class BasePart:
    """What most parts have in common: no checksum, no compression, an unknown offset."""

    __slots__ = ()
    checksum: bool = False
    packed: str | None = None

    @property
    def unreadable(self) -> bool:
        return False

    @property
    def offset(self) -> int:
        return 0


class TensorSpec(NamedTuple):
    """What is known of a tensor before it is read."""

    kind: str
    """dense, strings, sparse or ragged; unreadable for a dtype that is not known here"""
    dtype: str
    shape: tuple[int | None, ...]
    nbytes: int
    """As stored."""
    quantized: str | None = None
    """The scheme, if it is stored in fewer bits; dtype is the original's all the same."""
    packed: str | None = None
    """How it is compressed, if it is so by itself."""


class MemoryPart(BasePart):
    """A part that is in memory already."""

    def __init__(self, array: Array | Strings) -> None:
        self.dtype = "bytes" if isinstance(array, Strings) else dtypes.of(array.dtype).name
        self.shape, self.nbytes, self._array = array.shape, array.nbytes, array

    def read(self, rows: Rows = None) -> Any:
        return self._array if rows is None else self._array[rows[0] : rows[1]]


class UnsupportedTensor(DecodeError):
    """A tensor or column that is not damaged, and of a type that is not known here."""


class UnreadablePart(BasePart):
    """A part of a dtype that is not known here: it is listed, and reading it is an error."""

    unreadable = True

    def __init__(self, dtype: str, shape: tuple[int, ...], nbytes: int, error: DecodeError) -> None:
        self.dtype, self.shape, self.nbytes, self.error = dtype, shape, nbytes, error

    def read(self, rows: Rows = None) -> Any:
        error = self.error
        raise UnsupportedTensor(
            error.message,
            path=error.path,
            format=error.format,
            tensor=error.tensor,
            offset=error.offset,
        )


class PackedPart(BasePart):
    """A part that is compressed or shuffled. Reading rows of it unpacks the blocks that hold them."""

    def __init__(self, part: Part, entry: lowering.PackedEntry, budget: Budget) -> None:
        self.dtype, self.shape, self.nbytes = entry.row.name, entry.shape, part.nbytes
        self.checksum = part.checksum or entry.how.checksum
        self.packed = str(entry.how)
        self._part, self._entry, self._budget = part, entry, budget

    def read(self, rows: Rows = None) -> Any:
        if self._part.dtype != "uint8" or len(self._part.shape) != 1:
            raise DecodeError(
                f"packed data in a part of {self._part.dtype} {list(self._part.shape)}, not bytes"
            )
        if rows is None:
            return self._entry.unpack(self._part.read(), self._budget)
        return self._entry.rows(self._part.shape[0], self._part.read, rows, self._budget)


class _Leaf(NamedTuple):
    node: Node
    first: int
    size: int


class Container:
    """Tensors by name, read when they are asked for. The head of this module is the contract.

    `tree` is the spec, `parts` are its arrays in order, `metadata` is text about all tensors and
    `tensor_metadata` text about each.
    """

    def __init__(
        self,
        spec: Node,
        parts: Sequence[Part],
        metadata: dict[str, str],
        budget: Budget,
        tensor_metadata: dict[str, dict[str, str]] | None = None,
    ) -> None:
        if lowering.is_packed(spec):
            parts = [
                part if entry is None else PackedPart(part, entry, budget)
                for entry, part in zip(lowering.entries(spec, len(parts)), parts, strict=True)
            ]
            spec = lowering.inside(spec)
        self.tree, self.parts, self.metadata, self.budget = spec, parts, metadata, budget
        self._leaves = dict(_leaves(spec, len(parts)))
        self.tensor_metadata: dict[str, dict[str, str]] = tensor_metadata or {}
        if tensor_metadata is None and isinstance(spec, dict) and "bundle" in spec:
            self.tensor_metadata = lowering.tensor_metadata(spec)

    @classmethod
    def of(cls, value: object, budget: Budget | None = None) -> Container:
        """The container of a value in memory."""
        spec, parts = lowering.lower(value, strings=True)
        metadata = value.metadata if isinstance(value, Bundle) else {}
        stored = [MemoryPart(part) for part in parts]
        return cls(
            spec, stored, metadata, budget or DEFAULT.call(sum(part.nbytes for part in stored))
        )

    def close(self) -> None:
        """Ends what reading needs besides the source, which is nothing in most formats."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def keys(self) -> list[str]:
        """The tensors of the value by their path, in order."""
        return list(self._leaves)

    def names(self, readable: bool = True) -> list[str]:
        """The keys, or what the file itself calls its tensors, where that is something else."""
        return self.keys()

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shape of each tensor."""
        return {name: self.spec(name).shape for name in self.keys()}

    @property
    def unlisted(self) -> list[str]:
        """Names that can be read and are not keys: data beside the tensors of the value, which
        `tw.verify` checks too.
        """
        return []

    def __contains__(self, name: object) -> bool:
        return name in self._leaves

    def part(self, name: str) -> Part:
        """The stored array of a dense tensor, for containers that are made of others."""
        return self.parts[self._leaves[name].first]

    def plain_part(self, name: str) -> Part | None:
        """The stored array of a dense tensor that is stored as it is; None for any other."""
        leaf = self._leaves[name]
        return None if leaf.node else self.parts[leaf.first]

    @property
    def checksums(self) -> bool:
        """Whether reading a tensor whole notices any change of its data."""
        return bool(self.parts) and all(part.checksum for part in self.parts)

    def offset(self, name: str) -> int:
        """Where in the file the data of a tensor begins; 0 if that is not known."""
        leaf = self._leaves.get(name)
        return self.parts[leaf.first].offset if leaf is not None and leaf.size else 0

    def _leaf(self, name: str) -> tuple[Any, Sequence[Part]]:
        """A tensor's node and parts, which fit each other."""
        leaf = self._leaves[name]
        parts = self.parts[leaf.first : leaf.first + leaf.size]
        _check(leaf.node, parts)
        return leaf.node, parts

    def spec(self, name: str) -> TensorSpec:
        """Kind, dtype, shape and size of a tensor, before it is read. Raises KeyError."""
        try:
            leaf = self._leaves[name]
            unreadable = _unreadable(leaf.node, self.parts[leaf.first : leaf.first + leaf.size])
            if unreadable is not None:
                return unreadable
            node, parts = self._leaf(name)
            packed = next((part.packed for part in parts if part.packed), None)
            return TensorSpec(
                *_describe(node, parts), sum(part.nbytes for part in parts), _scheme(node), packed
            )
        except DecodeError as error:
            raise error.add(tensor=name) from None

    def read(self, name: str, rows: Rows = None) -> Any:
        """A tensor, or the rows from, to of its first dimension. Raises KeyError."""
        try:
            node, parts = self._leaf(name)
            if rows is not None:
                return _read_rows(node, parts, rows, self.budget)
            return lowering.lift(node, [part.read() for part in parts], self.budget)
        except DecodeError as error:
            raise error.add(tensor=name) from None

    def value(self) -> Any:
        """The whole value. A tensor of an unknown dtype raises an error that names it."""
        return lowering.lift(self.tree, [part.read() for part in self.parts], self.budget)


def _leaves(spec: Node, count: int) -> Iterator[tuple[str, _Leaf]]:
    """Each tensor node with its name and its parts. Names that are taken get ~1, ~2, as parts do."""
    tensors = list(lowering.tensors(spec, count))
    number = 0
    leaves: dict[int, _Leaf] = {}
    for name, (_, node, size) in zip(
        lowering.unique(path for path, _, _ in tensors), tensors, strict=True
    ):
        if "same" in node:
            leaf = leaves.get(node["same"]) if type(node["same"]) is int else None
            if leaf is None:
                raise DecodeError(
                    "a spec says that a tensor is the same as one that is none", tensor=name
                )
        else:
            leaf = leaves[number] = _Leaf(node, number, size)
        yield name, leaf
        number += size


def _unreadable(node: Node, parts: Sequence[Part]) -> TensorSpec | None:
    """The spec of a tensor whose dtype, or that of one of its parts, is unknown; else None."""
    size = sum(part.nbytes for part in parts)
    for part in parts:
        if part.unreadable:
            return TensorSpec("unreadable", part.dtype, part.shape, size)
    dtype = node.get("dtype") if next(iter(node), None) == "dtype" else None
    if isinstance(dtype, str) and dtype not in dtypes.BY_NAME:
        return TensorSpec("unreadable", dtype, parts[0].shape, size)
    return None


def _check(node: Node, parts: Sequence[Part]) -> None:
    """That a tensor's parts have the dtypes and shapes that its node needs, as far as it can be
    told without reading them.

    Whoever made the file may lie. After this, describing a tensor and reading rows of it rest on
    what is known; what the parts hold is checked when they are read.
    """
    kind = next(iter(node), None)
    if kind == "dtype":
        row = dtypes.BY_NAME.get(node["dtype"]) if isinstance(node["dtype"], str) else None
        ok = (
            row is not None
            and not row.reading_only
            and (row.numpy.kind != "c" or parts[0].shape[-1:] == (2,))
        )
    elif kind == "strings":
        shape = node["strings"]
        ok = isinstance(shape, list) and all(type(dim) is int and dim >= 0 for dim in shape)
        ok = ok and _is_vector(parts[0], "uint8") and _is_vector(parts[1], "int64")
        ok = ok and parts[1].shape[0] == validate.elements(shape, DecodeError) + 1
    elif kind == "quantized":
        ok = (
            isinstance(node["quantized"], dict)
            and next(iter(node["quantized"]), "dtype") == "dtype"
            and isinstance(node.get("dtype"), str)
        )
        ok = (
            ok
            and isinstance(node.get("scheme"), str)
            and (node.get("axis") is None or type(node["axis"]) is int)
        )
        ok = ok and len(parts) == (3 if "axis" in node else 1)
        ok = ok and all(
            part.dtype in ("float32", "float64", "int64") and len(part.shape) <= 1
            for part in parts[1:]
        )
        if ok:
            _check(node["quantized"], parts[:1])
    elif kind == "sparse":
        ok = (
            parts[0].dtype == "int64"
            and len(parts[0].shape) == 2
            and _is_vector(parts[-1], "int64")
        )
        _check_values(node["sparse"], parts[1:-1])
    elif kind == "ragged":
        count, uniform = node.get("splits"), node.get("uniform")
        ok = (
            type(count) is int
            and 0 < count < len(parts)
            and (uniform is None or (isinstance(uniform, list) and len(uniform) == count))
        )
        ok = ok and all(
            _is_vector(part, "int32", "int64") and part.shape[0]
            for part in parts[len(parts) - count :]
        )
        ok = ok and all(length is None or type(length) is int for length in uniform or [])
        if ok:
            _check_values(node["ragged"], parts[:-count])
    else:
        ok = kind in (None, "text") and len(parts) == 1
    if kind == "dtype" and isinstance(node["dtype"], str) and node["dtype"] not in dtypes.BY_NAME:
        raise DecodeError(f"a spec names the unknown dtype {node['dtype']!r:.40}")
    if not ok:
        raise DecodeError(f"a spec has a {kind or 'dense'} tensor whose parts do not fit it")


def _check_values(node: Node, parts: Sequence[Part]) -> None:
    if not isinstance(node, dict) or next(iter(node), None) not in (
        None,
        "dtype",
        "text",
        "strings",
        "quantized",
    ):
        raise DecodeError("the values of a sparse or ragged tensor are dense or strings")
    _check(node, parts)
    if not (node.get("strings") if "strings" in node else parts[0].shape):
        raise DecodeError("the values of a sparse or ragged tensor have rows")


def _is_vector(part: Part, *kinds: str) -> bool:
    return part.dtype in kinds and len(part.shape) == 1


def _describe(node: Node, parts: Sequence[Part]) -> tuple[str, str, tuple[int | None, ...]]:
    kind = next(iter(node), None)
    if kind == "dtype":
        row = dtypes.BY_NAME[node["dtype"]]
        return "dense", row.name, parts[0].shape[: -1 if row.numpy.kind == "c" else None]
    if kind == "strings":
        return "strings", "text" if node.get("text") else "bytes", tuple(node["strings"])
    if kind == "quantized":
        return "dense", node["dtype"], _describe(node["quantized"], parts[:1])[2]
    if kind == "sparse":
        _, dtype, _ = _describe(node["sparse"], parts[1:-1])
        return "sparse", dtype, tuple(parts[-1].read().tolist())
    if kind == "ragged":
        splits = node["splits"]
        _, dtype, shape = _describe(node["ragged"], parts[:-splits])
        rows = parts[len(parts) - splits].shape[0] - 1
        return "ragged", dtype, (rows, *node.get("uniform", [None] * splits), *shape[1:])
    if parts[0].dtype in ("bytes", "text"):
        return "strings", "text" if kind == "text" else parts[0].dtype, parts[0].shape
    return "dense", parts[0].dtype, parts[0].shape


def _scheme(node: Node) -> str | None:
    """How a tensor, or the values of one, is quantized."""
    inner = node if "quantized" in node else node.get("sparse", node.get("ragged"))
    return inner.get("scheme") if isinstance(inner, dict) else None


def _read_rows(node: Node, parts: Sequence[Part], rows: tuple[int, int], budget: Budget) -> Any:
    kind = next(iter(node), None)
    start, stop = rows
    if kind == "strings":
        return _string_rows(node, parts, start, stop)
    if kind == "ragged":
        return _ragged_rows(node, parts, start, stop, budget)
    if kind == "sparse":
        return _sparse_rows(node, parts, start, stop, budget)
    if kind == "quantized":  # a scale for each row, or one for all
        return lowering.lift(
            node,
            [
                parts[0].read(rows),
                *(part.read(rows if node["axis"] == 0 else None) for part in parts[1:]),
            ],
            budget,
        )
    return lowering.lift(node, [parts[0].read(rows)], budget)


def _string_rows(node: Node, parts: Sequence[Part], start: int, stop: int) -> Strings:
    shape = node["strings"]
    inner = int(np.prod(shape[1:], dtype=np.int64))
    offsets: Array = parts[1].read((start * inner, stop * inner + 1))
    low, high = int(offsets[0]), int(offsets[-1])
    if not 0 <= low <= high <= parts[0].shape[0]:
        raise DecodeError(
            f"offsets of strings go from {low} to {high}, and there are {parts[0].shape[0]} bytes"
        )
    spec = {**node, "strings": [stop - start, *shape[1:]]}
    strings: Strings = lowering.lift(spec, [parts[0].read((low, high)), offsets - offsets[0]])
    return strings


def _ragged_rows(node: Node, parts: Sequence[Part], start: int, stop: int, budget: Budget) -> Any:
    count = node["splits"]
    values, splits = parts[:-count], []
    low, high = start, stop
    for part in parts[len(parts) - count :]:
        splits_slice = part.read((low, high + 1))
        low, high = int(splits_slice[0]), int(splits_slice[-1])
        if not 0 <= low <= high:
            raise DecodeError(f"row_splits go from {low} to {high}")
        splits.append(splits_slice - splits_slice[0])
    inner = _read_rows(node["ragged"], values, (low, high), budget)
    uniform = node.get("uniform", [None] * count)
    validate.ragged(len(inner), splits, uniform, DecodeError)
    return trusted(Ragged, inner, tuple(splits), tuple(uniform))


def _sparse_rows(node: Node, parts: Sequence[Part], start: int, stop: int, budget: Budget) -> Any:
    """Sorted indices are searched, a few bytes at a time; others have to be read."""
    indices, shape = parts[0], parts[-1].read()
    nnz, rank = indices.shape
    if not rank or not len(shape):
        raise DecodeError("a sparse tensor without dimensions has no rows")
    if node.get("sorted"):
        low, high = (_search(indices, nnz, row) for row in (start, stop))
        chosen: Any = indices.read((low, high))
        if len(chosen) and (chosen[0, 0] < start or chosen[-1, 0] >= stop):
            raise DecodeError("the indices of a sparse tensor are said to be sorted, and are not")
        values = _read_rows(node["sparse"], parts[1:-1], (low, high), budget)
    else:
        everything = indices.read()
        keep = np.flatnonzero((everything[:, 0] >= start) & (everything[:, 0] < stop))
        values = lowering.lift(node["sparse"], [part.read() for part in parts[1:-1]], budget)
        chosen, values = (
            everything[keep],
            values.rows(keep) if isinstance(values, Quantized) else values[keep],
        )
    moved = chosen.copy()
    moved[:, 0] -= start
    dims = shape.copy()
    dims[0] = stop - start
    validate.sparse(moved, values.shape, dims, DecodeError)
    return trusted(Sparse, moved, values, dims)


def _search(indices: Part, nnz: int, row: int) -> int:
    """The first index whose row is not below `row`."""
    low, high = 0, nnz
    while low < high:
        middle = (low + high) // 2
        if int(indices.read((middle, middle + 1))[0, 0]) < row:
            low = middle + 1
        else:
            high = middle
    return low
