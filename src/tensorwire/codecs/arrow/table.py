"""Values as columns of an Arrow or Parquet table: the parts and the metadata of each column.

1. If all tensors share their first dimension, each row of the table is an item. Tensors of one
   dimension are plain columns, those of more dimensions fixed-size lists (numbers with the
   extension type fixed_shape_tensor), and a Ragged is a list column.
2. Otherwise the table has one row, and each tensor is one list of its elements. Its shape is in the
   field metadata.
3. A dtype that Arrow lacks is stored as the lowering does, with its name in the field metadata.
4. The schema metadata contains the spec under "tensorwire", unless a plain dict of columns is read
   back as the same value.
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
    """The parts that make up one column."""

    name: str
    node: Any
    """The node of the tensor; None if the column is only one part of it."""
    size: int


class TableColumns(NamedTuple):
    """A value as columns."""

    groups: list[ColumnGroup]
    parts: list[Part]
    spec: Any
    rows: int | None
    """The number of rows; None if there is one row with each tensor as a cell."""
    texts: dict[str, str]
    """The schema metadata."""

    def arrow(
        self,
        present: Mapping[str, Array] | None = None,
        plain: bool = False,
        empty_lists: bool = False,
    ) -> ArrowColumns:
        """Returns the columns in Arrow's layout. `present` masks the rows that are not null."""
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
    """Lowers a value to columns."""
    texts = (value.metadata if isinstance(value, Bundle) else {}) | (metadata or {})
    if KEY in texts:
        raise EncodeError(f"the metadata key {KEY!r} is reserved", format=format)
    spec, parts = lowering.lower(value, holds=holds, strings=True)
    if isinstance(value, Bundle):
        # The metadata of a Bundle are the schema metadata of the file.
        spec.pop("metadata", None)
    column_groups = groups(spec, len(parts), True)
    rows = _rows(column_groups, parts)
    if rows is None:
        column_groups = groups(spec, len(parts), False)
    if not _says_it_all(spec, column_groups, rows is not None):
        texts[KEY] = jsontext.write({"version": VERSION, "spec": spec}).decode()
    return TableColumns(column_groups, list(parts), spec, rows, texts)


def groups(spec: Any, count: int, table: bool) -> list[ColumnGroup]:
    """Returns the columns of a spec. In a table, all parts of a Ragged are one column."""
    names, column_groups, first = lowering.names(spec, count), [], 0
    for path, node, size in lowering.tensors(spec, count):
        if table and "ragged" in node and is_column(node):
            column_groups.append(ColumnGroup(path, node, size))
        else:
            column_groups += [
                ColumnGroup(names[first + i], node if size == 1 else None, 1) for i in range(size)
            ]
        first += size
    unique = lowering.unique(group.name for group in column_groups)
    return [group._replace(name=name) for group, name in zip(column_groups, unique, strict=True)]


def _is_plain(node: Any) -> bool:
    return isinstance(node, dict) and next(iter(node), "dtype") in ("dtype", "text")


def is_column(node: Any) -> bool:
    """Whether a tensor fits one column: it is dense, of strings, or ragged with such values."""
    return _is_plain(node) or (isinstance(node, dict) and _is_plain(node.get("ragged")))


def is_table(schema_text: str, *fields: str) -> bool:
    """Whether the rows of a file are items, by the tensorwire metadata of schema and fields."""
    if any("shape" in jsontext.parse(text.encode(), FORMAT) for text in fields if text):
        return False
    if not schema_text:
        return True
    saved = jsontext.parse(schema_text.encode(), FORMAT)
    spec = saved.get("spec") if isinstance(saved, dict) else None
    nodes = next(
        (spec[kind] for kind in ("dict", "bundle") if isinstance(spec, dict) and kind in spec),
        {"": spec},
    )
    return isinstance(nodes, dict) and all(is_column(node) for node in nodes.values())


def lengths(spec: Any, parts: list[Part]) -> list[tuple[str, int | None]]:
    """Returns the name and first dimension of each column of a table."""
    result, first = [], 0
    for group in groups(spec, len(parts), True):
        result.append((group.name, _length(group, parts[first : first + group.size])))
        first += group.size
    return result


def _length(group: ColumnGroup, parts: list[Part]) -> int | None:
    if group.size > 1:
        return len(parts[group.size - group.node["splits"]]) - 1
    shape, dtype = parts[0].shape, (group.node or {}).get("dtype", "")
    # Complex numbers are stored with a trailing dimension of 2, which is not a row dimension.
    return shape[0] if len(shape) > dtype.startswith("complex") else None


def _rows(column_groups: list[ColumnGroup], parts: list[Part]) -> int | None:
    """Returns the first dimension that all columns share; None if they do not form a table.

    The inner dimensions must fit the 32-bit length of a fixed-size list.
    """
    rows, first = None, 0
    for group in column_groups:
        count = _length(group, parts[first : first + group.size])
        if (
            count is None
            or (rows is not None and count != rows)
            or math.prod(parts[first].shape[1:]) > _INT32_MAX
        ):
            return None
        rows, first = count, first + group.size
    return rows or 0


def _says_it_all(spec: Any, column_groups: list[ColumnGroup], table: bool) -> bool:
    """Whether reading the columns without a spec gives the same value: a dict of columns."""
    if not isinstance(spec, dict) or list(spec) != ["dict"] or not isinstance(spec["dict"], dict):
        return False
    if len(column_groups) != len(spec["dict"]):
        return False
    return all(is_column(node) if table else _is_plain(node) for node in spec["dict"].values())
