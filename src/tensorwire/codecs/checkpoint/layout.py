"""Layout of a checkpoint being written: the offset, index entry and bytes of each tensor.

Numeric tensors are aligned to 64 bytes in their data file, so that a memory mapping can be used
without a copy. TensorFlow itself writes no padding, but accepts it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..._errors import EncodeError
from ...core import dtypes, memory
from ...core.tensors import Strings
from ...wire import kernels, leveldb
from ...wire.crc import crc32c, mask
from ...wire.protobuf import varint
from .entries import FORMAT, VERSION
from .graph import write_graph
from .names import GRAPH, HIDDEN, SPEC
from .parts import length_crc

ALIGN = 64
Buffers = list[Any]


def holds(row: dtypes.DType) -> bool:
    """Whether TensorFlow has this dtype."""
    return row.tf is not None


class Layout:
    """Collects the index entries of the tensors that are added."""

    def __init__(self) -> None:
        self.shard = 0
        self._used = 0
        self._entries: dict[bytes, bytes] = {}

    @property
    def used(self) -> int:
        """Bytes in the current data file."""
        return self._used

    def next_shard(self) -> None:
        """Starts the next data file."""
        self.shard, self._used = self.shard + 1, 0

    def add(self, key: str, tensor: Any) -> Buffers:
        """Returns the bytes to append to the current data file for a tensor.

        The tensor is an array in C order, or Strings. Large data is not copied.
        """
        self._check(key)
        return self._place(key, tensor)

    def finish(self, graph: bool, spec: bytes | None) -> Buffers:
        """Returns the bytes of the hidden entries: the object graph, and the spec of a value."""
        out: Buffers = []
        if graph:
            keys = (key.decode() for key in sorted(self._entries))
            out += self._place(GRAPH, Strings.of([write_graph(keys)], ()))
        if spec is not None:
            out += self._place(SPEC, Strings.of([spec], ()))
        return out

    def _check(self, key: str) -> None:
        if key in HIDDEN or not key or key.startswith("\0"):
            raise EncodeError(
                f"invalid checkpoint key {key!r:.60}: empty, reserved or starting with a null byte",
                format=FORMAT,
                tensor=key,
            )
        if key.encode() in self._entries:
            raise EncodeError(
                f"two tensors have the same checkpoint key {key!r:.80}", format=FORMAT, tensor=key
            )

    def _place(self, key: str, tensor: Any) -> Buffers:
        if isinstance(tensor, Strings):
            number, gap, (chunks, crc) = dtypes.STRING, 0, _strings(tensor)
        else:
            row = dtypes.of(tensor.dtype)
            if row.tf is None:
                raise EncodeError(
                    f"TensorFlow does not support the dtype {row.name}", format=FORMAT, tensor=key
                )
            data = memory.chunk(tensor)
            number, gap, chunks, crc = (
                row.tf,
                -self._used % ALIGN if len(data) else 0,
                [data],
                crc32c(data),
            )
        size = sum(map(len, chunks))
        self._used += gap
        self._entries[key.encode()] = _entry(
            number, tensor.shape, self.shard, self._used, size, crc
        )
        self._used += size
        return [chunk for chunk in (bytes(gap), *chunks) if len(chunk)]

    def index(self, shards: int | None = None) -> bytes:
        """Returns the index, whose header names `shards` data files."""
        return leveldb.write(
            [
                (b"", header(self.shard + 1 if shards is None else shards)),
                *sorted(self._entries.items()),
            ]
        )


def header(shards: int) -> bytes:
    """Returns a BundleHeaderProto: number of data files, little-endian byte order, version.

    >>> header(1).hex()
    '08011a020801'
    """
    return b"\x08" + varint(shards) + b"\x1a\x02\x08" + varint(VERSION)


def _entry(
    dtype: int, shape: tuple[int, ...], shard: int, offset: int, size: int, crc: int
) -> bytes:
    dims = b"".join(
        b"\x12" + varint(len(dim)) + dim
        for dim in (b"\x08" + varint(size) if size else b"" for size in shape)
    )
    out = b"\x08" + varint(dtype) + b"\x12" + varint(len(dims)) + dims
    for field, value in ((3, shard), (4, offset), (5, size)):
        if value:
            out += bytes([field << 3]) + varint(value)
    return out + b"\x35" + struct.pack("<I", mask(crc))


def _strings(strings: Strings) -> tuple[Buffers, int]:
    """Returns the stored form of strings, and its checksum.

    The layout is: all lengths as varints, their masked CRC, all bytes. The CRC of the entry covers
    the lengths as fixed-size integers, then the stored CRC, then the bytes.
    """
    offsets, data = np.ascontiguousarray(strings.offsets), np.ascontiguousarray(strings.data)
    crc = length_crc(np.diff(offsets))
    lengths = kernels.string_lengths(b"", data, offsets)
    stored = struct.pack("<I", mask(crc))
    chunk = memory.chunk(data)
    return [lengths + stored, chunk], crc32c(chunk, crc32c(stored, crc))
