"""Protobuf fields: how the fields of a message are written and read, and the ModelSpec message.

Unknown fields are skipped. A repeated singular field and a duplicate key of a map are errors.
Protobuf would merge them or use the last one, but no real client or server writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from ..._errors import DecodeError, EncodeError, LimitError
from ..._limits import Limits
from ...core import memory
from ...core.memory import Buffer
from ...storage import files
from ...wire import protobuf
from ...wire.protobuf import LEN, VARINT, Fault, Field, MessageReader, Span
from ...wire.status import MAX_MESSAGE, TRUNCATED, UNKNOWN_FIELD, problem

FORMAT = "grpc"
_INT64 = 1 << 63
_GROUPS = (3, 4)
"""The wire types of groups."""


class ModelSpec(NamedTuple):
    """The name of a model, and which version and signature of it.

    >>> write_spec(ModelSpec("ranker", version=3)).hex(" ")
    '0a 06 72 61 6e 6b 65 72 12 02 08 03'
    """

    name: str
    version: int | None = None
    """None for the latest version, or that of the label."""
    label: str | None = None
    signature: str = ""
    """Empty for "serving_default"."""


# Writing


def varint(number: int, value: int) -> bytes:
    """Return an integer field; empty if the value is zero, as in proto3.

    >>> varint(1, 300), varint(1, 0)
    (b'\\x08\\xac\\x02', b'')
    """
    return (
        protobuf.varint(number << 3) + protobuf.varint(value & (2 * _INT64 - 1)) if value else b""
    )


def header(number: int, size: int) -> bytes:
    """Return the tag and length before the `size` bytes of a string or message."""
    return protobuf.varint(number << 3 | LEN) + protobuf.varint(size)


def piece(number: int, data: bytes) -> bytes:
    """Return a string or message field, even if it is empty.

    >>> piece(1, b"ab")
    b'\\n\\x02ab'
    """
    return header(number, len(data)) + data


def text(number: int, value: str) -> bytes:
    """Return a string field; empty if the string is empty."""
    return piece(number, encoded(value)) if value else b""


def encoded(value: str) -> bytes:
    """Return a name as UTF-8."""
    if not isinstance(value, str):
        raise EncodeError(
            f"expected a name that is a string, got {type(value).__name__}", format=FORMAT
        )
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise EncodeError(
            f"cannot encode {value!r:.60} as UTF-8: it has a lone surrogate",
            format=FORMAT,
        ) from None


def whole(chunks: Iterable[Any]) -> list[Any]:
    """Return the chunks of a message; raise EncodeError if they are too long for one."""
    parts = [chunk for chunk in chunks if len(chunk)]
    size = sum(map(len, parts))
    if size > MAX_MESSAGE:
        raise EncodeError(
            f"the message has {size} bytes, but a gRPC message has at most {MAX_MESSAGE}",
            format=FORMAT,
            hint="send fewer rows at a time",
        )
    return parts


def write_spec(model: ModelSpec) -> bytes:
    """Return a serialized ModelSpec."""
    if model.version is not None and model.label is not None:
        raise EncodeError(
            f"expected a version or a label, got version={model.version} and label={model.label!r}",
            format=FORMAT,
        )
    chunks = [text(1, model.name)]
    if model.version is not None:
        if (
            isinstance(model.version, bool)
            or not hasattr(model.version, "__index__")
            or not -_INT64 <= model.version < _INT64
        ):
            raise EncodeError(
                f"expected a version that fits int64, got {model.version!r:.40}", format=FORMAT
            )
        chunks.append(piece(2, varint(1, int(model.version))))
    chunks.append(text(3, model.signature))
    if model.label is not None:
        chunks.append(piece(4, encoded(model.label)))
    return b"".join(chunks)


# Reading


class Fields(MessageReader):
    """A fast reader of the fields of a message in memory.

    A client may send millions of fields, so their number is limited: every field costs one unit of
    a budget, and slow ones cost more. Groups, which proto3 does not have, are refused.
    """

    def __init__(self, data: Buffer, limits: Limits, share: int = 1) -> None:
        """`share` divides the number of fields that `Limits.names` allows, for messages that need
        fewer.
        """
        view = memory.flat(data)
        super().__init__(files.BytesSource(view), FORMAT, limits)
        self.view, self.whole = view, (0, len(view))
        # Reading single bytes is faster from a bytes object than from a memoryview, and messages
        # from gRPC are bytes already.
        self.data: Any = (
            view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else view
        )
        self._left = max(1, self._left // share)

    def fields(self, span: Span) -> Iterator[Field]:
        """Yield the fields of a message."""
        data, (offset, stop) = self.data, span
        try:
            while offset < stop:
                begin, tag = offset, data[offset]
                # The fast path: a string or message with a tag and a length of one byte each.
                if tag & 0x87 == LEN and tag > 7 and stop - offset > 1 and data[offset + 1] < 0x80:
                    number, wire, offset, after = (
                        tag >> 3,
                        LEN,
                        offset + 2,
                        offset + 2 + data[offset + 1],
                    )
                    value: Any = offset, after
                    if after > stop:
                        raise Fault(TRUNCATED, begin)
                else:
                    # This path takes longer, so a field costs two units of the budget.
                    self._left -= 1
                    number, wire, offset = protobuf.tag(data, offset, stop)
                    if wire == VARINT:
                        value, after = protobuf.read_varint(data, offset, stop)
                    elif wire == LEN:
                        size, offset = protobuf.length(data, offset, stop)
                        value = offset, (after := offset + size)
                    elif wire in _GROUPS:
                        raise Fault(UNKNOWN_FIELD, begin)
                    else:
                        value = offset, (after := protobuf.skip(data, offset, stop, number, wire))
                self._left -= 1
                if self._left < 0:
                    self.spend(0, begin)
                yield Field(number, wire, value, begin)
                offset = after
        except Fault as fault:
            raise problem(fault.status, fault.offset, FORMAT) from None

    def pieces(
        self, span: Span, what: str, numbers: tuple[int, ...] = (1,)
    ) -> Iterator[tuple[int, Span]]:
        """Yield the number and span of each string or message field of these numbers."""
        for count, field in enumerate(self.fields(span)):
            if field.number in numbers:
                self.check(count, self.limits.names, what, field.offset)
                yield field.number, located(field)

    def bytes(self, span: Span) -> bytes:
        """Return the bytes of a span."""
        return bytes(self.data[span[0] : span[1]])

    def spend(self, count: int, offset: int) -> None:
        """Take units from the budget of fields; raise LimitError if it is exceeded."""
        self._left -= count
        if self._left < 0:
            raise LimitError(
                "the message has too many fields",
                format=FORMAT,
                offset=offset,
                hint="use tw.Limits(names=...) to allow more",
            )

    def check(self, count: int, most: int, what: str, offset: int) -> None:
        """Raise LimitError if there are too many items."""
        if count >= most:
            raise LimitError(
                f"more than {most:,} {what}",
                format=FORMAT,
                offset=offset,
                hint="use tw.Limits(names=...) to allow more",
            )

    def entry(self, field: Field) -> tuple[str, Span]:
        """Return the key of a map entry and the span of its value, empty if it is missing."""
        start, stop = located(field)
        data = self.data
        # The fast path: a key of less than 128 bytes, then the value, and nothing else.
        if stop - start > 2 and data[start] == 0x0A and data[start + 1] < 0x80:
            middle = start + 2 + data[start + 1]
            if middle + 1 < stop and data[middle] == 0x12:
                size, after = self._length(middle + 1, stop)
                if after + size == stop:
                    return self.text((start + 2, middle)), (after, stop)
        fields = self.take((start, stop), once=(1, 2))
        return self.text(fields[1]), fields[2] or (stop, stop)

    def _length(self, offset: int, stop: int) -> tuple[int, int]:
        try:
            return protobuf.length(self.data, offset, stop)
        except Fault as fault:
            raise problem(fault.status, fault.offset, FORMAT) from None

    def spec(self, span: Span | None) -> ModelSpec:
        """Return a ModelSpec; one with an empty name if it is missing."""
        if span is None:
            return ModelSpec("")
        fields = self.take(span, once=(1, 2, 3, 4))
        if fields[2] is not None and fields[4] is not None:
            raise DecodeError(
                "expected a model version or a label, got both", format=FORMAT, offset=span[0]
            )
        version = None if fields[2] is None else signed(self.take(fields[2], numbers=(1,))[1])
        label = None if fields[4] is None else self.text(fields[4])
        return ModelSpec(self.text(fields[1]), version, label, self.text(fields[3]))


def located(field: Field) -> Span:
    """Return the span of a string or message field."""
    if field.wire != LEN:
        raise problem(UNKNOWN_FIELD, field.offset, FORMAT)
    return cast(Span, field.value)


def signed(value: int) -> int:
    """Return an int64 from its varint, which is unsigned."""
    return value - 2 * _INT64 if value >= _INT64 else value
