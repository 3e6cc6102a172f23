"""`RecordReader`: records in file order, by number, shuffled, or one worker's shard of them."""

from __future__ import annotations

import bisect
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Self, overload

import numpy as np

from .._errors import UsageError
from .._limits import Limits
from ..core import memory
from ..core.tensors import Strings
from . import blocks as _blocks
from . import index as _index
from . import paths, random_access, resync

Array = np.ndarray[Any, Any]

_POLL = 0.05
"""Seconds between two checks of a file that is followed."""
_GATHER = 1024
"""Records fetched at once when they are read in another order."""


Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A path, a glob pattern, or a list of them."""


class RecordReader:
    """Reads the records of TFRecord files as bytes, in file order or by number.

    `path` is a path, a glob pattern or a list of them. Both checksums of each record are always
    verified. The compression is detected, unless `compression` names it.

    on_corrupt "skip" continues behind damage and lists it in `skipped` follow     wait for more
    records at the end of a file, until none has come for `timeout` seconds
               (default: for ever)
    mmap       map uncompressed files instead of reading them; they must not be truncated meanwhile,
               which would kill the process
    index      keep the index that access by number, `shuffle` and `shard` need beside the file, as
               `NAME.idx`
    limits     the tw.Limits for untrusted files

    Iterating yields bytes. `len(reader)`, `reader[i]` and `reader[i:j]` count over all files.
    Raises DecodeError for damaged files and UsageError for invalid arguments.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with tw.RecordWriter(path) as writer:
    ...     for word in (b"one", b"two", b"three"):
    ...         writer.write(word)
    >>> reader = tw.RecordReader(path)
    >>> list(reader), len(reader), reader[-1], reader[:2]
    ([b'one', b'two', b'three'], 3, b'three', [b'one', b'two'])
    """

    def __init__(
        self,
        path: Paths,
        *,
        compression: str | None = None,
        on_corrupt: Literal["raise", "skip"] = "raise",
        follow: bool = False,
        timeout: float | None = None,
        mmap: bool = False,
        index: bool = True,
        limits: Limits | None = None,
    ) -> None:
        if on_corrupt not in ("raise", "skip"):
            raise UsageError(f'on_corrupt must be "raise" or "skip", not {on_corrupt!r}')
        self.paths: list[str] = paths.expand(path)
        self.skipped: list[resync.Gap] = []
        """The gaps that `on_corrupt="skip"` skipped in the last pass, with their paths."""
        self._compression, self._skip, self._limits, self._keep = (
            compression,
            on_corrupt == "skip",
            limits,
            index,
        )
        self._follow, self._timeout, self._mmap = follow, timeout, mmap
        if mmap and (follow or self._skip):
            raise UsageError("mmap=True cannot be combined with follow=True or on_corrupt='skip'")
        if follow and (len(self.paths) > 1 or self._skip):
            raise UsageError(
                "follow=True needs a single file and cannot be combined with on_corrupt='skip'"
            )
        self._files: list[random_access.IndexedFile] | None = None
        self._starts: list[int] | None = None
        self._chosen: range | Array | None = None
        self._pool = memory.MemoryPool()

    def blocks(self, check: bool = True) -> Iterator[_blocks.Block]:
        """Yield blocks of records as they lie in memory, some hundred kilobytes each.

        This is for callers that decode records without creating a bytes object for each. Without
        `check`, the caller verifies the checksums of the data.
        """
        if self._chosen is not None:
            for start in range(0, len(self._chosen), _GATHER):
                yield from self._gather(np.asarray(self._chosen[start : start + _GATHER]))
            return
        self.skipped = []
        for path in self.paths:
            if self._skip:
                for item in resync.scan(path, compression=self._compression, limits=self._limits):
                    if isinstance(item, resync.Gap):
                        self.skipped.append(item)
                    else:
                        yield item
                continue
            if self._mmap:
                yield from _blocks.mapped(
                    path, compression=self._compression, check=check, limits=self._limits
                )
                continue
            wait = _Wait(self._timeout) if self._follow else None
            for block in _blocks.blocks(
                path,
                compression=self._compression,
                check=check,
                limits=self._limits,
                pool=self._pool,
                wait=wait,
            ):
                if wait is not None:
                    wait.reset()
                yield block
                del block

    def __iter__(self) -> Iterator[bytes]:
        return itertools.chain.from_iterable(block.strings() for block in self.blocks())

    def batches(self, size: int) -> Iterator[Strings]:
        """Yield the records as one `Strings` per `size` records; the last batch may be smaller."""
        if size < 1:
            raise UsageError(f"size must be at least 1, not {size}")
        records: list[bytes] = []
        for block in self.blocks():
            records += block.strings()
            for start in range(0, len(records) - size + 1, size):
                yield Strings.of(records[start : start + size])
            records = records[len(records) - len(records) % size :]
        if records:
            yield Strings.of(records)

    def _opened(self) -> list[random_access.IndexedFile]:
        if self._files is None:
            self._files = [
                random_access.IndexedFile(path, self._compression, self._limits, self._keep)
                for path in self.paths
            ]
        return self._files

    def _bounds(self) -> list[int]:
        """Return the number of the first record of each file, and the total."""
        if self._starts is None:
            self._starts = [0, *itertools.accumulate(map(len, self._opened()))]
        return self._starts

    def _gather(self, numbers: Array) -> Iterator[_blocks.Block]:
        """Yield records by their numbers over all files.

        Consecutive numbers in one file become one block.
        """
        if len(self.paths) == 1:
            yield self._opened()[0].gather(numbers)
            return
        bounds = self._bounds()
        file_numbers = np.searchsorted(bounds, numbers, side="right") - 1
        cuts = np.flatnonzero(np.diff(file_numbers)) + 1
        for part, file in zip(
            np.split(numbers, cuts), file_numbers[np.r_[0, cuts]].tolist(), strict=True
        ):
            yield self._opened()[file].gather(part - bounds[file])

    def __len__(self) -> int:
        if self._chosen is not None:
            return len(self._chosen)
        # This is a TypeError because list(reader) asks for the length first, and ignores that type.
        if self._skip or self._follow:
            raise TypeError(
                "a reader with on_corrupt='skip' or follow=True has no length: count the records"
                " while reading"
            )
        if self._files is not None:
            return self._bounds()[-1]
        return sum(_index.count(path, self._compression, self._limits) for path in self.paths)

    @overload
    def __getitem__(self, key: int) -> bytes: ...
    @overload
    def __getitem__(self, key: slice) -> list[bytes]: ...
    def __getitem__(self, key: int | slice) -> bytes | list[bytes]:
        bounds = self._bounds()
        chosen: Sequence[int] | Array = range(bounds[-1]) if self._chosen is None else self._chosen
        if isinstance(key, slice):
            numbers = np.asarray(chosen[key], np.int64)
            return (
                [record for block in self._gather(numbers) for record in block.strings()]
                if len(numbers)
                else []
            )
        if not -len(chosen) <= key < len(chosen):
            raise IndexError(f"record {key} is out of range for {len(chosen)} records")
        number = int(chosen[key])
        file = bisect.bisect_right(bounds, number) - 1
        return self._opened()[file].record(number - bounds[file])

    def shuffle(self, seed: int) -> Self:
        """Return a reader of the same records in a random order that depends on `seed` alone.

        Every order is equally likely. Each record is then a read of its own, which is fast from
        memory or a local disk. A compressed file is decompressed once into a temporary file.
        """
        total = len(self)
        order = np.random.default_rng(seed).permutation(total)
        return self._with(
            order if self._chosen is None else np.asarray(self._chosen, np.int64)[order]
        )

    def shard(self, number: int, count: int) -> Self:
        """Return a reader of the share of worker `number` of `count`.

        A share consists of whole files if there are at least `count` of them, else of consecutive
        records. Every record is in exactly one share.
        """
        if not 0 <= number < count:
            raise UsageError(
                f"invalid shard {number} of {count}: expected a number from 0 to {count - 1}"
            )
        if self._chosen is None and len(self.paths) >= count:
            share = self._with(None)
            share.paths = self.paths[number::count]
            share._files = share._starts = None
            return share
        chosen = range(self._bounds()[-1]) if self._chosen is None else self._chosen
        return self._with(
            chosen[len(chosen) * number // count : len(chosen) * (number + 1) // count]
        )

    def _with(self, chosen: range | Array | None) -> Self:
        if chosen is not None and (self._skip or self._follow):
            raise UsageError(
                "access by number cannot be combined with on_corrupt='skip' or follow=True",
                hint="repair a damaged file with tw.repair first",
            )
        reader = object.__new__(type(self))
        reader.__dict__.update(self.__dict__)
        reader.skipped, reader._chosen, reader._pool = [], chosen, memory.MemoryPool()
        return reader

    def close(self) -> None:
        """Close the files that access by number has opened."""
        for file in self._files or ():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"RecordReader({self.paths[0]!r}{more})"


class _Wait:
    """Sleeps at the end of a file, until nothing was written for `timeout` seconds."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout, self._since = timeout, time.monotonic()

    def reset(self) -> None:
        self._since = time.monotonic()

    def __call__(self) -> bool:
        if self._timeout is not None and time.monotonic() - self._since >= self._timeout:
            return False
        time.sleep(_POLL)
        return True
