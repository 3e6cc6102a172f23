"""Page plan of a Parquet file: its expanded size and what pyarrow must not be given, from headers.

A footer can claim any size, and pyarrow aborts the process on some invalid ones. So the footer and
all page headers are parsed here first, and no page data is read:

1. The schema's nesting depth and number of columns are limited, because pyarrow recurses over it.
2. The pages of each column chunk are walked from header to header. They must lie inside the file
   and fill exactly the bytes that the footer gives to the chunk.
3. A page expands to at least the uncompressed size in its header.
4. Run-length and dictionary encodings make many values of a few bytes. So a chunk is charged for
   its number of values times the width of its type, if that is more than its pages.
5. A column chunk must have at least one value for each row of its row group.
6. The size of delta-encoded strings (DELTA_BYTE_ARRAY) is unknown before they are decoded. A string
   is at most as long as its page, so the largest such page bounds how many rows are read at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..._errors import DecodeError, LimitError, TruncatedError
from ..._limits import Limits
from ...wire.thrift import BINARY, I32, I64, Shape, ThriftReader

_DEPTH = 64
_WIDTHS = (1, 4, 8, 12, 4, 8, 8, 16)
"""Bytes per value by physical type: BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY (its
offset), FIXED_LEN_BYTE_ARRAY.
"""
_STRINGS = 6
_LEVELS = 4
"""Bytes per value for definition and repetition levels, which mark nulls and list starts."""
# PageType: DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2. Encoding: DELTA_BYTE_ARRAY.
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_DELTA_STRINGS = 7

# The fields of parquet.thrift that are read, by number; all others are skipped. The lists that no
# code here looks at are present because pyarrow decodes them, so their element types are checked.
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
    """The memory that reading a file takes."""

    coded: set[str] = field(default_factory=set)
    """Paths of string columns with a dictionary page. They are read as dictionaries, so that their
    expanded size is known before it is allocated.
    """
    longest: int = 0
    """Bytes of the largest page of delta-encoded strings; 0 if there is none."""
    size: int = 0
    """Uncompressed bytes of all pages."""
    grown: int = 0
    """Bytes of the decoded values beyond those of their pages."""

    @property
    def expanded(self) -> int:
        """Bytes of all decoded values."""
        return self.size + self.grown


def plan(data: memoryview, start: int, limits: Limits, streaming: bool = False) -> PagePlan:
    """Plans reading a file from its footer, which begins at `start`, and its page headers.

    The expanded size is drawn on the budget. With `streaming` the budget starts again for each row
    group.
    """
    footer = ThriftReader(data[start:-8], start).struct(_FOOTER)
    lists = _check_schema(footer.get(2, []), limits, start)
    page_plan, budget = PagePlan(), limits.call(len(data))
    for group in footer.get(4, []):
        if streaming:
            budget.start()
        for column in group.get(1, []):
            before = page_plan.expanded
            _column(data, column.get(3, {}), group.get(3, 0), lists, page_plan)
            budget.draw(page_plan.expanded - before, offset=start)
    return page_plan


def _check_schema(elements: list[Any], limits: Limits, base: int) -> bool:
    """Checks the number of columns and the nesting depth; returns whether any column is a list."""
    if len(elements) > limits.names:
        raise LimitError(
            f"too many columns: {len(elements)}; Limits(names=...) allows {limits.names}",
            offset=base,
        )
    # The schema is a tree in depth-first order, and each element has its number of children. `left`
    # holds the children still to come on the path from the root.
    left: list[int] = []
    for element in elements:
        while left and not left[-1]:
            left.pop()
        if left:
            left[-1] -= 1
        left.append(max(0, element.get(5, 0)))
        if len(left) > _DEPTH:
            raise LimitError(f"column types are nested more than {_DEPTH} levels deep", offset=base)
    return any(element.get(3) == _REPEATED for element in elements)


def _column(
    data: memoryview, column: dict[int, Any], rows: int, lists: bool, page_plan: PagePlan
) -> None:
    """Adds one column chunk to the plan."""
    kind, first, coded = column.get(1, -1), column.get(9, 0), column.get(11, 0)
    if not 0 <= kind < len(_WIDTHS):
        raise DecodeError(f"invalid physical type {kind} of a column", offset=0)
    # The dictionary page, if there is one, precedes the data pages.
    start = coded if 0 < coded < first else first
    # pyarrow does not look at the pages of a chunk without values.
    pages = _pages(data, start, start + column.get(7, 0)) if column.get(5, 0) else []
    values = sum(page.values for page in pages if page.kind != _DICTIONARY)
    size = sum(page.size for page in pages)
    if rows > values:
        raise DecodeError(
            f"a column has {values} values, but its row group has {rows} rows",
            offset=min(start, len(data)),
        )
    page_plan.size += size
    page_plan.grown += max(0, values * (_WIDTHS[kind] + _LEVELS) - size)
    if kind != _STRINGS:
        return
    longest = max((page.size for page in pages if page.encoding == _DELTA_STRINGS), default=0)
    # A row of a list column can have any number of values, so rows do not bound them. Each value is
    # then charged as the longest one.
    page_plan.grown += values * longest if lists else 0
    page_plan.longest = max(page_plan.longest, longest)
    if any(page.kind == _DICTIONARY for page in pages):
        page_plan.coded.add(b".".join(column.get(3, [])).decode(errors="replace"))


class _Page(NamedTuple):
    kind: int
    size: int
    values: int
    encoding: int


def _pages(data: memoryview, start: int, stop: int) -> list[_Page]:
    """Parses the headers of all pages of a column chunk."""
    if not 4 <= start <= stop <= len(data):
        raise TruncatedError(
            f"column pages at bytes {start} to {stop} lie outside the file of {len(data)} bytes",
            offset=len(data),
        )
    pages = []
    while start < stop:
        reader = ThriftReader(data[start:stop], start)
        header = reader.struct(_PAGE)
        kind, size, packed = (header.get(key, -1) for key in (1, 2, 3))
        inner = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind, 0), {})
        count, encoding = inner.get(1, 0), inner.get(4 if kind == _DATA_2 else 2, 0)
        if min(kind, size, packed, count) < 0:
            raise DecodeError(
                "a page header lacks its type, sizes or number of values", offset=start
            )
        pages.append(_Page(kind, size, count, encoding))
        start += reader.offset + packed
    if start > stop:
        raise TruncatedError("a page runs past the end of its column", offset=stop)
    return pages
