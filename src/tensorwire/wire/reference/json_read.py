"""Nested lists of JSON numbers, read into an array."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.memory import Array, flat
from .. import status
from .json_numbers import FORMS, KINDS, WIDTHS, small
from .protobuf import WireFault

RANK = 64
_SPACE = re.compile(rb"[ \t\n\r]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_CUT = re.compile(rb"\.|[eE][+-]?")
_NONFINITE = re.compile(rb'"(?:NaN|-?Infinity)"|NaN|-?Infinity')
_WORDS = (b'"NaN"', b'"Infinity"', b'"-Infinity"', b"NaN", b"Infinity", b"-Infinity")


def json_read_numbers(
    text: Any, at: int, kind: int, shape: tuple[int, ...] | None, ragged: bool, most: int
) -> tuple[int, int, int, tuple[int, ...], Array | None, list[Array]]:
    if not 0 <= kind < len(KINDS):
        raise ValueError("no such kind of numbers")
    data = bytes(flat(text))
    if at > len(data):
        raise ValueError("at is past the end")
    reader = _Reader(data, kind, shape, ragged, most)
    try:
        if shape is not None:
            reader.check_shape(at, shape)
        end = reader.read(at)
    except WireFault as fault:
        return fault.status, fault.offset, 0, (), None, []
    values = np.frombuffer(bytearray(b"".join(reader.values)), np.uint8)
    rank = reader.deepest if reader.leaf is None else reader.leaf
    if not ragged:
        return 0, 0, end, tuple(reader.lengths[:rank]), values, []
    return (
        0,
        0,
        end,
        tuple(reader.lengths[: min(rank, 1)]),
        values,
        [np.array(reader.splits[i], np.int64) for i in range(1, rank)],
    )


class _Reader:
    def __init__(
        self, data: bytes, kind: int, shape: tuple[int, ...] | None, ragged: bool, most: int
    ) -> None:
        self.data, self.kind, self.fixed, self.ragged, self.most = (
            data,
            kind,
            shape is not None,
            ragged,
            most,
        )
        self.leaf = None if shape is None else len(shape)
        """The depth of the numbers, once it is known."""
        self.lengths: list[Any] = [*(shape or ()), *(None,) * RANK][:RANK]
        self.splits: list[list[int]] = [[0] for _ in range(RANK)]
        self.deepest = 0
        self.values: list[bytes] = []

    def check_shape(self, offset: int, shape: tuple[int, ...]) -> None:
        if len(shape) > RANK or 0 in shape:
            raise ValueError(
                "an array of nothing has no numbers to read, and NumPy has no more than 64 dims"
            )
        count = int(np.prod(np.array(shape, object), initial=1))
        if count > (len(self.data) - offset) // 2 + 1:
            raise WireFault(status.WRONG_SHAPE, offset)
        if count > self.most:
            raise WireFault(status.OVER_LIMIT, offset)

    def space(self, offset: int) -> int:
        """Return the offset of the next character that is not white space. There must be one."""
        offset = _SPACE.match(self.data, offset).end()  # type: ignore[union-attr]
        if offset == len(self.data):
            raise WireFault(status.TRUNCATED, offset)
        return offset

    def read(self, offset: int) -> int:
        """Read all lists and numbers, and return where they end."""
        uneven, other_depth = (
            (status.WRONG_SHAPE,) * 2 if self.fixed else (status.RAGGED, status.MIXED_DEPTH)
        )
        # The number of items so far of each list that is open.
        counts: list[int] = []
        while True:
            offset = self.space(offset)
            if self.data[offset] == ord("["):
                depth = len(counts)
                if depth == RANK:
                    raise WireFault(status.TOO_DEEP, offset)
                if self.leaf is not None and depth >= self.leaf:
                    raise WireFault(other_depth, offset)
                if depth and counts[-1] == self.lengths[depth - 1]:
                    raise WireFault(uneven, offset)
                counts.append(0)
                self.deepest = max(self.deepest, depth + 1)
                offset = self.space(offset + 1)
                if self.data[offset] != ord("]"):
                    continue
            else:
                if self.data[offset] in b"],}":
                    raise WireFault(status.BAD_JSON, offset)
                if self.leaf is None and self.deepest == len(counts):
                    self.leaf = len(counts)
                if len(counts) != self.leaf:
                    raise WireFault(other_depth, offset)
                offset, count = self.row(
                    offset,
                    self.lengths[len(counts) - 1] if counts else 1,
                    bool(counts),
                    uneven,
                    other_depth,
                )
                if not counts:
                    return offset
                counts[-1] = count
            while self.data[offset] == ord("]"):
                self.close(len(counts) - 1, counts.pop(), offset, uneven)
                offset += 1
                if not counts:
                    return offset
                counts[-1] += 1
                offset = self.space(offset)
            if self.data[offset] != ord(","):
                raise WireFault(status.BAD_JSON, offset)
            offset += 1

    def row(
        self, offset: int, most: int | None, listed: bool, uneven: int, other_depth: int
    ) -> tuple[int, int]:
        """Read consecutive numbers, and return where they end and how many there are."""
        count = 0
        while True:
            if count == most:
                raise WireFault(uneven, offset)
            if len(self.values) == self.most:
                raise WireFault(status.OVER_LIMIT, offset)
            try:
                value, offset = element(self.data, offset, self.kind)
            except WireFault as fault:
                raise WireFault(
                    (
                        other_depth
                        if self.data[fault.offset : fault.offset + 1] == b"["
                        else fault.status
                    ),
                    fault.offset,
                ) from None
            self.values.append(value)
            count += 1
            if not listed:
                return offset, count
            offset = self.space(offset)
            if self.data[offset] != ord(","):
                if self.data[offset] != ord("]"):
                    raise WireFault(status.BAD_JSON, offset)
                return offset, count
            offset = _SPACE.match(self.data, offset + 1).end()  # type: ignore[union-attr]

    def close(self, level: int, count: int, offset: int, uneven: int) -> None:
        if self.ragged and level:
            self.splits[level].append(self.splits[level][-1] + count)
        elif self.lengths[level] is None:
            self.lengths[level] = count
        elif self.lengths[level] != count:
            raise WireFault(uneven, offset)


def element(data: bytes, offset: int, kind: int) -> tuple[bytes, int]:
    """Return the bytes of one number and where its text ends.

    >>> element(b"1.5,", 0, KINDS.index("float32"))
    (b'\\x00\\x00\\xc0?', 3)
    """
    name = KINDS[kind]
    if name == "bool":
        return _bool(data, offset)
    match = _NUMBER.match(data, offset)
    if match is None:
        if data[offset:] in (b"", b"-"):
            raise WireFault(status.TRUNCATED, len(data))
        bits, end = _nonfinite(data, offset, kind)
    elif name.startswith(("int", "uint")):
        bits, end = _integer(name, data, offset)
    else:
        _check_end(data, offset, match)
        bits, end = _float(kind, match[0].decode(), offset), match.end()
    return bits.to_bytes(WIDTHS[kind], "little"), end


def _check_end(data: bytes, offset: int, match: re.Match[bytes]) -> None:
    """Raise a fault if the next character shows that the number is malformed or truncated."""
    end = match.end()
    if match[2] is not None:
        return
    if match[1] is None and data[end : end + 1].isdigit():
        raise WireFault(status.BAD_NUMBER, offset)
    more = _CUT.match(data, end)
    if more and not (match[1] is not None and more[0] == b"."):
        raise WireFault(
            *(
                (status.TRUNCATED, len(data))
                if more.end() == len(data)
                else (status.BAD_NUMBER, offset)
            )
        )


def _bool(data: bytes, offset: int) -> tuple[bytes, int]:
    for value, word in enumerate((b"false", b"true")):
        if data.startswith(word, offset):
            return bytes([value]), offset + len(word)
        if word.startswith(data[offset:]):
            raise WireFault(status.TRUNCATED, len(data))
    raise WireFault(status.NOT_BOOL, offset)


def _nonfinite(data: bytes, offset: int, kind: int) -> tuple[int, int]:
    match = _NONFINITE.match(data, offset) if kind < len(FORMS) else None
    if match is None:
        if kind < len(FORMS) and any(word.startswith(data[offset:]) for word in _WORDS):
            raise WireFault(status.TRUNCATED, len(data))
        raise WireFault(status.BAD_NUMBER, offset)
    form, word = FORMS[kind], match[0].strip(b'"')
    bits = form.nan if word == b"NaN" else form.infinity
    if not bits:
        raise WireFault(status.OUT_OF_RANGE, offset)
    return bits | (form.sign if word[:1] == b"-" else 0), match.end()


def _integer(name: str, data: bytes, offset: int) -> tuple[int, int]:
    match = _INTEGER.match(data, offset)
    # The caller has matched a number here. A digit after it can only follow a leading zero.
    assert match is not None
    digits, end = match[0], match.end()
    if data[end : end + 1].isdigit():
        raise WireFault(status.BAD_NUMBER, offset)
    if data[end : end + 1] in (b".", b"e", b"E"):
        raise WireFault(status.NOT_INTEGER, offset)
    lowest, highest = dtypes.bounds(dtypes.BY_NAME[name])
    if len(digits) > 30 or not lowest <= int(digits) <= highest:
        raise WireFault(status.OUT_OF_RANGE, offset)
    return int(digits) & ((1 << dtypes.BY_NAME[name].bits) - 1), end


def _float(kind: int, text: str, offset: int) -> int:
    value, bits = float(text), None
    if KINDS[kind] == "float64":
        bits = (
            int.from_bytes(struct.pack("<d", value), "little")
            if abs(value) != float("inf")
            else None
        )
    elif KINDS[kind] == "float32":
        bits = _float32(text, value)
    elif abs(value) != float("inf"):
        bits = small(kind, value)
    if bits is None:
        raise WireFault(status.OUT_OF_RANGE, offset)
    return bits


def _float32(text: str, value: float) -> int | None:
    """Return the bits of the nearest float32, rounded once; None if it is out of range.

    If the float64 is exactly between two float32, it may be there only because it was rounded
    itself. Then the exact decimal decides.
    """
    with np.errstate(over="ignore"):
        near = np.float32(value)
        other = np.nextafter(near, np.float32(np.inf if value > float(near) else -np.inf))
    # The number that would follow the largest float32, in place of infinity.
    limit = 2.0**128
    a, b = (
        float(np.copysign(limit, value)) if np.isinf(candidate) else float(candidate)
        for candidate in (near, other)
    )
    if value != a and value == (a + b) / 2:
        exact = Fraction(Decimal(text))
        if exact != Fraction(value):
            near = min(
                (near, other),
                key=lambda candidate: abs(
                    Fraction(limit if np.isinf(candidate) else float(abs(candidate))) - abs(exact)
                ),
            )
    return None if np.isinf(near) else int(near.view(np.uint32))
