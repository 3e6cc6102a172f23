"""Arrays at an offset of a source, and the assignment of named arrays to a spec.

The formats whose files hold plain arrays share this module: npy, npz, safetensors, protobuf, keras.
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
from ..wire import kernels
from .container import BasePart, Rows, check_rows


class StoredPart(BasePart):
    """A dense array in C order, little-endian, that is read on demand.

    Rows are one run of bytes, so a read of some rows touches no other bytes.
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
        """`matches` compares the data with the checksum stored for them, if there is one."""
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
        """The offset of the data in the file."""
        return self._offset

    def read(self, rows: Rows = None) -> Any:
        """Returns the array and verifies its checksum, or some rows without a checksum."""
        try:
            return self._read(rows)
        except DecodeError as error:
            raise error.add(format=self._format, tensor=self.name, offset=self._offset) from None

    def _read(self, rows: Rows) -> Any:
        row, shape, offset, size = self.row, self.shape, self._offset, self.nbytes
        if rows is not None:
            check_rows(rows, shape)
            start, stop = rows
            stride = math.prod(shape[1:]) * row.numpy.itemsize
            offset, size, shape = (
                offset + start * stride,
                (stop - start) * stride,
                (stop - start, *shape[1:]),
            )
        read_into = getattr(self._source, "read_into", None)
        view: Any
        # A file is read straight into the new array. Memory and mapped files give a view, which
        # `memory.dense` uses in place or copies, as `copy` says.
        if read_into is not None:
            array = np.empty(shape, row.numpy)
            view = array.reshape(-1).view(np.uint8)
            read_into(offset, view)
        else:
            view = self._source.read_at(offset, size)
        if rows is None and self._matches is not None and not self._matches(view):
            raise ChecksumError("the data do not match their checksum", offset=offset)
        if read_into is None:
            array = memory.dense(view, 0, row.numpy, shape, self._copy, base=offset)
        if row.name == "bool" or row.bits < 8:
            check_canonical(row, array.reshape(-1).view(np.uint8), offset)
        return array


class BitsPart(BasePart):
    """An array with elements of less than 8 bits, packed in the file. Reading unpacks them, one
    element per byte.
    """

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
        """Returns the array, or some rows, which need not begin or end at a byte boundary."""
        try:
            return self._read(rows)
        except DecodeError as error:
            raise error.add(format=self._format, tensor=self.name, offset=self._start) from None

    def _read(self, rows: Rows) -> Any:
        shape, first, stop = self.shape, 0, math.prod(self.shape)
        if self._copy is False:
            raise DecodeError(
                f"copy=False, but {self.row.packed} data must be unpacked", hint="leave copy= out"
            )
        if rows is not None:
            check_rows(rows, shape)
            stride = math.prod(shape[1:])
            first, stop, shape = rows[0] * stride, rows[1] * stride, (rows[1] - rows[0], *shape[1:])
        # A group is the smallest run of elements that ends at a byte boundary. Whole groups are
        # read, and the elements before and after the rows are cut off once they are unpacked.
        count, size = dtypes.GROUPS[self.row.bits]
        low, high = first // count, -(-stop // count)
        view = self._source.read_at(self._start + low * size, (high - low) * size)
        codes = dtypes.unpack(self.row.bits, np.frombuffer(view, np.uint8))
        array = codes[first - low * count : stop - low * count].view(self.row.numpy).reshape(shape)
        writable = self._copy or hasattr(self._source, "read_into")
        return array if writable else memory.read_only(array)


def check_canonical(row: dtypes.DType, data: Array, offset: int) -> None:
    """Raises DecodeError if the bytes of an array contain an invalid bool or small integer.

    A bool, and an element of less than 8 bits, fills a byte in which most values are invalid. NumPy
    and the frameworks would compute with them in undefined ways.
    """
    bad = dtypes.noncanonical(row, data)
    if bad is not None:
        raise DecodeError(f"invalid byte in {row.name} data", offset=offset + bad)


def crc32c_matcher(crc: int) -> Callable[[Any], bool]:
    """Returns the function that compares data with a stored CRC32C."""
    return lambda data: kernels.crc32c(data) == crc


class SourceSlice:
    """A range of the bytes of a source, as a source of its own. Closing it does nothing."""

    def __init__(self, source: Source, start: int, size: int) -> None:
        self.size, self.path, self._source, self._start = size, source.path, source, start
        if hasattr(source, "read_into"):
            self.read_into = self._read_into

    def read_at(self, offset: int, count: int) -> memoryview:
        return self._source.read_at(self._start + offset, count)

    def _read_into(self, offset: int, buffer: Array) -> None:
        self._source.read_into(self._start + offset, buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Does nothing: the owner of the outer source closes that."""


def little(source: Source) -> Callable[[int, int], bytes | memoryview]:
    """The function that reads a few bytes of a source fastest.

    A file has `read_bytes`, which skips the aligned buffer that `read_at` allocates for arrays.
    """
    read: Callable[[int, int], bytes | memoryview] = getattr(source, "read_bytes", source.read_at)
    return read


def assign(
    spec: Node,
    metadata: dict[str, str],
    parts: dict[str, Any],
    stored_name: Callable[[str], str] | None = None,
) -> tuple[Any, list[Any]]:
    """Returns the spec with the metadata of a bundle put back, and its parts in order.

    `stored_name` maps the name of a part in the spec to its name in the file. Raises DecodeError if
    the names in the file and in the spec differ.
    """
    names = lowering.names(spec, len(parts))
    if stored_name is not None:
        names = [stored_name(name) for name in names]
    if len(names) != len(parts) or not parts.keys() <= set(names):
        raise DecodeError("the tensor names in the file do not match the tensorwire spec")
    tree = lowering.inside(spec)
    if isinstance(tree, dict) and "bundle" in tree and metadata:
        tree = tree | {"metadata": metadata}
        spec = spec | {"packed": tree} if lowering.is_packed(spec) else tree
    return spec, [parts[name] for name in names]


def is_plain_dict(spec: Node, names: Sequence[str]) -> bool:
    """Whether the value is a dict of dense arrays in the order of the file.

    If so, the file needs no spec: its names and arrays are enough.
    """
    if not isinstance(spec, dict) or list(spec) != ["dict"] or not isinstance(spec["dict"], dict):
        return False
    if list(spec["dict"]) != list(names):
        return False
    return all(node == {} for node in spec["dict"].values())
