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

    def fail(self, why: str, at: int, kind: type[DecodeError] = DecodeError) -> NoReturn:
        raise kind(why, format=FORMAT, offset=at)

    def space(self, at: int) -> int:
        """Where the next thing begins; there must be one."""
        if at < len(self.data) and self.data[at] > _BLANK:
            return at
        at = _SPACE.match(self.data, at).end()  # type: ignore[union-attr]
        if at == len(self.data):
            self.fail("the text ends inside of a value", at, TruncatedError)
        return at

    def finish(self, at: int) -> None:
        at = _SPACE.match(self.data, at).end()  # type: ignore[union-attr]
        if at != len(self.data):
            self.fail("something stands behind the value", at)

    def next(self, at: int, close: str) -> tuple[int, bool]:
        """Behind a member of a list or object: (where the next begins, False), or (where all of it
        ends, True).
        """
        at = self.space(at)
        if self.data[at] == ord(","):
            return self.space(at + 1), False
        if self.data[at] != ord(close):
            self.fail(f"not JSON: a comma or {close} should stand here", at)
        return at + 1, True

    def string(self, at: int) -> tuple[str, int]:
        found = _SIMPLE.match(self.data, at)
        if found is not None:
            try:
                return str(found[1], "utf-8"), found.end()
            except UnicodeDecodeError as error:
                self.fail(f"not UTF-8 ({error.reason})", at + 1 + error.start)
        end = self.end(at)
        if self.data[at] != ord('"'):
            self.fail("a string should stand here", at)
        return jsontext.parse(self.data[at:end], FORMAT, at), end

    def end(self, at: int) -> int:
        """Where a value ends, as far as its brackets and quotes say."""
        if self.data[at] in b"[{":
            return jsontext.skip(self.data, at, self.text_depth, True, FORMAT)[0]
        found = _STRING.match(self.data, at) or _WORD.match(self.data, at)
        if found is None:
            self.fail(
                (
                    "not JSON: a value should stand here"
                    if self.data[at] != ord('"')
                    else "a string that does not end as it should"
                ),
                at,
            )
        return found.end()

    def python(self, at: int) -> Read:
        """A value as Python's parser reads it."""
        end = self.end(at)
        return self.parse(at, end), end

    def parse(self, at: int, end: int) -> Any:
        """Python's value of a run of text. Its objects are drawn on the budget, if it could be too
        small for them.
        """
        text = self.data[at:end]
        if self._weigh:
            self.limits.draw(_weight(text), FORMAT, at)
        return jsontext.parse(text, FORMAT, at)

    def each_item(self, at: int, take: Callable[[int, int], int]) -> int:
        """Calls `take` with the number of each item of a list and where it begins, which says where
        it ends. Where the list ends.
        """
        if self.data[at] != ord("["):
            self.fail("a list should stand here", at)
        at, done, count = self.space(at + 1), False, 0
        if self.data[at] == ord("]"):
            return at + 1
        while not done:
            if self.watch is not None and not count & _OFTEN:
                self.watch()
            at, done = self.next(take(count, at), "]")
            count += 1
        return at

    def each_key(self, at: int, take: Callable[[str, int], int]) -> int:
        """The same for the keys of an object, each of which stands once."""
        if self.data[at] != ord("{"):
            self.fail("an object should stand here", at)
        keys: set[str] = set()
        at, done = self.space(at + 1), False
        if self.data[at] == ord("}"):
            return at + 1
        while not done:
            if self.watch is not None and not len(keys) & _OFTEN:
                self.watch()
            start = at
            key, at = self.string(at)
            if key in keys:
                self.fail(f"the key {key!r:.60} stands twice", start)
            keys.add(key)
            at = self.space(at)
            if self.data[at] != ord(":"):
                self.fail("not JSON: a colon should stand here", at)
            at, done = self.next(take(key, self.space(at + 1)), "}")
        return at

    def base64(self, text: Any, at: int) -> bytes:
        try:
            data = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            data = b"\0"
        if base64.b64encode(data).decode() != text:  # bits that are left over, too
            self.fail("bytes that are not base64", at)
        return data
