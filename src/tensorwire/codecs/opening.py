"""Codecs by name, and bytes or files opened by the codec that they are in."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any, NamedTuple

from .._errors import DecodeError, TensorwireError, UnknownFormatError, UsageError, choices
from .._limits import DEFAULT, Limits
from ..core import memory
from ..storage import files
from . import TENSOR_FORMATS
from .container import Container
from .identify import HEAD, compression_of, has_checksum, recognise
from .protocol import TensorFormat

_classes: dict[str, Any] = {}
_plain: dict[str, TensorFormat] = {}
PACKING_OPTIONS = (
    "compression",
    "level",
    "threads",
    "per_tensor",
    "shuffle",
    "quantize",
    "axis",
    "nonfinite",
    "metadata",
    "drop_metadata",
    "keep_device",
)
"""Options that do not depend on the format, for suggestions."""


def codec(name: str, options: dict[str, Any], limits: Limits | None = None) -> TensorFormat:
    """The codec of a format, with these options."""
    if not options and limits is None and name in _plain:
        return _plain[name]
    if name not in TENSOR_FORMATS:
        raise UnknownFormatError(f"no format {name!r}{choices(name, TENSOR_FORMATS)}")
    if name not in _classes:
        module, _, kind = TENSOR_FORMATS[name].where.partition(":")
        _classes[name] = getattr(importlib.import_module(f"{__package__}.{module}"), kind)
    kind = _classes[name]
    if not options and limits is not None:
        return kind(limits=limits)  # type: ignore[no-any-return]
    names = [field.name for field in fields(kind) if field.name != "limits"]
    unknown = [option for option in options if option not in names]
    if unknown:
        names = list(dict.fromkeys([*names, *PACKING_OPTIONS]))
        raise UsageError(
            f"no option {unknown[0]!r} for format {name!r}{choices(unknown[0], names)}",
            format=name,
        )
    instance = kind(**options, limits=limits or DEFAULT)
    if not options and limits is None:
        _plain[name] = instance
    return instance  # type: ignore[no-any-return]


def decompress(view: memoryview, compression: str, limits: Limits) -> memoryview:
    from ..transforms.compression import oneshot

    return memory.flat(oneshot.decompress(view, compression, limits))


def decode(
    view: memoryview,
    format: str | tuple[str, ...] | None,
    copy: bool | None,
    limits: Limits,
    options: dict[str, Any],
) -> Any:
    name = _named(format, view, len(view))
    try:
        return codec(name, options, limits).decode(view, copy)
    except TensorwireError as error:
        raise error.add(format=name) from None


class Opened(NamedTuple):
    """What `open_container` found."""

    container: Container
    format: str
    compression: str | None
    checksums: bool
    """Whether any change of the data is noticed."""
    lazy: bool
    """Whether tensors are read when they are asked for; else all was read."""


def open_container(
    source: files.Source,
    format: str | tuple[str, ...] | None,
    compression: str | None,
    limits: Limits | None,
    options: dict[str, Any],
    head: bytes | None = None,
) -> Opened:
    """A container that is lazy where the format and the file allow it. `head` are the first bytes,
    if they have been read already.
    """
    budget = (limits or DEFAULT).call(source.size)
    start: memory.Buffer = source.read_at(0, min(source.size, HEAD)) if head is None else head
    packed = compression or compression_of(start, format)
    sums = has_checksum(packed, start)
    if packed is not None:
        source = files.BytesSource(
            decompress(source.read_at(0, source.size), packed, budget), source.path
        )
        start = source.read_at(0, min(source.size, HEAD))
    name = _named(format, start, source.size)
    try:
        container = codec(name, options, budget).open(source)
    except DecodeError as error:
        raise error.add(format=name, offset=0) from None
    except TensorwireError as error:
        raise error.add(format=name) from None
    lazy = TENSOR_FORMATS[name].lazy and packed is None
    return Opened(container, name, packed, sums or container.checksums, lazy)


def _named(format: str | tuple[str, ...] | None, head: memory.Buffer, size: int) -> str:
    """The format that was named, or that the bytes are in if that is allowed."""
    if isinstance(format, str):
        return format
    name = recognise(head, size)
    if name not in TENSOR_FORMATS:
        raise UnknownFormatError(
            "this is a TFRecord file: records, not tensors by name",
            hint="tw.read_examples gives its Examples as columns,"
            " tw.RecordReader its records as bytes",
        )
    if format is not None and name not in format:
        raise UnknownFormatError(
            f"these bytes are {name}, and only {', '.join(format)} is allowed", format=name
        )
    return name
