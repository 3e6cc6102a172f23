"""A value as the tensor that an input of a signature wants: dtype and shape, exactly, or an error
that names the way out.

The same dtype is taken as it is. Others are taken if nothing can be lost:

    integers to other integers      if every value fits
    integers to floats              if every value is one that all floats of that width know (up to
                                    2**24 for float32)
    floats to wider floats          always
    floats to narrower floats       Python's own numbers, which have no width; tensors only with
                                    cast=True
    bools, complex numbers, strings only as what they are

A number past the range of the dtype is an error even with cast=True.
"""

from __future__ import annotations

import numpy as np

from ... import frameworks
from ..._errors import EncodeError, TensorwireError
from ...core import dtypes
from ...core.tensors import Array, Ragged, Sparse, Strings, TensorLike, describe
from ..spec import Input, shown

FORMAT = "serving"
_EXACT = {"float64": 1 << 53, "float32": 1 << 24, "float16": 1 << 11, "bfloat16": 1 << 8}
"""Integers up to here are floats."""
_WIDER = {
    "float32": ("float64",),
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "complex64": ("complex128",),
}


def fit(value: TensorLike, target: Input, cast: bool = False) -> tuple[Array | Strings, list[str]]:
    """(the tensor, what was done to it)

    >>> fit([[1, 2, 3]], Input("x", "float32", (None, 3)))
    (array([[1., 2., 3.]], dtype=float32), ['Python numbers as float32'])
    """
    try:
        return _fit(value, target, cast)
    except TensorwireError as error:
        raise error.add(tensor=target.name, format=FORMAT) from None


def _fit(value: TensorLike, target: Input, cast: bool) -> tuple[Array | Strings, list[str]]:
    plain = is_plain(value)
    tensor = frameworks.tensor(value)
    if isinstance(tensor, (Sparse, Ragged)) or not isinstance(tensor, (np.ndarray, Strings)):
        found = "a list of tensors" if isinstance(tensor, list) else describe(tensor)
        raise EncodeError(f"the signature wants {target}, and this is {found}")
    if plain and not tensor.size and target.dtype == "string":
        tensor = Strings.of([], tensor.shape, text=True)  # [] says nothing of a dtype
    if isinstance(tensor, Strings) or target.dtype == "string":
        if target.dtype != "string" or not isinstance(tensor, Strings):
            raise EncodeError(f"the signature wants {target}, and this is {describe(tensor)}")
        notes: list[str] = []
    else:
        if target.dtype not in dtypes.BY_NAME:
            raise EncodeError(
                f"the signature wants {target}, and nothing can be sent as {target.dtype}"
            )
        tensor, notes = _converted(tensor, dtypes.named(target.dtype), plain, cast)
    return _shaped(tensor, target), notes


def is_plain(value: TensorLike) -> bool:
    """Whether a value is made of Python's own numbers, whose width nobody has chosen."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (bool, int, float, complex, list, tuple)) and not isinstance(
        value, np.generic
    )


def _converted(array: Array, row: dtypes.DType, plain: bool, cast: bool) -> tuple[Array, list[str]]:
    have = dtypes.of(array.dtype)
    if have.numpy == row.numpy:
        return array, []
    was = "Python numbers" if plain else have.name
    if plain and not array.size:
        return array.astype(row.numpy), [f"{was} as {row.name}"]
    if _is_integer(have) and _is_integer(row):
        _check_range(array, row, *dtypes.bounds(row))
        return array.astype(row.numpy), [f"{was} as {row.name}, every value fits"]
    if _is_integer(have) and row.name in _EXACT:
        if not cast:
            _check_range(array, row, -_EXACT[row.name], _EXACT[row.name])
        how = "" if plain else ", rounded where it must be" if cast else ", every value is exact"
        return _finite(array, row), [f"{was} as {row.name}{how}"]
    if row.name in _WIDER.get(have.name, ()) or (
        have.name.startswith("float8") and row.name in ("float32", "float64")
    ):
        return array.astype(row.numpy), [f"{was} as {row.name}, which is wider"]
    if have.name in _EXACT and row.name in _EXACT and (plain or cast):
        return _finite(array, row), [f"{was} as {row.name}" + ("" if plain else ", rounded")]
    raise EncodeError(
        f"the signature wants {row.name}, and this is {have.name}{_way_out(have, row, plain)}"
    )


def _is_integer(row: dtypes.DType) -> bool:
    return row.name.startswith(("int", "uint"))


def _way_out(have: dtypes.DType, row: dtypes.DType, plain: bool) -> str:
    if have.name in _EXACT and row.name in _EXACT:
        return (
            f", which would be rounded; x.astype({row.name!r}) says that you mean it, and so does"
            " cast=True"
        )
    numbers = "whole numbers without a point" if have.name in _EXACT else f"values of {row.name}"
    return (
        f"; write {numbers}"
        if plain
        else f"; x.astype({row.name!r}) makes it one, if that is what you mean"
    )


def _check_range(array: Array, row: dtypes.DType, lowest: int, highest: int) -> None:
    flat = (
        array.reshape(-1).astype(np.int64)
        if array.dtype.itemsize == 1 and array.dtype.kind == "V"
        else array.reshape(-1)
    )
    if not len(flat):
        return
    for value in (int(flat.min()), int(flat.max())):
        if not lowest <= value <= highest:
            at = np.unravel_index(int(np.flatnonzero(flat == value)[0]), array.shape)
            where = f" at {[int(i) for i in at]}" if array.ndim else ""
            exact = "exactly" if row.name in _EXACT else f"(it goes from {lowest} to {highest})"
            raise EncodeError(
                f"{row.name} does not hold {value}{where} {exact}; x.astype({row.name!r}) takes"
                " what becomes of it"
            )


def _finite(array: Array, row: dtypes.DType) -> Array:
    """Rounded, but no number becomes infinite."""
    with np.errstate(over="ignore"):
        out = array.astype(row.numpy)
    lost = np.isinf(out.astype(np.float64)) & np.isfinite(array.astype(np.float64))
    if lost.any():
        value = array.reshape(-1)[int(np.flatnonzero(lost.reshape(-1))[0])]
        raise EncodeError(f"{value} is past what {row.name} holds")
    return out


def _shaped(tensor: Array | Strings, target: Input) -> Array | Strings:
    shape, wanted = tensor.shape, target.shape
    if wanted is None or fits(shape, wanted):
        return tensor
    if not tensor.size and len(shape) < len(wanted) and fits(shape, wanted[: len(shape)]):
        # lists that hold nothing say no more
        return tensor.reshape((*shape, *(dim or 0 for dim in wanted[len(shape) :])))
    way = ""
    if fits((1, *shape), wanted):
        way = "; a batch of one is x[None]"
    elif wanted and wanted[0] is None and len(shape) == len(wanted):
        way = (
            f"; only the first dimension of {shown(wanted)} is free"
            if wanted.count(None) == 1
            else ""
        )
    raise EncodeError(f"the signature wants {target}, and this has the shape {list(shape)}{way}")


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether a shape is one of those that are wanted.

    >>> fits((2, 3), (None, 3)), fits((2, 3), (None,))
    (True, False)
    """
    return len(shape) == len(wanted) and all(
        want in (None, dim) for dim, want in zip(shape, wanted, strict=True)
    )
