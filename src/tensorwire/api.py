"""The verbs for bytes, `dumps loads buffers`, and for writing files, `save`. They choose the codec and move the bytes."""

from __future__ import annotations

import importlib
import os
from dataclasses import fields
from typing import Any

import numpy as np

from . import dtypes, files, frameworks, memory
from ._errors import EncodeError, TensorwireError, TruncatedError, UnknownFormatError, choices
from ._limits import DEFAULT, Limits
from .codecs import FORMATS, Codec, Format
from .codecs.container import Container
from .tensors import Bundle
from .wire import kernels

DEFAULT_FORMAT = "safetensors"
_classes: dict[str, Any] = {}
_plain: dict[str, Codec] = {}
_FAST = {
    "safetensors": (kernels.encode_named, kernels.decode_named),
    "tensorproto": (kernels.encode_dense, kernels.decode_dense),
}
"""One native step for plain arrays, by format; None for anything that is not plain, which then goes through the codec."""


def formats() -> dict[str, Format]:
    """Every format there is, by name: what it is for, whether `loads` recognises it, its file suffixes.

    >>> list(formats())
    ['safetensors', 'tensorproto', 'raw']
    """
    return dict(FORMATS)


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


def buffers(
    value: Any,
    format: str = DEFAULT_FORMAT,
    *,
    metadata: dict[str, str] | None = None,
    drop_metadata: bool = False,
    keep_device: bool = False,
    **options: Any,
) -> list[Any]:
    """The bytes of `dumps` as a list of buffers, large data not copied: they are the tensor's own memory, so send them before changing it.

    >>> import numpy as np
    >>> [len(part) for part in buffers(np.zeros(1_000_000, np.float32), "tensorproto")]
    [15, 4000000]
    """
    if not options and not metadata and not keep_device and not drop_metadata and format in _FAST and _is_small(value):
        whole = _FAST[format][0](value)
        if whole is not None:
            return [whole]
    codec = _codec(format, options)
    if keep_device:
        value = frameworks.tensor(value, keep_device=True)
    if drop_metadata:
        return codec.encode(Bundle(value) if isinstance(value, Bundle) else value)
    if not metadata:
        return codec.encode(value)
    if isinstance(value, Bundle):
        return codec.encode(Bundle(value, value.metadata | metadata, value.tensor_metadata))
    if not FORMATS[format].metadata:
        raise EncodeError("this format keeps metadata of a tw.Bundle only; drop_metadata=True leaves them out", format=format)
    return codec.encode(value, metadata)  # type: ignore[call-arg]


def _is_small(value: Any) -> bool:
    """Whether all arrays would be copied next to their header anyway, so that one buffer is best."""
    if type(value) is not dict:
        return type(value) is np.ndarray and value.nbytes <= memory.INLINE
    total = 0
    for item in value.values():
        if type(item) is not np.ndarray:
            return False
        total += item.nbytes
    return total <= memory.INLINE * len(value)


def dumps(value: Any, format: str = DEFAULT_FORMAT, **options: Any) -> bytes:
    """Any tensor, of any framework, or nested dicts, lists and tuples of them, as bytes.

    `metadata={...}` adds text, where the format keeps it (or pass a Bundle); `drop_metadata=True` leaves all such text out.
    `keep_device=True` writes a Bundle that also says each tensor's device and name. Other options are the format's own (docs/formats.md).

    >>> import numpy as np
    >>> loads(dumps({"x": np.float32([1, 2]), "step": 7}))
    {'x': array([1., 2.], dtype=float32), 'step': 7}
    """
    if not options and format in _FAST:
        whole = _FAST[format][0](value)
        if whole is not None:
            return whole
    chunks = buffers(value, format, **options)
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
    of `data` where it is aligned; `copy=True` gives writable ones, `copy=False` demands views. `to`, `device`, `cast` are those of `tw.to`.

    >>> import numpy as np
    >>> loads(dumps(np.int64([1, 2]), "tensorproto"))
    array([1, 2])
    """
    if to == "numpy" and copy is not False and limits is None and not options and device is None and (format is None or format in _FAST):
        # TensorFlow's usual message begins with 08 dtype 12, which no other format that we recognise does, so trying it first is safe.
        value = kernels.decode_dense(data, copy is True) if format is None else _FAST[format][1](data, copy is True)
        if value is None and format is None:
            value = kernels.decode_named(data, copy is True)
        if value is not None:
            return value
    if copy is None and to in ("torch", "jax"):
        copy = True  # they take no read-only memory, and would copy it again
    value = decode(memory.flat(data), format, copy, limits, options)
    return value if to == "numpy" and device is None else frameworks.each(value, to, device, cast)


def decode(
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


def recognise(data: Any, size: int | None = None) -> str:
    """The name of the format that bytes are in; UnknownFormatError if none fits. The order is documented in docs/formats.md.

    The first bytes are enough if `size` says how many there are in all.

    >>> recognise(b"\\x08\\x01\\x12\\x00\\x22\\x04\\x00\\x00\\x80?")
    'tensorproto'
    """
    view = memory.flat(data)
    total = len(view) if size is None else size
    if len(view) > 8 and view[8] == ord("{") and int.from_bytes(view[:8], "little") <= DEFAULT.safetensors_header:
        header = int.from_bytes(view[:8], "little")
        if header > total - 8:
            raise TruncatedError(f"a safetensors header of {header} bytes in {total}", format="safetensors", offset=total)
        return "safetensors"
    if len(view) > 1 and view[0] == 0x08 and (view[1] in dtypes.BY_TF or view[1] in (dtypes.STRING, dtypes.VARIANT)):
        return "tensorproto"  # which then parses strictly, or says where it does not
    known = ", ".join(row.name for row in FORMATS.values() if row.recognised)
    start = bytes(view[:8]).hex(" ") or "nothing"
    raise UnknownFormatError(f"these bytes ({start} ...) are in no format that is recognised ({known}); pass format=")


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for.

    >>> format_of("model.safetensors")
    'safetensors'
    """
    name = os.fspath(path)
    for row in FORMATS.values():
        if name.endswith(row.suffixes):
            return row.name
    known = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
    raise UnknownFormatError(f"no format has files named like this (known: {known}); pass format=", path=name)


def save(where: Any, value: Any, format: str | None = None, *, durable: bool = True, **options: Any) -> None:
    """Writes a value to a file, whole or not at all, or to a binary file object.

    The format is the one that the name asks for, unless given. A file is replaced through a temporary sibling, fsync and rename: a reader
    sees the old or the new one, and so does whoever comes after a crash; `durable=False` skips the fsync. Options are those of `dumps`.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/x.safetensors", {"x": np.arange(3)}, metadata={"model": "nmt-v2"})
    ...     os.path.getsize(f"{folder}/x.safetensors")
    152
    """
    if hasattr(where, "write"):
        for part in buffers(value, format or DEFAULT_FORMAT, **options):
            files.write_all(where, part)
        return
    try:
        files.replace(where, buffers(value, format or format_of(where), **options), durable)
    except TensorwireError as error:
        raise error.add(path=os.fspath(where)) from None


def open_container(
    source: files.Source, format: str | tuple[str, ...] | None, limits: Limits | None, options: dict[str, Any]
) -> tuple[Container, str]:
    """(a lazy container where the format has one, else the value read whole; the format)"""
    name = format if isinstance(format, str) else recognise(source.read_at(0, min(source.size, 64)), source.size)
    if isinstance(format, tuple) and name not in format:
        raise UnknownFormatError(f"these bytes are {name}, and only {', '.join(format)} is allowed", format=name)
    codec: Any = _codec(name, options, limits)
    if FORMATS[name].lazy:
        return codec.open(source), name
    return Container.of(codec.decode(source.read_at(0, source.size))), name
