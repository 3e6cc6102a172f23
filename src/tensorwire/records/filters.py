"""Filter expressions over the features of a record, such as `label == 3 and len(ids) > 2`.

An expression is parsed by Python's own parser and translated node by node. Only the constructs
named in `ALLOWED` have a meaning, and nothing is ever executed.

A feature evaluates to its value, or to the list of its values if it has several, or to None if the
record does not have it. `len()` of a string is its length, of any other feature the number of its
values. `in` searches a list, or searches a string for a substring. Values that cannot be ordered (a
string and a number, or None) compare as neither less nor greater. A name with other characters than
letters, digits and _ is written `col("image/encoded")`.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .._errors import SchemaError

MOST = 2000
"""The maximum length of an expression in characters, which also bounds its nesting."""
ALLOWED = (
    "names of features, numbers, strings, True, False, None, == != < <= > >=, in, not in, and, or,"
    " not, len(x), has(x), col('a/name'), [lists] and (brackets)"
)
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_Reader = Callable[[Mapping[str, Any]], Any]


class Where:
    """A parsed filter expression, called with the features of a record.

    >>> where = Where("label == 3 and 'de' in country")
    >>> where({"label": 3, "country": b"de"}), where({"label": 3}), sorted(where.names)
    (True, False, ['country', 'label'])
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: set[str] = set()
        self._read = self._node(self._parsed(text))

    def __call__(self, features: Mapping[str, Any]) -> bool:
        return bool(self._read(features))

    def _parsed(self, text: str) -> ast.expr:
        if len(text) > MOST:
            raise SchemaError(
                f"filter expression of {len(text):,} characters is longer than {MOST:,}"
            )
        try:
            with warnings.catch_warnings():
                # Python warns about expressions such as "3 is 3", which are rejected below.
                warnings.simplefilter("ignore")
                return ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            hint = "write == to compare; " if "=" in text and "==" not in text else ""
            raise SchemaError(
                f"invalid filter {text!r:.80}: syntax error at character {error.offset or 0}",
                hint=f"{hint}allowed: {ALLOWED}",
            ) from None
        except (ValueError, RecursionError, MemoryError):
            raise SchemaError(f"invalid filter {text!r:.80}", hint=f"allowed: {ALLOWED}") from None

    def _node(self, node: ast.expr) -> _Reader:
        if isinstance(node, ast.BoolOp):
            parts = [self._node(part) for part in node.values]
            every = isinstance(node.op, ast.And)
            return lambda row: (all if every else any)(part(row) for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._node(node.operand)
            return lambda row: not inner(row)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Name):
            return self._feature(node.id)
        if isinstance(node, ast.Call):
            return self._call(node)
        constant = self._constant(node)
        return lambda row: constant

    def _feature(self, name: str) -> _Reader:
        self.names.add(name)
        return lambda row: plain(row.get(name))

    def _call(self, node: ast.Call) -> _Reader:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if len(node.args) == 1 and not node.keywords:
            only = node.args[0]
            if name == "col" and isinstance(only, ast.Constant) and isinstance(only.value, str):
                return self._feature(only.value)
            if name in ("len", "has"):
                inner = self._node(only)
                return (
                    (lambda row: _length(inner(row)))
                    if name == "len"
                    else (lambda row: inner(row) is not None)
                )
        raise self._refused(node, "the only functions are len(x), has(x) and col('a/name')")

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and (
            node.value is None or isinstance(node.value, (bool, int, float, str, bytes))
        ):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            value = self._constant(node.operand)
            if isinstance(value, (int, float)):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [self._constant(item) for item in node.elts]
        raise self._refused(node)

    def _comparison(self, node: ast.Compare) -> _Reader:
        sides = [self._node(side) for side in (node.left, *node.comparators)]
        steps: list[Callable[[Any, Any], bool]] = []
        for op in node.ops:
            if isinstance(op, (ast.In, ast.NotIn)):
                steps.append(
                    _contains if isinstance(op, ast.In) else lambda a, b: not _contains(a, b)
                )
            elif type(op) in _COMPARE:
                steps.append(_comparing(_COMPARE[type(op)]))
            else:
                raise self._refused(node, "there is no 'is'; write == None")
        return lambda row: all(
            step(a(row), b(row)) for step, a, b in zip(steps, sides, sides[1:], strict=False)
        )

    def _refused(self, node: ast.expr, why: str = "") -> SchemaError:
        piece = ast.get_source_segment(self.text.strip(), node) or self.text
        return SchemaError(
            f"{piece!r:.60} is not allowed in a filter{': ' + why if why else ''}",
            hint=f"allowed: {ALLOWED}",
        )


def plain(value: object) -> Any:
    """Return a feature as a Python value, or as a list if it has several. UTF-8 bytes become str.

    >>> plain(np.int64([3])), plain(np.float32([1, 2])), plain(b"de")
    (3, [1.0, 2.0], 'de')
    """
    if value is None:
        return None
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value).reshape(-1).tolist()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return plain(value[0]) if len(value) == 1 else [_text(item) for item in value]
    return _text(value)


def _text(item: object) -> Any:
    if isinstance(item, bytes):
        try:
            return item.decode()
        except UnicodeDecodeError:
            return item
    return item


def _comparing(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def both(a: object, b: object) -> bool:
        try:
            return bool(compare(_text(a), _text(b)))
        except TypeError:
            # A string and a number, or None: there is no order.
            return False

    return both


def _contains(item: object, where: object) -> bool:
    item, where = _text(item), _text(where)
    if isinstance(where, str) and isinstance(item, str):
        return item in where
    if isinstance(where, bytes) and isinstance(item, (str, bytes)):
        return (item.encode() if isinstance(item, str) else item) in where
    items = where if isinstance(where, list) else [] if where is None else [where]
    return any(_text(other) == item for other in items)


def _length(value: object) -> int:
    return 0 if value is None else len(value) if isinstance(value, (str, bytes, list)) else 1
