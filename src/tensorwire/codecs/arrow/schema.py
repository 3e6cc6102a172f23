"""Column mapping of Arrow files: each column as a spec of the lowering and the parts it needs.

    numbers, bools, strings              a tensor of one dimension, one row an element
    fixed_size_list, fixed_shape_tensor  a tensor of more dimensions
    list, large_list                     a Ragged; fixed_size_list around them is a uniform
                                         dimension of it
    struct                               a dict of its fields
    a dictionary of numbers or strings   the decoded values
    other extension types                their storage type
    a column with nulls                  the same, and a bool for each row in NAME/present

A column that no tensor can represent is still listed, and only reading that column raises.

Field metadata may add JSON under "tensorwire": the `dtype` that the stored numbers represent, the
`uniform` lengths of a Ragged, the `shape` of a tensor whose elements are one list, and the `inner`
dimensions of a tensor whose rows have no elements and are stored as empty lists.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..._errors import DecodeError, LimitError
from ...wire import arrow_ipc as ipc
from ...wire.arrow_columns import LISTS, PRESENT, TEXT, FieldNotes, is_tensor, tensor_shape
from ..container import UnsupportedTensor
from .buffers import Chunk
from .file import IpcFile
from .levels import Level, Tree, tree
from .parts import ArrowPart, Cell, NullableLists, Presence, RefusedColumn, Splits
from .values import Values, check_layout, values

SpecParts = tuple[Any, list[Any]]
"""A node of a spec and its parts."""
_CAST = "table.column({!r}).cast({!r}) in pyarrow keeps {}"
_CASTS = {
    ipc.NULL: ("int64", "the nulls as missing numbers"),
    ipc.TIMESTAMP: ("int64", "the numbers and not the unit"),
    ipc.DURATION: ("int64", "the numbers and not the unit"),
    ipc.DECIMAL: ("float64", "about 16 digits"),
    ipc.FIXED_BINARY: ("binary", "the bytes"),
}
"""Arrow types that can be cast to one that tensors have, and what the cast keeps."""
_DAYS = (
    "table.column({!r}).cast(...) in pyarrow to the integer of its width keeps the numbers "
    "(date32 and time32: 'int32', date64 and time64: 'int64')"
)
_RENAME = "rename_columns(...) in pyarrow first"
_OTHER_COLUMNS = "names= reads other columns"


def columns(
    file: IpcFile,
    copy: bool | None,
    chunks: list[Chunk] | None = None,
) -> dict[str, SpecParts]:
    """Returns every column by name, and NAME/present for each column with nulls.

    `chunks` selects some batches of the file.
    """
    return _columns(_trees(file, file.chunks if chunks is None else chunks), copy)


def all_refused(file: IpcFile, error: DecodeError, rows: int) -> dict[str, SpecParts]:
    """Returns every column by name, each of which raises `error` when it is read."""
    return {column.level.column: _refused(column, error, rows) for column in _trees(file, [])}


def _trees(file: IpcFile, chunks: list[Chunk]) -> list[Tree]:
    counters = [0, 0, 0]
    trees = [tree(file, chunks, field, None, field.name, counters) for field in file.fields]
    check_layout(chunks, *counters)
    if counters[0] > file.limits.names:
        raise LimitError(
            f"too many columns: {counters[0]}; Limits(names=...) allows {file.limits.names}",
            offset=0,
        )
    return trees


def flags(table_columns: dict[str, SpecParts]) -> dict[str, SpecParts]:
    """Returns the NAME/present columns."""
    return {
        name: (node, parts)
        for name, (node, parts) in table_columns.items()
        if len(parts) == 1 and isinstance(parts[0], Presence)
    }


def _columns(trees: list[Tree], copy: bool | None) -> dict[str, SpecParts]:
    """Returns the columns of a table, or the fields of a struct, by name."""
    names = Counter(column.level.field.name for column in trees)
    result: dict[str, SpecParts] = {}
    for column in trees:
        name = column.level.field.name
        flag = name + PRESENT
        try:
            if names[name] > 1:
                raise column.level.unsupported(f"two columns are named {name!r}", hint=_RENAME)
            result[name], present = _column(column, copy)
            if present is not None and flag in names:
                why = f"the column {name!r} has nulls, but the name {flag!r} is used by another"
                raise column.level.unsupported(why, hint=_RENAME)
        except LimitError:
            raise
        except DecodeError as error:
            advice = error.hint
            hint = _OTHER_COLUMNS if advice is None else f"{advice}; {_OTHER_COLUMNS}"
            listed = type(error)(error.message, hint=hint)
            result[name], present = _refused(column, listed, advice=advice), None
        if present is not None:
            result[flag] = {}, [present]
    return result


def _refused(
    tree: Tree, error: DecodeError, rows: int | None = None, advice: str | None = None
) -> SpecParts:
    """Returns a column that is listed, and that raises `error` when it is read."""
    return {}, [RefusedColumn(tree.level, _type_name(tree), error, rows, advice)]


def _type_name(tree: Tree) -> str:
    name = ipc.NAMES[tree.level.field.kind - 1]
    if tree.level.field.coded or len(tree.inside) != 1 or tree.level.field.kind == ipc.STRUCT:
        return name
    return f"{name} of {ipc.NAMES[_leaf(tree).field.kind - 1]}"


def _leaf(tree: Tree) -> Level:
    while len(tree.inside) == 1 and tree.level.field.kind in (*LISTS, ipc.FIXED_LIST):
        tree = tree.inside[0]
    return tree.level


def _column(tree: Tree, copy: bool | None) -> tuple[SpecParts, Presence | None]:
    """Returns a column, and its presence flags if it has nulls."""
    level, notes = tree.level, FieldNotes.of(tree.level.field)
    if level.file.big_endian:
        raise level.unsupported(
            f"the column {level.column!r} is big-endian, but only little-endian data is supported",
            hint="read the file in pyarrow and write it again",
        )
    if notes.shape is not None:
        return _cell(tree, notes, copy), None
    if level.field.kind == ipc.STRUCT and not level.field.coded:
        inside = _columns(tree.inside, copy)
        nodes = {name: node for name, (node, _) in inside.items()}
        return ({"dict": nodes}, [part for _, parts in inside.values() for part in parts]), None
    lists = list[Level]()
    while _is_ragged(tree):
        lists.append(tree.level)
        tree = tree.inside[0]
    inner, order, levels, reader = _dense(tree, copy)
    if notes.inner is not None:
        if not lists or 0 not in notes.inner or inner:
            raise level.bad(
                "`inner` dimensions in the field metadata need a list column and a zero dimension"
            )
        levels, inner = [lists.pop(), *levels], tuple(notes.inner)
    if reader is None:
        raise _unsupported_type(level, levels[-1])
    present = Presence(level, copy) if level.present(0, 0) is not None else None
    values = ArrowPart(levels, reader, inner, order)
    node = _node(notes, levels[-1])
    if not lists:
        return (node, [values]), present
    fields = [list_level.field for list_level in lists]
    fixed = [field.width if field.kind == ipc.FIXED_LIST else None for field in fields]
    uniform = fixed if notes.uniform is None else notes.uniform
    if len(uniform) != len(lists):
        raise level.bad(
            f"the field metadata has {len(uniform)} uniform lengths for {len(lists)} list levels"
        )
    node = {"ragged": node, "splits": len(lists)}
    if any(length is not None for length in uniform):
        node["uniform"] = uniform
    splits = [Splits(list_level, [*lists, levels[0]], copy) for list_level in lists]
    if present is None and not values.nulls and not any(list_level.nulls for list_level in lists):
        return (node, [values, *splits]), None
    return (node, list[Any](NullableLists(lists, uniform, values, splits, copy).parts())), present


def _unsupported_type(level: Level, leaf: Level) -> UnsupportedTensor:
    """Returns the error for an Arrow type that no tensor can represent, with a hint."""
    kind, name = leaf.field.kind, level.column
    if leaf is not level:
        return level.unsupported(
            f"unsupported type of column {name!r}: Arrow {ipc.NAMES[kind - 1]} inside lists"
        )
    hint = None
    if kind in _CASTS:
        hint = _CAST.format(name, *_CASTS[kind])
    elif kind in (ipc.DATE, ipc.TIME):
        hint = _DAYS.format(name)
    elif kind in (ipc.LIST_VIEW, ipc.LARGE_LIST_VIEW):
        hint = "cast it to pa.list_(...) of the same items in pyarrow"
    return level.unsupported(
        f"unsupported type of column {name!r}: Arrow {ipc.NAMES[kind - 1]}", hint=hint
    )


def _node(notes: FieldNotes, leaf: Level) -> Any:
    """Returns the spec node of a tensor with such values."""
    if notes.dtype is not None:
        return {"dtype": notes.dtype}
    return {"text": True} if leaf.field.kind in TEXT else {}


def _is_ragged(tree: Tree) -> bool:
    level, field = tree.level, tree.level.field
    if field.coded or field.kind not in (*LISTS, ipc.FIXED_LIST):
        return False
    if len(tree.inside) != 1 or (field.kind == ipc.FIXED_LIST and field.width < 0):
        raise level.bad(
            "a list must have one child array and a length that is not negative, not"
            f" {len(tree.inside)} children and length {field.width}"
        )
    return field.kind in LISTS or _is_ragged(tree.inside[0])


def _dense(
    tree: Tree,
    copy: bool | None,
) -> tuple[tuple[int, ...], tuple[int, ...], list[Level], Values | None]:
    """Returns (inner dimensions as stored, their logical order, levels, reader of the values).

    The levels are the arrays from the row to the values. The reader is None for types that are not
    supported.
    """
    level, field = tree.level, tree.level.field
    if field.coded or field.kind != ipc.FIXED_LIST:
        return (), (), [level], values(level, copy)
    own_dims: tuple[int, ...] = (field.width,)
    order: tuple[int, ...] = ()
    if is_tensor(field):
        try:
            own_dims, order = tensor_shape(field)
        except DecodeError:
            raise
        except ValueError as error:
            raise level.bad(str(error)) from None
    inner, inner_order, levels, reader = _dense(tree.inside[0], copy)
    if order or inner_order:
        order = (
            *(order or range(len(own_dims))),
            *(axis + len(own_dims) for axis in inner_order or range(len(inner))),
        )
    return own_dims + inner, order, [level, *levels], reader


def _cell(tree: Tree, notes: FieldNotes, copy: bool | None) -> SpecParts:
    level = tree.level
    if level.field.kind not in LISTS or level.field.coded or len(tree.inside) != 1:
        raise level.bad("a column with a `shape` in its field metadata must be a list")
    leaf = tree.inside[0].level
    reader = values(leaf, copy)
    if reader is None:
        raise level.unsupported(
            f"unsupported type of column {level.column!r}: Arrow {ipc.NAMES[leaf.field.kind - 1]}"
        )
    return _node(notes, leaf), [Cell(leaf, reader, tuple(notes.shape or ()))]
