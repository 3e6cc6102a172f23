"""Which rows go on: a condition over columns (`where`), a share by the hash of a feature, and a
sample of exact size.

A condition is in the language of `records/where.py`. Comparisons of numbers are done for a whole
column at once, all others row by row, and both mean the same.
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
    """Something that is not done by columns."""


class Condition:
    """A condition, checked when it is made.

    >>> wanted = Condition("label in [1, 2] and not has(x)")
    >>> sorted(wanted.names)
    ['label', 'x']
    >>> batch = Batch({"label": np.array([1, 3]), "x": np.zeros(2)}, {"label": np.array([True,
    ...     True]), "x": np.array([False, True])}, 2)
    >>> wanted(batch)
    array([ True, False])
    """

    def __init__(self, text: str) -> None:
        self.where = Where(text)
        self.names = self.where.names
        self._tree = ast.parse(text.strip(), mode="eval").body

    def check(self, known: Any) -> None:
        """Whether all its columns are there."""
        for name in sorted(self.names):
            if name not in known:
                raise SchemaError(
                    f"where= names {name!r}, and there is no such column{choices(name, known)}",
                    tensor=name,
                )

    def __call__(self, batch: Batch) -> Array:
        """bool [rows]"""
        self.check(batch)
        try:
            return np.broadcast_to(self._columns(self._tree, batch), (batch.size,))
        except _Slow:
            return self.slow(batch)

    def slow(self, batch: Batch) -> Array:
        """The same, row by row."""
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
    """A number of each row against a number, or a list of them."""
    column, there = _numbers(node.left, batch)
    op, right = node.ops[0], node.comparators[0]
    if isinstance(op, (ast.In, ast.NotIn)):
        if not isinstance(right, (ast.List, ast.Tuple)):
            raise _Slow
        none: Array = np.zeros(batch.size, np.bool_)
        found: Array = (
            np.logical_or.reduce(
                [none, *(column == _constant(item, column) for item in right.elts)]
            )
            & there
        )
        return ~found if isinstance(op, ast.NotIn) else found
    compared = np.asarray(_COMPARE[type(op)](column, _constant(right, column)), np.bool_)
    return compared | ~there if isinstance(op, ast.NotEq) else compared & there


def _numbers(node: ast.AST, batch: Batch) -> tuple[Array, Array]:
    """(a number of each row, whether the row has it)"""
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
    """A feature of each row as bytes that are the same in every format: strings as they are,
    integers in decimal, nothing if missing.
    """
    if name not in batch:
        raise SchemaError(
            f"rows are told apart by {name!r}, and there is no such column{choices(name, batch)}",
            tensor=name,
        )
    column: Any = batch[name]
    there = batch.present[name]
    if isinstance(column, Ragged) or column.ndim != 1:
        raise SchemaError("rows are told apart by a feature of one value", tensor=name)
    if isinstance(column, Strings):
        found = column.astext(False).tolist() if column.text else column.tolist()
    elif column.dtype.kind in "iub":
        found = [b"%d" % value for value in column.tolist()]
    else:
        raise SchemaError(
            "rows are told apart by strings or integers; floats are seldom the same twice",
            tensor=name,
        )
    return [value if known else b"" for value, known in zip(found, there.tolist(), strict=True)]


def share(seed: int, value: bytes) -> float:
    """Where a value falls between 0 and 1: the first 8 bytes of SHA-256 of "SEED:VALUE", as a
    big-endian number, over 2**64.

    >>> round(share(0, b"user-7"), 6) == round(int(hashlib.sha256(b"0:user-7").hexdigest()[:16], 16)
    ...     / 2**64, 6)
    True
    """
    return int.from_bytes(hashlib.sha256(b"%d:" % seed + value).digest()[:8], "big") / 2**64


def shares(seed: int, values: list[bytes]) -> Array:
    """The same for many, each value once."""
    known = {value: share(seed, value) for value in set(values)}
    return np.fromiter((known[value] for value in values), np.float64, len(values))
