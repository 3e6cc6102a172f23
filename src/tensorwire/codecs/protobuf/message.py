"""The scanner of TensorData messages: finds the fields of a message, and reads no tensor data.

The scanner is strict where a message could be read in two ways. It rejects:

1. a singular field that appears twice, since protobuf would merge two joined messages into one;
2. a known field with another wire type;
3. duplicate keys;
4. text that is not UTF-8;
5. strings that do not follow each other directly.

Unknown fields are skipped, which lets later versions extend the message. The order of fields is
free, and `shape` may be packed or not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..._errors import DecodeError, LimitError
from ..._limits import Limits
from ...storage.files import BytesSource, Source
from ...wire import kernels
from ...wire import protobuf as wire
from ...wire.status import MIXED_FIELDS, REPEATED, TOO_MANY_DIMS, UNKNOWN_FIELD, problem

FORMAT = "protobuf"
MAGIC = "tensorwire/1"
RANK = 254
_SHAPE, _STRINGS, _METADATA, _PARTS, _INT_KEY = 4, 8, 10, 11, 12
_TEXTS = {1: "magic", 2: "kind", 3: "dtype", 5: "key", 6: "name", 7: "device"}
_BYTES = {9: "spec", 14: "padding", 15: "data", 16: "filler"}
_ONCE = _TEXTS | _BYTES
_KNOWN = {*_ONCE, _SHAPE, _STRINGS, _METADATA, _PARTS, _INT_KEY}
_BLOCK = 16 << 10


class TensorMessage(NamedTuple):
    """The fields of one message."""

    start: int
    stop: int
    texts: dict[str, str]
    """The fields that are text."""
    shape: list[int]
    strings: list[int]
    """The number of strings, and the offsets of their start and end."""
    metadata: dict[str, str]
    places: array[int]
    """The offsets of the parts: start, stop, start, stop ... There can be very many of them."""
    spans: dict[str, tuple[int, int]]
    """Start and stop of the fields spec and data."""
    int_keys: list[int]
    """The int_key of this part; at most one."""

    @property
    def key(self) -> str | int | None:
        """The key of this part in the message that contains it."""
        return self.int_keys[0] if self.int_keys else self.texts.get("key")

    @property
    def kind(self) -> str:
        return self.texts.get("kind", "")

    @property
    def parts(self) -> Iterator[tuple[int, int]]:
        return zip(self.places[::2], self.places[1::2], strict=True)

    @property
    def placed(self) -> dict[str, str]:
        """The tensor's own name and device."""
        return {key: self.texts[key] for key in ("name", "device") if key in self.texts}

    def value_fields(self) -> set[str]:
        """The names of the fields that define the value, without empty ones, as in protobuf."""
        names = {name for name, (start, stop) in self.spans.items() if stop > start} & {
            "spec",
            "data",
        }
        if self.texts.get("dtype"):
            names.add("dtype")
        if self.shape:
            names.add("shape")
        if self.strings[0]:
            names.add("strings")
        if self.places:
            names.add("parts")
        return names


class Scanner:
    """Scans the messages of one source."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self.view: Any = source.view if isinstance(source, BytesSource) else _Window(source)
        self._limits, self._messages = limits, 1

    def scan(self, start: int, stop: int) -> TensorMessage:
        """Returns the fields of one message. Its parts are not scanned."""
        try:
            return self._scan(start, stop)
        except wire.Fault as fault:
            raise problem(fault.status, fault.offset, FORMAT) from None

    def _scan(self, start: int, stop: int) -> TensorMessage:
        message = TensorMessage(start, stop, {}, [], [0, 0, 0], {}, array("q"), {}, [])
        texts, spans, view, offset = message.texts, message.spans, self.view, start
        while offset < stop:
            begin = offset
            byte = view[offset]
            # The fast path: a tag of one byte (field numbers 1 to 15) with the wire type LEN. A tag
            # below 8 would have the invalid field number 0.
            if byte & 0x87 == wire.LEN and byte >= 8:
                number, offset = byte >> 3, offset + 1
            else:
                number, kind, offset = wire.tag(view, offset, stop)
                if kind != wire.LEN:
                    offset = self._other(message, number, kind, begin, offset, stop)
                    continue
            byte = view[offset] if offset < stop else 0x80
            size, first = (
                (byte, offset + 1)
                if byte < 0x80 and offset + byte < stop
                else wire.length(view, offset, stop)
            )
            offset = first + size
            name = _ONCE.get(number)
            if name is not None:
                if name in texts or name in spans:
                    raise wire.Fault(REPEATED, begin)
                if number in _TEXTS:
                    texts[name] = self._text(first, offset)
                else:
                    spans[name] = first, offset
            elif number == _PARTS:
                message.places.extend((first, offset))
                self._messages += 1
                if self._messages > self._limits.names:
                    raise self._too_many(begin)
            elif number == _SHAPE:
                self._packed(message.shape, first, offset, begin)
            elif number == _INT_KEY:
                raise wire.Fault(UNKNOWN_FIELD, begin)
            elif number == _METADATA:
                self._entry(message.metadata, first, offset)
            elif number == _STRINGS:
                if message.strings[0]:
                    raise wire.Fault(MIXED_FIELDS, begin)
                count, offset = self._run(begin, stop)
                message.strings[:] = count, begin, offset
        return message

    def _other(
        self, message: TensorMessage, number: int, kind: int, begin: int, offset: int, stop: int
    ) -> int:
        """Reads a field without a length (a dimension, an int_key, an unknown field), and returns
        its end.
        """
        if number in (_SHAPE, _INT_KEY) and kind == wire.VARINT:
            value, offset = wire.read_varint(self.view, offset, stop)
            if number == _SHAPE:
                self._dims(message.shape, [value], begin)
            elif message.int_keys:
                raise wire.Fault(REPEATED, begin)
            else:
                message.int_keys.append(_signed(value))
            return offset
        if number in _KNOWN:
            raise wire.Fault(UNKNOWN_FIELD, begin)
        return wire.skip(self.view, offset, stop, number, kind)

    def _too_many(self, offset: int) -> LimitError:
        return LimitError(
            f"too many parts or metadata entries; Limits(names=...) allows {self._limits.names}",
            offset=offset,
        )

    def _packed(self, shape: list[int], offset: int, stop: int, begin: int) -> None:
        if stop - offset > 10 * RANK:
            raise wire.Fault(TOO_MANY_DIMS, begin)
        dims = []
        while offset < stop:
            dim, offset = wire.read_varint(self.view, offset, stop)
            dims.append(dim)
        self._dims(shape, dims, begin)

    def _dims(self, shape: list[int], dims: list[int], begin: int) -> None:
        shape += map(_signed, dims)
        if len(shape) > RANK:
            raise wire.Fault(TOO_MANY_DIMS, begin)

    def _run(self, start: int, stop: int) -> tuple[int, int]:
        """Returns the number of consecutive strings from `start` on, and the end of the last."""
        code, end, count, _, _ = kernels.find_string_vals(self.view[start:stop], 0, True, 0)
        if code and code != MIXED_FIELDS:
            raise wire.Fault(code, start + end)
        return count, start + end

    def _text(self, start: int, stop: int) -> str:
        try:
            return str(self.view[start:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(
                f"invalid UTF-8 ({error.reason})",
                format=FORMAT,
                offset=start + error.start,
            ) from None

    def _entry(self, metadata: dict[str, str], start: int, stop: int) -> None:
        """Reads one entry of the map of metadata."""
        pair: dict[int, str] = {}
        for number, kind, value, begin in wire.fields(self.view, FORMAT, start, stop):
            if number not in (1, 2):
                continue
            if kind != wire.LEN or not isinstance(value, tuple):
                raise wire.Fault(UNKNOWN_FIELD, begin)
            if number in pair:
                raise wire.Fault(REPEATED, begin)
            pair[number] = self._text(*value)
        key = pair.get(1, "")
        if key in metadata:
            raise DecodeError(f"duplicate metadata key {key!r:.60}", format=FORMAT, offset=start)
        metadata[key] = pair.get(2, "")
        if len(metadata) > self._limits.names:
            raise self._too_many(start)


def _signed(value: int) -> int:
    """The int64 of a varint, which holds it in two's complement."""
    return value - (1 << 64) if value >> 63 else value


class _Window:
    """A file that can be indexed like bytes. It is read in blocks: a scan needs little of it."""

    def __init__(self, source: Source) -> None:
        self._source, self._first, self._block = source, 0, memoryview(b"")

    def __len__(self) -> int:
        return self._source.size

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._source.read_at(key.start, key.stop - key.start)
        if not self._first <= key < self._first + len(self._block):
            self._first, self._block = key, self._source.read_at(key, min(_BLOCK, len(self) - key))
        return self._block[key - self._first]
