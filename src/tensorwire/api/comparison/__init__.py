"""`diff`: what is different between two tensor files of any format, tensor by tensor, without
having both in memory.

values      two tensors of one name: how many elements differ, and by how much
result      what was found, as a table or JSON
"""

from __future__ import annotations

from typing import Any

from ..._errors import SchemaError, TensorwireError
from ..._limits import Limits
from ...codecs.container import Container
from ...codecs.tree_items import python_values
from .. import lazy, rename_rules
from .result import Differences, TensorDifference
from .values import Tolerance, compare

__all__ = ["Differences", "TensorDifference", "diff"]


def diff(
    a: Any,
    b: Any,
    *,
    rename: rename_rules.Rename | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    format: str | tuple[str, ...] | None = None,
    limits: Limits | None = None,
) -> Differences:
    """What `b` has that `a` has not: tensors that are missing or extra, and for each other one its
    shape, dtype, kind and values.

    `a` and `b` are whatever `tw.open` takes, each in its own format. `rename` gives the names of
    `a` the form that they have in `b` (rules as those of `tw.convert`). Without a tolerance two
    tensors are equal if they are so to the bit. With `atol` or `rtol` only values count (|a - b| <=
    atol + rtol * max(|a|, |b|), and NaN equals NaN), whatever their dtypes are.

    >>> import numpy as np
    >>> from tensorwire import dumps
    >>> found = diff(dumps({"w": np.float32([1, 2, 3]), "b": np.zeros(2)}), dumps({"w":
    ...     np.float32([1, 2, 3.5])}))
    >>> found.equal, found.missing, found.tensors[0].unequal, found.tensors[0].max_abs
    (False, ['b'], 1, 0.5)
    """
    tolerance = None if atol is None and rtol is None else Tolerance(atol or 0.0, rtol or 0.0)
    if tolerance is not None and not (tolerance.atol >= 0 and tolerance.rtol >= 0):
        raise ValueError("atol= and rtol= are not negative")
    with (
        lazy.open_file(a, format, limits=limits) as left,
        lazy.open_file(b, format, limits=limits) as right,
    ):
        names = _renamed(list(left), rename, left.path)
        tensors = []
        for mine, theirs in names.items():
            if theirs in right:
                try:
                    tensors.append(compare(left[mine], right[theirs], tolerance))
                except TensorwireError as error:
                    raise error.add(tensor=mine) from None
        known = set(names.values())
        gone, new = (
            [one for one, other in names.items() if other not in right],
            [name for name in right if name not in known],
        )
        values = _values(left.container, right.container)
        return Differences(
            left.path, right.path, (left.format, right.format), gone, new, tensors, values
        )


def _renamed(
    names: list[str], rename: rename_rules.Rename | None, path: str | None
) -> dict[str, str]:
    try:
        return rename_rules.renamed(names, rename)
    except SchemaError as error:
        raise error.add(path=path) from None


def _values(a: Container, b: Container) -> list[str]:
    """Numbers and text of Python's that stand beside the tensors, where they are not the same;
    formats that have none lose them.
    """
    left, right = python_values(a), python_values(b)
    return [
        name
        for name in {**left, **right}
        if name not in left or name not in right or left[name] != right[name]
    ]
