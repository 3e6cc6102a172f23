"""tf.train.Example and SequenceExample: messages decoded into columns, and columns into messages.

Strategy of the quick path (`ColumnBuffers.fill`):
1. A `Decoder` holds the requested columns in the form that the kernel needs. The kernel decodes many
   messages per call, without the GIL, directly into preallocated arrays.
2. For each column there are values, string offsets (bytes only), row splits (unless the length is
   fixed), steps (feature lists only), and a flag per row that tells whether the feature is present.
3. The kernel writes a row only if all of its columns fit. Otherwise it returns NO_SPACE and the
   column that is full. The capacity of that column is at least doubled, and decoding resumes at the
   same message.
4. Arrays of variable length start small, because nothing is known about the data. `like=` starts
   with the sizes that the previous batch needed, so that later batches rarely grow.
5. Memory that messages cannot account for is bounded: each byte of a message can fill at most
   _CARRIED bytes, and beyond that `Limits.tensor` applies (fixed lengths of missing features).
6. Errors of the kernel are codes with an offset. `_error` adds the feature, `fill` the record.
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
"""Kinds of lists. A column of PLACES has the (offset, size) of the strings of a bytes list instead of
a copy.
"""
KINDS = {BYTES: "bytes", FLOAT: "float", INT64: "int64", PLACES: "bytes"}
_DTYPES: dict[int, Any] = {BYTES: np.uint8, FLOAT: np.float32, INT64: np.int64, PLACES: np.int64}
_KINDS = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64}
_WIDTH = {FLOAT: 1, INT64: 1, PLACES: 2}
"""Numbers per value."""
_LEAST = 64
"""Elements of a new buffer."""
_AT_ONCE = 8 << 20
"""Values of fixed-length columns that are allocated before any is read. For more, buffers grow."""
_CARRIED = 16
"""Bytes of buffers that a byte of a message can fill: 8 for a varint, twice that after growth."""


class Column(NamedTuple):
    """A column to read: the name of the feature, its kind, and its number of values (-1: any)."""

    name: bytes
    kind: int
    length: int = -1
    list: bool = False
    """Whether the column is a feature list of a SequenceExample."""


def key_order(names: Iterable[bytes]) -> list[bytes]:
    """Return the names of a map in the order of SerializeToString(deterministic=True).

    They are sorted by their bytes, but a name comes after all names that it is a prefix of.

    >>> key_order([b"image", b"a", b"image/height", b"aaa", b"aa", b""])
    [b'aaa', b'aa', b'a', b'image/height', b'image', b'']
    """
    # The end of a name sorts after any byte.
    return sorted(names, key=lambda name: [*name, 256])


def kind_of(values: Array | Strings) -> int:
    """Return the kind of list that represents a vector exactly; 0 if there is none."""
    if len(values.shape) != 1:
        return 0
    if isinstance(values, Strings):
        return BYTES
    return _KINDS.get(values.dtype, 0)


def encode(columns: list[Any], count: int) -> tuple[Array, Array]:
    """Encode `count` messages, and return their bytes and their n + 1 offsets.

    A column has the fields of `EncodeInput` in `wire/reference/example_encode.py`. There are fewer
    messages if one would be larger than 2 GiB.
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
    """Encode one message of vectors of float32, int64 and strings, in the order given.

    Returns None if the message would be larger than 2 GiB.

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
    """Return the map entries of a message, without the tag and length before them."""
    data = encode_one(features)
    return None if data is None else data[_inside(data, 0) :]


def packed(values: Array) -> memoryview | None:
    """Return int64 values as packed varints. None if they take more than 2 GiB.

    They are encoded as an Example, whose other bytes are then cut off.

    >>> bytes(packed(np.array([1, 300, -1]))).hex(" ")
    '01 ac 02 ff ff ff ff ff ff ff ff ff 01'
    """
    data = entries({"": values})
    if data is None or not len(values):
        return None if data is None else data[:0]
    # The key is empty, so it takes two bytes at the start of the entry.
    start = _inside(data, 0) + 2
    for _ in ("feature", "list", "values"):
        start = _inside(data, start)
    return data[start:]


def _inside(data: memoryview, offset: int) -> int:
    """Return where the bytes of the field at an offset begin."""
    return protobuf.length(data, offset + 1, len(data))[1]


class Filled(NamedTuple):
    """The arrays of a column, as `ExampleDecoder` takes them."""

    values: Array
    offsets: Array | None
    splits: Array | None
    steps: Array | None
    present: Array


class Decoder:
    """The columns to read, prepared for the kernel. Threads may share it."""

    def __init__(self, columns: Sequence[Column], sequence: bool = False, compat: int = 0) -> None:
        self.columns = list(columns)
        names, kinds, lengths, lists = (
            (list(part) for part in zip(*self.columns, strict=True))
            if self.columns
            else ([], [], [], [])
        )
        self.decode = kernels.ExampleDecoder(names, kinds, lengths, lists, sequence, compat).decode


class _Room(NamedTuple):
    """The capacity of a column: instances, values, and bytes of strings."""

    instances: int = 0
    values: int = 0
    data: int = 0

    def more(self) -> _Room:
        """Return a capacity with an eighth more of each."""
        return _Room(_more(self.instances), _more(self.values), _more(self.data))


def _more(count: int) -> int:
    return count + count // 8 + _LEAST


class ColumnBuffers:
    """Buffers for a number of rows, filled from messages. The module explains the strategy.

    Pass `pool` to reuse memory, `like` to start with the capacity of other buffers, and `limits` to
    bound the memory.

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
        """The number of rows that are filled."""
        self.strange = False
        """Whether a message had a feature that is not a column, or unknown fields."""
        self._pool, self._limits = pool, limits or DEFAULT
        # Bytes of the messages so far.
        self._read = 0
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
        """Allocate an array. Its first element is zero, because offsets, splits and steps need it."""
        wanted = size * np.dtype(dtype).itemsize
        array: Array = (
            np.empty(size, dtype) if self._pool is None else self._pool.take(wanted).view(dtype)
        )
        array[:1] = 0
        return array

    def used(self) -> list[_Room]:
        """Return the capacity in use plus an eighth, an estimate for the next rows of a file."""
        return [
            self._used(column, filled).more()
            for column, filled in zip(self.columns, self._buffers, strict=True)
        ]

    def clear(self) -> None:
        """Start again at row 0 in the same memory."""
        self.row = self._read = 0
        self.strange = False

    def fill(self, data: Any, starts: Any, sizes: Any, first: int = 0, checked: bool = True) -> int:
        """Read messages from number `first` on until they or the rows are used up.

        Returns how many were read. Message i is data[starts[i]:starts[i] + sizes[i]]. Unless
        `checked`, its masked CRC32C follows it and is verified. Errors have the number of the
        message (`record`), the feature (`tensor`), and the offset inside the message.
        """
        starts, sizes, begin = (
            np.ascontiguousarray(starts, np.int64),
            np.ascontiguousarray(sizes, np.int64),
            first,
        )
        while True:
            code, offset, done, column, actual, strange = self._made.decode(
                data, starts, sizes, first, self.row, self._buffers, checked
            )
            self.strange |= strange
            self._read += int(sizes[first : first + done].sum())
            first += done
            self.row += done
            if code == 0:
                return first - begin
            if code != status.NO_SPACE:
                raise self._error(code, offset, column, actual).add(
                    record=first, base=-int(starts[first])
                )
            try:
                self._grow(column, int(sizes[first]))
            except LimitError as error:
                raise error.add(record=first) from None

    def _grow(self, number: int, size: int) -> None:
        """Enlarge the buffers of a column for a message of `size` bytes.

        If its length is fixed, a feature that is missing in the message needs capacity too. The
        capacity is at least doubled, so that the cost of copying stays linear.
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
        """Raise LimitError if columns take more than messages can fill and the limits allow."""
        if total > self._limits.tensor and total > _CARRIED * (self._read + size):
            raise LimitError(
                f"records of {self._read + size:,} bytes need columns of {total:,} bytes, and the"
                f" limit is {self._limits.tensor:,}",
                tensor=self.columns[number].name.decode(errors="backslashreplace"),
                format=FORMAT,
                hint="pass a larger Limits(tensor=...)",
            )

    def _longer(self, array: Array, used: int, least: int) -> Array:
        """Return an array of at least `least` elements that starts with the first `used`."""
        if len(array) >= least:
            return array
        new = self._array(max(least, 2 * len(array)), array.dtype)
        new[:used] = array[:used]
        return new

    def _used(self, column: Column, filled: Filled) -> _Room:
        """Return the capacity that the rows so far take."""
        instances = self.row if filled.steps is None else int(filled.steps[self.row])
        values = (
            instances * column.length if filled.splits is None else int(filled.splits[instances])
        )
        return _Room(
            instances, values, 0 if filled.offsets is None else int(filled.offsets[values])
        )

    def take(self) -> list[Filled]:
        """Return the arrays of each column, without the spare capacity.

        The arrays are views of the buffers. Further calls of `fill` do not overwrite them.
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

    def _error(self, code: int, offset: int, column: int, actual: int) -> TensorwireError:
        if code not in (status.WRONG_KIND, status.WRONG_LENGTH):
            return status.problem(code, offset, FORMAT)
        name, kind, length, _ = self.columns[column]
        shown = name.decode(errors="backslashreplace")
        if code == status.WRONG_KIND:
            why = f"feature {shown!r} is a {KINDS[actual]} list, expected {KINDS[kind]}"
        else:
            why = f"feature {shown!r} has {actual} values, expected {length}"
        return SchemaError(why, tensor=shown, format=FORMAT, offset=offset)
