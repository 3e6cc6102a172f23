"""Rows that are objects, as columns.

The texts of a column's cells, one after the other, are the text of one list, so a column is read as
one tensor. Rows mostly look like the first one: its keys in its order, and values as deep. Such
rows are found with one expression each, all others key by key.
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
"""Expressions for deeper lists are not worth while."""


class _Column:
    """The cells of one name so far."""

    def __init__(self) -> None:
        self.text = bytearray(b"[")
        self.starts, self.places = array("q"), array("q")
        """Where each cell begins, in this text and in the body."""

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
        except DecodeError as error:  # which speaks of a text that nobody else knows
            row = max(bisect_right(self.starts, error.offset or 0) - 1, 0)
            error.offset = self.places[row] + max((error.offset or 0) - self.starts[row], 0)
            raise


def read_rows(
    text: RequestText, at: int, kinds: Mapping[str, str | None]
) -> tuple[dict[str, Array | Strings], int]:
    """The columns of the rows in the list at data[at], each of a known dtype or not, and where the
    list ends.
    """
    columns = {name: _Column() for name in kinds}

    def take_cell(name: str, place: int) -> int:
        if name not in columns:
            text.fail(f"the name {name!r:.60}, which is not known", place)
        end = text.end(place)
        columns[name].add(text.data[place:end], place)
        return end

    usual: re.Pattern[bytes] | None = None
    cells: list[_Column] = []

    def take_row(number: int, place: int) -> int:
        nonlocal usual, cells
        if number == text.limits.names:
            text.fail(f"more than {number} rows", place, LimitError)
        found = usual.match(text.data, place) if usual is not None else None
        if found is not None:
            for i, column in enumerate(cells, 1):
                column.add(found[i], found.start(i))
            return found.end()
        end = text.each_key(place, take_cell)
        for name, column in columns.items():
            if len(column.starts) != number + 1:
                text.fail(f"the name {name!r:.60} is missing", place)
        if number == 0:
            cells = sorted(columns.values(), key=lambda column: column.places[0])
            usual = _pattern(text, place, columns)
        return end

    end = text.each_item(at, take_row)
    return {name: columns[name].tensor(text, dtype) for name, dtype in kinds.items()}, end


def _pattern(
    text: RequestText, at: int, columns: Mapping[str, _Column]
) -> re.Pattern[bytes] | None:
    """What a row looks like, by the first one."""
    members: list[bytes | None] = []

    def take(name: str, place: int) -> int:
        cell = _cell(text, place)
        key = re.escape(encode_basestring(name).encode())
        members.append(cell and b"%b%b%b:%b(%b)%b" % (SPACES, key, SPACES, SPACES, cell, SPACES))
        return text.end(place)

    text.each_key(at, take)
    return (
        None
        if None in members
        else re.compile(rb"\{" + b",".join(member for member in members if member) + rb"\}")
    )


def _cell(text: RequestText, at: int) -> bytes | None:
    """What a cell looks like: a value, or lists as deep as here."""
    depth = 0
    while text.data[at] == ord("["):
        at, depth = text.space(at + 1), depth + 1
    inner = b"%b|%b" % (PLAIN, CODED)
    if not depth:
        return b"%b|%b" % (inner, _VALUE)
    for _ in range(depth):
        inner = rb'\[(?:[^\[\]{}"]++|%b)*+\]' % inner
    return inner if depth <= _DEEPEST else None
