"""The verbs: choose the codec, move the bytes. `dumps loads buffers` for bytes, `write read` for streams."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

from . import dtypes, frameworks, memory
from ._errors import DecodeError, EncodeError, LimitError, TensorwireError, TruncatedError, UnknownFormatError, choices
from ._limits import DEFAULT, Limits
from .codecs import FORMATS, Codec, Format
from .tensors import Bundle
from .wire import kernels, tfrecord

DEFAULT_FORMAT = "safetensors"
_SMALL = 64 << 10
"""Streams get buffers up to this size joined, because each call costs as much as copying so much."""
_classes: dict[str, Any] = {}
_plain: dict[str, Codec] = {}
_FAST = {
    "safetensors": (kernels.encode_named, kernels.decode_named),
    "tensorproto": (kernels.encode_dense, kernels.decode_dense),
}
"""One native step for plain arrays, by format; None for anything that is not plain, which then goes through the codec."""


def formats() -> tuple[Format, ...]:
    """Every format there is: its name, what it is for, whether `loads` recognises it, its file suffixes.

    >>> [row.name for row in formats()]
    ['safetensors', 'tensorproto', 'raw']
    """
    return tuple(FORMATS.values())


def _codec(name: str, options: dict[str, Any], limits: Limits | None = None) -> Codec:
    if not options and limits is None and name in _plain:
        return _plain[name]
    if name not in FORMATS:
        raise UnknownFormatError(f"no format {name!r}{choices(name, FORMATS)}")
    if name not in _classes:
        module, _, kind = FORMATS[name].where.partition(":")
        _classes[name] = getattr(importlib.import_module(f"{__package__}.codecs.{module}"), kind)
    kind = _classes[name]
    known = [field.name for field in fields(kind) if field.name != "limits"]
    strangers = [option for option in options if option not in known]
    if strangers:
        raise TypeError(f"format {name!r} has no option {strangers[0]!r}" + (f"; it has {', '.join(known)}" if known else " and no others"))
    codec: Codec = kind(**options, limits=limits or DEFAULT)
    if not options and limits is None:
        _plain[name] = codec
    return codec


def buffers(value: Any, format: str = DEFAULT_FORMAT, *, keep_device: bool = False, **options: Any) -> list[Any]:
    """The bytes of `dumps` as a list of buffers, large data not copied: they are the tensor's own memory, so send them before changing it.

    >>> import numpy as np
    >>> [len(part) for part in buffers(np.zeros(1_000_000, np.float32), "tensorproto")]
    [15, 4000000]
    """
    codec = _codec(format, options)
    return codec.encode(frameworks.tensor(value, keep_device=True) if keep_device else value)


def dumps(value: Any, format: str = DEFAULT_FORMAT, *, keep_device: bool = False, **options: Any) -> bytes:
    """Any tensor, of any framework, or nested dicts, lists and tuples of them, as bytes.

    `options` are the format's own (see `tw.formats()` and docs/formats.md). `keep_device=True` writes a Bundle that also says each tensor's
    device and name.

    >>> import numpy as np
    >>> loads(dumps({"x": np.float32([1, 2]), "step": 7}))
    {'x': array([1., 2.], dtype=float32), 'step': 7}
    """
    if not options and not keep_device and format in _FAST:
        whole = _FAST[format][0](value)
        if whole is not None:
            return whole
    chunks = buffers(value, format, keep_device=keep_device, **options)
    return chunks[0] if len(chunks) == 1 and type(chunks[0]) is bytes else kernels.join(chunks)


def loads(
    data: Any,
    format: str | tuple[str, ...] | None = None,
    *,
    to: str = "numpy",
    device: Any = None,
    cast: bool = False,
    copy: bool | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """The value that `dumps` wrote, or that TensorFlow or safetensors did.

    Without `format` it is recognised from the bytes; for bytes from strangers name it (a tuple allows several). Arrays are read-only, views
    of `data` where it is aligned; `copy=True` gives writable ones, `copy=False` demands views. `to` is "numpy", "object" or "tensorflow".

    >>> import numpy as np
    >>> loads(dumps(np.int64([1, 2]), "tensorproto"))
    array([1, 2])
    """
    # TensorFlow's usual message begins with 08 dtype 12, which no other format that we recognise does, so trying it first is safe.
    if to == "numpy" and copy is not False and limits is None and not options and device is None and (format is None or format in _FAST):
        for name in _FAST if format is None else (format,):
            value = _FAST[name][1](data, copy is True)
            if value is not None:
                return value
    view = memory.flat(data)
    value = _decode(view, format, copy, limits, options)
    return value if to == "numpy" and device is None else frameworks.each(value, to, device, cast)


def _decode(
    view: memoryview, format: str | tuple[str, ...] | None, copy: bool | None, limits: Limits | None, options: dict[str, Any]
) -> Any:
    if isinstance(format, str):
        name = format
    else:
        name = recognise(view)
        if format is not None and name not in format:
            raise UnknownFormatError(f"these bytes are {name}, and only {', '.join(format)} is allowed", format=name)
    try:
        return _codec(name, options, limits).decode(view, copy)
    except TensorwireError as error:
        raise error.add(format=name) from None


def recognise(data: Any) -> str:
    """The name of the format that bytes are in; UnknownFormatError if none fits. The order is documented in docs/formats.md.

    >>> recognise(b"\\x08\\x01\\x12\\x00\\x22\\x04\\x00\\x00\\x80?")
    'tensorproto'
    """
    view = memory.flat(data)
    if len(view) > 8 and view[8] == ord("{") and int.from_bytes(view[:8], "little") <= DEFAULT.safetensors_header:
        size = int.from_bytes(view[:8], "little")
        if size > len(view) - 8:
            raise TruncatedError(f"a safetensors header of {size} bytes in {len(view)}", format="safetensors", offset=len(view))
        return "safetensors"
    if len(view) > 1 and view[0] == 0x08 and (view[1] in dtypes.BY_TF or view[1] in (dtypes.STRING, dtypes.VARIANT)):
        return "tensorproto"  # which then parses strictly, or says where it does not
    known = ", ".join(row.name for row in FORMATS.values() if row.recognised)
    start = bytes(view[:8]).hex(" ") or "nothing"
    raise UnknownFormatError(f"these bytes ({start} ...) are in no format that is recognised ({known}); pass format=")


def write(stream: Any, value: Any, format: str = DEFAULT_FORMAT, *, keep_device: bool = False, **options: Any) -> int:
    """Writes one value to a socket, pipe or binary file object, framed by its length and checksums; returns the number of bytes.

    The frame is TFRecord's, so a file of such values is a TFRecord file. Large tensors are sent from their own memory.

    >>> import io, numpy as np
    >>> stream = io.BytesIO()
    >>> write(stream, np.arange(3)), write(stream, ["two", 2])
    (168, 144)
    >>> _ = stream.seek(0)
    >>> read(stream), read(stream)
    (array([0, 1, 2]), ['two', 2])
    """
    chunks = buffers(value, format, keep_device=keep_device, **options)
    size = sum(map(len, chunks))
    parts = [tfrecord.header(size), *chunks, tfrecord.footer(chunks)]
    if size <= _SMALL:
        parts = [kernels.join(parts)]
    send = getattr(stream, "sendall", None)
    for part in parts:
        if send is not None:
            send(part)
        else:
            _write_all(stream, part)
    return tfrecord.HEADER + size + tfrecord.FOOTER


def _write_all(stream: Any, part: Any) -> None:
    """Raw streams may take less than they are given."""
    rest = memoryview(part)
    while len(rest):
        count = stream.write(rest)
        if count is None:
            raise BlockingIOError("the stream is not blocking, and took nothing")
        rest = rest[count:]


def read(
    stream: Any,
    format: str | tuple[str, ...] | None = None,
    *,
    to: str = "numpy",
    device: Any = None,
    cast: bool = False,
    copy: bool | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """Reads the next value that `write` wrote. EOFError when the stream ends between two values, TruncatedError inside one.

    >>> import io
    >>> read(io.BytesIO())
    Traceback (most recent call last):
    EOFError: no more values on this stream
    """
    allowed = (limits or DEFAULT).record
    head = memory.fresh(tfrecord.HEADER)
    got = _fill(stream, head)
    if got == 0:
        raise EOFError("no more values on this stream")
    if got < tfrecord.HEADER:
        raise TruncatedError("the stream ends inside the header of a value", format="tfrecord", offset=got)
    size = tfrecord.length(head.tobytes())
    if size > allowed:
        raise LimitError(f"a value of {size} bytes; Limits(record=...) allows {allowed}", format="tfrecord", offset=0)
    body = memory.fresh(size + tfrecord.FOOTER)
    got = _fill(stream, body)
    if got < len(body):
        raise TruncatedError(
            f"the stream ends after {got} of {len(body)} bytes of a value", format="tfrecord", offset=tfrecord.HEADER + got
        )
    tfrecord.check(body[:size], body[size:].tobytes())
    return loads(body.data[:size], format, to=to, device=device, cast=cast, copy=copy, limits=limits, **options)


def _fill(stream: Any, buffer: Any) -> int:
    """Reads until the buffer is full or the stream ends; returns how much."""
    rest, done = memoryview(buffer), 0
    into = getattr(stream, "recv_into", None) or getattr(stream, "readinto", None)
    while done < len(rest):
        if into is not None:
            count = into(rest[done:])
            if count is None:
                raise BlockingIOError("the stream is not blocking, and had nothing")
        else:
            piece = stream.read(len(rest) - done)
            count = len(piece)
            rest[done : done + count] = piece
        if not count:
            break
        done += count
    return done


__all__ = ["Bundle", "DecodeError", "EncodeError", "buffers", "dumps", "formats", "loads", "read", "recognise", "write"]
