"""The codec protocol of tensor formats, and base classes that implement most of it.

A codec is a frozen dataclass whose fields are its options. It turns values into bytes and bytes
into values, and touches no file, socket, clock or global state.

1. `TensorFormat` is the protocol: `encode`, `decode`, `open`. Callers use nothing else.
2. `WholeFormat` is for formats that must be read whole. `open` decodes and keeps the value.
3. `StoredFormat` is for formats with a spec and stored arrays. `open` and `decode` share one
   reader, `stored`.
4. `StreamedFormat` is a StoredFormat that is written part by part. `encode` calls `write` with a
   sink in memory, and `tw.convert` calls the same `write` with a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeGuard

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
    """The interface of every codec for tensors."""

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        """Returns the encoded bytes as a list of buffers. Large arrays are not copied.

        `metadata` describes the whole value, in addition to the metadata of a Bundle. Raises
        EncodeError if the format cannot hold the value or the metadata.
        """

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        """Returns the value. `copy` follows the memory rules of `tw.loads`.

        Raises DecodeError, with format and offset, if the bytes are invalid.
        """

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Returns the tensors of a source by name. Lazy formats read each tensor on demand."""


class WholeFormat:
    """Base class of formats that must be read whole."""

    __slots__ = ()
    limits: Limits

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        raise NotImplementedError

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Decodes the source, and returns a container of the value in memory."""
        budget = self.limits.call(source.size)
        return Container.of(self.decode(source.read_at(0, source.size), copy), budget)


class Stored(NamedTuple):
    """A value as it is stored in a file: the spec, the arrays and the metadata."""

    spec: lowering.Node
    parts: Sequence[Part]
    metadata: Metadata
    tensor_metadata: dict[str, Metadata] | None = None
    """None to take it from the spec."""


class StoredFormat:
    """Base class of formats with a spec and stored arrays."""

    __slots__ = ()
    name: ClassVar[str]
    origin: ClassVar[int] = 0
    """The offset for errors that have none of their own: that of the header or spec."""
    limits: Limits

    def stored(self, source: Source, copy: bool | None, budget: Budget) -> Stored:
        """Reads the description of the arrays, but no array."""
        raise NotImplementedError

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        budget = self.limits.call(len(data))
        try:
            stored = self.stored(BytesSource(data), copy, budget)
            return lowering.lift(stored.spec, [part.read() for part in stored.parts], budget)
        except DecodeError as error:
            raise error.add(format=self.name, offset=self.origin) from None

    def open(self, source: Source, copy: bool | None = None) -> Container:
        """Reads the description of the arrays. The container reads each array on demand."""
        budget = self.limits.call(source.size)
        try:
            spec, parts, metadata, texts = self.stored(source, copy, budget)
            return Container(spec, parts, metadata, budget, texts)
        except DecodeError as error:
            raise error.add(format=self.name, offset=self.origin) from None


class StreamedFormat(StoredFormat):
    """Base class of formats that are written array by array."""

    __slots__ = ()

    @staticmethod
    def holds(row: dtypes.DType) -> bool:
        """Whether the format has this dtype. Other dtypes are stored as integers of equal width."""
        raise NotImplementedError

    def write(
        self, sink: Sink, spec: lowering.Node, parts: Sequence[OutputPart], metadata: Metadata
    ) -> None:
        """Writes a lowered value. `metadata` includes that of a Bundle."""
        raise NotImplementedError

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        spec, parts = lowering.lower(value, holds=self.holds)
        sink = MemorySink()
        outputs = [ArrayOutput(part) for part in parts]  # type: ignore[arg-type]
        self.write(sink, spec, outputs, all_metadata(value, metadata))
        return sink.buffers


def is_texts(value: object) -> TypeGuard[Metadata]:
    """Whether a JSON value of a file is valid metadata: an object of strings."""
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def check_document(
    document: object, what: str, version: int, needed: set[str], free: set[str], offset: int
) -> dict[str, Any]:
    """Checks the version and the keys of a JSON document that tensorwire adds to a file.

    It must have the `needed` keys, and may have the `free` ones. Raises DecodeError.
    """
    actual = document.get("version") if isinstance(document, dict) else None
    if not isinstance(document, dict) or actual != version:
        raise DecodeError(
            f"unsupported {what} version {actual!r:.20} (supported: {version})", offset=offset
        )
    if not {"version", *needed} <= document.keys() <= {"version", *needed, *free}:
        keys = ", ".join(sorted(needed)) + "".join(f", [{key}]" for key in sorted(free))
        raise DecodeError(f"invalid {what}: expected the keys version, {keys}", offset=offset)
    return document


def without_metadata(spec: lowering.Node) -> lowering.Node:
    """Returns the spec without the metadata of a bundle, for formats that store them elsewhere."""
    if not isinstance(spec, dict) or "bundle" not in spec:
        return spec
    return {key: item for key, item in spec.items() if key != "metadata"}


def refuse_metadata(metadata: Metadata | None, format: str) -> None:
    """Raises EncodeError for metadata. For formats that can store those of a Bundle only."""
    if metadata:
        raise EncodeError(
            "this format stores the metadata of a tw.Bundle only",
            format=format,
            hint="drop_metadata=True leaves them out",
        )


def all_metadata(value: Any, metadata: Metadata | None) -> Metadata:
    """Returns the metadata of a Bundle, extended by those of the caller. Both must be strings."""
    own = value.metadata if isinstance(value, Bundle) else {}
    return own | Bundle({}, metadata).metadata if metadata else own
