"""Dtypes that a framework lacks: conversion to a wider dtype with `cast=True`, else an error."""

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
    """Return the array in a dtype that the framework has: its own, or with `cast` a wider one.

    Raises EncodeError if there is none, and for strings.

    >>> fit(np.ones(2, "float16"), lambda row: row.bits > 16, "it", cast=True).dtype
    dtype('float32')
    """
    if isinstance(values, Strings):
        raise EncodeError(
            f"{framework} has no string tensors",
            hint="leave them Strings (to='numpy'), or pass x.tolist()",
        )
    row = dtypes.of(values.dtype)
    if holds(row):
        # Unlike NumPy, frameworks cannot read unaligned memory.
        return np.require(plain(values), requirements=["C", "A"])
    wider = _wider(row)
    if wider is None or not holds(wider):
        raise EncodeError(f"{framework} has no {row.name}", hint="convert it with x.astype(...)")
    if not cast:
        raise EncodeError(
            f"{framework} has no {row.name}",
            hint=f"cast=True converts it to {wider.name}, which holds all of its values",
        )
    # NumPy warns about signalling NaNs, which stay NaNs.
    with np.errstate(invalid="ignore"):
        return plain(values).astype(wider.numpy)


def _wider(row: dtypes.DType) -> dtypes.DType | None:
    """Return the dtype that holds all values of another one, or None."""
    if row.name.startswith(("float", "bfloat")):
        return dtypes.named("float32") if row.bits <= 16 else None
    return (
        dtypes.named("uint8" if row.name.startswith("uint") else "int8") if row.bits < 8 else None
    )
