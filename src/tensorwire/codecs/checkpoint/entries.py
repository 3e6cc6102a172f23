"""The index of a TensorFlow checkpoint: what it says of every tensor, checked as far as that goes
without the data.

The index is a table (`wire.table`). Its first key is "", whose value is the header {num_shards,
endianness, version}; every other value is an entry {dtype, shape, shard_id, offset, size, crc32c,
slices}. A variable that was saved in slices has an entry without bytes that lists them, and each
slice an entry of its own, under a key that begins with a zero byte.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..._errors import DecodeError, LimitError
from ..._limits import Limits
from ...core import dtypes
from ...storage.files import BytesSource
from ...wire import kernels, leveldb
from ...wire.protobuf import MessageReader
from .names import SUFFIX

Array = np.ndarray[Any, Any]
FORMAT = "checkpoint"
_SUFFIX = SUFFIX.encode()
VERSION = 1
"""Of the bundle format: what TensorFlow has written since 2016."""
_OPAQUE = 255
"""The size of an element where the shape does not tell how many bytes there are: strings, variants
and dtypes that are not known here."""
_KNOWN = {number: row.numpy.itemsize for number, row in dtypes.BY_TF.items()}
_ITEMSIZES = bytes([0, *(_KNOWN.get(number, _OPAQUE) for number in range(1, 256))])


class BundleEntry(NamedTuple):
    """One tensor, or one slice of one."""

    key: str | bytes
    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    """Masked."""
    slices: bool
    """Whether it is in slices, and has no bytes of its own."""

    @property
    def row(self) -> dtypes.DType | None:
        """None for strings and what else has no numbers."""
        return dtypes.BY_TF.get(self.dtype)


@dataclass(slots=True)
class CheckpointIndex:
    """All entries, by number. Columns are arrays, so that a checkpoint of many thousand variables
    opens in a moment.
    """

    shards: int
    big_endian: bool
    stems: list[str]
    """The keys, without `SUFFIX` where they end so."""
    shapes: list[tuple[int, ...]]
    places: Array
    """int64 [3, n]: shard, offset, size"""
    crcs: Array
    """uint32, masked"""
    kinds: Array
    """uint8 [4, n]: dtype, whether the key has the suffix, whether the tensor is in slices, whether
    there is a dot before the suffix
    """
    pieces: dict[bytes, BundleEntry] = field(default_factory=dict)
    """Slices of variables, by their keys."""
    sliced: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """The entries of variables that are in slices, as messages, and where they are."""

    def __len__(self) -> int:
        return len(self.stems)

    @property
    def had_suffix(self) -> Array:
        found: Array = self.kinds[1]
        return found

    def find(self, key: str) -> int | None:
        """The number of a key that has not the suffix."""
        # whose keys ascend, as text does where its UTF-8 does
        bare = np.flatnonzero(self.had_suffix == 0)
        at = bisect_left(bare, key, key=self.stems.__getitem__)
        return int(bare[at]) if at < len(bare) and self.stems[bare[at]] == key else None

    def key(self, i: int) -> str:
        return self.stems[i] + SUFFIX if self.had_suffix[i] else self.stems[i]

    def all_keys(self) -> list[str]:
        return [
            stem + SUFFIX if had else stem
            for stem, had in zip(self.stems, self.had_suffix.tolist(), strict=True)
        ]

    def entry(self, i: int) -> BundleEntry:
        key = self.stems[i] if isinstance(self.stems[i], bytes) else self.key(i)
        dtype, _, sliced, _ = self.kinds[:, i].tolist()
        shard, offset, size = self.places[:, i].tolist()
        return BundleEntry(
            key, dtype, self.shapes[i], shard, offset, size, int(self.crcs[i]), bool(sliced)
        )

    def shards_in_use(self) -> list[int]:
        """The data files that hold something."""
        if self.shards == 1:
            return [0]
        return sorted(
            {*np.unique(self.places[0]).tolist(), *(piece.shard for piece in self.pieces.values())}
        )

    def ends(self) -> dict[int, int]:
        """Where the last tensor of each data file ends."""
        found: dict[int, int] = {}
        for shard, offset, size in self.places.T.tolist() + [
            [one.shard, one.offset, one.size] for one in self.pieces.values()
        ]:
            found[shard] = max(found.get(shard, 0), offset + size)
        return found


def read_index(data: Any, limits: Limits) -> CheckpointIndex:
    """The index in these bytes, strictly: what does not fit is a DecodeError that says where."""
    names: list[Any] = []
    shapes: list[tuple[int, ...]] = []
    columns: list[tuple[Array, Array, Array]] = []
    sliced: dict[str, tuple[bytes, int]] = {}
    header: tuple[int, bool] | None = None
    for block in leveldb.contents(data, FORMAT):
        first = int(header is None)
        header = header or _header(*leveldb.first(block, FORMAT))
        status, at, last, *found = kernels.bundle_block(
            block.data, block.room, first, _SUFFIX, _ITEMSIZES, header[0]
        )
        if status:
            raise block.fault(status, at, FORMAT).add(tensor=None if last is None else _text(last))
        start = len(names)
        names += found[0]
        shapes += found[1]
        columns.append((found[2].reshape(3, -1), found[3], found[4].reshape(4, -1)))
        _check_block(
            block, names[start] if len(names) > start else b"", first, last, columns[-1][2]
        )
        if columns[-1][2][2].any():
            sliced |= _sliced(block, columns[-1][2], first)
        if len(names) > limits.names:
            raise LimitError(
                f"more than {limits.names:,} tensors; tw.Limits(names=...) allows more",
                format=FORMAT,
                offset=block.offset,
            )
    if header is None:
        raise DecodeError("an index without a header", format=FORMAT, offset=0)
    places, crcs, kinds = (
        columns[0][i] if len(columns) == 1 else np.concatenate([one[i] for one in columns], -1)
        for i in range(3)
    )
    _check_places(places, names)
    return _index(CheckpointIndex(*header, names, shapes, places, crcs, kinds, {}, sliced))


def _check_block(block: leveldb.Contents, name: Any, first: int, last: bytes, kinds: Array) -> None:
    """That the block has the keys that the table's index promises."""
    key = (
        b""
        if first
        else (
            name
            if isinstance(name, bytes)
            else name.encode() + _SUFFIX * int(kinds[1, 0])
            if kinds.size
            else None
        )
    )
    try:
        if key is None:
            raise DecodeError("an empty block in a table", offset=block.offset)
        block.check(key, last)
    except DecodeError as error:
        raise error.add(format=FORMAT) from None


def _sliced(block: leveldb.Contents, kinds: Array, first: int) -> dict[str, tuple[bytes, int]]:
    items = leveldb.block(block, FORMAT)
    return {
        items.key(first + i).decode(): (items.value(first + i), block.offset)
        for i in np.flatnonzero(kinds[2]).tolist()
    }


def _index(index: CheckpointIndex) -> CheckpointIndex:
    """With the slices in their place; they sort before everything else."""
    names = index.stems
    if names and isinstance(names[0], bytes):
        count = next((i for i, name in enumerate(names) if isinstance(name, str)), len(names))
        index.pieces = {names[i]: index.entry(i) for i in range(count)}
        index.stems, index.shapes, index.crcs = (
            names[count:],
            index.shapes[count:],
            index.crcs[count:],
        )
        index.places, index.kinds = index.places[:, count:], index.kinds[:, count:]
    return index


@lru_cache(16)
def _header(key: bytes, message: bytes) -> tuple[int, bool]:
    if key:
        raise DecodeError(
            "the first key of an index is not the empty one: this is a table, and no checkpoint",
            format=FORMAT,
            offset=0,
        )
    reader = MessageReader(BytesSource(message), FORMAT, Limits(names=1000))
    said = reader.take((0, len(message)), once=(3,), numbers=(1, 2))
    version = reader.take(said[3], numbers=(1, 2)) if said[3] is not None else {2: 0}
    if version[2] > VERSION:
        why = (
            f"a checkpoint for readers of version {version[2]} and later; this one knows {VERSION}"
        )
        raise DecodeError(why, format=FORMAT, offset=0)
    if not 0 < said[1] < 1 << 31 or said[2] > 1:
        raise DecodeError(
            f"a header of {said[1]} data files in byte order {said[2]}", format=FORMAT, offset=0
        )
    return said[1], said[2] == 1


def _check_places(places: Array, names: list[Any]) -> None:
    """No two tensors have bytes in common."""
    some = np.arange(places.shape[1]) if places[2].all() else np.flatnonzero(places[2])
    shard, start, size = places if len(some) == places.shape[1] else places[:, some]
    stop = start + size
    # one data file: as many begin as have ended
    if not shard.any() and (np.sort(start)[1:] >= np.sort(stop)[:-1]).all():
        return
    order = np.lexsort((start, shard))
    some, shard, start, stop = some[order], shard[order], start[order], stop[order]
    bad = np.flatnonzero((shard[1:] == shard[:-1]) & (start[1:] < stop[:-1]))
    if len(bad):
        one, other = (_text(names[int(some[at])]) for at in (bad[0], bad[0] + 1))
        raise DecodeError(
            f"its bytes overlap those of {one!r:.80}", format=FORMAT, tensor=other, offset=0
        )


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode(errors="backslashreplace")
