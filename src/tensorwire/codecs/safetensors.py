"""safetensors: `u64 header size | JSON header | data`, the format of the model hubs, and our default.

What we add stays inside the format, so the safetensors package reads every file, other kinds as their parts. The header is padded so that
the data starts at a multiple of 64, and tensors are laid out by descending item size, so that each is aligned and can be read in place.
What the format cannot say (order, kinds, nesting, Python values, dtypes that it lacks) is one JSON string,
`__metadata__["tensorwire"]`: `{"version": 1, "spec": ...}` with the spec of `lowering`. It is left out when a plain dict of arrays says
it all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes, lowering, memory
from .._errors import ChecksumError, DecodeError, EncodeError
from .._limits import DEFAULT, Limits
from ..files import BytesSource, Source
from ..tensors import Bundle
from ..wire import jsontext, kernels
from . import safetensors_header as headers
from .container import Container, Rows
from .safetensors_header import FORMAT, KEY, VERSION, Entry

_FIRST = 16 << 10
"""Bytes of the first read, which holds most headers whole."""


def _holds(row: dtypes.DType) -> bool:
    return row.safetensors is not None


@dataclass(frozen=True, slots=True)
class Safetensors:
    """Named tensors of every kind.

    >>> codec = Safetensors()
    >>> codec.decode(memoryview(b"".join(codec.encode({"a": np.int8([1, 2]), "n": 3}))))
    {'a': array([1, 2], dtype=int8), 'n': 3}
    """

    checksum: bool = False
    """Write a CRC32C of every tensor and of the header. Checksums that are there are always checked."""
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: dict[str, str] | None = None) -> list[Any]:
        texts = (value.metadata if isinstance(value, Bundle) else {}) | (metadata or {})
        if KEY in texts:
            raise EncodeError(f"the metadata key {KEY!r} is taken", format=FORMAT)
        spec, found = lowering.lower(value, holds=_holds)
        if isinstance(value, Bundle):
            spec.pop("metadata", None)  # they stand in the format's own place
        names = lowering.names(spec, len(found))
        order = sorted(range(len(found)), key=lambda i: -found[i].dtype.itemsize)  # type: ignore[union-attr]
        names, parts = [names[i] for i in order], [found[i] for i in order]
        chunks = [memory.chunk(part) for part in parts]  # type: ignore[arg-type]
        ours = None if _says_it_all(spec, names) else {"version": VERSION, "spec": spec}
        head = headers.write(names, parts, texts, ours, [kernels.crc32c(chunk) for chunk in chunks] if self.checksum else None)
        if len(head) - 8 > self.limits.safetensors_header:
            raise EncodeError(f"a header of {len(head)} bytes; readers stop at {self.limits.safetensors_header}", format=FORMAT)
        return [head, *(chunk for chunk in chunks if len(chunk))]

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        try:
            plain = kernels.read_named(data, bool(copy)) if copy is not False and self.limits is DEFAULT else None
            if plain is None:
                return self.open(BytesSource(data), copy).value()
            texts = headers.metadata_of(jsontext.parse(plain[0], FORMAT, 8)) if plain[0] else {}
            if KEY not in texts:
                return plain[1]
            spec, sums = headers.ours_of(texts.pop(KEY))
            if sums is not None:  # whoever took the seal away
                return self.open(BytesSource(data), copy).value()
            return lowering.lift(*_assign(spec, texts, plain[1]), self.limits)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=8) from None  # what has no place of its own is in the header

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Reads the header, and each tensor when it is asked for."""
        try:
            head = source.read_at(0, min(_FIRST, source.size))
            size = 8 + headers.size(head, source.size, self.limits)
            header = headers.read(head[:size] if size <= len(head) else source.read_at(0, size), source.size, self.limits)
            parts = {name: _Part(source, name, entry, header.data, copy) for name, entry in header.entries.items()}
            spec, ordered = _assign(header.spec, header.metadata, parts)
            return Container(spec, ordered, header.metadata, self.limits)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=8) from None


def _assign(spec: Any, metadata: dict[str, str], parts: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The spec, a bundle's metadata put back, and its parts in order."""
    names = lowering.names(spec, len(parts))
    if len(names) != len(parts) or not parts.keys() <= set(names):
        raise DecodeError("the names in the header are not those of the tensorwire spec")
    if isinstance(spec, dict) and "bundle" in spec and metadata:
        spec = spec | {"metadata": metadata}
    return spec, [parts[name] for name in names]


def _says_it_all(spec: Any, names: list[str]) -> bool:
    """Whether a plain dict of arrays, in the order of the header, is what the value was."""
    if not isinstance(spec, dict) or list(spec) != ["dict"] or list(spec["dict"]) != names:
        return False
    return all(node == {} for node in spec["dict"].values())


class _Part:
    """One tensor of a file, read on demand."""

    def __init__(self, source: Source, name: str, entry: Entry, data: int, copy: bool | None) -> None:
        self.name, self.row, self.shape, self._entry = name, entry.row, entry.shape, entry
        self.dtype, self.nbytes, self.checksum = entry.row.name, entry.stop - entry.start, entry.crc is not None
        self._source, self._data, self._copy = source, data, copy

    def read(self, rows: Rows = None) -> Any:
        """All of it, its checksum verified, or some rows, for which there is none."""
        entry, shape = self._entry, self.shape
        at, size = entry.start, entry.stop - entry.start
        if rows is not None:
            start, stop = rows
            if not shape or not 0 <= start <= stop <= shape[0]:
                raise DecodeError(f"rows {start} to {stop} of a tensor of shape {list(shape)}", tensor=self.name, offset=self._data + at)
            stride = math.prod(shape[1:]) * self.row.numpy.itemsize
            at, size, shape = at + start * stride, (stop - start) * stride, (stop - start, *shape[1:])
        into = getattr(self._source, "read_into", None)
        view: Any
        if into is not None:  # straight into the array, which is nobody else's
            array = np.empty(shape, self.row.numpy)
            view = array.reshape(-1).view(np.uint8)
            into(self._data + at, view)
        else:
            view = self._source.read_at(self._data + at, size)
        try:
            if rows is None and entry.crc is not None and kernels.crc32c(view) != entry.crc:
                raise ChecksumError("the data do not match their checksum", offset=self._data + at)
            if into is None:
                array = memory.dense(view, 0, self.row.numpy, shape, self._copy, base=self._data + at)
            bad = dtypes.noncanonical(self.row, array.reshape(-1).view(np.uint8)) if self.row.name == "bool" else None
            if bad is not None:
                raise DecodeError("a bool is neither 0 nor 1", offset=self._data + at + bad)
        except DecodeError as error:
            raise error.add(format=FORMAT, tensor=self.name) from None
        return array
