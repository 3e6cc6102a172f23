"""tf.train.Example and SequenceExample as TensorFlow's fast parser reads them.

The rules below are the differences from protobuf. They were found by experiment with TensorFlow
2.21.

Both messages:

- A length is a varint of up to 10 bytes, of which the low 32 bits count. A length that runs past
  the enclosing message is cut to its end without an error. Only keys, values of entries, and
  strings must fit.
- Tags are compared as single bytes (so `8a 00` is not `0a`), except the two of an Example's map
  entry, which may be padded.
- Between the parts of a message, fields of other numbers or wire types are skipped: varint,
  fixed64, fixed32, and length-delimited (cut to the end; with a length of 2**31 and more, nothing
  is skipped). Groups and the wire types 6 and 7 are errors. Field number 0 is not an error.
- At all deeper levels an unexpected field is an error: UNKNOWN_FIELD at the field, or TRUNCATED if
  the message ends instead.
- A map entry of an Example has exactly two fields, each a key or a value, in any order. Two keys
  (an unset Feature) and two values (the key "", the last value) are accepted too. A map entry of a
  SequenceExample is a key, then a value. Nothing may follow.
- Of a Feature only the first list counts, and the rest is ignored. Of a list only the first packed
  run counts, or all unpacked values if it begins with one. Bytes after a packed run are ignored. A
  packed run after unpacked values is an error.

An Example:

- Every Feature with the name of a column, overridden or not, must be empty or begin with a list
  (`0a`, `12`, `1a`).
- If a name appears twice, the last Feature counts. If that one is empty (unset), then for dense
  features, and for all in parse_single_example, the last one that is not empty counts. For sparse
  and ragged features in parse_example the feature is missing. Hence `compat` has two values: 1
  ignores empty features, 2 does not.
- A packed run of floats has size // 4 values, which must be present. The remaining bytes are
  ignored.

A SequenceExample (`compat` 1 and 2 are the same):

- If a name appears twice, the last one counts, empty or not.
- An empty Feature in the context is not missing. It has no values, so a fixed length other than 0
  is WRONG_LENGTH, even if there is a default.
- A list of floats or integers whose length is greater than 0, but is cut to 0, is an error.
- A packed run of floats must have a whole number of them.
- A step of 2 bytes must be a list of the column's kind and of length 0 (which may be padded past
  the 2 bytes). A step of 1 byte is an error, and one of 0 bytes has no values. The next step begins
  where the values of the previous step ended, not where its length ended. A second list in a
  Feature, or a second run in a list, is therefore read as the next step, and is an error if it does
  not look like one.

The order of checks: first the structure of the whole message, then, in the order of the columns,
the first bytes of a column's Features, its kind, and its values. Kinds and numbers of values are
compared with the column after that, as in example.py.
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
    offset: int,
    end: int,
    columns: Sequence[ColumnSpec],
    numbers: Numbers,
    sequence: bool,
    empty_counts: bool,
) -> Found:
    """Return the features of each column. `empty_counts` is `compat` 2."""
    spans: dict[int, list[Span]] = {}
    while offset < end:
        part = view[offset]
        if part == KEY or (part == VALUE and sequence):
            offset, stop = cut(view, offset + 1, end)
            while offset < stop:
                offset, entry_end = cut(view, expect(view, offset, stop, FIELD), stop)
                name, span = (sequence_entry if sequence else example_entry)(
                    view, offset, entry_end
                )
                number = numbers.get((part == VALUE, bytes(view[slice(*name)])))
                if number is not None:
                    spans.setdefault(number, []).append(span)
                offset = entry_end
        else:
            offset = skip(view, offset, end)
    record: Found = {}
    for number, column in enumerate(columns):
        places = spans.get(number, [])
        if column.list and places:
            record[number] = steps(view, *places[-1], column.kind)
        elif places:
            feature = (
                context_feature(view, *places[-1], column.kind)
                if sequence
                else example_feature(view, places, column.kind, empty_counts)
            )
            if feature is not None:
                record[number] = [feature]
    return record


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


def context_feature(view: memoryview, offset: int, end: int, kind: int) -> FeatureMessage:
    return (
        feature_of(view, offset, end, kind, True)
        if offset < end
        else FeatureMessage(kind, [], offset)
    )


def feature_of(
    view: memoryview, offset: int, end: int, kind: int, sequence: bool
) -> FeatureMessage:
    stored_kind = kind_of(view, offset, end)
    return FeatureMessage(
        stored_kind,
        list_values(view, offset + 1, end, kind, sequence)[0] if stored_kind == kind else [],
        offset,
    )


def varint32(view: memoryview, offset: int, end: int) -> tuple[int, int]:
    value, offset = varint(view, offset, end, strict=False)
    return value & 0xFFFFFFFF, offset


def cut(view: memoryview, offset: int, end: int) -> Span:
    """Return the (start, stop) of a message whose length is here, cut to the end."""
    size, offset = varint32(view, offset, end)
    return offset, min(end, offset + size)


def whole(view: memoryview, offset: int, end: int) -> Span:
    """Return the (start, stop) of bytes whose length is here, and which must fit."""
    size, start = varint32(view, offset, end)
    if size > end - start:
        raise WireFault(status.TRUNCATED, offset)
    return start, start + size


def expect(view: memoryview, offset: int, end: int, tag: int) -> int:
    if offset >= end:
        raise WireFault(status.TRUNCATED, offset)
    if view[offset] != tag:
        raise WireFault(status.UNKNOWN_FIELD, offset)
    return offset + 1


def skip(view: memoryview, offset: int, end: int) -> int:
    begin = offset
    tag, offset = varint32(view, offset, end)
    wire = tag & 7
    if wire == VARINT:
        return varint32(view, offset, end)[1]
    if wire == LEN:
        size, offset = varint32(view, offset, end)
        return min(end, offset + size) if size < 1 << 31 else offset
    if wire in (FIXED64, FIXED32):
        return fixed(8 if wire == FIXED64 else 4, offset, end)
    raise WireFault(status.UNKNOWN_FIELD, begin)


def example_entry(view: memoryview, offset: int, end: int) -> tuple[Span, Span]:
    parts = {KEY: (offset, offset), VALUE: (offset, offset)}
    for _ in range(2):
        if offset == end:
            raise WireFault(status.TRUNCATED, offset)
        tag, after = varint32(view, offset, end)
        if tag not in parts:
            raise WireFault(status.UNKNOWN_FIELD, offset)
        parts[tag] = whole(view, after, end)
        offset = parts[tag][1]
    if offset < end:
        raise WireFault(status.UNKNOWN_FIELD, offset)
    return parts[KEY], parts[VALUE]


def sequence_entry(view: memoryview, offset: int, end: int) -> tuple[Span, Span]:
    key = whole(view, expect(view, offset, end, KEY), end)
    value = whole(view, expect(view, key[1], end, VALUE), end)
    if value[1] < end:
        raise WireFault(status.UNKNOWN_FIELD, value[1])
    return key, value


def kind_of(view: memoryview, offset: int, end: int) -> int:
    if offset >= end:
        raise WireFault(status.TRUNCATED, offset)
    if view[offset] not in KINDS:
        raise WireFault(status.UNKNOWN_FIELD, offset)
    return KINDS[view[offset]]


def steps(view: memoryview, offset: int, end: int, kind: int) -> list[FeatureMessage]:
    """Return the steps of a feature list.

    A step of another kind is the last one, because its end is not known.
    """
    out: list[FeatureMessage] = []
    while offset < end:
        size, offset = varint32(view, expect(view, offset, end, FIELD), end)
        start, values = offset, list[Any]()
        if size == 1:
            raise WireFault(status.TRUNCATED, start)
        if size:
            stop = min(end, offset + size) if size > 2 else end
            step_kind = kind_of(view, offset, stop)
            if step_kind != kind:
                return [*out, FeatureMessage(step_kind, [], start)]
            if size == 2:
                empty, after = varint32(view, offset + 1, end)
                if empty:
                    raise WireFault(status.TRUNCATED, offset + 1)
                offset = after
            else:
                values, offset = list_values(view, offset + 1, stop, kind, True)
        out.append(FeatureMessage(kind, values, start))
    return out


def list_values(
    view: memoryview, offset: int, end: int, kind: int, sequence: bool
) -> tuple[list[Any], int]:
    """Return the values of the list whose length is here, and the offset after the last value."""
    begin = offset
    offset, stop = cut(view, offset, end)
    values: list[Any] = []
    if kind == BYTES:
        while offset < stop:
            start, offset = whole(view, expect(view, offset, stop, FIELD), stop)
            values.append(bytes(view[start:offset]))
        return values, offset
    if offset == stop:
        if sequence and varint32(view, begin, end)[0]:
            raise WireFault(status.TRUNCATED, offset)
        return values, offset
    if view[offset] == PACKED:
        return packed(view, offset, stop, kind, sequence)
    tag = UNPACKED_FLOAT if kind == FLOAT else UNPACKED_INT
    while offset < stop:
        offset = expect(view, offset, stop, tag)
        if kind == FLOAT:
            offset = fixed(4, offset, stop)
            values.append(bytes(view[offset - 4 : offset]))
        else:
            value, offset = varint(view, offset, stop, strict=False)
            values.append(signed(value))
    return values, offset


def packed(
    view: memoryview, begin: int, end: int, kind: int, sequence: bool
) -> tuple[list[Any], int]:
    size, offset = varint32(view, begin + 1, end)
    stop = min(end, offset + size)
    if kind == INT64:
        values: list[Any] = []
        while offset < stop:
            value, offset = varint(view, offset, stop, strict=False)
            values.append(signed(value))
        return values, offset
    if sequence and (stop - offset) % 4:
        raise WireFault(status.BAD_PACKED, begin)
    if not sequence and size // 4 * 4 > stop - offset:
        raise WireFault(status.TRUNCATED, begin + 1)
    last = stop if sequence else offset + size // 4 * 4
    return [bytes(view[i : i + 4]) for i in range(offset, last, 4)], last
