"""Value readers of Arrow arrays: numbers, bools, and strings in each of Arrow's layouts.

Data of one batch that needs no conversion is a view, if the source is in memory. Bits, 32-bit
offsets, string views and dictionary indices are converted. All of it is validated, and its size is
limited, before memory is allocated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..._errors import DecodeError, LimitError
from ..._optional import require
from ...core import dtypes, memory, validate
from ...core.frozen import trusted
from ...core.tensors import Array, Strings
from ...frameworks import arrow
from ...wire import arrow_ipc as ipc
from ...wire.arrow_columns import STRINGS, TEXT, dtype_of
from .buffers import Chunk
from .levels import Level, Piece

if TYPE_CHECKING:
    import pyarrow as pa


NO_COPY_HINT = "omit copy=False"


class Values(Protocol):
    """Reads the elements of an array."""

    dtype: str

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Any:
        """Returns the elements from `low` to `high` in a shape of that size."""


class _Reader:
    """The base of value readers: the array, and the rule about copies."""

    def __init__(self, level: Level, copy: bool | None) -> None:
        self._level, self._copy = level, copy

    def _need_copy(self, why: str) -> None:
        if self._copy is False:
            raise self._level.bad(f"copy=False is not possible: {why}", hint=NO_COPY_HINT)

    def _finish(self, array: Array) -> Array:
        """Returns a new array: writable if copy=True, else read-only."""
        return array if self._copy else memory.read_only(array)


class NumberValues(_Reader):
    """Reads numbers."""

    def __init__(self, level: Level, copy: bool | None, row: dtypes.DType) -> None:
        super().__init__(level, copy)
        self.row, self.dtype = row, row.name

    def piece(self, chunk: Chunk, start: int, stop: int) -> Array:
        """Returns a view of some numbers of one batch."""
        item = self.row.numpy.itemsize
        return np.frombuffer(
            self._level.file.data.read(
                chunk, self._level.place(chunk) + 1, start * item, stop * item
            ),
            self.row.numpy,
        )

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        level, item = self._level, self.row.numpy.itemsize
        located = []
        for chunk, start, stop in level.pieces(low, high):
            buffer = level.place(chunk) + 1
            located.append(level.file.data.locate(chunk, buffer, start * item, stop * item))
        if len(located) == 1 and not isinstance(located[0], int):
            return memory.dense(
                located[0],
                0,
                self.row.numpy,
                shape,
                self._copy,
                chunk.body + chunk.batch.buffers[buffer][0] + start * item,
            )
        if len(located) > 1:
            self._need_copy(f"the column is in {len(level.chunks)} batches")
        # `locate` has checked that all bytes exist, so a hostile length cannot allocate more.
        out: Array = np.empty(high - low, self.row.numpy)
        rest = out.view(np.uint8)
        for (_, start, stop), part in zip(level.pieces(low, high), located, strict=True):
            level.file.data.fill(part, rest[: (stop - start) * item])
            rest = rest[(stop - start) * item :]
        return (
            out if any(isinstance(part, int) for part in located) else self._finish(out)
        ).reshape(shape)


class Bits(_Reader):
    """Reads bools, which Arrow stores as bits."""

    dtype = "bool"

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        self._need_copy("Arrow stores bools as bits")
        unpacked = [np.empty(0, np.bool_)]
        for chunk, start, stop in self._level.pieces(low, high):
            buffer = self._level.place(chunk) + 1
            unpacked.append(self._level.file.data.read_bits(chunk, buffer, start, stop))
        return self._finish(
            unpacked[1] if len(unpacked) == 2 else np.concatenate(unpacked)
        ).reshape(shape)


class _StringReader(_Reader):
    """The base of string readers."""

    dtype = "bytes"

    def __init__(self, level: Level, copy: bool | None) -> None:
        super().__init__(level, copy)
        self._text = level.field.kind in TEXT


class Words(_StringReader):
    """Reads strings with offsets of 32 or 64 bits."""

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Strings:
        pieces = list(self._level.pieces(low, high))
        if len(pieces) == 1:
            data, offsets = self._piece(*pieces[0])
        else:
            self._need_copy(f"the column is in {len(self._level.chunks)} batches")
            data, offsets = join([self._piece(*piece) for piece in pieces])
            data, offsets = self._finish(data), self._finish(offsets)
        try:
            validate.strings(data, offsets, shape, self._text, DecodeError)
        except DecodeError as error:
            raise error.add(tensor=self._level.column) from None
        return trusted(Strings, data, offsets, shape, self._text)

    def _piece(self, chunk: Chunk, start: int, stop: int) -> tuple[Array, Array]:
        level, stored = self._level, STRINGS[self._level.field.kind]
        first = level.place(chunk) + 1
        base = chunk.body + chunk.batch.buffers[first][0]
        view = level.file.data.read(
            chunk, first, start * stored.itemsize, (stop + 1) * stored.itemsize
        )
        if stored.itemsize == 4:
            self._need_copy("the string offsets have 32 bits")
            offsets = self._finish(np.frombuffer(view, stored).astype(np.int64))
        else:
            offsets = memory.dense(
                view, 0, stored, (stop - start + 1,), self._copy, base + start * 8
            )
        low, high = int(offsets[0]), int(offsets[-1])
        if not 0 <= low <= high:
            raise level.bad(f"invalid string offsets from {low} to {high}", chunk)
        if low:
            offsets = self._finish(offsets - low)
        view = level.file.data.read(chunk, first + 1, low, high)
        return memory.dense(view, 0, np.dtype(np.uint8), (high - low,), self._copy), offsets


class Views(_StringReader):
    """Reads string views: 16 bytes that hold a short string, or refer to one of many buffers."""

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Strings:
        self._need_copy("string views are in many places")
        data, offsets = join([self._piece(*piece) for piece in self._level.pieces(low, high)])
        validate.strings(data, offsets, shape, self._text, DecodeError)
        return trusted(Strings, self._finish(data), self._finish(offsets), shape, self._text)

    def _piece(self, chunk: Chunk, start: int, stop: int) -> tuple[Array, Array]:
        level, file = self._level, self._level.file
        first = level.place(chunk) + 1
        buffers = range(first + 1, first + 1 + chunk.batch.counts[level.views])
        view = file.data.read(chunk, first, start * 16, stop * 16)
        views = np.frombuffer(view, np.int32).reshape(-1, 4)
        # A view is (length, prefix, buffer number, offset). Up to 12 bytes are stored in place.
        lengths, numbers, places = views[:, 0], views[:, 2], views[:, 3]
        sizes = np.array([file.data.size(chunk, buffer) for buffer in buffers] or [0], np.int64)
        far = lengths > 12
        bad = (lengths < 0) | (far & ((numbers < 0) | (numbers >= len(buffers)) | (places < 0)))
        ends = places.astype(np.int64) + lengths
        if bad.any() or (ends[far] > sizes[numbers[far]]).any():
            raise level.bad("a string view refers to bytes outside its buffers", chunk)
        allow(level, int(lengths.sum(dtype=np.int64)), chunk)
        pa = require("pyarrow", extra="arrow")
        parts = [
            None,
            pa.py_buffer(view),
            *(
                pa.py_buffer(file.data.read(chunk, buffer, 0, file.data.size(chunk, buffer)))
                for buffer in buffers
            ),
        ]
        return _arrow_strings(
            pa.Array.from_buffers(pa.binary_view(), stop - start, parts).cast(pa.large_binary())
        )


class Coded(_Reader):
    """Reads dictionary indices as the values that they refer to."""

    def __init__(self, level: Level, copy: bool | None, index: dtypes.DType) -> None:
        super().__init__(level, copy)
        self._id = level.field.coded[0] if level.field.coded else 0
        self._plain = level.field._replace(coded=None)
        self._index = NumberValues(level, None, index)
        self.dtype = _reader(self._level_of([], [0, 0, 0])).dtype

    def _level_of(self, chunks: list[Chunk], counts: list[int]) -> Level:
        return Level(self._level.file, chunks, self._plain, None, self._level.column, counts)

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Any:
        self._need_copy("the column is dictionary-encoded")
        pieces = [self._piece(piece) for piece in self._level.pieces(low, high)]
        if self.dtype != "bytes":
            empty: Array = np.empty(0, dtypes.named(self.dtype).numpy)
            return self._finish(np.concatenate([empty, *pieces])).reshape(shape)
        data, offsets = join(pieces)
        return trusted(
            Strings, self._finish(data), self._finish(offsets), shape, self._plain.kind in TEXT
        )

    def _piece(self, piece: Piece) -> Any:
        chunk, start, stop = piece
        items, places = self._items(chunk), self._index.piece(chunk, start, stop)
        # The indices of null rows are undefined, so only valid rows are looked up.
        if self._level.nulls:
            valid = self._level.valid_piece(chunk, start, stop)
            return _spread(self._chosen(items, places[valid], chunk), valid)
        return self._chosen(items, places, chunk)

    def _chosen(self, items: Array | Strings, places: Array, chunk: Chunk) -> Any:
        """Returns the items at these indices: an array, or (data, offsets) of strings."""
        if not len(places):
            places = np.zeros(0, np.int64)
        elif places.min() < 0 or places.max() >= len(items):
            raise self._level.bad(
                f"a dictionary index is out of range for {len(items)} values", chunk
            )
        if isinstance(items, np.ndarray):
            return items[places]
        allow(self._level, int(np.diff(items.offsets)[places].sum()), chunk)
        pa = require("pyarrow", extra="arrow")
        buffers = [None, pa.py_buffer(items.offsets), pa.py_buffer(items.data)]
        return _arrow_strings(
            pa.Array.from_buffers(pa.large_binary(), len(items), buffers).take(
                arrow.from_tensor(places, None, False)
            )
        )

    def _items(self, chunk: Chunk) -> Any:
        """Returns the values of the dictionary version that is valid for a batch."""
        dictionary = self._level.file.dictionary(self._id, chunk)
        if dictionary is None:
            raise self._level.bad("the dictionary of the column is missing", chunk)
        if dictionary.items is None:
            counts = [0, 0, 0]
            level = self._level_of(dictionary.chunks, counts)
            check_layout(dictionary.chunks, *counts)
            if level.nulls:
                raise self._level.bad(
                    "the dictionary of the column contains a null",
                    chunk,
                    hint="call dictionary_decode() in pyarrow first",
                )
            dictionary.items = _reader(level).take(0, level.rows, (level.rows,))
        return dictionary.items


def values(level: Level, copy: bool | None) -> Values | None:
    """Returns the reader of a leaf array; None for types that no tensor can represent."""
    field = level.field
    if field.coded:
        index = dtype_of(ipc.INT, *field.coded[1:])
        plain = Level(level.file, [], field._replace(coded=None), None, level.column, [0, 0, 0])
        return (
            Coded(level, copy, index)
            if index is not None and values(plain, copy) is not None
            else None
        )
    if field.kind in STRINGS:
        return Words(level, copy)
    if field.kind in (ipc.BINARY_VIEW, ipc.TEXT_VIEW):
        return Views(level, copy)
    if field.kind == ipc.BOOL:
        return Bits(level, copy)
    row = dtype_of(field.kind, field.width, field.signed)
    return NumberValues(level, copy, row) if row else None


def _reader(level: Level) -> Values:
    reader = values(level, None)
    if reader is None:
        raise level.unsupported("the dictionary has values of an unsupported type")
    return reader


def check_layout(chunks: list[Chunk], nodes: int, buffers: int, views: int) -> None:
    """Checks that batches have as many arrays and buffers as their fields need."""
    for batch, body in chunks:
        if (
            len(batch.nodes) != nodes
            or len(batch.counts) != views
            or len(batch.buffers) != buffers + sum(batch.counts)
        ):
            why = (
                f"the schema needs {nodes} arrays and {buffers} buffers, but a batch has"
                f" {len(batch.nodes)} and {len(batch.buffers)}"
            )
            raise DecodeError(why, offset=body)


def join(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Concatenates strings, given as (data, offsets)."""
    data = np.concatenate([np.empty(0, np.uint8), *(piece for piece, _ in parts)])
    steps = [np.zeros(1, np.int64)]
    for _, offsets in parts:
        steps.append(offsets[1:] + steps[-1][-1])
    return data, np.concatenate(steps)


def _spread(items: Array | tuple[Array, Array], valid: Array) -> Any:
    """Spreads items, or (data, offsets) of strings, over the valid rows; null rows are blank."""
    if isinstance(items, np.ndarray):
        out: Array = np.zeros(len(valid), items.dtype)
        out[valid] = items
        return out
    data, offsets = items
    lengths = np.zeros(len(valid), np.int64)
    lengths[valid] = np.diff(offsets)
    return data, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def without(tensor: Array | Strings, alive: Array) -> Any:
    """Returns a tensor whose null rows are zeros or empty strings, whatever is stored there."""
    if alive.all():
        return tensor
    if isinstance(tensor, np.ndarray):
        out = tensor.copy()
        out[~alive] = 0
        return out if tensor.flags.writeable else memory.read_only(out)
    lengths = np.diff(tensor.offsets)
    kept = np.repeat(alive, tensor.size // max(1, len(alive)))
    if not lengths[~kept].any():
        return tensor
    data = tensor.data[tensor.offsets[0] : tensor.offsets[-1]][np.repeat(kept, lengths)]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths * kept)])
    if not tensor.data.flags.writeable:
        data, offsets = memory.read_only(data), memory.read_only(offsets)
    return trusted(Strings, data, offsets, tensor.shape, tensor.text)


def _arrow_strings(array: pa.Array) -> tuple[Array, Array]:
    """Returns (data, offsets) of a large_binary array."""
    _, bounds, data = array.buffers()
    offsets = np.frombuffer(bounds, np.int64, len(array) + 1, array.offset * 8)
    return np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def allow(level: Level, size: int, chunk: Chunk | None = None) -> None:
    """Draws bytes that the file does not itself contain on the budget, before allocation."""
    if size > level.file.limits.tensor:
        why = (
            f"the tensor expands to {size} bytes; Limits(tensor=...) allows"
            f" {level.file.limits.tensor}"
        )
        raise LimitError(why, tensor=level.column, offset=chunk.body if chunk else 0)
    level.file.limits.draw(size, offset=chunk.body if chunk else 0)
