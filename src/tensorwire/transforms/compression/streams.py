"""What all compressions share, however they pack a byte: pieces in, pieces out, and nothing is lost
or held for long.

A decompressor keeps no more than one piece of its output at a time, so that a small input that
becomes a huge one costs time and no memory, and it gives up where there is more of it than
`Limits.expansion` allows. A compression whose stream is a row of independent units (gzip members,
zstd and lz4 frames, Snappy blocks) is written by `UnitCompressor`, in threads.
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
"""Bytes of output at a time, at most; a Snappy block is one piece whatever its size."""


def filling(size: int, packed: int) -> int:
    """How many padding bytes `packed` bytes need, so that they may become `size` by default.

    >>> filling(1 << 20, 10), filling(1 << 30, 1000)
    (0, 4696621)
    """
    return max(0, -(-(size - DEFAULT.expansion) // DEFAULT.expansion_ratio) - packed)


class Decompressor(ABC):
    """Takes the bytes of a stream in pieces of any size and gives back the data in pieces.

    `limits.record` is the most data that the stream may make us hold at once. `total` is how many
    bytes it has, where that is known: a stream that begins with much of nothing then is not taken
    for one that has nothing else.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    """What the stream ends inside of, when it ends too early."""

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        self._limits, self._limit, self._total = limits, limits.record, total
        self._units = array("q")  # a file may have a million
        self._rest = memoryview(b"")  # given, and not looked at yet
        self._at = 0  # where it begins in the stream
        self._given = 0  # bytes of it that a library has, which may still give some of them back
        self._size = 0  # of the data so far
        self._more = False  # output is waiting that needs no input
        self._error: DecodeError | None = None
        self._over = False

    def feed(self, data: Buffer | Array) -> Iterator[Buffer]:
        """The pieces that these bytes complete. Whoever takes only some of them finds the others in
        front of the next ones.
        """
        if self._error is not None:
            raise self._error
        view = flat(data)
        self._rest = memoryview(b"".join((self._rest, view))) if len(self._rest) else view
        return self._pieces()

    def finish(self) -> None:
        """Says that the stream has ended: a TruncatedError if it must not end here."""
        if self._error is not None:
            raise self._error
        if len(self._rest) or self._more:
            raise ValueError("take all pieces that feed() gives before finish()")
        if not self._complete():
            raise TruncatedError(
                f"the stream ends inside a {self.unit}", format=self.name, offset=self._at
            )

    @property
    def units(self) -> list[tuple[int, int]]:
        """Where each independent unit so far begins, in the compressed bytes and in the data: a new
        decompressor can start there.
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
            self._error = error  # what follows means nothing, so nothing follows
            raise

    @property
    def over(self) -> bool:
        """Whether it gave up because the data is more than the limits allow: nothing is known to be
        wrong with the rest.
        """
        return self._over

    def _check_expansion(self) -> None:
        self._over = True
        self._limits.check(
            self._size, max(self._total, self._at + self._given), self.name, self._at
        )
        self._over = False

    def _begin_unit(self) -> None:
        self._units.extend((self._at, self._size))

    def _advance(self, count: int) -> None:
        self._at += count
        self._rest = self._rest[count:]

    @abstractmethod
    def _step(self) -> Buffer:
        """Uses up some of `_rest`; returns the data that came of it, if any."""

    @abstractmethod
    def _complete(self) -> bool:
        """Whether the stream may end here."""


class StagedDecompressor(Decompressor):
    """One whose streams are headers, data and trailers in turn. It begins with the method
    `_header`.
    """

    def __init__(self, limits: Limits = DEFAULT, total: int = 0) -> None:
        super().__init__(limits, total)
        self._held = bytearray()  # of a header or trailer that has not come whole
        self._state = "_header"
        """The name of the method that reads what comes next: the method itself would be a cycle,
        which keeps the bytes alive.
        """

    def _step(self) -> Buffer:
        piece: Buffer = getattr(self, self._state)()
        return piece


class Compressor(ABC):
    """Takes data in pieces and gives back what is ready to be written, in order."""

    _closed = False
    expanded = 0
    """Bytes that a reader makes of the data besides, which its budget has to allow."""

    @abstractmethod
    def write(self, data: Buffer) -> list[bytes]:
        """Takes a copy of the data; what it returns may belong to earlier data, or be nothing."""

    @abstractmethod
    def flush(self) -> list[bytes]:
        """All that is needed to read the data given so far. Where the format has units, a new one
        begins.
        """

    @abstractmethod
    def finish(self) -> list[bytes]:
        """The end of the stream. Nothing can be written after it."""

    def close(self) -> None:
        """Gives up, after an error: threads stop, and nobody waits for their results."""
        self._closed = True

    def _open(self) -> None:
        if self._closed:
            raise ValueError("this stream is finished: nothing more can be written to it")


class UnitCompressor(Compressor):
    """A stream of independent units, each made by `pack` from at most `size` bytes, in `threads`
    threads (1: in the caller's own).

    A write is divided between two units only if it is longer than one, so whoever writes whole
    records has whole records in each unit. The stream depends on the data and the order of calls
    alone, not on the threads. At most 2 x threads + 1 units are in memory. `filler` makes bytes
    that readers skip: see `filling`.
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
        self._any = False
        self._flying: deque[Future[bytes]] = deque()
        self._most = 2 * threads
        self._pool = _pool(threads) if threads > 1 else None

    def write(self, data: Buffer) -> list[bytes]:
        self._open()
        view, out, at = flat(data), list[bytes](), 0
        self._taken += len(view)
        if self._unit and len(self._unit) + len(view) > self._unit_size:
            out += self._ship()
        while len(view) - at >= self._unit_size:
            self._unit += view[at : at + self._unit_size]
            at += self._unit_size
            out += self._ship()
        self._unit += view[at:]
        return self._counted(out)

    def flush(self) -> list[bytes]:
        self._open()
        out = []
        if self._unit:
            last, self._unit, self._any = self._unit, bytearray(), True
            packed = self._pack(last)  # here, while the threads are busy with those before it
            out = [packed]
        out = self._counted([flying.result() for flying in self._landed()] + out)
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
        return out if self._any or not self._empty else [self._empty]

    def close(self) -> None:
        super().close()
        self._flying.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _ship(self) -> list[bytes]:
        unit, self._unit, self._any = self._unit, bytearray(), True
        if self._pool is None:
            return [self._pack(unit)]
        self._flying.append(self._pool.submit(self._pack, unit))
        out = []
        while self._flying and (len(self._flying) > self._most or self._flying[0].done()):
            out.append(self._flying.popleft().result())
        return out

    def _counted(self, parts: list[bytes]) -> list[bytes]:
        self._written += sum(map(len, parts))
        return parts

    def _landed(self) -> Iterator[Future[bytes]]:
        while self._flying:
            yield self._flying.popleft()


def each(work: Callable[[Any], Any], items: Iterable[Any], threads: int) -> Iterator[Any]:
    """`map` in threads, in order and at most 2 x threads + 1 ahead; in the caller's own if there is
    one thread, or one item.

    >>> list(each(abs, [-1, -2, 3], 2))
    [1, 2, 3]
    """
    rest = iter(items)
    first = list(itertools.islice(rest, 2))
    if threads == 1 or len(first) < 2:
        yield from map(work, itertools.chain(first, rest))
        return
    pool, flying = _pool(threads), deque[Any]()
    try:
        for item in itertools.chain(first, rest):
            flying.append(pool.submit(work, item))
            if len(flying) > 2 * threads:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@functools.cache
def keep_memory() -> None:
    """For whoever lets a library make many buffers: makes glibc keep up to 16 MiB of freed memory
    instead of giving it back to the kernel.

    It does so in every program that has once freed a buffer of 8 MiB, and so this frees one.
    Without, each buffer lies in new pages, and those cost as much as unpacking zstd.
    """
    np.empty(8 << 20, np.uint8)


def available_cores() -> int:
    """The cores that this process may run on, which are fewer than the machine's under `taskset` or
    in a container.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores(threads: int | None) -> int:
    """How many threads to use: as many as asked for, else as there are cores, at most four."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: one at least")
    return min(4, available_cores()) if threads is None else threads


def _pool(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # not for those who only read

    return ThreadPoolExecutor(threads, "tensorwire-compress")  # starts no thread before it has work
