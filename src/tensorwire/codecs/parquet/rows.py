"""Parquet files as rows of a dataset: row groups of 64 MB, and pages with checksums.

pyarrow decodes pages only after `pages.plan` has checked their headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ... import storage
from ..._limits import DEFAULT
from ..._optional import require
from ...records.batch import Batch
from ...storage import files
from .. import parquet as _codec
from ..arrow.table_rows import TableRows, TableWriter, end
from ..column_rows import check_columns
from ..conversion_spec import ConversionSpec
from ..rows import ROWS, ByteOutput, Counted, Reading, SourcePart, local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

FORMAT = "parquet"
_GROUP = 64 << 20
"""Bytes of rows that are buffered and written as one row group."""
_LOOK = 2048
"""Rows that are sampled for repeated values."""
_DELTA = "DELTA_BINARY_PACKED"
_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


class _OpenParquet:
    """An open file whose footer and page headers have been checked."""

    def __init__(self, path: str) -> None:
        self.file, plan = _codec.opened(files.map_file(path).view, DEFAULT, streaming=True)
        self.rows = (
            max(1, min(ROWS, DEFAULT.tensor // (2 * plan.longest))) if plan.longest else ROWS
        )
        self.groups = [
            self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)
        ]


def _metadata(url: str) -> parquet.FileMetaData:
    """Fetches the footer of an object, and nothing else."""
    with storage.reader(url) as file:
        return require("pyarrow.parquet", extra="arrow").read_metadata(file)


class ParquetWriter(TableWriter):
    """Buffers record batches until they make up a row group."""

    def __init__(self, file: ByteOutput, spec: ConversionSpec) -> None:
        super().__init__(file, spec)
        self._parquet = require("pyarrow.parquet", extra="arrow")
        self._writer: parquet.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._size = 0

    def _write(self, record_batch: pa.RecordBatch, batch: Batch) -> None:
        self._pending.append(record_batch)
        self._size += batch.nbytes
        if self._size >= _GROUP:
            self._write_group()

    def _write_group(self) -> None:
        table = self._pa.Table.from_batches(self._pending, self._schema)
        self._pending, self._size = [], 0
        if self._writer is None:
            name = self._spec.compression or ParquetRows.usual
            self._writer = self._parquet.ParquetWriter(
                self._file,
                self._schema,
                compression=name,
                compression_level=self._spec.level if name != "none" else None,
                write_page_checksum=True,
                store_schema=True,
                **_encoded(self._pa, table),
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def _finish(self) -> None:
        if self._pending or self._writer is None:
            self._write_group()
        assert self._writer is not None
        self._writer.close()


def _encoded(pa: ModuleType, table: pa.Table) -> dict[str, Any]:
    """Returns pyarrow's encoding options for each column, chosen from a sample of the first rows.

    Columns with repeated values get a dictionary, and other integers delta encoding. Values inside
    lists get no statistics, because readers cannot skip rows by them.
    """
    kinds = _codec.leaves(table.schema)
    repeated = [
        path
        for path, kind in kinds.items()
        if _codec.repeatable(pa, kind) and _is_repetitive(table, path)
    ]
    return {
        "use_dictionary": repeated or False,
        "column_encoding": (
            {
                path: _DELTA
                for path, kind in kinds.items()
                if pa.types.is_integer(kind) and path not in repeated
            }
            or None
        ),
        "write_statistics": (
            [path for path in kinds if not path.endswith(_codec.ITEMS)] or not kinds
        ),
    }


def _is_repetitive(table: pa.Table, path: str) -> bool:
    rows = table.column(path.partition(_codec.ITEMS)[0]).slice(0, _LOOK).combine_chunks()
    while hasattr(rows, "storage") or hasattr(rows.type, "value_field"):
        rows = rows.storage if hasattr(rows, "storage") else rows.values[: 8 * _LOOK]
    # pyarrow.compute could count distinct values, but it is slow to import, and `flatten` needs it
    # too.
    return len(set(rows.to_pylist())) <= len(rows) // 2


class ParquetRows(TableRows):
    """Reads and writes Parquet files, a batch of rows of one row group at a time."""

    format = FORMAT
    codecs = _CODECS
    usual = "zstd"

    def count(self, path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
        """Counts rows by the footer alone."""

        def rows() -> int:
            if storage.is_url(path):
                return int(_metadata(path).num_rows)
            return sum(_OpenParquet(path).groups)

        return Counted(self.open(path, spec, reading, rows) or 0, [])

    def arrow_schema(self, path: str) -> pa.Schema:
        with self.guarded(path):
            if storage.is_url(path):
                return _metadata(path).schema.to_arrow_schema()
            return _OpenParquet(path).file.schema_arrow

    def read(self, part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
        with local(part.path) as local_path:
            table = self.open(part.path, spec, reading, lambda: _OpenParquet(local_path))
            if table is None:
                return
            check_columns(table.file.schema_arrow.names, spec, part.path)
            row, stop, total = 0, end(part), sum(table.groups)
            for group, count in enumerate(table.groups):
                if row + count > part.first and row < stop:
                    record_batches: Iterator[pa.RecordBatch] = iter(())
                    with self.guarded(part.path):
                        record_batches = table.file.iter_batches(
                            table.rows, [group], columns=spec.names, use_threads=False
                        )
                    pieces, lost = (
                        self.validated(record_batches, spec),
                        "the rest of a row group ",
                    )
                    yield from self.rows(pieces, part, row, total, spec, reading, lost)
                row += count

    def writer(self, file: ByteOutput, spec: ConversionSpec) -> ParquetWriter:
        return ParquetWriter(file, spec)
