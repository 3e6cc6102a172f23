"""Quantization of nested values: all tensors of floats, including those in sparse and ragged ones.

Tensors of other dtypes are kept, so that token ids can be next to embeddings. `axis` applies to
dense tensors of at least two dimensions. Vectors, and the values of sparse and ragged tensors, have
a single scale, because a scale for each number would only make them larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import frameworks
from ..._errors import EncodeError, UsageError, choices
from ..._limits import Budget
from ...core import dtypes
from ...core.memory import read_only
from ...core.quantized import Quantized, has_codes
from ...core.tensors import Bundle, Ragged, Sparse, Strings, trusted
from . import FLOATS, SCHEMES, Nonfinite, dequantize, quantize

Schemes = str | Mapping[str, str]
"""One scheme for all tensors of floats, or a scheme for each path: the keys and positions that lead
to a tensor, joined by "/".
"""


def quantized(
    value: Any, schemes: Schemes, axis: int | None = None, nonfinite: Nonfinite = "raise"
) -> Any:
    """Quantize all tensors of floats in a value.

    Raises EncodeError if no tensor in the value can be quantized, or if `schemes` names a tensor
    that is not there.

    >>> import numpy as np
    >>> quantized({"w": np.float32([0, 1]), "ids": np.arange(2)}, "int8")
    {'w': Quantized(int8 of float32, shape=(2,)), 'ids': array([0, 1])}
    """
    work = _Quantize(schemes, axis, nonfinite)
    result = work.walk(value, "")
    if isinstance(schemes, Mapping) and (
        missing := [name for name in schemes if name not in work.done]
    ):
        raise UsageError(
            f"quantize= names {missing[0]!r}, but no tensor of floats has that"
            f" path{choices(missing[0], work.names)}"
        )
    if not work.done:
        raise EncodeError(
            f"nothing to quantize: the value has no tensor of {', '.join(FLOATS)}",
            hint="omit quantize=",
        )
    return result


class _Quantize:
    def __init__(self, schemes: Schemes, axis: int | None, nonfinite: Nonfinite) -> None:
        self.schemes, self.axis, self.nonfinite = schemes, axis, nonfinite
        self.done: set[str] = set()
        self.names: list[str] = []
        self.tied: dict[Any, tuple[Quantized, Any]] = {}
        """Identity -> (result, tensor) of torch tensors, so that tied weights are quantized once.
        The tensor is kept alive because its identity is a memory address.
        """

    def walk(self, value: Any, path: str) -> Any:
        start = f"{path}/" if path else ""
        if isinstance(value, Quantized):
            return value
        if isinstance(value, Bundle):
            return Bundle(
                {name: self.walk(item, f"{start}{name}") for name, item in value.items()},
                value.metadata,
                value.tensor_metadata,
            )
        if isinstance(value, dict) and frameworks.is_python(value):
            return {key: self.walk(item, f"{start}{key}") for key, item in value.items()}
        if type(value) is list or type(value) is tuple:
            return type(value)(self.walk(item, f"{start}{i}") for i, item in enumerate(value))
        if frameworks.is_python(value):
            return value
        identity = frameworks.identity(value)
        if identity is not None and identity in self.tied:
            return self.tied[identity][0]
        leaf = frameworks.leaf(value)
        result = self.tensor(
            leaf, path or "tensor", self.axis if getattr(leaf, "ndim", 0) > 1 else None
        )
        if isinstance(result, list):
            return self.walk(result, path)
        if identity is not None and isinstance(result, Quantized):
            self.tied[identity] = result, value
        return result

    def tensor(self, value: Any, name: str, axis: int | None = None) -> Any:
        if isinstance(value, Sparse):
            return trusted(
                Sparse, value.indices, self.tensor(value.values, name), value.dense_shape
            )
        if isinstance(value, Ragged):
            return trusted(Ragged, self.tensor(value.values, name), value.row_splits, value.uniform)
        if isinstance(value, (Strings, list)) or dtypes.of(value.dtype).name not in FLOATS:
            return value
        self.names.append(name)
        scheme = self.schemes if isinstance(self.schemes, str) else self.schemes.get(name)
        if scheme is None:
            return value
        self.done.add(name)
        if (
            scheme in SCHEMES
            and not SCHEMES[scheme].affine
            and dtypes.named(scheme).numpy == value.dtype
        ):
            # The tensor already has the dtype of the cast.
            return value
        try:
            return quantize(value, scheme, axis, self.nonfinite)
        except EncodeError as error:
            raise error.add(tensor=name) from None


def expanded(value: object) -> int:
    """Return an upper bound of the bytes that `dequantized` allocates for a value.

    >>> import numpy as np
    >>> expanded([quantized(np.float32([0, 1]), "int8"), 7])
    8
    """
    if isinstance(value, Quantized):
        return value.codes.size * dtypes.named(value.original).numpy.itemsize
    if isinstance(value, Mapping):
        return sum(map(expanded, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(expanded, value))
    return expanded(value.values) if isinstance(value, (Sparse, Ragged)) else 0


def dequantized(value: object, writable: bool = True, budget: Budget | None = None) -> Any:
    """Restore all quantized tensors in a value. Returns the value itself if there are none.

    A reader passes its `budget`, which the floats are drawn on.

    >>> import numpy as np
    >>> dequantized([quantized(np.float32([0, 1]), "int8"), 7])
    [array([0., 1.], dtype=float32), 7]
    """
    if not has_codes(value):
        return value
    if budget is not None:
        budget.draw(expanded(value), offset=0)
    return _restore(value, writable, {})


def _restore(value: Any, writable: bool, done: dict[int, Any]) -> Any:
    """Restore each tensor once, so that tied weights stay tied. `done` is by identity."""
    kind = type(value)
    if kind is Quantized:
        if id(value) not in done:
            floats = dequantize(value)
            done[id(value)] = floats if writable else read_only(floats)
        return done[id(value)]
    if kind is list or kind is tuple:
        return kind(_restore(item, writable, done) for item in value)
    if kind is dict:
        return {key: _restore(item, writable, done) for key, item in value.items()}
    if kind is Bundle:
        return Bundle(
            {name: _restore(item, writable, done) for name, item in value.items()},
            value.metadata,
            value.tensor_metadata,
        )
    if kind is Sparse:
        return trusted(
            Sparse, value.indices, _restore(value.values, writable, done), value.dense_shape
        )
    if kind is Ragged:
        return trusted(
            Ragged, _restore(value.values, writable, done), value.row_splits, value.uniform
        )
    return value
