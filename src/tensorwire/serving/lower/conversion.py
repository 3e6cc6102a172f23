"""Conversion of a value to the dtype and shape of an input.

A tensor of the same dtype is used as it is. Other dtypes are converted if nothing can be lost:

    integers to other integers      if every value fits
    integers to floats              if every value is in the range in which floats of that width
                                    hold all integers (up to 2**24 for float32)
    floats to wider floats          always
    floats to narrower floats       Python's own numbers, which have no width; tensors only with
                                    cast=True
    bools, complex numbers, strings never, except complex64 to complex128

A number out of the range of the dtype is an error even with cast=True.
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
"""All integers up to this one can be represented exactly."""
_WIDER = {
    "float32": ("float64",),
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "complex64": ("complex128",),
}


def fit(value: TensorLike, target: Input, cast: bool = False) -> tuple[Array | Strings, list[str]]:
    """Return (the tensor, notes on the conversion); raise EncodeError if the value does not fit.

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
        kind = "a list of tensors" if isinstance(tensor, list) else describe(tensor)
        raise EncodeError(f"expected {target}, got {kind}")
    if plain and not tensor.size and target.dtype == "string":
        # An empty list has no dtype of its own.
        tensor = Strings.of([], tensor.shape, text=True)
    if isinstance(tensor, Strings) or target.dtype == "string":
        if target.dtype != "string" or not isinstance(tensor, Strings):
            raise EncodeError(f"expected {target}, got {describe(tensor)}")
        notes: list[str] = []
    else:
        if target.dtype not in dtypes.BY_NAME:
            raise EncodeError(f"cannot send a tensor to {target}: unsupported dtype {target.dtype}")
        tensor, notes = _converted(tensor, dtypes.named(target.dtype), plain, cast)
    return _shaped(tensor, target), notes


def is_plain(value: TensorLike) -> bool:
    """Return whether a value is made of Python's own numbers, which have no width."""
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
    raise EncodeError(f"expected {row.name}, got {have.name}", hint=_hint(have, row, plain))


def _is_integer(row: dtypes.DType) -> bool:
    return row.name.startswith(("int", "uint"))


def _hint(have: dtypes.DType, row: dtypes.DType, plain: bool) -> str:
    """Return what the caller can do about a dtype that is not converted."""
    if have.name in _EXACT and row.name in _EXACT:
        return f"use x.astype({row.name!r}) or cast=True to round the values"
    numbers = (
        "integers, without a decimal point" if have.name in _EXACT else f"values of {row.name}"
    )
    return f"use {numbers}" if plain else f"convert it with x.astype({row.name!r})"


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
            index = np.unravel_index(int(np.flatnonzero(flat == value)[0]), array.shape)
            where = f" at {[int(i) for i in index]}" if array.ndim else ""
            exact = (
                f"{row.name} cannot hold it exactly"
                if row.name in _EXACT
                else f"{row.name} goes from {lowest} to {highest}"
            )
            raise EncodeError(
                f"the value {value}{where} is out of range: {exact}",
                hint=f"x.astype({row.name!r}) converts it with loss",
            )


def _finite(array: Array, row: dtypes.DType) -> Array:
    """Return the array rounded to the dtype; raise EncodeError if a number becomes infinite."""
    with np.errstate(over="ignore"):
        out = array.astype(row.numpy)
    lost = np.isinf(out.astype(np.float64)) & np.isfinite(array.astype(np.float64))
    if lost.any():
        value = array.reshape(-1)[int(np.flatnonzero(lost.reshape(-1))[0])]
        raise EncodeError(f"the value {value} is out of range for {row.name}")
    return out


def _shaped(tensor: Array | Strings, target: Input) -> Array | Strings:
    shape, wanted = tensor.shape, target.shape
    if wanted is None or fits(shape, wanted):
        return tensor
    if not tensor.size and len(shape) < len(wanted) and fits(shape, wanted[: len(shape)]):
        # Empty lists have no inner dimensions: [] can be a batch of shape [0, 3].
        return tensor.reshape((*shape, *(dim or 0 for dim in wanted[len(shape) :])))
    hint = None
    if fits((1, *shape), wanted):
        hint = "use x[None] for a batch of one"
    elif wanted and wanted[0] is None and len(shape) == len(wanted):
        hint = (
            f"only the first dimension of {shown(wanted)} may vary"
            if wanted.count(None) == 1
            else None
        )
    raise EncodeError(f"expected {target}, got the shape {list(shape)}", hint=hint)


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Return whether a shape has the wanted dimensions; None allows any.

    >>> fits((2, 3), (None, 3)), fits((2, 3), (None,))
    (True, False)
    """
    return len(shape) == len(wanted) and all(
        want in (None, dim) for dim, want in zip(shape, wanted, strict=True)
    )
