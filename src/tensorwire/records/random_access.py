"""Random access: records by number, located by the index of one file."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from .. import storage
from .._errors import DecodeError, LimitError, TensorwireError
from .._limits import DEFAULT, Limits
from ..core import memory
from ..storage import files
from ..wire import kernels, tfrecord
from . import blocks as _blocks
from . import index as _index

Array = np.ndarray[Any, Any]

_NEAR = 16 << 20
"""The maximum number of bytes to decompress for one record.

For records further away from a unit, the whole file is decompressed once into a temporary file.
"""


class IndexedFile:
    """One record file with random access.

    A compressed file is read from the nearest unit where decompression can start, or decompressed
    once into a temporary file.
    """

    def __init__(
        self,
        path: str,
        compression: str | None = None,
        limits: Limits | None = None,
        keep: bool = True,
    ) -> None:
        self.path, self._limits = path, limits or DEFAULT
        self.index = _index.open_index(path, compression, limits, keep)
        self._source: storage.Readable | None = None
        self._pool = memory.MemoryPool()

    def __len__(self) -> int:
        return len(self.index)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def record(self, number: int) -> bytes:
        """Read and verify one record."""
        if self.index.compression is not None:
            return self.gather(np.array([number])).strings()[0]
        if self._source is None:
            self._source = storage.source(self.path)
        begin, end = int(self.index.offsets[number]), int(self.index.offsets[number + 1])
        try:
            frame = self._source.read_bytes(begin, end - begin)
            if (
                tfrecord.length(frame[: tfrecord.HEADER])
                != len(frame) - tfrecord.HEADER - tfrecord.FOOTER
            ):
                raise DecodeError(
                    "the record is not where the index says: was the file changed?", offset=0
                )
            data = frame[tfrecord.HEADER : -tfrecord.FOOTER]
            tfrecord.check(data, frame[-tfrecord.FOOTER :])
        except DecodeError as error:
            error.offset = begin
            raise error.add(path=self.path, record=number, format="tfrecord") from None
        return data

    def gather(self, numbers: Array) -> _blocks.Block:
        """Read and verify records of any numbers, in that order, as one block."""
        offsets = self.index.offsets
        begins, ends = offsets[numbers], offsets[numbers + 1]
        sizes = ends - begins
        longest = int(sizes.max(initial=0)) - tfrecord.HEADER - tfrecord.FOOTER
        if longest > self._limits.record:
            raise LimitError(
                f"record of {longest} bytes exceeds the limit of {self._limits.record}",
                path=self.path,
                record=int(numbers[int(sizes.argmax())]),
                format="tfrecord",
                hint="raise it with Limits(record=...)",
            )
        places = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(sizes, out=places[1:])
        if self.index.compression is not None:
            self._limits.check(int(places[-1]), self.index.size, self.index.compression)
        buffer = self._pool.take(int(places[-1]))
        # Records that are neighbours in the file are read together, as one run.
        runs = (
            np.flatnonzero(np.r_[True, begins[1:] != ends[:-1]])
            if len(numbers)
            else np.zeros(0, np.int64)
        )
        stops = np.r_[runs[1:], len(numbers)]
        wanted = list(
            zip(begins[runs].tolist(), places[runs].tolist(), places[stops].tolist(), strict=True)
        )
        # Runs of a remote file are fetched by concurrent requests.
        if len(wanted) > 1 and self.index.compression is None and storage.is_url(self.path):
            self._source = source = self._source or storage.source(self.path)
            spans = [(begin, stop - start) for begin, start, stop in wanted]
            parts = source.read_many(spans)  # type: ignore[attr-defined]
            for (_, start, stop), part in zip(wanted, parts, strict=True):
                buffer[start:stop] = part
            wanted = []
        for begin, start, stop in wanted:
            self._read(begin, buffer[start:stop], many=len(runs) > 1)
        code, end, starts, lengths = kernels.frame_scan(
            buffer, 0, True, self._limits.record, _blocks.MOST
        )
        if code or len(starts) != len(numbers) or (starts - tfrecord.HEADER != places[:-1]).any():
            bad = int(numbers[min(len(starts), len(numbers) - 1)])
            error = _blocks.fault(code or 1, buffer, end, self._limits)
            raise error.add(path=self.path, record=bad, base=int(offsets[bad]) - end)
        return _blocks.Block(buffer, starts, lengths, 0, 0, self.path, (numbers, begins))

    def _read(self, offset: int, buffer: Array, many: bool) -> None:
        """Fill the buffer with the (uncompressed) bytes at an offset."""
        if self.index.compression is not None and self._source is None and not many:
            units = self.index.units
            unit = units[np.searchsorted(units[:, 1], offset, side="right") - 1]
            if offset - unit[1] <= _NEAR:
                return self._unpack(int(unit[0]), offset - int(unit[1]), buffer)
        if self._source is None:
            self._source = (
                storage.source(self.path) if self.index.compression is None else self._spool()
            )
        self._source.read_into(offset, buffer)
        return None

    def _unpack(self, start: int, skip: int, buffer: Array) -> None:
        """Decompress from a unit, skip some bytes, and fill the buffer with the next ones."""
        source = storage.opened(self.path, ahead=True)
        try:
            stream = _blocks.Compressed(source, self.index.compression or "", start, self._limits)
            scratch = self._pool.take(_blocks.BLOCK)
            while skip:
                skip -= self._must(stream.fill(scratch[: min(skip, len(scratch))]))
            done = 0
            while done < len(buffer):
                done += self._must(stream.fill(buffer[done:]))
        except TensorwireError as error:
            raise error.add(path=self.path, format="tfrecord") from error.__cause__
        finally:
            source.close()

    def _must(self, count: int) -> int:
        """Return the count. Raises TruncatedError if it is 0."""
        if not count:
            raise _blocks.torn(len(self), self.index.size, 0)
        return count

    def _spool(self) -> files.FileSource:
        """Decompress the whole file into a temporary file."""
        source = storage.opened(self.path, ahead=True)
        try:
            stream = _blocks.Compressed(source, self.index.compression or "", 0, self._limits)
            scratch = self._pool.take(_blocks.BLOCK)
            # The name of the temporary file is removed at once. The open descriptor keeps the bytes.
            with tempfile.NamedTemporaryFile(prefix="tensorwire-") as file:
                while count := stream.fill(scratch):
                    file.write(scratch[:count].data)
                file.flush()
                return files.FileSource(file.name)
        finally:
            source.close()
