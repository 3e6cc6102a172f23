"""SavedModel directories: signatures, functions, variables and assets, read without TensorFlow."""
