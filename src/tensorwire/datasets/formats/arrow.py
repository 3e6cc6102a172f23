"""Arrow: the IPC file. Our own reader looks at every message before pyarrow, which believes them, reads the batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

from ... import files, storage
from ..._errors import DecodeError, EncodeError
from ..._limits import DEFAULT
from ..._optional import require
from ...codecs.arrow_file import IpcFile
from ...records.batch import Batch
from ...records.schema import Schema
from ..spec import Spec
from . import Counted, Part, Reading, columnar, local

FORMAT = "arrow"
_CODECS = ("zstd", "lz4")


class _Opened:
    """A file or stream of record batches."""

    def __init__(self, path: str) -> None:
        pa = require("pyarrow", extra="arrow")
        source = files.map_file(path)
        looked = IpcFile(source, DEFAULT)
        _check_buffers(looked, source)
        buffer = pa.BufferReader(pa.py_buffer(source.view))
        self.rows = [chunk.batch.length for chunk in looked.chunks]
        if bytes(source.view[:6]) == b"ARROW1":
            reader = pa.ipc.open_file(buffer)
            self.schema = reader.schema
            self.batches: Iterator[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            stream = pa.ipc.open_stream(buffer)
            self.schema, self.batches = stream.schema, iter(stream)


def _check_buffers(file: IpcFile, source: files.BytesSource) -> None:
    """That every buffer lies in the file, and no compressed one says that it becomes more than the limits allow: pyarrow believes both."""
    total, most = 0, max(DEFAULT.ratio_from, DEFAULT.ratio * source.size)
    for chunk in file.chunks:
        for offset, length in chunk.batch.buffers:
            at = chunk.body + offset
            if min(offset, length) < 0 or at + length > source.size:
                raise DecodeError("a buffer lies outside of the file", format=FORMAT, offset=chunk.body)
            if chunk.batch.codec < 0 or not length:
                continue
            size = int.from_bytes(source.read_at(at, min(8, length)), "little", signed=True)
            total += max(0, size)
            if length < 8 or size < -1 or total > most:
                raise DecodeError(f"a compressed buffer that says it has {size} bytes", format=FORMAT, offset=at)


def count(path: str, marks: int, spec: Spec, reading: Reading) -> Counted:
    """From the messages of the batches."""
    with local(path) as place:
        opened = columnar.opened_table(path, place, spec, reading, FORMAT, _Opened)
        return Counted(sum(opened.rows) if opened is not None else 0, [])


def schema(sources: Sequence[str], spec: Spec, nbytes: int) -> Schema:
    return columnar.schema_of_files(sources, spec, lambda path: columnar.schema_of(arrow_schema(path), spec))


def remembers(path: str) -> bool:
    return columnar.remembered(arrow_schema(path)) is not None


def names(path: str, spec: Spec) -> list[str]:
    return list(arrow_schema(path).names)


def blank(path: str, spec: Spec) -> Batch:
    return columnar.blank_of(arrow_schema(path), spec)


def arrow_schema(path: str) -> Any:
    with columnar.guarded(path, FORMAT):
        return _fetched_schema(path) if storage.is_url(path) else _Opened(path).schema


def _fetched_schema(url: str) -> Any:
    """That of an object, of which no more is fetched than its ends."""
    pa = require("pyarrow", extra="arrow")
    with storage.reader(url) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file).schema


def bare(names: list[str], paths: Sequence[str], spec: Spec) -> list[str]:
    return columnar.bare(names, columnar.looked_into(columnar.some(paths), spec, arrow_schema), spec)


def read(part: Part, spec: Spec, reading: Reading) -> Iterator[Batch]:
    with local(part.path) as place:
        opened = columnar.opened_table(part.path, place, spec, reading, FORMAT, _Opened)
        if opened is None:
            return
        columnar.check_columns(opened.schema.names, spec, part.path)
        yield from columnar.rows(opened.batches, part, 0, sum(opened.rows), spec, reading, FORMAT, "")


class Writer:
    def __init__(self, file: IO[bytes], spec: Spec) -> None:
        self._pa = require("pyarrow", extra="arrow")
        self._file, self._spec, self._schema, self._writer = file, spec, None, None  # type: IO[bytes], Spec, Any, Any

    def _open(self, batch: Batch) -> None:
        pa = self._pa
        codec = pa.Codec(self._spec.compression, compression_level=self._spec.level) if self._spec.compression else None
        self._schema = columnar.table_schema(pa, self._spec, batch)
        options = pa.ipc.IpcWriteOptions(allow_64bit=True, compression=codec, use_threads=False)
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), self._schema, options=options)

    def add(self, batch: Batch) -> None:
        if self._writer is None:
            self._open(batch)
        self._writer.write_batch(columnar.arrow_batch(self._pa, batch, self._schema))

    def close(self) -> None:
        if self._writer is None:
            blank = columnar.empty(self._spec)
            if blank is None:
                raise EncodeError("no rows, and so no columns, which an Arrow file must have", format=FORMAT)
            self._open(blank)
        self._writer.close()


def writer(file: IO[bytes], spec: Spec) -> Writer:
    return Writer(file, spec)


def check_target(spec: Spec) -> None:
    require("pyarrow", extra="arrow")
    if spec.compression is not None and spec.compression not in _CODECS:
        raise EncodeError(f"Arrow compresses with {', '.join(_CODECS)}, not {spec.compression!r:.40}", format=FORMAT)
    columnar.check_level(spec.compression or "none", spec.level, FORMAT)
    if spec.quantize:
        raise EncodeError("Arrow holds columns of plain numbers; quantize= is for tfrecord, npz and safetensors", format=FORMAT)
