"""Sinks: the outputs of a codec that writes part by part, in memory or in a file.

A writer knows the sizes of all parts before their data. Bytes that depend on the data, such as
checksums, are written later:

1. `write` appends bytes. A file writes them at once, memory keeps the buffer itself.
2. `reserve` leaves room for a known number of bytes, and `fill` writes them there.
3. `hold` keeps data that follow bytes which depend on them. A file keeps them in an unnamed
   temporary file, memory keeps the buffers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Protocol

from ..core import dtypes, memory
from ..core.memory import Buffer
from ..core.tensors import Array, Strings
from ..storage import files
from ..wire import kernels

if TYPE_CHECKING:
    from ..transforms.compression.streams import Compressor

BLOCK = 8 << 20
"""The number of bytes that are read, cast and written at a time."""


class Sink(Protocol):
    """The interface of an output. The module docstring is the contract."""

    def write(self, data: Buffer) -> None:
        """Appends bytes."""

    def reserve(self, size: int) -> int:
        """Leaves room for `size` bytes at the end, and returns the place for `fill`."""

    def fill(self, place: int, data: bytes) -> None:
        """Writes bytes where room was reserved."""

    def hold(self, buffers: Iterable[Buffer]) -> tuple[Iterable[Buffer], int]:
        """Takes all buffers. Returns their bytes, which can be read once, and their CRC32C."""


class MemorySink:
    """A sink that keeps a list of buffers and copies none."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def write(self, data: Buffer) -> None:
        if len(data):
            self.buffers.append(data)

    def reserve(self, size: int) -> int:
        self.buffers.append(b"")
        return len(self.buffers) - 1

    def fill(self, place: int, data: bytes) -> None:
        self.buffers[place] = data

    def hold(self, buffers: Iterable[Buffer]) -> tuple[Iterable[Buffer], int]:
        held, crc = buffers if type(buffers) is tuple else list(buffers), 0
        for data in held:
            crc = kernels.crc32c(data, crc)
        return held, crc


class FileSink:
    """A sink that writes to a file descriptor. The temporary file of `hold` is made in `folder`.

    With a compressed stream only `write` and `hold` may be used, since its bytes have no fixed
    offsets.
    """

    def __init__(self, fd: int, folder: str, stream: Compressor | None = None) -> None:
        self._fd, self._folder, self._stream = fd, folder, stream
        self._spool: IO[bytes] | None = None

    def write(self, data: Buffer) -> None:
        self._put([data] if self._stream is None else self._stream.write(data))

    def _put(self, buffers: Sequence[Buffer]) -> None:
        files.write_vector(self._fd, [data for data in buffers if len(data)])

    def reserve(self, size: int) -> int:
        return os.lseek(self._fd, size, os.SEEK_CUR) - size

    def fill(self, place: int, data: bytes) -> None:
        end = os.lseek(self._fd, 0, os.SEEK_CUR)
        os.lseek(self._fd, place, os.SEEK_SET)
        self._put([data])
        os.lseek(self._fd, end, os.SEEK_SET)

    def hold(self, buffers: Iterable[Buffer]) -> tuple[Iterable[Buffer], int]:
        if self._spool is None:
            # Few writers need it, and it would add a fifth to the time of `import tensorwire`.
            import tempfile

            self._spool = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (__exit__)
        start, crc = self._spool.tell(), 0
        for data in buffers:
            self._spool.write(data)
            crc = kernels.crc32c(data, crc)
            # Without this, one tensor would stay in memory while the next one is read.
            del data
        return _held(self._spool, start, self._spool.tell()), crc

    def finish(self) -> None:
        """Writes the rest of the compressed stream."""
        if self._stream is not None:
            self._put(self._stream.finish())

    def __enter__(self) -> FileSink:
        return self

    def __exit__(self, *error: object) -> None:
        if self._spool is not None:
            self._spool.close()


def _held(spool: IO[bytes], start: int, stop: int) -> Iterator[Buffer]:
    for offset in range(start, stop, BLOCK):
        spool.seek(offset)
        yield spool.read(min(BLOCK, stop - offset))


class OutputPart(Protocol):
    """An array to be written. Its dtype, shape and size are known before its data."""

    @property
    def dtype(self) -> str:
        """A name of the dtype table; "strings" for a string tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def like(self) -> Array:
        """An array of this dtype and shape, with arbitrary elements."""

    def buffers(self) -> Iterable[Buffer]:
        """Yields the data in order."""

    def whole_buffer(self) -> Buffer:
        """Returns the data as one buffer."""

    def read(self) -> Array | Strings:
        """Returns the array."""


class ArrayOutput:
    """An array in memory, in C order, as a part to be written."""

    __slots__ = ("like",)

    def __init__(self, array: Array) -> None:
        self.like = array

    @property
    def dtype(self) -> str:
        return dtypes.of(self.like.dtype).name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.like.shape)

    @property
    def nbytes(self) -> int:
        return self.like.nbytes

    def buffers(self) -> Iterable[Buffer]:
        return (memory.chunk(self.like),)

    def whole_buffer(self) -> Buffer:
        return memory.chunk(self.like)

    def read(self) -> Array:
        return self.like
