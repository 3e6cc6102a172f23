"""TensorProto, TensorFlow's own message for one tensor: `dtype`, `tensor_shape`, and the values in
`tensor_content` or in a typed field.

Strict (the default) accepts what means exactly one tensor: all the values and no more, or one value
that fills the shape ("splat", within limits). `tf_compat` accepts what TensorFlow accepts: too few
values repeat the last one, none means zeros, too many are cut, values in another type's field are
ignored, numbers wrap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._errors import DecodeError, EncodeError, LimitError, TruncatedError
from .._limits import Limits
from ..core import dtypes, memory, validate
from . import kernels
from .status import BAD_BOOL, MAX_MESSAGE, OUT_OF_RANGE, TOO_MANY, problem

FORMAT = "tensorproto"
Array = np.ndarray[Any, Any]
_VALUE_FIELDS = frozenset({5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18})


class Message(NamedTuple):
    """What a scan found, before any value is read."""

    dtype: int
    shape: tuple[int, ...]
    unknown_rank: bool
    name: bytes
    """The first dimension's name."""
    content: tuple[int, int] | None
    """(offset, size)"""
    counts: tuple[int, ...]
    """Values in each typed field, by field number."""
    strings_at: int | None
    """Where the first string_val begins, if the scan stopped there; the rest has not been looked
    at.
    """


def scan(view: memoryview, strict: bool, stop_at_strings: bool = True) -> Message:
    """Walks the message, all of it or up to the first string_val."""
    code, at, dtype, shape, unknown, name_at, name_size, has_content, content, size, counts = (
        kernels.tensor_scan(view, strict, stop_at_strings)
    )
    if code:
        raise problem(code, at, FORMAT)
    name = bytes(view[name_at : name_at + name_size])
    return Message(
        dtype,
        shape,
        unknown,
        name,
        (content, size) if has_content else None,
        counts,
        at if stop_at_strings and counts[8] else None,
    )


def check_shape(message: Message, strict: bool, itemsize: int) -> int:
    """The number of elements."""
    if strict and message.unknown_rank:
        raise DecodeError("the shape is of unknown rank, so there is no tensor", format=FORMAT)
    return validate.elements(message.shape, DecodeError, itemsize)


def numbers(
    view: memoryview,
    message: Message,
    row: dtypes.DType,
    strict: bool,
    limits: Limits,
    copy: bool | None,
) -> Array:
    """The values of a dense tensor of numbers."""
    count = check_shape(message, strict, row.numpy.itemsize)
    counts, content = message.counts, message.content
    if strict:
        wrong = [field for field in _VALUE_FIELDS if counts[field] and field != row.field]
        if wrong or (content is not None and counts[row.field]):
            where = f"field {wrong[0]}" if wrong else "tensor_content and a typed field at once"
            raise DecodeError(
                f"values of {row.name} in {where}; tf_compat=True reads what TensorFlow would",
                format=FORMAT,
            )
    if (
        content is not None
        and (content[1] or not counts[row.field])
        and not (content[1] == 0 and count and not strict)
    ):
        return _content(view, message.shape, content, row, count, strict, copy)
    return _typed(view, message.shape, row, count, counts[row.field], strict, limits, copy)


def _content(
    view: memoryview,
    shape: tuple[int, ...],
    content: tuple[int, int],
    row: dtypes.DType,
    count: int,
    strict: bool,
    copy: bool | None,
) -> Array:
    offset, size = content
    if count == 0 and not strict:
        size = 0
    if size != count * row.numpy.itemsize:
        kind = TruncatedError if size < count * row.numpy.itemsize else DecodeError
        raise kind(
            f"{row.name} {list(shape)} takes {count * row.numpy.itemsize} bytes of content, not"
            f" {size}",
            format=FORMAT,
            offset=offset,
        )
    if size and (row.name == "bool" or (strict and row.bits < 8)):
        bad = dtypes.noncanonical(row, np.frombuffer(view, np.uint8, size, offset))
        if bad is not None:
            raise problem(BAD_BOOL if row.name == "bool" else OUT_OF_RANGE, offset + bad, FORMAT)
    return memory.dense(view, offset, row.numpy, shape, copy)


def _typed(
    view: memoryview,
    shape: tuple[int, ...],
    row: dtypes.DType,
    count: int,
    found: int,
    strict: bool,
    limits: Limits,
    copy: bool | None,
) -> Array:
    pair = 2 if row.numpy.kind == "c" else 1
    if strict:
        if found > count * pair:
            raise problem(TOO_MANY, len(view), FORMAT)
        if found < count * pair and found != pair:
            what = "no values" if not found else f"{found // pair} of {count} values"
            raise TruncatedError(
                f"{what} for the shape {list(shape)}; tf_compat=True fills up as TensorFlow does",
                format=FORMAT,
                offset=len(view),
            )
    room = min(found // pair, count)
    size = count * row.numpy.itemsize
    _allow(size, view, limits)
    if copy is False and count:
        raise DecodeError(
            "copy=False, but typed values must be converted; leave copy out", format=FORMAT
        )
    low, high = dtypes.bounds(row)
    code, at, _, raw = kernels.typed_vals(
        view, row.field, strict, row.numpy.itemsize // pair, low, high, room * pair
    )
    if code:
        raise problem(code, at, FORMAT)
    values: Array = raw.view(row.numpy)
    # in memory the upper bits of an int4 are zero, also of a negative one
    if row.bits < 8 and row.field == 7:
        values = (raw & ((1 << row.bits) - 1)).view(row.numpy)
    if room < count:
        full: Array = np.zeros(count, row.numpy)
        full[:room] = values
        if room:
            full[room:] = values[-1]
        values = full
    values = values.reshape(shape)
    return values if copy else memory.read_only(values)


def strings(
    view: memoryview, message: Message, strict: bool, limits: Limits
) -> tuple[tuple[int, ...], Array, Array]:
    """(shape, data, offsets) of a string tensor, from string_val or from tensor_content."""
    count = check_shape(message, strict, 1)
    _allow(8 * count, view, limits)
    if (
        message.strings_at is not None
        and message.content is None
        and not any(message.counts[field] for field in _VALUE_FIELDS - {8})
    ):
        quick = _string_vals(view, message.strings_at, count, limits)
        if quick is not None:
            return message.shape, *quick
    # the shape or the content may stand behind the strings
    whole = scan(view, strict, stop_at_strings=False)
    count = check_shape(whole, strict, 1)
    found, content = whole.counts[8], whole.content
    if strict:
        wrong = [field for field in _VALUE_FIELDS if whole.counts[field] and field != 8]
        if wrong or (content is not None and found):
            where = f"field {wrong[0]}" if wrong else "tensor_content and string_val at once"
            raise DecodeError(
                f"strings in {where}; tf_compat=True reads what TensorFlow would", format=FORMAT
            )
    if content is not None and content[1] and count:
        return whole.shape, *_string_content(view, content, count)
    if content is not None and content[1] and strict:
        raise problem(TOO_MANY, content[0], FORMAT)
    if strict and found > count:
        raise problem(TOO_MANY, len(view), FORMAT)
    if strict and found < count and found != 1:
        what = "no strings" if not found else f"{found} of {count} strings"
        raise TruncatedError(
            f"{what} for the shape {list(whole.shape)}; tf_compat=True fills up as TensorFlow does",
            format=FORMAT,
            offset=len(view),
        )
    stored = min(found, count)
    code, at, _, used, data, offsets = kernels.parse_string_vals(view, 0, False, stored, len(view))
    if code:
        raise problem(code, at, FORMAT)
    return whole.shape, *_fill(data[:used], offsets, count, view, limits)


def _string_vals(
    view: memoryview, start: int, count: int, limits: Limits
) -> tuple[Array, Array] | None:
    """The usual case in one pass: exactly `count` strings up to the end of the message. None if it
    is another case.
    """
    room = len(view) - start - 2 * count  # each string has a tag and a length
    if room < 0:
        return None
    code, _, found, used, data, offsets = kernels.parse_string_vals(view, start, True, count, room)
    return None if code or found != count else (data[:used], offsets)


def _string_content(view: memoryview, content: tuple[int, int], count: int) -> tuple[Array, Array]:
    offset, size = content
    if count > size:
        raise TruncatedError(
            f"{size} bytes of content for {count} strings", format=FORMAT, offset=offset
        )
    inner = view[offset : offset + size]
    code, at, offsets = kernels.parse_string_lengths(inner, count)
    if code:
        raise problem(code, offset + at, FORMAT)
    return np.frombuffer(inner, np.uint8)[at:].copy(), offsets


def _fill(
    data: Array, offsets: Array, count: int, view: memoryview, limits: Limits
) -> tuple[Array, Array]:
    """Repeats the last string until there are `count`; none means empty strings."""
    stored = len(offsets) - 1
    missing = count - stored
    if missing == 0:
        return data, offsets
    last = data[offsets[-2] :] if stored else data[:0]
    limits.call(len(view)).draw(len(data) + missing * len(last) + 8 * missing, FORMAT)
    more = offsets[-1] + len(last) * np.arange(1, missing + 1, dtype=np.int64)
    return np.concatenate([data, np.tile(last, missing)]), np.concatenate([offsets, more])


def _allow(size: int, view: memoryview, limits: Limits) -> None:
    """That a tensor of so many bytes may be made of a message."""
    if size > len(view) and size > limits.tensor:
        why = f"{len(view)} bytes claim a tensor of {size}"
        raise LimitError(f"{why}; Limits(tensor=...) allows {limits.tensor}", format=FORMAT)
    limits.call(len(view)).draw(size, FORMAT)


def header(enum: int, shape: tuple[int, ...], nbytes: int) -> bytes:
    """All that stands before the content of a dense tensor."""
    head = kernels.dense_header(enum, shape, nbytes or -1)
    check_size(len(head) + nbytes)
    return head


def string_header(shape: tuple[int, ...], content: int = -1) -> bytes:
    """All that stands before the values of a string tensor."""
    return kernels.dense_header(dtypes.STRING, shape, content)


def check_size(size: int) -> None:
    if size > MAX_MESSAGE:
        raise EncodeError(
            f"{size} bytes do not fit a TensorProto, which ends at 2 GiB (TensorFlow crashes"
            " there); safetensors has no such limit",
            format=FORMAT,
        )
