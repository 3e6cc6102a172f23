"""Errors as JSON, so that they go from a worker to whoever waits for it, with all that they know."""

from __future__ import annotations

import os
from typing import Any

from ... import _errors
from ..._errors import FACTS, TensorwireError, TransportError

_SYSTEM = {
    kind.__name__: kind
    for kind in (
        FileNotFoundError,
        FileExistsError,
        PermissionError,
        IsADirectoryError,
        OSError,
        MemoryError,
    )
}


def packed(error: BaseException) -> dict[str, Any]:
    """
    >>> packed(_errors.DecodeError("bad", path="a", record=7))
    {'kind': 'DecodeError', 'message': 'bad', 'path': 'a', 'record': 7}
    """
    kind = next(
        (base.__name__ for base in type(error).__mro__ if base.__module__ == _errors.__name__),
        type(error).__name__,
    )
    if isinstance(error, TensorwireError):
        facts = {name: getattr(error, name) for name in FACTS if getattr(error, name) is not None}
        return {"kind": kind, "message": error.message, **facts} | (
            {"hint": error.hint} if error.hint else {}
        )
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        path = None if error.filename is None else os.fsdecode(error.filename)
        return {"kind": kind, "message": error.strerror, "errno": error.errno, "filename": path}
    return {"kind": kind, "message": str(error) or kind}


def unpacked(about: dict[str, Any]) -> BaseException:
    """The error again, of its own class if that is ours or the system's."""
    kind, message = about["kind"], about["message"]
    facts = {name: about[name] for name in (*FACTS, "hint") if name in about}
    if "errno" in about:
        return OSError(about["errno"], message, about["filename"])
    if kind in _SYSTEM:
        return _SYSTEM[kind](message)
    known = getattr(_errors, kind, None)
    if isinstance(known, type) and issubclass(known, TensorwireError) and kind != "ModelError":
        return known(message, **facts)
    return TensorwireError(message if kind == "TensorwireError" else f"{kind}: {message}", **facts)


def passing(error: BaseException) -> bool:
    """Whether another try may go better: the way to a store broke, or the machine was short of
    something.
    """
    if isinstance(error, (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError)):
        return False
    return isinstance(error, (TransportError, OSError, MemoryError))
