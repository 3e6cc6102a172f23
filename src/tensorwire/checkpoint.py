"""TensorFlow's checkpoints and SavedModels, without TensorFlow.

`tw.open`, `tw.load`, `tw.save` and `tw.inspect` take checkpoints as any other format. Here is what
they have besides: the latest one of a folder, a writer that takes one tensor at a time, and the
object graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._optional import lazily

if TYPE_CHECKING:
    from .codecs.checkpoint.graph import full_names, read_graph
    from .codecs.checkpoint.state import all_checkpoints, latest, save_state
    from .codecs.checkpoint.writer import Writer

_WHERE = {
    "Writer": "codecs.checkpoint.writer",
    "all_checkpoints": "codecs.checkpoint.state",
    "full_names": "codecs.checkpoint.graph",
    "latest": "codecs.checkpoint.state",
    "read_graph": "codecs.checkpoint.graph",
    "save_state": "codecs.checkpoint.state",
}

__all__ = ["Writer", "all_checkpoints", "full_names", "latest", "read_graph", "save_state"]

__getattr__, __dir__ = lazily(__name__, _WHERE, "tensorwire")
