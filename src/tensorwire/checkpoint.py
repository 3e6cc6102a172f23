"""TensorFlow checkpoints: the latest one in a folder, an incremental writer, the object graph.

`tw.open`, `tw.load`, `tw.save` and `tw.inspect` read and write checkpoints like any other format,
without TensorFlow. This module has what only checkpoints need.

    latest all_checkpoints save_state  the "checkpoint" state file of a folder
    Writer                             writes a checkpoint one tensor at a time
    read_graph full_names              the object graph, and the variables' full names

>>> import os, tempfile
>>> import tensorwire as tw
>>> import tensorwire.checkpoint
>>> folder = tempfile.mkdtemp()
>>> tw.save(os.path.join(folder, "model-1"), {"bias": [0.5, 1.5]}, format="checkpoint")
>>> tw.checkpoint.save_state(folder, "model-1")
>>> os.path.basename(tw.checkpoint.latest(folder))
'model-1'
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
