"""What TensorFlow saves of a model: SavedModels, read without TensorFlow."""
