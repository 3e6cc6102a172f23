"""KServe's tensors out of a body: JSON text, or bytes behind it. Sizes are checked before anything
is made of them.
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


def dtype_of(name: object, at: int) -> str:
    if name == BYTES:
        return "string"
    if not isinstance(name, str) or name not in _ROWS:
        raise DecodeError(
            f"the datatype {name!r:.40}, which is not known", format=FORMAT, offset=at
        )
    return _ROWS[name].name


def given(where: Mapping[str, Any], key: str, otherwise: object) -> Any:
    """What an object has under a key. KServe's own server writes null where nothing is.

    >>> given({"parameters": None}, "parameters", {}), given({"parameters": 1}, "parameters", {})
    ({}, 1)
    """
    value = where.get(key)
    return otherwise if value is None else value


class _Said(NamedTuple):
    """What the JSON says of a tensor."""

    at: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int | None
    """Of its bytes behind the JSON."""
    data: int | None
    """Where its numbers begin in the JSON."""


def parse(
    body: Buffer,
    headers: Mapping[str, str] | None,
    key: str,
    status: int,
    copy: bool | None,
    limits: Limits,
    watch: Callable[[], object] | None = None,
) -> dict[str, Array | Strings]:
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
    said = next(
        (value for name, value in (headers or {}).items() if name.lower() == LENGTH.lower()), None
    )
    if said is None:
        return len(data)
    if not said.isascii() or not said.isdigit() or len(said) > 18 or int(said) > len(data):
        raise DecodeError(f"{LENGTH} is {said!r:.40}, and the body has {len(data)} bytes")
    return int(said)


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
    said: list[_Said] = []
    keys: list[str] = []

    def take(name: str, at: int) -> int:
        keys.append(name)
        return text.each_item(at, take_tensor) if name == key else text.ignore(at)

    def take_tensor(number: int, at: int) -> int:
        if number >= limits.names:
            text.fail(f"more than {limits.names} tensors", at, LimitError)
        found, stop = _said(text, at)
        said.append(found)
        return stop

    text.finish(text.each_key(text.space(0), take))
    if key not in keys:
        if "error" in keys:
            raise ModelError(200, message(data[:end]))
        text.fail(f"there are no {key}", 0)
    found: dict[str, Array | Strings] = {}
    at = end
    for one in said:
        if watch is not None:
            watch()
        if one.name in found:
            text.fail(f"the tensor {one.name!r:.60} stands twice", one.at)
        try:
            found[one.name] = (
                _from_text(text, one)
                if one.size is None
                else _from_bytes(data, at, one, copy, limits)
            )
        except DecodeError as error:
            raise error.add(tensor=one.name) from None
        at += one.size or 0
    if at != len(data):
        raise DecodeError(f"{len(data) - at} bytes stand behind the last tensor", offset=at)
    return found


def _said(text: RequestText, at: int) -> tuple[_Said, int]:
    found: dict[str, Any] = {}
    places: dict[str, int] = {}

    def take(key: str, place: int) -> int:
        end = text.end(place) if key == "data" else text.ignore(place)
        if key != "data" or bytes(text.data[place : place + 4]) != b"null":
            places[key] = place
        if key in _KEYS and key != "data":
            if end - place > 1 << 20:
                text.fail(f"the {key} of a tensor is longer than anyone needs", place, LimitError)
            found[key] = text.loose(place, end)
        return end

    stop = text.each_key(at, take)
    name, shape, parameters = found.get("name"), found.get("shape"), given(found, "parameters", {})
    if (
        not isinstance(name, str)
        or not isinstance(shape, list)
        or any(type(dim) is not int for dim in shape)
        or not isinstance(parameters, dict)
    ):
        text.fail("a tensor has a name, a shape and a datatype", at)
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        text.fail("binary_data_size is a number of bytes", places["parameters"])
    if (size is None) == ("data" not in places):
        text.fail("a tensor has either data or a binary_data_size", at)
    dtype = dtype_of(found.get("datatype"), at)
    try:
        validate.elements(
            shape, DecodeError, 1 if dtype == "string" else dtypes.named(dtype).numpy.itemsize
        )
    except DecodeError as error:
        raise error.add(format=FORMAT, offset=at, tensor=name) from None
    return _Said(at, name, dtype, tuple(shape), size, places.get("data")), stop


def _from_text(text: RequestText, one: _Said) -> Array | Strings:
    """Numbers in one list, or in lists by the shape."""
    tensor, _ = text.tensor(one.data or 0, one.dtype)
    if tensor.size != validate.elements(one.shape, DecodeError):
        text.fail(f"{tensor.size} values for the shape {list(one.shape)}", one.at)
    return tensor.reshape(one.shape)


def _from_bytes(
    data: memoryview, at: int, one: _Said, copy: bool | None, limits: Limits
) -> Array | Strings:
    count, size = validate.elements(one.shape, DecodeError), one.size or 0
    if size > len(data) - at:
        raise DecodeError(
            f"binary_data_size is {size}, and {len(data) - at} bytes are left", offset=one.at
        )
    if one.dtype == "string":
        return _uncounted(data[at : at + size], at, count, one.shape, limits)
    row = dtypes.named(one.dtype)
    if size != count * row.numpy.itemsize:
        raise DecodeError(
            f"binary_data_size is {size}, and {one.dtype} {list(one.shape)} takes"
            f" {count * row.numpy.itemsize}",
            offset=one.at,
        )
    if row.name == "bool":
        odd = dtypes.noncanonical(row, np.frombuffer(data, np.uint8, size, at))
        if odd is not None:
            raise DecodeError("a bool is neither 0 nor 1", offset=at + odd)
    return memory.dense(data, at, row.numpy, one.shape, copy)


def _uncounted(
    data: memoryview, base: int, count: int, shape: tuple[int, ...], limits: Limits
) -> Strings:
    """Strings out of their lengths and bytes, one after the other."""
    if 4 * count > len(data):
        raise DecodeError(f"{len(data)} bytes cannot hold {count} lengths", offset=base)
    if 8 * count > limits.tensor:
        raise LimitError(
            f"{count} strings; Limits(tensor=...) allows {limits.tensor} bytes of offsets",
            offset=base,
        )
    starts = _starts(data, base, count)
    text = np.frombuffer(data, np.uint8)
    is_text = np.ones(len(text), np.bool_)
    for place in range(4):
        is_text[starts[:-1] + place] = False
    return trusted(Strings, text[is_text], starts - 4 * np.arange(count + 1), shape, False)


def _starts(data: memoryview, base: int, count: int) -> Array:
    """Where each length stands, and the end."""
    starts: Array = np.zeros(count + 1, np.int64)
    first = int.from_bytes(data[:4], "little") if count else 0
    if count * (4 + first) == len(data):  # perhaps all are equally long
        lengths = np.frombuffer(data, np.uint8).reshape(count, 4 + first)[:, :4]
        if (lengths == lengths[:1]).all():
            return np.arange(count + 1, dtype=np.int64) * (4 + first)
    at, length = 0, struct.Struct("<I").unpack_from
    for number in range(1, count + 1):
        if at + 4 > len(data):
            raise DecodeError(
                "a string runs past the end of its tensor", offset=base + min(at, len(data))
            )
        at += 4 + length(data, at)[0]
        starts[number] = at
    if at != len(data):
        what = (
            "a string runs past the end of its tensor"
            if at > len(data)
            else f"{len(data) - at} bytes stand behind the last string"
        )
        raise DecodeError(what, offset=base + min(at, len(data)))
    return starts
