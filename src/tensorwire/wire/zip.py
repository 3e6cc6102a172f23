"""zip archives, as far as npz files need them: members that are stored or deflated, one after the
other, and a directory at the end.

    local header | name | extra | data [| descriptor]   for each member
    directory entry | name | extra | comment            for each member
    [zip64 end | zip64 locator] | end

Everything is said twice, in a member's local header and in the directory, so the two must agree,
and a flipped bit shows. Members lie back to back from byte 0 to the directory, and nothing follows
the end: no byte belongs to two members, or to none. What does not matter for the data is not looked
at (times, permissions, comments of members). Sizes, places and counts past 32 and 16 bits are
zip64's.

Bytes and places only: whoever calls has a function that reads, packs and unpacks, and names are
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
"""Those that we understand; two of them only say how hard deflate tried."""
# signature, version, flags, method, time, CRC, packed, size, name, extra
_LOCAL = struct.Struct("<4sHHHIIIIHH")
_CRC = 14
"""Where a local header has the checksum."""
_ENTRY = struct.Struct("<4sHHHHIIIIHHHHHII")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_SIGNATURES = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_DESCRIPTOR = b"PK\x07\x08"
_MOST16, _MOST32 = 0xFFFF, 0xFFFFFFFF
_ZIP64, _ALIGNMENT = 1, 0xD935
"""Extra fields: the sizes that do not fit, and the padding that Android's zipalign writes."""
_1980 = 1 << 21 | 1 << 16
"""The first of January: the same data give the same bytes."""
_UNIX_0644 = 0o100644 << 16
_FIRST = 16 << 10
"""Bytes of the first read, which holds most directories whole."""

Read = Callable[[int, int], bytes | memoryview]
"""(place, count) -> exactly so many bytes."""


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
    """Where the local header begins."""
    flags: int = 0
    stop: int = 0
    """Where the next one begins, or the directory."""


def local(member: Member, align: int = 1) -> bytes:
    """The local header, padded so that the data begin at a multiple of `align`."""
    extra = b""
    if large := max(member.packed, member.size) >= _MOST32:
        extra = struct.pack("<HHQQ", _ZIP64, 16, member.size, member.packed)
    pad = -(member.at + _LOCAL.size + len(member.name) + len(extra)) % align
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
    """A local header with the checksum that was not known before."""
    return header[:_CRC] + crc.to_bytes(4, "little") + header[_CRC + 4 :]


def end(members: Sequence[Member], at: int) -> bytes:
    """The directory, which begins at `at`, and the end."""
    entries = []
    for one in members:
        large = [value for value in (one.size, one.packed, one.at) if value >= _MOST32]
        extra = struct.pack(f"<HH{len(large)}Q", _ZIP64, 8 * len(large), *large) if large else b""
        version = 45 if large else 20
        packed, size, place = (min(value, _MOST32) for value in (one.packed, one.size, one.at))
        entries.append(
            _ENTRY.pack(
                _SIGNATURES[1], 3 << 8 | version, version, one.flags, one.method, _1980, one.crc, packed, size,
                len(one.name), len(extra), 0, 0, 0, _UNIX_0644, place,
            )
            + one.name
            + extra
        )  # fmt: skip
    directory = b"".join(entries)
    count, size = len(members), len(directory)
    if count >= _MOST16 or max(size, at) >= _MOST32:
        directory += _END64.pack(_SIGNATURES[3], 44, 3 << 8 | 45, 45, 0, 0, count, count, size, at)
        directory += _LOCATOR.pack(_SIGNATURES[4], 0, at + size, 1)
    few, small, place = min(count, _MOST16), min(size, _MOST32), min(at, _MOST32)
    return directory + _END.pack(_SIGNATURES[2], 0, 0, few, few, small, place, 0)


def members(read: Read, total: int, most: int) -> list[Member]:
    """The members by the directory of an archive of `total` bytes, at most `most` of them."""
    start = max(0, total - _FIRST)
    tail = bytes(read(start, total - start))
    count, size, at, stop = _find(read, tail, total)
    if count > most:
        raise LimitError(
            f"{count} members, more than Limits(names=...) allows", offset=total - _END.size
        )
    if count * _ENTRY.size > size:
        raise DecodeError(f"{count} members in a directory of {size} bytes", offset=at)
    text = tail[at - start : stop - start] if at >= start else bytes(read(at, size))
    found: list[Member] = []
    place = 0
    for _ in range(count):
        member, place = _entry(text, place, at)
        found.append(member)
    if place != size:
        raise DecodeError(
            f"{size - place} bytes behind the last entry of the directory", offset=at + place
        )
    return _bounded(found, at)


def _find(read: Read, tail: bytes, total: int) -> tuple[int, int, int, int]:
    """(members, bytes of the directory, where it begins, where it ends)"""
    last = total - _END.size
    if last < 0 or tail[-_END.size : -_END.size + 4] != _SIGNATURES[2]:
        raise TruncatedError(
            "a zip ends in 'PK' 05 06 and 18 more bytes: this one is cut off, or has a comment",
            offset=max(last, 0),
        )
    _, disk, first, here, count, size, at, comment = _END.unpack_from(tail, len(tail) - _END.size)
    if disk or first or here != count or comment:
        raise DecodeError("a zip in several parts, or with a comment", offset=last)
    if count != _MOST16 and size != _MOST32 and at != _MOST32 and at + size == last:
        return count, size, at, last
    where = last - _LOCATOR.size
    mark, disk, far, disks = (
        _LOCATOR.unpack(bytes(read(where, _LOCATOR.size))) if where >= 0 else (b"", 0, 0, 0)
    )
    if mark != _SIGNATURES[4] or disk or disks != 1 or far + _END64.size != where:
        raise DecodeError(
            "the directory of the zip does not end where its end begins", offset=max(where, 0)
        )
    mark, rest, _, _, disk, first, here, many, long, begin = _END64.unpack(
        bytes(read(far, _END64.size))
    )
    if mark != _SIGNATURES[3] or rest != 44 or disk or first or here != many or begin + long != far:
        raise DecodeError(
            "the directory of the zip does not end where its zip64 end begins", offset=far
        )
    if (min(many, _MOST16), min(long, _MOST32), min(begin, _MOST32)) != (count, size, at):
        raise DecodeError("the two ends of the zip disagree", offset=last)
    return many, long, begin, far


def _entry(text: bytes, place: int, base: int) -> tuple[Member, int]:
    """(the member whose entry is at `place`, where the next one is)"""
    if len(text) - place < _ENTRY.size or text[place : place + 4] != _SIGNATURES[1]:
        raise DecodeError(
            "an entry of the directory begins with 'PK' 01 02", offset=base + min(place, len(text))
        )
    fields = _ENTRY.unpack_from(text, place)
    _, _, _, flags, method, _, crc, packed, size, names, extras, comments, disk, _, _, at = fields
    begin = place + _ENTRY.size
    stop = begin + names + extras + comments
    if stop > len(text):
        raise DecodeError("an entry of the directory runs past its end", offset=base + place)
    name = text[begin : begin + names]
    if _MOST32 in (size, packed, at):
        size, packed, at = _zip64(
            text[begin + names : begin + names + extras], (size, packed, at), base + begin
        )
    member = Member(name, method, crc, packed, size, at, flags)
    if flags & ~_FLAGS or disk:
        why = "is encrypted" if flags & 1 else "has flags that we do not know"
        raise DecodeError(f"member {_shown(name)} {why}", offset=base + place)
    if method not in (STORED, DEFLATED):
        raise DecodeError(
            f"member {_shown(name)} is packed by method {method}; we read stored and deflated ones",
            offset=base + place,
        )
    if method == STORED and packed != size:
        raise DecodeError(
            f"member {_shown(name)} is stored, and has two sizes", offset=base + place
        )
    return member, stop


def _zip64(extra: bytes, values: tuple[int, ...], offset: int) -> list[int]:
    """The values that did not fit, from their extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == _ZIP64:
            wide = extra[at + 4 : at + 4 + size]
            if len(wide) == 8 * values.count(_MOST32):
                numbers = iter(struct.unpack(f"<{len(wide) // 8}Q", wide))
                return [next(numbers) if value == _MOST32 else value for value in values]
            break
        at += 4 + size
    raise DecodeError(
        "sizes that do not fit 32 bits, and no extra field that has them", offset=offset
    )


def _bounded(found: list[Member], directory: int) -> list[Member]:
    """The members, each with the place where the next one begins; each name once."""
    if len({one.name for one in found}) != len(found):
        names = sorted(one.name for one in found)
        twice = next(name for name, other in pairwise(names) if name == other)
        raise DecodeError(f"two members are called {_shown(twice)}", offset=directory)
    places = sorted(one.at for one in found)
    if (places or [directory])[0]:
        raise DecodeError("something else before the first member", offset=0)
    if places and places[-1] > directory:
        raise DecodeError("a member begins behind the directory", offset=directory)
    # of two that begin at one place, one has no header there with its name
    stops = dict(pairwise([*places, directory]))
    return [Member(*one[:-1], stops[one.at]) for one in found]


def data_at(read: Read, member: Member) -> int:
    """Where a member's data begin: its local header must say what the directory says, and the data
    must end where the next one begins.
    """
    at: int = member.at
    room = member.stop - at
    head = bytes(read(at, min(room, _LOCAL.size + len(member.name) + 64))) if room > 0 else b""

    def bad(why: str, place: int = at) -> DecodeError:
        return DecodeError(f"member {_shown(member.name)} {why}", offset=place)

    if len(head) < _LOCAL.size or head[:4] != _SIGNATURES[0]:
        raise bad("does not begin with 'PK' 03 04 where the directory says")
    _, _, flags, method, _, crc, packed, size, names, extras = _LOCAL.unpack_from(head)
    start: int = at + _LOCAL.size + names + extras
    if head[_LOCAL.size : _LOCAL.size + names] != member.name or (flags, method) != (
        member.flags,
        member.method,
    ):
        raise bad("is another one by its own header than by the directory")
    if _MOST32 in (packed, size) and start <= member.stop:
        extra = bytes(read(start - extras, extras))
        size, packed = _zip64(extra, (size, packed), start - extras)
    said, told = (crc, packed, size), (member.crc, member.packed, member.size)
    # not known yet when it was written
    later = flags & DESCRIPTOR and all(
        mine in (0, its) for mine, its in zip(said, told, strict=True)
    )
    if said != told and not later:
        raise bad("has another size or checksum by its own header than by the directory")
    left = member.stop - start - member.packed
    if left and flags & DESCRIPTOR and left in (12, 16, 20, 24):
        text = bytes(read(member.stop - left, left))
        if left in (16, 24) and text[:4] == _DESCRIPTOR:
            text = text[4:]
        form = "<III" if len(text) == 12 else "<IQQ"
        if (form == "<IQQ" or max(told) <= _MOST32) and text == struct.pack(form, *told):
            return start
        raise bad(
            "has another size or checksum behind its data than by the directory", member.stop - left
        )
    if left or flags & DESCRIPTOR:
        raise bad(
            "overlaps the next one" if left < 0 else "leaves bytes that belong to nobody",
            max(at, member.stop - max(left, 0)),
        )
    return start


def _shown(name: bytes) -> str:
    return f"{name.decode('utf-8', 'replace')!r:.60}"
