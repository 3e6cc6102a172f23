"""safetensors: `u64 header size | JSON header | data`, the format of the model hubs, and our
default.

What we add stays inside the format, so the safetensors package reads every file, other kinds as
their parts. The header is padded so that the data starts at a multiple of 64, and tensors are laid
out by descending item size, so that each is aligned and can be read in place. What the format
cannot say (order, kinds, nesting, Python values, dtypes that it lacks) is one JSON string,
`__metadata__["tensorwire"]`: `{"version": 1, "spec": ...}` with the spec of `lowering`. It is left
out when a plain dict of arrays says it all. Elements of F4 and F6 lie side by side in the file;
these types are read, and never written. With `packing` each tensor is compressed or shuffled alone:
U8 in the file, and the spec says what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ... import lowering
from ..._errors import DecodeError, EncodeError
from ..._limits import DEFAULT, Budget, Limits
from ...core import dtypes, memory
from ...core.memory import Buffer
from ...core.tensors import Bundle
from ...storage.files import Source
from ...wire import json as jsontext
from ...wire import kernels
from ..array_part import BitsPart, StoredPart, assign, says_it_all
from ..container import Part, UnreadablePart
from ..protocol import Metadata, Stored, StoredFormat, all_metadata
from . import header as headers
from .header import FORMAT, KEY, VERSION, HeaderEntry

if TYPE_CHECKING:
    from ...transforms.compression.packing import Packing

_FIRST = 16 << 10
"""Bytes of the first read, which holds most headers whole."""


def _holds(row: dtypes.DType) -> bool:
    return row.safetensors is not None


@dataclass(frozen=True, slots=True)
class Safetensors(StoredFormat):
    """Named tensors of every kind.

    >>> import numpy as np
    >>> codec = Safetensors()
    >>> codec.decode(memoryview(b"".join(codec.encode({"a": np.int8([1, 2]), "n": 3}))))
    {'a': array([1, 2], dtype=int8), 'n': 3}
    """

    name: ClassVar[str] = FORMAT
    origin: ClassVar[int] = 8
    checksum: bool = False
    """Write a CRC32C of every tensor and of the header. Checksums that are there are always
    checked.
    """
    packing: Packing | None = None
    """Compress or shuffle each tensor alone: `dumps(..., per_tensor=True)`, `dumps(...,
    shuffle=True)`.
    """
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        texts = all_metadata(value, metadata)
        if KEY in texts:
            raise EncodeError(f"the metadata key {KEY!r} is taken", format=FORMAT)
        lowered = lowering.lower(value, holds=_holds)
        if isinstance(value, Bundle):
            lowered.spec.pop("metadata", None)  # they stand in the format's own place
        spec, found = lowered if self.packing is None else lowering.pack(lowered, self.packing)
        names = lowering.names(spec, len(found))
        order = sorted(range(len(found)), key=lambda i: -found[i].dtype.itemsize)  # type: ignore[union-attr]
        names, parts = [names[i] for i in order], [found[i] for i in order]
        chunks = [memory.chunk(part) for part in parts]  # type: ignore[arg-type]
        ours = None if says_it_all(spec, names) else {"version": VERSION, "spec": spec}
        head = headers.write(
            names,
            parts,
            texts,
            ours,
            [kernels.crc32c(chunk) for chunk in chunks] if self.checksum else None,
        )
        if len(head) - 8 > self.limits.safetensors_header:
            raise EncodeError(
                f"a header of {len(head)} bytes; readers stop at {self.limits.safetensors_header}",
                format=FORMAT,
            )
        return [head, *(chunk for chunk in chunks if len(chunk))]

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        """As `open` would read it all; tensors without checksums in one native step."""
        plain = (
            kernels.read_named(data, bool(copy))
            if copy is not False and self.limits.is_default
            else None
        )
        if plain is None:
            return StoredFormat.decode(self, data, copy)
        header, tensors = plain
        try:
            texts = headers.metadata_of(jsontext.parse(header, FORMAT, 8)) if header else {}
            if KEY not in texts:
                return tensors
            spec, sums = headers.ours_of(texts.pop(KEY))
            if sums is None:
                budget = self.limits.call(len(data))
                return lowering.lift(*assign(spec, texts, tensors), budget)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=self.origin) from None
        # Checksums are present, so take the slow path that verifies them.
        return StoredFormat.decode(self, data, copy)

    def stored(self, source: Source, copy: bool | None, budget: Budget) -> Stored:
        """Reads the header."""
        head = source.read_at(0, min(_FIRST, source.size))
        size = 8 + headers.size(head, source.size, self.limits)
        if size > len(head):
            head = source.read_at(0, size)
        header = headers.read(head[:size], source.size, self.limits)
        parts = {
            name: _part(source, name, entry, header.data, copy)
            for name, entry in header.entries.items()
        }
        return Stored(*assign(header.spec, header.metadata, parts), header.metadata)


def _part(source: Source, name: str, entry: HeaderEntry, data: int, copy: bool | None) -> Part:
    start = data + entry.start
    if entry.row is None:
        why = f"unknown dtype {entry.code!r:.40}"
        error = DecodeError(why, format=FORMAT, tensor=name, offset=start)
        return UnreadablePart(entry.code, entry.shape, entry.stop - entry.start, error)
    if entry.row.packed == entry.code:
        return BitsPart(source, start, entry.row, entry.shape, copy, format=FORMAT, name=name)
    matches = None if entry.crc is None else partial(_matches, crc=entry.crc)
    return StoredPart(
        source, start, entry.row, entry.shape, copy, format=FORMAT, name=name, matches=matches
    )


def _matches(view: Any, crc: int) -> bool:
    return kernels.crc32c(view) == crc
