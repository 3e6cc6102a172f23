"""TensorFlow's checkpoints and SavedModels, without TensorFlow.

`tw.open`, `tw.load`, `tw.save` and `tw.inspect` take checkpoints as any other format. Here is what they have besides: the latest one of a
folder, a writer that takes one tensor at a time, and the object graph.
"""

from .graph import full_names, read_graph
from .state import all_checkpoints, latest, save_state
from .writer import Writer

__all__ = ["Writer", "all_checkpoints", "full_names", "latest", "read_graph", "save_state"]
