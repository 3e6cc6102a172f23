"""The model's own side, which needs TensorFlow: SavedModels that take sparse and ragged tensors,
and put them together inside.
"""
