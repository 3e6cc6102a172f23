"""What can be wrong with a protobuf message or a record, in words; the numbers are those of
native/src/protobuf.h.
"""

from __future__ import annotations

from .._errors import ChecksumError, DecodeError, LimitError, TruncatedError

TRUNCATED, BAD_VARINT, BAD_TAG, UNKNOWN_FIELD, REPEATED, NEGATIVE_DIM, TOO_MANY_DIMS, BAD_UTF8 = (
    range(1, 9)
)
BAD_PACKED, OUT_OF_RANGE, TOO_FEW, TOO_MANY, BAD_BOOL, MIXED_FIELDS, BAD_GROUP, NO_SPACE = range(
    9, 17
)
WRONG_KIND, WRONG_LENGTH, BAD_LENGTH_CRC, BAD_DATA_CRC, TOO_LONG = range(17, 22)
BAD_COPY, OVERRUN, OVER_LIMIT = range(30, 33)
BAD_OFFSET, WRONG_MESSAGE, NESTED, SHARED, BAD_LAYOUT = range(40, 45)
BAD_JSON, BAD_NUMBER, NOT_INTEGER, NOT_BOOL, RAGGED, WRONG_SHAPE, MIXED_DEPTH, TOO_DEEP = range(
    50, 58
)
BAD_RESTARTS, BAD_PREFIX, KEY_ORDER, TOO_LARGE, NO_DTYPE, NO_SHARD, WRONG_SIZE = range(60, 67)

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
    WRONG_KIND: "a feature holds another kind of values than its column",
    WRONG_LENGTH: "a feature holds more or fewer values than its column",
    BAD_LENGTH_CRC: "the length of a record does not match its checksum",
    BAD_DATA_CRC: "the data of a record does not match its checksum",
    TOO_LONG: "a record is longer than the limit",
    BAD_COPY: "a copy from before the start of the data",
    OVERRUN: "more data than the length at the start says",
    OVER_LIMIT: "the data is longer than the limit",
    BAD_OFFSET: "an offset points outside of the message",
    WRONG_MESSAGE: "this is not one of Arrow's messages, or not one that is read here",
    NESTED: "types nested more than 64 deep",
    SHARED: "more is said than the message has room for: its parts are used again and again",
    BAD_LAYOUT: (
        "a length is negative, or a buffer lies outside of the message's body or inside of"
        " another one"
    ),
    BAD_JSON: "not JSON: something else should stand here",
    BAD_NUMBER: "no number, or not one that JSON has",
    NOT_INTEGER: "a number with a point or an exponent where only integers are",
    NOT_BOOL: "neither true nor false",
    RAGGED: "ragged lists: this one is longer or shorter than those before it",
    WRONG_SHAPE: "the lists are not those of the shape",
    MIXED_DEPTH: "lists and numbers side by side",
    TOO_DEEP: "lists and objects nested too deep",
    BAD_RESTARTS: "the restarts of a block are not where its entries begin",
    BAD_PREFIX: "a key shares more with the one before it than that has",
    KEY_ORDER: "the keys of a table do not ascend",
    TOO_LARGE: "a shape is too large: its size exceeds 2**63 bytes",
    NO_DTYPE: "no dtype has this number",
    NO_SHARD: "a tensor is in a data file that there is not",
    WRONG_SIZE: "a tensor has more or fewer bytes than its shape",
}

_KINDS = {
    TRUNCATED: TruncatedError,
    BAD_LENGTH_CRC: ChecksumError,
    BAD_DATA_CRC: ChecksumError,
    TOO_LONG: LimitError,
    OVER_LIMIT: LimitError,
    TOO_DEEP: LimitError,
}

MAX_MESSAGE = (1 << 31) - 1
"""Protobuf's ceiling, and TensorFlow's: it crashes above."""


def problem(status: int, offset: int, format: str) -> DecodeError:
    """The error for a kernel's status."""
    kind = _KINDS.get(status, DecodeError)
    return kind(PROBLEMS[status], format=format, offset=offset)
