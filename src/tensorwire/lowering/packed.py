"""Packed parts: each part may be compressed or shuffled, independent of the tree of the spec.

    {"packed": SPEC, "parts": [null, {"dtype": "float32", "shape": [2, 3], ...}, ...]}

wraps a whole spec. A part with an entry is stored as a vector of uint8. The further keys of its
entry (`compression`, `shuffle`, `block`) are defined in `transforms.compression.packing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import DecodeError
from .._limits import Limits
from ..core import dtypes, memory, validate
from ..core.tensors import Array
from .names import Node

if TYPE_CHECKING:
    from ..transforms.compression.packing import Packing

SMALL = 1024
"""Parts up to this many bytes are never packed: their entry would take what packing saves."""
_KEYS = {"dtype", "shape"}


class Packer:
    """Packs the parts of a value in order, where that makes them smaller."""

    def __init__(self, packing: Packing) -> None:
        self.last = -1
        """The number of the last compressed part, to which `padding` may be added. Readers skip
        zeros after the last block of a part.
        """
        self._packing, self._entries = packing, list[dict[str, Any] | None]()
        self._expanded, self._stored = packing.expanded, 0

    def add(self, part: Array) -> Array | None:
        """Returns the packed form of the next part; None if it is stored unchanged."""
        # Imported here, so that values without packed parts do not load it.
        from ..transforms.compression import packing as transform

        packed = None
        if part.nbytes > SMALL:
            packed = transform.pack(memory.chunk(part), part.dtype.itemsize, self._packing)
        if packed is None:
            self._entries.append(None)
            self._stored += part.nbytes
            return None
        if "compression" in packed.info:
            self.last, self._expanded = len(self._entries), self._expanded + part.nbytes
        entry = {"dtype": dtypes.of(part.dtype).name, "shape": list(part.shape)}
        self._entries.append(entry | packed.info)
        data = np.frombuffer(packed.data, np.uint8)
        self._stored += data.nbytes
        return data

    def padding(self) -> int:
        """Returns the number of zeros that keep the value within the default expansion limit."""
        from ..transforms.compression.streams import filling

        return 0 if self.last < 0 else filling(self._expanded, self._stored)

    def spec(self, spec: Node) -> Node:
        """Wraps the spec of the value with the entries of its packed parts, if there are any."""
        return {"packed": spec, "parts": self._entries} if any(self._entries) else spec


def is_packed(spec: Node) -> bool:
    return isinstance(spec, dict) and "packed" in spec


def inside(spec: Node) -> Node:
    """Returns the spec inside a `packed` node; any other spec unchanged."""
    return spec["packed"] if is_packed(spec) else spec


def entries(spec: Node, count: int) -> list[PackedEntry | None]:
    """Returns the entry of each part of a `packed` node; None for an unpacked part."""
    entries_json = spec.get("parts")
    if (
        spec.keys() != {"packed", "parts"}
        or not isinstance(entries_json, list)
        or len(entries_json) != count
    ):
        raise DecodeError(
            f"invalid spec: a packed node must have an entry for each of the {count} parts"
        )
    return [None if entry is None else PackedEntry(entry) for entry in entries_json]


class PackedEntry:
    """The dtype, shape and packing of one packed part."""

    def __init__(self, entry: Any) -> None:
        from ..transforms.compression import packing as transform

        row = (
            dtypes.BY_NAME.get(entry.get("dtype", ""))
            if isinstance(entry, dict) and isinstance(entry.get("dtype"), str)
            else None
        )
        shape = entry.get("shape") if row is not None else None
        if (
            row is None
            or row.reading_only
            or not isinstance(shape, list)
            or not all(type(dim) is int and dim >= 0 for dim in shape)
        ):
            raise DecodeError(
                f"invalid spec: a packed part needs a valid dtype and shape, not {entry!r:.80}"
            )
        self.row, self.shape = row, tuple(shape)
        self.nbytes = (
            validate.elements(self.shape, DecodeError, row.numpy.itemsize) * row.numpy.itemsize
        )
        self.how = transform.how(
            {key: item for key, item in entry.items() if key not in _KEYS},
            self.nbytes,
            row.numpy.itemsize,
        )

    def unpack(self, part: Array, limits: Limits) -> Array:
        """Returns the unpacked part in memory of its own.

        It is read-only unless the packed bytes were writable, which means the caller's own.
        """
        if part.dtype != np.uint8 or part.ndim != 1:
            raise DecodeError(
                f"a packed part must be a vector of uint8, not {part.dtype} {list(part.shape)}"
            )
        data = self.how.unpack(part, limits)
        return self.array(data, self.shape, part.flags.writeable)

    def rows(
        self,
        size: int,
        read: Callable[[tuple[int, int]], Array],
        rows: tuple[int, int],
        limits: Limits,
    ) -> Array:
        """Returns some rows of the part.

        `read` returns a range of the packed bytes, of which there are `size`.
        """
        start, stop = rows
        if not self.shape or not 0 <= start <= stop <= self.shape[0]:
            raise DecodeError(
                f"rows {start} to {stop} are out of range for shape {list(self.shape)}"
            )
        stride = self.nbytes // self.shape[0] if self.shape[0] else 0
        data = self.how.part(lambda *span: read(span), size, start * stride, stop * stride, limits)
        return self.array(data, (stop - start, *self.shape[1:]), True)

    def array(self, data: Array, shape: tuple[int, ...], writable: bool) -> Array:
        bad = dtypes.noncanonical(self.row, data)
        if bad is not None:
            raise DecodeError(f"invalid byte for the dtype {self.row.name}")
        array = data.view(self.row.numpy).reshape(shape)
        return array if writable else memory.read_only(array)


def unpacked(spec: Node, parts: list[Any], limits: Limits) -> tuple[Node, list[Any]]:
    """Returns the spec inside a `packed` node, and the unpacked parts."""
    if not is_packed(spec):
        return spec, parts
    part_entries = entries(spec, len(parts))
    return spec["packed"], [
        part if entry is None else entry.unpack(part, limits)
        for entry, part in zip(part_entries, parts, strict=True)
    ]
