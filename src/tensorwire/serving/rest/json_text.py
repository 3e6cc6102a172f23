"""Tensors as the JSON text that TensorFlow Serving's REST reads and writes: numbers by kernels,
strings by `json_strings`.

NaN and the infinities are bare tokens. A string is plain text, or {"b64": ...}; Serving looks at no
encoding, so plain text may hold any bytes, and they are taken and given as they are.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from ..._errors import DecodeError, EncodeError, LimitError
from ..._limits import Limits
from ...codecs.json.tokens import FORMAT, Tokens
from ...core import dtypes
from ...core.memory import Buffer
from ...core.tensors import Array, Strings
from ...wire import json as jsontext
from ...wire.status import OUT_OF_RANGE, PROBLEMS
from . import json_strings

DTYPES = (
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint32",
    "uint64",
    "bool",
    "string",
)
"""All that Serving's JSON has; every other dtype needs gRPC."""
_QUOTE = re.compile(rb'"')
_LISTS = re.compile(rb"[\[ \t\n\r]*+")


def write(tensor: Array | Strings, coded: bool | None = None) -> bytes:
    """A tensor as nested lists. Strings are {"b64": ...} if `coded`, by default if they are bytes
    rather than text.

    >>> write(np.float32([[1, np.nan]])), write(Strings.of(["a", 'b"'])), write(Strings.of([b"a"],
    ...     ()))
    (b'[[1.0,NaN]]', b'["a","b\\\\""]', b'{"b64":"YQ=="}')
    """
    _check_lists(tensor)
    if not isinstance(tensor, Strings):
        return jsontext.document(jsontext.Numbers(tensor, tensor.shape), bare=True)[0]
    items = _items(tensor, coded)
    for depth in reversed(range(len(tensor.shape))):
        items = _grouped(items, tensor.shape, depth)
    return items[0]


def write_rows(tensor: Array | Strings, coded: bool | None = None) -> list[bytes]:
    """The text of each row of a tensor that has rows.

    >>> write_rows(np.array([[1, 2], [3, 4]])), write_rows(np.float64([0.5, 2]))
    ([b'[1,2]', b'[3,4]'], [b'0.5', b'2.0'])
    """
    _check_lists(tensor)
    if isinstance(tensor, Strings):
        items = _items(tensor, coded)
        for depth in reversed(range(1, len(tensor.shape))):
            items = _grouped(items, tensor.shape, depth)
        return items
    if not len(tensor):
        return []
    # Between two rows, and nowhere else, as many lists end and begin as there are levels below.
    depth = next((i for i, dim in enumerate(tensor.shape) if not dim), len(tensor.shape) - 1)
    opened, closed = b"[" * depth, b"]" * depth
    whole = write(tensor)
    parts = whole[1 + depth : len(whole) - 1 - depth].split(closed + b"," + opened)
    return [opened + part + closed for part in parts] if depth else parts


def _items(strings: Strings, coded: bool | None) -> list[bytes]:
    """Each string as JSON. Its bytes go through as characters of one byte, so nobody needs to know
    what they mean.
    """
    found = strings.astext(False).reshape(-1).tolist()
    if coded or (coded is None and not strings.text):
        return [b'{"b64":"%b"}' % binascii.b2a_base64(item, newline=False) for item in found]
    return [encode_basestring(item.decode("latin-1")).encode("latin-1") for item in found]


def _grouped(items: list[bytes], shape: tuple[int, ...], depth: int) -> list[bytes]:
    size = shape[depth]
    return [
        b"[%b]" % b",".join(items[i * size : (i + 1) * size])
        for i in range(math.prod(shape[:depth]))
    ]


def _check_lists(tensor: Array | Strings) -> None:
    """That a tensor without elements does not become gigabytes of brackets."""
    if not math.prod(tensor.shape) and 3 * math.prod(dim or 1 for dim in tensor.shape) > 1 << 30:
        raise EncodeError(
            f"the lists of shape {tensor.shape} would take more than 1 GiB, and hold nothing"
        )


class RequestText(Tokens):
    """A body that is being read."""

    def __init__(self, data: memoryview, limits: Limits, exact: bool) -> None:
        super().__init__(data, limits)
        self.exact = exact
        """Whether Serving's own rules hold: "NaN" is a string, and 1e39 an infinite float32."""

    def of(self, data: Buffer) -> RequestText:
        """Another text, read by the same rules."""
        found = RequestText(memoryview(data), self.limits, self.exact)
        found.watch = self.watch
        return found

    def tensor(self, at: int, dtype: str | None) -> tuple[Array | Strings, int]:
        """The tensor at data[at], and where it ends. If its dtype is not known, the first thing in
        it says what it may be.
        """
        if dtype is None:
            return self._guessed(at)
        if dtype == "string":
            return self.strings(at)
        row = dtypes.named(dtype)
        if not self.exact or row.numpy.kind != "f":
            return self._numbers(at, row)
        try:
            array, end = self._numbers(at, row)
        except DecodeError as error:
            if error.message != PROBLEMS[OUT_OF_RANGE] or dtype == "float64":
                raise
            wide, end = self._numbers(at, dtypes.named("float64"))
            with np.errstate(over="ignore"):
                array = wide.astype(row.numpy)
        quoted = _QUOTE.search(self.data, at, end)
        if quoted is not None:
            self.fail("a string where a number should stand", quoted.start())
        return array, end

    def _numbers(self, at: int, row: dtypes.DType) -> tuple[Array, int]:
        found = jsontext.read_numbers(self.data, at, row, most=self.limits.tensor, format=FORMAT)
        return found.array, found.end

    def _first(self, at: int) -> bytes:
        """The first thing in nested lists."""
        start = _LISTS.match(self.data, at).end()  # type: ignore[union-attr]
        return bytes(self.data[start : start + 1])

    def _guessed(self, at: int) -> tuple[Array | Strings, int]:
        first = self._first(at)
        if first in (b'"', b"{"):
            return self.strings(at)
        if first in (b"t", b"f"):
            return self.tensor(at, "bool")
        try:
            return self.tensor(at, "int64")
        except DecodeError as error:
            if isinstance(error, LimitError):
                raise
            past = error.message == PROBLEMS[OUT_OF_RANGE]
        return self.tensor(at, "uint64" if past else "float64")

    def is_object(self, at: int) -> bool:
        """Whether an object begins here, and not a string in base64."""
        return self.data[at] == ord("{") and json_strings.ONE_CODED.match(self.data, at) is None

    def is_empty(self, at: int) -> bool:
        """Whether the list here has nothing in it."""
        return self.data[at] == ord("[") and self.data[self.space(at + 1)] == ord("]")

    def strings(self, at: int) -> tuple[Strings, int]:
        """Nested lists of strings, as bytes."""
        if self._first(at) == b"]":
            found = jsontext.read_numbers(
                self.data, at, dtypes.BY_NAME["int64"], most=0, format=FORMAT
            )
            return Strings.of([], found.array.shape, text=False), found.end
        return json_strings.read(self, at)

    def ignore(self, at: int) -> int:
        """Behind a value that nobody wants; it should be JSON all the same, so what is not very
        long is looked into.
        """
        end = self.end(at)
        if end - at <= 1 << 20:
            self.loose(at, end)
        return end

    def loose(self, at: int, end: int) -> Any:
        """A value by Python's own parser, for which NaN is a number."""
        try:
            return json.loads(str(self.data[at:end], "utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            self.fail("not JSON", at)
