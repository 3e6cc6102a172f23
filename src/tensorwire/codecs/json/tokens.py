"""JSON text, token by token, for whoever takes documents apart; every fault has its place."""

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
"""So many items of a list pass between two looks at the clock."""
_WORD = re.compile(rb"[-+.0-9a-zA-Z]+")

_HEAVIEST = 24
"""Bytes of memory that a byte of text becomes at most: `{},` is an empty dict, and a place in a
list.
"""

Read = tuple[Any, int]
"""A value, and where it ends."""


def _weight(text: memoryview) -> int:
    """Bytes that Python's objects take, roughly: 32 for each item, 64 for each list and dict."""
    weight = 0
    for start in range(0, len(text), 1 << 20):
        counts = np.bincount(
            np.frombuffer(text[start : start + (1 << 20)], np.uint8), minlength=128
        )
        weight += 32 * int(counts[ord(",")]) + 64 * int(counts[ord("[")] + counts[ord("{")])
    return weight


_BLANK = ord(" ")
"""The largest of the bytes that are white space."""


class Tokens:
    def __init__(self, data: memoryview, limits: Limits) -> None:
        self.data, self.limits = data, limits.call(len(data))
        self._weigh = _HEAVIEST * len(data) > self.limits.left
        self.watch: Callable[[], object] | None = None
        """Called now and then, for whoever has to be done by a certain time."""
        self.text_depth = 3 * limits.json_depth + validate.NUMPY_RANK + 8
        """How deep brackets may nest: a `$dict` takes three, and at the bottom is a tensor, which
        may be a part of another.
        """

    def fail(self, why: str, offset: int, kind: type[DecodeError] = DecodeError) -> NoReturn:
        raise kind(why, format=FORMAT, offset=offset)

    def space(self, offset: int) -> int:
        """Where the next thing begins; there must be one."""
        if offset < len(self.data) and self.data[offset] > _BLANK:
            return offset
        offset = _SPACE.match(self.data, offset).end()  # type: ignore[union-attr]
        if offset == len(self.data):
            self.fail("the text ends inside of a value", offset, TruncatedError)
        return offset

    def finish(self, offset: int) -> None:
        offset = _SPACE.match(self.data, offset).end()  # type: ignore[union-attr]
        if offset != len(self.data):
            self.fail("something stands behind the value", offset)

    def next(self, offset: int, close: str) -> tuple[int, bool]:
        """Behind a member of a list or object: (where the next begins, False), or (where all of it
        ends, True).
        """
        offset = self.space(offset)
        if self.data[offset] == ord(","):
            return self.space(offset + 1), False
        if self.data[offset] != ord(close):
            self.fail(f"not JSON: a comma or {close} should stand here", offset)
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
            self.fail("a string should stand here", offset)
        return jsontext.parse(self.data[offset:end], FORMAT, offset), end

    def end(self, offset: int) -> int:
        """Where a value ends, as far as its brackets and quotes say."""
        if self.data[offset] in b"[{":
            return jsontext.skip(self.data, offset, self.text_depth, True, FORMAT)[0]
        match = _STRING.match(self.data, offset) or _WORD.match(self.data, offset)
        if match is None:
            self.fail(
                (
                    "not JSON: a value should stand here"
                    if self.data[offset] != ord('"')
                    else "a string that does not end as it should"
                ),
                offset,
            )
        return match.end()

    def python(self, offset: int) -> Read:
        """A value as Python's parser reads it."""
        end = self.end(offset)
        return self.parse(offset, end), end

    def parse(self, offset: int, end: int) -> Any:
        """Python's value of a run of text. Its objects are drawn on the budget, if it could be too
        small for them.
        """
        text = self.data[offset:end]
        if self._weigh:
            self.limits.draw(_weight(text), FORMAT, offset)
        return jsontext.parse(text, FORMAT, offset)

    def each_item(self, offset: int, take: Callable[[int, int], int]) -> int:
        """Calls `take` with the number of each item of a list and where it begins, which says where
        it ends. Where the list ends.
        """
        if self.data[offset] != ord("["):
            self.fail("a list should stand here", offset)
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
        """The same for the keys of an object, each of which stands once."""
        if self.data[offset] != ord("{"):
            self.fail("an object should stand here", offset)
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
                self.fail(f"the key {key!r:.60} stands twice", start)
            keys.add(key)
            offset = self.space(offset)
            if self.data[offset] != ord(":"):
                self.fail("not JSON: a colon should stand here", offset)
            offset, done = self.next(take(key, self.space(offset + 1)), "}")
        return offset

    def base64(self, text: Any, offset: int) -> bytes:
        try:
            data = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            data = b"\0"
        if base64.b64encode(data).decode() != text:  # bits that are left over, too
            self.fail("bytes that are not base64", offset)
        return data
