"""What the columns of an Arrow file are to us: a spec of the lowering, and the parts that it needs.

    numbers, bools, strings              a tensor of one dimension, one row an element
    fixed_size_list, fixed_shape_tensor  a tensor of more dimensions
    list, large_list                     a Ragged; fixed_size_list around them: one whose rows have
                                         that length
    struct                               a dict of what is inside
    a dictionary of numbers or strings   what stands in it
    other extension types                what they are stored as
    a column with nulls                  the same, and a bool a row in NAME/present

A column that no tensor holds is listed all the same, and only reading that column is an error.

A field's metadata may say more, as JSON under "tensorwire": the `dtype` that the numbers stand for,
the lengths of a Ragged that are `uniform`, the `shape` of a tensor whose elements are all in the
one row of a list, and the `inner` dimensions of one whose rows have no elements, in lists that are
empty.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..._errors import DecodeError, LimitError
from ...wire import arrow_ipc as ipc
from ...wire.arrow_columns import LISTS, PRESENT, TEXT, FieldNotes, is_tensor, tensor_shape
from .buffers import Chunk
from .file import IpcFile
from .levels import Level, Tree, tree
from .parts import ArrowPart, Cell, NullableLists, Presence, RefusedColumn, Splits
from .values import Values, check_layout, values

SpecParts = tuple[Any, list[Any]]
"""A node of a spec and its parts."""
_CAST = "in pyarrow, table.column({!r}).cast({!r}) keeps {}"
_CASTS = {
    ipc.NULL: ("int64", "the nulls as missing numbers"),
    ipc.TIMESTAMP: ("int64", "the numbers and not the unit"),
    ipc.DURATION: ("int64", "the numbers and not the unit"),
    ipc.DECIMAL: ("float64", "about 16 digits"),
    ipc.FIXED_BINARY: ("binary", "the bytes"),
}
"""Types that are close to one that tensors have, and what a cast keeps."""
_DAYS = (
    "in pyarrow, table.column({!r}).cast(...) to the integer of its width keeps the numbers "
    "(date32 and time32: 'int32', date64 and time64: 'int64')"
)


def columns(
    file: IpcFile,
    copy: bool | None,
    chunks: list[Chunk] | None = None,
) -> dict[str, SpecParts]:
    """Every column by its name, with NAME/present for one with nulls.

    `chunks` are some batches of the file, if not all of them are meant.
    """
    return _columns(_trees(file, file.chunks if chunks is None else chunks), copy)


def all_refused(file: IpcFile, error: DecodeError, rows: int) -> dict[str, SpecParts]:
    """Every column by its name, of a file none of whose columns can be read."""
    return {column.level.column: _refused(column, error, rows) for column in _trees(file, [])}


def _trees(file: IpcFile, chunks: list[Chunk]) -> list[Tree]:
    at = [0, 0, 0]
    trees = [tree(file, chunks, field, None, field.name, at) for field in file.fields]
    check_layout(chunks, *at)
    if at[0] > file.limits.names:
        raise LimitError(f"{at[0]} columns; Limits(names=...) allows {file.limits.names}", offset=0)
    return trees


def flags(found: dict[str, SpecParts]) -> dict[str, SpecParts]:
    """The columns that say which rows of another one have a value."""
    return {name: (node, parts) for name, (node, parts) in found.items() if _is_flag(parts)}


def _is_flag(parts: list[Any]) -> bool:
    return len(parts) == 1 and isinstance(parts[0], Presence)


def _columns(trees: list[Tree], copy: bool | None) -> dict[str, SpecParts]:
    """The columns of a table, or the fields of a struct."""
    names = Counter(column.level.field.name for column in trees)
    found: dict[str, SpecParts] = {}
    for column in trees:
        name = column.level.field.name
        flag = name + PRESENT
        try:
            if names[name] > 1:
                why = f"two columns are named {name!r}; in pyarrow, rename_columns(...) first"
                raise column.level.unsupported(why)
            found[name], present = _column(column, copy)
            if present is not None and flag in names:
                why = f"the column {name!r} has nulls, and the name {flag!r} is taken"
                raise column.level.unsupported(f"{why}; in pyarrow, rename_columns(...) first")
        except LimitError:
            raise
        except DecodeError as error:
            why = f"{error.message}; names= reads other columns"
            found[name], present = _refused(column, type(error)(why)), None
        if present is not None:
            found[flag] = {}, [present]
    return found


def _refused(tree: Tree, error: DecodeError, rows: int | None = None) -> SpecParts:
    """A column that is listed, and whose reading is an error."""
    return {}, [RefusedColumn(tree.level, _type_name(tree), error, rows)]


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
    """What a column is, and which of its rows have a value if some have none."""
    level, notes = tree.level, FieldNotes.of(tree.level.field)
    if level.file.big_endian:
        way = "in pyarrow, read the file and write it again"
        why = f"the column {level.column!r} is big-endian, and only little-endian ones are read"
        raise level.unsupported(f"{why}; {way}")
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
    inner, order, levels, found = _dense(tree, copy)
    if notes.inner is not None:
        if not lists or 0 not in notes.inner or inner:
            raise level.bad("rows without elements are lists of nothing else")
        levels, inner = [lists.pop(), *levels], tuple(notes.inner)
    if found is None:
        raise level.unsupported(_why_not(level, levels[-1]))
    present = Presence(level, copy) if level.present(0, 0) is not None else None
    values = ArrowPart(levels, found, inner, order)
    node = _node(notes, levels[-1])
    if not lists:
        return (node, [values]), present
    fields = [one.field for one in lists]
    fixed = [field.width if field.kind == ipc.FIXED_LIST else None for field in fields]
    uniform = fixed if notes.uniform is None else notes.uniform
    if len(uniform) != len(lists):
        raise level.bad(f"lengths of {len(uniform)} levels of lists, and there are {len(lists)}")
    node = {"ragged": node, "splits": len(lists)}
    if any(length is not None for length in uniform):
        node["uniform"] = uniform
    splits = [Splits(one, [*lists, levels[0]], copy) for one in lists]
    if present is None and not values.nulls and not any(one.nulls for one in lists):
        return (node, [values, *splits]), None
    return (node, list[Any](NullableLists(lists, uniform, values, splits, copy).parts())), present


def _why_not(level: Level, leaf: Level) -> str:
    """What is wrong with a type that no tensor holds, and the way out where there is one."""
    kind, name = leaf.field.kind, level.column
    if leaf is not level:
        return f"the column {name!r} holds {ipc.NAMES[kind - 1]} in lists, which no tensor does"
    why = f"the column {name!r} is of Arrow's type {ipc.NAMES[kind - 1]}, which no tensor holds"
    if kind in _CASTS:
        return f"{why}; {_CAST.format(name, *_CASTS[kind])}"
    if kind in (ipc.DATE, ipc.TIME):
        return f"{why}; {_DAYS.format(name)}"
    if kind in (ipc.LIST_VIEW, ipc.LARGE_LIST_VIEW):
        return f"{why}; in pyarrow, cast it to pa.list_(...) of the same items"
    return why


def _node(notes: FieldNotes, leaf: Level) -> Any:
    """The node of a tensor of such values."""
    if notes.dtype is not None:
        return {"dtype": notes.dtype}
    return {"text": True} if leaf.field.kind in TEXT else {}


def _is_ragged(tree: Tree) -> bool:
    level, field = tree.level, tree.level.field
    if field.coded or field.kind not in (*LISTS, ipc.FIXED_LIST):
        return False
    if len(tree.inside) != 1 or (field.kind == ipc.FIXED_LIST and field.width < 0):
        raise level.bad(
            f"a list has one array inside, and no negative length, not {len(tree.inside)} and"
            f" {field.width}"
        )
    return field.kind in LISTS or _is_ragged(tree.inside[0])


def _dense(
    tree: Tree,
    copy: bool | None,
) -> tuple[tuple[int, ...], tuple[int, ...], list[Level], Values | None]:
    """The further dimensions of a row, as they are stored and in which order they are meant; the
    arrays from the row to the values; what reads the last of them."""
    level, field = tree.level, tree.level.field
    if field.coded or field.kind != ipc.FIXED_LIST:
        return (), (), [level], values(level, copy)
    mine: tuple[int, ...] = (field.width,)
    order: tuple[int, ...] = ()
    if is_tensor(field):
        try:
            mine, order = tensor_shape(field)
        except DecodeError:
            raise
        except ValueError as error:
            raise level.bad(str(error)) from None
    inner, inside, levels, found = _dense(tree.inside[0], copy)
    if order or inside:
        order = (
            *(order or range(len(mine))),
            *(axis + len(mine) for axis in inside or range(len(inner))),
        )
    return mine + inner, order, [level, *levels], found


def _cell(tree: Tree, notes: FieldNotes, copy: bool | None) -> SpecParts:
    level = tree.level
    if level.field.kind not in LISTS or level.field.coded or len(tree.inside) != 1:
        raise level.bad("a tensor with a shape of its own is one list")
    leaf = tree.inside[0].level
    found = values(leaf, copy)
    if found is None:
        raise level.unsupported(f"a tensor of Arrow's {ipc.NAMES[leaf.field.kind - 1]}")
    return _node(notes, leaf), [Cell(leaf, found, tuple(notes.shape or ()))]
