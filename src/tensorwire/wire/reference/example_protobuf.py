"""tf.train.Example and SequenceExample by protobuf's rules.

Bytes are read in order, and the first fault is reported. The value of a map entry is parsed only if
the name is a column, and of a Feature only the lists of the column's kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import status
from .protobuf import FIXED32, LEN, VARINT, WireFault, fixed, length, skip, tag, varint

BYTES, FLOAT, INT64, PLACES = 1, 2, 3, 4
"""Kinds of lists. PLACES is a kind of column: the (offset, size) of the strings of a bytes list."""


class ColumnSpec(NamedTuple):
    name: bytes
    kind: int
    length: int
    list: bool


class FeatureMessage(NamedTuple):
    """A feature of a record, or one step of a feature list."""

    kind: int
    """The kind of the list that is set; 0 if none is."""
    values: list[Any]
    """bytes for strings and for floats (four each), int for int64."""
    offset: int


Found = dict[int, list[FeatureMessage]]
"""The features of a record by column number: one Feature, or the steps of a list. Columns that are
missing in the record have no entry.
"""
STRANGE = -1
"""The entry of a record with a feature that is not a column, or with unknown fields."""


Numbers = dict[tuple[bool, bytes | None], int]
"""(whether it is a feature list, name) -> column number."""


def read(
    view: memoryview,
    offset: int,
    end: int,
    columns: Sequence[ColumnSpec],
    numbers: Numbers,
    sequence: bool,
) -> Found:
    record: Found = {}
    parts = {1: False, 2: True} if sequence else {1: False}
    for field, start, stop in fields(view, offset, end, every=True):
        if field in parts and start >= 0:
            for _, name, spans in entries(view, start, stop):
                number = numbers.get((parts[field], name))
                if number is not None:
                    read_value(view, spans, columns[number], number, record)
                else:
                    record[STRANGE] = []
        else:
            record[STRANGE] = []
    return record


def entries(
    view: memoryview, offset: int, end: int
) -> Iterator[tuple[int, bytes | None, list[tuple[int, int]]]]:
    """Yield (offset, name, spans of the value) of each map entry. The name of other fields is None.

    All fields of an entry are read before it is yielded, because the key may come after the value.
    """
    for number, start, stop in fields(view, offset, end, every=True):
        if number != 1 or start < 0:
            yield start, None, []
            continue
        name, spans = b"", []
        for part, value_start, value_stop in fields(view, start, stop):
            if part == 1:
                name = bytes(view[value_start:value_stop])
            elif part == 2:
                spans.append((value_start, value_stop))
        yield start, name, spans


def read_value(
    view: memoryview, spans: list[tuple[int, int]], column: ColumnSpec, number: int, record: Found
) -> None:
    """Parse the value of a map entry. It replaces an earlier value of the same name."""
    record.pop(number, None)
    if column.list:
        record[number] = [
            read_feature(view, [step[1:]], column.kind)
            for span in spans
            for step in messages(view, *span, 1)
        ]
    else:
        feature = read_feature(view, spans, column.kind)
        if feature.kind:
            record[number] = [feature]


def fields(
    view: memoryview,
    offset: int,
    end: int,
    every: bool = False,
) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, stop) of every length-delimited field.

    Other fields are skipped, or with `every` are (number, -1, -1).
    """
    while offset < end:
        field, wire, offset = tag(view, offset, end)
        if wire == LEN:
            size, offset = length(view, offset, end)
            yield field, offset, offset + size
            offset += size
        else:
            offset = skip(view, offset, end, field, wire)
            if every:
                yield field, -1, -1


def messages(
    view: memoryview, offset: int, end: int, number: int
) -> Iterator[tuple[int, int, int]]:
    return (field for field in fields(view, offset, end) if field[0] == number)


def read_feature(view: memoryview, spans: list[tuple[int, int]], kind: int) -> FeatureMessage:
    """Return a Feature whose parts are merged, as protobuf does.

    Of the lists in the oneof only the last kind counts, and all lists of that kind since the last
    change of kind are concatenated.
    """
    seen, offset = 0, 0
    values: list[Any] = []
    for start, stop in spans:
        offset = start
        for field, begin, end in fields(view, start, stop):
            if field not in (BYTES, FLOAT, INT64):
                continue
            if field != seen:
                seen, values = field, []
            if field == (BYTES if kind == PLACES else kind):
                values.extend(LISTS[kind](view, begin, end))
    return FeatureMessage(seen, values, offset)


def strings(view: memoryview, offset: int, end: int) -> Iterator[bytes]:
    return (bytes(view[start:stop]) for _, start, stop in messages(view, offset, end, 1))


def places(view: memoryview, offset: int, end: int) -> Iterator[tuple[int, int]]:
    return ((start, stop - start) for _, start, stop in messages(view, offset, end, 1))


def floats(view: memoryview, offset: int, end: int) -> Iterator[bytes]:
    while offset < end:
        begin = offset
        field, wire, offset = tag(view, offset, end)
        if (field, wire) == (1, LEN):
            size, offset = length(view, offset, end)
            if size % 4:
                raise WireFault(status.BAD_PACKED, begin)
            yield from (bytes(view[i : i + 4]) for i in range(offset, offset + size, 4))
            offset += size
        elif (field, wire) == (1, FIXED32):
            offset = fixed(4, offset, end)
            yield bytes(view[offset - 4 : offset])
        else:
            offset = skip(view, offset, end, field, wire)


def ints(view: memoryview, offset: int, end: int) -> Iterator[int]:
    """Yield the values of an int64 list. Of a varint of ten bytes the low 64 bits count."""
    while offset < end:
        field, wire, offset = tag(view, offset, end)
        if (field, wire) == (1, LEN):
            size, offset = length(view, offset, end)
            stop = offset + size
            while offset < stop:
                value, offset = varint(view, offset, stop, strict=False)
                yield signed(value)
        elif (field, wire) == (1, VARINT):
            value, offset = varint(view, offset, end, strict=False)
            yield signed(value)
        else:
            offset = skip(view, offset, end, field, wire)


LISTS: dict[int, Callable[[memoryview, int, int], Iterator[Any]]] = {
    BYTES: strings,
    FLOAT: floats,
    INT64: ints,
    PLACES: places,
}


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
