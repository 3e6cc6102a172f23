"""Thrift's compact protocol, in which Parquet's headers are written. Reading only.

A struct has numbered fields, each with its type. A `Shape` describes the fields to return; other
fields, and fields of another type, are skipped, as in the C++ library. The element type of a list
must be the one in the shape. The C++ library does not check that, so a wrong one is refused here.
"""

from __future__ import annotations

from typing import Any

from .._errors import DecodeError, TruncatedError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Shape = dict[int, Any]
"""Field number -> its type, the shape of a struct, or [type or shape] of the elements of a list."""
_DEPTH = 32
"""How deep structs and lists may nest."""


class ThriftReader:
    """A reader of consecutive structs. `base` is where `data` begins in the whole input."""

    def __init__(self, data: memoryview, base: int = 0) -> None:
        self.data, self.offset, self._base = data, 0, base

    def struct(self, shape: Shape, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct that are in the shape, by number.

        >>> ThriftReader(memoryview(bytes([0x15, 0x06, 0x18, 1, 65, 0]))).struct({1: I32})
        {1: 3}
        """
        if depth > _DEPTH:
            raise self._bad("structs are nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while kind := (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            expected = shape.get(number)
            if kind == STRUCT and isinstance(expected, dict):
                fields[number] = self.struct(expected, depth + 1)
            elif kind == LIST and isinstance(expected, list):
                fields[number] = self._list(expected[0], depth + 1)
            elif kind == expected:
                fields[number] = self._value(kind, depth)
            elif kind not in (TRUE, FALSE):
                self._value(kind, depth)
        return fields

    def _list(self, element: Any, depth: int) -> list[Any]:
        kind, count = self._head()
        expected = STRUCT if isinstance(element, dict) else element
        if count and kind != expected:
            raise self._bad(f"a list has elements of type {kind}, expected type {expected}")
        if isinstance(element, dict):
            return [self.struct(element, depth) for _ in range(count)]
        return [self._value(kind, depth) for _ in range(count)]

    def _head(self) -> tuple[int, int]:
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if count > len(self.data) - self.offset:
            raise self._bad(f"a list of {count} elements in {len(self.data) - self.offset} bytes")
        return head & 15, count

    def _value(self, kind: int, depth: int) -> Any:
        """Return a value of a type, or skip it: the elements of a list are not returned."""
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
            element_kind, count = self._head()
            for _ in range(count):
                self._value(element_kind, depth + 1)
            return None
        raise self._bad(f"a value of type {kind}, which Parquet does not use, or nested too deep")

    def _byte(self) -> int:
        if self.offset >= len(self.data):
            raise TruncatedError("a header runs past the end", offset=self._base + len(self.data))
        self.offset += 1
        return self.data[self.offset - 1]

    def _take(self, count: int) -> memoryview:
        if count > len(self.data) - self.offset:
            raise TruncatedError("a header runs past the end", offset=self._base + len(self.data))
        self.offset += count
        return self.data[self.offset - count : self.offset]

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
        return DecodeError(why, offset=self._base + min(self.offset, len(self.data)))
