"""What a Parquet file is going to become, from its footer and the headers of its pages, before
pyarrow reads it.

Nothing holds a footer to the sizes that it says, and pyarrow ends the process on some that make no
sense, so both are read here. Compressed pages become what their headers say. Runs and dictionaries
make many values of a few bytes, so the number of values is what counts there. Of strings that only
say how they differ from the one before, nobody knows: they are read a few at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..._errors import DecodeError, LimitError, TruncatedError
from ..._limits import Limits
from ...wire.thrift import BINARY, I32, I64, Shape, ThriftReader

_DEPTH = 64
_WIDTHS = (1, 4, 8, 12, 4, 8, 8, 16)
"""Bytes of a value of each type: boolean, int32, int64, int96, float, double, strings (where each
begins), and bytes of one length.
"""
_STRINGS = 6
_LEVELS = 4
"""Bytes that it takes besides, to say which values there are and where lists begin."""
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_DELTA_STRINGS = 7

_PAIRS: Shape = {1: BINARY, 2: BINARY}
_ELEMENT: Shape = {1: I32, 3: I32, 5: I32}
_CHUNK: Shape = {
    1: I32,
    2: [I32],
    3: [BINARY],
    5: I64,
    7: I64,
    8: [_PAIRS],
    9: I64,
    11: I64,
    13: [{}],
    16: {2: [I64], 3: [I64]},
    17: {2: [I32]},
}
_GROUP: Shape = {1: [{3: _CHUNK, 8: {2: {1: [BINARY]}}}], 3: I64, 4: [{}]}
_FOOTER: Shape = {2: [_ELEMENT], 4: [_GROUP], 5: [_PAIRS], 7: [{}]}
_PAGE: Shape = {1: I32, 2: I32, 3: I32, 5: {1: I32, 2: I32}, 7: {1: I32}, 8: {1: I32, 4: I32}}
_REPEATED = 2


@dataclass
class PagePlan:
    """What reading a file takes."""

    coded: set[str] = field(default_factory=set)
    """Paths of string columns that have a dictionary: they are read as such, so that what they
    become is known before it is made.
    """
    longest: int = 0
    """Bytes of the largest page of strings that only say how they differ; 0 if there is none."""
    size: int = 0
    """Bytes of all pages."""
    grown: int = 0
    """Bytes that values become beyond those of their pages."""

    @property
    def expanded(self) -> int:
        """Bytes that pages and values become."""
        return self.size + self.grown


def plan(data: memoryview, start: int, limits: Limits, streaming: bool = False) -> PagePlan:
    """Goes through the footer, which begins at `start`, and the pages of all columns.

    What they become is drawn on the budget: all of it, or with `streaming` one group of rows at a
    time.
    """
    footer = ThriftReader(data[start:-8], start).struct(_FOOTER)
    lists = _check_schema(footer.get(2, []), limits, start)
    found, budget = PagePlan(), limits.call(len(data))
    for group in footer.get(4, []):
        if streaming:
            budget.start()
        for column in group.get(1, []):
            before = found.expanded
            _column(data, column.get(3, {}), group.get(3, 0), lists, found)
            budget.draw(found.expanded - before, offset=start)
    return found


def _check_schema(elements: list[Any], limits: Limits, base: int) -> bool:
    """That types nest no deeper than anyone's stack can follow; whether there are lists among them."""
    if len(elements) > limits.names:
        raise LimitError(
            f"{len(elements)} columns; Limits(names=...) allows {limits.names}", offset=base
        )
    left: list[int] = []
    for element in elements:
        while left and not left[-1]:
            left.pop()
        if left:
            left[-1] -= 1
        left.append(max(0, element.get(5, 0)))
        if len(left) > _DEPTH:
            raise LimitError(f"types nested more than {_DEPTH} deep", offset=base)
    return any(element.get(3) == _REPEATED for element in elements)


def _column(
    data: memoryview, column: dict[int, Any], rows: int, lists: bool, found: PagePlan
) -> None:
    """Adds what one column of a group of rows takes."""
    kind, first, coded = column.get(1, -1), column.get(9, 0), column.get(11, 0)
    if not 0 <= kind < len(_WIDTHS):
        raise DecodeError(f"a column of the type {kind}", offset=0)
    start = coded if 0 < coded < first else first
    # else none is looked at
    pages = _pages(data, start, start + column.get(7, 0)) if column.get(5, 0) else []
    values = sum(page.values for page in pages if page.kind != _DICTIONARY)
    size = sum(page.size for page in pages)
    if rows > values:
        raise DecodeError(
            f"{rows} rows, and a column of {values} values", offset=min(start, len(data))
        )
    found.size += size
    found.grown += max(0, values * (_WIDTHS[kind] + _LEVELS) - size)
    if kind != _STRINGS:
        return
    longest = max((page.size for page in pages if page.encoding == _DELTA_STRINGS), default=0)
    found.grown += values * longest if lists else 0  # a row may have any number of them
    found.longest = max(found.longest, longest)
    if any(page.kind == _DICTIONARY for page in pages):
        found.coded.add(b".".join(column.get(3, [])).decode(errors="replace"))


class _Page(NamedTuple):
    kind: int
    size: int
    values: int
    encoding: int


def _pages(data: memoryview, start: int, stop: int) -> list[_Page]:
    """What the headers of a column's pages say."""
    if not 4 <= start <= stop <= len(data):
        raise TruncatedError(
            f"the pages of a column lie from {start} to {stop} in {len(data)} bytes",
            offset=len(data),
        )
    found = []
    while start < stop:
        reader = ThriftReader(data[start:stop], start)
        header = reader.struct(_PAGE)
        kind, size, packed = (header.get(key, -1) for key in (1, 2, 3))
        inside = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind, 0), {})
        count, encoding = inside.get(1, 0), inside.get(4 if kind == _DATA_2 else 2, 0)
        if min(kind, size, packed, count) < 0:
            raise DecodeError("a page's header does not say what it has to", offset=start)
        found.append(_Page(kind, size, count, encoding))
        start += reader.offset + packed
    if start > stop:
        raise TruncatedError("a page runs past the end of its column", offset=stop)
    return found
