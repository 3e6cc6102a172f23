"""npz: NumPy's zip of named arrays. NumPy opens every file that we write, and other kinds as their
parts.

A value is taken apart by `lowering`; part NAME is the member NAME.npy, as `np.savez` writes it.
Stored members begin at a multiple of 64, so that they can be read in place. What arrays by name
cannot say is one more member, tensorwire.json:

    {"version": 1, "spec": ..., "metadata": {...}}

left out when a plain dict of arrays says it all. Every member has a CRC-32, which is always checked
when it is read whole.

We never extract a zip, but others do, so a name that would lead somewhere else, or that zip cannot
hold, is written with percent signs: `../x` is the member `%2E%2E/x.npy`. The spec knows its own
name.
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
from .protocol import Metadata, Stored, StreamedFormat, without_metadata
from .sinks import BLOCK, OutputPart, Sink
from .zip_member import InflatedSource, pack

FORMAT = "npz"
VERSION = 1
SPEC = "tensorwire.json"
ALIGN = 64
_SUFFIX = ".npy"
_COMPRESSIONS = (None, "zlib", "gzip")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f%\\]|^/|^(?=[A-Za-z]:)[A-Za-z]|(?:(?<=/)|^)\.\.?(?=/|$)")
"""What zip or a file system would take for something else: control characters, an absolute path or
a drive, steps up.
"""


def stem(name: str) -> str:
    """What a tensor's member is called, without ".npy".

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
    """Named arrays as NumPy stores them, and every other kind as its parts.

    >>> import io, numpy as np
    >>> np.load(io.BytesIO(b"".join(Npz().encode({"a": np.int8([1, 2])}))))["a"]
    array([1, 2], dtype=int8)
    """

    name: ClassVar[str] = FORMAT
    compression: str | None = None
    """"zlib" or "gzip": both mean zip's own deflate. A member that it makes smaller by less than
    1/64 is stored, and stays lazy.
    """
    level: int | None = None
    """0 to 9, as zlib's."""
    limits: Limits = DEFAULT

    @staticmethod
    def holds(row: dtypes.DType) -> bool:
        return row.name in DESCRS

    def write(
        self, sink: Sink, spec: Node, parts: Sequence[OutputPart], metadata: Metadata
    ) -> None:
        if self.compression not in _COMPRESSIONS:
            why = (
                f"npz has deflate, by the name of 'zlib' or 'gzip', and not {self.compression!r};"
                " safetensors takes any"
            )
            raise EncodeError(why, format=FORMAT)
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
        """Reads the directory at the end. A deflated member is read whole when it is asked for."""
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
                why = f"member {name!r:.60} is no .npy file; an npz file holds nothing else"
                hint = (
                    " (is it a .pt file of torch? Load it there, and save its tensors here)"
                    if name.endswith("data.pkl")
                    else ""
                )
                raise DecodeError(why + hint, offset=member.at)
        if document is None:
            return Stored({"dict": {name: {} for name in parts}}, list(parts.values()), {})
        metadata = document.get("metadata", {})
        return Stored(*assign(document["spec"], metadata, parts, stem), metadata)


class _ZipWriter:
    """Puts members one after the other.

    1. The local header of a member has the checksum of its data, and is in front of them.
    2. A large member is written as its data come, which never are in memory as a whole. The size
       of its header follows from its name and size, so room is left for it.
    3. A small member, and one to be compressed, is read whole. It is stored if deflate saves less
       than 1/64.
    """

    def __init__(self, sink: Sink, compress: bool, level: int | None) -> None:
        self._sink, self._compress, self._level, self._offset = sink, compress, level, 0
        self._members: list[Member] = []
        self._crc32 = deflate.backend().crc32

    def add(self, name: str, head: bytes, part: OutputPart | None = None) -> None:
        """Writes a member: `head`, and then the data of a part."""
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise EncodeError(
                f"a name of {len(encoded)} bytes; zip ends at 65535",
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
            del piece  # A tensor must not stay in memory until the next one is read.
        self._sink.fill(place, archive.with_crc(header, crc))
        self._end(member._replace(crc=crc), len(header))

    def _whole(self, name: bytes, flags: int, data: list[Buffer], size: int) -> None:
        """Writes a member whose data are in memory."""
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
        """Writes the directory."""
        self._sink.write(archive.end(self._members, self._offset))


def _name(member: Member) -> str:
    """UTF-8 where the member says so, else the characters of the first PCs, as zip has it."""
    try:
        return member.name.decode("utf-8" if member.flags & archive.UTF8 else "cp437")
    except UnicodeDecodeError:
        raise DecodeError("the name of a member is not UTF-8", offset=member.at) from None


def _spec(source: Source, member: Member, budget: Budget) -> dict[str, Any]:
    """What tensorwire.json says."""
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
    if not isinstance(document, dict) or document.get("version") != VERSION:
        version = document.get("version") if isinstance(document, dict) else None
        raise DecodeError(
            f"a {SPEC} of version {version!r:.20}, which this release does not read",
            offset=member.at,
        )
    metadata = document.get("metadata", {})
    ok = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    if not ok or not {"version", "spec"} <= document.keys() <= {"version", "spec", "metadata"}:
        raise DecodeError(
            f"{SPEC} has version, spec and perhaps metadata, which are text, and nothing else",
            offset=member.at,
        )
    return document


def _content(source: Source, member: Member, budget: Budget) -> tuple[Source, int]:
    """Where a member's data can be read: the source, and the place in it."""
    offset = archive.data_at(little(source), member)
    if member.method == STORED:
        return source, offset
    return InflatedSource(source, offset, member, budget), 0


class _MemberPart(BasePart):
    """An array of the archive. Its headers are read when something is asked of it."""

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
        """As stored."""
        return self._resolved().nbytes if self.packed is None else self._member.packed

    def read(self, rows: Rows = None) -> Any:
        """All of it, its checksum verified, or some rows, for which there is none unless the member
        is deflated.
        """
        try:
            return self._resolved().read(rows)
        except DecodeError as error:
            raise self._located(error) from None

    def _located(self, error: DecodeError) -> DecodeError:
        if self._member.method == DEFLATED:
            error.offset = None  # a place in what was inflated is none in the file
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
                f"{offset + member.size - array.stop} bytes behind the data of the array",
                offset=array.stop,
            )
        if member.method == DEFLATED:  # which is checked as it is inflated
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
