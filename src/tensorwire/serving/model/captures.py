"""What a model's function needs when it is saved: the variables and tables that it uses, wherever
they live.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

_MOST = 100_000
"""Objects to look at. More than that are no closure."""
_WIDEST = 1000
"""Attributes of one object."""
_DULL = (type, str, bytes, int, float, ModuleType)


def used_by(tf: ModuleType, functions: Iterable[Any], model: object) -> list[Any]:
    """The variables and other resources that traced functions capture. TensorFlow saves only what
    hangs on the object that is saved, and a function hangs on nothing; but each resource belongs to
    something that the function can reach."""
    handles = {
        id(handle): handle
        for function in functions
        for handle, _ in function.graph.captures
        if handle.dtype == tf.resource
    }
    found: dict[int, Any] = {}
    for function in functions:
        for variable in function.graph.variables:
            found[id(variable)] = variable
    known = {id(getattr(variable, "handle", None)) for variable in found.values()}
    missing = {key: handle for key, handle in handles.items() if key not in known}
    for trackable in _reachable(tf, model) if missing else ():
        for attribute in ("resource_handle", "handle"):
            if missing.pop(id(_quietly(trackable, attribute)), None) is not None:
                found[id(trackable)] = trackable
        if not missing:
            break
    return list(found.values())


def _quietly(thing: object, attribute: str) -> Any:
    """Some attributes are properties that fail."""
    try:
        return getattr(thing, attribute, None)
    except Exception:
        return None


def _reachable(tf: ModuleType, model: object) -> Iterable[Any]:
    """Trackable objects that a function can get at, the nearest first: through its closure,
    defaults, globals, the object it is a method of, and what these hold."""
    kind = tf.__internal__.tracking.Trackable
    waiting: deque[Any] = deque([model])
    seen: dict[int, Any] = {}  # the objects too: an id is of one thing only as long as that lives
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
    if isinstance(thing, weakref.ref):
        return [thing()]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, Mapping):
        return list(thing.values()) if len(thing) < _MOST else []
    if isinstance(thing, (list, tuple, set, frozenset)):
        return list(thing) if len(thing) < _MOST else []
    found = [
        _quietly(thing, name) for name in ("python_function", "__wrapped__", "__func__", "__self__")
    ]
    if hasattr(own := _quietly(type(thing), "__call__"), "__code__") or hasattr(
        own, "python_function"
    ):
        found.append(own)
    if (code := _quietly(thing, "__code__")) is not None:
        names = _quietly(thing, "__globals__") or {}
        found += [names[name] for name in code.co_names if name in names]
        for cell in _quietly(thing, "__closure__") or ():
            found.append(_quietly(cell, "cell_contents"))
        found += [
            *(_quietly(thing, "__defaults__") or ()),
            *(_quietly(thing, "__kwdefaults__") or {}).values(),
        ]
    held = _quietly(thing, "__dict__")
    found += held.values() if isinstance(held, dict) and len(held) < _WIDEST else []
    return [each for each in found if each is not None and not isinstance(each, _DULL)]
