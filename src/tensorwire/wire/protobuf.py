"""What can be wrong with a protobuf message, in words; the numbers are those of native/src/protobuf.h."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .._errors import DecodeError, TruncatedError

TRUNCATED, BAD_VARINT, BAD_TAG, UNKNOWN_FIELD, REPEATED, NEGATIVE_DIM, TOO_MANY_DIMS, BAD_UTF8 = range(1, 9)
BAD_PACKED, OUT_OF_RANGE, TOO_FEW, TOO_MANY, BAD_BOOL, MIXED_FIELDS, BAD_GROUP, NO_SPACE = range(9, 17)

PROBLEMS = {
    TRUNCATED: "a field or number runs past the end",
    BAD_VARINT: "a varint is longer than 64 bits",
    BAD_TAG: "this is no protobuf tag",
    UNKNOWN_FIELD: "a field that this message does not have, or not in this wire type",
    REPEATED: "a field that may stand once stands twice: are these two messages joined?",
    NEGATIVE_DIM: "a dimension is negative",
    TOO_MANY_DIMS: "more than 254 dimensions",
    BAD_UTF8: "a name is not UTF-8",
    BAD_PACKED: "a packed run is not a whole number of values",
    OUT_OF_RANGE: "a value does not fit the dtype",
    TOO_FEW: "too few values for the shape",
    TOO_MANY: "more values than the shape holds",
    BAD_BOOL: "a bool is neither 0 nor 1",
    MIXED_FIELDS: "something else stands between the strings",
    BAD_GROUP: "a group does not close, or nests too deep",
    NO_SPACE: "the buffer changed while it was being read",
}

MAX_MESSAGE = (1 << 31) - 1
"""Protobuf's ceiling, and TensorFlow's: it crashes above."""


class Field(NamedTuple):
    number: int
    wire: int
    value: int | tuple[int, int]
    """A varint's value, or the (start, stop) of the bytes."""
    offset: int


def problem(status: int, offset: int, format: str) -> DecodeError:
    """The error for a kernel's status."""
    kind = TruncatedError if status == TRUNCATED else DecodeError
    return kind(PROBLEMS[status], format=format, offset=offset)


def varint(value: int) -> bytes:
    """An unsigned integer in protobuf's variable length.

    >>> varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(view: memoryview, format: str, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of a message that has no kernel of its own, one by one, in the order of the bytes.

    >>> [(f.number, f.value) for f in fields(memoryview(b"\\x08\\x05\\x12\\x02ab"), "any")]
    [(1, 5), (2, (4, 6))]
    """
    at, stop = start, len(view) if end is None else end
    try:
        while at < stop:
            begin = at
            number, wire, at = _message.tag(view, at, stop)
            if wire == _message.VARINT:
                value, after = _message.varint(view, at, stop)
                yield Field(number, wire, value, begin)
            elif wire == _message.LEN:
                size, at = _message.length(view, at, stop)
                after = at + size
                yield Field(number, wire, (at, after), begin)
            else:
                after = _message.skip(view, at, stop, number, wire)
                yield Field(number, wire, (at, after), begin)
            at = after
    except _message.Fault as fault:
        raise problem(fault.status, fault.offset, format) from None


# At the end, because the reference kernels speak in this module's statuses.
from ._pure import protobuf as _message  # noqa: E402
