"""SavedModels: their signatures, functions, variables and assets, without TensorFlow."""
