"""What containers of arrays share: a dense array at a place of a Source, and how arrays by name
find their places in a spec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import lowering
from .._errors import ChecksumError, DecodeError
from ..core import dtypes, memory
from ..core.tensors import Array
from ..lowering import Node
from ..storage.files import Source
from .container import BasePart, Rows


class StoredPart(BasePart):
    """An array in C order, little-endian, read on demand: all of it, or some rows, which are one
    run of bytes.
    """

    __slots__ = (
        "_copy",
        "_format",
        "_matches",
        "_offset",
        "_source",
        "checksum",
        "dtype",
        "name",
        "nbytes",
        "row",
        "shape",
    )

    def __init__(
        self,
        source: Source,
        offset: int,
        row: dtypes.DType,
        shape: tuple[int, ...],
        copy: bool | None,
        *,
        format: str,
        name: str | None = None,
        matches: Callable[[Any], bool] | None = None,
    ) -> None:
        """`matches` says whether bytes have the checksum that was stored with them, if there is
        one.
        """
        self.name, self.row, self.dtype, self.shape = name, row, row.name, shape
        self.nbytes, self.checksum = math.prod(shape) * row.numpy.itemsize, matches is not None
        self._source, self._offset, self._copy, self._format, self._matches = (
            source,
            offset,
            copy,
            format,
            matches,
        )

    @property
    def offset(self) -> int:
        """Where it begins in its file."""
        return self._offset

    def read(self, rows: Rows = None) -> Any:
        """All of it, its checksum verified, or some rows, for which there is none."""
        try:
            return self._read(rows)
        except DecodeError as error:
            raise error.add(format=self._format, tensor=self.name) from None

    def _read(self, rows: Rows) -> Any:
        row, shape, offset, size = self.row, self.shape, self._offset, self.nbytes
        if rows is not None:
            start, stop = rows
            if not shape or not 0 <= start <= stop <= shape[0]:
                raise DecodeError(
                    f"rows {start} to {stop} of a tensor of shape {list(shape)}", offset=offset
                )
            stride = math.prod(shape[1:]) * row.numpy.itemsize
            offset, size, shape = (
                offset + start * stride,
                (stop - start) * stride,
                (stop - start, *shape[1:]),
            )
        read_into = getattr(self._source, "read_into", None)
        view: Any
        if read_into is not None:  # straight into the array, which is nobody else's
            array = np.empty(shape, row.numpy)
            view = array.reshape(-1).view(np.uint8)
            read_into(offset, view)
        else:
            view = self._source.read_at(offset, size)
        if rows is None and self._matches is not None and not self._matches(view):
            raise ChecksumError("the data do not match their checksum", offset=offset)
        if read_into is None:
            array = memory.dense(view, 0, row.numpy, shape, self._copy, base=offset)
        bad = (
            dtypes.noncanonical(row, array.reshape(-1).view(np.uint8))
            if row.name == "bool" or row.bits < 8
            else None
        )
        if bad is not None:
            why = (
                "a bool is neither 0 nor 1"
                if row.name == "bool"
                else f"a byte that is no value of {row.name}"
            )
            raise DecodeError(why, offset=offset + bad)
        return array


class BitsPart(BasePart):
    """Elements below a byte that lie side by side in the file; each is a byte of its own once read."""

    def __init__(
        self,
        source: Source,
        start: int,
        row: dtypes.DType,
        shape: tuple[int, ...],
        copy: bool | None,
        *,
        format: str,
        name: str,
    ) -> None:
        self.name, self.row, self.dtype, self.shape = name, row, row.name, shape
        self.nbytes = math.prod(shape) * row.bits // 8
        self._source, self._start, self._copy, self._format = source, start, copy, format

    def read(self, rows: Rows = None) -> Any:
        """All of it, or some rows, which need not begin or end at a byte."""
        shape, first, stop = self.shape, 0, math.prod(self.shape)
        if self._copy is False:
            raise self._bad(f"copy=False, but {self.row.packed} must be unpacked; leave copy out")
        if rows is not None:
            if not shape or not 0 <= rows[0] <= rows[1] <= shape[0]:
                raise self._bad(f"rows {rows[0]} to {rows[1]} of a tensor of shape {list(shape)}")
            stride = math.prod(shape[1:])
            first, stop, shape = rows[0] * stride, rows[1] * stride, (rows[1] - rows[0], *shape[1:])
        count, size = dtypes.GROUPS[self.row.bits]
        low, high = first // count, -(-stop // count)  # whole groups, a few elements too many
        view = self._source.read_at(self._start + low * size, (high - low) * size)
        codes = dtypes.unpack(self.row.bits, np.frombuffer(view, np.uint8))
        array = codes[first - low * count : stop - low * count].view(self.row.numpy).reshape(shape)
        writable = self._copy or hasattr(self._source, "read_into")
        return array if writable else memory.read_only(array)

    def _bad(self, why: str) -> DecodeError:
        return DecodeError(why, format=self._format, tensor=self.name, offset=self._start)


class SourceSlice:
    """A run of a source's bytes as a source. Its owner closes the whole."""

    def __init__(self, source: Source, start: int, size: int) -> None:
        self.size, self.path, self._source, self._start = size, source.path, source, start
        if hasattr(source, "read_into"):
            self.read_into = self._read_into

    def read_at(self, offset: int, count: int) -> memoryview:
        return self._source.read_at(self._start + offset, count)

    def _read_into(self, offset: int, buffer: Array) -> None:
        self._source.read_into(self._start + offset, buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        """The whole stays open."""


def little(source: Source) -> Callable[[int, int], bytes | memoryview]:
    """How a few bytes of a source are read quickest: files need no aligned memory for them."""
    read: Callable[[int, int], bytes | memoryview] = getattr(source, "read_bytes", source.read_at)
    return read


def assign(
    spec: Node,
    metadata: dict[str, str],
    parts: dict[str, Any],
    stored_name: Callable[[str], str] | None = None,
) -> tuple[Any, list[Any]]:
    """The spec, a bundle's metadata put back, and its parts in order. `stored` says what a part is
    called in the container.
    """
    names = lowering.names(spec, len(parts))
    if stored_name is not None:
        names = [stored_name(name) for name in names]
    if len(names) != len(parts) or not parts.keys() <= set(names):
        raise DecodeError("the names in the file are not those of the tensorwire spec")
    tree = lowering.inside(spec)
    if isinstance(tree, dict) and "bundle" in tree and metadata:
        tree = tree | {"metadata": metadata}
        spec = spec | {"packed": tree} if lowering.is_packed(spec) else tree
    return spec, [parts[name] for name in names]


def is_plain_dict(spec: Node, names: Sequence[str]) -> bool:
    """Whether a plain dict of arrays, in the order of the file, is what the value was."""
    if not isinstance(spec, dict) or list(spec) != ["dict"] or not isinstance(spec["dict"], dict):
        return False
    if list(spec["dict"]) != list(names):
        return False
    return all(node == {} for node in spec["dict"].values())
