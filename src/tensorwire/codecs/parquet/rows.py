"""Parquet: groups of rows of some ten megabytes, pages with checksums. pyarrow reads pages after we
have looked at their headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

from ... import storage
from ..._errors import EncodeError
from ..._limits import DEFAULT
from ..._optional import require
from ...records import batches
from ...records.batch import Batch
from ...records.schema import Schema
from ...storage import files
from .. import parquet as _codec
from ..arrow import columnar
from ..conversion_spec import ConversionSpec
from ..rows import ROWS, Counted, Reading, SourcePart, local

FORMAT = "parquet"
_GROUP = 64 << 20
"""Bytes of rows that are held and written together."""
_LOOK = 2048
"""Rows that are looked at for values that come again."""
_DELTA = "DELTA_BINARY_PACKED"
_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
_USUAL = "zstd"


class _Opened:
    """A file whose footer and pages have been looked at."""

    def __init__(self, path: str) -> None:
        self.file, plan = _codec.opened(files.map_file(path).view, DEFAULT, streaming=True)
        self.rows = (
            max(1, min(ROWS, DEFAULT.tensor // (2 * plan.longest))) if plan.longest else ROWS
        )
        self.groups = [
            self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)
        ]


def count(path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
    """From the footer."""

    def rows(place: str) -> int:
        return (
            int(_metadata(place).num_rows) if storage.is_url(place) else sum(_Opened(place).groups)
        )

    return Counted(columnar.opened_table(path, path, spec, reading, FORMAT, rows) or 0, [])


def schema(sources: Sequence[str], spec: ConversionSpec, nbytes: int) -> Schema:
    return columnar.schema_of_files(
        sources, spec, lambda path: columnar.schema_of(arrow_schema(path), spec)
    )


def arrow_schema(path: str) -> Any:
    with columnar.guarded(path, FORMAT):
        if storage.is_url(path):
            return _metadata(path).schema.to_arrow_schema()
        return _Opened(path).file.schema_arrow


def _metadata(url: str) -> Any:
    """The footer of an object, which is all that is fetched."""
    with storage.reader(url) as file:
        return require("pyarrow.parquet", extra="arrow").read_metadata(file)


def remembers(path: str) -> bool:
    return columnar.remembered(arrow_schema(path)) is not None


def names(path: str, spec: ConversionSpec) -> list[str]:
    return list(arrow_schema(path).names)


def blank(path: str, spec: ConversionSpec) -> Batch:
    return columnar.blank_of(arrow_schema(path), spec)


def bare(names: list[str], paths: Sequence[str], spec: ConversionSpec) -> list[str]:
    return columnar.bare(
        names, columnar.looked_into(columnar.some(paths), spec, arrow_schema), spec
    )


def read(part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
    with local(part.path) as place:
        opened = columnar.opened_table(part.path, place, spec, reading, FORMAT, _Opened)
        if opened is None:
            return
        columnar.check_columns(opened.file.schema_arrow.names, spec, part.path)
        at, stop = 0, columnar.end(part)
        for group, count in enumerate(opened.groups):
            if at + count > part.first and at < stop:
                found: Any = iter(())
                with columnar.guarded(part.path, FORMAT):
                    found = opened.file.iter_batches(
                        opened.rows, [group], columns=spec.names, use_threads=False
                    )
                pieces = columnar.validated(found, spec, FORMAT)
                total, lost = sum(opened.groups), "the rest of a group of rows "
                yield from columnar.rows(pieces, part, at, total, spec, reading, FORMAT, lost)
            at += count


class ParquetWriter:
    def __init__(self, file: IO[bytes], spec: ConversionSpec) -> None:
        self._pa, self._parquet = (
            require("pyarrow", extra="arrow"),
            require("pyarrow.parquet", extra="arrow"),
        )
        self._file, self._spec = file, spec
        self._schema: Any = None
        self._writer: Any = None
        self._held: list[Any] = []
        self._size = 0

    def add(self, batch: Batch) -> None:
        if self._schema is None:
            self._schema = columnar.table_schema(self._pa, self._spec, batch)
        self._held.append(columnar.arrow_batch(self._pa, batch, self._schema))
        self._size += batches.nbytes(batch)
        if self._size >= _GROUP:
            self._pass_on()

    def _pass_on(self) -> None:
        table = self._pa.Table.from_batches(self._held, self._schema)
        self._held, self._size = [], 0
        if self._writer is None:
            name = self._spec.compression or _USUAL
            self._writer = self._parquet.ParquetWriter(
                self._file, self._schema, compression=name, compression_level=self._spec.level if name != "none" else None,
                **_encoded(self._pa, table), write_page_checksum=True, store_schema=True,
            )  # fmt: skip
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        if self._schema is None:
            blank = columnar.empty(self._spec)
            if blank is None:
                raise EncodeError(
                    "no rows, and so no columns, which a Parquet file must have", format=FORMAT
                )
            self._schema = columnar.table_schema(self._pa, self._spec, blank)
        if self._held or self._writer is None:
            self._pass_on()
        self._writer.close()


def _encoded(pa: Any, table: Any) -> dict[str, Any]:
    """How each column is written. As far as the first rows show, a dictionary where values come
    again, and differences of other integers: less to compress, and to keep. Statistics not of
    values in lists, by which no reader skips rows."""
    kinds = _codec.leaves(table.schema)
    repeated = [
        path
        for path, kind in kinds.items()
        if _codec.repeatable(pa, kind) and _comes_again(table, path)
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


def _comes_again(table: Any, path: str) -> bool:
    rows = table.column(path.partition(_codec.ITEMS)[0]).slice(0, _LOOK).combine_chunks()
    while hasattr(rows, "storage") or hasattr(rows.type, "value_field"):
        rows = rows.storage if hasattr(rows, "storage") else rows.values[: 8 * _LOOK]
    # pyarrow.compute could count them (and flatten uses it), but is slow to import
    return len(set(rows.to_pylist())) <= len(rows) // 2


def writer(file: IO[bytes], spec: ConversionSpec) -> ParquetWriter:
    return ParquetWriter(file, spec)


def check_target(spec: ConversionSpec) -> None:
    require("pyarrow", extra="arrow")
    if spec.compression is not None and spec.compression not in _CODECS:
        raise EncodeError(
            f"Parquet compresses with {', '.join(_CODECS)}, not {spec.compression!r:.40}",
            format=FORMAT,
        )
    columnar.check_level(spec.compression or _USUAL, spec.level, FORMAT)
    if spec.quantize:
        raise EncodeError(
            "Parquet holds columns of plain numbers; quantize= is for tfrecord, npz and"
            " safetensors",
            format=FORMAT,
        )
