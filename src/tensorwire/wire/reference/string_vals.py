"""String values of a TensorProto, in string_val and in tensor_content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...core.memory import Array, flat
from .. import status
from .protobuf import LEN, WireFault, length, skip, tag, to_varint, varint


def _pieces(data: Any, offsets: Array) -> Iterator[Any]:
    view, bounds = flat(data), offsets.tolist()
    for start, stop in zip(bounds, bounds[1:], strict=False):
        if not 0 <= start <= stop <= len(view):
            raise ValueError("offsets must not decrease")
        yield view[start:stop]


def string_vals(prefix: Any, data: Any, offsets: Array) -> bytes:
    out = bytearray(prefix)
    for piece in _pieces(data, offsets):
        out += b"\x42" + to_varint(len(piece)) + piece
    return bytes(out)


def string_lengths(prefix: Any, data: Any, offsets: Array) -> bytes:
    return bytes(prefix) + b"".join(to_varint(len(piece)) for piece in _pieces(data, offsets))


def _walk(view: memoryview, start: int, only_strings: bool) -> Iterator[tuple[int, int, int]]:
    offset, end = start, len(view)
    while offset < end:
        begin = offset
        field, wire, offset = tag(view, offset, end)
        if (field, wire) == (8, LEN):
            size, offset = length(view, offset, end)
            yield begin, offset, size
            offset += size
        elif only_strings:
            raise WireFault(status.MIXED_FIELDS, begin)
        else:
            offset = skip(view, offset, end, field, wire)


def find_string_vals(
    data: Any, start: int, only_strings: bool, n: int
) -> tuple[int, int, int, Array, Array]:
    view = _bounded(data, start, n)
    starts, sizes, count, code, offset = (
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        0,
        0,
        len(view),
    )
    try:
        for _, position, size in _walk(view, start, only_strings):
            if count < n:
                starts[count], sizes[count] = position, size
            count += 1
    except WireFault as fault:
        code, offset = fault.status, fault.offset
    return code, offset, count, starts, sizes


def parse_string_vals(
    data: Any, start: int, only_strings: bool, n: int, room: int
) -> tuple[int, int, int, int, Array, Array]:
    view = _bounded(data, start, n, room)
    out, offsets, used, count = np.empty(room, np.uint8), np.zeros(n + 1, np.int64), 0, 0
    try:
        for begin, offset, size in _walk(view, start, only_strings):
            if count < n:
                if size > room - used:
                    raise WireFault(status.NO_SPACE, begin)
                out[used : used + size] = np.frombuffer(view[offset : offset + size], np.uint8)
                used += size
                offsets[count + 1] = used
            count += 1
    except WireFault as fault:
        return fault.status, fault.offset, count, used, out, offsets
    return 0, len(view), count, used, out, offsets


def _bounded(data: Any, start: int, n: int, room: int = 0) -> memoryview:
    view = flat(data)
    if max(start, n, room) > len(view):
        raise ValueError("more strings than bytes")
    return view


def parse_string_lengths(data: Any, n: int) -> tuple[int, int, Array]:
    view = _bounded(data, 0, n)
    offsets, total, offset = np.zeros(n + 1, np.int64), 0, 0
    try:
        for i in range(n):
            start = offset
            size, offset = varint(view, offset, len(view))
            total += size
            if total > len(view):
                raise WireFault(status.TRUNCATED, start)
            offsets[i + 1] = total
    except WireFault as fault:
        return fault.status, fault.offset, offsets
    if total != len(view) - offset:
        return (
            (status.TRUNCATED, offset, offsets)
            if total > len(view) - offset
            else (status.TOO_MANY, offset + total, offsets)
        )
    return 0, offset, offsets
