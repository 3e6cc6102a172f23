"""Arrow files as rows of a dataset: an IPC file or stream, read one record batch at a time.

A file that `tw.save` wrote may hold a value that is not a table: tensors of several lengths in one
row, or quantized tensors. Then its tensors are the columns, as `tw.load` returns them, and the file
is in memory as a whole while it is read, as npz and safetensors files are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ... import storage
from ..._limits import DEFAULT
from ..._optional import require
from ...records.batch import Batch
from ...records.schema import Schema
from ...storage import files
from ...wire.arrow_columns import KEY, PRESENT
from ...wire.arrow_ipc import MAGIC
from ..column_rows import check_columns
from ..conversion_spec import ConversionSpec
from ..rows import ByteOutput, Counted, Reading, SourcePart, local
from ..tensor_rows import TensorRows
from . import schema as arrow_schema
from . import table as arrow_columns
from .buffers import Chunk
from .file import IpcFile
from .schema import SpecParts
from .table_rows import Piece, TableRows, TableWriter, batch_from, blank_of, readable, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "arrow"
_CODECS = ("zstd", "lz4")


class _OpenArrow:
    """An open file or stream of record batches."""

    def __init__(self, path: str) -> None:
        pa = require("pyarrow", extra="arrow")
        source = files.map_file(path)
        self.file = IpcFile(source, DEFAULT.call(source.size))
        self.rows = [chunk.batch.length for chunk in self.file.chunks]
        buffer = pa.BufferReader(pa.py_buffer(source.view))
        is_file = bytes(source.view[:6]) == MAGIC
        self.schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(buffer).schema
        self.is_table = _is_table(self.schema)

    def pieces(self, spec: ConversionSpec) -> Iterator[Piece]:
        """Yields the number of rows and a reader for each batch."""
        for chunk, count in zip(self.file.chunks, self.rows, strict=True):
            yield count, functools.partial(self._read, chunk, spec)

    def _read(self, chunk: Chunk, spec: ConversionSpec, low: int, high: int) -> Batch:
        # One batch is in memory at a time, so each has the whole budget.
        self.file.limits.start()
        file_columns, count = arrow_schema.columns(self.file, None, [chunk]), chunk.batch.length
        flags = arrow_schema.flags(file_columns)
        chosen: dict[str, SpecParts] = {}
        for name in readable(self.schema, spec):
            flag = name + PRESENT
            chosen |= {name: file_columns[name]} | ({flag: flags[flag]} if flag in flags else {})
        rows = None if high - low == count else (low, high)
        return batch_from(chosen, count, spec, rows)


def _is_table(schema: pa.Schema) -> bool:
    """Whether each row of the file is a row of the dataset, by the metadata of `tw.save`."""
    key = KEY.encode()
    metadata = [schema.metadata, *(field.metadata for field in schema)]
    texts = [(pairs or {}).get(key, b"").decode() for pairs in metadata]
    return arrow_columns.is_table(*texts)


class ArrowRows(TableRows):
    """Reads and writes Arrow files; a value that is not a table is read as npz files are."""

    format = FORMAT
    codecs = _CODECS
    _tensors = TensorRows()

    def count(self, path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
        """Counts rows by the batch headers alone."""
        with local(path) as local_path:
            table = self.open(path, spec, reading, lambda: _OpenArrow(local_path))
            if table is not None and not table.is_table:
                return self._tensors.count(path, marks, spec, reading)
            return Counted(sum(table.rows) if table is not None else 0, [])

    def schema_of(self, path: str, spec: ConversionSpec) -> Schema:
        schema = self.arrow_schema(path)
        return schema_of(schema, spec) if _is_table(schema) else self._tensors.schema_of(path, spec)

    def names(self, path: str, spec: ConversionSpec) -> list[str]:
        schema = self.arrow_schema(path)
        return list(schema.names) if _is_table(schema) else self._tensors.names(path, spec)

    def blank(self, path: str, spec: ConversionSpec) -> Batch:
        schema = self.arrow_schema(path)
        return blank_of(schema, spec) if _is_table(schema) else self._tensors.blank(path, spec)

    def arrow_schema(self, path: str) -> pa.Schema:
        with self.guarded(path):
            return _fetched_schema(path) if storage.is_url(path) else _OpenArrow(path).schema

    def read(self, part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
        with local(part.path) as local_path:
            table = self.open(part.path, spec, reading, lambda: _OpenArrow(local_path))
            if table is None:
                return
            if not table.is_table:
                yield from self._tensors.read(part, spec, reading)
                return
            check_columns(table.schema.names, spec, part.path)
            yield from self.rows(table.pieces(spec), part, 0, sum(table.rows), spec, reading)

    def writer(self, file: ByteOutput, spec: ConversionSpec) -> ArrowWriter:
        return ArrowWriter(file, spec)


def _fetched_schema(url: str) -> pa.Schema:
    """Fetches the schema of an object, and no record batches."""
    pa = require("pyarrow", extra="arrow")
    with storage.reader(url) as file:
        is_file = file.read(6) == MAGIC
        file.seek(0)
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file).schema


class ArrowWriter(TableWriter):
    _writer: pa.RecordBatchWriter

    def _open(self, schema: pa.Schema) -> None:
        pa, name = self._pa, self._spec.compression
        codec = pa.Codec(name, compression_level=self._spec.level) if name else None
        options = pa.ipc.IpcWriteOptions(allow_64bit=True, compression=codec, use_threads=False)
        sink = pa.PythonFile(self._file, mode="w")
        self._writer = pa.ipc.new_file(sink, schema, options=options)

    def _write(self, record_batch: pa.RecordBatch, batch: Batch) -> None:
        self._writer.write_batch(record_batch)

    def _finish(self) -> None:
        self._writer.close()
