"""What a framework lacks: dtypes (with `cast=True` a wider one that holds every value of theirs)
and strings.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._errors import EncodeError
from ..core import dtypes
from ..core.tensors import Array, Strings
from .numpy import plain


def fit(
    values: Array | Strings, holds: Callable[[dtypes.DType], bool], framework: str, cast: bool
) -> Array:
    """The array in a dtype that the framework has: its own, or with `cast` a wider one; EncodeError
    where there is none, or for strings.

    >>> fit(np.ones(2, "float16"), lambda row: row.bits > 16, "it", cast=True).dtype
    dtype('float32')
    """
    if isinstance(values, Strings):
        raise EncodeError(
            f"{framework} has no tensors of strings; leave them Strings (to='numpy'), or pass"
            " x.tolist()"
        )
    row = dtypes.of(values.dtype)
    if holds(row):
        # frameworks do not read unaligned memory as NumPy does
        return np.require(plain(values), requirements=["C", "A"])
    wider = _wider(row)
    if wider is None or not holds(wider):
        raise EncodeError(f"{framework} has no {row.name}; convert it with x.astype(...)")
    if not cast:
        raise EncodeError(
            f"{framework} has no {row.name}; cast=True makes it {wider.name}, which holds every"
            " value of it"
        )
    with np.errstate(invalid="ignore"):  # NumPy warns of signalling NaNs; they stay NaNs
        return plain(values).astype(wider.numpy)


def _wider(row: dtypes.DType) -> dtypes.DType | None:
    if row.name.startswith(("float", "bfloat")):
        return dtypes.named("float32") if row.bits <= 16 else None
    return (
        dtypes.named("uint8" if row.name.startswith("uint") else "int8") if row.bits < 8 else None
    )
