"""Captured resources: the variables and tables that must be saved with a function."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

_MOST = 100_000
"""The number of objects that are searched."""
_WIDEST = 1000
"""The number of attributes up to which an object is searched."""
_LEAVES = (type, str, bytes, int, float, ModuleType)


def used_by(tf: ModuleType, functions: Iterable[Any], model: object) -> list[Any]:
    """Return the variables and other resources that traced functions capture.

    TensorFlow saves only what is an attribute of the saved object, and a function is not an
    attribute of anything. A graph lists its variables. The owner of any other resource handle, such
    as a lookup table, is found by a search of the objects that the function can reach.
    """
    handles = {
        id(handle): handle
        for function in functions
        for handle, _ in function.graph.captures
        if handle.dtype == tf.resource
    }
    resources: dict[int, Any] = {}
    for function in functions:
        for variable in function.graph.variables:
            resources[id(variable)] = variable
    variable_handles = {id(getattr(variable, "handle", None)) for variable in resources.values()}
    missing = {key: handle for key, handle in handles.items() if key not in variable_handles}
    for trackable in _reachable(tf, model) if missing else ():
        for attribute in ("resource_handle", "handle"):
            if missing.pop(id(_quietly(trackable, attribute)), None) is not None:
                resources[id(trackable)] = trackable
        if not missing:
            break
    return list(resources.values())


def _quietly(owner: object, attribute: str) -> Any:
    """Return an attribute, or None if it is missing or a property that raises."""
    try:
        return getattr(owner, attribute, None)
    except Exception:
        return None


def _reachable(tf: ModuleType, model: object) -> Iterable[Any]:
    """Yield the trackable objects that a function can reach, the nearest first: through its
    closure, defaults, globals, the object it is a method of, and their contents.
    """
    kind = tf.__internal__.tracking.Trackable
    waiting: deque[Any] = deque([model])
    # The objects are kept alive, because an id is unique only during the lifetime of its object.
    seen: dict[int, Any] = {}
    while waiting and len(seen) < _MOST:
        thing = waiting.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, kind):
            yield thing
            waiting += tf.train.TrackableView(thing).children(thing).values()
        waiting += _inside(thing)


def _inside(thing: object) -> list[Any]:
    """Return the objects that an object refers to directly."""
    if isinstance(thing, weakref.ref):
        return [thing()]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, Mapping):
        return list(thing.values()) if len(thing) < _MOST else []
    if isinstance(thing, (list, tuple, set, frozenset)):
        return list(thing) if len(thing) < _MOST else []
    contents = [
        _quietly(thing, name) for name in ("python_function", "__wrapped__", "__func__", "__self__")
    ]
    if hasattr(call := _quietly(type(thing), "__call__"), "__code__") or hasattr(
        call, "python_function"
    ):
        contents.append(call)
    if (code := _quietly(thing, "__code__")) is not None:
        names = _quietly(thing, "__globals__") or {}
        contents += [names[name] for name in code.co_names if name in names]
        for cell in _quietly(thing, "__closure__") or ():
            contents.append(_quietly(cell, "cell_contents"))
        contents += [
            *(_quietly(thing, "__defaults__") or ()),
            *(_quietly(thing, "__kwdefaults__") or {}).values(),
        ]
    attributes = _quietly(thing, "__dict__")
    contents += (
        attributes.values() if isinstance(attributes, dict) and len(attributes) < _WIDEST else []
    )
    return [item for item in contents if item is not None and not isinstance(item, _LEAVES)]
