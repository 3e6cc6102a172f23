"""Levels of a column: one array of the column's tree of arrays, in all record batches.

A list has one child array, and each batch may use only a range in the middle of it. So a level is a
span of rows in each batch, and its rows are numbered across all batches. Data is read on access.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._errors import DecodeError
from ...core.tensors import Array
from ...wire import arrow_ipc as ipc
from ...wire.arrow_columns import LISTS, STRINGS
from ..container import UnsupportedTensor
from .buffers import Chunk
from .file import IpcFile

OFFSETS = LISTS | STRINGS
Span = tuple[int, int]
Piece = tuple[Chunk, int, int]
"""A batch, and the first and last (exclusive) row of an array in it."""


class Level:
    """One array of a column, in all batches.

    It refers to its parent and not to its children. So there is no reference cycle that keeps data
    alive until the garbage collector runs.
    """

    __slots__ = (
        "_inside",
        "_spans",
        "buffer",
        "chunks",
        "column",
        "field",
        "file",
        "node",
        "parent",
        "views",
    )

    def __init__(
        self,
        file: IpcFile,
        chunks: list[Chunk],
        field: ipc.IpcField,
        parent: Level | None,
        column: str,
        counters: list[int],
    ) -> None:
        self.file, self.chunks, self.field, self.parent, self.column = (
            file,
            chunks,
            field,
            parent,
            column,
        )
        self.node, self.buffer, self.views = counters
        self._spans: list[Span] | None = None
        self._inside: dict[int, Span] = {}
        counters[0] += 1
        counters[1] += self.buffers
        counters[2] += field.views

    @property
    def buffers(self) -> int:
        """The number of buffers of the array in every batch."""
        # Before metadata version 5 unions had a validity bitmap.
        union = self.field.kind == ipc.UNION and not self.field.coded
        return self.field.buffers + (union and self.file.version == ipc.V4)

    def spans(self) -> list[Span]:
        """Returns the rows of each batch that belong to the column, nulls included."""
        if self._spans is None:
            self._spans = [self._span(i, chunk) for i, chunk in enumerate(self.chunks)]
        return self._spans

    def _span(self, i: int, chunk: Chunk) -> Span:
        length = chunk.batch.nodes[self.node][0]
        if self.parent is None:
            start, stop = 0, chunk.batch.length
        else:
            start, stop = self.parent.inside(i)
        if stop > length or (self.parent is None and stop != length):
            raise self.bad(f"an array has {length} rows, but {stop} are needed", chunk)
        return start, stop

    @property
    def nulls(self) -> int:
        """The number of nulls, from the batch headers."""
        return sum(chunk.batch.nodes[self.node][1] for chunk in self.chunks)

    def valid(self, low: int, high: int) -> Array | None:
        """Returns a mask of the rows that are not null; None if the array has no nulls."""
        if not self.nulls:
            return None
        pieces = [self.valid_piece(*piece) for piece in self.pieces(low, high)]
        return np.concatenate([np.ones(0, np.bool_), *pieces])

    def valid_piece(self, chunk: Chunk, start: int, stop: int) -> Array:
        """Returns a mask of the rows of one batch that are not null."""
        if not chunk.batch.nodes[self.node][1]:
            return np.ones(stop - start, np.bool_)
        return self.file.data.read_bits(chunk, self.place(chunk), start, stop)

    def present(self, low: int, high: int) -> Array | None:
        """Returns a mask of the rows that are not null, nor inside a struct that is null."""
        mine = self.valid(low, high)
        struct = self.parent is not None and self.parent.field.kind == ipc.STRUCT
        around = self.parent.present(low, high) if self.parent is not None and struct else None
        return around if mine is None else mine if around is None else mine & around

    def inside(self, i: int) -> Span:
        """Returns the rows of the child array that belong to batch i."""
        start, stop = self.spans()[i]
        if self.field.kind == ipc.STRUCT:
            return start, stop
        if self.field.kind == ipc.FIXED_LIST:
            return start * self.field.width, stop * self.field.width
        # An empty array may lack its offsets buffer.
        if start == stop:
            return 0, 0
        if i not in self._inside:
            self._inside[i] = self._ends(self.chunks[i], start, stop)
        return self._inside[i]

    def _ends(self, chunk: Chunk, start: int, stop: int) -> Span:
        """Returns the first and the last offset of some lists."""
        item, buffer = OFFSETS[self.field.kind].itemsize, self.place(chunk) + 1
        stored = [
            self.file.data.read(chunk, buffer, index * item, index * item + item)
            for index in (start, stop)
        ]
        low, high = (int.from_bytes(offset, "little", signed=True) for offset in stored)
        if not 0 <= low <= high:
            raise self.bad(f"invalid list offsets from {low} to {high}", chunk)
        return low, high

    def offsets(self, chunk: Chunk, start: int, stop: int) -> Array:
        """Returns stored offsets of lists or strings."""
        dtype = OFFSETS[self.field.kind]
        stored: Array = np.frombuffer(
            self.file.data.read(
                chunk, self.place(chunk) + 1, start * dtype.itemsize, stop * dtype.itemsize
            ),
            dtype,
        )
        return stored

    def place(self, chunk: Chunk) -> int:
        """Returns the number of the array's first buffer in a batch."""
        return self.buffer + (sum(chunk.batch.counts[: self.views]) if self.views else 0)

    @property
    def rows(self) -> int:
        return sum(stop - start for start, stop in self.spans())

    def pieces(self, low: int, high: int) -> Iterator[Piece]:
        """Yields the non-empty ranges of batches that hold the rows from `low` to `high`."""
        before = 0
        for chunk, (start, stop) in zip(self.chunks, self.spans(), strict=True):
            first, last = max(low - before, 0) + start, min(high - before, stop - start) + start
            if first < last:
                yield chunk, first, last
            before += stop - start

    @property
    def nbytes(self) -> int:
        """Total stored bytes of the array's buffers."""
        variadic = {
            id(chunk): chunk.batch.counts[self.views] if self.field.views else 0
            for chunk in self.chunks
        }
        starts = [(chunk, self.place(chunk)) for chunk in self.chunks]
        places = [
            (chunk, first_buffer, first_buffer + self.buffers + variadic[id(chunk)])
            for chunk, first_buffer in starts
        ]
        return sum(
            size
            for chunk, first_buffer, end in places
            for _, size in chunk.batch.buffers[first_buffer:end]
        )

    def bad(self, why: str, chunk: Chunk | None = None, hint: str | None = None) -> DecodeError:
        """Returns the error for an invalid column."""
        return DecodeError(why, tensor=self.column, offset=chunk.body if chunk else 0, hint=hint)

    def unsupported(self, why: str, hint: str | None = None) -> UnsupportedTensor:
        """Returns the error for a valid column that no tensor can represent."""
        return UnsupportedTensor(why, tensor=self.column, offset=0, hint=hint)


class Tree(NamedTuple):
    """A level and its child trees."""

    level: Level
    inside: list[Tree]


def tree(
    file: IpcFile,
    chunks: list[Chunk],
    field: ipc.IpcField,
    parent: Level | None,
    column: str,
    counters: list[int],
) -> Tree:
    """Returns the tree of a field.

    `counters` is advanced by the number of arrays, buffers, and arrays with variadic buffers.
    """
    level = Level(file, chunks, field, parent, column, counters)
    inside = [] if field.coded else field.children
    return Tree(level, [tree(file, chunks, child, level, column, counters) for child in inside])
