"""Arrow: the IPC file or stream, read by our own reader, a record batch at a time.

A file that `tw.save` wrote may hold a value that is not a table: tensors of several lengths in one
row, quantized ones. Its tensors are the columns, as `tw.load` gives them, and it is held whole
while it is read, as npz and safetensors are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import IO, Any

from ... import storage
from ..._errors import EncodeError
from ..._limits import DEFAULT
from ..._optional import require
from ...records.batch import Batch
from ...records.schema import Schema
from ...storage import files
from ...wire.arrow_ipc import MAGIC
from .. import tensor_rows
from ..conversion_spec import ConversionSpec
from ..rows import Counted, Reading, SourcePart, local
from . import columnar
from . import schema as arrow_schema
from . import table as arrow_columns
from .buffers import Chunk
from .file import IpcFile
from .schema import Column

FORMAT = "arrow"
_CODECS = ("zstd", "lz4")


class _Opened:
    """A file or stream of record batches."""

    def __init__(self, path: str) -> None:
        pa = require("pyarrow", extra="arrow")
        source = files.map_file(path)
        self.file = IpcFile(source, DEFAULT.call(source.size))
        self.rows = [chunk.batch.length for chunk in self.file.chunks]
        buffer = pa.BufferReader(pa.py_buffer(source.view))
        is_file = bytes(source.view[:6]) == MAGIC
        self.schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(buffer).schema
        self.is_table = _is_table(self.schema)

    def pieces(self, spec: ConversionSpec) -> Iterator[columnar.Piece]:
        """The rows of each batch."""
        for chunk, count in zip(self.file.chunks, self.rows, strict=True):
            yield count, functools.partial(self._read, chunk, spec)

    def _read(self, chunk: Chunk, spec: ConversionSpec, low: int, high: int) -> Batch:
        self.file.limits.start()  # One batch is in memory at a time.
        found, count = arrow_schema.columns(self.file, None, [chunk]), chunk.batch.length
        flags = arrow_schema.flags(found)
        chosen: dict[str, Column] = {}
        for name in columnar.readable(self.schema, spec):
            flag = name + arrow_schema.PRESENT
            chosen |= {name: found[name]} | ({flag: flags[flag]} if flag in flags else {})
        rows = None if high - low == count else (low, high)
        return columnar.batch_from(chosen, count, spec, rows)


def _is_table(schema: Any) -> bool:
    """Whether a row of the file is a row of each column; the metadata of `tw.save` say it."""
    key = arrow_schema.KEY.encode()
    about = [schema.metadata, *(field.metadata for field in schema)]
    said = [(pairs or {}).get(key, b"").decode() for pairs in about]
    return arrow_columns.is_table(*said)


def count(path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
    """From the messages of the batches."""
    with local(path) as place:
        opened = columnar.opened_table(path, place, spec, reading, FORMAT, _Opened)
        if opened is not None and not opened.is_table:
            return tensor_rows.count(path, marks, spec, reading)
        return Counted(sum(opened.rows) if opened is not None else 0, [])


def schema(sources: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema:
    def look(path: str) -> Schema:
        found = arrow_schema_of(path)
        if _is_table(found):
            return columnar.schema_of(found, spec)
        return tensor_rows.schema_of(path, spec)

    return columnar.schema_of_files(sources, spec, look)


def remembers(path: str) -> bool:
    return columnar.remembered(arrow_schema_of(path)) is not None


def names(path: str, spec: ConversionSpec) -> list[str]:
    found = arrow_schema_of(path)
    return list(found.names) if _is_table(found) else tensor_rows.names(path, spec)


def blank(path: str, spec: ConversionSpec) -> Batch:
    found = arrow_schema_of(path)
    return columnar.blank_of(found, spec) if _is_table(found) else tensor_rows.blank(path, spec)


def arrow_schema_of(path: str) -> Any:
    with columnar.guarded(path, FORMAT):
        return _fetched_schema(path) if storage.is_url(path) else _Opened(path).schema


def _fetched_schema(url: str) -> Any:
    """That of an object, of which no more is fetched than its ends."""
    pa = require("pyarrow", extra="arrow")
    with storage.reader(url) as file:
        is_file = file.read(6) == MAGIC
        file.seek(0)
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file).schema


def bare(names: list[str], paths: Sequence[str], spec: ConversionSpec) -> list[str]:
    schemas = columnar.looked_into(columnar.some(paths), spec, arrow_schema_of)
    return columnar.bare(names, schemas, spec)


def read(part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
    with local(part.path) as place:
        opened = columnar.opened_table(part.path, place, spec, reading, FORMAT, _Opened)
        if opened is None:
            return
        if not opened.is_table:
            yield from tensor_rows.read(part, spec, reading)
            return
        columnar.check_columns(opened.schema.names, spec, part.path)
        pieces, total = opened.pieces(spec), sum(opened.rows)
        yield from columnar.rows(pieces, part, 0, total, spec, reading, FORMAT, "")


class ArrowWriter:
    def __init__(self, file: IO[bytes], spec: ConversionSpec) -> None:
        self._pa = require("pyarrow", extra="arrow")
        self._file, self._spec = file, spec
        self._schema: Any = None
        self._writer: Any = None

    def _open(self, batch: Batch) -> None:
        pa = self._pa
        codec = (
            pa.Codec(self._spec.compression, compression_level=self._spec.level)
            if self._spec.compression
            else None
        )
        self._schema = columnar.table_schema(pa, self._spec, batch)
        options = pa.ipc.IpcWriteOptions(allow_64bit=True, compression=codec, use_threads=False)
        self._writer = pa.ipc.new_file(
            pa.PythonFile(self._file, mode="w"), self._schema, options=options
        )

    def add(self, batch: Batch) -> None:
        if self._writer is None:
            self._open(batch)
        self._writer.write_batch(columnar.arrow_batch(self._pa, batch, self._schema))

    def close(self) -> None:
        if self._writer is None:
            blank = columnar.empty(self._spec)
            if blank is None:
                raise EncodeError(
                    "no rows, and so no columns, which an Arrow file must have", format=FORMAT
                )
            self._open(blank)
        self._writer.close()


def writer(file: IO[bytes], spec: ConversionSpec) -> ArrowWriter:
    return ArrowWriter(file, spec)


def check_target(spec: ConversionSpec) -> None:
    require("pyarrow", extra="arrow")
    if spec.compression is not None and spec.compression not in _CODECS:
        raise EncodeError(
            f"Arrow compresses with {', '.join(_CODECS)}, not {spec.compression!r:.40}",
            format=FORMAT,
        )
    columnar.check_level(spec.compression or "none", spec.level, FORMAT)
    if spec.quantize:
        raise EncodeError(
            "Arrow holds columns of plain numbers; quantize= is for tfrecord, npz and safetensors",
            format=FORMAT,
        )
