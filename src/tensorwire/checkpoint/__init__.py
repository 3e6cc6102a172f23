"""TensorFlow's checkpoints and SavedModels, without TensorFlow.

`tw.open`, `tw.load`, `tw.save` and `tw.inspect` take checkpoints as any other format. Here is what they have besides: the latest one of a
folder, a writer that takes one tensor at a time, and the object graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._optional import lazily

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

__getattr__, __dir__ = lazily(__name__, _WHERE)
