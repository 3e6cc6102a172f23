"""Tensors of a checkpoint, read when they are asked for.

A tensor that is read whole is checked against its CRC, block by block while it is still in the
processor's cache. Some rows of one have no CRC of their own, so they are not checked; `tw.verify`
reads everything.
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
"""Bytes that are read and then checked, which the cache still holds."""
_VARINT = 9
"""Bytes of a length, at most: more would be past 2 ** 63."""


class CheckpointPart(BasePart, ABC):
    """What all parts know: where their bytes are, and how to say what is wrong with them."""

    checksum = True
    dtype = "bytes"

    def __init__(
        self, entry: BundleEntry, data: Data, big_endian: bool, copy: bool | None, limits: Budget
    ) -> None:
        self.entry, self.shape, self.nbytes = entry, entry.shape, entry.size
        self._data, self._big, self._copy, self._limits = data, big_endian, copy, limits
        self.name = entry.key if isinstance(entry.key, str) else None

    def read(self, rows: Rows = None) -> Any:
        """All of it, its checksum verified, or some rows, for which there is none."""
        path: str | None = None
        try:
            validate.elements(self.shape, DecodeError)
            source, at = self._located()
            path = source.path
            if rows is not None and (
                not self.shape or not 0 <= rows[0] <= rows[1] <= self.shape[0]
            ):
                raise DecodeError(
                    f"rows {rows[0]} to {rows[1]} of a tensor of shape {list(self.shape)}",
                    offset=at,
                )
            return self._read(source, at, rows)
        except DecodeError as error:
            raise error.add(
                format=FORMAT,
                tensor=self.name,
                path=path or self._data.index_path,
                offset=self.entry.offset,
            ) from None

    def _located(self) -> tuple[Source, int]:
        """The source, and where in it the tensor begins, if all of it is there."""
        source, start, stop = self._data.place(self.entry.shard)
        if self.entry.offset + self.entry.size > stop - start:
            why = (
                f"{self.entry.size} bytes at {self.entry.offset}, and the data file has"
                f" {stop - start}"
            )
            raise TruncatedError(
                why, format=FORMAT, tensor=self.name, path=source.path, offset=stop - start
            )
        return source, start + self.entry.offset

    def check(self) -> None:
        """That its bytes are there, before anyone makes room for them."""
        self._located()

    @abstractmethod
    def _read(self, source: Source, at: int, rows: Rows) -> Any:
        """Its values, or some rows of them; the bytes begin at source[at]."""

    def _compare(self, crc: int, at: int) -> None:
        if mask(crc) != self.entry.crc:
            raise ChecksumError("the data do not match their checksum", offset=at)


class NumberPart(CheckpointPart):
    """A dense tensor: bare numbers in C order."""

    def __init__(self, entry: BundleEntry, row: dtypes.DType, *rest: Any) -> None:
        super().__init__(entry, *rest)
        self.row, self.dtype = row, row.name

    def _read(self, source: Source, at: int, rows: Rows) -> Any:
        shape, dtype = self.shape, self.row.numpy
        size = self.entry.size
        if rows is not None:
            stride = math.prod(shape[1:]) * dtype.itemsize
            at, size, shape = (
                at + rows[0] * stride,
                (rows[1] - rows[0]) * stride,
                (rows[1] - rows[0], *shape[1:]),
            )
        into = getattr(source, "read_into", None)
        if into is not None or not self._lies_well(source, at):
            array = np.empty(shape, dtype)
            self._fill(source, at, array.reshape(-1).view(np.uint8), rows is None)
        else:
            view = source.read_at(at, size)
            if rows is None:
                self._compare(crc32c(view), at)
            array = memory.dense(view, 0, dtype, shape, self._copy, base=at)
        self._look(array, at)
        if self._big and dtype.itemsize > 1:
            array = _swapped(array, dtype)
        if into is None and not self._copy:
            memory.read_only(array)
        return array

    def _lies_well(self, source: Source, at: int) -> bool:
        """Whether bytes in memory can be looked at where they are; if not, they are copied and
        checked in one go.
        """
        view = getattr(source, "view", None)
        if view is None or self._copy is False:
            return True
        address = (
            np.frombuffer(view, np.uint8).__array_interface__["data"][0] + at if len(view) else at
        )
        return bool(address % self.row.numpy.alignment == 0)

    def _fill(self, source: Source, at: int, out: Any, whole: bool) -> None:
        into, crc = getattr(source, "read_into", None), 0
        for start in range(0, len(out), _STEP):
            piece = out[start : start + _STEP]
            if into is not None:
                into(at + start, piece)
            else:
                piece[:] = np.frombuffer(source.read_at(at + start, len(piece)), np.uint8)
            if whole:
                crc = crc32c(piece, crc)
        if whole:
            self._compare(crc, at)

    def _look(self, array: Any, at: int) -> None:
        if self.row.name == "bool" or self.row.bits < 8:
            bad = dtypes.noncanonical(self.row, array.reshape(-1).view(np.uint8))
            if bad is not None:
                raise DecodeError(f"a byte that is no value of {self.row.name}", offset=at + bad)


def _swapped(array: Any, dtype: Any) -> Any:
    """Numbers of a big-endian machine. Both halves of a complex number are swapped by themselves."""
    width = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return array.reshape(-1).view(np.dtype(f"u{width}")).byteswap().view(dtype).reshape(array.shape)


class StringPart(CheckpointPart):
    """Strings: all lengths as varints, a checksum of them, then all bytes. The entry's checksum
    covers lengths of four bytes.
    """

    def _read(self, source: Source, at: int, rows: Rows) -> Any:
        count = math.prod(self.shape)
        if 8 * (count + 1) > self._limits.tensor:
            raise LimitError(
                f"{count} strings; the limit is {self._limits.tensor} bytes for their offsets",
                offset=at,
            )
        self._limits.draw(8 * (count + 1), offset=at)
        lengths, used = self._lengths(source, at, count)
        size = self.entry.size - used - 4
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if size < 0 or (offsets > size).any() or offsets[-1] != size:
            raise DecodeError(
                f"the strings should have {size} bytes, and their lengths say something else",
                offset=at,
            )
        crc = self._length_crc(lengths)
        stored = bytes(source.read_at(at + used, 4))
        if int.from_bytes(stored, "big" if self._big else "little") != mask(crc):
            raise ChecksumError(
                "the lengths of the strings do not match their checksum", offset=at + used
            )
        low, high, shape = 0, size, self.shape
        if rows is not None:
            inner = math.prod(shape[1:])
            offsets = offsets[rows[0] * inner : rows[1] * inner + 1]
            low, high, shape = int(offsets[0]), int(offsets[-1]), (rows[1] - rows[0], *shape[1:])
            offsets = offsets - low
        data = np.frombuffer(source.read_at(at + used + 4 + low, high - low), np.uint8)
        if rows is None:
            self._compare(crc32c(data, crc32c(stored, crc)), at)
        if self._copy or len(data) <= memory.TINY:
            data = data.copy()
        if not self._copy and not hasattr(source, "read_into"):
            data, offsets = memory.read_only(data), memory.read_only(offsets)
        return trusted(Strings, data, offsets, shape, False)

    def _lengths(self, source: Source, at: int, count: int) -> tuple[Any, int]:
        """All lengths, and how many bytes they take; as few bytes are read as it takes."""
        room = self.entry.size - 4
        if count > room:
            raise DecodeError(f"{count} strings in {self.entry.size} bytes", offset=at)
        guess = min(room, 2 * count + 64)
        while True:
            head = (
                np.frombuffer(source.read_at(at, guess), np.uint8)
                if guess
                else np.empty(0, np.uint8)
            )
            ends = np.flatnonzero(head < 0x80)[:count]
            if len(ends) == count or guess >= min(room, _VARINT * count):
                break
            guess = min(room, _VARINT * count, guess * 4)
        if len(ends) < count:
            raise DecodeError("the lengths of the strings are cut off, or past 63 bits", offset=at)
        starts = np.zeros(count, np.int64)
        starts[1:] = ends[:-1] + 1
        widths = ends - starts + 1
        if count and widths.max() > _VARINT:
            raise DecodeError("a length of a string is past 63 bits", offset=at)
        lengths = np.zeros(count, np.int64)
        for i in range(int(widths.max()) if count else 0):
            more = widths > i
            lengths[more] |= (head[starts[more] + i] & 0x7F).astype(np.int64) << 7 * i
        return lengths, int(ends[-1]) + 1 if count else 0

    def _length_crc(self, lengths: Any) -> int:
        return length_crc(lengths, ">" if self._big else "<")


def length_crc(lengths: Any, order: str = "<") -> int:
    """The CRC of string lengths: four bytes each, or eight where four are not enough."""
    if not len(lengths) or lengths.max() <= 0xFFFFFFFF:
        return crc32c(np.ascontiguousarray(lengths.astype(f"{order}u4")))
    words = (
        np.array(length, f"{order}u{4 if length <= 0xFFFFFFFF else 8}").tobytes()
        for length in lengths.tolist()
    )
    return crc32c(b"".join(words))


class VariantPart(CheckpointPart):
    """Objects of TensorFlow's own, such as the state of an iterator: each a length, a
    VariantTensorDataProto and the checksum so far. They come as strings, which are those messages.
    """

    def _read(self, source: Source, at: int, rows: Rows) -> Any:
        count, order = math.prod(self.shape), "big" if self._big else "little"
        view = source.read_at(at, self.entry.size)
        found, crc, place = [], 0, 0
        for _ in range(count):
            try:
                size, start = read_varint(view, place, len(view))
            except Fault as fault:
                raise problem(fault.status, at + fault.offset, FORMAT) from None
            stop = start + size
            if stop + 4 > len(view):
                raise TruncatedError("a variant runs past the end of its tensor", offset=at + place)
            crc = crc32c(view[start:stop], crc32c(size.to_bytes(8, order), crc))  # type: ignore[arg-type]
            if int.from_bytes(view[stop : stop + 4], order) != mask(crc):  # type: ignore[arg-type]
                raise ChecksumError("a variant does not match its checksum", offset=at + stop)
            crc, place = crc32c(view[stop : stop + 4], crc), stop + 4
            found.append(bytes(view[start:stop]))
        if place != len(view):
            raise DecodeError(
                f"{len(view) - place} bytes behind the last variant", offset=at + place
            )
        self._compare(crc, at)
        strings = Strings.of(found, self.shape, text=False)
        strings = trusted(Strings, strings.data.copy(), strings.offsets, self.shape, False)
        if not self._copy and not hasattr(source, "read_into"):
            memory.read_only(strings.data), memory.read_only(strings.offsets)
        return strings if rows is None else strings[rows[0] : rows[1]]
