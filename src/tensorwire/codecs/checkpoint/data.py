"""Data files of a checkpoint: PREFIX.data-00000-of-00002 and so on, or all of them concatenated."""

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
"""Data files that are opened together with the index. A checkpoint that is replaced later does not
affect files that are open already. Further files are opened on first use.
"""


def data_path(prefix: str, shard: int, shards: int) -> str:
    """Returns the path of a data file.

    >>> data_path("model.ckpt-10", 0, 2)
    'model.ckpt-10.data-00000-of-00002'
    """
    return f"{prefix}.data-{shard:05d}-of-{shards:05d}"


class Data(Protocol):
    """The data files of a checkpoint."""

    index_path: str | None

    def place(self, shard: int) -> tuple[Source, int, int]:
        """Returns the source that holds a data file, and its start and end in that source."""


class DataFiles:
    """Data files on disk. This is also the Source of the checkpoint, which closes them."""

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
                # An index alone can be listed. Reading a tensor reports the missing data file.
                pass
        self.size = index_size + sum(source.size for source in self._sources.values())
        """Total bytes of the index and of the data files that are open."""

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
                    "a data file of the checkpoint is missing",
                    format=FORMAT,
                    path=error.filename,
                    offset=0,
                ) from None
        return source, 0, source.size

    def read_at(self, offset: int, count: int) -> memoryview:
        raise DecodeError(
            "a checkpoint consists of several files and cannot be read as one",
            format=FORMAT,
            path=self.path,
            offset=offset,
        )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sources, self._sources = self._sources, {}
        for source in sources.values():
            source.close()


class JoinedData:
    """Concatenated data files in one source. Each ends where its last tensor does."""

    def __init__(self, source: Source, index: CheckpointIndex, end: int) -> None:
        self._source, self._places, offset = source, {}, 0
        self.index_path = source.path
        ends = index.ends()
        for shard in sorted(ends):
            self._places[shard] = offset, offset + ends[shard]
            offset += ends[shard]
        if offset != end:
            raise DecodeError(
                f"the index begins at byte {end}, but the last tensor ends at {offset}",
                format=FORMAT,
                offset=min(offset, end),
            )

    def place(self, shard: int) -> tuple[Source, int, int]:
        return self._source, *self._places.get(shard, (0, 0))


def index_path(prefix: str) -> str:
    return f"{os.fspath(prefix)}.index"
