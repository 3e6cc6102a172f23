"""LevelDB tables: sorted keys and values in blocks, the format of a TensorFlow checkpoint's index.

    block | type | crc, block | type | crc, ...  data blocks, metaindex (empty), index
    footer of 48 bytes                           handles of metaindex and index, zeros, magic

1. A block is a sequence of entries, followed by the offsets of its restarts. An entry stores how many
   bytes its key shares with the previous key. At a restart it shares none.
2. The index has an entry for each data block: a key that is not less than the last key of the block,
   and the handle (offset, size) of the block.
3. The CRC of every block is checked before its content is used.
4. Blocks must follow each other without gaps, so that no handle can lead back, or to the same block
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
"""Bytes after each block: one for its type, four for its CRC."""
PLAIN, SNAPPY = 0, 1
LARGEST = 64 << 20
"""Bytes of the largest block, uncompressed. TensorFlow's have 256 KiB."""
EXPANSION, LEAST = 64, 16 << 20
"""The full keys of a block may take EXPANSION times its size, or LEAST bytes if that is more."""
_BLOCK, _RESTARTS = 256 << 10, 16
"""TensorFlow's block size, and the number of keys between restarts."""


class Handle(NamedTuple):
    offset: int
    size: int


class Contents(NamedTuple):
    """The uncompressed content of a block, and the range of keys that it may contain."""

    data: Any
    offset: int
    """Where the block is in the table."""
    packed: bool
    """Whether the block was compressed, so that offsets in `data` are not offsets in the table."""
    above: bytes | None = None
    """All keys are greater than this one."""
    upto: bytes = b""
    """No key is greater than this one."""

    @property
    def room(self) -> int:
        """The bytes that the full keys may have together."""
        return max(EXPANSION * len(self.data), LEAST)

    def fault(self, status: int, offset: int, format: str = FORMAT) -> DecodeError:
        """Return the error for a kernel's status code at an offset in `data`."""
        return problem(status, self.offset if self.packed else self.offset + offset, format)

    def check(self, first: bytes, last: bytes) -> None:
        """Raise DecodeError if the first or last key is outside the range of the index."""
        if (self.above is not None and first <= self.above) or last > self.upto:
            raise DecodeError(
                "the keys of a block are outside the range in the index of the table",
                offset=self.offset,
            )


class TableBlock(NamedTuple):
    """The full keys of a block, concatenated, and where the values lie in its contents."""

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
    """Return whether the last bytes of a file are those of a table.

    >>> is_table(write([(b"", b"x")])[-8:])
    True
    """
    return bytes(tail[-len(MAGIC) :]) == MAGIC


def size_of(tail: Any) -> int:
    """Return the size of a table, given its footer (the last 48 bytes).

    Other data may precede the table in a file.

    >>> table = write([(b"a", b"1"), (b"b", b"2")])
    >>> size_of(table[-48:]) == len(table)
    True
    """
    _, index = _footer(bytes(tail), 0)
    return index.offset + index.size + TRAILER + FOOTER


def contents(data: Any, format: str = FORMAT) -> Iterator[Contents]:
    """Yield the contents of the data blocks of a table in order, each checked against its CRC.

    Raises DecodeError if the table is not valid. The caller must `check` the keys of each block.
    """
    view = flat(data)
    try:
        if len(view) < FOOTER:
            raise TruncatedError(
                f"a table of {len(view)} bytes is shorter than its footer of {FOOTER}",
                offset=len(view),
            )
        meta, index = _footer(bytes(view[-FOOTER:]), len(view) - FOOTER)
        if (
            index.offset + index.size + TRAILER != len(view) - FOOTER
            or meta.offset + meta.size + TRAILER != index.offset
        ):
            raise DecodeError(
                "the index of the table does not end where the footer begins",
                offset=len(view) - FOOTER,
            )
        block(_contents(view, meta))
        guide = block(_contents(view, index))
        position, above = 0, None
        for i in range(len(guide)):
            handle, upto = _handle(guide, i, position, meta.offset), guide.key(i)
            yield _contents(view, handle)._replace(above=above, upto=upto)
            position, above = handle.offset + handle.size + TRAILER, upto
        if position != meta.offset:
            raise DecodeError(
                f"the blocks of the table end at byte {position}, but its metaindex begins at"
                f" {meta.offset}",
                offset=position,
            )
    except DecodeError as error:
        # Errors of a compressed block have the format "snappy", which means nothing to the caller.
        error.format = format
        raise


def block(contents: Contents, format: str = FORMAT) -> TableBlock:
    """Return the keys of a block."""
    status, offset, keys, *rest = kernels.table_block(contents.data, contents.room)
    if keys is None:
        raise contents.fault(status, offset, format)
    return TableBlock(contents, keys, *rest)


def first(contents: Contents, format: str = FORMAT) -> tuple[bytes, bytes]:
    """Return the first key of a block and its value, without reading the others."""
    data, offset = contents.data, 0
    try:
        shared, offset = read_varint(data, offset, len(data))
        key, offset = read_varint(data, offset, len(data))
        value, offset = read_varint(data, offset, len(data))
    except Fault as fault:
        raise contents.fault(fault.status, fault.offset, format) from None
    if shared or key + value > len(data) - offset:
        raise contents.fault(TRUNCATED, 0, format)
    return bytes(data[offset : offset + key]), bytes(data[offset + key : offset + key + value])


def blocks(data: Any, format: str = FORMAT) -> Iterator[TableBlock]:
    """Yield the data blocks of a table in order."""
    for content in contents(data, format):
        table_block = block(content, format)
        if not len(table_block):
            raise DecodeError("the table has an empty block", format=format, offset=content.offset)
        try:
            content.check(table_block.key(0), table_block.key(len(table_block) - 1))
        except DecodeError as error:
            raise error.add(format=format) from None
        yield table_block


def items(data: Any, format: str = FORMAT) -> Iterator[tuple[bytes, bytes]]:
    """Yield all keys and values.

    >>> list(items(write([(b"", b"header"), (b"layer/a", b"1"), (b"layer/b", b"2")])))
    [(b'', b'header'), (b'layer/a', b'1'), (b'layer/b', b'2')]
    """
    for table_block in blocks(data, format):
        for i in range(len(table_block)):
            yield table_block.key(i), table_block.value(i)


def _footer(tail: bytes, base: int) -> tuple[Handle, Handle]:
    if len(tail) != FOOTER or not is_table(tail):
        raise DecodeError(
            "not a LevelDB table: wrong magic bytes at the end",
            format=FORMAT,
            offset=base + max(len(tail) - len(MAGIC), 0),
        )
    numbers, offset = [], 0
    try:
        for _ in range(4):
            number, offset = read_varint(tail, offset, FOOTER - len(MAGIC))
            numbers.append(number)
    except Fault as fault:
        raise problem(fault.status, base + fault.offset, FORMAT) from None
    handles = Handle(*numbers[:2]), Handle(*numbers[2:])
    if _foot(*handles) != tail:
        raise DecodeError(
            "the footer of the table has bytes other than two handles, zeros and the magic",
            format=FORMAT,
            offset=base,
        )
    return handles


def _foot(meta: Handle, index: Handle) -> bytes:
    handles = _place(meta) + _place(index)
    return handles + bytes(FOOTER - len(MAGIC) - len(handles)) + MAGIC


def _handle(guide: TableBlock, i: int, expected: int, stop: int) -> Handle:
    """Return the handle in an entry of the index. It must be that of the next block."""
    value = guide.value(i)
    try:
        offset, after = read_varint(value, 0, len(value))
        size, after = read_varint(value, after, len(value))
    except Fault as fault:
        raise guide.contents.fault(fault.status, int(guide.starts[i]) + fault.offset) from None
    if after != len(value) or offset != expected or size > stop - expected - TRAILER:
        message = (
            f"the index of the table has a block of {size} bytes at {offset}, but the next block"
            f" must begin at {expected} and end before {stop}"
        )
        raise DecodeError(message, offset=guide.contents.offset)
    return Handle(offset, size)


def _contents(view: memoryview, handle: Handle) -> Contents:
    start, stop = handle.offset, handle.offset + handle.size
    if stop + TRAILER > len(view) - FOOTER:
        raise TruncatedError(
            f"a block of {handle.size} bytes runs past the end of the table at {len(view)}",
            offset=start,
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
            f"unknown block type {kind}: supported are plain ({PLAIN}) and Snappy ({SNAPPY})",
            offset=stop,
        )
    if len(data) > LARGEST:
        raise LimitError(f"a block has {len(data)} bytes, and the limit is {LARGEST}", offset=start)
    return Contents(data, start, kind == SNAPPY)


def write(
    items: Iterable[tuple[bytes, bytes]],
    compress: Callable[[bytes], bytes] | None = None,
    block_size: int = _BLOCK,
) -> bytes:
    """Return a table of items, byte for byte as TensorFlow writes it.

    Keys must be in ascending order, else EncodeError is raised. `compress` returns raw Snappy for a
    block.

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
                f"the keys of a table must be in ascending order, but {key!r:.60} follows"
                f" {last!r:.60}",
                format=FORMAT,
            )
        # The index entry of a block needs the first key of the next one.
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
    """A block that is being written."""

    def __init__(self, interval: int) -> None:
        self._interval, self._out, self._restarts, self._last = interval, bytearray(), [0], b""
        self.count = 0

    @property
    def size(self) -> int:
        """Bytes of the block, including the restarts."""
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


def _shared(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix of two keys."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    low = 0
    # A binary search with slices is faster in Python than a loop over bytes.
    while most - low > 1:
        middle = (low + most) // 2
        low, most = (middle, most) if first[:middle] == second[:middle] else (low, middle)
    return low


def _separator(last: bytes, next: bytes) -> bytes:
    """Return a short key that is not less than `last` and less than `next`.

    `last` is the last key of a block and `next` the first key of the next block.

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
    """Return a short key that is not less than the last one."""
    for i, byte in enumerate(last):
        if byte != 0xFF:
            return last[:i] + bytes([byte + 1])
    return last
