"""Records as they are in the files: one after the other, by number, in another order, or a worker's
share of them.
"""

from __future__ import annotations

import bisect
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Self, overload

import numpy as np

from .._errors import EncodeError
from .._limits import Limits
from ..core import memory
from ..core.tensors import Strings
from . import blocks as _blocks
from . import index as _index
from . import paths, random_access, resync

Array = np.ndarray[Any, Any]

_POLL = 0.05
"""Seconds between two looks at a file that is followed."""
_GATHER = 1024
"""Records fetched at once when they are read in another order."""


Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A path, a pattern, or some of them."""


class RecordReader:
    """Records of one TFRecord file or of many: `path` is a path, a pattern or a list of them. Both
    checksums of each are always checked.

    Compression (gzip, zlib, snappy) is recognised. `on_corrupt="skip"` goes on behind damage, and
    `skipped` says what was lost. `mmap=True` maps plain files instead of reading them, for files
    that nobody truncates meanwhile (that would kill the process). `follow=True` waits at the end of
    a file for more (for `timeout` seconds at most, if given). Numbers, `shuffle` and `shard` need
    an index, which is made when it is first needed and kept beside the file as `NAME.idx` unless
    `index=False`.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> from tensorwire import RecordWriter
    >>> with RecordWriter(path) as writer:
    ...     for word in (b"one", b"two", b"three"):
    ...         writer.write(word)
    >>> reader = RecordReader(path)
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
            raise EncodeError(f'on_corrupt is "raise" or "skip", not {on_corrupt!r}')
        self.paths: list[str] = paths.expand(path)
        self.skipped: list[resync.Gap] = []
        """What `on_corrupt="skip"` passed over in the last pass, with the path of each."""
        self._compression, self._skip, self._limits, self._keep = (
            compression,
            on_corrupt == "skip",
            limits,
            index,
        )
        self._follow, self._timeout, self._mmap = follow, timeout, mmap
        if mmap and (follow or self._skip):
            raise EncodeError(
                "mmap=True is for whole files: not with follow=True or on_corrupt='skip'"
            )
        if follow and (len(self.paths) > 1 or self._skip):
            raise EncodeError(
                "follow=True is for one file, and not together with on_corrupt='skip'"
            )
        self._files: list[random_access.IndexedFile] | None = None
        self._starts: list[int] | None = None
        self._chosen: range | Array | None = None
        self._pool = memory.MemoryPool()

    def blocks(self, check: bool = True) -> Iterator[_blocks.Block]:
        """The records as they lie in memory, some hundred kilobytes at a time: for those who decode
        them without a Python object each.
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
        """The records, `size` at a time (the last batch may be smaller), each batch as one
        `Strings`.
        """
        if size < 1:
            raise EncodeError(f"a batch has at least one record, not {size}")
        held: list[bytes] = []
        for block in self.blocks():
            held += block.strings()
            for start in range(0, len(held) - size + 1, size):
                yield Strings.of(held[start : start + size])
            held = held[len(held) - len(held) % size :]
        if held:
            yield Strings.of(held)

    def _opened(self) -> list[random_access.IndexedFile]:
        if self._files is None:
            self._files = [
                random_access.IndexedFile(path, self._compression, self._limits, self._keep)
                for path in self.paths
            ]
        return self._files

    def _bounds(self) -> list[int]:
        """The number of the first record of each file, and behind the last one."""
        if self._starts is None:
            self._starts = [0, *itertools.accumulate(map(len, self._opened()))]
        return self._starts

    def _gather(self, numbers: Array) -> Iterator[_blocks.Block]:
        """Records by their numbers over all files, a block for each run that lies in one file."""
        if len(self.paths) == 1:
            yield self._opened()[0].gather(numbers)
            return
        bounds = self._bounds()
        where = np.searchsorted(bounds, numbers, side="right") - 1
        cuts = np.flatnonzero(np.diff(where)) + 1
        for part, file in zip(np.split(numbers, cuts), where[np.r_[0, cuts]].tolist(), strict=True):
            yield self._opened()[file].gather(part - bounds[file])

    def __len__(self) -> int:
        if self._chosen is not None:
            return len(self._chosen)
        # a TypeError, so that list(reader), which asks for the length first, goes on without
        if self._skip or self._follow:
            raise TypeError(
                "how many records a damaged or growing file has is known at its end: count while"
                " you read"
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
            raise IndexError(f"record {key} of {len(chosen)}")
        number = int(chosen[key])
        file = bisect.bisect_right(bounds, number) - 1
        return self._opened()[file].record(number - bounds[file])

    def shuffle(self, seed: int) -> Self:
        """The same records in an order that depends on `seed` alone, every order being as likely as
        any other.

        Each record is then a read of its own: quick from memory or a local disk. A compressed file
        is unpacked once, into a temporary one.
        """
        total = len(self)
        order = np.random.default_rng(seed).permutation(total)
        return self._with(
            order if self._chosen is None else np.asarray(self._chosen, np.int64)[order]
        )

    def shard(self, number: int, count: int) -> Self:
        """The share of worker `number` of `count`: whole files where there are enough of them, else
        neighbouring records.

        Every record is in exactly one share.
        """
        if not 0 <= number < count:
            raise EncodeError(
                f"share {number} of {count}: shares are counted from 0 to {count - 1}"
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
            raise EncodeError(
                "records by number are for files that are whole: not with on_corrupt='skip' or"
                " follow=True; tw.repair first"
            )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.skipped, other._chosen, other._pool = [], chosen, memory.MemoryPool()
        return other

    def close(self) -> None:
        """Closes what reading by number has opened."""
        for file in self._files or ():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RecordReader({self.paths[0]!r}{f' and {len(self.paths) - 1} more' if len(self.paths) > 1 else ''})"


class _Wait:
    """Sleeps at the end of a file, until nothing has come for `timeout` seconds."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout, self._since = timeout, time.monotonic()

    def reset(self) -> None:
        self._since = time.monotonic()

    def __call__(self) -> bool:
        if self._timeout is not None and time.monotonic() - self._since >= self._timeout:
            return False
        time.sleep(_POLL)
        return True
