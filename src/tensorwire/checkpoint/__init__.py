"""TensorFlow's checkpoints and SavedModels, without TensorFlow.

`tw.open`, `tw.load`, `tw.save` and `tw.inspect` take checkpoints as any other format. Here is what they have besides: the latest one of a
folder, a writer that takes one tensor at a time, and the object graph.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graph import full_names, read_graph
    from .state import all_checkpoints, latest, save_state
    from .writer import Writer

# Loaded when they are used: everybody who opens a file comes by this package.
_WHERE = {
    "Writer": "writer",
    "all_checkpoints": "state",
    "full_names": "graph",
    "latest": "state",
    "read_graph": "graph",
    "save_state": "state",
}

__all__ = ["Writer", "all_checkpoints", "full_names", "latest", "read_graph", "save_state"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
