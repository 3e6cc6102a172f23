"""Packages that tensorwire can use and does not need.

A framework is recognised by the types that a value already has, so a program that never imported
TensorFlow never pays for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ._errors import MissingDependencyError

FRAMEWORKS = {
    "keras": "keras",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "scipy": "scipy",
    "pyarrow": "arrow",
    "pandas": "pandas",
    "numpy": "numpy",
}
"""Packages whose classes are tensors, each with its module in `frameworks`. A Keras variable is
TensorFlow's too, so Keras comes first."""


def roots(kind: type) -> frozenset[str]:
    """Top-level packages that a class and its bases come from.

    >>> import collections
    >>> sorted(roots(collections.OrderedDict))
    ['builtins', 'collections']
    """
    return frozenset(base.__module__.partition(".")[0] for base in kind.__mro__)


def require(module: str, extra: str | None = None) -> ModuleType:
    """Imports an optional package, or says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        package = module if module.startswith("backports.") else module.partition(".")[0]
        line = f"pip install 'tensorwire[{extra}]'" if extra else f"pip install {package}"
        raise MissingDependencyError(
            f"this needs {package}, which is not installed: {line}"
        ) from cause


def lazily(
    package: str, where: Mapping[str, str], base: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package whose names are loaded when they are used; `where`
    has the module of each, below `base` or the package itself.

    >>> find, names = lazily("collections", {"Mapping": "abc"})
    >>> find("Mapping").__name__
    'Mapping'
    """

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{base or package}.{where[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next look-up finds it without us
        return value

    return find, lambda: sorted({*vars(sys.modules[package]), *where})
