"""Values on sockets, pipes and file objects, one after the other, each framed as a TFRecord: its
length and two checksums.
"""

from __future__ import annotations

import os
from typing import Any

from .._errors import LimitError, TruncatedError, UsageError
from .._limits import DEFAULT, Limits
from ..core import memory
from ..storage import files
from ..wire import kernels, tfrecord
from . import signatures, values
from .signatures import spelled

_SMALL = 64 << 10
"""Buffers up to this size are joined, because each call costs as much as copying so much."""


@spelled(signatures.write)
def write(stream: Any, value: Any, format: str = values.DEFAULT_FORMAT, **options: Any) -> int:
    """Writes one value to a socket, pipe or binary file object, framed by its length and checksums;
    returns the number of bytes.

    The frame is TFRecord's, so a file of such values is a TFRecord file. Large tensors are sent
    from their own memory. Options are those of `dumps`.

    >>> import io, numpy as np
    >>> stream = io.BytesIO()
    >>> write(stream, np.arange(3)), write(stream, ["two", 2])
    (168, 144)
    >>> _ = stream.seek(0)
    >>> read(stream), read(stream)
    (array([0, 1, 2]), ['two', 2])
    """
    _check_stream(stream, ("write", "sendall"), "write", "tw.save(path, value) writes a file")
    chunks = values.encode(value, format, options)
    size = sum(map(len, chunks))
    parts = [tfrecord.header(size), *chunks, tfrecord.footer(chunks)]
    if size <= _SMALL:
        parts = [kernels.join(parts)]
    send = getattr(stream, "sendall", None)
    for part in parts:
        if send is not None:
            send(part)
        else:
            files.write_all(stream, part)
    return tfrecord.HEADER + size + tfrecord.FOOTER


def _check_stream(stream: Any, able: tuple[str, ...], verb: str, file: str) -> None:
    """Raise UsageError unless this is a socket, a pipe or a binary file object."""
    if not any(hasattr(stream, name) for name in able):
        hint = (
            file
            if isinstance(stream, (str, os.PathLike))
            else f"the stream comes first: tw.{verb}(stream, ...)"
        )
        raise UsageError(
            f"{verb} takes a socket or a binary file object, not {type(stream).__name__}", hint=hint
        )
    files.check_binary(stream, f"{verb[0]}b")


@spelled(signatures.read)
def read(
    stream: Any,
    format: str | tuple[str, ...] | None = None,
    *,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """Reads the next value that `write` wrote. EOFError when the stream ends between two values,
    TruncatedError inside one.

    Options are those of `loads`.

    >>> import io
    >>> read(io.BytesIO())
    Traceback (most recent call last):
    EOFError: no more values on this stream
    """
    _check_stream(stream, ("read", "readinto", "recv_into"), "read", "tw.load(path) reads a file")
    allowed = (limits or DEFAULT).record
    head = memory.fresh(tfrecord.HEADER)
    got = files.fill(stream, head)
    if got == 0:
        raise EOFError("no more values on this stream")
    if got < tfrecord.HEADER:
        raise TruncatedError(
            "the stream ends inside the header of a value", format="tfrecord", offset=got
        )
    size = tfrecord.length(head.tobytes())
    if size > allowed:
        raise LimitError(
            f"a value of {size} bytes; Limits(record=...) allows {allowed}",
            format="tfrecord",
            offset=0,
        )
    body = memory.fresh(size + tfrecord.FOOTER)
    got = files.fill(stream, body)
    if got < len(body):
        offset = tfrecord.HEADER + got
        raise TruncatedError(
            f"the stream ends after {got} of {len(body)} bytes of a value",
            format="tfrecord",
            offset=offset,
        )
    tfrecord.check(body[:size], body[size:].tobytes())
    return values.untyped_loads(body.data[:size], format, limits=limits, **options)
