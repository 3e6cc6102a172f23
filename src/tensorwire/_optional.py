"""Optional packages: frameworks, imports on demand, and lazily loaded names.

A framework is recognised by the type of a value, so a program that does not import TensorFlow never
loads it.
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
"""Packages whose classes are tensors, each with its module in `frameworks`. Keras comes before
TensorFlow, because a Keras variable is also a TensorFlow object.
"""


def roots(kind: type) -> frozenset[str]:
    """Return the top-level packages that define a class and its bases.

    >>> import collections
    >>> sorted(roots(collections.OrderedDict))
    ['builtins', 'collections']
    """
    return frozenset(base.__module__.partition(".")[0] for base in kind.__mro__)


def require(module: str, extra: str | None = None) -> ModuleType:
    """Import an optional package. Raises MissingDependencyError with the pip command."""
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        package = module if module.startswith("backports.") else module.partition(".")[0]
        command = f"pip install 'tensorwire[{extra}]'" if extra else f"pip install {package}"
        raise MissingDependencyError(
            f"this needs {package}, which is not installed: {command}"
        ) from cause


def lazily(
    package: str, where: Mapping[str, str], base: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names are imported on first use.

    `where` maps each name to its module, relative to `base` or to the package itself.

    >>> find, names = lazily("collections", {"Mapping": "abc"})
    >>> find("Mapping").__name__
    'Mapping'
    """

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{base or package}.{where[name]}"), name)
        # Python calls a module's __getattr__ only for names that it does not find.
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*vars(sys.modules[package]), *where})
