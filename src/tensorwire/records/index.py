"""Where each record of a file begins, kept in a file beside it, so that record 123,456 is one read.

`NAME.idx`, little-endian:

    8 bytes    "TWINDEX1"
    u64        length of the JSON
    JSON       {"size", "mtime_ns": of the record file ("stamp" of an object); "compression";
               "records"; "units": how many;
               "crc32c": of the two arrays; "schema": what a full scan found, or null}
    u32        CRC32C of all bytes before
    padding    to a multiple of 64
    int64      where each record's frame begins (uncompressed), and where the last one ends: records
               + 1 numbers
    int64      units x 2: places from which decompression can start: (in the file, uncompressed)

An index is stale, and is not used, when the record file's size or time of change is another, or
when its own checksums do not hold. Nor is an index used whose offsets fall or lie outside of the
file. It is made again from the file.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import storage
from .._errors import EncodeError, TensorwireError, TransportError
from .._limits import DEFAULT, Limits
from ..core import memory
from ..storage import files
from ..transforms import compression as compressions
from ..wire import kernels, status, tfrecord
from ..wire.crc import crc32c
from . import blocks as _blocks
from . import paths

Array = np.ndarray[Any, Any]

MAGIC = b"TWINDEX1"
_MUCH, _LITTLE = 256 << 10, 4 << 10
"""Bytes read at once when only headers are wanted: much where records are small, little where they
are large.
"""


@dataclass(frozen=True)
class Index:
    """Where the records of one file are."""

    path: str
    size: int
    stamp: int | str
    """The time of change in ns, or an object's stamp."""
    compression: str | None
    offsets: Array
    """int64 [records + 1]"""
    units: Array
    """int64 [n, 2]"""
    schema: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


def build(path: str, compression: str | None = None, limits: Limits | None = None) -> Index:
    """Reads the headers of a plain file, or all of a compressed one."""
    limits = limits or DEFAULT
    size, stamp = _blocks.stat_of(path)
    source = storage.opened(path, ahead=True)
    try:
        name = _blocks.compression_of(source, compression)
        if name is None:
            return Index(
                path, size, stamp, None, _offsets(source, limits), np.zeros((0, 2), np.int64)
            )
        stream = _blocks.Compressed(source, name, 0, limits)
        parts, end = [], 0
        for block in _blocks.frames(stream, path, None, False, limits, memory.MemoryPool(), 0, 0):
            parts.append(block.offset + block.starts - tfrecord.HEADER)
            end = block.offset + int(block.starts[-1] + block.sizes[-1]) + tfrecord.FOOTER
        units = np.array(stream.units, np.int64).reshape(-1, 2)
        return Index(
            path, size, stamp, name, np.concatenate([*parts, [end]]).astype(np.int64), units
        )
    except TensorwireError as error:
        raise error.add(path=path, format="tfrecord") from error.__cause__
    finally:
        source.close()


def count(path: str, compression: str | None = None, limits: Limits | None = None) -> int:
    """How many records a file has: from its index where that is fresh, else from the headers alone."""
    known = load(path)
    return len(known if known is not None else build(path, compression, limits))


def _offsets(source: storage.Readable, limits: Limits) -> Array:
    """Frame after frame; the data between two headers is only read where it is so short that
    reading it is quicker than not.
    """
    parts, found, at, step = [], 0, 0, _MUCH
    window = memory.fresh(_MUCH)
    while at < source.size:
        count = min(step, source.size - at)
        source.read_into(at, window[:count])
        code, end, starts, _ = kernels.frame_scan(
            window[:count], 0, False, limits.record, _blocks.MOST
        )
        parts.append(at + starts - tfrecord.HEADER)
        found += len(starts)
        if code not in (0, status.TRUNCATED):
            error = _blocks.fault(code, window, end, limits, first=found == 0)
            raise error.add(record=found, base=at)
        if count - end >= tfrecord.HEADER:  # a header whose record goes on behind the window
            following = end + tfrecord.HEADER + tfrecord.length_at(window, end) + tfrecord.FOOTER
            if at + following > source.size:
                raise _blocks.torn(found, at + end, source.size - at - end)
            parts.append(np.array([at + end]))
            found += 1
            step = _LITTLE if following - end > _MUCH else _MUCH
            end = following
        elif end == 0:  # less than a header is left
            raise _blocks.torn(found, at, count)
        at += end
    return np.concatenate([*parts, [at]]).astype(np.int64)


def _about(path: str) -> tuple[dict[str, Any], int] | None:
    """What the index beside a file says of itself, and where its arrays begin; None if there is
    none that holds.
    """
    try:
        with storage.opened(paths.index_beside(path), ahead=True) as file:
            size = file.size
            head = file.read_bytes(0, 16)
            if head[:8] != MAGIC:
                return None
            length = struct.unpack("<Q", head[8:])[0]
            if length > size:
                return None
            text, checksum = file.read_bytes(16, length), file.read_bytes(16 + length, 4)
        if crc32c(head + text) != struct.unpack("<I", checksum)[0]:
            return None
        about = json.loads(text)
        numbers = [about[name] for name in ("size", "records", "units")]
        if any(type(number) is not int or number < 0 for number in numbers):
            return None
        start = -(-(16 + length + 4) // 64) * 64
        return (
            (about, start)
            if size == start + 8 * (about["records"] + 1 + 2 * about["units"])
            else None
        )
    except (OSError, KeyError, TypeError, ValueError, RecursionError):  # missing, or not ours
        return None


def load(path: str) -> Index | None:
    """The index beside a file, if there is one and it is true."""
    found = _about(path)
    if found is None:
        return None
    about, start = found
    try:
        size, stamp = _blocks.stat_of(path)
        if (about["size"], about["mtime_ns" if isinstance(stamp, int) else "stamp"]) != (
            size,
            stamp,
        ):
            return None
        numbers = _numbers(paths.index_beside(path), start)
        records = about["records"]
        if crc32c(numbers) != about["crc32c"]:
            return None
        offsets, units = numbers[: records + 1], numbers[records + 1 :].reshape(-1, 2)
        index = Index(path, size, stamp, about["compression"], offsets, units, about["schema"])
        return index if _is_possible(index) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _is_possible(index: Index) -> bool:
    """Whether records and units lie one behind the other, and inside of the file."""
    offsets, units = index.offsets, index.units
    if (offsets < 0).any() or (units < 0).any():  # else differences could wrap around
        return False
    if offsets[0] != 0 or (np.diff(offsets) < tfrecord.HEADER + tfrecord.FOOTER).any():
        return False
    if index.compression is None:
        return int(offsets[-1]) == index.size and not len(units)
    if index.compression not in compressions.TABLE or not len(units) or units[0].any():
        return False
    inside = int(units[-1, 0]) <= index.size and int(units[-1, 1]) <= int(offsets[-1])
    return inside and not (np.diff(units, axis=0) < 0).any()


def _numbers(path: str, start: int) -> Array:
    if storage.is_url(path):
        with storage.source(path) as file:
            return np.frombuffer(file.read_at(start, file.size - start), np.dtype("<i8"))
    # Mapped, so that an index of a billion records costs only the pages that are looked at; it is
    # replaced whole, never cut.
    return np.asarray(np.memmap(path, np.dtype("<i8"), "r", start))


def size_when_indexed(path: str) -> int | None:
    """How large a file was when its index was made, fresh or stale."""
    found = _about(path)
    return None if found is None else found[0].get("size")


def save(index: Index) -> bool:
    """Puts an index beside its file; False where that is not allowed, which is no fault: it can be
    built again.
    """
    numbers = np.concatenate([index.offsets, index.units.reshape(-1)]).astype("<i8")
    about = {
        "size": index.size,
        ("mtime_ns" if isinstance(index.stamp, int) else "stamp"): index.stamp,
        "compression": index.compression,
        "records": len(index),
        "units": len(index.units),
        "crc32c": crc32c(numbers),
        "schema": index.schema,
    }
    text = json.dumps(about).encode()
    head = MAGIC + struct.pack("<Q", len(text)) + text
    head += struct.pack("<I", crc32c(head))
    place, parts = (
        paths.index_beside(index.path),
        [head + bytes(-len(head) % 64), memory.chunk(numbers)],
    )
    try:
        if storage.is_url(place):
            storage.write_bytes(place, kernels.join(parts))
        else:
            files.replace(place, parts, durable=False)
    except (OSError, EncodeError, TransportError):  # web servers are not written to
        return False
    return True


def open_index(
    path: str, compression: str | None = None, limits: Limits | None = None, keep: bool = True
) -> Index:
    """The index of a file: the one beside it if it is fresh, else a new one, which is put there if
    `keep`.
    """
    known = load(path)
    if known is None:
        known = build(path, compression, limits)
        if keep:
            save(known)
    return known


def add_schema(index: Index, schema: dict[str, Any]) -> Index:
    """The same index with what a full scan found."""
    return replace(index, schema=schema)
