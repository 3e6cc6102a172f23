"""Any value as a spec (JSON) and dense parts: the one lowering, which every container of named
arrays shares.

A spec is a tree of nodes; parts are consumed in the order in which the tree is walked.

    {}                                  the next part as it is
    {"dtype": "int4"}                   the next part, stored as unsigned integers of the same width
                                        because the container lacks the type
                                        (complex128: as float64 with a trailing 2)
    {"text": true}                      the next part, a string tensor whose strings are text
                                        (containers that hold strings themselves)
    {"strings": [3], "text": true}      two parts, data (uint8) and offsets (int64); the list is the
                                        shape
    {"sparse": NODE, "sorted": true}    indices, then the values as NODE says, then dense_shape;
                                        sorted: rows never go back
    {"ragged": NODE, "splits": 2, "uniform": [2, null]}   the values as NODE says, then 2 row_splits, outer to inner
    {"quantized": NODE, "scheme": "int8", "dtype": "float32", "axis": 0}   the codes as NODE says, scale and zero_point; dtype is
                                        the original's; casts ("float16") have neither those two
                                        parts nor the axis
    {"same": 4}                         the tensor that was made of part 4: tied weights are stored
                                        once, and come back tied
    {"list": [NODE, ...]}  {"tuple": [NODE, ...]}  {"dict": {"key": NODE, ...}}
    {"dict": [["key", NODE], [0, NODE], ...]}   a dict with a key that is an int; all keys in their
                                                order
    {"list": 3}            {"tuple": 3}            all of {}: three parts as they are
    {"bundle": {"name": NODE, ...}, "metadata": {...}, "tensor_metadata": {...}}
    {"float": "7ff8000000000001"}       a NaN or infinity by its bits, big-endian      {"bytes":
                                        "AAE="}   base64
    null, true, 12, 1.5, "text"         Python's None, bool, int, float and str

One node stands only around a whole spec: `packed` says which parts are compressed or shuffled (see
packed.py).

Parts have names, which follow from the spec alone: the keys and positions on the way to them,
joined by "/" ("tokens/values", "tokens/row_splits/0", "layers/2/kernel"); a name that is taken
already gets "~1", "~2" and so on. A part without a way is "tensor".
"""

from .lift import lift, tensor_metadata
from .lower import Lowered, lower
from .names import CONTAINERS, Node, members, names, tensors, unique
from .packed import SMALL, PackedEntry, Packer, entries, inside, is_packed

__all__ = [
    "CONTAINERS",
    "SMALL",
    "Lowered",
    "Node",
    "PackedEntry",
    "Packer",
    "entries",
    "inside",
    "is_packed",
    "lift",
    "lower",
    "members",
    "names",
    "tensor_metadata",
    "tensors",
    "unique",
]
