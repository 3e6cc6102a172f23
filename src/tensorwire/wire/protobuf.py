"""Protobuf messages of which a little is read: varints, a walk over the fields of a message, and
`MessageReader`, which takes fields by number and skips everything else.

A SavedModel's graph may take hundreds of megabytes, of which its signatures need a few hundred
bytes. So `MessageReader` reads a file through a small window that moves to where the next field is,
and the number of fields that it looks at is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

from .._errors import DecodeError, LimitError
from .._limits import Limits
from .reference import protobuf as message
from .status import BAD_UTF8, REPEATED, UNKNOWN_FIELD, problem

varint = message.to_varint
# For those who walk by themselves, because a Field for each would cost too much.
LEN, VARINT, Fault = message.LEN, message.VARINT, message.WireFault
tag, length, skip, read_varint = message.tag, message.length, message.skip, message.varint

Span = tuple[int, int]
"""Where a message's bytes start and stop."""
_WINDOW = 1 << 16
_DEPTH = 64
"""How deep messages may nest."""
_FIELDS = 2
"""For each of `Limits.names`, the fields that may be looked at."""


class Field(NamedTuple):
    number: int
    wire: int
    value: int | tuple[int, int]
    """A varint's value, or the (start, stop) of the bytes."""
    offset: int


def fields(
    view: memoryview, format: str, start: int = 0, end: int | None = None
) -> Iterator[Field]:
    """The fields of a message that has no kernel of its own, one by one, in the order of the bytes.

    >>> [(f.number, f.value) for f in fields(memoryview(b"\\x08\\x05\\x12\\x02ab"), "any")]
    [(1, 5), (2, (4, 6))]
    """
    at, stop = start, len(view) if end is None else end
    try:
        while at < stop:
            begin = at
            number, wire, at = message.tag(view, at, stop)
            if wire == message.VARINT:
                value, after = message.varint(view, at, stop)
                yield Field(number, wire, value, begin)
            elif wire == message.LEN:
                size, at = message.length(view, at, stop)
                after = at + size
                yield Field(number, wire, (at, after), begin)
            else:
                after = message.skip(view, at, stop, number, wire)
                yield Field(number, wire, (at, after), begin)
            at = after
    except message.WireFault as fault:
        raise problem(fault.status, fault.offset, format) from None


class RangeReadable(Protocol):
    """Bytes that can be read at any offset: see `storage.files`."""

    size: int

    def read_at(self, offset: int, count: int) -> memoryview: ...


class _Window:
    """Bytes of a source by their place, as `fields` asks for them."""

    def __init__(self, source: RangeReadable) -> None:
        self._source, self._start, self._bytes = source, 0, b""

    def __len__(self) -> int:
        return self._source.size

    def __getitem__(self, at: int) -> int:
        place = at - self._start
        if not 0 <= place < len(self._bytes):
            self._start, place = at, 0
            self._bytes = bytes(self._source.read_at(at, min(_WINDOW, self._source.size - at)))
        return self._bytes[place]

    def piece(self, start: int, stop: int) -> bytes:
        if self._start <= start and stop <= self._start + len(self._bytes):
            return self._bytes[start - self._start : stop - self._start]
        return bytes(self._source.read_at(start, stop - start))


class MessageReader:
    """The messages in a source."""

    def __init__(self, source: RangeReadable, format: str, limits: Limits) -> None:
        self.format, self.size, self.limits = format, source.size, limits
        self._view: Any = getattr(source, "view", None)
        if self._view is None:
            self._view = _Window(source)
        self._left = limits.names * _FIELDS

    def fields(self, span: Span) -> Iterator[Field]:
        """All fields of a message, in the order of the bytes."""
        for field in fields(cast(memoryview, self._view), self.format, *span):
            self._left -= 1
            if self._left < 0:
                raise LimitError(
                    f"more than {self.limits.names * _FIELDS:,} fields to look at;"
                    " tw.Limits(names=...) allows more",
                    format=self.format,
                    offset=field.offset,
                )
            yield field

    def take(
        self,
        span: Span,
        once: Sequence[int] = (),
        many: Sequence[int] = (),
        numbers: Sequence[int] = (),
    ) -> dict[int, Any]:
        """Fields by number: those of `once` as (start, stop) or None, those of `many` as a list of
        them, those of `numbers` as int, 0 if they are not there. Whatever else the message has is
        skipped: newer versions of TensorFlow may have added it."""
        found: dict[int, Any] = (
            dict.fromkeys(once) | {number: [] for number in many} | dict.fromkeys(numbers, 0)
        )
        seen = set()
        for field in self.fields(span):
            number = field.number
            if number not in found:
                continue
            if field.wire != (VARINT if number in numbers else LEN):
                raise problem(UNKNOWN_FIELD, field.offset, self.format)
            if number in many:
                found[number].append(field.value)
                continue
            if number in seen:
                raise problem(REPEATED, field.offset, self.format)
            seen.add(number)
            found[number] = field.value
        return found

    def text(self, span: Span | None) -> str:
        """A string; empty if it is not there."""
        if span is None:
            return ""
        try:
            return self.raw(span).decode()
        except UnicodeDecodeError:
            raise problem(BAD_UTF8, span[0], self.format) from None

    def raw(self, span: Span) -> bytes:
        """The bytes themselves."""
        return (
            self._view.piece(*span)
            if isinstance(self._view, _Window)
            else bytes(self._view[slice(*span)])
        )

    def entries(self, spans: Sequence[Span]) -> dict[str, Span]:
        """A map's entries. One without a value is one of an empty message, as protobuf has it."""
        found: dict[str, Span] = {}
        for span in spans:
            entry = self.take(span, once=(1, 2))
            key = self.text(entry[1])
            if key in found:
                raise DecodeError(
                    f"the name {key!r:.60} stands twice", format=self.format, offset=span[0]
                )
            found[key] = entry[2] or (span[1], span[1])
        return found

    def deeper(self, depth: int, span: Span) -> int:
        """One level further down; too many of them are an error, and not the end of the stack."""
        if depth >= _DEPTH:
            raise LimitError(
                f"messages nested more than {_DEPTH} deep", format=self.format, offset=span[0]
            )
        return depth + 1
