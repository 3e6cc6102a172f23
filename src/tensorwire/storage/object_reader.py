"""Reading objects: random access by range requests, and sequential access with prefetch.

1. Every answer is checked against the entry (size and stamp) of the opened object. If the object
   was replaced, the read fails: bytes of two versions are never mixed.
2. The beginning of an object is fetched once and kept, because formats read headers in small steps.
3. Large reads are split into chunks that are fetched concurrently, and neighbouring small ranges
   are merged into one request.
4. An answer that breaks off is continued from where it stopped. A few answers in a row without any
   bytes are an error.
5. `AheadSource` keeps a queue of chunks: the one being read, and those that are fetched ahead of
   it. Chunks grow from 1 MiB to 8 MiB, so that reading only the beginning stays cheap.
"""

from __future__ import annotations

import bisect
import io
import itertools
import os
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, Self, cast

from .._errors import TransportError, TruncatedError
from ..core import memory
from . import files
from .errors import NoRanges
from .urls import FileEntry, OpenedObject, Store, shown

AHEAD = 4
"""Chunks in the prefetch queue."""
CHUNK = 8 << 20
"""Bytes of a chunk."""
_FIRST = 1 << 20
"""Bytes of the first chunk of a sequential read; each chunk is twice as large as the one before."""
_STALLS = 4
"""Answers without any bytes, in a row, that are an error."""
_NEAR = 1 << 20
"""Ranges with a gap up to this size share a request: the gap costs less than another request."""
_MERGED = 16 << 20
_SIDE_BY_SIDE = 8
_BEGINNING = _LOOK = 64 << 10


class ObjectSource:
    """An object that is read by range requests into new memory."""

    def __init__(self, store: Store, entry: FileEntry) -> None:
        self._store, self._entry = store, entry
        self.size, self.path = entry.size, cast("str | None", shown(entry.path))
        self._lock = threading.Lock()
        self._workers: ThreadPoolExecutor | None = None
        self._whole: files.FileSource | None = None
        self._head: memoryview | None = None
        self._closed = False

    @property
    def stamp(self) -> str:
        return self._entry.stamp

    def read_at(self, offset: int, count: int) -> memoryview:
        view = memory.fresh(count).data
        self.read_into(offset, view)
        return view

    def read_bytes(self, offset: int, count: int) -> bytes:
        return bytes(self.read_at(offset, count))

    def read_into(self, offset: int, buffer: memory.Buffer | memory.Array) -> None:
        self._check(offset, len(buffer))
        self._read(offset, memory.flat(buffer))

    def read_some(self, offset: int, buffer: memory.Buffer | memory.Array) -> int:
        """Read into a buffer up to the end of the object; return the count, 0 at the end."""
        count = max(0, min(len(buffer), self.size - offset))
        self._read(offset, memory.flat(buffer)[:count])
        return count

    def _check(self, offset: int, count: int) -> None:
        if offset + count > self.size:
            raise TruncatedError(
                f"expected {count} bytes, but the file ends at byte {self.size}",
                path=self.path,
                offset=offset,
            )

    def _read(self, offset: int, view: memoryview) -> None:
        """Fill a view: from the cached beginning, by one request, or by concurrent requests."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if offset + len(view) <= min(_BEGINNING, self.size):
            if self._head is None:
                self._head = self._get(0, min(_BEGINNING, self.size))
            view[:] = self._head[offset : offset + len(view)]
        elif len(view) <= CHUNK:
            self._fetch(offset, view)
        else:
            starts = range(0, len(view), CHUNK)
            list(
                self._pool().map(
                    lambda start: self._fetch(offset + start, view[start : start + CHUNK]), starts
                )
            )

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        for offset, count in ranges:
            self._check(offset, count)
        runs = _merge(ranges)
        starts = [start for start, _ in runs]
        chunks = list(
            self._pool().map(self._get, starts, [stop for _, stop in runs])
            if len(runs) > 1
            else itertools.starmap(self._get, runs)
        )
        views = []
        for offset, count in ranges:
            run = bisect.bisect_right(starts, offset) - 1
            views.append(chunks[run][offset - starts[run] : offset - starts[run] + count])
        return views

    def _get(self, start: int, stop: int) -> memoryview:
        view = memory.fresh(stop - start).data
        self._fetch(start, view)
        return view

    def _fetch(self, offset: int, view: memoryview) -> None:
        """Fill a view by requests; an answer that breaks off is continued from there."""
        done = stalls = 0
        while done < len(view):
            if self._whole is not None:
                self._whole.read_into(offset + done, view[done:])
                return
            try:
                count = self._store.get_into(self._entry, offset + done, view[done:])
            except NoRanges:
                self._download()
                continue
            stalls = 0 if count else stalls + 1
            if stalls == _STALLS:
                raise TransportError(
                    f"the connection to the store broke off {_STALLS} times without data",
                    path=self.path,
                    offset=offset + done,
                )
            done += count

    def _download(self) -> None:
        """Download the whole object into a temporary file: for servers without range requests."""
        with self._lock:
            if self._whole is None:
                with tempfile.NamedTemporaryFile(prefix="tensorwire-") as file:
                    for piece in self._store.get_all(self._entry):  # type: ignore[attr-defined]  # only obstore raises NoRanges
                        file.write(piece)
                    file.flush()
                    if file.tell() != self.size:
                        raise TransportError(
                            f"the connection broke off at byte {file.tell()} of {self.size}",
                            path=self.path,
                        )
                    self._whole = files.FileSource(file.name)

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._workers is None:
                self._workers = ThreadPoolExecutor(_SIDE_BY_SIDE, "tensorwire-read")
            return self._workers

    def close(self) -> None:
        self._closed = True
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)
            self._workers = None
        if self._whole is not None:
            self._whole.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _merge(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge neighbouring ranges (offset, count) into runs (start, stop) that cover all of them.

    >>> _merge([(5_000_000, 10), (0, 10), (100, 10)])
    [(0, 110), (5000000, 5000010)]
    """
    runs: list[tuple[int, int]] = []
    for offset, count in sorted(ranges):
        if (
            runs
            and offset - runs[-1][1] <= _NEAR
            and (offset < runs[-1][1] or offset + count - runs[-1][0] <= _MERGED)
        ):
            runs[-1] = runs[-1][0], max(runs[-1][1], offset + count)
        else:
            runs.append((offset, offset + count))
    return runs


class AheadSource(ObjectSource):
    """An object for sequential access: the next chunks are fetched in the background.

    A read elsewhere works too. A small one leaves the queue as it is; a large one starts a new
    sequence there.
    """

    def __init__(self, store: Store, entry: FileEntry) -> None:
        super().__init__(store, entry)
        self._parts: deque[tuple[int, int, Future[memoryview]]] = deque()
        self._order = threading.Lock()
        self._step, self._depth = _FIRST, 1

    def read_some(self, offset: int, buffer: memory.Buffer | memory.Array) -> int:
        count = max(0, min(len(buffer), self.size - offset))
        view, done = memory.flat(buffer), 0
        with self._order:
            if (
                count <= _LOOK
                and self._parts
                and not self._parts[0][0] <= offset <= self._parts[-1][1] + CHUNK
            ):
                # A small read far away must not discard the chunks that are being fetched.
                self._fetch(offset, view[:count])
                return count
            while done < count:
                start, part = self._part(offset + done)
                piece = part[offset + done - start : offset + count - start]
                view[done : done + len(piece)] = piece
                done += len(piece)
        return count

    def read_into(self, offset: int, buffer: memory.Buffer | memory.Array) -> None:
        self._check(offset, len(buffer))
        self.read_some(offset, buffer)

    def _part(self, offset: int) -> tuple[int, memoryview]:
        """Return (start, bytes) of the chunk that covers an offset, and keep the queue filled."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        while self._parts and not self._parts[0][0] <= offset < self._parts[0][1]:
            if self._parts[0][0] > offset or offset >= self._parts[-1][1] + CHUNK:
                self._forget()
                break
            self._parts.popleft()[2].cancel()
            self._depth = AHEAD
        if not self._parts:
            self._ask(offset)
        while len(self._parts) < self._depth and self._parts[-1][1] < self.size:
            self._ask(self._parts[-1][1])
        start, _, future = self._parts[0]
        try:
            return start, future.result()
        except BaseException:
            # Drop the failed chunk, so that a later read requests it again.
            self._forget()
            raise

    def _ask(self, start: int) -> None:
        """Start fetching the chunk at `start`."""
        stop = min(self.size, start + self._step)
        self._step = min(CHUNK, self._step * 2)
        self._parts.append((start, stop, self._pool().submit(self._get, start, stop)))

    def _forget(self) -> None:
        """Empty the queue."""
        for _, _, future in self._parts:
            future.cancel()
        self._parts.clear()
        self._step, self._depth = _FIRST, 1

    def close(self) -> None:
        self._forget()
        super().close()


class _File(io.RawIOBase):
    """A raw file object over a source."""

    def __init__(self, source: OpenedObject) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count: int = self._source.read_some(self._at, buffer)
        self._at += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def file_object(source: OpenedObject) -> IO[bytes]:
    """Return a buffered file object over a source; closing it closes the source."""
    return io.BufferedReader(_File(source), _FIRST)
