"""Protobuf messages that have no kernel of their own: varints, and walking the fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .reference import protobuf as message
from .status import problem

varint = message.to_varint
# For those who walk by themselves, because a Field for each would cost too much.
LEN, VARINT, Fault = message.LEN, message.VARINT, message.WireFault
tag, length, skip, read_varint = message.tag, message.length, message.skip, message.varint


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
