"""TensorFlow's checkpoints: an index and data files under one prefix, read and written without
TensorFlow.
"""
