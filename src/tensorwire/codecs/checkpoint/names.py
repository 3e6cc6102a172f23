"""Names of a checkpoint's variables: the keys that TensorFlow stores, and what people call them.

TensorFlow 2 makes a key of the way through the object graph:
`encoder/layer_0/kernel/.ATTRIBUTES/VARIABLE_VALUE`. A "." in a name on the way is stored as "..", a
"/" as ".S". The value of an optimizer's slot for a variable is at
`VARIABLE/.OPTIMIZER_SLOT/OPTIMIZER/SLOT/.ATTRIBUTES/VARIABLE_VALUE`. TensorFlow 1's keys are the
names of the variables.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The object graph, a string. TensorFlow 1 has none."""
SPEC = "__tensorwire__"
"""What was saved, where names and tensors alone do not say it: a string that TensorFlow never asks
for.
"""
HIDDEN = (GRAPH, SPEC)
"""Keys of what is no variable; they can be read all the same."""
_ATTRIBUTES, _SLOT = "/.ATTRIBUTES/", "/.OPTIMIZER_SLOT/"
_ESCAPE = re.compile(r"\.(.?)", re.S)


def readable(key: str) -> str:
    """A key without TensorFlow's additions.

    >>> readable("encoder/layer_0/kernel/.ATTRIBUTES/VARIABLE_VALUE"), readable("dense/kernel")
    ('encoder/layer_0/kernel', 'dense/kernel')
    >>> readable("net/kernel/.OPTIMIZER_SLOT/adam/m/.ATTRIBUTES/VARIABLE_VALUE")
    'adam/slots/m/net/kernel'
    """
    path, found, attribute = key.rpartition(_ATTRIBUTES)
    if not found:
        return key
    path, slot, where = path.partition(_SLOT)
    if slot:
        optimizer, _, name = where.rpartition("/")
        path = "/".join(part for part in (optimizer, "slots", name, path) if part)
    path = _ESCAPE.sub(_unescaped, path) if "." in path else path
    return path if attribute == "VARIABLE_VALUE" else f"{path}/{attribute}"


def _unescaped(match: re.Match[str]) -> str:
    return {".": ".", "S": "/"}.get(match[1], match[0])


def all_readable(
    stems: list[str], had_suffix: np.ndarray[Any, Any], dotted: bool = True
) -> list[str]:
    """The readable names of all keys of a checkpoint, of which those that had it are cut off before
    `SUFFIX`. Where two would be the same, or one would be another's key, both stay as they are
    stored. `dotted`: whether any of them may have a dot.

    >>> all_readable(["a", "a", "b"], np.array([False, True, True]))
    ['a', 'a/.ATTRIBUTES/VARIABLE_VALUE', 'b']
    """
    if not dotted and _differ(stems, had_suffix):
        return stems
    keys = [
        stem + SUFFIX if had else stem for stem, had in zip(stems, had_suffix.tolist(), strict=True)
    ]
    names = [readable(key) if "." in stem else stem for stem, key in zip(stems, keys, strict=True)]
    times, taken = Counter(names), set(keys)
    clash = {
        name
        for name, key in zip(names, keys, strict=True)
        if times[name] > 1 or (name != key and name in taken)
    }
    return [key if name in clash else name for name, key in zip(names, keys, strict=True)]


def _differ(stems: list[str], had_suffix: np.ndarray[Any, Any]) -> bool:
    """Whether no stem is there twice. Keys are different, so of two that are the same one has lost
    its end, and the other had none.
    """
    bare = np.flatnonzero(had_suffix == 0).tolist()
    if len(bare) in (0, len(stems)):
        return True
    return (
        all(stems.count(stems[i]) == 1 for i in bare)
        if len(bare) <= 2
        else len(set(stems)) == len(stems)
    )


def key_of(name: str) -> str:
    """The key of a name in an object graph; a name that is such a key already stays as it is.

    >>> key_of("encoder/layer.0/kernel"), key_of("a/.ATTRIBUTES/VARIABLE_VALUE")
    ('encoder/layer..0/kernel/.ATTRIBUTES/VARIABLE_VALUE', 'a/.ATTRIBUTES/VARIABLE_VALUE')
    """
    return name if name.endswith(SUFFIX) else name.replace(".", "..") + SUFFIX
