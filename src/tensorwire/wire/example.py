"""tf.train.Example and SequenceExample messages into columns of arrays that grow with what is in
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._errors import LimitError, SchemaError, TensorwireError
from .._limits import DEFAULT, Limits
from ..core import memory
from ..core.tensors import Strings
from . import kernels, protobuf, status

Array = np.ndarray[Any, Any]

FORMAT = "example"
BYTES, FLOAT, INT64, PLACES = 1, 2, 3, 4
"""Kinds of lists; a column of PLACES says where the strings of a bytes list lie instead of copying
them.
"""
KINDS = {BYTES: "bytes", FLOAT: "float", INT64: "int64", PLACES: "bytes"}
_DTYPES: dict[int, Any] = {BYTES: np.uint8, FLOAT: np.float32, INT64: np.int64, PLACES: np.int64}
_KINDS = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64}
_WIDTH = {FLOAT: 1, INT64: 1, PLACES: 2}
"""Numbers in a value."""
_LEAST = 64
"""Room that a buffer starts with, in elements."""
_AT_ONCE = 8 << 20
"""Values of fixed lengths that have room, before any is read. For more, buffers grow."""
_CARRIED = 16
"""Bytes of buffers that a byte of a message can fill: 8 for a varint, twice that after growth."""


class Column(NamedTuple):
    """What to read: a feature's name, its kind, and the number of values that it must have (-1:
    any).
    """

    name: bytes
    kind: int
    length: int = -1
    list: bool = False
    """Whether it is a feature list of a SequenceExample."""


def key_order(names: Iterable[bytes]) -> list[bytes]:
    """The names of a map as SerializeToString(deterministic=True) sorts them: by their bytes, but behind all
    that extend them.

    >>> key_order([b"image", b"a", b"image/height", b"aaa", b"aa", b""])
    [b'aaa', b'aa', b'a', b'image/height', b'image', b'']
    """
    # An end counts as more than any byte.
    return sorted(names, key=lambda name: [*name, 256])


def kind_of(values: Array | Strings) -> int:
    """The kind of list that holds a vector exactly; 0 if there is none."""
    if len(values.shape) != 1:
        return 0
    if isinstance(values, Strings):
        return BYTES
    return _KINDS.get(values.dtype, 0)


def encode(columns: list[Any], count: int) -> tuple[Array, Array]:
    """`count` messages, one after the other, and where each begins and the last one ends.

    A column is what `EncodeInput` in `wire/reference/example_encode.py` says. There are fewer
    messages if the next one would be past 2 GiB.
    """
    offsets: Array = np.zeros(count + 1, np.int64)
    size = sum(part.nbytes for column in columns for part in column if isinstance(part, np.ndarray))
    room: Array = np.empty(max(4096, 2 * size), np.uint8)
    done = used = 0
    while done < count:
        code, more, size, wanted = kernels.example_encode(
            columns, False, done, 1, count - done, False, room[used:], offsets[done + 1 :]
        )
        offsets[done + 1 : done + 1 + more] += used
        done, used = done + more, used + size
        if code == status.NO_SPACE:
            larger: Array = np.empty(2 * len(room) + wanted, np.uint8)
            larger[:used] = room[:used]
            room = larger
        elif code:
            break
    return room[:used], offsets[: done + 1]


def encode_one(features: Mapping[str, Array | Strings]) -> memoryview | None:
    """One message of vectors of float32, int64 and strings, in the order given. None past 2 GiB.

    >>> bytes(encode_one({"a": np.array([5, 3])})).hex(" ")
    '0a 0d 0a 0b 0a 01 61 12 06 1a 04 0a 02 05 03'
    """
    columns: list[Any] = []
    for name, vector in features.items():
        values, places = (
            (vector.data, vector.offsets) if isinstance(vector, Strings) else (vector, None)
        )
        head = name.encode(), kind_of(vector), False, int(vector.shape[0])
        columns.append((*head, values, places, None, None, None))
    room: Array = np.empty(0, np.uint8)
    while True:
        code, _, used, wanted = kernels.example_encode(columns, False, 0, 1, 1, False, room, None)
        if code != status.NO_SPACE:
            return None if code else room[:used].data
        room = np.empty(wanted, np.uint8)


def entries(features: Mapping[str, Array | Strings]) -> memoryview | None:
    """The entries of the map that a message is, without what stands before them."""
    data = encode_one(features)
    return None if data is None else data[_inside(data, 0) :]


def packed(values: Array) -> memoryview | None:
    """int64 as a packed run of varints, which is what is left of an int64 list without all that is
    around it. None past 2 GiB.

    >>> bytes(packed(np.array([1, 300, -1]))).hex(" ")
    '01 ac 02 ff ff ff ff ff ff ff ff ff 01'
    """
    data = entries({"": values})
    if data is None or not len(values):
        return None if data is None else data[:0]
    at = _inside(data, 0) + 2  # the entry, behind its key
    for _ in ("feature", "list", "values"):
        at = _inside(data, at)
    return data[at:]


def _inside(data: memoryview, at: int) -> int:
    """Where the bytes of a field begin."""
    return protobuf.length(data, at + 1, len(data))[1]


class Filled(NamedTuple):
    """What was read of a column; the fields mean what they mean to `ExampleDecoder`."""

    values: Array
    offsets: Array | None
    splits: Array | None
    steps: Array | None
    present: Array


class Decoder:
    """A choice of columns, prepared; threads may share it."""

    def __init__(self, columns: Sequence[Column], sequence: bool = False, compat: int = 0) -> None:
        self.columns = list(columns)
        names, kinds, lengths, lists = (
            (list(part) for part in zip(*self.columns, strict=True))
            if self.columns
            else ([], [], [], [])
        )
        self.decode = kernels.ExampleDecoder(names, kinds, lengths, lists, sequence, compat).decode


class _Room(NamedTuple):
    """Numbers of instances, values, and bytes of strings."""

    instances: int = 0
    values: int = 0
    data: int = 0

    def more(self) -> _Room:
        """Somewhat more of each."""
        return _Room(_more(self.instances), _more(self.values), _more(self.data))


def _more(count: int) -> int:
    return count + count // 8 + _LEAST


class ColumnBuffers:
    """Buffers for a number of rows, filled message by message.

    >>> columns = ColumnBuffers([Column(b"a", INT64)], rows=2)
    >>> record = bytes.fromhex("0a0d 0a0b 0a0161 1206 1a04 0a02 0503".replace(" ", ""))
    >>> columns.fill(record * 2, [0, len(record)], [len(record)] * 2)
    2
    >>> filled = columns.take()[0]
    >>> filled.values, filled.splits
    (array([5, 3, 5, 3]), array([0, 2, 4]))
    """

    def __init__(
        self,
        columns: Sequence[Column] | Decoder,
        rows: int,
        *,
        sequence: bool = False,
        compat: int = 0,
        pool: memory.MemoryPool | None = None,
        like: ColumnBuffers | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._made = columns if isinstance(columns, Decoder) else Decoder(columns, sequence, compat)
        self.columns = self._made.columns
        self.rows = rows
        self.row = 0
        """How many rows are filled."""
        self.strange = False
        """Whether a message had a feature that no column takes, or fields that no Example has."""
        self._pool, self._limits = pool, limits or DEFAULT
        self._read = 0
        """Bytes of the messages so far."""
        rooms = [_Room()] * len(self.columns) if like is None else like.used()
        self._buffers: list[Any] = [
            self._new(column, room) for column, room in zip(self.columns, rooms, strict=True)
        ]
        self._size = sum(filled.values.nbytes for filled in self._buffers)

    def _new(self, column: Column, room: _Room) -> Filled:
        instances = max(_LEAST, room.instances) if column.list else self.rows
        values = max(_LEAST, room.values)
        if column.length >= 0:
            values = min(instances * column.length, max(_AT_ONCE // len(self.columns), values))
        return Filled(
            self._array(
                max(_LEAST, room.data) if column.kind == BYTES else values * _WIDTH[column.kind],
                _DTYPES[column.kind],
            ),
            self._array(values + 1, np.int64) if column.kind == BYTES else None,
            self._array(instances + 1, np.int64) if column.length < 0 else None,
            self._array(self.rows + 1, np.int64) if column.list else None,
            self._array(self.rows, np.bool_),
        )

    def _array(self, size: int, dtype: Any) -> Array:
        """Room for so many; the first is zero, because offsets, splits and steps begin there."""
        wanted = size * np.dtype(dtype).itemsize
        array: Array = (
            np.empty(size, dtype) if self._pool is None else self._pool.take(wanted).view(dtype)
        )
        array[:1] = 0
        return array

    def used(self) -> list[_Room]:
        """How much of the buffers is in use, and somewhat more: the room that the next rows of the
        same file will need.
        """
        return [
            self._used(column, filled).more()
            for column, filled in zip(self.columns, self._buffers, strict=True)
        ]

    def clear(self) -> None:
        """Starts over in the same memory."""
        self.row = self._read = 0
        self.strange = False

    def fill(self, data: Any, starts: Any, sizes: Any, first: int = 0, checked: bool = True) -> int:
        """How many messages were read, from number `first` on, until either they or the rows are
        used up.

        Message i is data[starts[i]:starts[i] + sizes[i]]; unless `checked`, its masked CRC32C
        stands behind it and is checked. Errors say which message (`record`) and feature (`tensor`),
        and the offset inside the message.
        """
        starts, sizes, begin = (
            np.ascontiguousarray(starts, np.int64),
            np.ascontiguousarray(sizes, np.int64),
            first,
        )
        while True:
            code, offset, done, column, found, strange = self._made.decode(
                data, starts, sizes, first, self.row, self._buffers, checked
            )
            self.strange |= strange
            self._read += int(sizes[first : first + done].sum())
            first += done
            self.row += done
            if code == 0:
                return first - begin
            if code != status.NO_SPACE:
                raise self._error(code, offset, column, found).add(
                    record=first, base=-int(starts[first])
                )
            try:
                self._grow(column, int(sizes[first]))
            except LimitError as error:
                raise error.add(record=first) from None

    def _grow(self, number: int, size: int) -> None:
        """Makes room for all that a message of `size` bytes can hold.

        A feature that the message does not have takes room too, if its length is fixed. The room
        is at least doubled, so that copying stays cheap.
        """
        column, old = self.columns[number], self._buffers[number]
        instances, values, data = self._used(column, old)
        more = max(size, 0 if column.list else column.length)
        width = 1 if column.kind == BYTES else _WIDTH[column.kind]
        used = data if column.kind == BYTES else values * width
        last = values + more
        self._check_room(number, self._size - old.values.nbytes + 8 * last, size)
        self._buffers[number] = Filled(
            self._longer(old.values, used, used + (size if column.kind == BYTES else more * width)),
            None if old.offsets is None else self._longer(old.offsets, values + 1, last + 1),
            (
                None
                if old.splits is None
                else self._longer(old.splits, instances + 1, instances + 1 + size)
            ),
            old.steps,
            old.present,
        )
        self._size += self._buffers[number].values.nbytes - old.values.nbytes

    def _check_room(self, number: int, total: int, size: int) -> None:
        """Raises LimitError if columns take more than the messages carry and the limits allow."""
        if total > self._limits.tensor and total > _CARRIED * (self._read + size):
            name = self.columns[number].name.decode(errors="backslashreplace")
            what = f"columns of {total:,} bytes for records of {self._read + size:,} bytes"
            hint = f"Limits(tensor=...) allows {self._limits.tensor:,}"
            raise LimitError(f"{what}; {hint}", tensor=name, format=FORMAT)

    def _longer(self, array: Array, used: int, least: int) -> Array:
        """The same with at least `least` elements, of which the first `used` are kept."""
        if len(array) >= least:
            return array
        new = self._array(max(least, 2 * len(array)), array.dtype)
        new[:used] = array[:used]
        return new

    def _used(self, column: Column, filled: Filled) -> _Room:
        """What the rows so far take."""
        instances = self.row if filled.steps is None else int(filled.steps[self.row])
        values = (
            instances * column.length if filled.splits is None else int(filled.splits[instances])
        )
        return _Room(
            instances, values, 0 if filled.offsets is None else int(filled.offsets[values])
        )

    def take(self) -> list[Filled]:
        """What was read, without the spare room. The arrays are parts of the buffers: filling on
        overwrites none of it.
        """
        return [
            self._trimmed(column, filled)
            for column, filled in zip(self.columns, self._buffers, strict=True)
        ]

    def _trimmed(self, column: Column, filled: Filled) -> Filled:
        instances, values, data = self._used(column, filled)
        return Filled(
            filled.values[: data if column.kind == BYTES else values * _WIDTH[column.kind]],
            None if filled.offsets is None else filled.offsets[: values + 1],
            None if filled.splits is None else filled.splits[: instances + 1],
            None if filled.steps is None else filled.steps[: self.row + 1],
            filled.present[: self.row],
        )

    def _error(self, code: int, offset: int, column: int, found: int) -> TensorwireError:
        if code not in (status.WRONG_KIND, status.WRONG_LENGTH):
            return status.problem(code, offset, FORMAT)
        name, kind, length, _ = self.columns[column]
        shown = name.decode(errors="backslashreplace")
        if code == status.WRONG_KIND:
            why = f"feature {shown!r} is a {KINDS[found]} list, and {KINDS[kind]} was asked for"
        else:
            why = f"feature {shown!r} has {found} values, and {length} were asked for"
        return SchemaError(why, tensor=shown, format=FORMAT, offset=offset)
