"""Values of a call: what the caller passes for an input, before its dtype is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from ... import frameworks
from ..._errors import EncodeError
from ...core.tensors import Bundle, Ragged, Sparse, Strings, TensorLike, describe

_SPARSE = {"indices", "values", "dense_shape"}


def is_sparse_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a dict of the parts of a sparse tensor."""
    return isinstance(value, dict) and value.keys() == _SPARSE


def is_plain(value: TensorLike) -> bool:
    """Return whether a value is made of Python's own numbers, which have no width."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (bool, int, float, complex, list, tuple)) and not isinstance(
        value, np.generic
    )


def tensor_of(value: TensorLike) -> Any:
    """Return a tensor; or the value itself if it is made of Python's lists and numbers, which get
    the dtype of the input.
    """
    if is_sparse_dict(value):
        return Sparse(value["indices"], frameworks.tensor(value["values"]), value["dense_shape"])
    if isinstance(value, dict) and value.keys() == {"values", "row_splits"}:
        return Ragged(frameworks.tensor(value["values"]), value["row_splits"])
    if frameworks.is_python(value):
        if isinstance(value, (Mapping, Bundle)) or value is None:
            raise EncodeError(f"expected a tensor, got {type(value).__name__}")
        return value
    tensor = frameworks.tensor(value)
    if isinstance(tensor, list):
        raise EncodeError("expected a tensor, got a list of tensors", hint="pass a tw.Ragged")
    return tensor


def is_strings(value: TensorLike) -> bool:
    """Return whether a value is a tensor or nested lists of strings."""
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (str, bytes)) or isinstance(tensor_of(value), Strings)


def kind_of(tensor: TensorLike) -> str:
    """Return a short description of a tensor or a value of Python's, for messages."""
    if isinstance(tensor, (np.ndarray, Strings, Sparse, Ragged)):
        return describe(tensor)
    return "a list" if isinstance(tensor, (list, tuple)) else f"one {type(tensor).__name__}"


def as_feature(tensor: TensorLike) -> Any:
    """Return a tensor for an Example; Python's floats are float32, as in Examples."""
    converted = frameworks.tensor(tensor)
    return (
        converted.astype(np.float32)
        if is_plain(tensor) and isinstance(converted, np.ndarray) and converted.dtype == np.float64
        else converted
    )
