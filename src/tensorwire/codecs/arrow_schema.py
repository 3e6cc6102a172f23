"""What the columns of an Arrow file are to us: a spec of the lowering, and the parts that it needs.

    numbers, bools, strings              a tensor of one dimension, one row an element
    fixed_size_list, fixed_shape_tensor  a tensor of more dimensions
    list, large_list                     a Ragged; fixed_size_list around them: one whose rows have that length
    struct                               a dict of what is inside
    a dictionary of numbers or strings   what stands in it
    other extension types                what they are stored as

A field's metadata may say more, as JSON under "tensorwire": the `dtype` that the numbers stand for, the lengths of a Ragged that are
`uniform`, the `shape` of a tensor whose elements are all in the one row of a list, and the `inner` dimensions of one whose rows have no
elements, in lists that are empty.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from .._errors import DecodeError, LimitError
from ..wire import arrow_ipc as ipc
from ..wire import jsontext
from .arrow_file import IpcFile
from .arrow_levels import LISTS, Level, Tree, tree
from .arrow_parts import Cell, Part, Refused, Splits
from .arrow_values import TEXT, Values, check_layout, values

KEY = "tensorwire"
TENSOR = "arrow.fixed_shape_tensor"
Column = tuple[Any, list[Any]]
"""A node of a spec and its parts."""
_HINTS = {
    **dict.fromkeys((ipc.DATE, ipc.TIME, ipc.TIMESTAMP, ipc.DURATION), "; in pyarrow, cast it to int64 and keep the unit"),
    ipc.DECIMAL: "; in pyarrow, cast it to float64",
    ipc.LIST_VIEW: "; in pyarrow, cast it to a list",
}


def columns(file: IpcFile, copy: bool | None) -> dict[str, Column]:
    """Every column by its name."""
    at, found = [0, 0, 0], dict[str, Column]()
    trees = [tree(file, field, None, field.name, at) for field in file.fields]
    check_layout(file.chunks, *at)
    if at[0] > file.limits.names:
        raise LimitError(f"{at[0]} columns; Limits(names=...) allows {file.limits.names}", offset=0)
    for one in trees:
        name = one.level.column
        if name in found:
            raise one.level.bad(f"two columns are named {name!r}; in pyarrow, rename_columns(...) first")
        found[name] = _column(one, copy)
    return found


def _column(tree: Tree, copy: bool | None) -> Column:
    level, said = tree.level, _said(tree.level.field)
    if "shape" in said:
        return _cell(tree, said, copy)
    if level.field.kind == ipc.STRUCT and not level.field.coded:
        inside = [(child.level.field.name, _column(child, copy)) for child in tree.inside]
        if len(dict(inside)) != len(inside):
            raise level.bad(f"a struct has two fields of one name, in the column {level.column!r}")
        return {"dict": {name: node for name, (node, _) in inside}}, [part for _, (_, parts) in inside for part in parts]
    lists = list[Level]()
    while _is_ragged(tree):
        lists.append(tree.level)
        tree = tree.inside[0]
    rows = tree.level
    inner, order, leaf, found = _dense(tree, copy)
    if "inner" in said:
        if not lists or math.prod(said["inner"]) or inner:
            raise level.bad("rows without elements are lists of nothing else")
        rows, inner = lists.pop(), tuple(said["inner"])
    if found is None:
        name = ipc.NAMES[leaf.field.kind - 1]
        why = _HINTS.get(leaf.field.kind, "") + "; tw.load(..., names=[...]) reads the others"
        return {}, [Refused(level, name if leaf is level else f"{ipc.NAMES[level.field.kind - 1]} of {name}", why)]
    node = _node(said, leaf)
    if not lists:
        return node, [Part(rows, leaf, found, inner, order)]
    uniform = said.get("uniform", [one.field.width if one.field.kind == ipc.FIXED_LIST else None for one in lists])
    node = {"ragged": node, "splits": len(lists)}
    if any(length is not None for length in uniform):
        node["uniform"] = uniform
    return node, [Part(rows, leaf, found, inner, order), *(Splits(one, [*lists, rows], copy) for one in lists)]


def _node(said: dict[str, Any], leaf: Level) -> Any:
    """The node of a tensor of such values."""
    return {"dtype": said["dtype"]} if "dtype" in said else {"text": True} if leaf.field.kind in TEXT else {}


def _is_ragged(tree: Tree) -> bool:
    level, field = tree.level, tree.level.field
    if field.coded or field.kind not in (*LISTS, ipc.FIXED_LIST):
        return False
    if len(tree.inside) != 1 or (field.kind == ipc.FIXED_LIST and field.width < 0):
        raise level.bad(f"a list has one array inside, and no negative length, not {len(tree.inside)} and {field.width}")
    return field.kind in LISTS or _is_ragged(tree.inside[0])


def _dense(tree: Tree, copy: bool | None) -> tuple[tuple[int, ...], tuple[int, ...], Level, Values | None]:
    """The further dimensions of a row, as they are stored and in which order they are meant; the array of the values; what reads it."""
    level, field = tree.level, tree.level.field
    if field.coded or field.kind != ipc.FIXED_LIST:
        return (), (), level, values(level, copy)
    mine, order = _tensor(level) if field.metadata.get("ARROW:extension:name") == TENSOR else ((field.width,), ())
    inner, inside, leaf, found = _dense(tree.inside[0], copy)
    if order or inside:
        order = (*(order or range(len(mine))), *(axis + len(mine) for axis in inside or range(len(inner))))
    return mine + inner, order, leaf, found


def _tensor(level: Level) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the metadata of a fixed_shape_tensor say."""
    about = jsontext.parse(level.field.metadata.get("ARROW:extension:metadata", "").encode(), ipc.FORMAT)
    shape: Any = about.get("shape") if isinstance(about, dict) else None
    if not _naturals(shape) or math.prod(shape) != level.field.width:
        raise level.bad(f"a fixed_shape_tensor of the shape {shape!r:.60} in lists of {level.field.width}")
    order = about.get("permutation")
    if order is None or order == list(range(len(shape))):
        return tuple(shape), ()
    if not _naturals(order) or sorted(order) != list(range(len(shape))):
        raise level.bad(f"a fixed_shape_tensor of {len(shape)} dimensions with the permutation {order!r:.60}")
    return tuple(shape), tuple(order)


def _cell(tree: Tree, said: dict[str, Any], copy: bool | None) -> Column:
    level = tree.level
    if level.field.kind not in LISTS or level.field.coded or len(tree.inside) != 1:
        raise level.bad("a tensor with a shape of its own is one list")
    leaf = tree.inside[0].level
    found = values(leaf, copy)
    if found is None:
        raise level.bad(f"a tensor of Arrow's {ipc.NAMES[leaf.field.kind - 1]}")
    return _node(said, leaf), [Cell(leaf, found, tuple(said["shape"]))]


def _said(field: ipc.Field) -> dict[str, Any]:
    """What our own metadata of a field say."""
    text = field.metadata.get(KEY)
    if text is None:
        return {}
    said = jsontext.parse(text.encode(), ipc.FORMAT)
    if not isinstance(said, dict) or not said.keys() <= {"dtype", "shape", "inner", "uniform"}:
        raise DecodeError(f"metadata of a column that this release does not read: {text!r:.80}", tensor=field.name, offset=0)
    uniform = said.get("uniform", [])
    ok = isinstance(said.get("dtype", ""), str) and said.get("dtype", "int8") in dtypes.BY_NAME
    ok = ok and all(_naturals(said.get(key, [])) for key in ("shape", "inner"))
    if not ok or not isinstance(uniform, list) or not all(length is None or type(length) is int for length in uniform):
        raise DecodeError(f"metadata of a column that make no sense: {text!r:.80}", tensor=field.name, offset=0)
    return said


def _naturals(found: Any) -> bool:
    return isinstance(found, list) and all(type(item) is int and item >= 0 for item in found)
