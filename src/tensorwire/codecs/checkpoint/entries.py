"""Index reader of a TensorBundle: parses PREFIX.index and checks what can be checked without data.

The index is an SSTable (`wire.leveldb`), which maps keys to protobuf messages. The first key is "",
and its value is the header {num_shards, endianness, version}. Every other value is an entry {dtype,
shape, shard_id, offset, size, crc32c, slices}.

1. Blocks are read in order. `leveldb.contents` has verified the CRC of each one.
2. The kernel `bundle_block` parses a whole block into columns: keys, shapes, places, CRCs and
   kinds. It checks each entry by itself: valid dtype, shape and shard, and for fixed-size dtypes a
   size that equals the product of the shape.
3. The first and last key of a block must lie in the range that the table's index gives to it.
   Together with the ascending keys in a block, that rules out duplicates.
4. The entry of a partitioned variable lists its slices and has no bytes. Each slice has an entry of
   its own. Slice keys begin with a zero byte, so they sort before all others and are split off.
5. No two tensors may overlap in a data file. That is checked for all entries at once, by sorting.
6. Almost all keys end with the same suffix, which the kernel cuts off. The full key is made only
   when it is needed.
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
"""The version of the bundle format that TensorFlow has written since 2016."""
_OPAQUE = 255
"""Element size that means "not fixed": strings, variants and unsupported dtypes, whose number of
bytes does not follow from the shape.
"""
_KNOWN = {number: row.numpy.itemsize for number, row in dtypes.BY_TF.items()}
_ITEMSIZES = bytes([0, *(_KNOWN.get(number, _OPAQUE) for number in range(1, 256))])


class BundleEntry(NamedTuple):
    """The index entry of one tensor, or of one slice."""

    key: str | bytes
    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    """CRC-32C of the tensor's bytes, masked."""
    slices: bool
    """Whether the tensor is partitioned into slices and has no bytes of its own."""

    @property
    def row(self) -> dtypes.DType | None:
        """The numeric dtype; None for strings, variants and unsupported dtypes."""
        return dtypes.BY_TF.get(self.dtype)


@dataclass(slots=True)
class CheckpointIndex:
    """All entries by number. They are kept as columns, so that large checkpoints open quickly."""

    shards: int
    big_endian: bool
    stems: list[str]
    """The keys, without `SUFFIX` where they end with it."""
    shapes: list[tuple[int, ...]]
    places: Array
    """int64 [3, n]: shard, offset, size"""
    crcs: Array
    """uint32, masked"""
    kinds: Array
    """uint8 [4, n]: dtype, had the suffix, is in slices, the stem has a dot"""
    pieces: dict[bytes, BundleEntry] = field(default_factory=dict)
    """The entries of slices by key."""
    sliced: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Key of a partitioned variable -> its entry as a message, and the offset of its block."""

    def __len__(self) -> int:
        return len(self.stems)

    @property
    def had_suffix(self) -> Array:
        flags: Array = self.kinds[1]
        return flags

    def find(self, key: str) -> int | None:
        """Returns the number of a key without the suffix; None if there is none."""
        # Keys ascend as bytes. Their text ascends too, because UTF-8 preserves the order.
        bare = np.flatnonzero(self.had_suffix == 0)
        position = bisect_left(bare, key, key=self.stems.__getitem__)
        return (
            int(bare[position])
            if position < len(bare) and self.stems[bare[position]] == key
            else None
        )

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
        """Returns the numbers of the data files that hold tensors."""
        if self.shards == 1:
            return [0]
        return sorted(
            {*np.unique(self.places[0]).tolist(), *(piece.shard for piece in self.pieces.values())}
        )

    def ends(self) -> dict[int, int]:
        """Returns the end of the last tensor in each data file."""
        ends: dict[int, int] = {}
        for shard, offset, size in self.places.T.tolist() + [
            [piece.shard, piece.offset, piece.size] for piece in self.pieces.values()
        ]:
            ends[shard] = max(ends.get(shard, 0), offset + size)
        return ends


def read_index(data: Any, limits: Limits) -> CheckpointIndex:
    """Parses an index strictly; any violation is a DecodeError with its offset."""
    names: list[Any] = []
    shapes: list[tuple[int, ...]] = []
    columns: list[tuple[Array, Array, Array]] = []
    sliced: dict[str, tuple[bytes, int]] = {}
    header: tuple[int, bool] | None = None
    for block in leveldb.contents(data, FORMAT):
        first = int(header is None)
        header = header or _header(*leveldb.first(block, FORMAT))
        status, offset, last, *entries = kernels.bundle_block(
            block.data, block.room, first, _SUFFIX, _ITEMSIZES, header[0]
        )
        if status:
            raise block.fault(status, offset, FORMAT).add(
                tensor=None if last is None else _text(last)
            )
        start = len(names)
        names += entries[0]
        shapes += entries[1]
        columns.append((entries[2].reshape(3, -1), entries[3], entries[4].reshape(4, -1)))
        _check_block(
            block, names[start] if len(names) > start else b"", first, last, columns[-1][2]
        )
        if columns[-1][2][2].any():
            sliced |= _sliced(block, columns[-1][2], first)
        if len(names) > limits.names:
            raise LimitError(
                f"more than {limits.names:,} tensors; tw.Limits(names=...) raises the limit",
                format=FORMAT,
                offset=block.offset,
            )
    if header is None:
        raise DecodeError("the checkpoint index has no header", format=FORMAT, offset=0)
    places, crcs, kinds = (
        columns[0][i]
        if len(columns) == 1
        else np.concatenate([column[i] for column in columns], -1)
        for i in range(3)
    )
    _check_places(places, names)
    return _index(CheckpointIndex(*header, names, shapes, places, crcs, kinds, {}, sliced))


def _check_block(block: leveldb.Contents, name: Any, first: int, last: bytes, kinds: Array) -> None:
    """Checks that a block has the keys that the table's index assigns to it."""
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
            raise DecodeError("the table has an empty block", offset=block.offset)
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
    """Moves the entries of slices, which sort before all others, from the columns to `pieces`."""
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
            "not a checkpoint index: the first key of the table is not empty",
            format=FORMAT,
            offset=0,
        )
    reader = MessageReader(BytesSource(message), FORMAT, Limits(names=1000))
    fields = reader.take((0, len(message)), once=(3,), numbers=(1, 2))
    version = reader.take(fields[3], numbers=(1, 2)) if fields[3] is not None else {2: 0}
    if version[2] > VERSION:
        why = (
            f"the checkpoint requires a reader of version {version[2]}, but this one supports"
            f" version {VERSION}"
        )
        raise DecodeError(why, format=FORMAT, offset=0)
    if not 0 < fields[1] < 1 << 31 or fields[2] > 1:
        raise DecodeError(
            f"invalid checkpoint header: {fields[1]} data files, byte order {fields[2]}",
            format=FORMAT,
            offset=0,
        )
    return fields[1], fields[2] == 1


def _check_places(places: Array, names: list[Any]) -> None:
    """Checks that no two tensors share bytes of a data file."""
    rows = np.arange(places.shape[1]) if places[2].all() else np.flatnonzero(places[2])
    shard, start, size = places if len(rows) == places.shape[1] else places[:, rows]
    stop = start + size
    # Fast path for one data file: if every start, sorted, is at or behind the previous end, sorted,
    # no two intervals overlap, and the tensors need not be matched with their ends.
    if not shard.any() and (np.sort(start)[1:] >= np.sort(stop)[:-1]).all():
        return
    order = np.lexsort((start, shard))
    rows, shard, start, stop = rows[order], shard[order], start[order], stop[order]
    bad = np.flatnonzero((shard[1:] == shard[:-1]) & (start[1:] < stop[:-1]))
    if len(bad):
        first_name, second_name = (_text(names[int(rows[row])]) for row in (bad[0], bad[0] + 1))
        raise DecodeError(
            f"the tensor overlaps the bytes of {first_name!r:.80}",
            format=FORMAT,
            tensor=second_name,
            offset=0,
        )


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode(errors="backslashreplace")
