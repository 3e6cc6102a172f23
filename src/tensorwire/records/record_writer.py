"""Writing records: a new file that appears whole when it is closed, a live one that others follow,
or more at the end of an old one.
"""

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
"""Bytes of small records that are written together."""
_CARRIED = 64 << 20
"""Bytes of whole records behind the last place where a torn compressed file can be cut, which are
written again.
"""
MODES = ("w", "live", "a")


def _not_a_record(record: object) -> UsageError:
    if isinstance(record, Mapping):
        hint: str | None = "tw.write_examples(path, rows) writes dicts as Examples"
    else:
        hint = "text is written as text.encode()" if isinstance(record, str) else None
    return UsageError(f"a record is bytes, not {type(record).__name__}", hint=hint)


class RecordWriter:
    """Writes records, framed as TFRecords, plain or compressed ("gzip", "zlib", "snappy";
    TensorFlow cannot read "zstd" and "lz4").

    Without `compression` the name says it: `a.tfrecord.gz` is gzip, `a.tfrecord` plain, and a file
    that is added to stays what it is. "" is for plain, whatever the name.

    `mode="w"`: the file is replaced whole when the writer is closed, and left as it was if the
    `with` block fails. `"live"` starts a new file in place, so that others can follow it; `"a"`
    adds to one, after checking it and cutting a torn record off its end. With these two, `flush()`
    makes all records so far visible and durable, and a crash costs at most the records since. With
    `shards=16` record i goes to file i % 16, named `NAME-00003-of-00016.SUFFIX`.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with RecordWriter(path, compression="gzip") as writer:
    ...     writer.write(b"one")
    ...     writer.write_many([b"two", b"three"])
    >>> from tensorwire import RecordReader
    >>> list(RecordReader(path)), writer.records
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
            raise EncodeError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
        if shards is not None and shards < 1:
            raise EncodeError(f"at least one shard, not {shards}")
        name = os.fspath(path)
        self.paths: list[str] = (
            [paths.shard(name, i, shards) for i in range(shards)] if shards else [name]
        )
        self.records = 0
        """How many have been written."""
        kind = None if compression is None else _blocks.compression_named(compression) or ""
        share = None if threads is None else max(1, threads // len(self.paths))
        self._outputs: list[_Output] = []
        try:
            for one in self.paths:
                self._outputs.append(_Output(one, kind, mode, level, share, durable, limits))
        except BaseException:
            self._end(failed=True)
            raise
        self._closed = False

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Adds one record."""
        try:
            framed = kernels.frame(record)
        except TypeError:
            raise _not_a_record(record) from None
        self._target(1).put(framed)

    def write_many(self, records: Strings | Iterable[bytes]) -> None:
        """Adds many: a `Strings` is framed in one step."""
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
        """Adds records that have their frames already."""
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
        """In the modes "live" and "a": all records so far are in the file, whole, and survive a
        power cut ("w" has no file yet).
        """
        self._check_open()
        for output in self._outputs:
            output.flush()

    def close(self) -> None:
        """Writes what is left. In mode "w" only now the file is there, or replaced."""
        self._end(failed=False)

    def discard(self) -> None:
        """Closes without finishing: in mode "w" everything is as it was before; in the others what
        was flushed stays.
        """
        self._end(failed=True)

    def _end(self, failed: bool) -> None:
        outputs, self._outputs, self._closed = self._outputs, [], True
        # one that fails does not keep the others from being closed
        with contextlib.ExitStack() as stack:
            for output in reversed(outputs):
                stack.callback(output.discard if failed else output.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(failed=kind is not None)

    def __repr__(self) -> str:
        return f"RecordWriter({self.paths[0]!r}{f' and {len(self.paths) - 1} more' if len(self.paths) > 1 else ''})"


class _Output:
    """One file being written."""

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
            raise EncodeError(f'an object is written whole: mode="w", not {mode!r}', path=path)
        existed = os.path.exists(path)
        cut, again = None, b""
        if mode == "a" and existed:
            compression, cut, again = _check_append(path, compression, limits)
        elif compression is None:
            compression = compressions.named_by(path)
        # Before any file is touched: a missing package or a bad level must not cost one.
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
                self.put(again)
                self.flush()  # they were in the file, and must not wait for the next ones

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
        """What is half done is gone; a temporary file too."""
        if self._compressor is not None:
            self._compressor.close()
        with contextlib.suppress(_Discarded), self._stack:
            if self._mode == "w":
                raise _Discarded


class _Discarded(Exception):
    """Makes `files.replacing` keep the old file."""


def _check_append(
    path: str, asked: str | None, limits: Limits | None
) -> tuple[str | None, int | None, bytes]:
    """Checks a file that is to grow. -> (its compression, where a torn record must be cut off,
    records to be written again)

    `asked` is None for whatever it is, and "" for none.

    A compressed file is cut where a member or block ends together with a record; the whole records
    behind that are written again.
    """
    source = files.FileSource(path)
    stream: _blocks.Compressed | None = None
    # the last blocks: where their records begin, and their bytes
    recent: deque[tuple[Array, bytes]] = deque()
    held = end = 0
    try:
        new = asked if asked is not None else compressions.named_by(path)
        found = _blocks.compression_of(source) if source.size else new or None
        if asked is not None and found != (asked or None):
            raise EncodeError(
                f"the file is {found or 'not compressed'}, and compression={asked!r} was asked for",
                path=path,
            )
        if found == "zlib":
            raise EncodeError(
                "zlib streams cannot be joined (TensorFlow reads only the first); append to gzip or"
                " plain files",
                path=path,
            )
        if not source.size:
            return found, None, b""
        if found:
            stream = _blocks.Compressed(source, found, 0, limits or DEFAULT)
        for block in (
            _blocks.of_stream(stream, path, limits or DEFAULT)
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
                held += len(recent[-1][1])
                while held > _CARRIED and len(recent) > 1:
                    held -= len(recent.popleft()[1])
    except TruncatedError as error:
        if stream is not None:
            return found, *_cut_compressed(path, stream.units, recent, end, error)
        if end == 0 and source.size < tfrecord.HEADER:
            raise EncodeError(
                "this is no record file: it is shorter than one header", path=path
            ) from error
        return found, end, b""
    except DecodeError as error:
        raise EncodeError(
            f"the file is damaged ({error}); tw.repair it before appending", path=path
        ) from error
    finally:
        source.close()
    return found, None, b""


def _cut_compressed(
    path: str,
    units: list[tuple[int, int]],
    recent: deque[tuple[Array, bytes]],
    end: int,
    error: TruncatedError,
) -> tuple[int, bytes]:
    begins = np.concatenate([*(part for part, _ in recent), [end]])
    whole = b"".join(data for _, data in recent)
    for place, content in reversed(units):
        if content in begins:
            return place, whole[content - int(begins[0]) :]
    raise EncodeError(
        f"the compressed file ends too early ({error.message}); tw.repair it before appending",
        path=path,
    ) from error
