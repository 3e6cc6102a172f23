"""Thrift's compact protocol, which Parquet's headers are written in: reading only, and as the C++
library reads it.

A struct has fields by numbers, each with its type. A shape says which fields are known: of a list
it says what is in it, which must be what the bytes say, because the library does not look. What is
not known, or of another type, is skipped.
"""

from __future__ import annotations

from typing import Any

from .._errors import DecodeError, TruncatedError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Shape = dict[int, Any]
"""Field number -> its type, the shape of a struct, or [type or shape] of a list."""
_DEPTH = 32


class ThriftReader:
    """Goes through bytes from their beginning; `base` is where that is in the whole input."""

    def __init__(self, data: memoryview, base: int = 0) -> None:
        self.data, self.at, self._base = data, 0, base

    def struct(self, shape: Shape, depth: int = 0) -> dict[int, Any]:
        """The fields that the shape knows.

        >>> ThriftReader(memoryview(bytes([0x15, 0x06, 0x18, 1, 65, 0]))).struct({1: I32})
        {1: 3}
        """
        if depth > _DEPTH:
            raise self._bad("structs nested too deep")
        found: dict[int, Any] = {}
        number = 0
        while kind := (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            wanted = shape.get(number)
            if kind == STRUCT and isinstance(wanted, dict):
                found[number] = self.struct(wanted, depth + 1)
            elif kind == LIST and isinstance(wanted, list):
                found[number] = self._list(wanted[0], depth + 1)
            elif kind == wanted:
                found[number] = self._value(kind, depth)
            elif kind not in (TRUE, FALSE):
                self._value(kind, depth)
        return found

    def _list(self, inside: Any, depth: int) -> list[Any]:
        kind, count = self._head()
        wanted = STRUCT if isinstance(inside, dict) else inside
        if count and kind != wanted:
            raise self._bad(f"a list of the type {kind} where Parquet has {wanted}")
        if isinstance(inside, dict):
            return [self.struct(inside, depth) for _ in range(count)]
        return [self._value(kind, depth) for _ in range(count)]

    def _head(self) -> tuple[int, int]:
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if count > len(self.data) - self.at:
            raise self._bad(f"a list of {count} in {len(self.data) - self.at} bytes")
        return head & 15, count

    def _value(self, kind: int, depth: int) -> Any:
        """A value of a type, whatever it is for."""
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == BINARY:
            return self._take(self._varint())
        if kind in (TRUE, FALSE, BYTE):
            return self._byte()
        if kind == DOUBLE:
            return self._take(8)
        if kind == STRUCT:
            return self.struct({}, depth + 1)
        if kind in (LIST, SET) and depth < _DEPTH:
            inside, count = self._head()
            for _ in range(count):
                self._value(inside, depth + 1)
            return None
        raise self._bad(
            f"a value of the type {kind}, which Parquet does not use, or nested too deep"
        )

    def _byte(self) -> int:
        if self.at >= len(self.data):
            raise TruncatedError("a header runs past the end", offset=self._base + len(self.data))
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            raise TruncatedError("a header runs past the end", offset=self._base + len(self.data))
        self.at += count
        return self.data[self.at - count : self.at]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise self._bad("a varint is longer than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint() & (1 << 64) - 1
        return value >> 1 ^ -(value & 1)

    def _bad(self, why: str) -> DecodeError:
        return DecodeError(why, offset=self._base + min(self.at, len(self.data)))
