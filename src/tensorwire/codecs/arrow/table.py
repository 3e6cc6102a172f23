"""Any value as the columns of a table, Arrow's or Parquet's: which parts make up a column, and what
its metadata say.

Where all tensors share their first dimension, a row is an item: numbers and strings of one
dimension are plain columns, of more dimensions fixed-size lists (numbers with the extension type
fixed_shape_tensor), and a Ragged is a list. Else there is one row, and each tensor is a list of its
elements in it, its shape in the field's metadata. What Arrow has no type for is stored as the
lowering says, its dtype in the field's metadata. The schema's metadata have the spec under
"tensorwire", unless a plain dict of such columns says it all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ... import lowering
from ..._errors import EncodeError
from ...core.tensors import Array, Bundle
from ...wire import json as jsontext
from ...wire.arrow_columns import KEY, ArrowColumns, Part, holds
from ...wire.arrow_ipc import FORMAT

VERSION = 1
_INT32_MAX = (1 << 31) - 1


class ColumnGroup(NamedTuple):
    """The parts of one column."""

    name: str
    node: Any
    """The tensor's, if the column is all of it."""
    size: int


class TableColumns(NamedTuple):
    groups: list[ColumnGroup]
    parts: list[Part]
    spec: Any
    rows: int | None
    """None if there is one row, and each tensor a cell of it."""
    texts: dict[str, str]
    """The schema's metadata."""

    def arrow(
        self,
        present: Mapping[str, Array] | None = None,
        plain: bool = False,
        empty_lists: bool = False,
    ) -> ArrowColumns:
        """The columns as Arrow has them. `present` says which rows of a column have a value."""
        columns, first = ArrowColumns(plain, empty_lists), 0
        for group in self.groups:
            parts, node = self.parts[first : first + group.size], group.node or {}
            first += group.size
            if self.rows is None:
                columns.add_cell(group.name, parts[0], node)
            else:
                columns.add(group.name, parts, node, (present or {}).get(group.name))
        return columns


def columns(value: object, metadata: dict[str, str] | None, format: str) -> TableColumns:
    """A value taken apart."""
    texts = (value.metadata if isinstance(value, Bundle) else {}) | (metadata or {})
    if KEY in texts:
        raise EncodeError(f"the metadata key {KEY!r} is reserved", format=format)
    spec, parts = lowering.lower(value, holds=holds, strings=True)
    if isinstance(value, Bundle):
        spec.pop("metadata", None)  # they stand in the format's own place
    found = groups(spec, len(parts), True)
    rows = _rows(found, parts)
    if rows is None:
        found = groups(spec, len(parts), False)
    if not _says_it_all(spec, found, rows is not None):
        texts[KEY] = jsontext.write({"version": VERSION, "spec": spec}).decode()
    return TableColumns(found, list(parts), spec, rows, texts)


def groups(spec: Any, count: int, table: bool) -> list[ColumnGroup]:
    """The columns for a spec, which follow from it alone: in a table, the parts of a Ragged are
    one.
    """
    names, found, at = lowering.names(spec, count), [], 0
    for way, node, size in lowering.tensors(spec, count):
        if table and "ragged" in node and is_column(node):
            found.append(ColumnGroup(way, node, size))
        else:
            found += [
                ColumnGroup(names[at + i], node if size == 1 else None, 1) for i in range(size)
            ]
        at += size
    unique = lowering.unique(group.name for group in found)
    return [group._replace(name=name) for group, name in zip(found, unique, strict=True)]


def _is_plain(node: Any) -> bool:
    return isinstance(node, dict) and next(iter(node), "dtype") in ("dtype", "text")


def is_column(node: Any) -> bool:
    """Whether a tensor is all of a column: it is dense, of strings, or ragged with such values."""
    return _is_plain(node) or (isinstance(node, dict) and _is_plain(node.get("ragged")))


def is_table(about: str, *fields: str) -> bool:
    """Whether columns are read as they are, by our metadata of the schema and of each field."""
    if any("shape" in jsontext.parse(text.encode(), FORMAT) for text in fields if text):
        return False
    if not about:
        return True
    found = jsontext.parse(about.encode(), FORMAT)
    spec = found.get("spec") if isinstance(found, dict) else None
    nodes = next(
        (spec[kind] for kind in ("dict", "bundle") if isinstance(spec, dict) and kind in spec),
        {"": spec},
    )
    return isinstance(nodes, dict) and all(is_column(node) for node in nodes.values())


def lengths(spec: Any, parts: list[Part]) -> list[tuple[str, int | None]]:
    """The name and first dimension of each column of a table."""
    found, at = [], 0
    for group in groups(spec, len(parts), True):
        found.append((group.name, _length(group, parts[at : at + group.size])))
        at += group.size
    return found


def _length(group: ColumnGroup, parts: list[Part]) -> int | None:
    if group.size > 1:
        return len(parts[group.size - group.node["splits"]]) - 1
    shape, dtype = parts[0].shape, (group.node or {}).get("dtype", "")
    # whose last dimension is of two floats
    return shape[0] if len(shape) > dtype.startswith("complex") else None


def _rows(found: list[ColumnGroup], parts: list[Part]) -> int | None:
    """The first dimension that all columns share, if Arrow can have the others as lists of fixed
    size.
    """
    rows, at = None, 0
    for group in found:
        count = _length(group, parts[at : at + group.size])
        if (
            count is None
            or (rows is not None and count != rows)
            or math.prod(parts[at].shape[1:]) > _INT32_MAX
        ):
            return None
        rows, at = count, at + group.size
    return rows or 0


def _says_it_all(spec: Any, found: list[ColumnGroup], table: bool) -> bool:
    """Whether what is read of such columns without a spec is what the value was: a dict of them."""
    if not isinstance(spec, dict) or list(spec) != ["dict"] or not isinstance(spec["dict"], dict):
        return False
    if len(found) != len(spec["dict"]):
        return False
    return all(is_column(node) if table else _is_plain(node) for node in spec["dict"].values())
