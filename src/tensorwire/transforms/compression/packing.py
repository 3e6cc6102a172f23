"""Packed tensors: one tensor compressed in blocks that are decompressed in parallel or on demand.

    info    {"compression": "zstd", "shuffle": 4, "block": 1048576}
    data    a table, then the parts of the first block, those of the second, ...

1. `block` is the size in bytes of each block of the tensor, except the last.
2. With `shuffle`, the bytes of an item, a block has one part for each byte plane: the first bytes of
   all its items, then the second bytes, and so on. Without it, a block is one part.
3. The table has a row of little-endian uint32 for each block: the packed size of each part, then the
   CRC32C of these sizes and of all parts of the block.
4. A part of n bytes whose packed size is n is stored as it is. A packed size of 1 is that byte,
   repeated n times. Any other part is a gzip member, a zlib stream, a zstd or lz4 frame, or a Snappy
   block with its length before it.
5. Zeros may follow the last block, to keep the expansion within the default `Limits.expansion`.

    info    {"shuffle": 4, "block": 1048576}
    data    the planes of the first block, those of the second, ...

Without `compression` the tensor is only shuffled, for a file that is compressed as a whole.

Planes are packed one by one because they differ: most are noise, which is read fastest if it is not
compressed, or constant, and the best compressor of one plane is bad for another (see
`zstd.part_packers`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..._errors import ChecksumError, DecodeError, TruncatedError
from ..._limits import DEFAULT, Budget, Limits
from ...core.memory import Array, Buffer, flat, fresh
from ...wire import kernels
from .. import compression as compressions
from . import Compression, oneshot
from .streams import cores, keep_memory, map_parallel

PLANE = 256 << 10
"""Bytes of a plane. With half as many, zstd saves 7 % less on images. With twice as many, a block
does not fit in the CPU cache.
"""
BLOCK = 1 << 20
"""Bytes of a block that is not shuffled."""
_LARGEST = 8 << 20
"""Bytes of the largest block. Each thread holds two."""
_GROUP = 16
"""Blocks in a group, which are all packed by the packer that was best for the first of them."""
_ITEM = 256
"""Bytes of the largest item that is shuffled."""
_WORD = np.dtype("<u4")

Read = Callable[[int, int], Any]
Pack = Callable[[Buffer], bytes]


@dataclass(frozen=True, slots=True)
class Packing:
    """The options of packing a tensor."""

    compression: str | None = None
    level: int | None = None
    threads: int | None = None
    shuffle: bool = False
    expanded: int = 0
    """Bytes that a reader allocates in addition to all tensors, and that its budget must allow."""


class Packed(NamedTuple):
    """A packed tensor."""

    info: dict[str, Any]
    """The JSON value that a reader needs to unpack it."""
    data: Buffer | Array


def pack(data: Any, item: int, packing: Packing) -> Packed | None:
    """Pack the bytes of a tensor of items of `item` bytes.

    Returns None if the result would not be smaller, or if there is nothing to do.

    >>> import numpy as np
    >>> x = np.arange(1000, dtype=np.int64)
    >>> packed = pack(x, 8, Packing("zlib", shuffle=True))
    >>> packed.info, len(packed.data) < 1000
    ({'compression': 'zlib', 'shuffle': 8, 'block': 2097152}, True)
    >>> bool((how(packed.info, x.nbytes, 8).unpack(packed.data).view(x.dtype) == x).all())
    True
    """
    view = flat(data)
    shuffled = packing.shuffle and 1 < item <= _ITEM
    if len(view) % item:
        raise ValueError(f"{len(view)} bytes are not a whole number of items of {item} bytes")
    block = min(PLANE * item, _LARGEST // item * item) if shuffled else BLOCK
    info = {"shuffle": item, "block": block} if shuffled else {"block": block}
    if packing.compression is None:
        if not shuffled:
            return None
        out = fresh(len(view))
        kernels.shuffle(view, item, block, out)
        return Packed(info, out)
    writer = _Writer(
        view, item if shuffled else 1, block, compressions.entry(packing.compression), packing.level
    )
    table, parts, size = writer.run(cores(packing.threads))
    if size >= len(view):
        return None
    return Packed(
        {"compression": packing.compression} | info, kernels.join([table.tobytes(), *parts])
    )


class _Writer:
    """Packs blocks in threads. The output does not depend on the number of threads."""

    def __init__(
        self, view: memoryview, planes: int, block: int, row: Compression, level: int | None
    ) -> None:
        self._data, self._planes, self._block = np.frombuffer(view, np.uint8), planes, block
        self._packers: list[Pack] = (
            row.parts(level) if row.parts is not None else [row.packer(level)]
        )
        count = -(-len(view) // block)
        # The index of the best packer for each plane, in the first block of each group. -1 if the
        # plane is stored as it is.
        self._choices = np.zeros((count, planes), np.int8)

    def run(self, threads: int) -> tuple[Array, list[bytes], int]:
        """Return (the table, all parts, bytes of both)."""
        count = len(self._choices)
        # The first block of each group chooses the packers, so these blocks are packed before all
        # others. Threads then only read `_choices`, and the output is deterministic.
        first = [i for i in range(count) if i % _GROUP == 0]
        other = [i for i in range(count) if i % _GROUP]
        parts: dict[int, list[bytes]] = {}
        for numbers in (first, other):
            parts |= zip(numbers, map_parallel(self._pack, numbers, threads), strict=True)
        table = np.zeros((count, self._planes + 1), _WORD)
        for i in range(count):
            table[i, :-1] = [len(part) for part in parts[i]]
            table[i, -1] = _check(table[i, :-1], b"".join(parts[i]))
        return (
            table,
            [part for i in range(count) for part in parts[i]],
            table.nbytes + int(table[:, :-1].sum(dtype=np.int64)),
        )

    def _pack(self, number: int) -> list[bytes]:
        data = self._data[number * self._block : (number + 1) * self._block]
        if self._planes > 1:
            scratch = np.empty(len(data), np.uint8)
            kernels.shuffle(data, self._planes, self._block, scratch)
            data = scratch
        return [
            self._part(plane, number, i) for i, plane in enumerate(data.reshape(self._planes, -1))
        ]

    def _part(self, plane: Array, number: int, i: int) -> bytes:
        if _is_constant(plane):
            return plane[:1].tobytes()
        if number % _GROUP:
            choice = self._choices[number - number % _GROUP, i]
            if choice < 0:
                return plane.tobytes()
            part = self._packers[choice](plane.data)
        else:
            candidates = [packer(plane.data) for packer in self._packers]
            sizes = [len(part) for part in candidates]
            choice = sizes.index(min(sizes))
            part = candidates[choice]
            self._choices[number, i] = choice if len(part) < len(plane) else -1
        return part if len(part) < len(plane) else plane.tobytes()


def _is_constant(plane: Array) -> bool:
    """Return whether all bytes are equal. The first 64 decide most cases quickly."""
    return bool((plane[:64] == plane[0]).all()) and bool((plane == plane[0]).all())


def _check(sizes: Array, parts: Any) -> int:
    return int(kernels.crc32c(parts, kernels.crc32c(sizes.tobytes())))


class How:
    """A reader of one packed tensor of `nbytes` bytes, created by `how`."""

    def __init__(self, compression: str | None, shuffle: int, block: int, nbytes: int) -> None:
        self.compression, self.shuffle, self.block, self.nbytes = (
            compression,
            shuffle,
            block,
            nbytes,
        )
        self.checksum = compression is not None
        """Whether the packed bytes have checksums."""

    def __str__(self) -> str:
        return ", ".join(
            ([self.compression] if self.compression else [])
            + (["shuffled"] if self.shuffle else [])
        )

    def unpack(self, data: Any, limits: Limits = DEFAULT) -> Array:
        """Return all bytes of the tensor, in new memory that starts at a multiple of 64."""
        view = flat(data)
        return self.part(lambda start, stop: view[start:stop], len(view), 0, self.nbytes, limits)

    def part(self, read: Read, size: int, start: int, stop: int, limits: Limits = DEFAULT) -> Array:
        """Return the bytes of the tensor from `start` to `stop`.

        `read(start, stop)` returns some of the `size` packed bytes. Only the blocks that contain
        the range are read, and their size is drawn on the budget.
        """
        if not 0 <= start <= stop <= self.nbytes:
            raise ValueError(f"bytes {start} to {stop} are out of range for {self.nbytes}")
        first, last = (start // self.block, -(-stop // self.block)) if stop > start else (0, 0)
        blocks = self._blocks(read, size, first, last, limits.call(size))
        return blocks[start - first * self.block : stop - first * self.block]

    def _blocks(self, read: Read, size: int, first: int, last: int, budget: Budget) -> Array:
        begin, end = first * self.block, min(last * self.block, self.nbytes)
        if self.compression is None:
            if size != self.nbytes:
                raise DecodeError(
                    f"a shuffled tensor of {self.nbytes} bytes has {size} bytes of data",
                    offset=min(size, self.nbytes),
                )
            out = fresh(end - begin)
            kernels.unshuffle(flat(read(begin, end)), self.shuffle, self.block, out)
            return out
        row = compressions.entry(self.compression)
        budget.draw(end - begin, self.compression, 0)
        table, offsets = self._table(read, size)
        keep_memory()
        out, base = fresh(end - begin), int(offsets[first])
        view = flat(read(base, int(offsets[last])))
        if (
            self.nbytes
            and last == len(table)
            and np.frombuffer(flat(read(int(offsets[-1]), size)), np.uint8).any()
        ):
            raise DecodeError(
                "unexpected bytes after the last block",
                format=self.compression,
                offset=int(offsets[-1]),
            )

        def unpack_block(number: int) -> None:
            start = int(offsets[number])
            target = out[(number - first) * self.block : (number - first + 1) * self.block]
            try:
                self._block(
                    view[start - base : int(offsets[number + 1]) - base], table[number], target, row
                )
            except DecodeError as error:
                raise error.add(format=self.compression, offset=0, base=start) from error.__cause__

        for _ in map_parallel(unpack_block, range(first, last), cores(None)):
            pass
        return out

    def _table(self, read: Read, size: int) -> tuple[Array, Array]:
        """Return the table, and the offsets of all blocks and of the end of the last one."""
        planes, count = max(1, self.shuffle), -(-self.nbytes // self.block)
        length = count * (planes + 1) * _WORD.itemsize
        if length > size:
            raise TruncatedError(
                f"the table of a packed tensor needs {length} bytes, but there are {size}",
                format=self.compression,
                offset=size,
            )
        table = np.frombuffer(flat(read(0, length)), _WORD).reshape(count, planes + 1)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(table[:, :-1].sum(axis=1, dtype=np.int64), out=offsets[1:])
        offsets += length
        if offsets[-1] > size:
            raise TruncatedError(
                f"the blocks of a packed tensor end at {offsets[-1]}, but there are {size} bytes",
                format=self.compression,
                offset=size,
            )
        return table, offsets

    def _block(self, view: memoryview, sizes: Array, target: Array, row: Compression) -> None:
        if _check(sizes[:-1], view) != sizes[-1]:
            raise ChecksumError(
                "a block does not match its checksum", format=self.compression, offset=0
            )
        length, offset, planes = len(target) // max(1, self.shuffle), 0, list[Any]()
        for size in sizes[:-1].tolist():
            part, offset = view[offset : offset + size], offset + size
            if not 0 < size <= length:
                raise DecodeError(
                    f"a part of {length} bytes has a packed size of {size}",
                    format=self.compression,
                    offset=offset - size,
                )
            planes.append(part if size in (1, length) else oneshot.unit(part, length, row))
        kernels.merge_planes(planes, target)


def how(info: object, nbytes: int, item: int) -> How:
    """Check the info of a packed tensor of `nbytes` bytes, and return its reader.

    `item` is the size of an item in bytes. Raises DecodeError if the info is not valid.

    >>> str(how({"compression": "zstd", "shuffle": 4, "block": 1048576}, 4000, 4))
    'zstd, shuffled'
    >>> how({"compression": "zap", "block": 1048576}, 4000, 4)
    Traceback (most recent call last):
    tensorwire._errors.DecodeError: invalid info of a packed tensor {'compression': 'zap',
    'block': 1048576}: unknown compression
    """
    if not isinstance(info, dict) or not {"block"} < info.keys() <= {
        "compression",
        "shuffle",
        "block",
    }:
        raise fault(info, "expected 'block' and 'compression', 'shuffle' or both")
    name, shuffle, block = info.get("compression"), info.get("shuffle", 0), info["block"]
    if "compression" in info and (not isinstance(name, str) or name not in compressions.TABLE):
        raise fault(info, "unknown compression")
    if "shuffle" in info and (type(shuffle) is not int or shuffle != item or not 1 < item <= _ITEM):
        raise fault(info, f"items have {item} bytes, so 'shuffle' must be {item}")
    if type(block) is not int or not 0 < block <= _LARGEST or (shuffle and block % item):
        raise fault(info, f"a block must have whole items and at most {_LARGEST} bytes")
    if nbytes < 0 or nbytes % max(1, item):
        raise fault(info, f"{nbytes} bytes are not a whole number of items of {item} bytes")
    return How(name, shuffle, block, nbytes)


def fault(info: object, reason: str) -> DecodeError:
    """Return the error for the info of a packed tensor that is not valid."""
    return DecodeError(f"invalid info of a packed tensor {info!r:.80}: {reason}")
