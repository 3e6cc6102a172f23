"""Record indexes: sidecar files with the offset of every record, so that one read finds any record.

`NAME.idx`, little-endian:

    8 bytes    "TWINDEX1"
    u64        length of the JSON
    JSON       {"size", "mtime_ns": of the record file ("stamp" of an object); "compression";
               "records"; "units": their number; "crc32c": of the two arrays;
               "schema": the result of a full scan, or null}
    u32        CRC32C of all bytes before
    padding    to a multiple of 64
    int64      records + 1 numbers: the (uncompressed) offset of each frame, and the end of the last
    int64      units x 2 numbers: points where decompression can start, as (file offset,
               uncompressed offset)

An index is stale, and is ignored, if the size or the modification time of the record file differs,
or if its own checksums do not match. An index whose offsets decrease or lie outside the file is
ignored too. It is then built again from the file.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import storage
from .._errors import TensorwireError, TransportError, UsageError
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
"""Bytes per read when only headers are wanted: `_MUCH` for small records, `_LITTLE` for large ones.
"""


@dataclass(frozen=True)
class Index:
    """The offsets of the records of one file."""

    path: str
    size: int
    stamp: int | str
    """The modification time in ns, or an object's stamp."""
    compression: str | None
    offsets: Array
    """int64 [records + 1]"""
    units: Array
    """int64 [n, 2]: points where decompression can start, as (file offset, uncompressed offset)."""
    schema: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


def build(path: str, compression: str | None = None, limits: Limits | None = None) -> Index:
    """Build an index from the headers of an uncompressed file, or from all of a compressed one."""
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
        for block in _blocks.frames(stream, path, limits, check=False):
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
    """Return the number of records of a file, from a fresh index or from the headers."""
    index = load(path)
    return len(index if index is not None else build(path, compression, limits))


def _offsets(source: storage.Readable, limits: Limits) -> Array:
    """Return the offsets of all frames of an uncompressed file.

    Data between two headers is only read where it is so short that reading is faster than skipping.
    """
    parts, records, offset, step = [], 0, 0, _MUCH
    window = memory.fresh(_MUCH)
    while offset < source.size:
        count = min(step, source.size - offset)
        source.read_into(offset, window[:count])
        code, end, starts, _ = kernels.frame_scan(
            window[:count], 0, False, limits.record, _blocks.MOST
        )
        parts.append(offset + starts - tfrecord.HEADER)
        records += len(starts)
        if code not in (0, status.TRUNCATED):
            error = _blocks.fault(code, window, end, limits, first=records == 0)
            raise error.add(record=records, base=offset)
        # The last header in the window belongs to a record that ends behind the window. Its data is
        # skipped, and reads become short if the records are large.
        if count - end >= tfrecord.HEADER:
            following = end + tfrecord.HEADER + tfrecord.length_at(window, end) + tfrecord.FOOTER
            if offset + following > source.size:
                raise _blocks.torn(records, offset + end, source.size - offset - end)
            parts.append(np.array([offset + end]))
            records += 1
            step = _LITTLE if following - end > _MUCH else _MUCH
            end = following
        # Fewer bytes than a header are left in the file.
        elif end == 0:
            raise _blocks.torn(records, offset, count)
        offset += end
    return np.concatenate([*parts, [offset]]).astype(np.int64)


def _header(path: str) -> tuple[dict[str, Any], int] | None:
    """Return the JSON of a file's index and the offset of its arrays.

    Returns None if there is no valid index.
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
        facts = json.loads(text)
        numbers = [facts[name] for name in ("size", "records", "units")]
        if any(type(number) is not int or number < 0 for number in numbers):
            return None
        start = -(-(16 + length + 4) // 64) * 64
        return (
            (facts, start)
            if size == start + 8 * (facts["records"] + 1 + 2 * facts["units"])
            else None
        )
    # The index is missing, or is not one of our files.
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


def load(path: str) -> Index | None:
    """Return the index of a file if it exists and is valid for the file as it is now."""
    header = _header(path)
    if header is None:
        return None
    facts, start = header
    try:
        size, stamp = _blocks.stat_of(path)
        if (facts["size"], facts["mtime_ns" if isinstance(stamp, int) else "stamp"]) != (
            size,
            stamp,
        ):
            return None
        numbers = _numbers(paths.index_beside(path), start)
        records = facts["records"]
        if crc32c(numbers) != facts["crc32c"]:
            return None
        offsets, units = numbers[: records + 1], numbers[records + 1 :].reshape(-1, 2)
        index = Index(path, size, stamp, facts["compression"], offsets, units, facts["schema"])
        return index if _is_possible(index) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _is_possible(index: Index) -> bool:
    """Return whether records and units are in order and lie within the file."""
    offsets, units = index.offsets, index.units
    # Negative numbers go first, because the differences below could wrap around.
    if (offsets < 0).any() or (units < 0).any():
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
    """Return the two arrays of an index file."""
    if storage.is_url(path):
        with storage.source(path) as file:
            return np.frombuffer(file.read_at(start, file.size - start), np.dtype("<i8"))
    # The arrays are memory-mapped, so that an index of a billion records costs only the pages that
    # are used. That is safe because an index file is replaced by rename and never truncated.
    return np.asarray(np.memmap(path, np.dtype("<i8"), "r", start))


def size_when_indexed(path: str) -> int | None:
    """Return the size that a file had when its index was built, fresh or stale."""
    header = _header(path)
    return None if header is None else header[0].get("size")


def save(index: Index) -> bool:
    """Write an index beside its file and return whether that was possible.

    A read-only folder or server is not an error, because the index can be built again.
    """
    numbers = np.concatenate([index.offsets, index.units.reshape(-1)]).astype("<i8")
    facts = {
        "size": index.size,
        ("mtime_ns" if isinstance(index.stamp, int) else "stamp"): index.stamp,
        "compression": index.compression,
        "records": len(index),
        "units": len(index.units),
        "crc32c": crc32c(numbers),
        "schema": index.schema,
    }
    text = json.dumps(facts).encode()
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
    # UsageError: a web server cannot be written to.
    except (OSError, TransportError, UsageError):
        return False
    return True


def open_index(
    path: str, compression: str | None = None, limits: Limits | None = None, keep: bool = True
) -> Index:
    """Return the stored index of a file if it is fresh, else build one.

    A new index is stored if `keep`.
    """
    index = load(path)
    if index is None:
        index = build(path, compression, limits)
        if keep:
            save(index)
    return index
