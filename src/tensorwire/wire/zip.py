"""zip archives, as far as npz files need them: stored or deflated members and a directory.

    local header | name | extra | data [| descriptor]   for each member
    directory entry | name | extra | comment            for each member
    [zip64 end | zip64 locator] | end

Strategy for reading:
1. The end of the archive is found first: an archive with a comment, or with bytes after the end, is
   refused. Sizes, offsets and counts that do not fit 32 or 16 bits are in the zip64 end.
2. The directory must lie between the last member and the end, and have exactly the entries that the
   end counts.
3. Members must cover the archive from byte 0 to the directory: no byte belongs to two members or to
   none. So each member stops where the next one begins.
4. A member's local header repeats its entry in the directory. When a member is opened, the two must
   agree, so that a flipped bit in either is noticed.
5. Times, permissions and comments of members do not affect the data and are ignored.

This module has no I/O and no compression: the caller passes a function that reads, and names are
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from .._errors import DecodeError, LimitError, TruncatedError

STORED, DEFLATED = 0, 8
UTF8, DESCRIPTOR = 1 << 11, 1 << 3
_FLAGS = UTF8 | DESCRIPTOR | 0b110
"""The supported flags. Two of them only tell the compression level of deflate."""
# signature, version, flags, method, time, CRC, packed size, size, length of name, length of extra
_LOCAL = struct.Struct("<4sHHHIIIIHH")
_CRC = 14
"""The offset of the checksum in a local header."""
_ENTRY = struct.Struct("<4sHHHHIIIIHHHHHII")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_SIGNATURES = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_DESCRIPTOR = b"PK\x07\x08"
_MOST16, _MOST32 = 0xFFFF, 0xFFFFFFFF
_ZIP64, _ALIGNMENT = 1, 0xD935
"""Extra fields: sizes that do not fit 32 bits, and padding, as Android's zipalign writes it."""
_1980 = 1 << 21 | 1 << 16
"""1 January 1980. A constant time, so that the same data gives the same bytes."""
_UNIX_0644 = 0o100644 << 16
"""The permissions of a member."""
_FIRST = 16 << 10
"""Bytes of the first read, which contains most directories."""

Read = Callable[[int, int], bytes | memoryview]
"""(offset, count) -> exactly `count` bytes."""


class Member(NamedTuple):
    """A file of the archive."""

    name: bytes
    method: int
    crc: int
    packed: int
    """Bytes in the archive."""
    size: int
    """Bytes of the data."""
    at: int
    """The offset of the local header."""
    flags: int = 0
    stop: int = 0
    """Where the next member, or the directory, begins."""


def local(member: Member, align: int = 1) -> bytes:
    """Return the local header, padded so that the data begins at a multiple of `align`."""
    extra = b""
    if large := max(member.packed, member.size) >= _MOST32:
        extra = struct.pack("<HHQQ", _ZIP64, 16, member.size, member.packed)
    pad = -(member.at + _LOCAL.size + len(member.name) + len(extra)) % align
    # An extra field has at least six bytes: id, size and the alignment.
    if pad:
        pad += align if pad < 6 else 0
        extra += struct.pack("<HHH", _ALIGNMENT, pad - 4, align).ljust(pad, b"\0")
    sizes = (_MOST32, _MOST32) if large else (member.packed, member.size)
    version = 45 if large else 20
    fixed = _LOCAL.pack(
        _SIGNATURES[0],
        version,
        member.flags,
        member.method,
        _1980,
        member.crc,
        *sizes,
        len(member.name),
        len(extra),
    )
    return fixed + member.name + extra


def with_crc(header: bytes, crc: int) -> bytes:
    """Return a local header with the checksum filled in."""
    return header[:_CRC] + crc.to_bytes(4, "little") + header[_CRC + 4 :]


def end(members: Sequence[Member], start: int) -> bytes:
    """Return the directory, which begins at `start`, and the end of the archive."""
    entries = []
    for member in members:
        large = [value for value in (member.size, member.packed, member.at) if value >= _MOST32]
        extra = struct.pack(f"<HH{len(large)}Q", _ZIP64, 8 * len(large), *large) if large else b""
        version = 45 if large else 20
        packed, size, place = (
            min(value, _MOST32) for value in (member.packed, member.size, member.at)
        )
        entries.append(
            _ENTRY.pack(
                _SIGNATURES[1], 3 << 8 | version, version, member.flags, member.method, _1980, member.crc, packed, size,
                len(member.name), len(extra), 0, 0, 0, _UNIX_0644, place,
            )
            + member.name
            + extra
        )  # fmt: skip
    directory = b"".join(entries)
    count, size = len(members), len(directory)
    if count >= _MOST16 or max(size, start) >= _MOST32:
        directory += _END64.pack(
            _SIGNATURES[3], 44, 3 << 8 | 45, 45, 0, 0, count, count, size, start
        )
        directory += _LOCATOR.pack(_SIGNATURES[4], 0, start + size, 1)
    few, small, place = min(count, _MOST16), min(size, _MOST32), min(start, _MOST32)
    return directory + _END.pack(_SIGNATURES[2], 0, 0, few, few, small, place, 0)


def members(read: Read, total: int, most: int) -> list[Member]:
    """Return the members in the directory of an archive of `total` bytes.

    Raises LimitError if there are more than `most`, DecodeError if the archive is not valid.
    """
    start = max(0, total - _FIRST)
    tail = bytes(read(start, total - start))
    count, size, directory, stop = _find(read, tail, total)
    if count > most:
        raise LimitError(
            f"the zip archive has {count} members, and the limit is {most}",
            offset=total - _END.size,
            hint="pass a larger Limits(names=...)",
        )
    if count * _ENTRY.size > size:
        raise DecodeError(
            f"the zip directory has {size} bytes, too few for {count} members", offset=directory
        )
    text = (
        tail[directory - start : stop - start]
        if directory >= start
        else bytes(read(directory, size))
    )
    entries: list[Member] = []
    place = 0
    for _ in range(count):
        member, place = _entry(text, place, directory)
        entries.append(member)
    if place != size:
        raise DecodeError(
            f"{size - place} unexpected bytes after the last entry of the zip directory",
            offset=directory + place,
        )
    return _bounded(entries, directory)


def _find(read: Read, tail: bytes, total: int) -> tuple[int, int, int, int]:
    """Return the number of members, and the (size, start, stop) of the directory."""
    last = total - _END.size
    if last < 0 or tail[-_END.size : -_END.size + 4] != _SIGNATURES[2]:
        raise TruncatedError(
            "the end of the zip archive is missing: it is truncated, or has a comment",
            offset=max(last, 0),
        )
    _, disk, first, on_this_disk, count, size, start, comment = _END.unpack_from(
        tail, len(tail) - _END.size
    )
    if disk or first or on_this_disk != count or comment:
        raise DecodeError("split zip archives and archive comments are not supported", offset=last)
    if count != _MOST16 and size != _MOST32 and start != _MOST32 and start + size == last:
        return count, size, start, last
    where = last - _LOCATOR.size
    mark, disk, far, disks = (
        _LOCATOR.unpack(bytes(read(where, _LOCATOR.size))) if where >= 0 else (b"", 0, 0, 0)
    )
    if mark != _SIGNATURES[4] or disk or disks != 1 or far + _END64.size != where:
        raise DecodeError(
            "the zip directory does not end where the end of the archive begins",
            offset=max(where, 0),
        )
    mark, rest, _, _, disk, first, on_this_disk, many, long, begin = _END64.unpack(
        bytes(read(far, _END64.size))
    )
    if (
        mark != _SIGNATURES[3]
        or rest != 44
        or disk
        or first
        or on_this_disk != many
        or begin + long != far
    ):
        raise DecodeError(
            "the zip directory does not end where the zip64 end of the archive begins", offset=far
        )
    if (min(many, _MOST16), min(long, _MOST32), min(begin, _MOST32)) != (count, size, start):
        raise DecodeError("the zip64 end and the end of the zip archive disagree", offset=last)
    return many, long, begin, far


def _entry(text: bytes, place: int, base: int) -> tuple[Member, int]:
    """Return the member whose entry is at `place`, and where the next entry begins."""
    if len(text) - place < _ENTRY.size or text[place : place + 4] != _SIGNATURES[1]:
        raise DecodeError(
            "an entry of the zip directory has a wrong signature ('PK' 01 02 expected)",
            offset=base + min(place, len(text)),
        )
    fields = _ENTRY.unpack_from(text, place)
    (
        _,
        _,
        _,
        flags,
        method,
        _,
        crc,
        packed,
        size,
        names,
        extras,
        comments,
        disk,
        _,
        _,
        local_offset,
    ) = fields
    begin = place + _ENTRY.size
    stop = begin + names + extras + comments
    if stop > len(text):
        raise DecodeError("an entry runs past the end of the zip directory", offset=base + place)
    name = text[begin : begin + names]
    if _MOST32 in (size, packed, local_offset):
        size, packed, local_offset = _zip64(
            text[begin + names : begin + names + extras], (size, packed, local_offset), base + begin
        )
    member = Member(name, method, crc, packed, size, local_offset, flags)
    if flags & ~_FLAGS or disk:
        why = "is encrypted" if flags & 1 else "has unsupported flags"
        raise DecodeError(f"member {_shown(name)} {why}", offset=base + place)
    if method not in (STORED, DEFLATED):
        raise DecodeError(
            f"member {_shown(name)} has the unsupported compression method {method}: supported are"
            f" stored ({STORED}) and deflated ({DEFLATED})",
            offset=base + place,
        )
    if method == STORED and packed != size:
        raise DecodeError(
            f"member {_shown(name)} is stored, but its compressed size {packed} is not its size"
            f" {size}",
            offset=base + place,
        )
    return member, stop


def _zip64(extra: bytes, values: tuple[int, ...], offset: int) -> list[int]:
    """Return the values with those that did not fit 32 bits replaced from the zip64 extra field."""
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if kind == _ZIP64:
            wide = extra[position + 4 : position + 4 + size]
            if len(wide) == 8 * values.count(_MOST32):
                numbers = iter(struct.unpack(f"<{len(wide) // 8}Q", wide))
                return [next(numbers) if value == _MOST32 else value for value in values]
            break
        position += 4 + size
    raise DecodeError(
        "sizes do not fit 32 bits, and the zip64 extra field is missing or not valid",
        offset=offset,
    )


def _bounded(entries: list[Member], directory: int) -> list[Member]:
    """Return the members with `stop` set. Raises DecodeError for duplicate names and gaps."""
    if len({member.name for member in entries}) != len(entries):
        names = sorted(member.name for member in entries)
        twice = next(name for name, other in pairwise(names) if name == other)
        raise DecodeError(f"the member name {_shown(twice)} appears twice", offset=directory)
    places = sorted(member.at for member in entries)
    if (places or [directory])[0]:
        raise DecodeError("unexpected bytes before the first member of the zip", offset=0)
    if places and places[-1] > directory:
        raise DecodeError("a member begins after the zip directory", offset=directory)
    # If two members begin at the same offset, opening one of them fails, because the local header
    # there has the name of the other.
    stops = dict(pairwise([*places, directory]))
    return [Member(*member[:-1], stops[member.at]) for member in entries]


def data_at(read: Read, member: Member) -> int:
    """Return where a member's data begins.

    Raises DecodeError if the local header disagrees with the directory, or if the data does not end
    where the next member begins.
    """
    header_start: int = member.at
    room = member.stop - header_start
    head = (
        bytes(read(header_start, min(room, _LOCAL.size + len(member.name) + 64)))
        if room > 0
        else b""
    )

    def bad(why: str, place: int = header_start) -> DecodeError:
        return DecodeError(f"member {_shown(member.name)} {why}", offset=place)

    if len(head) < _LOCAL.size or head[:4] != _SIGNATURES[0]:
        raise bad("has no local header ('PK' 03 04) at the offset in the directory")
    _, _, flags, method, _, crc, packed, size, names, extras = _LOCAL.unpack_from(head)
    start: int = header_start + _LOCAL.size + names + extras
    if head[_LOCAL.size : _LOCAL.size + names] != member.name or (flags, method) != (
        member.flags,
        member.method,
    ):
        raise bad("has another name, flags or method in its local header than in the directory")
    if _MOST32 in (packed, size) and start <= member.stop:
        extra = bytes(read(start - extras, extras))
        size, packed = _zip64(extra, (size, packed), start - extras)
    local_values, directory_values = (crc, packed, size), (member.crc, member.packed, member.size)
    # A writer to a stream does not know sizes and checksum yet: they are zero in the local header,
    # and a descriptor after the data has them.
    written_later = flags & DESCRIPTOR and all(
        local_value in (0, directory_value)
        for local_value, directory_value in zip(local_values, directory_values, strict=True)
    )
    if local_values != directory_values and not written_later:
        raise bad("has another size or checksum in its local header than in the directory")
    gap = member.stop - start - member.packed
    # A descriptor has 32-bit or 64-bit sizes, with or without a signature.
    if gap and flags & DESCRIPTOR and gap in (12, 16, 20, 24):
        text = bytes(read(member.stop - gap, gap))
        if gap in (16, 24) and text[:4] == _DESCRIPTOR:
            text = text[4:]
        layout = "<III" if len(text) == 12 else "<IQQ"
        if (layout == "<IQQ" or max(directory_values) <= _MOST32) and text == struct.pack(
            layout, *directory_values
        ):
            return start
        raise bad(
            "has another size or checksum in its descriptor than in the directory",
            member.stop - gap,
        )
    if gap or flags & DESCRIPTOR:
        raise bad(
            "overlaps the next one" if gap < 0 else "is followed by bytes of no member",
            max(header_start, member.stop - max(gap, 0)),
        )
    return start


def _shown(name: bytes) -> str:
    return f"{name.decode('utf-8', 'replace')!r:.60}"
