"""Encoding of columns as tf.train.Example and SequenceExample messages.

Offsets or splits that are out of range raise `WireFault`, which ends the loop over rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...core.memory import Array
from .. import status
from .example_protobuf import BYTES, FLOAT, INT64
from .protobuf import WireFault, to_varint
from .tfrecord import frame

_DTYPES: dict[int, Any] = {BYTES: np.uint8, FLOAT: np.float32, INT64: np.int64}


class EncodeInput(NamedTuple):
    name: bytes
    kind: int
    list: bool
    length: int
    values: Array
    offsets: Array | None
    splits: Array | None
    steps: Array | None
    present: Array | None


def example_encode(
    columns: list[Any],
    sequence: bool,
    first: int,
    step: int,
    count: int,
    framed: bool,
    out: Array,
    ends: Array | None,
) -> tuple[int, int, int, int]:
    inputs = [checked(EncodeInput(*column), sequence) for column in columns]
    if ends is not None and len(ends) < count:
        raise ValueError("ends must have room for every message")
    used = 0
    for done in range(count):
        try:
            message = message_of(inputs, sequence, first + done * step)
        except WireFault as fault:
            return fault.status, done, used, 0
        if framed:
            message = frame(message)
        if len(message) > len(out) - used:
            return status.NO_SPACE, done, used, len(message)
        out[used : used + len(message)] = np.frombuffer(message, np.uint8)
        used += len(message)
        if ends is not None:
            ends[done] = used
    return 0, count, used, 0


def checked(column: EncodeInput, sequence: bool) -> EncodeInput:
    """Check a column for mistakes of the caller. Those in the data are found row by row."""
    if column.kind not in _DTYPES or column.length < -1 or (column.list and not sequence):
        raise ValueError("a kind, length or list that no column has")
    if column.values.dtype != _DTYPES[column.kind]:
        raise TypeError("values have the type of their column")
    needs = (column.kind == BYTES, column.length < 0, column.list)
    if needs != tuple(part is not None for part in (column.offsets, column.splits, column.steps)):
        raise ValueError("a column has the parts that it needs")
    if column.offsets is not None and not len(column.offsets):
        raise ValueError("offsets must hold at least one number")
    return column


def message_of(columns: list[EncodeInput], sequence: bool, row: int) -> bytes:
    parts = {False: b"", True: b""}
    for column in columns:
        if column.present is None or item(column.present, row):
            value = feature_list(column, row) if column.list else feature(column, row)
            parts[column.list] += block(1, block(1, column.name) + block(2, value))
    message = block(1, parts[False]) + (block(2, parts[True]) if sequence else b"")
    if len(message) > status.MAX_MESSAGE:
        raise WireFault(status.OUT_OF_RANGE, 0)
    return message


def block(number: int, data: bytes) -> bytes:
    return to_varint(number << 3 | 2) + to_varint(len(data)) + data


def item(array: Array, index: int) -> Any:
    if index >= len(array):
        raise WireFault(status.OUT_OF_RANGE, 0)
    return array[index]


def span(bounds: Array, index: int, end: int) -> tuple[int, int]:
    """Return the (start, stop) of an index, which must lie within 0 and `end`."""
    start, stop = int(item(bounds, index)), int(item(bounds, index + 1))
    if not 0 <= start <= stop <= end:
        raise WireFault(status.OUT_OF_RANGE, 0)
    return start, stop


def feature_list(column: EncodeInput, row: int) -> bytes:
    assert column.steps is not None
    # A step takes at least four bytes. Without this check, empty steps would be unbounded.
    start, stop = span(column.steps, row, (1 << 63) - 1)
    if stop - start > status.MAX_MESSAGE // 4:
        raise WireFault(status.OUT_OF_RANGE, 0)
    return b"".join(block(1, feature(column, step)) for step in range(start, stop))


def feature(column: EncodeInput, instance: int) -> bytes:
    end = len(column.values if column.offsets is None else column.offsets[1:])
    if column.splits is not None:
        start, stop = span(column.splits, instance, end)
    else:
        start, stop = instance * column.length, (instance + 1) * column.length
        if stop > end:
            raise WireFault(status.OUT_OF_RANGE, 0)
    if column.kind == BYTES:
        return block(BYTES, b"".join(block(1, string) for string in strings(column, start, stop)))
    values = column.values[start:stop]
    packed = (
        values.tobytes()
        if column.kind == FLOAT
        else b"".join(to_varint(value & 0xFFFFFFFFFFFFFFFF) for value in values.tolist())
    )
    return block(column.kind, block(1, packed) if start < stop else b"")


def strings(column: EncodeInput, start: int, stop: int) -> Iterator[bytes]:
    assert column.offsets is not None
    for number in range(start, stop):
        yield column.values[slice(*span(column.offsets, number, len(column.values)))].tobytes()
