"""What reads the elements of an array: numbers, bits, and strings in each of the forms that Arrow
has for them.

What lies in one batch and needs no other form is a view where the source is in memory; bits, 32-bit
offsets, views and places in dictionaries become what our tensors have. Everything is checked, and
what it takes is known, before it is made.
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


class Values(Protocol):
    """What reads the elements of an array."""

    dtype: str

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Any:
        """Those from, to, in a shape that has as many."""


class _Reader:
    """What readers of values share: their array, and the memory rule that they follow."""

    def __init__(self, level: Level, copy: bool | None) -> None:
        self._level, self._copy = level, copy

    def _need_copy(self, why: str) -> None:
        if self._copy is False:
            raise self._level.bad(f"copy=False, but {why}; leave copy out")

    def _finish(self, array: Array) -> Array:
        """An array of our own making, by the memory rules."""
        return array if self._copy else memory.read_only(array)


class NumberValues(_Reader):
    """Numbers as they lie in the file."""

    def __init__(self, level: Level, copy: bool | None, row: dtypes.DType) -> None:
        super().__init__(level, copy)
        self.row, self.dtype = row, row.name

    def piece(self, chunk: Chunk, start: int, stop: int) -> Array:
        """Some of those in one batch, to look at."""
        item = self.row.numpy.itemsize
        return np.frombuffer(
            self._level.file.data.read(
                chunk, self._level.place(chunk) + 1, start * item, stop * item
            ),
            self.row.numpy,
        )

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        level, item = self._level, self.row.numpy.itemsize
        found = []
        for chunk, start, stop in level.pieces(low, high):
            buffer = level.place(chunk) + 1
            found.append(level.file.data.locate(chunk, buffer, start * item, stop * item))
        if len(found) == 1 and not isinstance(found[0], int):
            return memory.dense(
                found[0],
                0,
                self.row.numpy,
                shape,
                self._copy,
                chunk.body + chunk.batch.buffers[buffer][0] + start * item,
            )
        if len(found) > 1:
            self._need_copy(f"the column lies in {len(level.chunks)} batches")
        # all of it is there: whoever claims more was found out above
        out: Array = np.empty(high - low, self.row.numpy)
        rest = out.view(np.uint8)
        for (_, start, stop), part in zip(level.pieces(low, high), found, strict=True):
            level.file.data.fill(part, rest[: (stop - start) * item])
            rest = rest[(stop - start) * item :]
        return (out if any(isinstance(part, int) for part in found) else self._finish(out)).reshape(
            shape
        )


class Bits(_Reader):
    """Bools, of which Arrow has eight in a byte."""

    dtype = "bool"

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Array:
        self._need_copy("bools are bits in Arrow")
        found = [np.empty(0, np.bool_)]
        for chunk, start, stop in self._level.pieces(low, high):
            packed = self._level.file.data.read(
                chunk, self._level.place(chunk) + 1, start // 8, (stop + 7) // 8
            )
            bits = np.unpackbits(
                np.frombuffer(packed, np.uint8), count=start % 8 + stop - start, bitorder="little"
            )
            found.append(bits[start % 8 :].view(np.bool_))
        return self._finish(found[1] if len(found) == 2 else np.concatenate(found)).reshape(shape)


class Words(_Reader):
    """Strings by their offsets, 32 or 64 bits."""

    dtype = "bytes"

    def __init__(self, level: Level, copy: bool | None) -> None:
        super().__init__(level, copy)
        self._text = level.field.kind in TEXT

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Strings:
        pieces = list(self._level.pieces(low, high))
        if len(pieces) == 1:
            data, offsets = self._piece(*pieces[0])
        else:
            self._need_copy(f"the column lies in {len(self._level.chunks)} batches")
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
            self._need_copy("the offsets of its strings have 32 bits")
            offsets = self._finish(np.frombuffer(view, stored).astype(np.int64))
        else:
            offsets = memory.dense(
                view, 0, stored, (stop - start + 1,), self._copy, base + start * 8
            )
        low, high = int(offsets[0]), int(offsets[-1])
        if not 0 <= low <= high:
            raise level.bad(f"offsets of strings from {low} to {high}", chunk)
        if low:
            offsets = self._finish(offsets - low)
        view = level.file.data.read(chunk, first + 1, low, high)
        return memory.dense(view, 0, np.dtype(np.uint8), (high - low,), self._copy), offsets


class Views(_Reader):
    """Strings that say where they are: short ones in 16 bytes, others in one of several buffers."""

    dtype = "bytes"

    def __init__(self, level: Level, copy: bool | None) -> None:
        super().__init__(level, copy)
        self._text = level.field.kind in TEXT

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Strings:
        self._need_copy("its strings lie in many places")
        data, offsets = join([self._piece(*piece) for piece in self._level.pieces(low, high)])
        validate.strings(data, offsets, shape, self._text, DecodeError)
        return trusted(Strings, self._finish(data), self._finish(offsets), shape, self._text)

    def _piece(self, chunk: Chunk, start: int, stop: int) -> tuple[Array, Array]:
        level, file = self._level, self._level.file
        first = level.place(chunk) + 1
        buffers = range(first + 1, first + 1 + chunk.batch.counts[level.views])
        view = file.data.read(chunk, first, start * 16, stop * 16)
        views = np.frombuffer(view, np.int32).reshape(-1, 4)
        lengths, numbers, places = views[:, 0], views[:, 2], views[:, 3]
        sizes = np.array([file.data.size(chunk, buffer) for buffer in buffers] or [0], np.int64)
        far = lengths > 12
        bad = (lengths < 0) | (far & ((numbers < 0) | (numbers >= len(buffers)) | (places < 0)))
        ends = places.astype(np.int64) + lengths
        if bad.any() or (ends[far] > sizes[numbers[far]]).any():
            raise level.bad("a string lies outside of its buffers", chunk)
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
    """Places in a dictionary, which become what stands there."""

    def __init__(self, level: Level, copy: bool | None, index: dtypes.DType) -> None:
        super().__init__(level, copy)
        self._id = level.field.coded[0] if level.field.coded else 0
        self._plain = level.field._replace(coded=None)
        self._index = NumberValues(level, None, index)
        self.dtype = _reader(self._level_of([], [0, 0, 0])).dtype

    def _level_of(self, chunks: list[Chunk], counts: list[int]) -> Level:
        return Level(self._level.file, chunks, self._plain, None, self._level.column, counts)

    def take(self, low: int, high: int, shape: tuple[int, ...]) -> Any:
        self._need_copy("it is read through a dictionary")
        found = [self._piece(piece) for piece in self._level.pieces(low, high)]
        if self.dtype != "bytes":
            empty: Array = np.empty(0, dtypes.named(self.dtype).numpy)
            return self._finish(np.concatenate([empty, *found])).reshape(shape)
        data, offsets = join(found)
        return trusted(
            Strings, self._finish(data), self._finish(offsets), shape, self._plain.kind in TEXT
        )

    def _piece(self, piece: Piece) -> Any:
        chunk, start, stop = piece
        items, places = self._items(chunk), self._index.piece(chunk, start, stop)
        if self._level.nulls:  # whose places mean nothing
            valid = self._level.valid_piece(chunk, start, stop)
            return _spread(self._chosen(items, places[valid], chunk), valid)
        return self._chosen(items, places, chunk)

    def _chosen(self, items: Array | Strings, places: Array, chunk: Chunk) -> Any:
        """The items in these places: an array, or (data, offsets) of strings."""
        if not len(places):
            places = np.zeros(0, np.int64)
        elif places.min() < 0 or places.max() >= len(items):
            raise self._level.bad(f"a place outside of a dictionary of {len(items)}", chunk)
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
        """What stands in the dictionary that holds for a batch."""
        found = self._level.file.dictionary(self._id, chunk)
        if found is None:
            raise self._level.bad("a dictionary is missing", chunk)
        if found.items is None:
            counts = [0, 0, 0]
            level = self._level_of(found.chunks, counts)
            check_layout(found.chunks, *counts)
            if level.nulls:
                why = "a dictionary with a null in it; in pyarrow, dictionary_decode() first"
                raise self._level.bad(why, chunk)
            found.items = _reader(level).take(0, level.rows, (level.rows,))
        return found.items


def values(level: Level, copy: bool | None) -> Values | None:
    """What reads the elements of an array that has nothing inside; None for types that are not of
    tensors.
    """
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
    found = values(level, None)
    if found is None:
        raise level.unsupported("a dictionary of what no tensor holds")
    return found


def check_layout(chunks: list[Chunk], nodes: int, buffers: int, views: int) -> None:
    """That batches have as many arrays and buffers as their fields need."""
    for batch, body in chunks:
        if (
            len(batch.nodes) != nodes
            or len(batch.counts) != views
            or len(batch.buffers) != buffers + sum(batch.counts)
        ):
            why = (
                f"{nodes} arrays and {buffers} buffers are needed, and a batch has"
                f" {len(batch.nodes)} and {len(batch.buffers)}"
            )
            raise DecodeError(why, offset=body)


def join(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """(data, offsets) of strings, one after the other."""
    data = np.concatenate([np.empty(0, np.uint8), *(one for one, _ in parts)])
    steps = [np.zeros(1, np.int64)]
    for _, offsets in parts:
        steps.append(offsets[1:] + steps[-1][-1])
    return data, np.concatenate(steps)


def _spread(items: Array | tuple[Array, Array], valid: Array) -> Any:
    """Items, or (data, offsets) of strings, with a zero or nothing where a row is null."""
    if isinstance(items, np.ndarray):
        out: Array = np.zeros(len(valid), items.dtype)
        out[valid] = items
        return out
    data, offsets = items
    lengths = np.zeros(len(valid), np.int64)
    lengths[valid] = np.diff(offsets)
    return data, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def without(tensor: Array | Strings, alive: Array) -> Any:
    """A tensor with a zero or nothing in the rows that are null, whatever was stored there."""
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
    """(data, offsets) of a large_binary array that is ours."""
    _, bounds, data = array.buffers()
    offsets = np.frombuffer(bounds, np.int64, len(array) + 1, array.offset * 8)
    return np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def allow(level: Level, size: int, chunk: Chunk | None = None) -> None:
    """What the file does not itself carry is bounded before it is made."""
    if size > level.file.limits.tensor:
        why = (
            f"{size} bytes that the file does not itself hold; Limits(tensor=...) allows"
            f" {level.file.limits.tensor}"
        )
        raise LimitError(why, tensor=level.column, offset=chunk.body if chunk else 0)
    level.file.limits.draw(size, offset=chunk.body if chunk else 0)
