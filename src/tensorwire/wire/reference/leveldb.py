"""Blocks of LevelDB tables, and the entries of a checkpoint index in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.memory import flat
from .. import status
from .protobuf import FIXED32, LEN, VARINT, WireFault, fixed, length, skip, tag, varint

_INT64_MAX = (1 << 63) - 1
_RANK = 254
_WIRES = {1: VARINT, 2: LEN, 3: VARINT, 4: VARINT, 5: VARINT, 6: FIXED32, 7: LEN}


def table_block(data: Any, room: int) -> tuple[Any, ...]:
    view = flat(data)
    try:
        end, count = _measure(view, room)
        keys, starts, sizes = _read(view, end, count)
    except WireFault as fault:
        return fault.status, fault.offset, None
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.array([len(key) for key in keys], np.int64), out=offsets[1:])
    return 0, end, b"".join(keys), offsets, np.array(starts, np.int64), np.array(sizes, np.int64)


def _restarts(view: memoryview) -> tuple[int, list[int]]:
    """Return where the entries end, and the offsets of the restarts."""
    size = len(view)
    if size < 4:
        raise WireFault(status.TRUNCATED, size)
    count = int.from_bytes(view[size - 4 :], "little")
    if not 0 < count <= (size - 4) // 4:
        raise WireFault(status.BAD_RESTARTS, size - 4)
    end = size - 4 - 4 * count
    return end, [
        int.from_bytes(view[offset : offset + 4], "little") for offset in range(end, size - 4, 4)
    ]


def _head(view: memoryview, offset: int, end: int) -> tuple[int, int, int, int]:
    """Return the head of an entry: bytes shared with the previous key, bytes added, bytes of the
    value, and the offset of the added bytes.
    """
    start = offset
    shared, offset = varint(view, offset, end)
    added, offset = varint(view, offset, end)
    value, offset = varint(view, offset, end)
    if added + value > end - offset:
        raise WireFault(status.TRUNCATED, start)
    return shared, added, value, offset


def _measure(view: memoryview, room: int) -> tuple[int, int]:
    """Check the entries of a block, and return where they end and how many there are.

    Each restart must be the offset of an entry that shares nothing with the previous key, and the
    full keys together must not have more than `room` bytes.
    """
    end, restarts = _restarts(view)
    offset = restart_index = last = total = count = 0
    while offset < end:
        start = offset
        restart = restart_index < len(restarts) and restarts[restart_index] == offset
        restart_index += restart
        shared, added, value, offset = _head(view, offset, end)
        if shared > last:
            raise WireFault(status.BAD_PREFIX, start)
        if (restart and shared) or (start == 0 and not restart):
            raise WireFault(status.BAD_RESTARTS, start)
        last = shared + added
        total += last
        if total > room:
            raise WireFault(status.OVER_LIMIT, start)
        count += 1
        offset += added + value
    # An empty block has one restart too.
    if not count and restarts == [0]:
        restart_index = 1
    if restart_index != len(restarts):
        raise WireFault(status.BAD_RESTARTS, end + 4 * restart_index)
    return end, count


def _walk(view: memoryview, end: int, count: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield (number, key, offset of the value, size of the value) of each entry."""
    offset, last = 0, b""
    for i in range(count):
        start = offset
        shared, added, value, offset = _head(view, offset, end)
        key = last[:shared] + bytes(view[offset : offset + added])
        if i and key <= last:
            raise WireFault(status.KEY_ORDER, start)
        last, offset = key, offset + added
        yield i, key, offset, value
        offset += value


def _read(view: memoryview, end: int, count: int) -> tuple[list[bytes], list[int], list[int]]:
    rows = list(_walk(view, end, count))
    return [row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]


def bundle_block(
    block: Any, room: int, first: int, suffix: bytes, itemsizes: bytes, shards: int
) -> tuple[Any, ...]:
    view = flat(block)
    if len(itemsizes) != 256:
        raise ValueError("256 item sizes")
    try:
        end, count = _measure(view, room)
    except WireFault as fault:
        return fault.status, fault.offset, None
    if first > count:
        raise ValueError("fewer entries than are to be left out")
    names: list[str | bytes] = []
    shapes, places, crcs, kinds, key = [], [], [], [], b""
    walk = _walk(view, end, count)
    while True:
        try:
            number, key, start, size = next(walk, (count, key, 0, 0))
        except WireFault as fault:
            return fault.status, fault.offset, None
        if number == count:
            break
        if number < first:
            continue
        stripped = bool(suffix) and key[:1] != b"\0" and key.endswith(suffix)
        try:
            (dtype, shard, offset, length, crc, elements, slices), shape = _entry(
                view, start, start + size
            )
            _check(dtype, shard, length, elements, slices, itemsizes, shards, start)
            names.append(
                key if key[:1] == b"\0" else key[: len(key) - len(suffix) * stripped].decode()
            )
        except WireFault as fault:
            return fault.status, fault.offset, key
        except UnicodeDecodeError:
            return status.BAD_UTF8, start, key
        shapes.append(shape)
        places.append((shard, offset, length))
        crcs.append(crc)
        kinds.append(
            (dtype, stripped, slices != 0, b"." in key[: len(key) - len(suffix) * stripped])
        )
    columns = (
        np.array(places, np.int64).reshape(-1, 3).T.reshape(-1),
        np.array(kinds, np.uint8).reshape(-1, 4).T.reshape(-1),
    )
    return 0, end, key, names, shapes, columns[0], np.array(crcs, np.uint32), columns[1]


def _check(
    dtype: int,
    shard: int,
    size: int,
    elements: int,
    slices: int,
    itemsizes: bytes,
    shards: int,
    offset: int,
) -> None:
    itemsize = itemsizes[dtype] if dtype < 256 else 0
    if itemsize == 0:
        raise WireFault(status.NO_DTYPE, offset)
    if shard >= shards:
        raise WireFault(status.NO_SHARD, offset)
    if size if slices else itemsize != 255 and size != elements * itemsize:
        raise WireFault(status.WRONG_SIZE, offset)


def _entry(view: memoryview, start: int, end: int) -> tuple[list[int], tuple[int, ...]]:
    """Return [dtype, shard, offset, size, crc, elements, slices] and the shape of a tensor."""
    values, elements, slices, offset = dict.fromkeys((1, 3, 4, 5, 6), 0), 1, 0, start
    shape: tuple[int, ...] = ()
    seen = set()
    while offset < end:
        begin = offset
        field, wire, offset = tag(view, offset, end)
        # Newer versions of TensorFlow may add fields.
        if field not in _WIRES:
            offset = skip(view, offset, end, field, wire)
            continue
        if wire != _WIRES[field]:
            raise WireFault(status.UNKNOWN_FIELD, begin)
        if field in seen and field != 7:
            raise WireFault(status.REPEATED, begin)
        seen.add(field)
        if wire == FIXED32:
            after = fixed(4, offset, end)
            values[field] = int.from_bytes(view[offset:after], "little")
        elif wire == VARINT:
            values[field], after = varint(view, offset, end)
            if values[field] > _INT64_MAX:
                raise WireFault(status.OUT_OF_RANGE, begin)
        else:
            size, offset = length(view, offset, end)
            after = offset + size
            if field == 2:
                shape, elements = _shape(view, offset, after)
            slices += field == 7
        offset = after
    if values[4] + values[5] > _INT64_MAX:
        raise WireFault(status.OUT_OF_RANGE, start)
    return [*values.values(), elements, slices], shape


def _shape(view: memoryview, offset: int, end: int) -> tuple[tuple[int, ...], int]:
    start = offset
    dims: list[int] = []
    while offset < end:
        begin = offset
        field, wire, offset = tag(view, offset, end)
        if (field, wire) == (2, LEN):
            size, offset = length(view, offset, end)
            dim = _dim(view, offset, offset + size)
            if len(dims) == _RANK:
                raise WireFault(status.TOO_MANY_DIMS, offset)
            dims.append(dim)
            offset += size
        elif (field, wire) == (3, VARINT):
            unknown, offset = varint(view, offset, end)
            if unknown:
                raise WireFault(status.NEGATIVE_DIM, begin)
        else:
            offset = skip(view, offset, end, field, wire)
    bound = elements = 1
    for dim in dims:
        bound, elements = bound * (dim or 1), elements * dim
        if bound > _INT64_MAX:
            raise WireFault(status.TOO_LARGE, start)
    return tuple(dims), elements


def _dim(view: memoryview, offset: int, end: int) -> int:
    start, value, seen = offset, 0, False
    while offset < end:
        begin = offset
        field, wire, offset = tag(view, offset, end)
        if (field, wire) == (1, VARINT):
            if seen:
                raise WireFault(status.REPEATED, begin)
            seen = True
            value, offset = varint(view, offset, end)
        else:
            offset = skip(view, offset, end, field, wire)
    if value > _INT64_MAX:
        raise WireFault(status.NEGATIVE_DIM, start)
    return value
