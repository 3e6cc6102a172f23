"""JSON text of tensors in TensorFlow Serving's REST API: numbers by kernels, strings by
`json_strings`.

NaN and the infinities are bare tokens. A string is plain text, or {"b64": ...}. Serving does not
check the encoding of plain text, so it may hold any bytes, which are read and written unchanged.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable
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
from ...wire.status import OutOfRange
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
"""The dtypes that Serving's JSON supports; every other dtype needs gRPC."""
_QUOTE = re.compile(rb'"')
_LISTS = re.compile(rb"[\[ \t\n\r]*+")


def write(tensor: Array | Strings, coded: bool | None = None) -> bytes:
    """Return a tensor as nested JSON lists. Strings are {"b64": ...} if `coded`, by default if they
    are bytes rather than text.

    >>> write(np.float32([[1, np.nan]])), write(Strings.of(["a", 'b"']))
    (b'[[1.0,NaN]]', b'["a","b\\\\""]')
    >>> write(Strings.of([b"a"], ()))
    b'{"b64":"YQ=="}'
    """
    _check_lists(tensor)
    if not isinstance(tensor, Strings):
        return jsontext.document(jsontext.Numbers(tensor, tensor.shape), bare=True)[0]
    items = _items(tensor, coded)
    for depth in reversed(range(len(tensor.shape))):
        items = _grouped(items, tensor.shape, depth)
    return items[0]


def write_rows(tensor: Array | Strings, coded: bool | None = None) -> list[bytes]:
    """Return the JSON text of each row of a tensor.

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
    # The text is split between rows: only there do `depth` lists end and `depth` lists begin.
    depth = next((i for i, dim in enumerate(tensor.shape) if not dim), len(tensor.shape) - 1)
    opened, closed = b"[" * depth, b"]" * depth
    whole = write(tensor)
    parts = whole[1 + depth : len(whole) - 1 - depth].split(closed + b"," + opened)
    return [opened + part + closed for part in parts] if depth else parts


def _items(strings: Strings, coded: bool | None) -> list[bytes]:
    """Return each string as JSON. Bytes are treated as characters of one byte, so their encoding
    does not matter.
    """
    items = strings.astext(False).reshape(-1).tolist()
    if coded or (coded is None and not strings.text):
        return [b'{"b64":"%b"}' % binascii.b2a_base64(item, newline=False) for item in items]
    return [encode_basestring(item.decode("latin-1")).encode("latin-1") for item in items]


def _grouped(items: list[bytes], shape: tuple[int, ...], depth: int) -> list[bytes]:
    size = shape[depth]
    return [
        b"[%b]" % b",".join(items[i * size : (i + 1) * size])
        for i in range(math.prod(shape[:depth]))
    ]


def _check_lists(tensor: Array | Strings) -> None:
    """Raise EncodeError if a tensor without elements would become gigabytes of brackets."""
    if not math.prod(tensor.shape) and 3 * math.prod(dim or 1 for dim in tensor.shape) > 1 << 30:
        raise EncodeError(
            f"the empty lists of a tensor of shape {tensor.shape} would take more than 1 GiB"
        )


class RequestText(Tokens):
    """The parser of a body: `Tokens` with tensors."""

    def __init__(
        self,
        data: memoryview,
        limits: Limits,
        exact: bool,
        watch: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(data, limits)
        self.watch = watch
        self.exact = exact
        """Whether Serving's own rules apply: "NaN" is a string, and 1e39 an infinite float32."""

    def of(self, data: Buffer) -> RequestText:
        """Return a parser of another text with the same rules."""
        return RequestText(memoryview(data), self.limits, self.exact, self.watch)

    def tensor(self, start: int, dtype: str | None) -> tuple[Array | Strings, int]:
        """Return the tensor at an offset, and the offset of its end. If the dtype is not given, it
        is inferred from the first element.
        """
        if dtype is None:
            return self._guessed(start)
        if dtype == "string":
            return self.strings(start)
        row = dtypes.named(dtype)
        if not self.exact or row.numpy.kind != "f":
            return self._numbers(start, row)
        try:
            array, end = self._numbers(start, row)
        except OutOfRange:
            # Serving reads a number out of the range of float32 as infinite, so it is read as
            # float64 and rounded.
            if dtype == "float64":
                raise
            wide, end = self._numbers(start, dtypes.named("float64"))
            with np.errstate(over="ignore"):
                array = wide.astype(row.numpy)
        # The kernel also accepts "NaN" and "Infinity" in quotes, which Serving does not.
        quoted = _QUOTE.search(self.data, start, end)
        if quoted is not None:
            self.fail("expected a number, got a string", quoted.start())
        return array, end

    def _numbers(self, start: int, row: dtypes.DType) -> tuple[Array, int]:
        numbers = jsontext.read_numbers(
            self.data, start, row, most=self.limits.tensor, format=FORMAT
        )
        return numbers.array, numbers.end

    def _first(self, offset: int) -> bytes:
        """Return the first byte of the first element in nested lists."""
        first = _LISTS.match(self.data, offset).end()  # type: ignore[union-attr]
        return bytes(self.data[first : first + 1])

    def _guessed(self, start: int) -> tuple[Array | Strings, int]:
        # Most answers without a dtype are integers or floats. int64 is tried first, so that large
        # integers stay exact; the kernel stops at the first number that is not one.
        first = self._first(start)
        if first in (b'"', b"{"):
            return self.strings(start)
        if first in (b"t", b"f"):
            return self.tensor(start, "bool")
        try:
            return self.tensor(start, "int64")
        except LimitError:
            raise
        except OutOfRange:
            return self.tensor(start, "uint64")
        except DecodeError:
            return self.tensor(start, "float64")

    def is_object(self, offset: int) -> bool:
        """Return whether there is an object at the offset that is not a string in base64."""
        return (
            self.data[offset] == ord("{")
            and json_strings.ONE_CODED.match(self.data, offset) is None
        )

    def is_empty(self, offset: int) -> bool:
        """Return whether there is an empty list at the offset."""
        return self.data[offset] == ord("[") and self.data[self.space(offset + 1)] == ord("]")

    def strings(self, start: int) -> tuple[Strings, int]:
        """Return the strings in nested lists at an offset, as bytes, and the end of the lists."""
        if self._first(start) == b"]":
            numbers = jsontext.read_numbers(
                self.data, start, dtypes.BY_NAME["int64"], most=0, format=FORMAT
            )
            return Strings.of([], numbers.array.shape, text=False), numbers.end
        return json_strings.read(self, start)

    def ignore(self, start: int) -> int:
        """Skip a value of an unknown key and return the offset of its end. Values of up to 1 MiB
        must be valid JSON.
        """
        end = self.end(start)
        if end - start <= 1 << 20:
            self.loose(start, end)
        return end

    def loose(self, start: int, end: int) -> Any:
        """Return a value by Python's own parser, for which NaN is a number."""
        try:
            return json.loads(str(self.data[start:end], "utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            self.fail("invalid JSON", start)
