"""tf.train.Example and SequenceExample as TensorFlow's own parser reads them, where that departs
from protobuf (2.21, by experiment).

Everywhere:

- A length is a varint of up to 10 bytes of which the low 32 bits count. One that runs past the
  enclosing message is cut to its end, and no error. Only keys, values of entries, and strings must
  fit: their lengths are errors past the end.
- Tags are compared as single bytes (so `8a 00` is not `0a`), except the two of an Example's map
  entry, which may be padded.
- Between the parts of a message, fields of other numbers or wire types are stepped over: varint,
  fixed64, fixed32, length (cut to the end; of 2**31 and more: nothing at all is stepped over).
  Groups, and wire types 6 and 7, are errors; field number 0 is none.
- Anywhere deeper, a field that is not expected is an error: UNKNOWN_FIELD where it stands,
  TRUNCATED where the message ends instead.
- A map's entry of an Example has exactly two fields, each a key or a value: either order, and key
  twice (an unset Feature) or value twice (the key "", the last value) pass too. A map's entry of a
  SequenceExample is a key, then a value. Nothing may follow.
- Of a Feature only the first list counts; what follows it is not looked at. Of a list only the
  first packed run, or all unpacked values if it begins with one; what follows a packed run is not
  looked at, a packed run behind unpacked values is an error.

An Example:

- Every Feature of a column's name, overridden or not, must be empty or begin with a list (`0a`,
  `12`, `1a`).
- Of a name given twice the last Feature counts. If that one is empty (unset): for dense features,
  and for all in parse_single_example, the last that is not empty counts; for sparse and ragged ones
  in parse_example it is missing. Hence two values of `compat`: 1 passes over empty ones, 2 does
  not.
- A packed run of floats has size // 4 values, which must be there; a rest is not looked at.

A SequenceExample (`compat` 1 and 2 are the same):

- Of a name given twice the last one counts, empty or not.
- An empty Feature in the context is not missing: it has no values, so a fixed length other than 0
  is WRONG_LENGTH, default or not.
- A list that says it is longer than 0, but is cut to nothing, is an error if its numbers are floats
  or integers.
- A packed run of floats must be a whole number of them.
- A step of 2 bytes must be a list of the column's kind and of length 0 (whose length may be padded,
  past the 2 bytes), one of 1 byte is an error, one of 0 bytes has no values. The next step is
  looked for where the values of the last one ended, not where its length said: a second list in a
  Feature, or a second run in a list, is read as the next step, and is an error if it does not look
  like one.

The order here: first the structure of the whole message, then column by column, in the order of the
columns: the first bytes of its Features, its kind, its values. (Kinds and numbers of values are
judged after that, as always.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import status
from .example_protobuf import (
    BYTES,
    FLOAT,
    INT64,
    ColumnSpec,
    FeatureMessage,
    Found,
    Numbers,
    signed,
)
from .protobuf import FIXED32, FIXED64, LEN, VARINT, WireFault, fixed, varint

Span = tuple[int, int]
KINDS = {0x0A: BYTES, 0x12: FLOAT, 0x1A: INT64}
KEY, VALUE, FIELD = 0x0A, 0x12, 0x0A
PACKED, UNPACKED_FLOAT, UNPACKED_INT = 0x0A, 0x0D, 0x08


def read(
    view: memoryview,
    at: int,
    end: int,
    columns: Sequence[ColumnSpec],
    numbers: Numbers,
    sequence: bool,
    empty_counts: bool,
) -> Found:
    """`empty_counts` is `compat` 2."""
    spans: dict[int, list[Span]] = {}
    while at < end:
        part = view[at]
        if part == KEY or (part == VALUE and sequence):
            at, stop = cut(view, at + 1, end)
            while at < stop:
                at, entry_end = cut(view, expect(view, at, stop, FIELD), stop)
                name, span = (sequence_entry if sequence else example_entry)(view, at, entry_end)
                number = numbers.get((part == VALUE, bytes(view[slice(*name)])))
                if number is not None:
                    spans.setdefault(number, []).append(span)
                at = entry_end
        else:
            at = skip(view, at, end)
    found: Found = {}
    for number, column in enumerate(columns):
        places = spans.get(number, [])
        if column.list and places:
            found[number] = steps(view, *places[-1], column.kind)
        elif places:
            feature = (
                context_feature(view, *places[-1], column.kind)
                if sequence
                else example_feature(view, places, column.kind, empty_counts)
            )
            if feature is not None:
                found[number] = [feature]
    return found


def example_feature(
    view: memoryview, places: list[Span], kind: int, empty_counts: bool
) -> FeatureMessage | None:
    for start, stop in places:
        if start < stop:
            kind_of(view, start, stop)
    chosen = places if empty_counts else [span for span in places if span[0] < span[1]]
    if not chosen or chosen[-1][0] == chosen[-1][1]:
        return None
    return feature_of(view, *chosen[-1], kind, False)


def context_feature(view: memoryview, at: int, end: int, kind: int) -> FeatureMessage:
    return feature_of(view, at, end, kind, True) if at < end else FeatureMessage(kind, [], at)


def feature_of(view: memoryview, at: int, end: int, kind: int, sequence: bool) -> FeatureMessage:
    found = kind_of(view, at, end)
    return FeatureMessage(
        found, list_values(view, at + 1, end, kind, sequence)[0] if found == kind else [], at
    )


def varint32(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value, at = varint(view, at, end, strict=False)
    return value & 0xFFFFFFFF, at


def cut(view: memoryview, at: int, end: int) -> Span:
    """(where a message begins, where it ends), whose length stands here."""
    size, at = varint32(view, at, end)
    return at, min(end, at + size)


def whole(view: memoryview, at: int, end: int) -> Span:
    """The same for bytes that must fit."""
    size, start = varint32(view, at, end)
    if size > end - start:
        raise WireFault(status.TRUNCATED, at)
    return start, start + size


def expect(view: memoryview, at: int, end: int, tag: int) -> int:
    if at >= end:
        raise WireFault(status.TRUNCATED, at)
    if view[at] != tag:
        raise WireFault(status.UNKNOWN_FIELD, at)
    return at + 1


def skip(view: memoryview, at: int, end: int) -> int:
    begin = at
    tag, at = varint32(view, at, end)
    wire = tag & 7
    if wire == VARINT:
        return varint32(view, at, end)[1]
    if wire == LEN:
        size, at = varint32(view, at, end)
        return min(end, at + size) if size < 1 << 31 else at
    if wire in (FIXED64, FIXED32):
        return fixed(8 if wire == FIXED64 else 4, at, end)
    raise WireFault(status.UNKNOWN_FIELD, begin)


def example_entry(view: memoryview, at: int, end: int) -> tuple[Span, Span]:
    parts = {KEY: (at, at), VALUE: (at, at)}
    for _ in range(2):
        if at == end:
            raise WireFault(status.TRUNCATED, at)
        tag, after = varint32(view, at, end)
        if tag not in parts:
            raise WireFault(status.UNKNOWN_FIELD, at)
        parts[tag] = whole(view, after, end)
        at = parts[tag][1]
    if at < end:
        raise WireFault(status.UNKNOWN_FIELD, at)
    return parts[KEY], parts[VALUE]


def sequence_entry(view: memoryview, at: int, end: int) -> tuple[Span, Span]:
    key = whole(view, expect(view, at, end, KEY), end)
    value = whole(view, expect(view, key[1], end, VALUE), end)
    if value[1] < end:
        raise WireFault(status.UNKNOWN_FIELD, value[1])
    return key, value


def kind_of(view: memoryview, at: int, end: int) -> int:
    if at >= end:
        raise WireFault(status.TRUNCATED, at)
    if view[at] not in KINDS:
        raise WireFault(status.UNKNOWN_FIELD, at)
    return KINDS[view[at]]


def steps(view: memoryview, at: int, end: int, kind: int) -> list[FeatureMessage]:
    """A step of another kind is the last one, since nobody can say where it ends."""
    out: list[FeatureMessage] = []
    while at < end:
        size, at = varint32(view, expect(view, at, end, FIELD), end)
        start, values = at, list[Any]()
        if size == 1:
            raise WireFault(status.TRUNCATED, start)
        if size:
            stop = min(end, at + size) if size > 2 else end
            found = kind_of(view, at, stop)
            if found != kind:
                return [*out, FeatureMessage(found, [], start)]
            if size == 2:
                empty, after = varint32(view, at + 1, end)
                if empty:
                    raise WireFault(status.TRUNCATED, at + 1)
                at = after
            else:
                values, at = list_values(view, at + 1, stop, kind, True)
        out.append(FeatureMessage(kind, values, start))
    return out


def list_values(
    view: memoryview, at: int, end: int, kind: int, sequence: bool
) -> tuple[list[Any], int]:
    """The values of the list whose length stands here, and the position behind the last of them."""
    begin = at
    at, stop = cut(view, at, end)
    values: list[Any] = []
    if kind == BYTES:
        while at < stop:
            start, at = whole(view, expect(view, at, stop, FIELD), stop)
            values.append(bytes(view[start:at]))
        return values, at
    if at == stop:
        if sequence and varint32(view, begin, end)[0]:
            raise WireFault(status.TRUNCATED, at)
        return values, at
    if view[at] == PACKED:
        return packed(view, at, stop, kind, sequence)
    tag = UNPACKED_FLOAT if kind == FLOAT else UNPACKED_INT
    while at < stop:
        at = expect(view, at, stop, tag)
        if kind == FLOAT:
            at = fixed(4, at, stop)
            values.append(bytes(view[at - 4 : at]))
        else:
            value, at = varint(view, at, stop, strict=False)
            values.append(signed(value))
    return values, at


def packed(
    view: memoryview, begin: int, end: int, kind: int, sequence: bool
) -> tuple[list[Any], int]:
    size, at = varint32(view, begin + 1, end)
    stop = min(end, at + size)
    if kind == INT64:
        values: list[Any] = []
        while at < stop:
            value, at = varint(view, at, stop, strict=False)
            values.append(signed(value))
        return values, at
    if sequence and (stop - at) % 4:
        raise WireFault(status.BAD_PACKED, begin)
    if not sequence and size // 4 * 4 > stop - at:
        raise WireFault(status.TRUNCATED, begin + 1)
    last = stop if sequence else at + size // 4 * 4
    return [bytes(view[i : i + 4]) for i in range(at, last, 4)], last
