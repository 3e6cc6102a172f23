"""Base classes of compressors and decompressors, which take and return data in pieces.

A decompressor holds at most one piece of its output, so a decompression bomb costs time but no
memory, and it raises LimitError once the output exceeds `Limits.expansion`. Streams of independent
units (gzip members, zstd and lz4 frames, Snappy blocks) are written in threads by `UnitCompressor`.
"""

from __future__ import annotations

import functools
import itertools
import os
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..._errors import DecodeError, TruncatedError
from ..._limits import DEFAULT, Limits
from ...core.memory import Array, Buffer, flat

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

PIECE = 1 << 20
"""The largest piece of output in bytes. A Snappy block is one piece of any size."""


def filling(size: int, packed: int) -> int:
    """Return how many padding bytes a stream of `packed` bytes needs to stay within the limits.

    With the padding, a reader with the default `Limits` accepts `size` bytes of data.

    >>> filling(1 << 20, 10), filling(1 << 30, 1000)
    (0, 4696621)
    """
    return max(0, -(-(size - DEFAULT.expansion) // DEFAULT.expansion_ratio) - packed)


class Decompressor(ABC):
    """Takes the bytes of a stream in pieces of any size and returns the data in pieces.

    `limits.record` is the largest memory that the stream may require at once. `total` is the
    compressed size, if it is known. Without it, the expansion is checked against the bytes so far,
    and a stream that starts with a long run of zeros could exceed the limit too early.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    """The name of a unit in error messages: "gzip member", "zstd frame" ..."""

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        self._limits, self._limit, self._total = limits, limits.record, total
        # Pairs of offsets in a flat array, because a file may have a million units.
        self._units = array("q")
        # Input that has not been processed yet, and its offset in the stream.
        self._rest = memoryview(b"")
        self._offset = 0
        # Bytes of `_rest` that a library has received, of which it may return some.
        self._given = 0
        # Bytes of data so far.
        self._size = 0
        # Whether there is output that needs no further input.
        self._more = False
        self._error: DecodeError | None = None
        self._limit_reached = False

    def feed(self, data: Buffer | Array) -> Iterator[Buffer]:
        """Yield the pieces that these bytes complete.

        Pieces that the caller does not take are yielded first by the next call.
        """
        if self._error is not None:
            raise self._error
        view = flat(data)
        self._rest = memoryview(b"".join((self._rest, view))) if len(self._rest) else view
        return self._pieces()

    def finish(self) -> None:
        """Mark the end of the stream. Raises TruncatedError if the stream is not complete."""
        if self._error is not None:
            raise self._error
        if len(self._rest) or self._more:
            raise ValueError("take all pieces that feed() yields before finish()")
        if not self._complete():
            raise TruncatedError(
                f"the stream ends inside a {self.unit}", format=self.name, offset=self._offset
            )

    @property
    def units(self) -> list[tuple[int, int]]:
        """The (compressed offset, data offset) of each independent unit so far, where a new
        decompressor can start.
        """
        return list(zip(self._units[::2], self._units[1::2], strict=True))

    def _pieces(self) -> Iterator[Buffer]:
        try:
            while len(self._rest) or self._more:
                piece = self._step()
                if len(piece):
                    self._size += len(piece)
                    self._check_expansion()
                    yield piece
        except DecodeError as error:
            # The decompressor is out of step with the stream, so all further calls raise too.
            self._error = error
            raise

    @property
    def over(self) -> bool:
        """Whether decompression stopped at a limit, so that the rest may be valid."""
        return self._limit_reached

    def _check_expansion(self) -> None:
        self._limit_reached = True
        self._limits.check(
            self._size, max(self._total, self._offset + self._given), self.name, self._offset
        )
        self._limit_reached = False

    def _begin_unit(self) -> None:
        self._units.extend((self._offset, self._size))

    def _advance(self, count: int) -> None:
        self._offset += count
        self._rest = self._rest[count:]

    @abstractmethod
    def _step(self) -> Buffer:
        """Consume some of `_rest` and return the data that results, if any."""

    @abstractmethod
    def _complete(self) -> bool:
        """Return whether the stream may end here."""


class StagedDecompressor(Decompressor):
    """A decompressor of streams of headers, data and trailers: a state machine.

    The state is the name of the method that reads the next bytes. It starts with `_header`.
    """

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        # Bytes of a header or trailer that is not complete yet.
        self._buffer = bytearray()
        # A name and not a bound method, which would be a reference cycle that keeps the input alive.
        self._state = "_header"

    def _step(self) -> Buffer:
        piece: Buffer = getattr(self, self._state)()
        return piece


class Compressor(ABC):
    """Takes data in pieces and returns the bytes that are ready to be written, in order."""

    _closed = False
    expanded = 0
    """Bytes that a reader allocates in addition to the data, and that its budget must allow."""

    @abstractmethod
    def write(self, data: Buffer) -> list[bytes]:
        """Copy the data. The result may belong to earlier data, or be empty."""

    @abstractmethod
    def flush(self) -> list[bytes]:
        """Return all bytes that are needed to read the data so far, and start a new unit."""

    @abstractmethod
    def finish(self) -> list[bytes]:
        """Return the end of the stream. Nothing can be written after it."""

    def close(self) -> None:
        """Discard the stream after an error, without waiting for the results of threads."""
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise ValueError("cannot write to a compressed stream after finish()")


class UnitCompressor(Compressor):
    """Compressor of streams of independent units, each packed by `pack` from at most `size` bytes.

    Rules:
    1. A write is divided between two units only if it is longer than one, so a caller that writes
       whole records gets whole records in each unit.
    2. The output depends only on the data and the order of the calls, not on `threads`.
    3. At most 2 x threads + 1 units are in memory. With one thread, units are packed by the caller.

    `filler` returns padding that readers skip: see `filling`. `empty` is the stream without data.
    """

    def __init__(
        self,
        pack: Callable[[Buffer], bytes],
        size: int,
        threads: int,
        empty: bytes,
        filler: Callable[[int], bytes] | None = None,
    ) -> None:
        self._pack, self._unit_size, self._empty, self._filler = pack, size, empty, filler
        self._taken = self._written = 0
        self._unit = bytearray()
        self._any_unit = False
        self._pending: deque[Future[bytes]] = deque()
        self._most = 2 * threads
        self._pool = _pool(threads) if threads > 1 else None

    def write(self, data: Buffer) -> list[bytes]:
        self._open()
        view, out, position = flat(data), list[bytes](), 0
        self._taken += len(view)
        if self._unit and len(self._unit) + len(view) > self._unit_size:
            out += self._submit()
        while len(view) - position >= self._unit_size:
            self._unit += view[position : position + self._unit_size]
            position += self._unit_size
            out += self._submit()
        self._unit += view[position:]
        return self._counted(out)

    def flush(self) -> list[bytes]:
        self._open()
        out = []
        if self._unit:
            last, self._unit, self._any_unit = self._unit, bytearray(), True
            # The last unit is packed in this thread, while the pool works on those before it.
            packed = self._pack(last)
            out = [packed]
        out = self._counted([future.result() for future in self._finished()] + out)
        if self._filler is not None and (
            missing := filling(self._taken + self.expanded, self._written)
        ):
            out += self._counted([self._filler(missing)])
        return out

    def finish(self) -> list[bytes]:
        out = self.flush()
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown()
        return out if self._any_unit or not self._empty else [self._empty]

    def close(self) -> None:
        super().close()
        self._pending.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self) -> list[bytes]:
        unit, self._unit, self._any_unit = self._unit, bytearray(), True
        if self._pool is None:
            return [self._pack(unit)]
        self._pending.append(self._pool.submit(self._pack, unit))
        out = []
        while self._pending and (len(self._pending) > self._most or self._pending[0].done()):
            out.append(self._pending.popleft().result())
        return out

    def _counted(self, parts: list[bytes]) -> list[bytes]:
        self._written += sum(map(len, parts))
        return parts

    def _finished(self) -> Iterator[Future[bytes]]:
        while self._pending:
            yield self._pending.popleft()


def map_parallel(work: Callable[[Any], Any], items: Iterable[Any], threads: int) -> Iterator[Any]:
    """Like `map`, but in threads: results are in order, at most 2 x threads + 1 items ahead.

    With one thread or one item, the work is done in the caller's thread.

    >>> list(map_parallel(abs, [-1, -2, 3], 2))
    [1, 2, 3]
    """
    rest = iter(items)
    first = list(itertools.islice(rest, 2))
    if threads == 1 or len(first) < 2:
        yield from map(work, itertools.chain(first, rest))
        return
    pool, futures = _pool(threads), deque[Any]()
    try:
        for item in itertools.chain(first, rest):
            futures.append(pool.submit(work, item))
            if len(futures) > 2 * threads:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@functools.cache
def keep_memory() -> None:
    """Make glibc keep up to 16 MiB of freed memory instead of returning it to the kernel.

    glibc does so in every process that has freed a buffer of 8 MiB, so this allocates and frees
    one. Otherwise each buffer that a library allocates is in new pages, whose page faults take as
    long as decompressing zstd.
    """
    np.empty(8 << 20, np.uint8)


def available_cores() -> int:
    """Return the number of cores that this process may run on.

    It is less than the machine's under `taskset` or in a container.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores(threads: int | None) -> int:
    """Return the number of threads to use: `threads`, or by default one per core, at most four."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    return min(4, available_cores()) if threads is None else threads


def _pool(threads: int) -> ThreadPoolExecutor:
    # Imported here because programs that only read do not need it.
    from concurrent.futures import ThreadPoolExecutor

    # The pool starts a thread only when there is work for it.
    return ThreadPoolExecutor(threads, "tensorwire-compress")
