"""Row selection: filter expressions over columns (`where=`), and shares by the hash of a feature.

The language of filter expressions is that of `records/filters.py`. Comparisons of numbers are
evaluated for a whole column at once, all others row by row, with the same result.
"""

from __future__ import annotations

import ast
import hashlib
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .._errors import SchemaError, choices
from ..core.tensors import Array, Ragged, Strings
from ..records.batch import Batch
from ..records.filters import Where

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class _Slow(Exception):
    """An expression that cannot be evaluated by columns."""


class Condition:
    """A filter expression. Its syntax is checked when it is made.

    >>> condition = Condition("label in [1, 2] and not has(x)")
    >>> sorted(condition.names)
    ['label', 'x']
    >>> batch = Batch({"label": np.array([1, 3]), "x": np.zeros(2)}, {"label": np.array([True,
    ...     True]), "x": np.array([False, True])}, 2)
    >>> condition(batch)
    array([ True, False])
    """

    def __init__(self, text: str) -> None:
        self.where = Where(text)
        self.names = self.where.names
        self._tree = ast.parse(text.strip(), mode="eval").body

    def check(self, columns: Any) -> None:
        """Raises if a column of the expression is missing."""
        for name in sorted(self.names):
            if name not in columns:
                raise SchemaError(
                    f"where= names an unknown column {name!r}{choices(name, columns)}",
                    tensor=name,
                )

    def __call__(self, batch: Batch) -> Array:
        """Which rows match: bool [rows]."""
        self.check(batch)
        try:
            return np.broadcast_to(self._columns(self._tree, batch), (batch.size,))
        except _Slow:
            return self.slow(batch)

    def slow(self, batch: Batch) -> Array:
        """The same result, row by row."""
        few = Batch(
            {name: batch[name] for name in self.names},
            {name: batch.present[name] for name in self.names},
            batch.size,
        )
        return np.fromiter((self.where(row) for row in few.rows()), np.bool_, batch.size)

    def _columns(self, node: ast.AST, batch: Batch) -> Array:
        if isinstance(node, ast.BoolOp):
            parts = [self._columns(part, batch) for part in node.values]
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return combine.reduce(parts)  # type: ignore[no-any-return]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self._columns(node.operand, batch)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return _compared(node, batch)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "has":
            name = _column_name(node.args[0])
            if name is not None:
                return batch.present[name]
        raise _Slow


def _compared(node: ast.Compare, batch: Batch) -> Array:
    """Compares a number of each row with a constant, or a list of constants.

    A missing feature is equal to nothing, so only `!=` and `not in` hold for it.
    """
    column, present = _numbers(node.left, batch)
    op, right = node.ops[0], node.comparators[0]
    if isinstance(op, (ast.In, ast.NotIn)):
        if not isinstance(right, (ast.List, ast.Tuple)):
            raise _Slow
        no_match: Array = np.zeros(batch.size, np.bool_)
        match: Array = (
            np.logical_or.reduce(
                [no_match, *(column == _constant(item, column) for item in right.elts)]
            )
            & present
        )
        return ~match if isinstance(op, ast.NotIn) else match
    compared = np.asarray(_COMPARE[type(op)](column, _constant(right, column)), np.bool_)
    return compared | ~present if isinstance(op, ast.NotEq) else compared & present


def _numbers(node: ast.AST, batch: Batch) -> tuple[Array, Array]:
    """(a number of each row, whether the row has it): a column, or the length of a ragged one.

    Raises `_Slow` for other columns, and for uint64: columns are compared as int64 or float64,
    which do not hold every uint64.
    """
    name = _column_name(node)
    if name is None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            name = _column_name(node.args[0])
        column: Any = batch[name] if name is not None else None
        if (
            isinstance(column, Ragged)
            and isinstance(column.values, np.ndarray)
            and column.ragged_rank == 1
        ):
            return np.diff(column.row_splits[0]) * batch.present[name or ""], np.ones(
                batch.size, np.bool_
            )
        raise _Slow
    column = batch[name]
    if (
        not isinstance(column, np.ndarray)
        or column.ndim != 1
        or column.dtype.kind not in "iuf"
        or column.dtype == np.uint64
    ):
        raise _Slow
    return column.astype(np.float64 if column.dtype.kind == "f" else np.int64), batch.present[name]


def _constant(node: ast.AST, column: Array) -> Any:
    """The value of a constant that float64 holds exactly, so that NumPy compares as Python does."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    value = node.value if isinstance(node, ast.Constant) else None
    fits = (type(value) is int and abs(value) < 2**53) or (
        type(value) is float and column.dtype.kind == "f"
    )
    if not fits:
        raise _Slow
    return sign * value  # type: ignore[operator]


def _column_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "col"
        and isinstance(node.args[0], ast.Constant)
    ):
        return str(node.args[0].value)
    return None


def values_of(batch: Batch, name: str) -> list[bytes]:
    """The values of the feature of `by=`, as bytes that are the same for every format: strings as
    they are, integers in decimal, b"" if missing.
    """
    if name not in batch:
        raise SchemaError(
            f"by= names an unknown column {name!r}{choices(name, batch)}", tensor=name
        )
    column: Any = batch[name]
    present = batch.present[name]
    if isinstance(column, Ragged) or column.ndim != 1:
        raise SchemaError("by= needs a feature with one value in each record", tensor=name)
    if isinstance(column, Strings):
        values = column.astext(False).tolist() if column.text else column.tolist()
    elif column.dtype.kind in "iub":
        values = [b"%d" % value for value in column.tolist()]
    else:
        raise SchemaError(
            f"by= needs a feature of strings or integers, not {column.dtype}", tensor=name
        )
    return [value if has else b"" for value, has in zip(values, present.tolist(), strict=True)]


def share(seed: int, value: bytes) -> float:
    """The hash of a value between 0 and 1: the first 8 bytes of SHA-256 of "SEED:VALUE", as a
    big-endian number, divided by 2**64.

    >>> round(share(0, b"user-7"), 6) == round(int(hashlib.sha256(b"0:user-7").hexdigest()[:16], 16)
    ...     / 2**64, 6)
    True
    """
    return int.from_bytes(hashlib.sha256(b"%d:" % seed + value).digest()[:8], "big") / 2**64


def shares(seed: int, values: list[bytes]) -> Array:
    """`share` of many values. Each different value is hashed once."""
    hashes = {value: share(seed, value) for value in set(values)}
    return np.fromiter((hashes[value] for value in values), np.float64, len(values))
