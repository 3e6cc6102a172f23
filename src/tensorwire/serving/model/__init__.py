"""Export of SavedModels that take sparse and ragged tensors as dense parts and reassemble them.
Needs TensorFlow.
"""
