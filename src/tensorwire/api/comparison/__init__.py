"""Comparison of two tensor files of any format, tensor by tensor, without reading both into memory.

values      compares two tensors: how many elements differ, and by how much
result      the differences, as a table or JSON
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
    """Compares two tensor files, and returns the `Differences`: tensors that are missing or extra,
    and for all others the differences in shape, dtype, kind and values.

    `a` and `b` are anything that `tw.open` takes, and may have different formats. `rename` maps the
    names of `a` to those of `b`, with the rules of `tw.convert`. Without a tolerance, tensors must
    be equal bit for bit. With `atol` or `rtol` only values are compared, whatever the dtypes: |a -
    b| <= atol + rtol * max(|a|, |b|), and NaN equals NaN.

    Raises `DecodeError` for damaged files, `SchemaError` if `rename` does not fit the names, and
    ValueError for a negative tolerance.

    >>> import numpy as np, tensorwire as tw
    >>> a = tw.dumps({"w": np.float32([1, 2, 3]), "b": np.zeros(2)})
    >>> b = tw.dumps({"w": np.float32([1, 2, 3.5])})
    >>> result = tw.diff(a, b)
    >>> result.equal, result.missing, result.tensors[0].unequal, result.tensors[0].max_abs
    (False, ['b'], 1, 0.5)
    """
    tolerance = None if atol is None and rtol is None else Tolerance(atol or 0.0, rtol or 0.0)
    if tolerance is not None and not (tolerance.atol >= 0 and tolerance.rtol >= 0):
        raise ValueError(f"atol= and rtol= must not be negative, not {atol!r} and {rtol!r}")
    with (
        lazy.open_file(a, format, limits=limits) as left,
        lazy.open_file(b, format, limits=limits) as right,
    ):
        names = _renamed(list(left), rename, left.path)
        tensors = []
        for name, other in names.items():
            if other in right:
                try:
                    tensors.append(compare(left[name], right[other], tolerance))
                except TensorwireError as error:
                    raise error.add(tensor=name) from None
        expected = set(names.values())
        missing = [name for name, other in names.items() if other not in right]
        extra = [name for name in right if name not in expected]
        values = _values(left.container, right.container)
        return Differences(
            left.path, right.path, (left.format, right.format), missing, extra, tensors, values
        )


def _renamed(
    names: list[str], rename: rename_rules.Rename | None, path: str | None
) -> dict[str, str]:
    try:
        return rename_rules.renamed(names, rename)
    except SchemaError as error:
        raise error.add(path=path) from None


def _values(a: Container, b: Container) -> list[str]:
    """The names of Python numbers and texts next to the tensors that are not equal. Formats that
    cannot hold such values lack them.
    """
    left, right = python_values(a), python_values(b)
    return [
        name
        for name in {**left, **right}
        if name not in left or name not in right or left[name] != right[name]
    ]
