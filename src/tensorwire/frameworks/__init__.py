"""Conversion between tensors of frameworks and our own, with one module per framework.

A framework is recognised by the package that the class of an object comes from, so a framework is
never imported before the user has imported it. Each module has `to_tensor(obj)`, and `about(obj)`
(name and device as text) if its tensors have devices. A module that is a target of `to` also has
`from_tensor(tensor, device, cast)`, and one whose tensors can share memory has `identity(obj)`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Hashable, Iterator, KeysView, Set, ValuesView
from datetime import date, datetime, time, timedelta
from enum import Enum
from numbers import Number
from typing import Any

import numpy as np

from .._errors import EncodeError, UsageError, choices
from .._optional import FRAMEWORKS, roots
from ..core.quantized import Quantized
from ..core.tensors import KINDS, Bundle, Ragged, Sparse, Strings
from . import numpy as _numpy

plain = _numpy.plain
layout = _numpy.layout

_TARGETS = ("numpy", "object", "tensorflow", "torch", "jax", "scipy", "arrow")
_ALIASES = {
    "tf": "tensorflow",
    "keras": "tensorflow",
    "pt": "torch",
    "np": "numpy",
    "pyarrow": "arrow",
    "pa": "arrow",
}
"""Other common names of the frameworks, for suggestions."""
_ON_HOST = {"numpy": "NumPy", "object": "NumPy", "scipy": "SciPy", "arrow": "Arrow"}
"""Targets without devices."""
_modules: dict[type, Any] = {}


def _module(kind: type) -> Any:
    """Return the module for a class, or None. The result is cached, because classes are few."""
    if kind not in _modules:
        names = [module for package, module in FRAMEWORKS.items() if package in roots(kind)]
        _modules[kind] = importlib.import_module(f"{__name__}.{names[0]}") if names else None
    return _modules[kind]


def leaf(obj: Any) -> Any:
    """Return one object of any framework as our tensor.

    Python's own lists and numbers are not objects of a framework, see `tensor`. Two kinds of
    objects are several tensors: a nested tensor of torch's strided layout becomes a list of arrays,
    a pandas DataFrame a dict.
    """
    if isinstance(obj, (Strings, Sparse, Ragged)):
        return obj
    module = _module(type(obj))
    if module is None:
        raise _refusal(obj)
    return module.to_tensor(obj)


def is_python(obj: Any) -> bool:
    """Return whether a value is one of Python's own types, a Bundle or a Quantized.

    >>> is_python([1]), is_python(np.float64(1))
    (True, False)
    """
    if isinstance(obj, dict):
        # A DOK array of SciPy is a dict too.
        return "scipy" not in roots(type(obj))
    return obj is None or (
        isinstance(obj, (list, tuple, bool, int, float, str, bytes, Bundle, Quantized))
        and not isinstance(obj, np.generic)
    )


def _refusal(obj: Any) -> EncodeError:
    """Return the error for an object that is not a value, with a conversion as hint."""
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    if isinstance(obj, tuple):
        return EncodeError(
            f"a namedtuple ({kind}) would come back as a plain tuple",
            hint="pass tuple(x) or x._asdict()",
        )
    if isinstance(obj, (bytearray, memoryview)):
        return EncodeError(f"a {kind} would come back as bytes", hint="pass bytes(x)")
    message = (
        f"{kind} is neither a tensor nor a dict, list, tuple, str, bytes, bool, int, float or None"
    )
    return EncodeError(message, hint=_conversion(obj))


def _conversion(obj: Any) -> str | None:
    """Return what to pass instead of an object, if that is known."""
    if isinstance(obj, complex):
        return "pass np.complex128(x)"
    if isinstance(obj, range):
        return "pass list(x), or np.arange(...) for an array"
    if isinstance(obj, (set, frozenset)):
        return "pass sorted(x): a set has no order"
    if isinstance(obj, os.PathLike):
        return "pass str(x), or the file's value: tw.load(x)"
    if isinstance(obj, (Iterator, Set, KeysView, ValuesView)):
        return "pass list(x)"
    if isinstance(obj, Enum):
        return "pass x.value"
    if "PIL" in roots(type(obj)):
        return "pass np.asarray(x)"
    if hasattr(obj, "__dataclass_fields__") and not isinstance(obj, type):
        return "pass dataclasses.asdict(x)"
    if isinstance(obj, (date, time)):
        return (
            "pass x.isoformat(), or a number such as x.timestamp()"
            if isinstance(obj, datetime)
            else "pass x.isoformat()"
        )
    if isinstance(obj, timedelta):
        return "pass x.total_seconds()"
    if hasattr(obj, "__array__") or hasattr(obj, "__dlpack__"):
        return "pass np.asarray(x)"
    return "pass str(x) or float(x)" if isinstance(obj, Number) else None


def tensor(obj: Any, *, keep_device: bool = False) -> Any:
    """Convert a tensor of any framework, an array or nested lists to our types.

    The result is an ndarray, Strings, Sparse or Ragged. It shares the memory of an object in host
    memory where possible. (A nested tensor of torch's strided layout becomes a list of arrays.)

    With `keep_device=True` the result is a Bundle, whose `tensor_metadata` has the device and, if
    known, the name of the tensor. A dict of tensors keeps its keys.

    Raises EncodeError for an object that is not a tensor.

    >>> import tensorwire as tw
    >>> tw.tensor([[1, 2], [3, 4]]).dtype, tw.tensor(["a", "b"]).tolist()
    (dtype('int64'), ['a', 'b'])
    """
    if not keep_device:
        return _converted(obj)
    items = obj if isinstance(obj, dict) else {about(obj).get("name", "tensor"): obj}
    return Bundle(
        {name: _converted(item) for name, item in items.items()},
        tensor_metadata={name: about(item) for name, item in items.items()},
    )


def _converted(obj: Any) -> Any:
    if isinstance(obj, complex) and not isinstance(obj, np.generic):
        return _numpy.from_python(obj)
    if is_python(obj) and not isinstance(obj, (dict, Bundle, Quantized, type(None))):
        return _numpy.from_python(obj)
    return leaf(obj)


def about(obj: Any) -> dict[str, str]:
    """Return what a framework knows of a tensor besides its values: `device`, and `name` if any.

    >>> about(np.zeros(3))
    {'device': 'cpu'}
    """
    module = _module(type(obj))
    return module.about(obj) if hasattr(module, "about") else {"device": "cpu"}


def identity(obj: Any) -> Hashable | None:
    """Return a key that is equal for tensors that are the same view of the same memory.

    Tied weights of torch are such tensors. Returns None if that cannot be determined.

    >>> identity(np.zeros(3)) is None
    True
    """
    module = _module(type(obj))
    key: Hashable | None = module.identity(obj) if hasattr(module, "identity") else None
    return key


def to(x: Any, framework: str, device: Any = None, cast: bool = False) -> Any:
    """Convert a tensor, or each tensor of a Bundle, to an object of another framework.

    `framework` is "numpy", "object" (object arrays for strings), "tensorflow", "torch", "jax",
    "scipy" or "arrow". `device` places the tensor, if the framework has devices. `cast=True` allows
    a dtype that the framework lacks to become a wider one that it has.

    Memory is shared, unless the framework could write to memory that is read-only; then it is
    copied. A Bundle stays a Bundle with its metadata.

    Raises UsageError for an unknown framework, and EncodeError for a tensor that the framework
    lacks.

    >>> import tensorwire as tw
    >>> tw.to(tw.Strings.of(["a", "b"]), "object")
    array(['a', 'b'], dtype=object)
    """
    if framework not in _TARGETS:
        raise UsageError(
            "unknown framework"
            f" {framework!r}{choices(_ALIASES.get(framework, framework), _TARGETS)}"
        )
    # Arrays of strings become Strings.
    is_text = isinstance(x, np.ndarray) and x.dtype.kind in "OSUT"
    value = x if isinstance(x, (*KINDS, Bundle)) and not is_text else tensor(x)
    if isinstance(value, (list, Bundle)):
        return each(value, framework, device, cast)
    if framework in _ON_HOST and device is not None:
        raise UsageError(
            f"{_ON_HOST[framework]} has no devices, so device={device!r} cannot be combined with"
            f" to={framework!r}"
        )
    if framework in ("numpy", "object"):
        return np.asarray(value) if framework == "object" and isinstance(value, Strings) else value
    return importlib.import_module(f"{__name__}.{framework}").from_tensor(value, device, cast)


def each(value: Any, framework: str, device: Any = None, cast: bool = False) -> Any:
    """Return a nested value with every tensor in it as an object of `framework`.

    A tensor that appears several times is converted once, so that tied weights are tied again.
    """
    return _each(value, framework, device, cast, {})


def _each(value: Any, framework: str, device: Any, cast: bool, done: dict[int, Any]) -> Any:
    if isinstance(value, KINDS):
        if id(value) not in done:
            done[id(value)] = to(value, framework, device, cast)
        return done[id(value)]
    if isinstance(value, (list, tuple)):
        items_made = [_each(item, framework, device, cast, done) for item in value]
        return tuple(items_made) if isinstance(value, tuple) else items_made
    if isinstance(value, (dict, Bundle)):
        items = {key: _each(item, framework, device, cast, done) for key, item in value.items()}
        return value.replaced(items) if isinstance(value, Bundle) else items
    return value


__all__ = ["about", "each", "identity", "is_python", "layout", "leaf", "plain", "tensor", "to"]
