"""Streams of values over sockets, pipes and file objects. Each value is framed as a TFRecord, with
its length and two checksums.
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
"""Values up to this size are sent in one buffer: a second call costs more than the copy."""


@spelled(signatures.write)
def write(stream: Any, value: Any, format: str = values.DEFAULT_FORMAT, **options: Any) -> int:
    """Writes one value to a socket, pipe or binary file object, and returns the number of bytes.

    The value is framed like a TFRecord, with its length and checksums, so a file of such values is
    a TFRecord file. Large tensors are sent without a copy. Options and errors are those of `dumps`;
    raises `UsageError` for other objects than streams.

    >>> import io, numpy as np, tensorwire as tw
    >>> stream = io.BytesIO()
    >>> tw.write(stream, np.arange(3)), tw.write(stream, ["two", 2])
    (168, 144)
    >>> _ = stream.seek(0)
    >>> tw.read(stream), tw.read(stream)
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
    """Raises UsageError unless this is a socket, a pipe or a binary file object."""
    if not any(hasattr(stream, name) for name in able):
        hint = (
            file
            if isinstance(stream, (str, os.PathLike))
            else f"pass the stream first: tw.{verb}(stream, ...)"
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
    """Reads the next value that `tw.write` has written to a stream.

    Options are those of `loads`. Raises EOFError if the stream ends between two values,
    `TruncatedError` if it ends inside one, `ChecksumError` for damaged data, and `LimitError` for a
    value that is larger than `limits` allows.

    >>> import io, tensorwire as tw
    >>> tw.read(io.BytesIO())
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
            f"the value has {size} bytes, and Limits(record=...) allows {allowed}",
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
