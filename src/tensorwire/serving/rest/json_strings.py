"""Nested lists of strings in JSON text: plain ones, and {"b64": ...}.

1. Strings are read in blocks: one regular expression matches up to thousands of strings side by
   side, and Python's JSON parser or base64 decodes the block.
2. Only the strings of one block are Python objects at a time. So the memory for very many very
   short strings is no more than that of the result.
3. Once the length of the innermost lists is known, short rows are matched several at once.
4. The lists must be rectangular: all lists of a depth have the same length.
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
"""An expression for a string in base64."""
ONE_CODED = re.compile(_CODED % rb'([^"\\]*+)')
_BLOCK = 4096
"""The number of strings in a block."""
_SHORT = 64
"""Rows of up to so many strings are matched several at once."""
_ESCAPE = re.compile(rb"(?:^|[^\\])(?:\\\\)*\\u(?!00[0-7])")
"""An escape of a character that is not ASCII, and so is several bytes in UTF-8."""


def read(text: Tokens, start: int) -> tuple[Strings, int]:
    """Return the strings at an offset, as bytes, and the offset of their end.

    >>> from tensorwire import Limits
    >>> read(Tokens(memoryview(b'[["a", {"b64": "/w=="}]]'), Limits()), 0)
    (Strings(b'a', b'\\xff'; shape=(1, 2), bytes), 24)
    """
    parser = _StringParser(text)
    end = parser.read(start)
    return parser.result(), end


def _repeated(item: bytes, least: int, most: int) -> bytes:
    """Return an expression for `least` to `most` items with commas between them."""
    return b"%b(?:%b,%b%b){%d,%d}+" % (item, SPACES, SPACES, item, least - 1, most - 1)


@cache
def _pattern(coded: bool, length: int) -> re.Pattern[bytes]:
    """Return an expression for strings side by side or, with a length, for rows of that length."""
    item = CODED if coded else PLAIN
    if not length:
        return re.compile(_repeated(item, 1, _BLOCK))
    row = rb"\[%b%b%b\]" % (SPACES, _repeated(item, length, length), SPACES)
    return re.compile(_repeated(row, 1, _BLOCK // length))


class _StringParser:
    """The state of the parser: the lists that are open, and the strings so far."""

    def __init__(self, text: Tokens) -> None:
        self.text, self.data = text, text.data
        self.lengths: list[int | None] = []
        """The length of the lists of each depth, once one of them has ended."""
        self.counts: list[int] = []
        """The number of items so far in each open list."""
        self.leaf: int | None = None
        """The depth of the strings, once it is known."""
        self.pieces: list[bytes] = []
        self.sizes: list[Array] = []
        self.size = self.number = 0

    def read(self, offset: int) -> int:
        while True:
            if self.text.watch is not None:
                self.text.watch()
            offset = self.text.space(offset)
            taken = self._take_rows(offset)
            if taken:
                offset = self.text.space(taken)
            elif self.data[offset] == ord("["):
                offset = self.text.space(self._open(offset))
                if self.data[offset] != ord("]"):
                    continue
            else:
                offset = self._take(offset)
                if not self.counts:
                    return offset
                offset = self.text.space(offset)
            while self.data[offset] == ord("]"):
                self._close(offset)
                offset += 1
                if not self.counts:
                    return offset
                offset = self.text.space(offset)
            if self.data[offset] != ord(","):
                self.text.fail("invalid JSON: expected a comma or ]", offset)
            offset += 1

    def _open(self, offset: int) -> int:
        depth = len(self.counts)
        if depth == validate.NUMPY_RANK:
            self.text.fail("lists are nested too deep", offset, LimitError)
        if self.leaf is not None and depth >= self.leaf:
            self.text.fail("lists and strings side by side", offset)
        if depth == len(self.lengths):
            self.lengths.append(None)
        self.counts.append(0)
        return offset + 1

    def _close(self, offset: int) -> None:
        count, depth = self.counts.pop(), len(self.counts)
        if self.lengths[depth] not in (None, count):
            self.text.fail(
                "ragged lists: this one is longer or shorter than those before it", offset
            )
        self.lengths[depth] = count
        if self.counts:
            self.counts[-1] += 1

    def _take(self, start: int) -> int:
        """Read the strings side by side at an offset and return the offset of their end."""
        if self.leaf is None and len(self.lengths) == len(self.counts):
            self.leaf = len(self.counts)
        if self.leaf != len(self.counts):
            self.text.fail("lists and strings side by side", start)
        coded = self.data[start] == ord("{")
        match = _pattern(coded, 0).match(self.data, start)
        if match is None:
            self.text.fail("expected a string", start)
        strings = self._decoded(bytes(match[0]), coded, start)
        if not self.counts and len(strings) > 1:
            self.text.fail("unexpected data after the value", start)
        self._keep(strings, start)
        if self.counts:
            self.counts[-1] += len(strings)
        return match.end()

    def _take_rows(self, start: int) -> int:
        """Read the rows at an offset that have the length of those before, and return the offset of
        their end; 0 if there are none, or the length is not known yet.
        """
        length = self.lengths[-1] if self.leaf == len(self.counts) + 1 else None
        if not length or length > _SHORT or self.data[start] != ord("["):
            return 0
        coded = self.data[self.text.space(start + 1)] == ord("{")
        match = _pattern(coded, length).match(self.data, start)
        if match is None:
            return 0
        strings = self._decoded(bytes(match[0]), coded, start)
        self._keep(strings, start)
        self.counts[-1] += len(strings) // length
        return match.end()

    def _decoded(self, block: bytes, coded: bool, start: int) -> list[bytes]:
        if not coded:
            return _unescaped(block, start)
        texts = ONE_CODED.findall(block)
        try:
            return [binascii.a2b_base64(text, strict_mode=True) for text in texts]
        except binascii.Error:
            strings = [from_base64(text) for text in texts]
        if None in strings:
            self.text.fail("invalid base64", start)
        return [string for string in strings if string is not None]

    def _keep(self, strings: list[bytes], start: int) -> None:
        self.pieces.append(b"".join(strings))
        self.sizes.append(np.fromiter(map(len, strings), np.int64, len(strings)))
        self.size, self.number = self.size + len(self.pieces[-1]), self.number + len(strings)
        if self.size + 8 * self.number > self.text.limits.tensor:
            self.text.fail("the strings are larger than the limit", start, LimitError)

    def result(self) -> Strings:
        offsets, end = np.zeros(self.number + 1, np.int64), 1
        for sizes in self.sizes:
            offsets[end : end + len(sizes)] = sizes
            end += len(sizes)
        np.cumsum(offsets, out=offsets)
        depth = len(self.lengths) if self.leaf is None else self.leaf
        shape = tuple(length or 0 for length in self.lengths[:depth])
        return trusted(
            Strings, np.frombuffer(bytearray().join(self.pieces), np.uint8), offsets, shape, False
        )


def _flat(strings: Any) -> Any:
    return chain.from_iterable(strings) if strings and isinstance(strings[0], list) else strings


def _unescaped(block: bytes, start: int) -> list[bytes]:
    """Return plain strings side by side as bytes."""
    # Without escapes of characters above ASCII, the bytes can be parsed as latin-1 and encoded
    # again, whatever their encoding is. Such escapes become UTF-8.
    wide = b"\\u" in block and _ESCAPE.search(block) is not None
    try:
        strings = json.loads(f"[{block.decode('utf-8' if wide else 'latin-1')}]")
        return [string.encode("utf-8" if wide else "latin-1") for string in _flat(strings)]
    except UnicodeError:
        why = "a lone surrogate, or an escape next to bytes that are not UTF-8"
    except ValueError:
        why = "invalid escape in a JSON string"
    raise DecodeError(why, format=FORMAT, offset=start)


def from_base64(text: str | bytes) -> bytes | None:
    """Return the bytes of standard base64, padded or not, as Serving accepts it; None if it is
    invalid.

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
