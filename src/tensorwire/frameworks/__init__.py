"""Foreign objects to our tensors and back, one module a framework.

A framework is recognised by the packages that an object's class comes from, so nothing is imported before the user has done so. Each module
has `to_tensor(obj)` and `about(obj)` (name and device, as text), and a target of `to` also has `from_tensor(tensor, device, cast)`.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .._errors import EncodeError, choices
from .._optional import roots
from ..tensors import KINDS, Bundle, Ragged, Sparse, Strings, Tensor
from . import numpy as _numpy

plain = _numpy.plain

_MODULES = ("keras", "tensorflow", "numpy")
"""Packages that a class may come from, each with its module here. A Keras variable is TensorFlow's too, so Keras is asked first."""
_TARGETS = ("numpy", "object", "tensorflow")
_found: dict[type, str | None] = {}


def _module(kind: type) -> Any:
    """The module for a class, or None. Classes are few, so the answer is kept."""
    if kind not in _found:
        names = [name for name in _MODULES if name in roots(kind)]
        _found[kind] = names[0] if names else None
    name = _found[kind]
    return None if name is None else importlib.import_module(f"{__name__}.{name}")


def leaf(obj: Any) -> Tensor:
    """One object of any framework as our tensor. Python's own lists and numbers are not objects of a framework; see `tensor`."""
    if isinstance(obj, (Strings, Sparse, Ragged)):
        return obj
    module = _module(type(obj))
    if module is None:
        raise EncodeError(_refusal(obj))
    found: Tensor = module.to_tensor(obj)
    return found


def is_python(obj: Any) -> bool:
    """Whether a value is one of Python's own leaves or containers (or a Bundle), which only the lowering can take apart.

    >>> is_python([1]), is_python(np.float64(1))
    (True, False)
    """
    return obj is None or (isinstance(obj, (dict, list, tuple, bool, int, float, str, bytes, Bundle)) and not isinstance(obj, np.generic))


def _refusal(obj: Any) -> str:
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    if isinstance(obj, tuple):
        return f"a namedtuple ({kind}) would come back as a plain tuple; pass tuple(x) or x._asdict()"
    if isinstance(obj, (bytearray, memoryview)):
        return f"a {kind} would come back as bytes; pass bytes(x)"
    if isinstance(obj, complex):
        return "a Python complex is no leaf; pass np.complex128(x)"
    if hasattr(obj, "__array__") or hasattr(obj, "__dlpack__"):
        return f"{kind} is not of a framework that tensorwire knows; pass np.asarray(x)"
    return f"{kind} is neither a tensor nor a dict, list, tuple, str, bytes, bool, int, float or None"


def tensor(obj: Any, *, keep_device: bool = False) -> Any:
    """Any framework's tensor, a NumPy array, or nested lists, as our Tensor: ndarray, Strings, Sparse or Ragged.

    With `keep_device=True` the result is a Bundle, because an array has no room for what else is known: its `tensor_metadata` says the
    device, and the name where there is one. A dict of tensors keeps its keys.

    >>> tensor([[1, 2], [3, 4]]).dtype, tensor(["a", "b"]).tolist()
    (dtype('int64'), ['a', 'b'])
    """
    if not keep_device:
        return _one(obj)
    items = obj if isinstance(obj, dict) else {about(obj).get("name", "tensor"): obj}
    return Bundle({name: _one(item) for name, item in items.items()}, tensor_metadata={name: about(item) for name, item in items.items()})


def _one(obj: Any) -> Tensor:
    if isinstance(obj, complex) and not isinstance(obj, np.generic):
        return _numpy.from_python(obj)
    if is_python(obj) and not isinstance(obj, (dict, Bundle, type(None))):
        return _numpy.from_python(obj)
    return leaf(obj)


def about(obj: Any) -> dict[str, str]:
    """What a framework knows of a tensor beside its values: `device`, and `name` where it has one.

    >>> about(np.zeros(3))
    {'device': 'cpu'}
    """
    module = _module(type(obj))
    return {"device": "cpu"} if module is None else module.about(obj)


def to(x: Any, framework: str, device: Any = None, cast: bool = False) -> Any:
    """A tensor as an object of `framework`: "numpy", "object" (object arrays for strings), or "tensorflow".

    `device` places it, where the framework has devices. `cast=True` allows a dtype that the framework lacks to become one that it has.

    >>> to(Strings.of(["a", "b"]), "object")
    array(['a', 'b'], dtype=object)
    """
    if framework not in _TARGETS:
        raise EncodeError(f"unknown framework {framework!r}{choices(framework, _TARGETS)}")
    value = x if isinstance(x, KINDS) else tensor(x)
    if framework in ("numpy", "object"):
        if device is not None:
            raise EncodeError(f"NumPy has no devices; device={device!r} means nothing with to={framework!r}")
        return np.asarray(value) if framework == "object" and isinstance(value, Strings) else value
    return importlib.import_module(f"{__name__}.{framework}").from_tensor(value, device, cast)


def each(value: Any, framework: str, device: Any = None, cast: bool = False) -> Any:
    """A nested value with every tensor in it as an object of `framework`; a Bundle becomes a dict unless it can stay one."""
    if isinstance(value, KINDS):
        return to(value, framework, device, cast)
    if isinstance(value, list):
        return [each(item, framework, device, cast) for item in value]
    if isinstance(value, tuple):
        return tuple(each(item, framework, device, cast) for item in value)
    if isinstance(value, (dict, Bundle)):
        return {key: each(item, framework, device, cast) for key, item in value.items()}
    return value


__all__ = ["about", "each", "is_python", "leaf", "plain", "tensor", "to"]
