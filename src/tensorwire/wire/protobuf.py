"""Protobuf messages: varints, iteration over fields, and `MessageReader` for partial reads.

`MessageReader` returns fields by number and skips all others. A SavedModel's graph may have
hundreds of megabytes, of which the signatures are a few hundred bytes. So a file is read through a
small window that moves to the next field, and the number of fields that are visited is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

from .._errors import DecodeError, LimitError
from .._limits import Limits
from .reference import protobuf as message
from .status import BAD_UTF8, REPEATED, UNKNOWN_FIELD, problem

varint = message.to_varint
# For callers that iterate over fields themselves, because a Field object for each is too slow.
LEN, VARINT, Fault = message.LEN, message.VARINT, message.WireFault
tag, length, skip, read_varint = message.tag, message.length, message.skip, message.varint

Span = tuple[int, int]
"""The (start, stop) of a message's bytes."""
_WINDOW = 1 << 16
"""Bytes of a file that are read at a time."""
_DEPTH = 64
"""How deep messages may nest."""
_FIELDS = 2
"""Fields that may be visited for each of `Limits.names`."""


class Field(NamedTuple):
    number: int
    wire: int
    value: int | tuple[int, int]
    """A varint's value, or the (start, stop) of the bytes."""
    offset: int


def fields(
    view: memoryview, format: str, start: int = 0, end: int | None = None
) -> Iterator[Field]:
    """Yield the fields of a message in the order of the bytes.

    >>> [(f.number, f.value) for f in fields(memoryview(b"\\x08\\x05\\x12\\x02ab"), "any")]
    [(1, 5), (2, (4, 6))]
    """
    offset, stop = start, len(view) if end is None else end
    try:
        while offset < stop:
            begin = offset
            number, wire, offset = message.tag(view, offset, stop)
            if wire == message.VARINT:
                value, after = message.varint(view, offset, stop)
                yield Field(number, wire, value, begin)
            elif wire == message.LEN:
                size, offset = message.length(view, offset, stop)
                after = offset + size
                yield Field(number, wire, (offset, after), begin)
            else:
                after = message.skip(view, offset, stop, number, wire)
                yield Field(number, wire, (offset, after), begin)
            offset = after
    except message.WireFault as fault:
        raise problem(fault.status, fault.offset, format) from None


class RangeReadable(Protocol):
    """A source of bytes that can be read at any offset: see `storage.files`."""

    size: int

    def read_at(self, offset: int, count: int) -> memoryview: ...


class _Window:
    """A source as an indexable sequence of bytes, for `fields`, which reads in order."""

    def __init__(self, source: RangeReadable) -> None:
        self._source, self._start, self._bytes = source, 0, b""

    def __len__(self) -> int:
        return self._source.size

    def __getitem__(self, offset: int) -> int:
        place = offset - self._start
        if not 0 <= place < len(self._bytes):
            self._start, place = offset, 0
            self._bytes = bytes(
                self._source.read_at(offset, min(_WINDOW, self._source.size - offset))
            )
        return self._bytes[place]

    def piece(self, start: int, stop: int) -> bytes:
        if self._start <= start and stop <= self._start + len(self._bytes):
            return self._bytes[start - self._start : stop - self._start]
        return bytes(self._source.read_at(start, stop - start))


class MessageReader:
    """A reader of messages in a source. It raises LimitError if it visits too many fields."""

    def __init__(self, source: RangeReadable, format: str, limits: Limits) -> None:
        self.format, self.size, self.limits = format, source.size, limits
        self._view: Any = getattr(source, "view", None)
        if self._view is None:
            self._view = _Window(source)
        self._left = limits.names * _FIELDS

    def fields(self, span: Span) -> Iterator[Field]:
        """Yield all fields of a message in the order of the bytes."""
        for field in fields(cast(memoryview, self._view), self.format, *span):
            self._left -= 1
            if self._left < 0:
                raise LimitError(
                    f"more than {self.limits.names * _FIELDS:,} fields to read",
                    format=self.format,
                    offset=field.offset,
                    hint="pass a larger Limits(names=...)",
                )
            yield field

    def take(
        self,
        span: Span,
        once: Sequence[int] = (),
        many: Sequence[int] = (),
        numbers: Sequence[int] = (),
    ) -> dict[int, Any]:
        """Return fields by number.

        Fields in `once` are (start, stop) or None, those in `many` a list of (start, stop), those in
        `numbers` int, 0 if missing. All other fields are skipped, because newer versions of
        TensorFlow may add fields.
        """
        result: dict[int, Any] = (
            dict.fromkeys(once) | {number: [] for number in many} | dict.fromkeys(numbers, 0)
        )
        seen = set()
        for field in self.fields(span):
            number = field.number
            if number not in result:
                continue
            if field.wire != (VARINT if number in numbers else LEN):
                raise problem(UNKNOWN_FIELD, field.offset, self.format)
            if number in many:
                result[number].append(field.value)
                continue
            if number in seen:
                raise problem(REPEATED, field.offset, self.format)
            seen.add(number)
            result[number] = field.value
        return result

    def text(self, span: Span | None) -> str:
        """Return a string, "" if the span is None. Raises DecodeError if it is not UTF-8."""
        if span is None:
            return ""
        try:
            return self.raw(span).decode()
        except UnicodeDecodeError:
            raise problem(BAD_UTF8, span[0], self.format) from None

    def raw(self, span: Span) -> bytes:
        """Return the bytes of a span."""
        return (
            self._view.piece(*span)
            if isinstance(self._view, _Window)
            else bytes(self._view[slice(*span)])
        )

    def entries(self, spans: Sequence[Span]) -> dict[str, Span]:
        """Return the entries of a map. An entry without a value has an empty message."""
        result: dict[str, Span] = {}
        for span in spans:
            entry = self.take(span, once=(1, 2))
            key = self.text(entry[1])
            if key in result:
                raise DecodeError(
                    f"the name {key!r:.60} appears twice", format=self.format, offset=span[0]
                )
            result[key] = entry[2] or (span[1], span[1])
        return result

    def deeper(self, depth: int, span: Span) -> int:
        """Return depth + 1. Raises LimitError before nested messages can exhaust the stack."""
        if depth >= _DEPTH:
            raise LimitError(
                f"messages are nested more than {_DEPTH} levels deep",
                format=self.format,
                offset=span[0],
            )
        return depth + 1
