"""The npz format: NumPy's zip of named arrays.

NumPy opens every file that tensorwire writes, and sees sparse, ragged and string tensors as their
parts.

1. `lowering` takes the value apart. Part NAME is the member NAME.npy, as `np.savez` writes it.
2. The data of a stored member begin at a multiple of 64 bytes, so that they can be read in place.
3. One more member, tensorwire.json, holds what named arrays cannot express:
   `{"version": 1, "spec": ..., "metadata": {...}}`. It is left out for a plain dict of arrays.
4. Every member has a CRC-32, which is verified whenever the member is read whole.
5. tensorwire never extracts a zip, but other programs do. A name that would leave the target
   folder, or that zip cannot hold, is percent-encoded: `../x` is the member `%2E%2E/x.npy`. The
   spec keeps the original name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import lowering
from .._errors import ChecksumError, DecodeError, EncodeError, LimitError
from .._limits import DEFAULT, Budget, Limits
from ..core import dtypes
from ..core.memory import Buffer
from ..lowering import Node
from ..storage.files import Source
from ..transforms.compression import deflate
from ..wire import json as jsontext
from ..wire import npy as wire
from ..wire import zip as archive
from ..wire.zip import DEFLATED, STORED, Member
from .array_part import assign, is_plain_dict, little
from .container import BasePart, Part, Rows, UnreadablePart
from .npy_arrays import DESCRS, find
from .protocol import (
    Metadata,
    Stored,
    StreamedFormat,
    check_document,
    is_texts,
    without_metadata,
)
from .sinks import BLOCK, OutputPart, Sink
from .zip_member import InflatedSource, pack

FORMAT = "npz"
VERSION = 1
SPEC = "tensorwire.json"
ALIGN = 64
_SUFFIX = ".npy"
_COMPRESSIONS = (None, "zlib", "gzip")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f%\\]|^/|^(?=[A-Za-z]:)[A-Za-z]|(?:(?<=/)|^)\.\.?(?=/|$)")
"""Characters and parts of a name that are unsafe in a zip or a file system: control characters,
absolute paths, drives, and the steps "." and "..".
"""


def stem(name: str) -> str:
    """Returns the name of a tensor's member without ".npy", percent-encoded where it is unsafe.

    >>> stem("layers/0/kernel:0"), stem("../100%")
    ('layers/0/kernel:0', '%2E%2E/100%25')
    """
    return (
        name
        if _UNSAFE.search(name) is None
        else _UNSAFE.sub(lambda match: "".join(f"%{ord(char):02X}" for char in match[0]), name)
    )


@dataclass(frozen=True, slots=True)
class Npz(StreamedFormat):
    """The codec of npz files: named arrays, and every other kind as its parts.

    >>> import io, numpy as np
    >>> np.load(io.BytesIO(b"".join(Npz().encode({"a": np.int8([1, 2])}))))["a"]
    array([1, 2], dtype=int8)
    """

    name: ClassVar[str] = FORMAT
    compression: str | None = None
    """"zlib" or "gzip": both mean the deflate method of zip. A member that shrinks by less than
    1/64 is stored uncompressed, so that it can be read lazily.
    """
    level: int | None = None
    """The compression level of zlib, 0 to 9."""
    limits: Limits = DEFAULT

    @staticmethod
    def holds(row: dtypes.DType) -> bool:
        return row.name in DESCRS

    def write(
        self, sink: Sink, spec: Node, parts: Sequence[OutputPart], metadata: Metadata
    ) -> None:
        if self.compression not in _COMPRESSIONS:
            raise EncodeError(
                f"npz supports compression 'zlib' or 'gzip', not {self.compression!r}",
                format=FORMAT,
                hint="safetensors supports every compression",
            )
        spec = without_metadata(spec)
        names = [stem(name) for name in lowering.names(spec, len(parts))]
        writer = _ZipWriter(sink, self.compression is not None, self.level)
        for name, part in zip(names, parts, strict=True):
            writer.add(name + _SUFFIX, wire.write(DESCRS[part.dtype], part.shape), part)
        if metadata or not is_plain_dict(spec, names):
            document = {"version": VERSION, "spec": spec}
            writer.add(
                SPEC, jsontext.write(document | ({"metadata": metadata} if metadata else {}))
            )
        writer.finish()

    def stored(self, source: Source, copy: bool | None, budget: Budget) -> Stored:
        """Reads the central directory. A deflated member is read whole when its data are needed."""
        members = archive.members(little(source), source.size, budget.names + 1)
        document: dict[str, Any] | None = None
        parts: dict[str, Part] = {}
        for member in members:
            name = _name(member)
            if name == SPEC:
                document = _spec(source, member, budget)
            elif name.endswith(_SUFFIX):
                parts[name.removesuffix(_SUFFIX)] = _MemberPart(
                    source, member, name.removesuffix(_SUFFIX), copy, budget
                )
            else:
                raise DecodeError(
                    f"expected only .npy members, found {name!r:.60}",
                    offset=member.at,
                    hint=(
                        "a .pt file is read with torch.load; tw.save then writes its tensors"
                        if name.endswith("data.pkl")
                        else None
                    ),
                )
        if document is None:
            return Stored({"dict": {name: {} for name in parts}}, list(parts.values()), {})
        metadata = document.get("metadata", {})
        return Stored(*assign(document["spec"], metadata, parts, stem), metadata)


class _ZipWriter:
    """Writes the members of a zip one after the other.

    1. The local header of a member precedes the data, but holds their checksum.
    2. A large member is written piece by piece and never held in memory. The size of its header
       follows from its name and size, so room is reserved, and the header is filled in afterwards.
    3. A small member, and one to be compressed, is held in memory. It is stored uncompressed if
       deflate saves less than 1/64.
    """

    def __init__(self, sink: Sink, compress: bool, level: int | None) -> None:
        self._sink, self._compress, self._level, self._offset = sink, compress, level, 0
        self._members: list[Member] = []
        self._crc32 = deflate.backend().crc32

    def add(self, name: str, head: bytes, part: OutputPart | None = None) -> None:
        """Writes a member that consists of `head` and the data of a part."""
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise EncodeError(
                f"the name has {len(encoded)} bytes; zip allows 65535",
                format=FORMAT,
                tensor=name[:60],
            )
        size = len(head) + (0 if part is None else part.nbytes)
        flags = 0 if encoded.isascii() else archive.UTF8
        if part is None or self._compress or size <= BLOCK:
            data: list[Buffer] = [head]
            if part is not None:
                data += [part.whole_buffer()] if self._compress else part.buffers()
            self._whole(encoded, flags, data, size)
            return
        member = Member(encoded, STORED, 0, size, size, self._offset, flags)
        header = archive.local(member, ALIGN)
        place, crc = self._sink.reserve(len(header)), self._crc32(head)
        self._sink.write(head)
        for piece in part.buffers():
            crc = self._crc32(piece, crc)
            self._sink.write(piece)
            # Without this, one tensor would stay in memory while the next one is read.
            del piece
        self._sink.fill(place, archive.with_crc(header, crc))
        self._end(member._replace(crc=crc), len(header))

    def _whole(self, name: bytes, flags: int, data: list[Buffer], size: int) -> None:
        """Writes a member whose data are all in memory."""
        method, packed, crc = STORED, size, 0
        for piece in data:
            crc = self._crc32(piece, crc)
        if self._compress:
            smaller = pack(data, self._level)
            if (total := sum(map(len, smaller))) < size - size // 64:
                data, packed, method = [*smaller], total, DEFLATED
        member = Member(name, method, crc, packed, size, self._offset, flags)
        header = archive.local(member, ALIGN if method == STORED else 1)
        self._sink.write(header)
        for piece in data:
            self._sink.write(piece)
        self._end(member, len(header))

    def _end(self, member: Member, header: int) -> None:
        self._members.append(member)
        self._offset += header + member.packed

    def finish(self) -> None:
        """Writes the central directory."""
        self._sink.write(archive.end(self._members, self._offset))


def _name(member: Member) -> str:
    """Returns the name of a member: UTF-8 if its flag is set, else code page 437, zip's default."""
    try:
        return member.name.decode("utf-8" if member.flags & archive.UTF8 else "cp437")
    except UnicodeDecodeError:
        raise DecodeError("a member name is not UTF-8", offset=member.at) from None


def _spec(source: Source, member: Member, budget: Budget) -> dict[str, Any]:
    """Reads the member tensorwire.json, and checks its fields."""
    if member.size > budget.safetensors_header:
        allowed = budget.safetensors_header
        raise LimitError(
            f"{SPEC} has {member.size} bytes; Limits(safetensors_header=...) allows {allowed}",
            offset=member.at,
        )
    content, offset = _content(source, member, budget)
    text = content.read_at(offset, member.size)
    if member.method == STORED and deflate.backend().crc32(text) != member.crc:
        raise ChecksumError(f"{SPEC} does not match its checksum", offset=member.at)
    document = jsontext.parse(text, FORMAT, offset if member.method == STORED else member.at)
    fields = check_document(document, SPEC, VERSION, {"spec"}, {"metadata"}, member.at)
    if not is_texts(fields.get("metadata", {})):
        raise DecodeError(f"invalid {SPEC}: metadata must be strings", offset=member.at)
    return fields


def _content(source: Source, member: Member, budget: Budget) -> tuple[Source, int]:
    """Returns the source and the offset at which the uncompressed data of a member can be read."""
    offset = archive.data_at(little(source), member)
    if member.method == STORED:
        return source, offset
    return InflatedSource(source, offset, member, budget), 0


class _MemberPart(BasePart):
    """An array of the archive. Its headers are read when one of its properties is first used."""

    __slots__ = ("_budget", "_copy", "_member", "_part", "_source", "checksum", "name", "packed")

    def __init__(
        self, source: Source, member: Member, name: str, copy: bool | None, budget: Budget
    ) -> None:
        self.name, self.checksum, self.packed = (
            name,
            True,
            "deflate" if member.method == DEFLATED else None,
        )
        self._source, self._member, self._copy, self._budget = source, member, copy, budget
        self._part: Part | None = None

    @property
    def unreadable(self) -> bool:
        return isinstance(self._resolved(), UnreadablePart)

    @property
    def dtype(self) -> str:
        return self._resolved().dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._resolved().shape

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self._resolved().nbytes if self.packed is None else self._member.packed

    def read(self, rows: Rows = None) -> Any:
        """Returns the array and verifies its checksum, or some rows.

        A deflated member is inflated whole even for some rows, and so its checksum is verified.
        """
        try:
            return self._resolved().read(rows)
        except DecodeError as error:
            raise self._located(error) from None

    def _located(self, error: DecodeError) -> DecodeError:
        if self._member.method == DEFLATED:
            # An offset in the inflated data has no meaning in the file.
            error.offset = None
        return error.add(format=FORMAT, tensor=self.name, offset=self._member.at)

    def _resolved(self) -> Part:
        if self._part is None:
            try:
                self._part = self._open()
            except DecodeError as error:
                raise self._located(error) from None
        return self._part

    def _open(self) -> Part:
        member = self._member
        content, offset = _content(self._source, member, self._budget)
        array = find(content, offset, member.size, self._budget)
        if array.stop != offset + member.size:
            raise DecodeError(
                f"{offset + member.size - array.stop} unexpected bytes after the array",
                offset=array.stop,
            )
        # InflatedSource verifies the checksum of a deflated member. That of a stored member covers
        # the npy header and the data, so the check of the data starts from the CRC of the header.
        if member.method == DEFLATED:
            return array.part(content, self._copy, self._budget, FORMAT, self.name)
        crc32 = deflate.backend().crc32
        start = crc32(array.text)
        return array.part(
            content,
            self._copy,
            self._budget,
            FORMAT,
            self.name,
            lambda view: crc32(view, start) == member.crc,
        )
