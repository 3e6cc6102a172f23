"""Errors as JSON, to send them from a worker to the driver with all their attributes."""

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
    """An error as JSON. A subclass of one of our errors is named by that error.

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


def unpacked(fields: dict[str, Any]) -> BaseException:
    """The inverse of `packed`. An error that is neither ours nor the system's becomes a
    `TensorwireError` with the name of its class in the message.
    """
    kind, message = fields["kind"], fields["message"]
    facts = {name: fields[name] for name in (*FACTS, "hint") if name in fields}
    # OSError makes an instance of the subclass that belongs to the error number.
    if "errno" in fields:
        return OSError(fields["errno"], message, fields["filename"])
    if kind in _SYSTEM:
        return _SYSTEM[kind](message)
    ours = getattr(_errors, kind, None)
    if isinstance(ours, type) and issubclass(ours, TensorwireError) and kind != "ModelError":
        return ours(message, **facts)
    return TensorwireError(message if kind == "TensorwireError" else f"{kind}: {message}", **facts)


def passing(error: BaseException) -> bool:
    """Whether a retry may succeed: a store could not be reached, or the machine was short of
    memory, disk or descriptors.
    """
    if isinstance(error, (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError)):
        return False
    return isinstance(error, (TransportError, OSError, MemoryError))
