"""TensorFlow checkpoints (TensorBundle): an index and data files that share a prefix."""
