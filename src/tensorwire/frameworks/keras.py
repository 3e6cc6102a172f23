"""Keras 3 variables, which wrap a variable of whatever backend Keras runs on."""

from __future__ import annotations

from typing import Any

from .._errors import EncodeError
from ..core.tensors import Tensor


def to_tensor(obj: Any) -> Tensor:
    from . import leaf

    found: Tensor = leaf(_value(obj))
    return found


def about(obj: Any) -> dict[str, str]:
    from . import about

    return about(_value(obj)) | {"name": str(getattr(obj, "path", obj.name))}


def _value(obj: Any) -> Any:
    if type(obj).__name__ == "KerasTensor" or not hasattr(obj, "value"):
        raise EncodeError(
            f"a {type(obj).__name__} has no values; pass a variable, or what model.predict gives"
        )
    return obj.value
