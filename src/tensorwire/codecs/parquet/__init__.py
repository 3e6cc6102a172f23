"""The parquet format: columns that share their first dimension, for query engines and data lakes.

Columns map to types as in the arrow format: plain columns for one dimension, fixed-size lists for
more dimensions, lists for a Ragged, and field metadata for what no Arrow type expresses. Page
checksums are written, and verified on reading.

Decoding works in four steps:

1. `pages.plan` parses the footer and every page header itself, rejects what pyarrow crashes on, and
   draws the expanded size on the budget. No page is decompressed before that.
2. pyarrow decodes the pages, one row group at a time. String columns with a dictionary page stay
   dictionary-encoded, so that their expanded size is known before it is allocated.
3. Every record batch is validated by pyarrow and passed as an in-memory IPC stream, without a copy
   of large buffers, to our own Arrow reader. Both formats therefore share one column mapping.
4. If pyarrow cannot decode the columns together, each column is decoded alone. A column that still
   fails is listed, and only reading that column raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ... import lowering
from ..._errors import DecodeError, EncodeError, LimitError, TensorwireError, TruncatedError
from ..._limits import DEFAULT, Budget, Limits
from ..._optional import require
from ...core import memory
from ...core.tensors import Strings
from ...storage.files import Source
from ...transforms.compression import streams
from ...wire import kernels
from ..arrow import batches as arrow_batches
from ..arrow import codec_of, value_of, write
from ..arrow import table as arrow_columns
from ..arrow.schema import SpecParts
from ..arrow.table import TableColumns
from ..container import Container
from . import pages as parquet_pages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

FORMAT = "parquet"
_CODECS = ("zstd", "snappy", "gzip", "lz4")
_NONE = "none"
_MAGIC = b"PAR1"
_HINT = "safetensors and arrow hold any value"
_SCHEMA = "ARROW:schema"
ITEMS = ".list.element"
"""The suffix that Parquet adds to a column path for each list level."""
_GROUP = 256 << 20
"""Target size of a row group in bytes."""
_PAGE = 1 << 20
"""Bytes that pyarrow writes to a page between two checks of the page size."""
_ANY = Limits(tensor=1 << 60, expansion=1 << 60, names=1 << 40)


@dataclass(frozen=True, slots=True)
class Parquet:
    """The Parquet codec: dense, string and ragged columns of one length, in a dict or Bundle, or
    alone.

    >>> import numpy as np
    >>> codec = Parquet()
    >>> codec.decode(memoryview(b"".join(codec.encode({"id": np.int32([7, 8]), "x": np.float32([[1,
    ...     2], [3, 4]])}))))["id"]
    array([7, 8], dtype=int32)
    """

    compression: str | None = None
    """"zstd" (the default), "snappy", "gzip", "lz4", or "none"."""
    level: int | None = None
    limits: Limits = DEFAULT

    def encode(self, value: object, metadata: dict[str, str] | None = None) -> list[Any]:
        pa = require("pyarrow", extra="arrow")
        parquet = require("pyarrow.parquet", extra="arrow")
        name = self.compression or "zstd"
        if name != _NONE:
            codec_of(name, self.level, _CODECS, FORMAT)
        columns = _columns(value, metadata)
        try:
            stream = kernels.join(write.chunks(columns, stream=True, parquet=True))
        except UnicodeEncodeError:
            raise EncodeError(
                "metadata contains a lone surrogate, which cannot be encoded as UTF-8",
                format=FORMAT,
            ) from None
        table = pa.ipc.open_stream(stream).read_all()
        options = {
            "compression": name,
            "compression_level": self.level if name != _NONE else None,
            "write_page_checksum": True,
        }
        sink = pa.BufferOutputStream()
        try:
            parquet.write_table(
                table, sink, use_dictionary=_coded(table), **_sizes(columns, table), **options
            )
        except (pa.ArrowException, OSError) as error:
            raise EncodeError(
                f"pyarrow cannot write this table: {error!s:.300}", format=FORMAT
            ) from None
        return _filled(memory.flat(sink.getvalue()))

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        if copy is False:
            raise DecodeError(
                "copy=False is not possible: Parquet pages are encoded",
                format=FORMAT,
                offset=0,
                hint="omit copy=False",
            )
        with _as_parquet_errors():
            return self._opened(data, copy).value()

    def open(self, source: Source) -> Container:
        """Reads the whole file. An undecodable column is listed, and only reading it raises."""
        with _as_parquet_errors():
            return self._opened(source.read_at(0, source.size), None)

    def _opened(self, data: memoryview, copy: bool | None) -> Container:
        with read_by_pyarrow(FORMAT):
            budget = self.limits.call(len(data))
            file, plan = opened(data, budget, coded=True)
            columns, metadata = _read(file, plan, budget, copy)
        return Container(*value_of(columns, metadata), budget)


@contextlib.contextmanager
def _as_parquet_errors() -> Iterator[None]:
    """Reports errors of the Arrow reader as errors of a Parquet file."""
    try:
        yield
    except DecodeError as error:
        error.format = FORMAT
        raise error.add(offset=0) from None


@contextlib.contextmanager
def read_by_pyarrow(format: str) -> Iterator[None]:
    """Turns pyarrow's exceptions about invalid bytes into a DecodeError."""
    pa = require("pyarrow", extra="arrow")
    try:
        yield
    except TensorwireError:
        raise
    except OSError as error:
        # An errno marks an error of the operating system. pyarrow raises OSError without one for
        # invalid bytes.
        if error.errno is not None:
            raise
        raise _unreadable(error, format) from None
    except (
        pa.ArrowException,
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise _unreadable(error, format) from None


def _unreadable(error: Exception, format: str) -> DecodeError:
    return DecodeError(
        f"pyarrow cannot read this {format} file: {error!s:.300}", format=format, offset=0
    )


def opened(
    data: memoryview,
    limits: Limits,
    coded: bool = False,
    streaming: bool = False,
) -> tuple[Any, parquet_pages.PagePlan]:
    """Returns (pyarrow.ParquetFile, page plan) after checking the footer and all page headers.

    `coded` reads dictionary-encoded strings as dictionaries, so that their expanded size is known
    before it is allocated. With `streaming` the budget starts again for each row group.
    """
    pa, parquet = require("pyarrow", extra="arrow"), require("pyarrow.parquet", extra="arrow")
    if len(data) < 12 or bytes(data[:4]) != _MAGIC or bytes(data[-4:]) != _MAGIC:
        raise TruncatedError(
            "a Parquet file must begin and end with the magic PAR1",
            format=FORMAT,
            offset=min(len(data), 4) if bytes(data[:4]) != _MAGIC else len(data),
        )
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    if start < 4:
        raise TruncatedError(
            f"the footer length is {size} bytes, but the file has only {len(data)}",
            format=FORMAT,
            offset=len(data) - 8,
        )
    plan = parquet_pages.plan(data, start, limits, streaming)
    # No string or list in the footer can be longer than the footer itself.
    options: dict[str, Any] = {
        "thrift_string_size_limit": size + 1,
        "thrift_container_size_limit": size // 4 + 100,
    }
    if coded:
        options["read_dictionary"] = sorted(plan.coded)
    source = pa.BufferReader(pa.py_buffer(data))
    return parquet.ParquetFile(source, page_checksum_verification=True, **options), plan


def _read(
    file: parquet.ParquetFile,
    plan: parquet_pages.PagePlan,
    limits: Budget,
    copy: bool | None,
) -> tuple[dict[str, SpecParts], dict[str, str]]:
    """Returns the columns of a file and the schema metadata.

    If pyarrow cannot read all columns together, each column is read alone.
    """
    schema = file.schema_arrow
    try:
        with read_by_pyarrow(FORMAT):
            return arrow_batches.columns(schema, _batches(file, plan, limits), limits, copy, FORMAT)
    except LimitError:
        raise
    except DecodeError as error:
        if len(schema.names) < 2:
            return arrow_batches.refused(schema, error, file.metadata.num_rows, FORMAT)
    columns: dict[str, SpecParts] = {}
    metadata: dict[str, str] = {}
    for field in schema:
        alone = require("pyarrow", extra="arrow").schema([field], schema.metadata)
        try:
            with read_by_pyarrow(FORMAT):
                batches = _batches(file, plan, limits, [field.name])
                column, metadata = arrow_batches.columns(alone, batches, limits, copy, FORMAT)
        except LimitError:
            raise
        except DecodeError as error:
            column, metadata = arrow_batches.refused(alone, error, file.metadata.num_rows, FORMAT)
        columns |= column
    return columns, metadata


def _batches(
    file: parquet.ParquetFile,
    plan: parquet_pages.PagePlan,
    budget: Budget,
    names: list[str] | None = None,
) -> Iterator[Any]:
    """Yields validated record batches, row group by row group.

    pyarrow cannot combine lists of dictionary values across row groups, so each group is read by
    itself.
    """
    # use_threads=False: with threads pyarrow 26 occasionally aborts the process at its exit.
    drawn = size = 0
    for group in range(file.num_row_groups):
        # The size of delta-encoded strings is unknown before they are decoded. A string is never
        # longer than its page, so a bounded number of rows fits the budget.
        if not plan.longest:
            parts = file.read_row_group(group, columns=names, use_threads=False).to_batches()
        else:
            rows = max(1, min(budget.tensor, max(0, budget.left)) // (2 * plan.longest))
            parts = file.iter_batches(rows, [group], columns=names, use_threads=False)
        for batch in parts:
            size += batch.nbytes
            # `plan.expanded` is drawn already. Only delta-encoded strings can exceed it.
            excess = max(0, size - plan.expanded - drawn)
            budget.draw(excess, offset=0)
            drawn += excess
            batch.validate(full=True)
            yield batch if names is None else batch.select(names)


def _columns(value: object, metadata: dict[str, str] | None) -> TableColumns:
    """Lowers a value to columns of one length; raises EncodeError for any other value."""
    columns = arrow_columns.columns(value, metadata, FORMAT)
    kind = next(iter(columns.spec), None) if isinstance(columns.spec, dict) else None
    mapping = kind in ("dict", "bundle")
    nodes = list(lowering.members(columns.spec)) if mapping else [("the value", columns.spec)]
    for name, node in nodes:
        if not arrow_columns.is_column(node):
            what = next(
                (
                    key
                    for key in ("sparse", "quantized", "same", "dict", "list", "tuple")
                    if isinstance(node, dict) and key in node
                ),
                "",
            )
            why = {
                "sparse": "is sparse",
                "quantized": "is quantized",
                "same": "repeats another tensor",
            }.get(what, "is not a tensor")
            raise EncodeError(
                f"a Parquet column must be dense, ragged or of strings, but this value {why}",
                format=FORMAT,
                tensor=str(name),
                hint=_HINT,
            )
    if columns.rows is None:
        counts = ", ".join(
            f"{name!r} has {'none' if count is None else count}"
            for name, count in arrow_columns.lengths(columns.spec, columns.parts)
        )
        raise EncodeError(
            f"all Parquet columns must have one length, but {counts:.300}",
            format=FORMAT,
            hint=_HINT,
        )
    if not columns.groups:
        raise EncodeError("a Parquet file must have at least one column", format=FORMAT, hint=_HINT)
    if _SCHEMA in columns.texts:
        raise EncodeError(
            f"the metadata key {_SCHEMA!r} is reserved for Arrow's schema", format=FORMAT
        )
    return columns


def _sizes(columns: TableColumns, table: pa.Table) -> dict[str, int]:
    """Returns row group and write batch sizes for pyarrow.

    Row groups stay small enough to be read back (pyarrow's string lists end at 2 GiB), and write
    batches small enough that long strings do not make huge pages.
    """
    longest = max(
        (
            part.data.nbytes // part.size
            for part in columns.parts
            if isinstance(part, Strings) and part.size
        ),
        default=0,
    )
    rows = table.num_rows * _GROUP // max(1, table.nbytes)
    return {
        "row_group_size": min(max(1, rows), 1 << 20),
        "write_batch_size": min(max(1, _PAGE // max(1, longest)), 1024),
    }


def _filled(blob: memoryview) -> list[Any]:
    """Returns the file as buffers, padded before the footer if the default limits require it.

    Readers reject files that expand too much for their size. Zeros that no page refers to keep very
    compressible files within the default limits.
    """
    start = len(blob) - 8 - int.from_bytes(blob[-8:-4], "little")
    pages = parquet_pages.plan(blob, start, _ANY).expanded
    missing = streams.filling(pages, len(blob))
    return [blob[:start], bytes(missing), blob[start:]] if missing else [blob]


def _coded(table: pa.Table) -> Any:
    """Returns the paths of the columns that may use a dictionary, or False if there are none."""
    pa = require("pyarrow", extra="arrow")
    return [path for path, kind in leaves(table.schema).items() if repeatable(pa, kind)] or False


def repeatable(pa: ModuleType, kind: pa.DataType) -> bool:
    """Whether a dictionary preserves all values of a type.

    It does not preserve floats: a dictionary merges all NaNs, and -0.0 with 0.0.
    """
    return not pa.types.is_floating(kind) and not pa.types.is_boolean(kind)


def leaves(schema: pa.Schema) -> dict[str, Any]:
    """Maps the Parquet path of each column to its leaf type; empty if a path is ambiguous."""
    if any("." in name for name in schema.names):
        return {}
    return dict(_leaf(field.name, field.type) for field in schema)


def _leaf(path: str, kind: pa.DataType) -> tuple[str, Any]:
    while hasattr(kind, "storage_type") or hasattr(kind, "value_field"):
        if hasattr(kind, "storage_type"):
            kind = kind.storage_type
        else:
            path, kind = f"{path}{ITEMS}", kind.value_type
    return path, kind
