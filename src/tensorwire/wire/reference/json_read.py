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
        """How deep the numbers are."""
        self.lengths: list[Any] = [*(shape or ()), *(None,) * RANK][:RANK]
        self.splits: list[list[int]] = [[0] for _ in range(RANK)]
        self.deepest = 0
        self.values: list[bytes] = []

    def check_shape(self, at: int, shape: tuple[int, ...]) -> None:
        if len(shape) > RANK or 0 in shape:
            raise ValueError(
                "an array of nothing has no numbers to read, and NumPy has no more than 64 dims"
            )
        count = int(np.prod(np.array(shape, object), initial=1))
        if count > (len(self.data) - at) // 2 + 1:
            raise WireFault(status.WRONG_SHAPE, at)
        if count > self.most:
            raise WireFault(status.OVER_LIMIT, at)

    def space(self, at: int) -> int:
        """The next character that is something; there must be one."""
        at = _SPACE.match(self.data, at).end()  # type: ignore[union-attr]
        if at == len(self.data):
            raise WireFault(status.TRUNCATED, at)
        return at

    def read(self, at: int) -> int:
        """All of it; where it ends."""
        uneven, other_depth = (
            (status.WRONG_SHAPE,) * 2 if self.fixed else (status.RAGGED, status.MIXED_DEPTH)
        )
        counts: list[int] = []  # of the lists that are open
        while True:
            at = self.space(at)
            if self.data[at] == ord("["):
                depth = len(counts)
                if depth == RANK:
                    raise WireFault(status.TOO_DEEP, at)
                if self.leaf is not None and depth >= self.leaf:
                    raise WireFault(other_depth, at)
                if depth and counts[-1] == self.lengths[depth - 1]:
                    raise WireFault(uneven, at)
                counts.append(0)
                self.deepest = max(self.deepest, depth + 1)
                at = self.space(at + 1)
                if self.data[at] != ord("]"):
                    continue
            else:
                if self.data[at] in b"],}":
                    raise WireFault(status.BAD_JSON, at)
                if self.leaf is None and self.deepest == len(counts):
                    self.leaf = len(counts)
                if len(counts) != self.leaf:
                    raise WireFault(other_depth, at)
                at, count = self.row(
                    at,
                    self.lengths[len(counts) - 1] if counts else 1,
                    bool(counts),
                    uneven,
                    other_depth,
                )
                if not counts:
                    return at
                counts[-1] = count
            while self.data[at] == ord("]"):
                self.close(len(counts) - 1, counts.pop(), at, uneven)
                at += 1
                if not counts:
                    return at
                counts[-1] += 1
                at = self.space(at)
            if self.data[at] != ord(","):
                raise WireFault(status.BAD_JSON, at)
            at += 1

    def row(
        self, at: int, most: int | None, listed: bool, uneven: int, other_depth: int
    ) -> tuple[int, int]:
        """Numbers side by side: (where they end, how many)"""
        count = 0
        while True:
            if count == most:
                raise WireFault(uneven, at)
            if len(self.values) == self.most:
                raise WireFault(status.OVER_LIMIT, at)
            try:
                value, at = element(self.data, at, self.kind)
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
                return at, count
            at = self.space(at)
            if self.data[at] != ord(","):
                if self.data[at] != ord("]"):
                    raise WireFault(status.BAD_JSON, at)
                return at, count
            at = _SPACE.match(self.data, at + 1).end()  # type: ignore[union-attr]

    def close(self, level: int, count: int, at: int, uneven: int) -> None:
        if self.ragged and level:
            self.splits[level].append(self.splits[level][-1] + count)
        elif self.lengths[level] is None:
            self.lengths[level] = count
        elif self.lengths[level] != count:
            raise WireFault(uneven, at)


def element(data: bytes, at: int, kind: int) -> tuple[bytes, int]:
    """(its bytes, where it ends)

    >>> element(b"1.5,", 0, KINDS.index("float32"))
    (b'\\x00\\x00\\xc0?', 3)
    """
    name = KINDS[kind]
    if name == "bool":
        return _bool(data, at)
    found = _NUMBER.match(data, at)
    if found is None:
        if data[at:] in (b"", b"-"):
            raise WireFault(status.TRUNCATED, len(data))
        bits, end = _nonfinite(data, at, kind)
    elif name.startswith(("int", "uint")):
        bits, end = _integer(name, data, at)
    else:
        _check_end(data, at, found)
        bits, end = _float(kind, found[0].decode(), at), found.end()
    return bits.to_bytes(WIDTHS[kind], "little"), end


def _check_end(data: bytes, at: int, found: re.Match[bytes]) -> None:
    """That the number is not followed by something that would belong to it, were it right."""
    end = found.end()
    if found[2] is not None:
        return
    if found[1] is None and data[end : end + 1].isdigit():
        raise WireFault(status.BAD_NUMBER, at)
    more = _CUT.match(data, end)
    if more and not (found[1] is not None and more[0] == b"."):
        raise WireFault(
            *((status.TRUNCATED, len(data)) if more.end() == len(data) else (status.BAD_NUMBER, at))
        )


def _bool(data: bytes, at: int) -> tuple[bytes, int]:
    for value, word in enumerate((b"false", b"true")):
        if data.startswith(word, at):
            return bytes([value]), at + len(word)
        if word.startswith(data[at:]):
            raise WireFault(status.TRUNCATED, len(data))
    raise WireFault(status.NOT_BOOL, at)


def _nonfinite(data: bytes, at: int, kind: int) -> tuple[int, int]:
    found = _NONFINITE.match(data, at) if kind < len(FORMS) else None
    if found is None:
        if kind < len(FORMS) and any(word.startswith(data[at:]) for word in _WORDS):
            raise WireFault(status.TRUNCATED, len(data))
        raise WireFault(status.BAD_NUMBER, at)
    form, word = FORMS[kind], found[0].strip(b'"')
    bits = form.nan if word == b"NaN" else form.infinity
    if not bits:
        raise WireFault(status.OUT_OF_RANGE, at)
    return bits | (form.sign if word[:1] == b"-" else 0), found.end()


def _integer(name: str, data: bytes, at: int) -> tuple[int, int]:
    found = _INTEGER.match(data, at)
    assert found is not None  # the caller has seen a number there
    digits, end = found[0], found.end()
    if data[end : end + 1].isdigit():
        raise WireFault(status.BAD_NUMBER, at)  # behind a zero
    if data[end : end + 1] in (b".", b"e", b"E"):
        raise WireFault(status.NOT_INTEGER, at)
    lowest, highest = dtypes.bounds(dtypes.BY_NAME[name])
    if len(digits) > 30 or not lowest <= int(digits) <= highest:
        raise WireFault(status.OUT_OF_RANGE, at)
    return int(digits) & ((1 << dtypes.BY_NAME[name].bits) - 1), end


def _float(kind: int, text: str, at: int) -> int:
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
        raise WireFault(status.OUT_OF_RANGE, at)
    return bits


def _float32(text: str, value: float) -> int | None:
    """Rounded once: where the float64 is half way between two float32, it may have been rounded
    there itself, and the digits decide.
    """
    with np.errstate(over="ignore"):
        near = np.float32(value)
        other = np.nextafter(near, np.float32(np.inf if value > float(near) else -np.inf))
    limit = 2.0**128  # what would come after the largest
    a, b = (
        float(np.copysign(limit, value)) if np.isinf(one) else float(one) for one in (near, other)
    )
    if value != a and value == (a + b) / 2:
        exact = Fraction(Decimal(text))
        if exact != Fraction(value):
            near = min(
                (near, other),
                key=lambda one: abs(
                    Fraction(limit if np.isinf(one) else float(abs(one))) - abs(exact)
                ),
            )
    return None if np.isinf(near) else int(near.view(np.uint32))
