"""TensorProto, TensorFlow's message for one tensor.

It has `dtype`, `tensor_shape`, and the values in `tensor_content` or in a typed field.

1. Strict (the default) accepts messages with exactly one meaning: all values and no more, or one
   value that fills the shape (within limits).
2. `tf_compat` accepts what TensorFlow accepts: too few values repeat the last one, no values are
   zeros, excess values are ignored, values in the field of another type are ignored, numbers wrap.
3. A scan validates the message and counts the values of each field. The values are read after that,
   when their number is known to match the shape.
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
    """The result of a scan, before any value is read."""

    dtype: int
    shape: tuple[int, ...]
    unknown_rank: bool
    name: bytes
    """The name of the first dimension."""
    content: tuple[int, int] | None
    """(offset, size)"""
    counts: tuple[int, ...]
    """The number of values in each typed field, by field number."""
    strings_at: int | None
    """The offset of the first string_val, if the scan stopped there and did not read the rest."""


def scan(view: memoryview, strict: bool, stop_at_strings: bool = True) -> Message:
    """Scan the message, all of it or up to the first string_val."""
    (
        code,
        offset,
        dtype,
        shape,
        unknown,
        name_start,
        name_size,
        has_content,
        content,
        size,
        counts,
    ) = kernels.tensor_scan(view, strict, stop_at_strings)
    if code:
        raise problem(code, offset, FORMAT)
    name = bytes(view[name_start : name_start + name_size])
    return Message(
        dtype,
        shape,
        unknown,
        name,
        (content, size) if has_content else None,
        counts,
        offset if stop_at_strings and counts[8] else None,
    )


def check_shape(message: Message, strict: bool, itemsize: int) -> int:
    """Return the number of elements of the shape. Raises DecodeError if it is not valid."""
    if strict and message.unknown_rank:
        raise DecodeError("the tensor has a shape of unknown rank", format=FORMAT)
    return validate.elements(message.shape, DecodeError, itemsize)


def numbers(
    view: memoryview,
    message: Message,
    row: dtypes.DType,
    strict: bool,
    limits: Limits,
    copy: bool | None,
) -> Array:
    """Return the values of a dense tensor of numbers."""
    count = check_shape(message, strict, row.numpy.itemsize)
    counts, content = message.counts, message.content
    if strict:
        wrong = [field for field in _VALUE_FIELDS if counts[field] and field != row.field]
        if wrong or (content is not None and counts[row.field]):
            where = f"field {wrong[0]}" if wrong else "both tensor_content and a typed field"
            raise DecodeError(
                f"a tensor of {row.name} has values in {where}",
                format=FORMAT,
                hint="pass tf_compat=True to read it like TensorFlow",
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
            f"{row.name} {list(shape)} needs {count * row.numpy.itemsize} bytes of tensor_content,"
            f" not {size}",
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
    stored: int,
    strict: bool,
    limits: Limits,
    copy: bool | None,
) -> Array:
    pair = 2 if row.numpy.kind == "c" else 1
    if strict:
        if stored > count * pair:
            raise problem(TOO_MANY, len(view), FORMAT)
        if stored < count * pair and stored != pair:
            raise TruncatedError(
                f"the shape {list(shape)} needs {count} values, not {stored // pair}",
                format=FORMAT,
                offset=len(view),
                hint="pass tf_compat=True to repeat the last value like TensorFlow",
            )
    room = min(stored // pair, count)
    size = count * row.numpy.itemsize
    _allow(size, view, limits)
    if copy is False and count:
        raise DecodeError(
            "copy=False, but values of a typed field must be converted",
            format=FORMAT,
            hint="omit copy=",
        )
    low, high = dtypes.bounds(row)
    code, offset, _, raw = kernels.typed_vals(
        view, row.field, strict, row.numpy.itemsize // pair, low, high, room * pair
    )
    if code:
        raise problem(code, offset, FORMAT)
    values: Array = raw.view(row.numpy)
    # In memory the upper bits of an int4 are zero, even for negative numbers.
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
    """Return (shape, data, offsets) of a string tensor, from string_val or tensor_content."""
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
    # The shape or tensor_content may come after the strings, so the whole message is scanned.
    full_scan = scan(view, strict, stop_at_strings=False)
    count = check_shape(full_scan, strict, 1)
    string_count, content = full_scan.counts[8], full_scan.content
    if strict:
        wrong = [field for field in _VALUE_FIELDS if full_scan.counts[field] and field != 8]
        if wrong or (content is not None and string_count):
            where = f"field {wrong[0]}" if wrong else "both tensor_content and string_val"
            raise DecodeError(
                f"a tensor of strings has values in {where}",
                format=FORMAT,
                hint="pass tf_compat=True to read it like TensorFlow",
            )
    if content is not None and content[1] and count:
        return full_scan.shape, *_string_content(view, content, count)
    if content is not None and content[1] and strict:
        raise problem(TOO_MANY, content[0], FORMAT)
    if strict and string_count > count:
        raise problem(TOO_MANY, len(view), FORMAT)
    if strict and string_count < count and string_count != 1:
        raise TruncatedError(
            f"the shape {list(full_scan.shape)} needs {count} strings, not {string_count}",
            format=FORMAT,
            offset=len(view),
            hint="pass tf_compat=True to repeat the last string like TensorFlow",
        )
    stored = min(string_count, count)
    code, error_offset, _, used, data, offsets = kernels.parse_string_vals(
        view, 0, False, stored, len(view)
    )
    if code:
        raise problem(code, error_offset, FORMAT)
    return full_scan.shape, *_fill(data[:used], offsets, count, view, limits)


def _string_vals(
    view: memoryview, start: int, count: int, limits: Limits
) -> tuple[Array, Array] | None:
    """Read exactly `count` strings up to the end of the message in one pass, the usual case.

    Returns None if anything else is in the message.
    """
    # Each string takes at least two bytes for its tag and its length.
    room = len(view) - start - 2 * count
    if room < 0:
        return None
    code, _, seen, used, data, offsets = kernels.parse_string_vals(view, start, True, count, room)
    return None if code or seen != count else (data[:used], offsets)


def _string_content(view: memoryview, content: tuple[int, int], count: int) -> tuple[Array, Array]:
    offset, size = content
    if count > size:
        raise TruncatedError(
            f"{size} bytes of tensor_content for {count} strings", format=FORMAT, offset=offset
        )
    inner = view[offset : offset + size]
    code, consumed, offsets = kernels.parse_string_lengths(inner, count)
    if code:
        raise problem(code, offset + consumed, FORMAT)
    return np.frombuffer(inner, np.uint8)[consumed:].copy(), offsets


def _fill(
    data: Array, offsets: Array, count: int, view: memoryview, limits: Limits
) -> tuple[Array, Array]:
    """Repeat the last string until there are `count`; without strings, add empty ones."""
    stored = len(offsets) - 1
    missing = count - stored
    if missing == 0:
        return data, offsets
    last = data[offsets[-2] :] if stored else data[:0]
    limits.call(len(view)).draw(len(data) + missing * len(last) + 8 * missing, FORMAT)
    more = offsets[-1] + len(last) * np.arange(1, missing + 1, dtype=np.int64)
    return np.concatenate([data, np.tile(last, missing)]), np.concatenate([offsets, more])


def _allow(size: int, view: memoryview, limits: Limits) -> None:
    """Raise LimitError if a tensor of `size` bytes must not be allocated for a message."""
    if size > len(view) and size > limits.tensor:
        raise LimitError(
            f"a message of {len(view)} bytes has a tensor of {size} bytes, and the limit is"
            f" {limits.tensor}",
            format=FORMAT,
            hint="pass a larger Limits(tensor=...)",
        )
    limits.call(len(view)).draw(size, FORMAT)


def header(enum: int, shape: tuple[int, ...], nbytes: int) -> bytes:
    """Return the bytes before the content of a dense tensor."""
    head = kernels.dense_header(enum, shape, nbytes or -1)
    check_size(len(head) + nbytes)
    return head


def string_header(shape: tuple[int, ...], content: int = -1) -> bytes:
    """Return the bytes before the values of a string tensor."""
    return kernels.dense_header(dtypes.STRING, shape, content)


def check_size(size: int) -> None:
    """Raise EncodeError if a message is larger than protobuf allows."""
    if size > MAX_MESSAGE:
        raise EncodeError(
            f"a TensorProto cannot be larger than 2 GiB, and this one needs {size} bytes",
            format=FORMAT,
            hint="the format safetensors has no such limit",
        )
