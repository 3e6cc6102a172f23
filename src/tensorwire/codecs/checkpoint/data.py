"""Where the bytes of a checkpoint's tensors are: `PREFIX.data-00000-of-00002` and so on, or in
bytes, one data file after the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Protocol

from ..._errors import DecodeError
from ...storage import files
from ...storage.files import Source
from .entries import FORMAT, CheckpointIndex

_AT_ONCE = 64
"""Data files that are opened with the index, so that what is read later is what was there then.
More are opened when they are needed.
"""


def data_path(prefix: str, shard: int, shards: int) -> str:
    """The name of a data file.

    >>> data_path("model.ckpt-10", 0, 2)
    'model.ckpt-10.data-00000-of-00002'
    """
    return f"{prefix}.data-{shard:05d}-of-{shards:05d}"


class Data(Protocol):
    """The data files of a checkpoint."""

    index_path: str | None

    def place(self, shard: int) -> tuple[Source, int, int]:
        """The source that holds a data file, where in it the file begins, and where it ends."""


class DataFiles:
    """Data files on disk. As a Source it stands for all files of the checkpoint: it knows their
    size and closes them.
    """

    def __init__(
        self,
        prefix: str,
        index: CheckpointIndex,
        wanted: Iterable[int],
        index_size: int,
        mmap: bool,
    ) -> None:
        self.path: str | None = prefix
        self.index_path: str | None = index_path(prefix)
        self._shards, self._mmap = index.shards, mmap
        self._sources: dict[int, Source] = {}
        self._lock = threading.Lock()
        self._closed = False
        for shard in sorted(wanted)[:_AT_ONCE]:
            try:
                self._open(shard)
            except FileNotFoundError:
                pass  # an index alone can be looked at; whoever reads a tensor hears of it
        self.size = index_size + sum(source.size for source in self._sources.values())
        """Of the index and the data files that are open."""

    def _open(self, shard: int) -> Source:
        with self._lock:
            if self._closed:
                raise ValueError(f"{self.path} is closed")
            if shard not in self._sources:
                self._sources[shard] = files.source(
                    data_path(self.path or "", shard, self._shards), self._mmap
                )
            return self._sources[shard]

    def place(self, shard: int) -> tuple[Source, int, int]:
        source = self._sources.get(shard)
        if source is None:
            try:
                source = self._open(shard)
            except FileNotFoundError as error:
                raise DecodeError(
                    "this data file of the checkpoint is missing",
                    format=FORMAT,
                    path=error.filename,
                    offset=0,
                ) from None
        return source, 0, source.size

    def read_at(self, offset: int, count: int) -> memoryview:
        raise DecodeError(
            "a checkpoint is not one run of bytes", format=FORMAT, path=self.path, offset=offset
        )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sources, self._sources = self._sources, {}
        for source in sources.values():
            source.close()


class JoinedData:
    """All data files one after the other, each ending with its last tensor, in one source."""

    def __init__(self, source: Source, index: CheckpointIndex, end: int) -> None:
        self._source, self._places, at = source, {}, 0
        self.index_path = source.path
        ends = index.ends()
        for shard in sorted(ends):
            self._places[shard] = at, at + ends[shard]
            at += ends[shard]
        if at != end:
            raise DecodeError(
                f"{end} bytes before the index, and its tensors end at {at}",
                format=FORMAT,
                offset=min(at, end),
            )

    def place(self, shard: int) -> tuple[Source, int, int]:
        return self._source, *self._places.get(shard, (0, 0))


def index_path(prefix: str) -> str:
    return f"{os.fspath(prefix)}.index"
