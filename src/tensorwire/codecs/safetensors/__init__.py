"""The safetensors format: `u64 header size | JSON header | data`. It is the default format.

The safetensors package reads every file that tensorwire writes, and sees sparse, ragged and string
tensors as their parts.

1. The header is padded so that the data begin at a multiple of 64 bytes. Tensors are laid out by
   descending item size, so that each is aligned and can be read in place.
2. `__metadata__["tensorwire"]` holds what the format cannot express (order, kinds, nesting, Python
   values, other dtypes): the JSON text `{"version": 1, "spec": ...}` with the spec of `lowering`.
   It is left out for a plain dict of arrays.
3. The elements of F4 and F6 are packed in the file. These types are read, but never written.
4. With `packing`, each tensor is compressed or shuffled by itself. It is stored as U8, and the spec
   has its dtype and shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ... import lowering
from ..._errors import DecodeError, EncodeError
from ..._limits import DEFAULT, Budget, Limits
from ...core import dtypes, memory
from ...core.memory import Buffer
from ...core.tensors import Array
from ...lowering import Node
from ...storage.files import Source
from ...wire import json as jsontext
from ...wire import kernels
from ..array_part import BitsPart, StoredPart, assign, crc32c_matcher, is_plain_dict
from ..container import Part, UnreadablePart
from ..protocol import Metadata, Stored, StreamedFormat, without_metadata
from ..sinks import OutputPart, Sink
from . import header as headers
from .header import FORMAT, KEY, VERSION, HeaderEntry

if TYPE_CHECKING:
    from ...transforms.compression.packing import Packing

_FIRST = 16 << 10
"""The size of the first read, which covers most headers."""


class _HeldPart:
    """A part whose data the sink holds until the header is written."""

    __slots__ = ("_buffers", "crc", "like")

    def __init__(self, like: Array, buffers: Iterable[Buffer], sink: Sink) -> None:
        self.like = like
        self._buffers, self.crc = sink.hold(buffers)

    def pad(self, size: int) -> None:
        """Appends zeros, which readers skip."""
        zeros: Array = np.zeros(size, np.uint8)
        self.like = np.broadcast_to(np.uint8(0), (len(self.like) + size,))
        self.crc = kernels.crc32c(zeros, self.crc)
        self._buffers = chain(self._buffers, (zeros.data,))

    def buffers(self) -> Iterable[Buffer]:
        return self._buffers


@dataclass(frozen=True, slots=True)
class Safetensors(StreamedFormat):
    """The codec of safetensors files: named tensors of every kind.

    >>> import numpy as np
    >>> codec = Safetensors()
    >>> codec.decode(memoryview(b"".join(codec.encode({"a": np.int8([1, 2]), "n": 3}))))
    {'a': array([1, 2], dtype=int8), 'n': 3}
    """

    name: ClassVar[str] = FORMAT
    origin: ClassVar[int] = 8
    checksum: bool = False
    """Write a CRC32C of every tensor and of the header. Existing checksums are always verified."""
    packing: Packing | None = None
    """Compress or shuffle each tensor by itself, for `dumps(..., per_tensor=True)` and `dumps(...,
    shuffle=True)`.
    """
    limits: Limits = DEFAULT

    @staticmethod
    def holds(row: dtypes.DType) -> bool:
        return row.safetensors is not None

    def write(
        self, sink: Sink, spec: Node, parts: Sequence[OutputPart], metadata: Metadata
    ) -> None:
        """Writes the header and then the data.

        The header has all sizes. Checksums, and the sizes of tensors that are compressed by
        themselves, depend on the data: the sink then holds these until the header is written.
        """
        if KEY in metadata:
            raise EncodeError(f"the metadata key {KEY!r} is reserved", format=FORMAT)
        spec = without_metadata(spec)
        names = lowering.names(spec, len(parts))
        stored: Sequence[Any] = parts
        if self.packing is not None or self.checksum:
            spec, stored = self._held(sink, spec, parts)
        likes = [part.like for part in stored]
        sizes = [-like.dtype.itemsize for like in likes]
        if sizes != sorted(sizes):
            order = sorted(range(len(likes)), key=sizes.__getitem__)
            names, stored = [names[i] for i in order], [stored[i] for i in order]
            likes = [likes[i] for i in order]
        ours = None if is_plain_dict(spec, names) else {"version": VERSION, "spec": spec}
        sums = [part.crc for part in stored] if self.checksum else None
        head = headers.write(names, likes, metadata, ours, sums)
        if len(head) - 8 > self.limits.safetensors_header:
            raise EncodeError(
                f"the header has {len(head)} bytes; readers allow {self.limits.safetensors_header}",
                format=FORMAT,
            )
        write = sink.write
        write(head)
        for part in stored:
            for data in part.buffers():
                write(data)
                # Without this, one tensor would stay in memory while the next one is read.
                del data

    def _held(
        self, sink: Sink, spec: Node, parts: Sequence[OutputPart]
    ) -> tuple[Node, list[_HeldPart]]:
        """Returns the spec, and the parts with their checksums. `packing` is applied to both."""
        if self.packing is None:
            return spec, [_HeldPart(part.like, part.buffers(), sink) for part in parts]
        packer, held = lowering.Packer(self.packing), []
        for part in parts:
            # Small tensors are never packed, so their data need not be read here.
            small = part.nbytes <= lowering.SMALL
            array: Any = part.like if small else part.read()
            packed = packer.add(array)
            if packed is not None:
                like = np.broadcast_to(np.uint8(0), packed.shape)
                held.append(_HeldPart(like, (packed.data,), sink))
            elif small:
                held.append(_HeldPart(array, part.buffers(), sink))
            else:
                array = np.ascontiguousarray(array)
                held.append(_HeldPart(part.like, (memory.chunk(array),), sink))
            # Without this, one tensor would stay in memory while the next one is read.
            del array, packed
        if padding := packer.padding():
            held[packer.last].pad(padding)
        return packer.spec(spec), held

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        """Returns the value. A file without checksums is read in one native call."""
        # The native reader checks the header as `headers.read` does, and returns None for anything
        # unusual. It knows the default limits only, and always copies or owns its arrays.
        plain = (
            kernels.read_named(data, bool(copy))
            if copy is not False and self.limits.is_default
            else None
        )
        if plain is None:
            return StreamedFormat.decode(self, data, copy)
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
        return StreamedFormat.decode(self, data, copy)

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
    matches = None if entry.crc is None else crc32c_matcher(entry.crc)
    return StoredPart(
        source, start, entry.row, entry.shape, copy, format=FORMAT, name=name, matches=matches
    )
