"""Talking to model servers: what a model takes (`Signature`), and the model's own side (`export`, `rebuild`), which needs TensorFlow.

`rest` and `kserve` build and read the bodies of requests and answers, without I/O; the client and a local server are still to come.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .groups import Group
    from .model.exporting import export
    from .model.rebuilding import rebuild
    from .signature import Signature
    from .spec import Input

_WHERE = {"Group": "groups", "Input": "spec", "Signature": "signature", "export": "model.exporting", "rebuild": "model.rebuilding"}

__all__ = ["Group", "Input", "Signature", "export", "rebuild"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value  # the next look-up finds it without us
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
