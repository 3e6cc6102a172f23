"""Lowering: any value as a JSON spec and dense parts, for all containers of named arrays.

A spec is a tree of nodes. Parts are consumed in the order of a depth-first walk.

    {}                                  the next part, unchanged
    {"dtype": "int4"}                   the next part, stored as unsigned integers of the same width
                                        because the container lacks the type
                                        (complex128: as float64 with a trailing 2)
    {"text": true}                      the next part, a string tensor whose strings are text
                                        (containers that hold strings themselves)
    {"strings": [3], "text": true}      two parts, data (uint8) and offsets (int64); the list is the
                                        shape
    {"sparse": NODE, "sorted": true}    indices, then the values as NODE, then dense_shape;
                                        sorted: the indices are in row-major order
    {"ragged": NODE, "splits": 2, "uniform": [2, null]}
                                        the values as NODE, then 2 row_splits, outer to inner
    {"quantized": NODE, "scheme": "int8", "dtype": "float32", "axis": 0}
                                        the codes as NODE, then scale and zero_point; dtype is the
                                        original one; casts ("float16") have neither those two
                                        parts nor the axis
    {"same": 4}                         the tensor that begins with part 4: tied weights are stored
                                        once and restored as one object
    {"list": [NODE, ...]}  {"tuple": [NODE, ...]}  {"dict": {"key": NODE, ...}}
    {"dict": [["key", NODE], [0, NODE], ...]}
                                        a dict with an int among its keys, all keys in order
    {"list": 3}            {"tuple": 3}            short for three {} nodes
    {"bundle": {"name": NODE, ...}, "metadata": {...}, "tensor_metadata": {...}}
    {"float": "7ff8000000000001"}       a NaN or infinity by its bits, big-endian
    {"bytes": "AAE="}                   Python bytes in base64
    null, true, 12, 1.5, "text"         Python's None, bool, int, float and str

The node `packed` may only wrap a whole spec. It describes which parts are compressed or shuffled
(see packed.py).

The names of parts follow from the spec alone: the path of keys and positions, joined by "/"
("tokens/values", "tokens/row_splits/0", "layers/2/kernel"). A name that is used already gets "~1",
"~2" and so on. A part with an empty path is called "tensor".
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
