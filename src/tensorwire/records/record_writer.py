"""`RecordWriter`: TFRecord files that are replaced atomically, written live, or appended to."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from .. import storage
from .._errors import DecodeError, EncodeError, TruncatedError, UsageError
from .._limits import DEFAULT, Limits
from ..core.memory import Buffer
from ..core.tensors import Strings
from ..storage import files
from ..transforms import compression as compressions
from ..wire import kernels, tfrecord
from . import blocks as _blocks
from . import paths

Array = np.ndarray[Any, Any]

_HELD = 256 << 10
"""Bytes of small records that are buffered and written together."""
_CARRIED = 64 << 20
"""The maximum number of bytes to write again when a torn compressed file is appended to.

The file is cut at a unit boundary, and the complete records after it are written again.
"""
MODES = ("w", "live", "a")


def _not_a_record(record: object) -> UsageError:
    if isinstance(record, Mapping):
        hint: str | None = "tw.write_examples(path, rows) writes dicts as Examples"
    else:
        hint = "encode text first: text.encode()" if isinstance(record, str) else None
    return UsageError(f"a record must be bytes, not {type(record).__name__}", hint=hint)


class RecordWriter:
    """Writes bytes as the records of TFRecord files, uncompressed or compressed.

    compression  "gzip", "zlib" or "snappy" ("zstd" and "lz4", which TensorFlow cannot read, too),
    with
                 `level` and `threads`; "" for none. By default the name decides: `a.tfrecord.gz` is
                 gzip, and a file that is appended to keeps its compression
    mode         "w": the file is replaced when the writer is closed, and left as it was if the
    `with`
                 block fails. "live": a new file is written in place, so that readers can follow it.
                 "a": append to a file, after verifying it and cutting off a torn record at its end
    shards       write n files `NAME-00003-of-00016.SUFFIX`; record i goes to shard i % n durable
    flush the files to disk when they are closed or flushed limits       the tw.Limits for reading
    the file that is appended to

    In the modes "live" and "a", `flush()` makes all records so far visible and durable, so a crash
    loses at most the records after it. Raises UsageError for invalid arguments and for a record that
    is not bytes, and EncodeError for a file that cannot be appended to.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with tw.RecordWriter(path, compression="gzip") as writer:
    ...     writer.write(b"one")
    ...     writer.write_many([b"two", b"three"])
    >>> list(tw.RecordReader(path)), writer.records
    ([b'one', b'two', b'three'], 3)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        compression: str | None = None,
        mode: Literal["w", "live", "a"] = "w",
        shards: int | None = None,
        level: int | None = None,
        threads: int | None = None,
        durable: bool = True,
        limits: Limits | None = None,
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if shards is not None and shards < 1:
            raise UsageError(f"shards must be at least 1, not {shards}")
        name = os.fspath(path)
        self.paths: list[str] = (
            [paths.shard(name, i, shards) for i in range(shards)] if shards else [name]
        )
        self.records = 0
        """The number of records written so far."""
        kind = None if compression is None else _blocks.compression_named(compression) or ""
        share = None if threads is None else max(1, threads // len(self.paths))
        self._outputs: list[_Output] = []
        try:
            for shard_path in self.paths:
                self._outputs.append(_Output(shard_path, kind, mode, level, share, durable, limits))
        except BaseException:
            self._end(failed=True)
            raise
        self._closed = False

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Write one record."""
        try:
            framed = kernels.frame(record)
        except TypeError:
            raise _not_a_record(record) from None
        self._target(1).put(framed)

    def write_many(self, records: Strings | Iterable[bytes]) -> None:
        """Write many records. A `Strings` is framed in one step."""
        if not isinstance(records, Strings):
            for record in records:
                self.write(record)
            return
        if len(self.paths) == 1:
            self._target(records.size).put(kernels.frames(records.data, records.offsets))
            return
        for i in range(len(self.paths)):
            part = records.reshape(-1)[(i - self.records) % len(self.paths) :: len(self.paths)]
            self._outputs[i].put(kernels.frames(part.data, part.offsets))
        self.records += records.size

    def put_framed(self, shard: int, data: Buffer, count: int) -> None:
        """Write bytes that consist of `count` framed records to one shard."""
        self._check_open()
        self._outputs[shard].put(data)
        self.records += count

    def _target(self, count: int) -> _Output:
        self._check_open()
        output = self._outputs[self.records % len(self._outputs)]
        self.records += count
        return output

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the writer is closed")

    def flush(self) -> None:
        """Make all records so far visible and durable, in the modes "live" and "a".

        In mode "w" there is no visible file yet, so this does nothing.
        """
        self._check_open()
        for output in self._outputs:
            output.flush()

    def close(self) -> None:
        """Write the remaining records. In mode "w" the file is created or replaced now."""
        self._end(failed=False)

    def discard(self) -> None:
        """Close the writer without finishing.

        In mode "w" the old file stays as it was. In the other modes the flushed records stay.
        """
        self._end(failed=True)

    def _end(self, failed: bool) -> None:
        outputs, self._outputs, self._closed = self._outputs, [], True
        # The stack closes every file, even if closing one of them fails.
        with contextlib.ExitStack() as stack:
            for output in reversed(outputs):
                stack.callback(output.discard if failed else output.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(failed=kind is not None)

    def __repr__(self) -> str:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"RecordWriter({self.paths[0]!r}{more})"


class _Output:
    """One file that is being written."""

    def __init__(
        self,
        path: str,
        compression: str | None,
        mode: str,
        level: int | None,
        threads: int | None,
        durable: bool,
        limits: Limits | None,
    ) -> None:
        self.path, self._mode, self._durable = path, mode, durable
        self._held: list[Any] = []
        self._size = 0
        self._stack = contextlib.ExitStack()
        self._object: Any = None
        if storage.is_url(path) and mode != "w":
            raise UsageError(
                f"mode={mode!r} needs a local file",
                path=path,
                hint='objects are written with mode="w"',
            )
        existed = os.path.exists(path)
        cut, again = None, b""
        if mode == "a" and existed:
            compression, cut, again = _check_append(path, compression, limits)
        elif compression is None:
            compression = compressions.named_by(path)
        # The compressor is created before any file is opened, so that a missing package or an
        # invalid level does not truncate a file.
        self._compressor = (
            compressions.compressor(compression, level=level, threads=threads)
            if compression
            else None
        )
        if storage.is_url(path):
            self._object = self._stack.enter_context(storage.writer(path))
        elif mode == "w":
            self._fd = self._stack.enter_context(files.replacing(path, durable))
        else:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if mode == "live" else 0)
            self._fd = os.open(path, flags, 0o666)
            self._stack.callback(os.close, self._fd)
            if cut is not None:
                os.ftruncate(self._fd, cut)
            os.lseek(self._fd, 0, os.SEEK_END)
            if durable and not existed:
                files.sync_folder(path)
            if again:
                # These records were in the file before, so they are flushed at once.
                self.put(again)
                self.flush()

    def put(self, framed: Buffer) -> None:
        self._held.append(framed)
        self._size += len(framed)
        if self._size >= _HELD:
            self._write()

    def _write(self) -> None:
        held, self._held, self._size = self._held, [], 0
        if self._compressor is not None:
            held = self._compressor.write(kernels.join(held))
        self._pass_on(held)

    def _pass_on(self, chunks: Sequence[Buffer]) -> None:
        if self._object is None:
            files.write_vector(self._fd, chunks)
        else:
            for chunk in chunks:
                self._object.write(chunk)

    def flush(self) -> None:
        if self._mode == "w":
            return
        self._write()
        if self._compressor is not None:
            files.write_vector(self._fd, self._compressor.flush())
        if self._durable:
            os.fsync(self._fd)

    def close(self) -> None:
        try:
            self._write()
            if self._compressor is not None:
                self._pass_on(self._compressor.finish())
            if self._mode != "w" and self._durable:
                os.fsync(self._fd)
        except BaseException:
            self.discard()
            raise
        self._stack.close()

    def discard(self) -> None:
        """Close the file. In mode "w" the temporary file is removed and the old file stays."""
        if self._compressor is not None:
            self._compressor.close()
        with contextlib.suppress(_Discarded), self._stack:
            if self._mode == "w":
                raise _Discarded


class _Discarded(Exception):
    """Makes `files.replacing` keep the old file."""


def _check_append(
    path: str, compression: str | None, limits: Limits | None
) -> tuple[str | None, int | None, bytes]:
    """Verify a file that is to be appended to.

    `compression` is None for any, and "" for none. Returns the file's compression, the offset at
    which to cut off a torn record (None if there is none), and the records to write again.

    A compressed file can only be cut where a member or block ends together with a record. The
    complete records after that point are written again.
    """
    source = files.FileSource(path)
    stream: _blocks.Compressed | None = None
    # The last blocks, as the offsets of their records and their bytes.
    recent: deque[tuple[Array, bytes]] = deque()
    kept = end = 0
    try:
        new = compression if compression is not None else compressions.named_by(path)
        codec = _blocks.compression_of(source) if source.size else new or None
        if compression is not None and codec != (compression or None):
            raise UsageError(
                f"compression={compression!r} does not match the file, which is"
                f" {codec or 'not compressed'}",
                path=path,
            )
        if codec == "zlib":
            raise EncodeError(
                "a zlib file cannot be appended to: TensorFlow reads only the first zlib stream",
                path=path,
                hint="append to gzip or uncompressed files",
            )
        if not source.size:
            return codec, None, b""
        if codec:
            stream = _blocks.Compressed(source, codec, 0, limits or DEFAULT)
        for block in (
            _blocks.frames(stream, path, limits or DEFAULT)
            if stream
            else _blocks.blocks(path, compression="", limits=limits)
        ):
            begins = block.offset + block.starts - tfrecord.HEADER
            end = block.end
            if stream is not None:
                recent.append(
                    (
                        begins,
                        block.data[int(begins[0]) - block.offset : end - block.offset].tobytes(),
                    )
                )
                kept += len(recent[-1][1])
                while kept > _CARRIED and len(recent) > 1:
                    kept -= len(recent.popleft()[1])
    except TruncatedError as error:
        if stream is not None:
            return codec, *_cut_compressed(path, stream.units, recent, end, error)
        if end == 0 and source.size < tfrecord.HEADER:
            raise EncodeError(
                "not a TFRecord file: it is shorter than one header", path=path
            ) from error
        return codec, end, b""
    except DecodeError as error:
        raise EncodeError(
            f"the file is damaged ({error})", path=path, hint="repair it first with tw.repair"
        ) from error
    finally:
        source.close()
    return codec, None, b""


def _cut_compressed(
    path: str,
    units: list[tuple[int, int]],
    recent: deque[tuple[Array, bytes]],
    end: int,
    error: TruncatedError,
) -> tuple[int, bytes]:
    """Return where to cut a torn compressed file, and the records to write again."""
    begins = np.concatenate([*(part for part, _ in recent), [end]])
    records = b"".join(data for _, data in recent)
    for file_offset, offset in reversed(units):
        if offset in begins:
            return file_offset, records[offset - int(begins[0]) :]
    raise EncodeError(
        f"the compressed file ends too early ({error.message})",
        path=path,
        hint="repair it first with tw.repair",
    ) from error
