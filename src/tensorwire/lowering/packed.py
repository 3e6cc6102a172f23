"""Parts that are compressed or shuffled, each alone: a matter of parts only, which the tree of a
spec knows nothing of.

    {"packed": SPEC, "parts": [null, {"dtype": "float32", "shape": [2, 3], "compression": "zstd", ...}, ...]}

stands around a whole spec. A part with an entry is stored as a vector of uint8, and
`transforms.packing` says what the rest of it means.
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
"""Bytes up to which a part stays as it is: what could be saved goes into the spec."""
_KEYS = {"dtype", "shape"}


class Packer:
    """Packs the parts of a value one after the other, where that makes them smaller."""

    def __init__(self, packing: Packing) -> None:
        self.last = -1
        """The last part that is compressed. Readers skip zeros behind the last block of any part."""
        self._packing, self._entries = packing, list[dict[str, Any] | None]()
        self._expanded, self._stored = packing.expanded, 0

    def add(self, part: Array) -> Array | None:
        """What is stored instead of the next part; None for a part that stays as it is."""
        from ..transforms.compression import packing as transform  # not for those who pack nothing

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
        """How many zeros the last compressed part needs, so that readers expand it by default."""
        from ..transforms.compression.streams import filling

        return 0 if self.last < 0 else filling(self._expanded, self._stored)

    def spec(self, spec: Node) -> Node:
        """The spec of the value, and what readers must know of its parts."""
        return {"packed": spec, "parts": self._entries} if any(self._entries) else spec


def is_packed(spec: Node) -> bool:
    return isinstance(spec, dict) and "packed" in spec


def inside(spec: Node) -> Node:
    """The spec without what is said of its parts."""
    return spec["packed"] if is_packed(spec) else spec


def entries(spec: Node, count: int) -> list[PackedEntry | None]:
    """What is said of each part."""
    found = spec.get("parts")
    if spec.keys() != {"packed", "parts"} or not isinstance(found, list) or len(found) != count:
        raise DecodeError(
            f"a spec that says how its {count} parts are packed has an entry for each"
        )
    return [None if entry is None else PackedEntry(entry) for entry in found]


class PackedEntry:
    """What a packed part was."""

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
            raise DecodeError(f"a packed part has a dtype and a shape, not {entry!r:.80}")
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
        """The part as it was, in memory that nobody else has; read-only unless the packed bytes
        were the caller's own.
        """
        if part.dtype != np.uint8 or part.ndim != 1:
            raise DecodeError(
                f"a packed part is a vector of uint8, not {part.dtype} {list(part.shape)}"
            )
        found = self.how.unpack(part, limits)
        return self.array(found, self.shape, part.flags.writeable)

    def rows(
        self,
        size: int,
        read: Callable[[tuple[int, int]], Array],
        rows: tuple[int, int],
        limits: Limits,
    ) -> Array:
        """Some rows of the part, of which `read` gives packed bytes from, to; there are `size` of
        them.
        """
        start, stop = rows
        if not self.shape or not 0 <= start <= stop <= self.shape[0]:
            raise DecodeError(f"rows {start} to {stop} of a tensor of shape {list(self.shape)}")
        stride = self.nbytes // self.shape[0] if self.shape[0] else 0
        found = self.how.part(lambda *span: read(span), size, start * stride, stop * stride, limits)
        return self.array(found, (stop - start, *self.shape[1:]), True)

    def array(self, found: Array, shape: tuple[int, ...], writable: bool) -> Array:
        bad = dtypes.noncanonical(self.row, found)
        if bad is not None:
            raise DecodeError(f"a byte that is no value of {self.row.name}")
        array = found.view(self.row.numpy).reshape(shape)
        return array if writable else memory.read_only(array)


def unpacked(spec: Node, parts: list[Any], limits: Limits) -> tuple[Node, list[Any]]:
    """The spec without what is said of its parts, and the parts as they were."""
    if not is_packed(spec):
        return spec, parts
    found = entries(spec, len(parts))
    return spec["packed"], [
        part if entry is None else entry.unpack(part, limits)
        for entry, part in zip(found, parts, strict=True)
    ]
