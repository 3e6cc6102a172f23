"""One module a format, and the table of all of them.

A codec is a frozen dataclass whose fields are its options, with `encode(value) -> chunks` and `decode(data, copy) -> value`: pure bytes
to values, no file, socket, clock or global. It is imported when it is first used; only `api` resolves this table.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Codec(Protocol):
    """What every format has."""

    def encode(self, value: Any) -> list[Any]:
        """Buffers that make up the bytes, large data not copied; EncodeError if the value does not fit the format."""

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        """The value of the bytes, arrays by the memory rules; DecodeError, with format and offset, for anything else."""


class Format(NamedTuple):
    """A row of the table."""

    name: str
    where: str
    """module:Class"""
    about: str
    recognised: bool
    """Whether `loads` finds it without being told."""
    suffixes: tuple[str, ...] = ()
    lazy: bool = False
    """Whether `tw.open` reads only what is asked for."""
    metadata: bool = False
    """Whether it keeps text about any value; others keep it for a Bundle only."""
    extra: str | None = None
    """The pip extra that it needs."""


FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format(
            "safetensors",
            "safetensors:Safetensors",
            "named tensors of every kind, aligned, read in place",
            True,
            (".safetensors",),
            True,
            True,
        ),
        Format(
            "tensorproto",
            "tensorproto:TensorProto",
            "TensorFlow's own bytes for one tensor, and any value inside a string vector",
            True,
            (".pb",),
        ),
        Format("raw", "raw:Raw", "bare numbers; dtype, shape and byte order travel separately", False, (".raw", ".bin")),
    )
}
