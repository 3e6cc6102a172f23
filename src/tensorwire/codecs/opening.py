"""Opening: codecs by format name, and the decoding of bytes and files by their codec."""

from __future__ import annotations

import importlib
from dataclasses import fields
from functools import cache
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
"""Options of `dumps` and `save` that apply to every format, for "did you mean" suggestions."""


def codec(name: str, options: dict[str, Any], limits: Limits | None = None) -> TensorFormat:
    """Returns the codec of a format with these options.

    Raises UnknownFormatError, or UsageError for an option that the format does not have. The codec
    without options is kept: it is frozen, so all callers can share it.
    """
    if not options and limits is None and name in _plain:
        return _plain[name]
    if name not in TENSOR_FORMATS:
        raise UnknownFormatError(f"unknown format {name!r}{choices(name, TENSOR_FORMATS)}")
    if name not in _classes:
        module, _, kind = TENSOR_FORMATS[name].where.partition(":")
        _classes[name] = getattr(importlib.import_module(f"{__package__}.{module}"), kind)
    kind = _classes[name]
    if options:
        own = _own_options(kind)
        unknown = next((option for option in options if option not in own), None)
        if unknown is not None:
            names = list(dict.fromkeys([*own, *PACKING_OPTIONS]))
            raise UsageError(
                f"unknown option {unknown!r} for format {name!r}{choices(unknown, names)}",
                format=name,
            )
    instance = kind(**options, limits=limits or DEFAULT)
    if not options and limits is None:
        _plain[name] = instance
    return instance  # type: ignore[no-any-return]


@cache
def _own_options(kind: type) -> tuple[str, ...]:
    """Returns the names of a codec's options: the fields of its dataclass without `limits`."""
    return tuple(field.name for field in fields(kind) if field.name != "limits")


def decompress(view: memoryview, compression: str, limits: Limits) -> memoryview:
    """Returns the decompressed bytes of a stream that was compressed as a whole."""
    from ..transforms.compression import oneshot

    return memory.flat(oneshot.decompress(view, compression, limits))


def decode(
    view: memoryview,
    format: str | tuple[str, ...] | None,
    copy: bool | None,
    limits: Limits,
    options: dict[str, Any],
) -> Any:
    """Decodes bytes of a given format, or of a format that is recognised and allowed."""
    name = _named(format, view, len(view))
    try:
        return codec(name, options, limits).decode(view, copy)
    except TensorwireError as error:
        raise error.add(format=name) from None


class Opened(NamedTuple):
    """The result of `open_container`."""

    container: Container
    format: str
    compression: str | None
    checksums: bool
    """Whether checksums protect all data."""
    lazy: bool
    """Whether tensors are read on demand. Otherwise all data have been read."""


def open_container(
    source: files.Source,
    format: str | tuple[str, ...] | None,
    compression: str | None,
    limits: Limits | None,
    options: dict[str, Any],
    head: bytes | None = None,
) -> Opened:
    """Opens a source as a container, which is lazy if the format is and the file is not compressed.

    `head` are the first bytes, if they have already been read.
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
    """Returns the format that was named, or the recognised one if it is allowed."""
    if isinstance(format, str):
        return format
    name = recognise(head, size)
    if name not in TENSOR_FORMATS:
        raise UnknownFormatError(
            "expected named tensors, found a TFRecord file",
            hint="tw.read_examples reads its Examples as columns, tw.RecordReader its records as"
            " bytes",
        )
    if format is not None and name not in format:
        raise UnknownFormatError(
            f"found format {name!r}, but only {', '.join(format)} is allowed", format=name
        )
    return name
