"""The parser of KServe bodies: JSON, or JSON followed by the bytes of the tensors.

1. One pass over the JSON collects the declaration of each tensor: its name, dtype and shape, and
   where its values are. The values themselves are skipped.
2. The shape and the size of a tensor are checked before memory is allocated for it.
3. Then the values are read in the order of the declarations. Binary data has no offsets: the bytes
   of a tensor begin where those of the one before end, and the last one must end with the body.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..._errors import DecodeError, LimitError, ModelError
from ..._limits import Limits
from ...codecs.json.tokens import FORMAT as JSON
from ...core import dtypes, memory, validate
from ...core.frozen import trusted
from ...core.memory import Buffer
from ...core.tensors import Array, Strings
from ..rest.answers import message
from ..rest.json_text import RequestText

FORMAT = "kserve"
LENGTH = "Inference-Header-Content-Length"
BYTES = "BYTES"
_ROWS = {row.kserve: row for row in dtypes.TABLE if row.kserve}
_KEYS = ("name", "shape", "datatype", "parameters", "data")


def dtype_of(name: object, offset: int) -> str:
    """Return the dtype of a KServe datatype."""
    if name == BYTES:
        return "string"
    if not isinstance(name, str) or name not in _ROWS:
        raise DecodeError(f"unknown datatype {name!r:.40}", format=FORMAT, offset=offset)
    return _ROWS[name].name


def given(parent: Mapping[str, Any], key: str, default: object) -> Any:
    """Return a member of an object, or the default if it is missing or null. KServe's own server
    writes null for members without a value.

    >>> given({"parameters": None}, "parameters", {}), given({"parameters": 1}, "parameters", {})
    ({}, 1)
    """
    value = parent.get(key)
    return default if value is None else value


class _Declaration(NamedTuple):
    """The declaration of a tensor in the JSON."""

    offset: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int | None
    """The number of its bytes after the JSON; None if its values are in the JSON."""
    data: int | None
    """The offset of its values in the JSON."""


def parse(
    body: Buffer,
    headers: Mapping[str, str] | None,
    key: str,
    status: int,
    copy: bool | None,
    limits: Limits,
    watch: Callable[[], object] | None = None,
) -> dict[str, Array | Strings]:
    """Return the tensors under a key of a body, by name."""
    data = memory.flat(body)
    try:
        end = _json_length(data, headers)
        if status != 200:
            raise ModelError(status, message(data[:end]))
        return _read(data, end, key, copy, limits, watch)
    except DecodeError as error:
        if error.format == JSON:
            error.format = FORMAT
        raise error.add(format=FORMAT, offset=0) from None


def _json_length(data: memoryview, headers: Mapping[str, str] | None) -> int:
    length = next(
        (value for name, value in (headers or {}).items() if name.lower() == LENGTH.lower()), None
    )
    if length is None:
        return len(data)
    if not length.isascii() or not length.isdigit() or len(length) > 18 or int(length) > len(data):
        raise DecodeError(f"invalid {LENGTH} {length!r:.40} for a body of {len(data)} bytes")
    return int(length)


def _read(
    data: memoryview,
    end: int,
    key: str,
    copy: bool | None,
    limits: Limits,
    watch: Callable[[], object] | None,
) -> dict[str, Array | Strings]:
    text = RequestText(data[:end], limits, exact=False)
    text.watch = watch
    declarations: list[_Declaration] = []
    keys: list[str] = []

    def take(name: str, offset: int) -> int:
        keys.append(name)
        return text.each_item(offset, take_tensor) if name == key else text.ignore(offset)

    def take_tensor(number: int, offset: int) -> int:
        if number >= limits.names:
            text.fail(f"more than {limits.names} tensors", offset, LimitError)
        declared, stop = _declaration(text, offset)
        declarations.append(declared)
        return stop

    text.finish(text.each_key(text.space(0), take))
    if key not in keys:
        if "error" in keys:
            raise ModelError(200, message(data[:end]))
        text.fail(f"missing key {key!r}", 0)
    tensors: dict[str, Array | Strings] = {}
    offset = end
    for declared in declarations:
        if watch is not None:
            watch()
        if declared.name in tensors:
            text.fail(f"duplicate tensor {declared.name!r:.60}", declared.offset)
        try:
            tensors[declared.name] = (
                _from_text(text, declared)
                if declared.size is None
                else _from_bytes(data, offset, declared, copy, limits)
            )
        except DecodeError as error:
            raise error.add(tensor=declared.name) from None
        offset += declared.size or 0
    if offset != len(data):
        raise DecodeError(f"{len(data) - offset} bytes follow the last tensor", offset=offset)
    return tensors


def _declaration(text: RequestText, start: int) -> tuple[_Declaration, int]:
    """Read the object of a tensor, without its values, and return the offset of its end."""
    members: dict[str, Any] = {}
    places: dict[str, int] = {}

    def take(key: str, offset: int) -> int:
        end = text.end(offset) if key == "data" else text.ignore(offset)
        if key != "data" or bytes(text.data[offset : offset + 4]) != b"null":
            places[key] = offset
        if key in _KEYS and key != "data":
            if end - offset > 1 << 20:
                text.fail(f"the {key} of a tensor is longer than 1 MiB", offset, LimitError)
            members[key] = text.loose(offset, end)
        return end

    stop = text.each_key(start, take)
    name, shape, parameters = (
        members.get("name"),
        members.get("shape"),
        given(members, "parameters", {}),
    )
    if (
        not isinstance(name, str)
        or not isinstance(shape, list)
        or any(type(dim) is not int for dim in shape)
        or not isinstance(parameters, dict)
    ):
        text.fail("expected a tensor with a name, a shape and a datatype", start)
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        text.fail("binary_data_size must be a number of bytes", places["parameters"])
    if (size is None) == ("data" not in places):
        text.fail("expected a tensor with either data or a binary_data_size", start)
    dtype = dtype_of(members.get("datatype"), start)
    try:
        validate.elements(
            shape, DecodeError, 1 if dtype == "string" else dtypes.named(dtype).numpy.itemsize
        )
    except DecodeError as error:
        raise error.add(format=FORMAT, offset=start, tensor=name) from None
    return _Declaration(start, name, dtype, tuple(shape), size, places.get("data")), stop


def _from_text(text: RequestText, declared: _Declaration) -> Array | Strings:
    """Return a tensor from JSON, a flat list or nested lists of its shape."""
    tensor, _ = text.tensor(declared.data or 0, declared.dtype)
    if tensor.size != validate.elements(declared.shape, DecodeError):
        text.fail(
            f"expected the values of shape {list(declared.shape)}, got {tensor.size} values",
            declared.offset,
        )
    return tensor.reshape(declared.shape)


def _from_bytes(
    data: memoryview, start: int, declared: _Declaration, copy: bool | None, limits: Limits
) -> Array | Strings:
    count, size = validate.elements(declared.shape, DecodeError), declared.size or 0
    if size > len(data) - start:
        raise DecodeError(
            f"binary_data_size is {size}, but only {len(data) - start} bytes are left",
            offset=declared.offset,
        )
    if declared.dtype == "string":
        return _uncounted(data[start : start + size], start, count, declared.shape, limits)
    row = dtypes.named(declared.dtype)
    if size != count * row.numpy.itemsize:
        raise DecodeError(
            f"binary_data_size is {size}, but {declared.dtype} {list(declared.shape)} takes"
            f" {count * row.numpy.itemsize} bytes",
            offset=declared.offset,
        )
    if row.name == "bool":
        invalid = dtypes.noncanonical(row, np.frombuffer(data, np.uint8, size, start))
        if invalid is not None:
            raise DecodeError("a bool is neither 0 nor 1", offset=start + invalid)
    return memory.dense(data, start, row.numpy, declared.shape, copy)


def _uncounted(
    data: memoryview, base: int, count: int, shape: tuple[int, ...], limits: Limits
) -> Strings:
    """Return strings from their lengths and bytes; the reverse of `_counted`."""
    if 4 * count > len(data):
        raise DecodeError(f"{len(data)} bytes cannot hold {count} lengths", offset=base)
    if 8 * count > limits.tensor:
        raise LimitError(
            f"the offsets of {count} strings are larger than {limits.tensor} bytes",
            offset=base,
            hint="use Limits(tensor=...) to allow more",
        )
    starts = _starts(data, base, count)
    text = np.frombuffer(data, np.uint8)
    is_text = np.ones(len(text), np.bool_)
    for place in range(4):
        is_text[starts[:-1] + place] = False
    return trusted(Strings, text[is_text], starts - 4 * np.arange(count + 1), shape, False)


def _starts(data: memoryview, base: int, count: int) -> Array:
    """Return the offset of each length, and the end."""
    starts: Array = np.zeros(count + 1, np.int64)
    first = int.from_bytes(data[:4], "little") if count else 0
    # If all strings can have the length of the first, all lengths are compared at once. Otherwise
    # each length must be read to find the next one.
    if count * (4 + first) == len(data):
        lengths = np.frombuffer(data, np.uint8).reshape(count, 4 + first)[:, :4]
        if (lengths == lengths[:1]).all():
            return np.arange(count + 1, dtype=np.int64) * (4 + first)
    offset, length = 0, struct.Struct("<I").unpack_from
    for number in range(1, count + 1):
        if offset + 4 > len(data):
            raise DecodeError(
                "a string runs past the end of its tensor", offset=base + min(offset, len(data))
            )
        offset += 4 + length(data, offset)[0]
        starts[number] = offset
    if offset != len(data):
        what = (
            "a string runs past the end of its tensor"
            if offset > len(data)
            else f"{len(data) - offset} bytes follow the last string"
        )
        raise DecodeError(what, offset=base + min(offset, len(data)))
    return starts
