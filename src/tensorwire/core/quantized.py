"""Quantized tensors: integer or short float codes with the scale and zero point to restore floats.

A `Quantized` is accepted wherever a dense tensor of floats is. `transforms.quantization` creates
and restores it, and documents the formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import display
from .frozen import Frozen
from .memory import Array


class Quantized(Frozen):
    """A tensor of floats in fewer bits: codes, and what is needed to restore the floats.

    `tw.quantize` creates it and `tw.dequantize` restores the floats. `np.asarray` returns the
    codes.

    >>> import tensorwire as tw
    >>> import numpy as np
    >>> q = tw.quantize(np.float32([[-1.5, 0, 3.5]]), "int8")
    >>> q, q.dtype, np.asarray(q).tolist()
    (Quantized(int8 of float32, shape=(1, 3)), dtype('int8'), [[-127, -51, 127]])
    """

    __slots__ = ("codes", "scheme", "axis", "scale", "zero_point", "original")

    codes: Array
    """The codes, in the original's shape and the scheme's dtype. An int4 takes one byte."""
    scheme: str
    """The name of the scheme: "int8", "float16" ..."""
    axis: int | None
    """The axis along which scale and zero point are vectors. None if they are scalars, and for
    casts, which have neither.
    """
    scale: Array | None
    """float32, or float64 for a float64 original, because float32 does not have its range."""
    zero_point: Array | None
    """int64."""
    original: str
    """The name of the original's dtype."""

    def __init__(
        self,
        codes: Array,
        scheme: str,
        axis: int | None,
        scale: Array | None,
        zero_point: Array | None,
        original: str,
    ) -> None:
        self._set(codes, scheme, axis, scale, zero_point, original)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the codes."""
        dtype: np.dtype[Any] = self.codes.dtype
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.codes.shape)

    @property
    def ndim(self) -> int:
        return self.codes.ndim

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scale and zero point together."""
        return sum(
            part.nbytes for part in (self.codes, self.scale, self.zero_point) if part is not None
        )

    def rows(self, key: Any) -> Quantized:
        """Return some rows, selected by a slice or a list of indices of the first dimension.

        >>> Quantized(np.int8([[1], [2]]), "int8", 0, np.float32([1, 2]), np.int64([0, 0]),
        ...     "float32").rows([1]).scale.tolist()
        [2.0]
        """
        if self.scale is None or self.zero_point is None or self.axis != 0:
            return Quantized(
                self.codes[key], self.scheme, self.axis, self.scale, self.zero_point, self.original
            )
        return Quantized(
            self.codes[key], self.scheme, 0, self.scale[key], self.zero_point[key], self.original
        )

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, key: Any) -> Any:
        return self.codes[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.codes, dtype) if copy else np.asarray(self.codes, dtype)

    def __repr__(self) -> str:
        along = "" if self.axis is None else f", axis={self.axis}"
        return f"Quantized({self.scheme} of {self.original}, shape={self.shape}{along})"

    _repr_html_ = display.html


def has_codes(value: Any) -> bool:
    """Return whether a nested value contains a quantized tensor.

    >>> has_codes([np.zeros(3), {"n": 3}])
    False
    """
    kind = type(value)
    if kind is np.ndarray:
        return False
    if kind is list or kind is tuple:
        return any(map(has_codes, value))
    # A dict or Bundle.
    if hasattr(value, "keys"):
        return any(map(has_codes, value.values()))
    return kind is Quantized or type(getattr(value, "values", None)) is Quantized
