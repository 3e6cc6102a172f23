"""One tensor alone, compressed in blocks: a reader unpacks them in parallel, or only those that it
needs.

    info    {"compression": "zstd", "shuffle": 4, "block": 1048576}
    data    a table, then the parts of the first block, those of the second, ...

`block` is the bytes of the tensor in each block but the last. With `shuffle`, the bytes of an item,
a block has a part for each byte plane: the first bytes of all its items, then the second bytes, and
so on; else it is one part. The table has a row for each block, in uint32, little-endian: the packed
size of each part, then the CRC32C of these sizes and of all parts of the block. A part of n bytes
whose packed size is n stands there as it is, and one whose packed size is 1 is that byte n times;
any other is a gzip member, a zlib stream, a zstd or lz4 frame, or a Snappy block (with its length
before it). Zeros may stand behind the last block, where the tensor would be too small for the
default `Limits.expansion`.

    info    {"shuffle": 4, "block": 1048576}
    data    the planes of the first block, those of the second, ...: for whoever compresses the
            whole file

Why planes are packed one by one: most are noise, which is quickest read when nobody packed it, or
all the same, and what pays for one costs another (see `zstd.part_packers`).
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
from .streams import cores, each, keep_memory

PLANE = 256 << 10
"""Bytes of a plane: with half of it zstd finds 7 % less in images, with twice as much the block
leaves the cache.
"""
BLOCK = 1 << 20
"""Bytes of a block that is not shuffled."""
_LARGEST = 8 << 20
"""Bytes of the largest block: each thread holds two."""
_GROUP = 16
"""Blocks that are packed in the way that was best for the first of them."""
_ITEM = 256
"""Bytes of the largest item that is shuffled."""
_WORD = np.dtype("<u4")

Read = Callable[[int, int], Any]
Pack = Callable[[Buffer], bytes]


@dataclass(frozen=True, slots=True)
class Packing:
    """What is to be done to each tensor."""

    compression: str | None = None
    level: int | None = None
    threads: int | None = None
    shuffle: bool = False
    expanded: int = 0
    """Bytes that a reader makes of all tensors besides, which its budget has to allow."""


class Packed(NamedTuple):
    """What became of one."""

    info: dict[str, Any]
    """For whoever reads it: JSON."""
    data: Buffer | Array


def pack(data: Any, item: int, packing: Packing) -> Packed | None:
    """The bytes of a tensor whose items have so many; None if they would get no smaller (or cannot
    be shuffled), and stay as they are.

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
        raise ValueError(f"{len(view)} bytes are no whole items of {item}")
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
    """Packs blocks in threads. What is written does not depend on how many."""

    def __init__(
        self, view: memoryview, planes: int, block: int, row: Compression, level: int | None
    ) -> None:
        self._data, self._planes, self._block = np.frombuffer(view, np.uint8), planes, block
        self._ways: list[Pack] = row.parts(level) if row.parts is not None else [row.packer(level)]
        count = -(-len(view) // block)
        self._choices = np.zeros((count, planes), np.int8)
        """Which way was the best for each plane, as far as it is known: -1 for none."""

    def run(self, threads: int) -> tuple[Array, list[bytes], int]:
        """(the table, all parts, bytes of both)"""
        count = len(self._choices)
        first = [i for i in range(count) if i % _GROUP == 0]
        other = [i for i in range(count) if i % _GROUP]
        parts: dict[int, list[bytes]] = {}
        for numbers in (first, other):
            parts |= zip(numbers, each(self._pack, numbers, threads), strict=True)
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
            part = self._ways[choice](plane.data)
        else:
            found = [way(plane.data) for way in self._ways]
            sizes = [len(part) for part in found]
            choice = sizes.index(min(sizes))
            part = found[choice]
            self._choices[number, i] = choice if len(part) < len(plane) else -1
        return part if len(part) < len(plane) else plane.tobytes()


def _is_constant(plane: Array) -> bool:
    return bool((plane[:64] == plane[0]).all()) and bool((plane == plane[0]).all())


def _check(sizes: Array, parts: Any) -> int:
    return int(kernels.crc32c(parts, kernels.crc32c(sizes.tobytes())))


class How:
    """How a tensor of so many bytes was packed, checked."""

    def __init__(self, compression: str | None, shuffle: int, block: int, nbytes: int) -> None:
        self.compression, self.shuffle, self.block, self.nbytes = (
            compression,
            shuffle,
            block,
            nbytes,
        )
        self.checksum = compression is not None
        """Whether damage is found out."""

    def __str__(self) -> str:
        return ", ".join(
            ([self.compression] if self.compression else [])
            + (["shuffled"] if self.shuffle else [])
        )

    def unpack(self, data: Any, limits: Limits = DEFAULT) -> Array:
        """All bytes of the tensor, in new memory that starts at a multiple of 64."""
        view = flat(data)
        return self.part(lambda start, stop: view[start:stop], len(view), 0, self.nbytes, limits)

    def part(self, read: Read, size: int, start: int, stop: int, limits: Limits = DEFAULT) -> Array:
        """The bytes of the tensor from `start` to `stop`, of `size` packed bytes that `read(start,
        stop)` gives: only the blocks that hold them are read. What they become is drawn on the
        budget."""
        if not 0 <= start <= stop <= self.nbytes:
            raise ValueError(f"bytes {start} to {stop} of {self.nbytes}")
        first, last = (start // self.block, -(-stop // self.block)) if stop > start else (0, 0)
        found = self._blocks(read, size, first, last, limits.call(size))
        return found[start - first * self.block : stop - first * self.block]

    def _blocks(self, read: Read, size: int, first: int, last: int, budget: Budget) -> Array:
        begin, end = first * self.block, min(last * self.block, self.nbytes)
        if self.compression is None:
            if size != self.nbytes:
                raise DecodeError(
                    f"{size} bytes of a tensor of {self.nbytes}", offset=min(size, self.nbytes)
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
                "something else behind the last block",
                format=self.compression,
                offset=int(offsets[-1]),
            )

        def one(number: int) -> None:
            start = int(offsets[number])
            target = out[(number - first) * self.block : (number - first + 1) * self.block]
            try:
                self._block(
                    view[start - base : int(offsets[number + 1]) - base], table[number], target, row
                )
            except DecodeError as error:
                raise error.add(format=self.compression, offset=0, base=start) from error.__cause__

        for _ in each(one, range(first, last), cores(None)):
            pass
        return out

    def _table(self, read: Read, size: int) -> tuple[Array, Array]:
        """(the table, where each block begins and the last one ends)"""
        planes, count = max(1, self.shuffle), -(-self.nbytes // self.block)
        length = count * (planes + 1) * _WORD.itemsize
        if length > size:
            raise TruncatedError(
                f"a table of {length} bytes in {size}", format=self.compression, offset=size
            )
        table = np.frombuffer(flat(read(0, length)), _WORD).reshape(count, planes + 1)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(table[:, :-1].sum(axis=1, dtype=np.int64), out=offsets[1:])
        offsets += length
        if offsets[-1] > size:
            raise TruncatedError(
                f"blocks of {offsets[-1]} bytes in {size}", format=self.compression, offset=size
            )
        return table, offsets

    def _block(self, view: memoryview, sizes: Array, target: Array, row: Compression) -> None:
        if _check(sizes[:-1], view) != sizes[-1]:
            raise ChecksumError(
                "a block does not match its checksum", format=self.compression, offset=0
            )
        length, at, planes = len(target) // max(1, self.shuffle), 0, list[Any]()
        for size in sizes[:-1].tolist():
            part, at = view[at : at + size], at + size
            if not 0 < size <= length:
                raise DecodeError(
                    f"a part of {length} bytes takes {size}",
                    format=self.compression,
                    offset=at - size,
                )
            planes.append(part if size in (1, length) else oneshot.unit(part, length, row))
        kernels.merge_planes(planes, target)


def how(info: object, nbytes: int, item: int) -> How:
    """Checks what a file says about a tensor of so many bytes whose items have so many.

    >>> str(how({"compression": "zstd", "shuffle": 4, "block": 1048576}, 4000, 4))
    'zstd, shuffled'
    >>> how({"compression": "zap", "block": 1048576}, 4000, 4)
    Traceback (most recent call last):
    tensorwire._errors.DecodeError: a packed tensor says {'compression': 'zap', 'block': 1048576}:
    no such compression
    """
    if not isinstance(info, dict) or not {"block"} < info.keys() <= {
        "compression",
        "shuffle",
        "block",
    }:
        raise fault(info, "it has a block, and a compression or shuffle or both")
    name, shuffle, block = info.get("compression"), info.get("shuffle", 0), info["block"]
    if "compression" in info and (not isinstance(name, str) or name not in compressions.TABLE):
        raise fault(info, "no such compression")
    if "shuffle" in info and (type(shuffle) is not int or shuffle != item or not 1 < item <= _ITEM):
        raise fault(info, f"its items have {item} bytes")
    if type(block) is not int or not 0 < block <= _LARGEST or (shuffle and block % item):
        raise fault(info, f"a block has whole items, and at most {_LARGEST} bytes")
    if nbytes < 0 or nbytes % max(1, item):
        raise fault(info, f"{nbytes} bytes are no whole items of {item}")
    return How(name, shuffle, block, nbytes)


def fault(info: object, why: str) -> DecodeError:
    return DecodeError(f"a packed tensor says {info!r:.80}: {why}")
