"""What all the messages have in common: how fields are written and found, and the ModelSpec.

Unknown fields are skipped. A field that may stand once, or a name in a map, that stands twice is an
error: protobuf would merge them, or take the last, and nobody writes that on purpose.
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
"""Wire types."""


class ModelSpec(NamedTuple):
    """Which model, and which version and signature of it.

    >>> write_spec(ModelSpec("ranker", version=3)).hex(" ")
    '0a 06 72 61 6e 6b 65 72 12 02 08 03'
    """

    name: str
    version: int | None = None
    """None for the latest, or the one that the label says."""
    label: str | None = None
    signature: str = ""
    """Empty for "serving_default"."""


# Writing


def varint(number: int, value: int) -> bytes:
    """An integer; nothing if it is zero, as proto3 has it.

    >>> varint(1, 300), varint(1, 0)
    (b'\\x08\\xac\\x02', b'')
    """
    return (
        protobuf.varint(number << 3) + protobuf.varint(value & (2 * _INT64 - 1)) if value else b""
    )


def header(number: int, size: int) -> bytes:
    """What stands before the `size` bytes of a string or message."""
    return protobuf.varint(number << 3 | LEN) + protobuf.varint(size)


def piece(number: int, data: bytes) -> bytes:
    """A string or message; it is there even if it is empty.

    >>> piece(1, b"ab")
    b'\\n\\x02ab'
    """
    return header(number, len(data)) + data


def text(number: int, value: str) -> bytes:
    """A string that may be left out if it is empty."""
    return piece(number, encoded(value)) if value else b""


def encoded(value: str) -> bytes:
    if not isinstance(value, str):
        raise EncodeError(f"a name is text, not {type(value).__name__}", format=FORMAT)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise EncodeError(
            f"{value!r:.60} has a lone surrogate, so it is not text that UTF-8 can hold",
            format=FORMAT,
        ) from None


def whole(chunks: Iterable[Any]) -> list[Any]:
    """A message that is ready, if it is not too long to be one."""
    found = [chunk for chunk in chunks if len(chunk)]
    size = sum(map(len, found))
    if size > MAX_MESSAGE:
        raise EncodeError(
            f"{size} bytes in one message, and a gRPC message ends at {MAX_MESSAGE}; send fewer"
            " rows at a time",
            format=FORMAT,
        )
    return found


def write_spec(model: ModelSpec) -> bytes:
    if model.version is not None and model.label is not None:
        raise EncodeError(
            f"version={model.version} and label={model.label!r} at once; one of them says which",
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
                f"a version is a number that fits int64, not {model.version!r:.40}", format=FORMAT
            )
        chunks.append(piece(2, varint(1, int(model.version))))
    chunks.append(text(3, model.signature))
    if model.label is not None:
        chunks.append(piece(4, encoded(model.label)))
    return b"".join(chunks)


# Reading


class Fields(MessageReader):
    """The fields of a message in memory, quickly: a stranger may send millions. Groups, which
    proto3 does not have, are refused.
    """

    def __init__(self, data: Buffer, limits: Limits, share: int = 1) -> None:
        """`share` is for messages that have no use for as many fields as `Limits.names` allows:
        they get one of so many.
        """
        view = memory.flat(data)
        super().__init__(files.BytesSource(view), FORMAT, limits)
        self.view, self.whole = view, (0, len(view))
        # Single bytes of a bytes object are read quicker, and gRPC's messages are that already.
        self.data: Any = (
            view.obj if isinstance(view.obj, bytes) and len(view.obj) == len(view) else view
        )
        self._left = max(1, self._left // share)

    def fields(self, span: Span) -> Iterator[Field]:
        data, (at, stop) = self.data, span
        try:
            while at < stop:
                begin, tag = at, data[at]
                # as everyone writes what is short
                if tag & 0x87 == LEN and tag > 7 and stop - at > 1 and data[at + 1] < 0x80:
                    number, wire, at, after = tag >> 3, LEN, at + 2, at + 2 + data[at + 1]
                    value: Any = at, after
                    if after > stop:
                        raise Fault(TRUNCATED, begin)
                else:
                    self._left -= 1  # which takes longer
                    number, wire, at = protobuf.tag(data, at, stop)
                    if wire == VARINT:
                        value, after = protobuf.read_varint(data, at, stop)
                    elif wire == LEN:
                        size, at = protobuf.length(data, at, stop)
                        value = at, (after := at + size)
                    elif wire in _GROUPS:
                        raise Fault(UNKNOWN_FIELD, begin)
                    else:
                        value = at, (after := protobuf.skip(data, at, stop, number, wire))
                self._left -= 1
                if self._left < 0:
                    self.spend(0, begin)
                yield Field(number, wire, value, begin)
                at = after
        except Fault as fault:
            raise problem(fault.status, fault.offset, FORMAT) from None

    def pieces(
        self, span: Span, what: str, numbers: tuple[int, ...] = (1,)
    ) -> Iterator[tuple[int, Span]]:
        """The strings and messages of these numbers, one by one."""
        for count, field in enumerate(self.fields(span)):
            if field.number in numbers:
                self.check(count, self.limits.names, what, field.offset)
                yield field.number, located(field)

    def bytes(self, span: Span) -> bytes:
        return bytes(self.data[span[0] : span[1]])

    def spend(self, count: int, offset: int) -> None:
        self._left -= count
        if self._left < 0:
            raise LimitError(
                "more fields than anyone sends; tw.Limits(names=...) allows more",
                format=FORMAT,
                offset=offset,
            )

    def check(self, count: int, most: int, what: str, offset: int) -> None:
        if count >= most:
            raise LimitError(
                f"more than {most:,} {what}; tw.Limits(names=...) allows more",
                format=FORMAT,
                offset=offset,
            )

    def entry(self, field: Field) -> tuple[str, Span]:
        """The key of a map's entry, and where the value is: at the end, if there is none."""
        start, stop = located(field)
        data = self.data
        # as everyone writes it: a short key, then the value
        if stop - start > 2 and data[start] == 0x0A and data[start + 1] < 0x80:
            middle = start + 2 + data[start + 1]
            if middle + 1 < stop and data[middle] == 0x12:
                size, after = self._length(middle + 1, stop)
                if after + size == stop:
                    return self.text((start + 2, middle)), (after, stop)
        found = self.take((start, stop), once=(1, 2))
        return self.text(found[1]), found[2] or (stop, stop)

    def _length(self, at: int, stop: int) -> tuple[int, int]:
        try:
            return protobuf.length(self.data, at, stop)
        except Fault as fault:
            raise problem(fault.status, fault.offset, FORMAT) from None

    def spec(self, at: Span | None) -> ModelSpec:
        """A ModelSpec; one that is not there is one of an empty name."""
        if at is None:
            return ModelSpec("")
        found = self.take(at, once=(1, 2, 3, 4))
        if found[2] is not None and found[4] is not None:
            raise DecodeError(
                "a model by version and by label at once", format=FORMAT, offset=at[0]
            )
        version = None if found[2] is None else signed(self.take(found[2], numbers=(1,))[1])
        label = None if found[4] is None else self.text(found[4])
        return ModelSpec(self.text(found[1]), version, label, self.text(found[3]))


def located(field: Field) -> Span:
    """Where the bytes of a string or message are."""
    if field.wire != LEN:
        raise problem(UNKNOWN_FIELD, field.offset, FORMAT)
    return cast(Span, field.value)


def signed(value: int) -> int:
    return value - 2 * _INT64 if value >= _INT64 else value
