"""Containers: lazy access to the tensors of a file, and the interface between formats and readers.

1. A format opens its bytes as a `Container`: a spec of `lowering`, and a `Part` for each stored
   array. No array has been read at that point.
2. The keys of a container are the paths of the tensors in the value: "tokens", "layers/2/kernel".
   `spec(name)` describes a tensor before it is read, `read(name, rows)` reads it or some of its
   rows, and `value()` reads the whole value.
3. A read of rows reads only the bytes of those rows where the format allows it. It follows the
   offsets of strings, the splits of ragged tensors and the sorted indices of sparse tensors.
4. Data that grow while they are read (compressed or repeated data) draw on the `budget` of the
   container. The owner restarts the budget before each public call.
5. `close()` releases what reading needs apart from the source. The owner closes the source.
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
"""The first row and the row after the last one. None for all rows."""


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
        """Whether a read of the whole array verifies a checksum of its data."""

    @property
    def packed(self) -> str | None:
        """The compression of this array alone, if it has one."""

    @property
    def unreadable(self) -> bool:
        """Whether the dtype is unsupported, so that reading raises UnsupportedTensor."""

    @property
    def offset(self) -> int:
        """The offset of the data in the file; 0 if it is unknown."""

    def read(self, rows: Rows = None) -> Any:
        """Returns the array (or Strings), or the given rows of its first dimension.

        Raises DecodeError if the bytes are invalid, and ChecksumError if an array that is read
        whole does not match its checksum.
        """


def check_rows(rows: tuple[int, int], shape: tuple[int, ...]) -> None:
    """Raises DecodeError unless the rows are in the range of a shape."""
    if not shape or not 0 <= rows[0] <= rows[1] <= shape[0]:
        raise DecodeError(f"rows {rows[0]} to {rows[1]} are out of range for shape {list(shape)}")


class BasePart:
    """Defaults of a part: no checksum, no compression, an unknown offset."""

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
    """The description of a tensor before it is read."""

    kind: str
    """dense, strings, sparse or ragged; unreadable if the dtype is unsupported."""
    dtype: str
    shape: tuple[int | None, ...]
    nbytes: int
    """Bytes in the file."""
    quantized: str | None = None
    """The quantization scheme, if the tensor is quantized. `dtype` is still the original one."""
    packed: str | None = None
    """The compression of this tensor alone, if it has one."""


class MemoryPart(BasePart):
    """A part whose array is already in memory."""

    def __init__(self, array: Array | Strings) -> None:
        self.dtype = "bytes" if isinstance(array, Strings) else dtypes.of(array.dtype).name
        self.shape, self.nbytes, self._array = array.shape, array.nbytes, array

    def read(self, rows: Rows = None) -> Any:
        return self._array if rows is None else self._array[rows[0] : rows[1]]


class UnsupportedTensor(DecodeError):
    """A tensor or column is not damaged, but its type is unsupported."""


class UnreadablePart(BasePart):
    """A part with an unsupported dtype. It is listed, and reading it raises UnsupportedTensor."""

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
            hint=error.hint,
        )


class PackedPart(BasePart):
    """A part that is compressed or shuffled by itself. Reading rows unpacks only their blocks."""

    def __init__(self, part: Part, entry: lowering.PackedEntry, budget: Budget) -> None:
        self.dtype, self.shape, self.nbytes = entry.row.name, entry.shape, part.nbytes
        self.checksum = part.checksum or entry.how.checksum
        self.packed = str(entry.how)
        self._part, self._entry, self._budget = part, entry, budget

    def read(self, rows: Rows = None) -> Any:
        if self._part.dtype != "uint8" or len(self._part.shape) != 1:
            raise DecodeError(
                "packed data must be stored as a uint8 vector, not as"
                f" {self._part.dtype} {list(self._part.shape)}"
            )
        if rows is None:
            return self._entry.unpack(self._part.read(), self._budget)
        return self._entry.rows(self._part.shape[0], self._part.read, rows, self._budget)


class _Leaf(NamedTuple):
    """A tensor of the value: its node in the spec, and which parts belong to it."""

    node: Node
    first: int
    size: int


class Container:
    """Tensors by name, read on demand. The module docstring is the contract.

    `tree` is the spec, `parts` are its arrays in order, `metadata` describes the whole value and
    `tensor_metadata` single tensors.
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
        """Returns a container for a value in memory."""
        spec, parts = lowering.lower(value, strings=True)
        metadata = value.metadata if isinstance(value, Bundle) else {}
        stored = [MemoryPart(part) for part in parts]
        return cls(
            spec, stored, metadata, budget or DEFAULT.call(sum(part.nbytes for part in stored))
        )

    def close(self) -> None:
        """Releases what reading needs apart from the source. Most formats need nothing."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def keys(self) -> list[str]:
        """The paths of the tensors in the value, in order."""
        return list(self._leaves)

    def names(self, readable: bool = True) -> list[str]:
        """The names of the tensors in the file. Most formats use the keys."""
        return self.keys()

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shape of each tensor."""
        return {name: self.spec(name).shape for name in self.keys()}

    @property
    def unlisted(self) -> list[str]:
        """Names that can be read but are not keys. `tw.verify` checks these data too."""
        return []

    def __contains__(self, name: object) -> bool:
        return name in self._leaves

    def part(self, name: str) -> Part:
        """The stored array of a dense tensor, for containers that combine others."""
        return self.parts[self._leaves[name].first]

    def plain_part(self, name: str) -> Part | None:
        """The stored array of a dense tensor that needs no conversion; None for other tensors."""
        leaf = self._leaves[name]
        return None if leaf.node else self.parts[leaf.first]

    @property
    def checksums(self) -> bool:
        """Whether every read of a whole tensor verifies a checksum."""
        return bool(self.parts) and all(part.checksum for part in self.parts)

    def offset(self, name: str) -> int:
        """The offset of a tensor's data in the file; 0 if it is unknown."""
        leaf = self._leaves.get(name)
        return self.parts[leaf.first].offset if leaf is not None and leaf.size else 0

    def _leaf(self, name: str) -> tuple[Any, Sequence[Part]]:
        """Returns the node and the parts of a tensor, checked against each other."""
        leaf = self._leaves[name]
        parts = self.parts[leaf.first : leaf.first + leaf.size]
        _check(leaf.node, parts)
        return leaf.node, parts

    def spec(self, name: str) -> TensorSpec:
        """Returns kind, dtype, shape and size of a tensor without reading it. Raises KeyError."""
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
        """Returns a tensor, or the given rows of its first dimension. Raises KeyError."""
        try:
            node, parts = self._leaf(name)
            if rows is not None:
                return _read_rows(node, parts, rows, self.budget)
            return lowering.lift(node, [part.read() for part in parts], self.budget)
        except DecodeError as error:
            raise error.add(tensor=name) from None

    def value(self) -> Any:
        """Returns the whole value. Raises UnsupportedTensor if a dtype is unsupported."""
        return lowering.lift(self.tree, [part.read() for part in self.parts], self.budget)


def _leaves(spec: Node, count: int) -> Iterator[tuple[str, _Leaf]]:
    """Yields the tensors of a spec by name. Repeated names get the suffix ~1, ~2, as parts do."""
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
                    "invalid spec: a tied tensor refers to a tensor that does not exist",
                    tensor=name,
                )
        else:
            leaf = leaves[number] = _Leaf(node, number, size)
        yield name, leaf
        number += size


def _unreadable(node: Node, parts: Sequence[Part]) -> TensorSpec | None:
    """The spec of a tensor that has, or whose parts have, an unsupported dtype; None otherwise."""
    size = sum(part.nbytes for part in parts)
    for part in parts:
        if part.unreadable:
            return TensorSpec("unreadable", part.dtype, part.shape, size)
    dtype = node.get("dtype") if next(iter(node), None) == "dtype" else None
    if isinstance(dtype, str) and dtype not in dtypes.BY_NAME:
        return TensorSpec("unreadable", dtype, parts[0].shape, size)
    return None


def _check(node: Node, parts: Sequence[Part]) -> None:
    """Raises DecodeError unless the parts have the dtypes and shapes that the node needs.

    The file is untrusted. After this check, `_describe` and `_read_rows` may rely on dtypes and
    shapes. The elements of the parts are checked when they are read.
    """
    # The first key of a node is its kind. A node without keys is a dense tensor.
    kind = next(iter(node), None)
    if kind == "dtype":
        row = dtypes.BY_NAME.get(node["dtype"]) if isinstance(node["dtype"], str) else None
        ok = (
            row is not None
            and not row.reading_only
            and (row.numpy.kind != "c" or parts[0].shape[-1:] == (2,))
        )
    elif kind == "strings":
        # Strings have two parts: the bytes of all strings, and n + 1 offsets into them.
        shape = node["strings"]
        ok = isinstance(shape, list) and all(type(dim) is int and dim >= 0 for dim in shape)
        ok = ok and _is_vector(parts[0], "uint8") and _is_vector(parts[1], "int64")
        ok = ok and parts[1].shape[0] == validate.elements(shape, DecodeError) + 1
    elif kind == "quantized":
        # Quantized floats have their codes, and with an axis also a scale and a zero point.
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
        # Sparse tensors have indices [nnz, rank], the parts of their values, and a dense shape.
        ok = (
            parts[0].dtype == "int64"
            and len(parts[0].shape) == 2
            and _is_vector(parts[-1], "int64")
        )
        _check_values(node["sparse"], parts[1:-1])
    elif kind == "ragged":
        # Ragged tensors have the parts of their values, and then row splits, outermost first.
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
        raise DecodeError(f"invalid spec: unknown dtype {node['dtype']!r:.40}")
    if not ok:
        raise DecodeError(f"invalid spec: the parts of a {kind or 'dense'} tensor do not match it")


def _check_values(node: Node, parts: Sequence[Part]) -> None:
    if not isinstance(node, dict) or next(iter(node), None) not in (
        None,
        "dtype",
        "text",
        "strings",
        "quantized",
    ):
        raise DecodeError("the values of a sparse or ragged tensor must be dense or strings")
    _check(node, parts)
    if not (node.get("strings") if "strings" in node else parts[0].shape):
        raise DecodeError("the values of a sparse or ragged tensor must not be a scalar")


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
    """The quantization scheme of a tensor or of the values of a sparse or ragged tensor."""
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
    if kind == "quantized":
        # Along axis 0 every row has its own scale and zero point. Otherwise all rows share them.
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
            f"string offsets {low} to {high} are out of range for {parts[0].shape[0]} bytes"
        )
    spec = {**node, "strings": [stop - start, *shape[1:]]}
    strings: Strings = lowering.lift(spec, [parts[0].read((low, high)), offsets - offsets[0]])
    return strings


def _ragged_rows(node: Node, parts: Sequence[Part], start: int, stop: int, budget: Budget) -> Any:
    count = node["splits"]
    values, splits = parts[:-count], []
    # Rows `low` to `high` of one level are `splits[low]` to `splits[high]` of the next one, so only
    # that run of each row_splits is read. The runs are moved to begin at 0.
    low, high = start, stop
    for part in parts[len(parts) - count :]:
        splits_slice = part.read((low, high + 1))
        low, high = int(splits_slice[0]), int(splits_slice[-1])
        if not 0 <= low <= high:
            raise DecodeError(f"invalid row_splits: {low} to {high}")
        splits.append(splits_slice - splits_slice[0])
    inner = _read_rows(node["ragged"], values, (low, high), budget)
    uniform = node.get("uniform", [None] * count)
    validate.ragged(len(inner), splits, uniform, DecodeError)
    return trusted(Ragged, inner, tuple(splits), tuple(uniform))


def _sparse_rows(node: Node, parts: Sequence[Part], start: int, stop: int, budget: Budget) -> Any:
    """Returns rows of a sparse tensor. Sorted indices are searched, others are read whole."""
    indices, shape = parts[0], parts[-1].read()
    nnz, rank = indices.shape
    if not rank or not len(shape):
        raise DecodeError("a sparse tensor without dimensions has no rows")
    if node.get("sorted"):
        low, high = (_search(indices, nnz, row) for row in (start, stop))
        chosen: Any = indices.read((low, high))
        if len(chosen) and (chosen[0, 0] < start or chosen[-1, 0] >= stop):
            raise DecodeError("the indices of a sparse tensor are marked as sorted, but are not")
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
    """The position of the first index whose row is at least `row`, by binary search."""
    low, high = 0, nnz
    while low < high:
        middle = (low + high) // 2
        if int(indices.read((middle, middle + 1))[0, 0]) < row:
            low = middle + 1
        else:
            high = middle
    return low
