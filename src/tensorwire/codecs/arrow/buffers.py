"""Buffers of an Arrow file: reads and inflates them.

A compressed buffer begins with its inflated size. That size is drawn on the budget before anything
is allocated, and the inflated buffer must have exactly that size.
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
"""Bytes of inflated buffers that are cached, because rows are often read one after another."""
CODECS = ("lz4", "zstd")
"""CompressionType in Arrow: number -> name."""


class Chunk(NamedTuple):
    """A record batch and the offset of its body."""

    batch: IpcBatch
    body: int


class Buffers:
    """Reads buffers from a source."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source, self._budget = source, budget
        self._inflated: OrderedDict[tuple[int, int], memoryview] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, chunk: Chunk, buffer: int, start: int, stop: int) -> memoryview:
        """Returns the bytes from `start` to `stop` of a buffer."""
        if chunk.batch.codec < 0:
            return self.source.read_at(self._place(chunk, buffer, start, stop), stop - start)
        inflated = self._inflated_buffer(chunk, buffer)
        self._place(chunk, buffer, start, stop, len(inflated))
        return inflated[start:stop]

    def read_bits(self, chunk: Chunk, buffer: int, start: int, stop: int) -> Array:
        """Returns the bits from `start` to `stop` of a buffer as bools."""
        packed = self.read(chunk, buffer, start // 8, (stop + 7) // 8)
        count = start % 8 + stop - start
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=count, bitorder="little")
        return bits[start % 8 :].view(np.bool_)

    def locate(self, chunk: Chunk, buffer: int, start: int, stop: int) -> memoryview | int:
        """Returns these bytes, or their offset if `fill` can read them into an array."""
        if chunk.batch.codec < 0 and hasattr(self.source, "read_into"):
            return self._place(chunk, buffer, start, stop)
        return self.read(chunk, buffer, start, stop)

    def fill(self, located: memoryview | int, out: Array) -> None:
        """Copies or reads the result of `locate` into an array."""
        if isinstance(located, int):
            self.source.read_into(located, out)  # type: ignore[attr-defined]
        else:
            out[:] = np.frombuffer(located, np.uint8)

    def size(self, chunk: Chunk, buffer: int) -> int:
        """Returns the inflated size of a buffer in bytes."""
        return (
            len(self._inflated_buffer(chunk, buffer))
            if chunk.batch.codec >= 0
            else chunk.batch.buffers[buffer][1]
        )

    def _place(
        self, chunk: Chunk, buffer: int, start: int, stop: int, size: int | None = None
    ) -> int:
        """Returns the file offset of a range of a buffer; raises if the buffer is shorter."""
        offset, stored = chunk.batch.buffers[buffer]
        size = stored if size is None else size
        if stop > size:
            raise DecodeError(
                f"{stop} bytes of a buffer are needed, but it has {size}",
                offset=chunk.body + offset,
            )
        return chunk.body + offset + start

    def inflate_all(self, chunks: list[Chunk]) -> None:
        """Inflates all compressed buffers in threads, before all of them are read."""
        for chunk in chunks:
            if chunk.batch.codec < 0:
                continue
            compressed = [i for i, (_, size) in enumerate(chunk.batch.buffers) if size]
            for i, data in zip(compressed, self._inflate(chunk, compressed), strict=True):
                self._inflated[chunk.body, i] = data

    def _inflated_buffer(self, chunk: Chunk, buffer: int) -> memoryview:
        if not chunk.batch.buffers[buffer][1]:
            return memoryview(b"")
        inflated = self._inflated.get((chunk.body, buffer))
        if inflated is None:
            (inflated,) = self._inflate(chunk, [buffer])
            if len(inflated) <= _KEPT:
                self._keep((chunk.body, buffer), inflated)
        return inflated

    def _inflate(self, chunk: Chunk, buffers: list[int]) -> list[memoryview]:
        """Returns inflated buffers.

        A compressed buffer is its inflated size as int64, then one frame. The size -1 means that
        the rest is not compressed.
        """
        packed = [
            self.source.read_at(chunk.body + chunk.batch.buffers[i][0], chunk.batch.buffers[i][1])
            for i in buffers
        ]
        sizes = [self._claimed(data[:8], chunk, i) for data, i in zip(packed, buffers, strict=True)]
        frames = [data for data, size in zip(packed, sizes, strict=True) if size > 0]
        try:
            inflated = iter(
                _inflate(frames, [size for size in sizes if size > 0], chunk.batch.codec)
                if frames
                else []
            )
        except ValueError as error:
            raise DecodeError(
                f"a compressed buffer cannot be inflated: {error}", offset=chunk.body
            ) from None
        return [
            next(inflated) if size > 0 else data[8:] if size else memoryview(b"")
            for data, size in zip(packed, sizes, strict=True)
        ]

    def _claimed(self, head: memoryview, chunk: Chunk, buffer: int) -> int:
        """Returns the inflated size that a compressed buffer claims, and draws it on the budget."""
        size, offset = (
            int.from_bytes(head, "little", signed=True),
            chunk.body + chunk.batch.buffers[buffer][0],
        )
        if len(head) < 8 or size < -1:
            raise DecodeError("a compressed buffer does not begin with a valid size", offset=offset)
        self._budget.draw(max(0, size), offset=offset, once=(self, chunk.body, buffer))
        return size

    def _keep(self, key: tuple[int, int], inflated: memoryview) -> None:
        with self._lock:
            self._inflated[key] = inflated
            while sum(map(len, self._inflated.values())) > _KEPT:
                self._inflated.popitem(last=False)


def _inflate(frames: list[memoryview], sizes: list[int], codec: int) -> list[memoryview]:
    """Inflates buffers with pyarrow, in threads; raises ValueError if a size differs.

    They are passed as int8 columns of an IPC stream that is made here. pyarrow inflates its buffers
    in parallel, and never reads their values.
    """
    pa = require("pyarrow", extra="arrow")
    fields: list[Any] = [("", ipc.INT, 8, 0, 0, None, [])] * len(frames)
    places, parts, offset = [], list[Any](), 0
    for frame in frames:
        places += [(offset, 0), (offset, len(frame))]
        parts += [frame, bytes(-len(frame) % 8)]
        offset += len(frame) + -len(frame) % 8
    heads = (
        kernels.ipc_schema(fields, []),
        kernels.ipc_batch(1, [(1, 0)] * len(frames), places, codec, offset),
    )
    framed = [part for head in heads for part in (ipc.MARK + len(head).to_bytes(4, "little"), head)]
    try:
        batch = pa.ipc.open_stream(pa.py_buffer(kernels.join([*framed, *parts]))).read_next_batch()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)[:200]) from None
    inflated = [memory.flat(column.buffers()[1]) for column in batch.columns]
    if [len(data) for data in inflated] != sizes:
        raise ValueError("its inflated size differs from the claimed size")
    return inflated
