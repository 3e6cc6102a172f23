"""Checkpoints made by hand, byte by byte, for what TensorFlow of today does not write: other byte
orders, Snappy, slices, and lies.
"""

import struct

import numpy as np

from tensorwire.codecs.checkpoint.slices import slice_key
from tensorwire.core import dtypes
from tensorwire.wire import leveldb
from tensorwire.wire.crc import crc32c, mask
from tensorwire.wire.protobuf import varint


def field(number, value):
    if isinstance(value, bytes):
        return bytes([number << 3 | 2]) + varint(len(value)) + value
    return bytes([number << 3]) + varint(value & (1 << 64) - 1) if value else b""


def header(shards=1, big=False, version=b"\x08\x01"):
    return field(1, shards) + field(2, int(big)) + field(3, version)


def entry(dtype, shape, offset=0, size=0, crc=0, shard=0, slices=()):
    dims = b"".join(field(2, field(1, dim)) for dim in shape)
    listed = b"".join(
        field(7, b"".join(field(1, field(1, start) + _length(length)) for start, length in one))
        for one in slices
    )
    numbers = field(3, shard) + field(4, offset) + field(5, size)
    return field(1, dtype) + field(2, dims) + numbers + b"\x35" + struct.pack("<I", crc) + listed


def _length(length):
    return b"" if length is None else b"\x10" + varint(length & (1 << 64) - 1)


def number_bytes(array, big=False):
    """(bytes, masked CRC)"""
    wide = array.dtype.itemsize > 1 and array.dtype.name not in ("bfloat16",)
    raw = array.astype(array.dtype.newbyteorder(">")).tobytes() if big and wide else array.tobytes()
    if big and array.dtype.name == "bfloat16":
        raw = array.view(np.uint16).astype(">u2").tobytes()
    return raw, mask(crc32c(raw))


def string_bytes(strings, big=False):
    order = ">" if big else "<"
    crc = crc32c(b"".join(struct.pack(f"{order}I", len(one)) for one in strings))
    stored = struct.pack(f"{order}I", mask(crc))
    raw = b"".join(varint(len(one)) for one in strings) + stored + b"".join(strings)
    return raw, mask(crc32c(b"".join(strings), crc32c(stored, crc)))


class Made:
    """A checkpoint in memory: add tensors, then write it."""

    def __init__(self, big=False, shards=1):
        self.big, self.shards, self.data, self.items = (
            big,
            shards,
            [b""] * shards,
            {b"": header(shards, big)},
        )

    def add(self, name, value, shard=0):
        key = name if isinstance(name, bytes) else name.encode()
        if isinstance(value, list):
            (raw, crc), shape, dtype = string_bytes(value, self.big), (len(value),), dtypes.STRING
        else:
            (raw, crc), shape, dtype = (
                number_bytes(value, self.big),
                value.shape,
                dtypes.of(value.dtype).tf,
            )
        self.items[key] = entry(dtype, shape, len(self.data[shard]), len(raw), crc, shard)
        self.data[shard] += raw
        return self

    def partitioned(self, name, shape, pieces):
        """Pieces are (extents, array)."""
        dtype = pieces[0][1].dtype
        for extents, array in pieces:
            self.add(slice_key(name, extents), array)
        self.items[name.encode()] = entry(
            dtypes.of(dtype).tf, shape, slices=[extents for extents, _ in pieces]
        )
        return self

    def index(self, compress=None):
        return leveldb.write(sorted(self.items.items()), compress)

    def write(self, prefix, compress=None):
        for shard, data in enumerate(self.data):
            with open(f"{prefix}.data-{shard:05d}-of-{self.shards:05d}", "wb") as file:
                file.write(data)
        with open(f"{prefix}.index", "wb") as file:
            file.write(self.index(compress))
        return str(prefix)
