"""What a format of tensors provides, and the base classes that provide most of it.

A format is a frozen dataclass whose fields are its options. It turns values into bytes and bytes
into values, and touches no file, socket, clock or global.

1. `TensorFormat` is the protocol: `encode`, `decode`, `open`. Callers know nothing else.
2. `WholeFormat` is for bytes that have to be read whole. `open` decodes, and holds the value.
3. `StoredFormat` is for bytes that hold a spec and stored arrays. `open` and `decode` share the one
   reader, `stored`.
4. `StreamedFormat` is a StoredFormat that is written part by part. `encode` is its `write` over
   memory, and `tw.convert` runs the same `write` over a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from .. import lowering
from .._errors import DecodeError, EncodeError
from .._limits import Budget, Limits
from ..core import dtypes
from ..core.memory import Buffer
from ..core.tensors import Bundle
from ..storage.files import BytesSource, Source
from .container import Container, Part
from .sinks import ArrayOutput, MemorySink, OutputPart, Sink

Metadata = dict[str, str]


class TensorFormat(Protocol):
    """The interface of every format of tensors."""

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        """Buffers that make up the bytes, large data not copied.

        `metadata` is text about the whole value, beside that of a Bundle. Raises EncodeError if the
        format cannot hold the value or the metadata.
        """

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        """The value of the bytes, with arrays by the memory rules of `tw.loads`.

        Raises DecodeError, with format and offset, if the bytes are not valid.
        """

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """The tensors of a source by name. Lazy formats read each when it is asked for."""


class WholeFormat:
    """Base class of formats whose bytes have to be read whole."""

    __slots__ = ()
    limits: Limits

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        raise NotImplementedError

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """The container of a value in memory."""
        budget = self.limits.call(source.size)
        return Container.of(self.decode(source.read_at(0, source.size), copy), budget)


class Stored(NamedTuple):
    """A value as a file holds it."""

    spec: lowering.Node
    parts: Sequence[Part]
    metadata: Metadata
    tensor_metadata: dict[str, Metadata] | None = None
    """None for what the spec says."""


class StoredFormat:
    """Base class of formats whose bytes hold a spec and stored arrays."""

    __slots__ = ()
    name: ClassVar[str]
    origin: ClassVar[int] = 0
    """The offset of errors that have none of their own: where the description of the value is."""
    limits: Limits

    def stored(self, source: Source, copy: bool | None, budget: Budget) -> Stored:
        """Reads what the source says about its arrays, and no array."""
        raise NotImplementedError

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        budget = self.limits.call(len(data))
        try:
            stored = self.stored(BytesSource(data), copy, budget)
            return lowering.lift(stored.spec, [part.read() for part in stored.parts], budget)
        except DecodeError as error:
            raise error.add(format=self.name, offset=self.origin) from None

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Reads what the source says about its arrays, and each array when it is asked for."""
        budget = self.limits.call(source.size)
        try:
            spec, parts, metadata, texts = self.stored(source, copy, budget)
            return Container(spec, parts, metadata, budget, texts)
        except DecodeError as error:
            raise error.add(format=self.name, offset=self.origin) from None


class StreamedFormat(StoredFormat):
    """Base class of formats that are written one array after the other."""

    __slots__ = ()

    @staticmethod
    def holds(row: dtypes.DType) -> bool:
        """Whether the format has this dtype; others are stored as integers of the same width."""
        raise NotImplementedError

    def write(
        self, sink: Sink, spec: lowering.Node, parts: Sequence[OutputPart], metadata: Metadata
    ) -> None:
        """Writes a lowered value. `metadata` is all text about it, that of a Bundle too."""
        raise NotImplementedError

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        spec, parts = lowering.lower(value, holds=self.holds)
        sink = MemorySink()
        outputs = [ArrayOutput(part) for part in parts]  # type: ignore[arg-type]
        self.write(sink, spec, outputs, all_metadata(value, metadata))
        return sink.buffers


def without_metadata(spec: lowering.Node) -> lowering.Node:
    """The spec without a bundle's metadata, for formats that keep them in a place of their own."""
    if not isinstance(spec, dict) or "bundle" not in spec:
        return spec
    return {key: item for key, item in spec.items() if key != "metadata"}


def refuse_metadata(metadata: Metadata | None, format: str) -> None:
    """For formats that have no place for text about a value, unless it is a Bundle."""
    if metadata:
        raise EncodeError(
            "this format keeps metadata of a tw.Bundle only; drop_metadata=True leaves them out",
            format=format,
        )


def all_metadata(value: Any, metadata: Metadata | None) -> Metadata:
    """The text about a value: that of a Bundle, and what the caller adds. Checked to be text."""
    own = value.metadata if isinstance(value, Bundle) else {}
    return own | Bundle({}, metadata).metadata if metadata else own
