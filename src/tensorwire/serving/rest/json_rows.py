"""Columns of rows that are JSON objects.

1. The text of every cell is appended to the text of its column, with commas in between.
2. Most rows look like the first one: the same keys in the same order, and values of the same depth.
   A regular expression made from the first row matches such a row at once and captures its cells.
   All other rows are read key by key.
3. In the end the text of a column is a JSON list, which is parsed as one tensor.
4. Errors are translated from offsets in the column's text to offsets in the body.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from json.encoder import encode_basestring

from ..._errors import DecodeError, LimitError
from ...core.tensors import Array, Strings
from .json_strings import CODED, PLAIN, SPACES
from .json_text import RequestText

_VALUE = rb'[^ \t\n\r,\[\]{}"]++'
_DEEPEST = 4
"""The depth of lists up to which an expression is used."""


class _Column:
    """The cells of one column so far."""

    def __init__(self) -> None:
        self.text = bytearray(b"[")
        self.starts, self.places = array("q"), array("q")
        """The offset of each cell in this text and in the body."""

    def add(self, cell: bytes | memoryview, place: int) -> None:
        if self.starts:
            self.text += b","
        self.starts.append(len(self.text))
        self.places.append(place)
        self.text += cell

    def tensor(self, text: RequestText, dtype: str | None) -> Array | Strings:
        self.text += b"]"
        try:
            return text.of(self.text).tensor(0, dtype)[0]
        except DecodeError as error:
            # The offset is one in the text of the column, which the caller does not have.
            row = max(bisect_right(self.starts, error.offset or 0) - 1, 0)
            error.offset = self.places[row] + max((error.offset or 0) - self.starts[row], 0)
            raise


def read_rows(
    text: RequestText, start: int, kinds: Mapping[str, str | None]
) -> tuple[dict[str, Array | Strings], int]:
    """Return the columns of the list of rows at an offset, by name, and the offset of its end.

    `kinds` has the dtype of each column, or None to infer it.
    """
    columns = {name: _Column() for name in kinds}

    def take_cell(name: str, offset: int) -> int:
        if name not in columns:
            text.fail(f"unknown name {name!r:.60}", offset)
        end = text.end(offset)
        columns[name].add(text.data[offset:end], offset)
        return end

    pattern: re.Pattern[bytes] | None = None
    order: list[_Column] = []

    def take_row(number: int, offset: int) -> int:
        nonlocal pattern, order
        if number == text.limits.names:
            text.fail(f"more than {number} rows", offset, LimitError)
        match = pattern.match(text.data, offset) if pattern is not None else None
        if match is not None:
            for i, column in enumerate(order, 1):
                column.add(match[i], match.start(i))
            return match.end()
        end = text.each_key(offset, take_cell)
        for name, column in columns.items():
            if len(column.starts) != number + 1:
                text.fail(f"missing name {name!r:.60}", offset)
        if number == 0:
            # The groups of the expression are in the order of the first row's keys.
            order = sorted(columns.values(), key=lambda column: column.places[0])
            pattern = _pattern(text, offset, columns)
        return end

    end = text.each_item(start, take_row)
    return {name: columns[name].tensor(text, dtype) for name, dtype in kinds.items()}, end


def _pattern(
    text: RequestText, start: int, columns: Mapping[str, _Column]
) -> re.Pattern[bytes] | None:
    """Return an expression for rows like that at an offset; None if a cell is nested too deep."""
    members: list[bytes | None] = []

    def take(name: str, offset: int) -> int:
        cell = _cell(text, offset)
        key = re.escape(encode_basestring(name).encode())
        members.append(cell and b"%b%b%b:%b(%b)%b" % (SPACES, key, SPACES, SPACES, cell, SPACES))
        return text.end(offset)

    text.each_key(start, take)
    return (
        None
        if None in members
        else re.compile(rb"\{" + b",".join(member for member in members if member) + rb"\}")
    )


def _cell(text: RequestText, offset: int) -> bytes | None:
    """Return an expression for cells like the one at an offset: a value, or lists of that depth."""
    depth = 0
    while text.data[offset] == ord("["):
        offset, depth = text.space(offset + 1), depth + 1
    inner = b"%b|%b" % (PLAIN, CODED)
    if not depth:
        return b"%b|%b" % (inner, _VALUE)
    # Possessive quantifiers (++, *+) never backtrack, so a hostile row costs linear time.
    for _ in range(depth):
        inner = rb'\[(?:[^\[\]{}"]++|%b)*+\]' % inner
    return inner if depth <= _DEEPEST else None
