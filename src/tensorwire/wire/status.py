"""Status codes of the kernels and their error messages.

The numbers are those of native/src/protobuf.h.
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
    BAD_TAG: "invalid protobuf tag",
    UNKNOWN_FIELD: "unknown field number, or wrong wire type for this field",
    REPEATED: "a singular field appears twice: are these two concatenated messages?",
    NEGATIVE_DIM: "a dimension is negative",
    TOO_MANY_DIMS: "more than 254 dimensions",
    BAD_UTF8: "a name is not UTF-8",
    BAD_PACKED: "a packed run is not a whole number of values",
    OUT_OF_RANGE: "a value does not fit the dtype",
    TOO_FEW: "too few values for the shape",
    TOO_MANY: "more values than the shape holds",
    BAD_BOOL: "a bool is neither 0 nor 1",
    MIXED_FIELDS: "another field appears between the strings",
    BAD_GROUP: "a group is not closed, or nested too deep",
    NO_SPACE: "the buffer changed while it was being read",
    WRONG_KIND: "the values of a feature have another type than its column",
    WRONG_LENGTH: "a feature has more or fewer values than its column",
    BAD_LENGTH_CRC: "the length of a record does not match its checksum",
    BAD_DATA_CRC: "the data of a record does not match its checksum",
    TOO_LONG: "a record is longer than the limit",
    BAD_COPY: "a copy starts before the beginning of the data",
    OVERRUN: "the data is longer than the length at the start of the block",
    OVER_LIMIT: "the data is longer than the limit",
    BAD_OFFSET: "an offset points outside the message",
    WRONG_MESSAGE: "not an Arrow message, or not a supported kind of message",
    NESTED: "types are nested more than 64 levels deep",
    SHARED: "the message refers to the same parts so often that it expands beyond its size",
    BAD_LAYOUT: (
        "a length is negative, or a buffer lies outside the message's body or overlaps another one"
    ),
    BAD_JSON: "not JSON: unexpected character",
    BAD_NUMBER: "not a JSON number",
    NOT_INTEGER: "expected an integer, found a number with a fraction or an exponent",
    NOT_BOOL: "expected true or false",
    RAGGED: "ragged lists: this list is longer or shorter than those before it",
    WRONG_SHAPE: "the nested lists do not match the shape",
    MIXED_DEPTH: "lists and numbers at the same depth",
    TOO_DEEP: "lists and objects are nested too deep",
    BAD_RESTARTS: "the restart offsets of a block do not match its entries",
    BAD_PREFIX: "a key shares a longer prefix with the previous key than that key has",
    KEY_ORDER: "the keys of a table are not in ascending order",
    TOO_LARGE: "a shape is too large: its size exceeds 2**63 bytes",
    NO_DTYPE: "unknown dtype number",
    NO_SHARD: "a tensor refers to a data file that does not exist",
    WRONG_SIZE: "the size of a tensor does not match its shape and dtype",
}


class OutOfRange(DecodeError):
    """A number does not fit the dtype that it is read as."""


_KINDS = {
    OUT_OF_RANGE: OutOfRange,
    TRUNCATED: TruncatedError,
    BAD_LENGTH_CRC: ChecksumError,
    BAD_DATA_CRC: ChecksumError,
    TOO_LONG: LimitError,
    OVER_LIMIT: LimitError,
    TOO_DEEP: LimitError,
}

MAX_MESSAGE = (1 << 31) - 1
"""The largest protobuf message. TensorFlow crashes on larger ones."""


def problem(status: int, offset: int, format: str) -> DecodeError:
    """Return the error for the status code of a kernel."""
    kind = _KINDS.get(status, DecodeError)
    return kind(PROBLEMS[status], format=format, offset=offset)
