"""JSON tokens: reads strings, lists and objects of a text, with the offset of every error.

The readers of documents (`json.reader`) and of serving requests are built on these functions.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..._errors import DecodeError, TruncatedError
from ..._limits import Limits
from ...core import validate
from ...wire import json as jsontext

FORMAT = "json"
_SPACE = re.compile(rb"[ \t\n\r]*")
_SIMPLE = re.compile(rb'"([^"\\\x00-\x1f]*)"')
_STRING = re.compile(rb'"[^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*)*"')
_OFTEN = 0xFF
"""`watch` is called once per 256 items: when the lowest 8 bits of the count are 0."""
_WORD = re.compile(rb"[-+.0-9a-zA-Z]+")

_HEAVIEST = 24
"""The most bytes of memory per byte of text: `{},` is an empty dict and an item of a list."""

Read = tuple[Any, int]
"""A value, and the offset of its end."""


def _weight(text: memoryview) -> int:
    """Estimates the memory of a text's Python objects: 32 bytes per item, 64 per list or dict."""
    weight = 0
    for start in range(0, len(text), 1 << 20):
        counts = np.bincount(
            np.frombuffer(text[start : start + (1 << 20)], np.uint8), minlength=128
        )
        weight += 32 * int(counts[ord(",")]) + 64 * int(counts[ord("[")] + counts[ord("{")])
    return weight


_BLANK = ord(" ")
"""The largest byte that is white space."""


class Tokens:
    """Reads tokens of one text."""

    def __init__(self, data: memoryview, limits: Limits) -> None:
        self.data, self.limits = data, limits.call(len(data))
        self._weigh = _HEAVIEST * len(data) > self.limits.left
        self.watch: Callable[[], object] | None = None
        """A function that is called regularly, and raises to stop reading at a deadline."""
        self.text_depth = 3 * limits.json_depth + validate.NUMPY_RANK + 8
        """The limit for nested brackets. A `$dict` nests three of them, and the innermost value may
        be a tensor that is a part of another tensor.
        """

    def fail(
        self,
        why: str,
        offset: int,
        kind: type[DecodeError] = DecodeError,
        *,
        hint: str | None = None,
    ) -> NoReturn:
        raise kind(why, format=FORMAT, offset=offset, hint=hint)

    def space(self, offset: int) -> int:
        """Skips white space, and returns the offset of the next token. There must be one."""
        if offset < len(self.data) and self.data[offset] > _BLANK:
            return offset
        offset = _SPACE.match(self.data, offset).end()  # type: ignore[union-attr]
        if offset == len(self.data):
            self.fail("the text ends within a value", offset, TruncatedError)
        return offset

    def finish(self, offset: int) -> None:
        offset = _SPACE.match(self.data, offset).end()  # type: ignore[union-attr]
        if offset != len(self.data):
            self.fail("unexpected text after the value", offset)

    def next(self, offset: int, close: str) -> tuple[int, bool]:
        """Reads the comma or bracket after a member of a list or object.

        Returns the offset of the next member and False, or the end of the list or object and True.
        """
        offset = self.space(offset)
        if self.data[offset] == ord(","):
            return self.space(offset + 1), False
        if self.data[offset] != ord(close):
            self.fail(f"invalid JSON: expected ',' or '{close}'", offset)
        return offset + 1, True

    def string(self, offset: int) -> tuple[str, int]:
        match = _SIMPLE.match(self.data, offset)
        if match is not None:
            try:
                return str(match[1], "utf-8"), match.end()
            except UnicodeDecodeError as error:
                self.fail(f"not UTF-8 ({error.reason})", offset + 1 + error.start)
        end = self.end(offset)
        if self.data[offset] != ord('"'):
            self.fail("expected a string", offset)
        return jsontext.parse(self.data[offset:end], FORMAT, offset), end

    def end(self, offset: int) -> int:
        """Returns the end of a value, by its brackets and quotes alone. It is not parsed."""
        if self.data[offset] in b"[{":
            return jsontext.skip(self.data, offset, self.text_depth, True, FORMAT)[0]
        match = _STRING.match(self.data, offset) or _WORD.match(self.data, offset)
        if match is None:
            self.fail(
                (
                    "invalid JSON: expected a value"
                    if self.data[offset] != ord('"')
                    else "unterminated or invalid string"
                ),
                offset,
            )
        return match.end()

    def python(self, offset: int) -> Read:
        """Reads a value with Python's parser."""
        end = self.end(offset)
        return self.parse(offset, end), end

    def parse(self, offset: int, end: int) -> Any:
        """Parses a range of the text with Python's parser.

        Its objects are drawn on the budget, unless the budget is large enough for any text of this
        size.
        """
        text = self.data[offset:end]
        if self._weigh:
            self.limits.draw(_weight(text), FORMAT, offset)
        return jsontext.parse(text, FORMAT, offset)

    def each_item(self, offset: int, take: Callable[[int, int], int]) -> int:
        """Calls `take` with the number and the offset of each item. Returns the end of the list.

        `take` returns the end of the item.
        """
        if self.data[offset] != ord("["):
            self.fail("expected a list", offset)
        offset, done, count = self.space(offset + 1), False, 0
        if self.data[offset] == ord("]"):
            return offset + 1
        while not done:
            if self.watch is not None and not count & _OFTEN:
                self.watch()
            offset, done = self.next(take(count, offset), "]")
            count += 1
        return offset

    def each_key(self, offset: int, take: Callable[[str, int], int]) -> int:
        """Calls `take` with each key of an object and the offset of its value, like `each_item`.

        A repeated key is an error: which value counts would depend on the parser.
        """
        if self.data[offset] != ord("{"):
            self.fail("expected an object", offset)
        keys: set[str] = set()
        offset, done = self.space(offset + 1), False
        if self.data[offset] == ord("}"):
            return offset + 1
        while not done:
            if self.watch is not None and not len(keys) & _OFTEN:
                self.watch()
            start = offset
            key, offset = self.string(offset)
            if key in keys:
                self.fail(f"duplicate key {key!r:.60}", start)
            keys.add(key)
            offset = self.space(offset)
            if self.data[offset] != ord(":"):
                self.fail("invalid JSON: expected ':'", offset)
            offset, done = self.next(take(key, self.space(offset + 1)), "}")
        return offset

    def base64(self, text: Any, offset: int) -> bytes:
        try:
            data = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            data = b"\0"
        # The comparison also rejects padding bits that are not zero, which b64decode ignores.
        if base64.b64encode(data).decode() != text:
            self.fail("invalid base64", offset)
        return data
