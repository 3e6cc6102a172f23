"""One array of an Arrow file, in all batches.

A column is a tree of arrays. A list has one array inside of it, of which each batch may use a piece
in the middle; so an array here is a span of rows in each batch, and its rows are numbered through
all of them. Nothing is read before it is asked for.
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
"""A batch, and the rows from, to of an array in it."""


class Level:
    """One array of a column, in all batches. It knows the one that it is inside of, and not those
    inside of it: no cycle keeps what was read alive until the garbage collector comes.
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
        at: list[int],
    ) -> None:
        self.file, self.chunks, self.field, self.parent, self.column = (
            file,
            chunks,
            field,
            parent,
            column,
        )
        self.node, self.buffer, self.views = at
        self._spans: list[Span] | None = None
        self._inside: dict[int, Span] = {}
        at[0] += 1
        at[1] += self.buffers
        at[2] += field.views

    @property
    def buffers(self) -> int:
        """How many buffers the array has in every batch."""
        union = self.field.kind == ipc.UNION and not self.field.coded
        return self.field.buffers + (union and self.file.version == ipc.V4)

    def spans(self) -> list[Span]:
        """The rows of each batch that belong to the column, nulls included."""
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
            raise self.bad(f"an array of {length} where {stop} are needed", chunk)
        return start, stop

    @property
    def nulls(self) -> int:
        """How many nulls the array has, by the headers of its batches."""
        return sum(chunk.batch.nodes[self.node][1] for chunk in self.chunks)

    def valid(self, low: int, high: int) -> Array | None:
        """Which of the rows from, to are not null; None if the array has no nulls."""
        if not self.nulls:
            return None
        pieces = [self.valid_piece(*piece) for piece in self.pieces(low, high)]
        return np.concatenate([np.ones(0, np.bool_), *pieces])

    def valid_piece(self, chunk: Chunk, start: int, stop: int) -> Array:
        """The same for some rows of one batch."""
        if not chunk.batch.nodes[self.node][1]:
            return np.ones(stop - start, np.bool_)
        packed = self.file.data.read(chunk, self.place(chunk), start // 8, (stop + 7) // 8)
        count = start % 8 + stop - start
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=count, bitorder="little")
        return bits[start % 8 :].view(np.bool_)

    def present(self, low: int, high: int) -> Array | None:
        """Which rows have a value: neither they nor the structs around them are null."""
        mine = self.valid(low, high)
        struct = self.parent is not None and self.parent.field.kind == ipc.STRUCT
        around = self.parent.present(low, high) if self.parent is not None and struct else None
        return around if mine is None else mine if around is None else mine & around

    def inside(self, i: int) -> Span:
        """The rows of the array inside that belong to those of batch i."""
        start, stop = self.spans()[i]
        if self.field.kind == ipc.STRUCT:
            return start, stop
        if self.field.kind == ipc.FIXED_LIST:
            return start * self.field.width, stop * self.field.width
        if start == stop:
            return 0, 0  # such an array need not have any offsets
        if i not in self._inside:
            self._inside[i] = self._ends(self.chunks[i], start, stop)
        return self._inside[i]

    def _ends(self, chunk: Chunk, start: int, stop: int) -> Span:
        """The first and the last offset of some lists."""
        item, buffer = OFFSETS[self.field.kind].itemsize, self.place(chunk) + 1
        stored = [
            self.file.data.read(chunk, buffer, at * item, at * item + item) for at in (start, stop)
        ]
        low, high = (int.from_bytes(one, "little", signed=True) for one in stored)
        if not 0 <= low <= high:
            raise self.bad(f"offsets of lists from {low} to {high}", chunk)
        return low, high

    def offsets(self, chunk: Chunk, start: int, stop: int) -> Array:
        """Some offsets of lists or strings, as they are stored."""
        dtype = OFFSETS[self.field.kind]
        found: Array = np.frombuffer(
            self.file.data.read(
                chunk, self.place(chunk) + 1, start * dtype.itemsize, stop * dtype.itemsize
            ),
            dtype,
        )
        return found

    def place(self, chunk: Chunk) -> int:
        """The number of its first buffer."""
        return self.buffer + (sum(chunk.batch.counts[: self.views]) if self.views else 0)

    @property
    def rows(self) -> int:
        return sum(stop - start for start, stop in self.spans())

    def pieces(self, low: int, high: int) -> Iterator[Piece]:
        """Where the rows from, to lie; none that is empty."""
        at = 0
        for chunk, (start, stop) in zip(self.chunks, self.spans(), strict=True):
            first, last = max(low - at, 0) + start, min(high - at, stop - start) + start
            if first < last:
                yield chunk, first, last
            at += stop - start

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers in the file."""
        more = {
            id(chunk): chunk.batch.counts[self.views] if self.field.views else 0
            for chunk in self.chunks
        }
        first = [(chunk, self.place(chunk)) for chunk in self.chunks]
        places = [(chunk, at, at + self.buffers + more[id(chunk)]) for chunk, at in first]
        return sum(size for chunk, at, end in places for _, size in chunk.batch.buffers[at:end])

    def bad(self, why: str, chunk: Chunk | None = None) -> DecodeError:
        return DecodeError(why, tensor=self.column, offset=chunk.body if chunk else 0)

    def unsupported(self, why: str) -> UnsupportedTensor:
        """The error for a column that is whole, and that no tensor holds."""
        return UnsupportedTensor(why, tensor=self.column, offset=0)


class Tree(NamedTuple):
    """An array and those inside of it."""

    level: Level
    inside: list[Tree]


def tree(
    file: IpcFile,
    chunks: list[Chunk],
    field: ipc.IpcField,
    parent: Level | None,
    column: str,
    at: list[int],
) -> Tree:
    """The arrays of a field; `at` counts arrays, buffers, and arrays of views."""
    level = Level(file, chunks, field, parent, column, at)
    inside = [] if field.coded else field.children
    return Tree(level, [tree(file, chunks, child, level, column, at) for child in inside])
