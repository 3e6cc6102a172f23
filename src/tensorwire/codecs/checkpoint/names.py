"""Names of checkpoint variables: the keys that TensorFlow stores, and readable names for them.

TensorFlow 2 builds a key from the path through the object graph:
`encoder/layer_0/kernel/.ATTRIBUTES/VARIABLE_VALUE`. A "." in a path component is escaped as "..",
and a "/" as ".S". The slot variable of an optimizer is stored under
`VARIABLE/.OPTIMIZER_SLOT/OPTIMIZER/SLOT/.ATTRIBUTES/VARIABLE_VALUE`. The keys of TensorFlow 1 are
plain variable names.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The key of the object graph, a string. TensorFlow 1 writes none."""
SPEC = "__tensorwire__"
"""The key of the spec that `tw.save` writes: a string that TensorFlow ignores. It is needed where
names and tensors alone do not describe the value.
"""
HIDDEN = (GRAPH, SPEC)
"""Keys of entries that are not variables. They are not listed, but can be read."""
_ATTRIBUTES, _SLOT = "/.ATTRIBUTES/", "/.OPTIMIZER_SLOT/"
_ESCAPE = re.compile(r"\.(.?)", re.S)


def readable(key: str) -> str:
    """Returns the readable name of a key, without TensorFlow's suffixes and escapes.

    >>> readable("encoder/layer_0/kernel/.ATTRIBUTES/VARIABLE_VALUE"), readable("dense/kernel")
    ('encoder/layer_0/kernel', 'dense/kernel')
    >>> readable("net/kernel/.OPTIMIZER_SLOT/adam/m/.ATTRIBUTES/VARIABLE_VALUE")
    'adam/slots/m/net/kernel'
    """
    path, separator, attribute = key.rpartition(_ATTRIBUTES)
    if not separator:
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
    """Returns the readable names of all keys of a checkpoint.

    `stems` are the keys without `SUFFIX`, and `had_suffix` tells which had it. Names that clash
    with each other, or with another key, stay as stored. `dotted` is False if no stem has a dot.

    >>> all_readable(["a", "a", "b"], np.array([False, True, True]))
    ['a', 'a/.ATTRIBUTES/VARIABLE_VALUE', 'b']
    """
    if not dotted and _differ(stems, had_suffix):
        return stems
    keys = [
        stem + SUFFIX if suffixed else stem
        for stem, suffixed in zip(stems, had_suffix.tolist(), strict=True)
    ]
    names = [readable(key) if "." in stem else stem for stem, key in zip(stems, keys, strict=True)]
    counts, taken = Counter(names), set(keys)
    clash = {
        name
        for name, key in zip(names, keys, strict=True)
        if counts[name] > 1 or (name != key and name in taken)
    }
    return [key if name in clash else name for name, key in zip(names, keys, strict=True)]


def _differ(stems: list[str], had_suffix: np.ndarray[Any, Any]) -> bool:
    """Whether all stems are distinct.

    Keys are distinct, so of two equal stems exactly one had the suffix. Only the stems without it
    need a search.
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
    """Returns the object graph key of a name; a name that is such a key already is unchanged.

    >>> key_of("encoder/layer.0/kernel"), key_of("a/.ATTRIBUTES/VARIABLE_VALUE")
    ('encoder/layer..0/kernel/.ATTRIBUTES/VARIABLE_VALUE', 'a/.ATTRIBUTES/VARIABLE_VALUE')
    """
    return name if name.endswith(SUFFIX) else name.replace(".", "..") + SUFFIX
