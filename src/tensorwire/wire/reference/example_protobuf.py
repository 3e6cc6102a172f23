"""tf.train.Example and SequenceExample by protobuf's rules.

Bytes are read in their order, and the first fault met is reported. Of a map's entry the fields come
first, then the inside of its value if the name is a column's: a key may stand behind its value. Of
a Feature only the lists of the column's kind are looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import status
from .protobuf import FIXED32, LEN, VARINT, WireFault, fixed, length, skip, tag, varint

BYTES, FLOAT, INT64, PLACES = 1, 2, 3, 4
"""The last is a column's alone: where the strings of a bytes list lie."""


class ColumnSpec(NamedTuple):
    name: bytes
    kind: int
    length: int
    list: bool


class FeatureMessage(NamedTuple):
    """One instance: a feature of a record, or one step of a feature list."""

    kind: int
    """0 where none of the lists is set."""
    values: list[Any]
    """bytes for strings and for floats (four each), numbers for int64."""
    offset: int


Found = dict[int, list[FeatureMessage]]
"""What a record has of each column (by its number): one Feature, or the steps of a list. A column
that it lacks is missing here.
"""
STRANGE = -1
"""Instead of a number: the record has something that no column takes."""


Numbers = dict[tuple[bool, bytes], int]
"""The number of a column, by whether it is a feature list, and its name."""


def read(
    view: memoryview,
    at: int,
    end: int,
    columns: Sequence[ColumnSpec],
    numbers: Numbers,
    sequence: bool,
) -> Found:
    found: Found = {}
    parts = {1: False, 2: True} if sequence else {1: False}
    for field, start, stop in fields(view, at, end, every=True):
        if field in parts and start >= 0:
            for part, entry, entry_end in fields(view, start, stop, every=True):
                if part != 1 or entry < 0:
                    found[STRANGE] = []
                    continue
                name, spans = b"", []
                for inner, inside, behind in fields(view, entry, entry_end):
                    if inner == 1:
                        name = bytes(view[inside:behind])
                    elif inner == 2:
                        spans.append((inside, behind))
                number = numbers.get((parts[field], name))
                if number is not None:
                    read_value(view, spans, columns[number], number, found)
                else:
                    found[STRANGE] = []
        else:
            found[STRANGE] = []
    return found


def read_value(
    view: memoryview, spans: list[tuple[int, int]], column: ColumnSpec, number: int, found: Found
) -> None:
    """Of a name that is given twice the last one counts, and wholly."""
    found.pop(number, None)
    if column.list:
        found[number] = [
            read_feature(view, [step[1:]], column.kind)
            for span in spans
            for step in messages(view, *span, 1)
        ]
    else:
        feature = read_feature(view, spans, column.kind)
        if feature.kind:
            found[number] = [feature]


def fields(
    view: memoryview,
    at: int,
    end: int,
    every: bool = False,
) -> Iterator[tuple[int, int, int]]:
    """(number, start, stop) of every field that has a length.

    Others are stepped over, or with `every` are (number, -1, -1).
    """
    while at < end:
        field, wire, at = tag(view, at, end)
        if wire == LEN:
            size, at = length(view, at, end)
            yield field, at, at + size
            at += size
        else:
            at = skip(view, at, end, field, wire)
            if every:
                yield field, -1, -1


def messages(view: memoryview, at: int, end: int, number: int) -> Iterator[tuple[int, int, int]]:
    return (found for found in fields(view, at, end) if found[0] == number)


def read_feature(view: memoryview, spans: list[tuple[int, int]], kind: int) -> FeatureMessage:
    """A Feature that may stand in several places, which are merged. Of a oneof the last list
    counts, and adds to others of its kind.
    """
    seen, offset = 0, 0
    values: list[Any] = []
    for start, stop in spans:
        offset = start
        for field, at, end in fields(view, start, stop):
            if field not in (BYTES, FLOAT, INT64):
                continue
            if field != seen:
                seen, values = field, []
            if field == (BYTES if kind == PLACES else kind):
                values.extend(LISTS[kind](view, at, end))
    return FeatureMessage(seen, values, offset)


def strings(view: memoryview, at: int, end: int) -> Iterator[bytes]:
    return (bytes(view[start:stop]) for _, start, stop in messages(view, at, end, 1))


def places(view: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    return ((start, stop - start) for _, start, stop in messages(view, at, end, 1))


def floats(view: memoryview, at: int, end: int) -> Iterator[bytes]:
    while at < end:
        begin = at
        field, wire, at = tag(view, at, end)
        if (field, wire) == (1, LEN):
            size, at = length(view, at, end)
            if size % 4:
                raise WireFault(status.BAD_PACKED, begin)
            yield from (bytes(view[i : i + 4]) for i in range(at, at + size, 4))
            at += size
        elif (field, wire) == (1, FIXED32):
            at = fixed(4, at, end)
            yield bytes(view[at - 4 : at])
        else:
            at = skip(view, at, end, field, wire)


def ints(view: memoryview, at: int, end: int) -> Iterator[int]:
    """Of a varint of ten bytes the low 64 bits count."""
    while at < end:
        field, wire, at = tag(view, at, end)
        if (field, wire) == (1, LEN):
            size, at = length(view, at, end)
            stop = at + size
            while at < stop:
                value, at = varint(view, at, stop, strict=False)
                yield signed(value)
        elif (field, wire) == (1, VARINT):
            value, at = varint(view, at, end, strict=False)
            yield signed(value)
        else:
            at = skip(view, at, end, field, wire)


LISTS: dict[int, Callable[[memoryview, int, int], Iterator[Any]]] = {
    BYTES: strings,
    FLOAT: floats,
    INT64: ints,
    PLACES: places,
}


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
