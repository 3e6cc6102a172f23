"""Parts of a checkpoint: numbers, strings and variants, read on access.

A tensor that is read whole is checked against its CRC, in steps that are still in the processor's
cache. Single rows have no CRC of their own, so they are not checked. `tw.verify` reads everything.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..._errors import ChecksumError, DecodeError, LimitError, TruncatedError
from ..._limits import Budget
from ...core import dtypes, memory, validate
from ...core.tensors import Strings, trusted
from ...storage.files import Source
from ...wire.crc import crc32c, mask
from ...wire.protobuf import Fault, read_varint
from ...wire.status import problem
from ..container import BasePart, Rows
from .data import Data
from .entries import FORMAT, BundleEntry

_STEP = 1 << 20
"""Bytes that are read and then checksummed in one step, while the cache still holds them."""
_VARINT = 9
"""The longest varint of a string length in bytes; a longer one would exceed 2 ** 63."""


class CheckpointPart(BasePart, ABC):
    """The base of all parts: locates the bytes, and adds its facts to errors."""

    checksum = True
    dtype = "bytes"

    def __init__(
        self, entry: BundleEntry, data: Data, big_endian: bool, copy: bool | None, limits: Budget
    ) -> None:
        self.entry, self.shape, self.nbytes = entry, entry.shape, entry.size
        self._data, self._big, self._copy, self._limits = data, big_endian, copy, limits
        self.name = entry.key if isinstance(entry.key, str) else None

    def read(self, rows: Rows = None) -> Any:
        """Reads the tensor and verifies its checksum, or reads some rows, which have none."""
        path: str | None = None
        try:
            validate.elements(self.shape, DecodeError)
            source, offset = self._located()
            path = source.path
            if rows is not None and (
                not self.shape or not 0 <= rows[0] <= rows[1] <= self.shape[0]
            ):
                raise DecodeError(
                    f"rows {rows[0]} to {rows[1]} are out of range for shape {list(self.shape)}",
                    offset=offset,
                )
            return self._read(source, offset, rows)
        except DecodeError as error:
            raise error.add(
                format=FORMAT,
                tensor=self.name,
                path=path or self._data.index_path,
                offset=self.entry.offset,
            ) from None

    def _located(self) -> tuple[Source, int]:
        """Returns the source and the offset of the tensor in it; raises if it is truncated."""
        source, start, stop = self._data.place(self.entry.shard)
        if self.entry.offset + self.entry.size > stop - start:
            why = (
                f"the tensor has {self.entry.size} bytes at offset {self.entry.offset}, but the"
                f" data file has {stop - start}"
            )
            raise TruncatedError(
                why, format=FORMAT, tensor=self.name, path=source.path, offset=stop - start
            )
        return source, start + self.entry.offset

    def check(self) -> None:
        """Checks that the bytes exist, before memory is allocated for them."""
        self._located()

    @abstractmethod
    def _read(self, source: Source, offset: int, rows: Rows) -> Any:
        """Reads the values, or some rows of them; the bytes begin at `offset` in the source."""

    def _compare(self, crc: int, offset: int) -> None:
        if mask(crc) != self.entry.crc:
            raise ChecksumError("the checksum of the tensor does not match its data", offset=offset)


class NumberPart(CheckpointPart):
    """A dense tensor, stored as plain numbers in C order."""

    def __init__(self, entry: BundleEntry, row: dtypes.DType, *rest: Any) -> None:
        super().__init__(entry, *rest)
        self.row, self.dtype = row, row.name

    def _read(self, source: Source, offset: int, rows: Rows) -> Any:
        shape, dtype = self.shape, self.row.numpy
        size = self.entry.size
        if rows is not None:
            stride = math.prod(shape[1:]) * dtype.itemsize
            offset, size, shape = (
                offset + rows[0] * stride,
                (rows[1] - rows[0]) * stride,
                (rows[1] - rows[0], *shape[1:]),
            )
        read_into = getattr(source, "read_into", None)
        if read_into is not None or not self._lies_well(source, offset):
            array = np.empty(shape, dtype)
            self._fill(source, offset, array.reshape(-1).view(np.uint8), rows is None)
        else:
            view = source.read_at(offset, size)
            if rows is None:
                self._compare(crc32c(view), offset)
            array = memory.dense(view, 0, dtype, shape, self._copy, base=offset)
        self._look(array, offset)
        if self._big and dtype.itemsize > 1:
            array = _swapped(array, dtype)
        if read_into is None and not self._copy:
            memory.read_only(array)
        return array

    def _lies_well(self, source: Source, offset: int) -> bool:
        """Whether bytes in memory are aligned for a view; if not, they are copied in one pass."""
        view = getattr(source, "view", None)
        if view is None or self._copy is False:
            return True
        address = (
            np.frombuffer(view, np.uint8).__array_interface__["data"][0] + offset
            if len(view)
            else offset
        )
        return bool(address % self.row.numpy.alignment == 0)

    def _fill(self, source: Source, offset: int, out: Any, whole: bool) -> None:
        read_into, crc = getattr(source, "read_into", None), 0
        for start in range(0, len(out), _STEP):
            piece = out[start : start + _STEP]
            if read_into is not None:
                read_into(offset + start, piece)
            else:
                piece[:] = np.frombuffer(source.read_at(offset + start, len(piece)), np.uint8)
            if whole:
                crc = crc32c(piece, crc)
        if whole:
            self._compare(crc, offset)

    def _look(self, array: Any, offset: int) -> None:
        if self.row.name == "bool" or self.row.bits < 8:
            bad = dtypes.noncanonical(self.row, array.reshape(-1).view(np.uint8))
            if bad is not None:
                raise DecodeError(
                    f"invalid byte for the dtype {self.row.name}", offset=offset + bad
                )


def _swapped(array: Any, dtype: Any) -> Any:
    """Converts big-endian numbers. The two halves of a complex number are swapped separately."""
    width = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return array.reshape(-1).view(np.dtype(f"u{width}")).byteswap().view(dtype).reshape(array.shape)


class StringPart(CheckpointPart):
    """Strings, stored as all lengths in varints, a masked CRC of the lengths, then all bytes.

    The CRCs cover the lengths as four-byte integers, not as the stored varints.
    """

    def _read(self, source: Source, offset: int, rows: Rows) -> Any:
        count = math.prod(self.shape)
        if 8 * (count + 1) > self._limits.tensor:
            raise LimitError(
                f"{count} strings; Limits(tensor=...) allows {self._limits.tensor} bytes for their"
                " offsets",
                offset=offset,
            )
        self._limits.draw(8 * (count + 1), offset=offset)
        lengths, used = self._lengths(source, offset, count)
        size = self.entry.size - used - 4
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if size < 0 or (offsets > size).any() or offsets[-1] != size:
            raise DecodeError(
                f"the string lengths do not add up to the {size} bytes that are stored",
                offset=offset,
            )
        crc = self._length_crc(lengths)
        stored = bytes(source.read_at(offset + used, 4))
        if int.from_bytes(stored, "big" if self._big else "little") != mask(crc):
            raise ChecksumError(
                "the checksum of the string lengths does not match", offset=offset + used
            )
        low, high, shape = 0, size, self.shape
        if rows is not None:
            inner = math.prod(shape[1:])
            offsets = offsets[rows[0] * inner : rows[1] * inner + 1]
            low, high, shape = int(offsets[0]), int(offsets[-1]), (rows[1] - rows[0], *shape[1:])
            offsets = offsets - low
        data = np.frombuffer(source.read_at(offset + used + 4 + low, high - low), np.uint8)
        if rows is None:
            self._compare(crc32c(data, crc32c(stored, crc)), offset)
        if self._copy or len(data) <= memory.TINY:
            data = data.copy()
        if not self._copy and not hasattr(source, "read_into"):
            data, offsets = memory.read_only(data), memory.read_only(offsets)
        return trusted(Strings, data, offsets, shape, False)

    def _lengths(self, source: Source, offset: int, count: int) -> tuple[Any, int]:
        """Returns all lengths and the number of bytes that they take."""
        room = self.entry.size - 4
        if count > room:
            raise DecodeError(
                f"{count} strings do not fit in {self.entry.size} bytes", offset=offset
            )
        # Each varint takes one to nine bytes, so their total size is unknown. The guess grows until
        # `count` final bytes (below 0x80) are found, and never reads more than nine per string.
        guess = min(room, 2 * count + 64)
        while True:
            head = (
                np.frombuffer(source.read_at(offset, guess), np.uint8)
                if guess
                else np.empty(0, np.uint8)
            )
            ends = np.flatnonzero(head < 0x80)[:count]
            if len(ends) == count or guess >= min(room, _VARINT * count):
                break
            guess = min(room, _VARINT * count, guess * 4)
        if len(ends) < count:
            raise DecodeError(
                "the string lengths are cut off, or a length exceeds 63 bits", offset=offset
            )
        starts = np.zeros(count, np.int64)
        starts[1:] = ends[:-1] + 1
        widths = ends - starts + 1
        if count and widths.max() > _VARINT:
            raise DecodeError("a string length exceeds 63 bits", offset=offset)
        lengths = np.zeros(count, np.int64)
        # All varints are decoded together: pass i adds the i-th byte of those that have one.
        for i in range(int(widths.max()) if count else 0):
            more = widths > i
            lengths[more] |= (head[starts[more] + i] & 0x7F).astype(np.int64) << 7 * i
        return lengths, int(ends[-1]) + 1 if count else 0

    def _length_crc(self, lengths: Any) -> int:
        return length_crc(lengths, ">" if self._big else "<")


def length_crc(lengths: Any, order: str = "<") -> int:
    """Returns the CRC of string lengths: four bytes each, or eight where four are too few."""
    if not len(lengths) or lengths.max() <= 0xFFFFFFFF:
        return crc32c(np.ascontiguousarray(lengths.astype(f"{order}u4")))
    words = (
        np.array(length, f"{order}u{4 if length <= 0xFFFFFFFF else 8}").tobytes()
        for length in lengths.tolist()
    )
    return crc32c(b"".join(words))


class VariantPart(CheckpointPart):
    """Variants, such as the state of an iterator, read as strings of VariantTensorDataProto.

    Each is stored as a length, the message, and the running checksum up to there.
    """

    def _read(self, source: Source, offset: int, rows: Rows) -> Any:
        count, order = math.prod(self.shape), "big" if self._big else "little"
        view = source.read_at(offset, self.entry.size)
        messages, crc, position = [], 0, 0
        for _ in range(count):
            try:
                size, start = read_varint(view, position, len(view))
            except Fault as fault:
                raise problem(fault.status, offset + fault.offset, FORMAT) from None
            stop = start + size
            if stop + 4 > len(view):
                raise TruncatedError(
                    "a variant runs past the end of its tensor", offset=offset + position
                )
            crc = crc32c(size.to_bytes(8, order), crc)  # type: ignore[arg-type]
            crc = crc32c(view[start:stop], crc)
            if int.from_bytes(view[stop : stop + 4], order) != mask(crc):  # type: ignore[arg-type]
                raise ChecksumError(
                    "the checksum of a variant does not match", offset=offset + stop
                )
            crc, position = crc32c(view[stop : stop + 4], crc), stop + 4
            messages.append(bytes(view[start:stop]))
        if position != len(view):
            raise DecodeError(
                f"{len(view) - position} bytes left after the last variant",
                offset=offset + position,
            )
        self._compare(crc, offset)
        strings = Strings.of(messages, self.shape, text=False)
        strings = trusted(Strings, strings.data.copy(), strings.offsets, self.shape, False)
        if not self._copy and not hasattr(source, "read_into"):
            memory.read_only(strings.data), memory.read_only(strings.offsets)
        return strings if rows is None else strings[rows[0] : rows[1]]
