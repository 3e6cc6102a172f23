"""LevelDB tables: sorted keys and values in blocks, as TensorFlow keeps the index of a checkpoint.

    block | type | crc, block | type | crc, ...    the data, then the metaindex (empty), then the index
    footer of 48 bytes                              handles of the metaindex and the index, zeros, magic

A block is a run of entries and then its restarts; an entry says how much of its key is that of the
key before. The index has an entry for each data block: a key that is not below its last one, and
its handle (offset, size). Every block is checked against its CRC before anything in it is believed,
and blocks must follow each other without a gap, so no handle can lead back, or to the same block
twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .._errors import ChecksumError, DecodeError, EncodeError, LimitError, TruncatedError
from ..core.memory import flat
from . import kernels, snappy
from .crc import crc32c, mask
from .protobuf import Fault, read_varint, varint
from .status import TRUNCATED, problem

Array = np.ndarray[Any, Any]
FORMAT = "table"
MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER = 48
TRAILER = 5
"""Behind each block: one byte for its type, four for its CRC."""
PLAIN, SNAPPY = 0, 1
LARGEST = 64 << 20
"""Bytes of one block, unpacked. TensorFlow's have 256 KiB."""
EXPANSION, LEAST = 64, 16 << 20
"""How many times the size of their block keys may take when they are written out in full, once that
is more than so many bytes.
"""
_BLOCK, _RESTARTS = 256 << 10, 16
"""TensorFlow's block size, and how many keys share prefixes before one is written whole."""


class Handle(NamedTuple):
    offset: int
    size: int


class Contents(NamedTuple):
    """What is in a block, unpacked, and which keys may be in it."""

    data: Any
    offset: int
    """Where it is in the table."""
    packed: bool
    """Whether it was compressed, so that a place in `data` is none in the table."""
    above: bytes | None = None
    upto: bytes = b""

    @property
    def room(self) -> int:
        """How many bytes its keys may have, each written out in full."""
        return max(EXPANSION * len(self.data), LEAST)

    def fault(self, status: int, at: int, format: str = FORMAT) -> DecodeError:
        """The error for a kernel's status at a place in `data`."""
        return problem(status, self.offset if self.packed else self.offset + at, format)

    def check(self, first: bytes, last: bytes) -> None:
        """That the keys are those that the index of the table has here."""
        if (self.above is not None and first <= self.above) or last > self.upto:
            raise DecodeError(
                "the blocks of a table are not in the order of its index", offset=self.offset
            )


class TableBlock(NamedTuple):
    """A block's keys, in full and one after the other, and where the values lie in its contents."""

    contents: Contents
    keys: bytes
    key_offsets: Array
    starts: Array
    sizes: Array

    def __len__(self) -> int:
        return len(self.starts)

    def key(self, i: int) -> bytes:
        return self.keys[self.key_offsets[i] : self.key_offsets[i + 1]]

    def value(self, i: int) -> bytes:
        start = int(self.starts[i])
        return bytes(self.contents.data[start : start + int(self.sizes[i])])


def is_table(tail: Any) -> bool:
    """Whether the last bytes of a file are those of a table.

    >>> is_table(write([(b"", b"x")])[-8:])
    True
    """
    return bytes(tail[-len(MAGIC) :]) == MAGIC


def size_of(tail: Any) -> int:
    """How long a table is by its footer, the last 48 bytes: it may lie behind something else.

    >>> table = write([(b"a", b"1"), (b"b", b"2")])
    >>> size_of(table[-48:]) == len(table)
    True
    """
    _, index = _footer(bytes(tail), 0)
    return index.offset + index.size + TRAILER + FOOTER


def contents(data: Any, format: str = FORMAT) -> Iterator[Contents]:
    """What is in the data blocks of a table, in order, each checked against its CRC; DecodeError
    for anything that is not as it should be.

    Whoever reads the keys in one has to `check` them."""
    view = flat(data)
    try:
        if len(view) < FOOTER:
            raise TruncatedError(
                f"a table of {len(view)} bytes; its footer alone has {FOOTER}", offset=len(view)
            )
        meta, index = _footer(bytes(view[-FOOTER:]), len(view) - FOOTER)
        if (
            index.offset + index.size + TRAILER != len(view) - FOOTER
            or meta.offset + meta.size + TRAILER != index.offset
        ):
            raise DecodeError(
                "the index of a table is not where its footer says", offset=len(view) - FOOTER
            )
        block(_contents(view, meta))
        guide = block(_contents(view, index))
        at, above = 0, None
        for i in range(len(guide)):
            handle, upto = _handle(guide, i, at, meta.offset), guide.key(i)
            yield _contents(view, handle)._replace(above=above, upto=upto)
            at, above = handle.offset + handle.size + TRAILER, upto
        if at != meta.offset:
            raise DecodeError(
                f"the blocks of a table end at {at}, and its metaindex begins at {meta.offset}",
                offset=at,
            )
    except DecodeError as error:
        error.format = format  # whatever the block was packed with
        raise


def block(contents: Contents, format: str = FORMAT) -> TableBlock:
    """The keys of a block."""
    status, at, keys, *rest = kernels.table_block(contents.data, contents.room)
    if keys is None:
        raise contents.fault(status, at, format)
    return TableBlock(contents, keys, *rest)


def first(contents: Contents, format: str = FORMAT) -> tuple[bytes, bytes]:
    """The first key of a block and its value, without the others."""
    data, at = contents.data, 0
    try:
        shared, at = read_varint(data, at, len(data))
        key, at = read_varint(data, at, len(data))
        value, at = read_varint(data, at, len(data))
    except Fault as fault:
        raise contents.fault(fault.status, fault.offset, format) from None
    if shared or key + value > len(data) - at:
        raise contents.fault(TRUNCATED, 0, format)
    return bytes(data[at : at + key]), bytes(data[at + key : at + key + value])


def blocks(data: Any, format: str = FORMAT) -> Iterator[TableBlock]:
    """The data blocks of a table, in order."""
    for one in contents(data, format):
        found = block(one, format)
        if not len(found):
            raise DecodeError("an empty block in a table", format=format, offset=one.offset)
        try:
            one.check(found.key(0), found.key(len(found) - 1))
        except DecodeError as error:
            raise error.add(format=format) from None
        yield found


def items(data: Any, format: str = FORMAT) -> Iterator[tuple[bytes, bytes]]:
    """All keys and values.

    >>> list(items(write([(b"", b"header"), (b"layer/a", b"1"), (b"layer/b", b"2")])))
    [(b'', b'header'), (b'layer/a', b'1'), (b'layer/b', b'2')]
    """
    for one in blocks(data, format):
        for i in range(len(one)):
            yield one.key(i), one.value(i)


def _footer(tail: bytes, base: int) -> tuple[Handle, Handle]:
    if len(tail) != FOOTER or not is_table(tail):
        raise DecodeError(
            "no table: the magic at its end is missing",
            format=FORMAT,
            offset=base + max(len(tail) - len(MAGIC), 0),
        )
    numbers, at = [], 0
    try:
        for _ in range(4):
            number, at = read_varint(tail, at, FOOTER - len(MAGIC))
            numbers.append(number)
    except Fault as fault:
        raise problem(fault.status, base + fault.offset, FORMAT) from None
    handles = Handle(*numbers[:2]), Handle(*numbers[2:])
    if _foot(*handles) != tail:
        raise DecodeError(
            "the footer of a table has more than two handles and the magic",
            format=FORMAT,
            offset=base,
        )
    return handles


def _foot(meta: Handle, index: Handle) -> bytes:
    handles = _place(meta) + _place(index)
    return handles + bytes(FOOTER - len(MAGIC) - len(handles)) + MAGIC


def _handle(guide: TableBlock, i: int, at: int, stop: int) -> Handle:
    """The handle in an entry of the index, which must be that of the next block."""
    value = guide.value(i)
    try:
        offset, after = read_varint(value, 0, len(value))
        size, after = read_varint(value, after, len(value))
    except Fault as fault:
        raise guide.contents.fault(fault.status, int(guide.starts[i]) + fault.offset) from None
    if after != len(value) or offset != at or size > stop - at - TRAILER:
        why = (
            f"the index of a table has a block of {size} bytes at {offset}, where one should follow"
            f" at {at}"
        )
        raise DecodeError(why, offset=guide.contents.offset)
    return Handle(offset, size)


def _contents(view: memoryview, handle: Handle) -> Contents:
    start, stop = handle.offset, handle.offset + handle.size
    if stop + TRAILER > len(view) - FOOTER:
        raise TruncatedError(
            f"a block of {handle.size} bytes, and the table ends at {len(view)}", offset=start
        )
    (stored,) = struct.unpack("<I", view[stop + 1 : stop + TRAILER])
    if mask(crc32c(view[start : stop + 1])) != stored:
        raise ChecksumError("a block of the table does not match its checksum", offset=start)
    kind, data = view[stop], view[start:stop]
    if kind == SNAPPY:
        try:
            data = memoryview(snappy.decode(data, LARGEST))
        except DecodeError as error:
            raise error.add(base=start) from None
    elif kind != PLAIN:
        raise DecodeError(
            f"a block of the unknown type {kind}; plain ({PLAIN}) and Snappy ({SNAPPY}) are known",
            offset=stop,
        )
    if len(data) > LARGEST:
        raise LimitError(f"a block of {len(data)} bytes; the limit is {LARGEST}", offset=start)
    return Contents(data, start, kind == SNAPPY)


def write(
    items: Iterable[tuple[bytes, bytes]],
    compress: Callable[[bytes], bytes] | None = None,
    block_size: int = _BLOCK,
) -> bytes:
    """A table of these items, whose keys ascend: byte for byte what TensorFlow writes. `compress`
    makes raw Snappy of every block.

    >>> len(write([]))
    74
    """
    out, guide = bytearray(), _Writer(1)
    growing = _Writer(_RESTARTS)
    last: bytes | None = None
    pending: Handle | None = None
    for key, value in items:
        if last is not None and key <= last:
            raise EncodeError(
                f"the keys of a table must ascend, and {key!r:.60} comes after {last!r:.60}",
                format=FORMAT,
            )
        if pending is not None and last is not None:
            guide.add(_separator(last, key), _place(pending))
            pending = None
        growing.add(key, value)
        last = key
        if growing.size >= block_size:
            pending, growing = _append(out, growing.finish(), compress), _Writer(_RESTARTS)
    if growing.count:
        pending = _append(out, growing.finish(), compress)
    meta = _append(out, _Writer(_RESTARTS).finish(), compress)
    if pending is not None and last is not None:
        guide.add(_successor(last), _place(pending))
    index = _append(out, guide.finish(), compress)
    return bytes(out) + _foot(meta, index)


class _Writer:
    """One block as it grows."""

    def __init__(self, interval: int) -> None:
        self._interval, self._out, self._restarts, self._last = interval, bytearray(), [0], b""
        self.count = 0

    @property
    def size(self) -> int:
        """With what comes behind it."""
        return len(self._out) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count and self.count % self._interval == 0:
            self._restarts.append(len(self._out))
        elif self.count:
            shared = _shared(self._last, key)
        self._out += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        self.count += 1
        self._last = key

    def finish(self) -> bytes:
        return bytes(self._out) + struct.pack(
            f"<{len(self._restarts) + 1}I", *self._restarts, len(self._restarts)
        )


def _append(out: bytearray, block: bytes, compress: Callable[[bytes], bytes] | None) -> Handle:
    kind, block = (PLAIN, block) if compress is None else (SNAPPY, compress(block))
    handle = Handle(len(out), len(block))
    whole = block + bytes([kind])
    out += whole + struct.pack("<I", mask(crc32c(whole)))
    return handle


def _place(handle: Handle) -> bytes:
    return varint(handle.offset) + varint(handle.size)


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes two keys begin with alike."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    low = 0
    while most - low > 1:  # halving is quicker than a byte at a time
        middle = (low + most) // 2
        low, most = (middle, most) if one[:middle] == other[:middle] else (low, middle)
    return low


def _separator(last: bytes, next: bytes) -> bytes:
    """A short key that is not below the last of a block, and below the first of the next.

    >>> _separator(b"layer_1/kernel", b"layer_5/bias"), _separator(b"abc", b"abcd")
    (b'layer_2', b'abc')
    """
    shared = _shared(last, next)
    if (
        shared < min(len(last), len(next))
        and last[shared] < 0xFF
        and last[shared] + 1 < next[shared]
    ):
        return last[:shared] + bytes([last[shared] + 1])
    return last


def _successor(last: bytes) -> bytes:
    """A short key that is not below the last one."""
    for i, byte in enumerate(last):
        if byte != 0xFF:
            return last[:i] + bytes([byte + 1])
    return last
