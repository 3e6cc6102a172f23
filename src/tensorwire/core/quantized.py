"""Floats stored in fewer bits: the codes, and what turns them back. It may stand wherever a dense
tensor of floats can.

`transforms.quantization` makes it and undoes it; the formula stands there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import display
from .frozen import Frozen
from .memory import Array


class Quantized(Frozen):
    """Codes, and what is needed to turn them back into floats. As an array it is its codes.

    >>> q = Quantized(np.int8([[-3, 7]]), "int8", None, np.float32(0.5), np.int64(0), "float32")
    >>> q, q.dtype, np.asarray(q).tolist()
    (Quantized(int8 of float32, shape=(1, 2)), dtype('int8'), [[-3, 7]])
    """

    __slots__ = ("codes", "scheme", "axis", "scale", "zero_point", "original")

    codes: Array
    """Of the shape of the original, in the dtype of the scheme; int4 takes one byte an element, as
    everywhere.
    """
    scheme: str
    axis: int | None
    """The axis along which scale and zero point are vectors; None for one of each, and for casts,
    which have neither.
    """
    scale: Array | None
    """float32, or float64 for a float64 original, whose range float32 does not have."""
    zero_point: Array | None
    """int64."""
    original: str
    """The original's dtype, by its name in `tensorwire.core.dtypes`."""

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
        """Of the codes."""
        found: np.dtype[Any] = self.codes.dtype
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.codes.shape)

    @property
    def ndim(self) -> int:
        return self.codes.ndim

    @property
    def nbytes(self) -> int:
        """Of codes, scale and zero point together."""
        return sum(
            part.nbytes for part in (self.codes, self.scale, self.zero_point) if part is not None
        )

    def rows(self, key: Any) -> Quantized:
        """Some indices of the first dimension, by a slice or by their numbers.

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
    """Whether anything in a nested value is quantized.

    >>> has_codes([np.zeros(3), {"n": 3}])
    False
    """
    kind = type(value)
    if kind is np.ndarray:
        return False
    if kind is list or kind is tuple:
        return any(map(has_codes, value))
    if hasattr(value, "keys"):  # a dict or Bundle
        return any(map(has_codes, value.values()))
    return kind is Quantized or type(getattr(value, "values", None)) is Quantized
