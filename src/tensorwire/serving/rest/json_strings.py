"""Nested lists of strings out of JSON text: plain ones, and {"b64": ...}.

Strings are taken by the block, with one expression for thousands of them, and are Python objects
only for that long: text of very many very short ones takes no more memory than what it becomes. The
lists must be rectangular.
"""

from __future__ import annotations

import binascii
import json
import re
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from ..._errors import DecodeError, LimitError
from ...codecs.json.tokens import FORMAT, Tokens
from ...core import validate
from ...core.frozen import trusted
from ...core.tensors import Array, Strings

SPACES = rb"[ \t\n\r]*+"
PLAIN = rb'"[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+"'
_CODED = rb'\{%b"b64"%b:%b"%%b"%b\}' % ((SPACES,) * 4)
CODED = _CODED % rb'[^"\\]*+'
"""A string in base64."""
ONE_CODED = re.compile(_CODED % rb'([^"\\]*+)')
_BLOCK = 4096
"""Strings that are taken at once."""
_SHORT = 64
"""Rows of up to so many strings are taken several at once."""
_ESCAPE = re.compile(rb"(?:^|[^\\])(?:\\\\)*\\u(?!00[0-7])")
"""An escape of a character that is more than one byte."""


def read(text: Tokens, at: int) -> tuple[Strings, int]:
    """The strings at data[at], as bytes, and where they end.

    >>> from tensorwire import Limits
    >>> read(Tokens(memoryview(b'[["a", {"b64": "/w=="}]]'), Limits()), 0)
    (Strings(b'a', b'\\xff'; shape=(1, 2), bytes), 24)
    """
    reading = _Reading(text)
    end = reading.read(at)
    return reading.result(), end


def _repeated(item: bytes, least: int, most: int) -> bytes:
    """An expression for so many items with commas between them."""
    return b"%b(?:%b,%b%b){%d,%d}+" % (item, SPACES, SPACES, item, least - 1, most - 1)


@cache
def _pattern(coded: bool, length: int) -> re.Pattern[bytes]:
    """Strings side by side, or with a length rows of so many."""
    item = CODED if coded else PLAIN
    if not length:
        return re.compile(_repeated(item, 1, _BLOCK))
    row = rb"\[%b%b%b\]" % (SPACES, _repeated(item, length, length), SPACES)
    return re.compile(_repeated(row, 1, _BLOCK // length))


class _Reading:
    """What is known of the lists so far."""

    def __init__(self, text: Tokens) -> None:
        self.text, self.data = text, text.data
        self.lengths: list[int | None] = []
        """Of the lists of each depth, once one of them has ended."""
        self.counts: list[int] = []
        """Items so far in the lists that are open."""
        self.leaf: int | None = None
        """How deep the strings are."""
        self.pieces: list[bytes] = []
        self.sizes: list[Array] = []
        self.size = self.number = 0

    def read(self, at: int) -> int:
        while True:
            if self.text.watch is not None:
                self.text.watch()
            at = self.text.space(at)
            taken = self._take_rows(at)
            if taken:
                at = self.text.space(taken)
            elif self.data[at] == ord("["):
                at = self.text.space(self._open(at))
                if self.data[at] != ord("]"):
                    continue
            else:
                at = self._take(at)
                if not self.counts:
                    return at
                at = self.text.space(at)
            while self.data[at] == ord("]"):
                self._close(at)
                at += 1
                if not self.counts:
                    return at
                at = self.text.space(at)
            if self.data[at] != ord(","):
                self.text.fail("not JSON: a comma or ] should stand here", at)
            at += 1

    def _open(self, at: int) -> int:
        depth = len(self.counts)
        if depth == validate.NUMPY_RANK:
            self.text.fail("lists nested too deep", at, LimitError)
        if self.leaf is not None and depth >= self.leaf:
            self.text.fail("lists and strings side by side", at)
        if depth == len(self.lengths):
            self.lengths.append(None)
        self.counts.append(0)
        return at + 1

    def _close(self, at: int) -> None:
        count, depth = self.counts.pop(), len(self.counts)
        if self.lengths[depth] not in (None, count):
            self.text.fail("ragged lists: this one is longer or shorter than those before it", at)
        self.lengths[depth] = count
        if self.counts:
            self.counts[-1] += 1

    def _take(self, at: int) -> int:
        """The strings that stand side by side at data[at]; behind the last of them."""
        if self.leaf is None and len(self.lengths) == len(self.counts):
            self.leaf = len(self.counts)
        if self.leaf != len(self.counts):
            self.text.fail("lists and strings side by side", at)
        coded = self.data[at] == ord("{")
        found = _pattern(coded, 0).match(self.data, at)
        if found is None:
            self.text.fail("something else among the strings", at)
        words = self._words(bytes(found[0]), coded, at)
        if not self.counts and len(words) > 1:
            self.text.fail("something stands behind the value", at)
        self._keep(words, at)
        if self.counts:
            self.counts[-1] += len(words)
        return found.end()

    def _take_rows(self, at: int) -> int:
        """Behind the rows at data[at] that have as many strings as those before; 0 if there are
        none, or it is not known yet.
        """
        length = self.lengths[-1] if self.leaf == len(self.counts) + 1 else None
        if not length or length > _SHORT or self.data[at] != ord("["):
            return 0
        coded = self.data[self.text.space(at + 1)] == ord("{")
        found = _pattern(coded, length).match(self.data, at)
        if found is None:
            return 0
        words = self._words(bytes(found[0]), coded, at)
        self._keep(words, at)
        self.counts[-1] += len(words) // length
        return found.end()

    def _words(self, block: bytes, coded: bool, at: int) -> list[bytes]:
        if not coded:
            return _unescaped(block, at)
        texts = ONE_CODED.findall(block)
        try:
            return [binascii.a2b_base64(text, strict_mode=True) for text in texts]
        except binascii.Error:
            words = [from_base64(text) for text in texts]
        if None in words:
            self.text.fail("bytes that are not base64", at)
        return [word for word in words if word is not None]

    def _keep(self, words: list[bytes], at: int) -> None:
        self.pieces.append(b"".join(words))
        self.sizes.append(np.fromiter(map(len, words), np.int64, len(words)))
        self.size, self.number = self.size + len(self.pieces[-1]), self.number + len(words)
        if self.size + 8 * self.number > self.text.limits.tensor:
            self.text.fail("the strings are longer than the limit", at, LimitError)

    def result(self) -> Strings:
        offsets, at = np.zeros(self.number + 1, np.int64), 1
        for sizes in self.sizes:
            offsets[at : at + len(sizes)] = sizes
            at += len(sizes)
        np.cumsum(offsets, out=offsets)
        depth = len(self.lengths) if self.leaf is None else self.leaf
        shape = tuple(length or 0 for length in self.lengths[:depth])
        return trusted(
            Strings, np.frombuffer(bytearray().join(self.pieces), np.uint8), offsets, shape, False
        )


def _flat(words: Any) -> Any:
    return chain.from_iterable(words) if words and isinstance(words[0], list) else words


def _unescaped(block: bytes, at: int) -> list[bytes]:
    """Plain strings side by side as bytes. Characters of one byte each need no encoding to be
    known; escapes of others need UTF-8.
    """
    wide = b"\\u" in block and _ESCAPE.search(block) is not None
    try:
        words = json.loads(f"[{block.decode('utf-8' if wide else 'latin-1')}]")
        return [word.encode("utf-8" if wide else "latin-1") for word in _flat(words)]
    except UnicodeError:
        why = "a lone surrogate, or an escape beside bytes that are not UTF-8"
    except ValueError:
        why = "an escape that JSON does not have"
    raise DecodeError(why, format=FORMAT, offset=at)


def from_base64(text: str | bytes) -> bytes | None:
    """The bytes of standard base64 as Serving takes it, padded or not; None if it is something
    else.

    >>> from_base64("YQ=="), from_base64("YQ"), from_base64("Y")
    (b'a', b'a', None)
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    stripped = raw.rstrip(b"=")
    if len(raw) != len(stripped) and len(raw) % 4:
        return None
    try:
        return binascii.a2b_base64(stripped + b"=" * (-len(stripped) % 4), strict_mode=True)
    except binascii.Error:
        return None
