"""Lowering: the tensors of a call as the dense inputs of a signature, with an explanation.

TensorFlow Serving accepts dense tensors only. A tensor is sent in one of these forms:

    dense        an input of the same name
    flattened    x, x_1, x_2: what TensorFlow makes of a sparse argument (indices, values,
                 dense_shape); x, x_1, ...: of a ragged one
    parts        x_indices, x_values, x_dense_shape, or x_values, x_row_splits_0, ...: the same,
                 named by role
    serialized   one string input of the same name. sparse, [N, 3]: each row as the three
                 TensorProtos that tf.io.serialize_many_sparse writes ([3]: the whole tensor).
                 ragged, [N]: each row as a TensorProto; [N, ragged_rank] if it nests
    example      one string input [N]: each row of all tensors as one tf.train.Example

The strategy of `plan`:

1. Name the values: a dict has names, a single value gets the name of the only input.
2. Convert each value to a tensor. Python's lists and numbers stay as they are, because the input
   decides their dtype. A dict {"indices", "values", "dense_shape"} is a sparse tensor.
3. If the signature takes only one vector of strings, encode all tensors as Examples into it.
4. Otherwise list for each tensor the forms that the signature offers: the parts of a group of that
   name first, then an input of that name. Use the preferred form, or the first one.
5. Fill the inputs: `conversion` checks the dtype and the shape and never loses a value silently.
   An input that is filled twice or not at all is an error.
"""

from __future__ import annotations

from .planner import as_given, plan
from .plans import FORMS, LoweringPlan, Step

__all__ = ["FORMS", "LoweringPlan", "Step", "as_given", "plan"]
