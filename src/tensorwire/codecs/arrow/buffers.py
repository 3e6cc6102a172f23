"""The bytes of the buffers of an Arrow file.

A compressed buffer begins with its size, which is drawn on the budget before anything is allocated,
and what comes out must be exactly as much.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from ..._errors import DecodeError
from ..._limits import Budget
from ..._optional import require
from ...core import memory
from ...core.tensors import Array
from ...storage.files import Source
from ...wire import arrow_ipc as ipc
from ...wire import kernels
from ...wire.arrow_ipc import IpcBatch

_KEPT = 64 << 20
"""Bytes of inflated buffers that are kept, for those who read rows of them."""
CODECS = ("lz4", "zstd")
"""By their numbers in Arrow."""


class Chunk(NamedTuple):
    """A batch, and where its body begins."""

    batch: IpcBatch
    body: int


class Buffers:
    """Reads them out of a source."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source, self._budget = source, budget
        self._inflated: OrderedDict[tuple[int, int], memoryview] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, chunk: Chunk, buffer: int, start: int, stop: int) -> memoryview:
        """The bytes from, to of a buffer."""
        if chunk.batch.codec < 0:
            return self.source.read_at(self._place(chunk, buffer, start, stop), stop - start)
        found = self._inflated_buffer(chunk, buffer)
        self._place(chunk, buffer, start, stop, len(found))
        return found[start:stop]

    def locate(self, chunk: Chunk, buffer: int, start: int, stop: int) -> memoryview | int:
        """The same, or where they are, if they can be read straight into an array that is still to
        be made.
        """
        if chunk.batch.codec < 0 and hasattr(self.source, "read_into"):
            return self._place(chunk, buffer, start, stop)
        return self.read(chunk, buffer, start, stop)

    def fill(self, found: memoryview | int, out: Array) -> None:
        """Puts bytes that were located into an array."""
        if isinstance(found, int):
            self.source.read_into(found, out)  # type: ignore[attr-defined]
        else:
            out[:] = np.frombuffer(found, np.uint8)

    def size(self, chunk: Chunk, buffer: int) -> int:
        """How many bytes a buffer has, inflated."""
        return (
            len(self._inflated_buffer(chunk, buffer))
            if chunk.batch.codec >= 0
            else chunk.batch.buffers[buffer][1]
        )

    def _place(
        self, chunk: Chunk, buffer: int, start: int, stop: int, size: int | None = None
    ) -> int:
        """Where the bytes from, to of a buffer lie, which must have them."""
        offset, stored = chunk.batch.buffers[buffer]
        size = stored if size is None else size
        if stop > size:
            raise DecodeError(
                f"{stop} bytes wanted of a buffer that has {size}", offset=chunk.body + offset
            )
        return chunk.body + offset + start

    def inflate_all(self, chunks: list[Chunk]) -> None:
        """Inflates all compressed buffers, in threads, for whoever is about to read them all."""
        for chunk in chunks:
            if chunk.batch.codec < 0:
                continue
            found = [i for i, (_, size) in enumerate(chunk.batch.buffers) if size]
            for i, data in zip(found, self._inflate(chunk, found), strict=True):
                self._inflated[chunk.body, i] = data

    def _inflated_buffer(self, chunk: Chunk, buffer: int) -> memoryview:
        if not chunk.batch.buffers[buffer][1]:
            return memoryview(b"")
        found = self._inflated.get((chunk.body, buffer))
        if found is None:
            (found,) = self._inflate(chunk, [buffer])
            if len(found) <= _KEPT:
                self._keep((chunk.body, buffer), found)
        return found

    def _inflate(self, chunk: Chunk, buffers: list[int]) -> list[memoryview]:
        """Compressed buffers: each is its size as an int64 (-1 if it is not compressed after all),
        then one frame.
        """
        packed = [
            self.source.read_at(chunk.body + chunk.batch.buffers[i][0], chunk.batch.buffers[i][1])
            for i in buffers
        ]
        sizes = [self._claimed(data[:8], chunk, i) for data, i in zip(packed, buffers, strict=True)]
        frames = [data for data, size in zip(packed, sizes, strict=True) if size > 0]
        try:
            made = iter(
                _inflate(frames, [size for size in sizes if size > 0], chunk.batch.codec)
                if frames
                else []
            )
        except ValueError as error:
            raise DecodeError(f"a buffer does not inflate: {error}", offset=chunk.body) from None
        return [
            next(made) if size > 0 else data[8:] if size else memoryview(b"")
            for data, size in zip(packed, sizes, strict=True)
        ]

    def _claimed(self, head: memoryview, chunk: Chunk, buffer: int) -> int:
        """The size that a compressed buffer says."""
        count, at = (
            int.from_bytes(head, "little", signed=True),
            chunk.body + chunk.batch.buffers[buffer][0],
        )
        if len(head) < 8 or count < -1:
            raise DecodeError("a compressed buffer does not begin with its size", offset=at)
        self._budget.draw(max(0, count), offset=at, once=(self, chunk.body, buffer))
        return count

    def _keep(self, key: tuple[int, int], found: memoryview) -> None:
        with self._lock:
            self._inflated[key] = found
            while sum(map(len, self._inflated.values())) > _KEPT:
                self._inflated.popitem(last=False)


def _inflate(frames: list[memoryview], sizes: list[int], codec: int) -> list[memoryview]:
    """Buffers inflated by pyarrow, in threads. It is given them as columns of one byte in a message
    of our own, which it looks no further into, and what it makes of each must be exactly as long as
    it should. ValueError if it is not.
    """
    pa = require("pyarrow", extra="arrow")
    fields: list[Any] = [("", ipc.INT, 8, 0, 0, None, [])] * len(frames)
    places, parts, at = [], list[Any](), 0
    for frame in frames:
        places += [(at, 0), (at, len(frame))]
        parts += [frame, bytes(-len(frame) % 8)]
        at += len(frame) + -len(frame) % 8
    heads = (
        kernels.ipc_schema(fields, []),
        kernels.ipc_batch(1, [(1, 0)] * len(frames), places, codec, at),
    )
    framed = [part for head in heads for part in (ipc.MARK + len(head).to_bytes(4, "little"), head)]
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(kernels.join([*framed, *parts]))).read_next_batch()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)[:200]) from None
    found = [memory.flat(column.buffers()[1]) for column in batch.columns]
    if [len(data) for data in found] != sizes:
        raise ValueError("it becomes more or less than it says")
    return found
