"""Keras 3: variables, which wrap a variable of the backend."""

from __future__ import annotations

from typing import Any

from .._errors import EncodeError
from ..core.tensors import Tensor


def to_tensor(obj: Any) -> Tensor:
    from . import leaf

    tensor: Tensor = leaf(_value(obj))
    return tensor


def about(obj: Any) -> dict[str, str]:
    from . import about

    return about(_value(obj)) | {"name": str(getattr(obj, "path", obj.name))}


def _value(obj: Any) -> Any:
    if type(obj).__name__ == "KerasTensor" or not hasattr(obj, "value"):
        raise EncodeError(
            f"a {type(obj).__name__} has no values",
            hint="pass a variable, or the result of model.predict",
        )
    return obj.value
