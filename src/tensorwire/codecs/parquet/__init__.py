"""parquet: columns that share their first dimension, for query engines and data lakes.

A column is what it is in Arrow: numbers and strings of one dimension, fixed-size lists for more,
lists for a Ragged, and in the field's metadata what no type says. pyarrow writes and reads the
pages, after we have looked at their headers; what it has read goes through our own reader of Arrow,
so both formats mean the same. Pages have checksums, which are checked.
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
_OTHERS = "safetensors and arrow hold any value"
_SCHEMA = "ARROW:schema"
ITEMS = ".list.element"
"""What Parquet adds to the path of a column for each level of lists."""
_GROUP = 256 << 20
"""Bytes of a group of rows."""
_PAGE = 1 << 20
"""Bytes that pyarrow puts into a page before it looks at its size."""
_ANY = Limits(tensor=1 << 60, expansion=1 << 60, names=1 << 40)


@dataclass(frozen=True, slots=True)
class Parquet:
    """Columns of one length: dense tensors, strings and ragged ones, in a dict or a Bundle, or one
    alone.

    >>> import numpy as np
    >>> codec = Parquet()
    >>> codec.decode(memoryview(b"".join(codec.encode({"id": np.int32([7, 8]), "x": np.float32([[1,
    ...     2], [3, 4]])}))))["id"]
    array([7, 8], dtype=int32)
    """

    compression: str | None = None
    """"zstd" (which None means too), "snappy", "gzip", "lz4", or "none"."""
    level: int | None = None
    limits: Limits = DEFAULT

    def encode(self, value: object, metadata: dict[str, str] | None = None) -> list[Any]:
        pa = require("pyarrow", extra="arrow")
        parquet = require("pyarrow.parquet", extra="arrow")
        name = self.compression or "zstd"
        if name != _NONE:
            codec_of(name, self.level, _CODECS, FORMAT)
        found = _columns(value, metadata)
        try:
            stream = kernels.join(write.chunks(found, stream=True, parquet=True))
        except UnicodeEncodeError:
            raise EncodeError(
                "metadata with a lone surrogate, so they are not text that UTF-8 can hold",
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
                table, sink, use_dictionary=_coded(table), **_sizes(found, table), **options
            )
        except (pa.ArrowException, OSError) as error:
            raise EncodeError(
                f"pyarrow does not write this: {error!s:.300}", format=FORMAT
            ) from None
        return _filled(memory.flat(sink.getvalue()))

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        if copy is False:
            raise DecodeError(
                "copy=False, but Parquet's pages are encoded; leave copy out",
                format=FORMAT,
                offset=0,
            )
        with _said_of_parquet():
            return self._opened(data, copy).value()

    def open(self, source: Source) -> Container:
        """Reads the file. A column that cannot be read is listed; reading that one is an error."""
        with _said_of_parquet():
            return self._opened(source.read_at(0, source.size), None)

    def _opened(self, data: memoryview, copy: bool | None) -> Container:
        with read_by_pyarrow(FORMAT):
            budget = self.limits.call(len(data))
            file, plan = opened(data, budget, coded=True)
            found, metadata = _read(file, plan, budget, copy)
        return Container(*value_of(found, metadata), budget)


@contextlib.contextmanager
def _said_of_parquet() -> Iterator[None]:
    """Errors of the reader of Arrow, as those of a Parquet file."""
    try:
        yield
    except DecodeError as error:
        error.format = FORMAT
        raise error.add(offset=0) from None


@contextlib.contextmanager
def read_by_pyarrow(format: str) -> Iterator[None]:
    """What pyarrow says of bytes that it cannot read, as our error."""
    pa = require("pyarrow", extra="arrow")
    try:
        yield
    except TensorwireError:
        raise
    except OSError as error:
        if error.errno is not None:  # the system's own, and not what pyarrow says of bytes
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
    return DecodeError(f"not {format} that pyarrow reads: {error!s:.300}", format=format, offset=0)


def opened(
    data: memoryview,
    limits: Limits,
    coded: bool = False,
    streaming: bool = False,
) -> tuple[Any, parquet_pages.PagePlan]:
    """pyarrow's file, and what reading it takes, once we have looked at its footer and pages.

    `coded` reads strings that have a dictionary as such, so that their size is known before they
    are made. With `streaming` each group of rows has the whole budget for itself.
    """
    pa, parquet = require("pyarrow", extra="arrow"), require("pyarrow.parquet", extra="arrow")
    if len(data) < 12 or bytes(data[:4]) != _MAGIC or bytes(data[-4:]) != _MAGIC:
        raise TruncatedError(
            "a Parquet file begins and ends with PAR1",
            format=FORMAT,
            offset=min(len(data), 4) if bytes(data[:4]) != _MAGIC else len(data),
        )
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    if start < 4:
        raise TruncatedError(
            f"a footer of {size} bytes in a file of {len(data)}",
            format=FORMAT,
            offset=len(data) - 8,
        )
    plan = parquet_pages.plan(data, start, limits, streaming)
    more: dict[str, Any] = {
        "thrift_string_size_limit": size + 1,
        "thrift_container_size_limit": size // 4 + 100,
    }
    if coded:
        more["read_dictionary"] = sorted(plan.coded)
    source = pa.BufferReader(pa.py_buffer(data))
    return parquet.ParquetFile(source, page_checksum_verification=True, **more), plan


def _read(
    file: parquet.ParquetFile,
    plan: parquet_pages.PagePlan,
    limits: Budget,
    copy: bool | None,
) -> tuple[dict[str, SpecParts], dict[str, str]]:
    """The columns of a file, and the schema's metadata.

    If pyarrow cannot read all columns at once, each is read by itself.
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
    found: dict[str, SpecParts] = {}
    metadata: dict[str, str] = {}
    for field in schema:
        alone = require("pyarrow", extra="arrow").schema([field], schema.metadata)
        try:
            with read_by_pyarrow(FORMAT):
                batches = _batches(file, plan, limits, [field.name])
                own, metadata = arrow_batches.columns(alone, batches, limits, copy, FORMAT)
        except LimitError:
            raise
        except DecodeError as error:
            own, metadata = arrow_batches.refused(alone, error, file.metadata.num_rows, FORMAT)
        found |= own
    return found, metadata


def _batches(
    file: parquet.ParquetFile,
    plan: parquet_pages.PagePlan,
    budget: Budget,
    names: list[str] | None = None,
) -> Iterator[Any]:
    """The rows of each group, validated. (pyarrow cannot put lists out of dictionaries of several
    groups together.)

    Without pyarrow's threads: with them pyarrow 26 now and then ends a process with an abort, after
    all is done.
    """
    counted = size = 0
    for group in range(file.num_row_groups):
        if not plan.longest:
            parts = file.read_row_group(group, columns=names, use_threads=False).to_batches()
        else:  # a string is no longer than the page that it is in
            rows = max(1, min(budget.tensor, max(0, budget.left)) // (2 * plan.longest))
            parts = file.iter_batches(rows, [group], columns=names, use_threads=False)
        for batch in parts:
            size += batch.nbytes
            more = max(0, size - plan.expanded - counted)  # strings that only say how they differ
            budget.draw(more, offset=0)
            counted += more
            batch.validate(full=True)
            yield batch if names is None else batch.select(names)


def _columns(value: object, metadata: dict[str, str] | None) -> TableColumns:
    """A value that is columns of one length, taken apart; an error for any other."""
    found = arrow_columns.columns(value, metadata, FORMAT)
    kind = next(iter(found.spec), None) if isinstance(found.spec, dict) else None
    mapping = kind in ("dict", "bundle")
    nodes = list(lowering.members(found.spec)) if mapping else [("the value", found.spec)]
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
                "same": "is another one again",
            }.get(what, "is no tensor")
            raise EncodeError(
                f"Parquet holds columns, and this {why}; {_OTHERS}", format=FORMAT, tensor=str(name)
            )
    if found.rows is None:
        rows = ", ".join(
            f"{name!r} has {'none' if count is None else count}"
            for name, count in arrow_columns.lengths(found.spec, found.parts)
        )
        raise EncodeError(
            f"Parquet holds columns of one length, and these do not have one: {rows:.300};"
            f" {_OTHERS}",
            format=FORMAT,
        )
    if not found.groups:
        raise EncodeError(f"a Parquet file has at least one column; {_OTHERS}", format=FORMAT)
    if _SCHEMA in found.texts:
        raise EncodeError(f"the metadata key {_SCHEMA!r} is taken", format=FORMAT)
    return found


def _sizes(found: TableColumns, table: pa.Table) -> dict[str, int]:
    """Groups of rows that pyarrow can read again (its lists of strings end at 2 GiB), and pages
    that do not wait for many long strings.
    """
    longest = max(
        (
            part.data.nbytes // part.size
            for part in found.parts
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
    """The file; with bytes that mean nothing before its footer, where whoever reads it with the
    default limits could not otherwise.
    """
    start = len(blob) - 8 - int.from_bytes(blob[-8:-4], "little")
    pages = parquet_pages.plan(blob, start, _ANY).expanded
    missing = streams.filling(pages, len(blob))
    return [blob[:start], bytes(missing), blob[start:]] if missing else [blob]


def _coded(table: pa.Table) -> Any:
    """Paths of the columns that may have a dictionary."""
    pa = require("pyarrow", extra="arrow")
    return [path for path, kind in leaves(table.schema).items() if repeatable(pa, kind)] or False


def repeatable(pa: ModuleType, kind: pa.DataType) -> bool:
    """Whether a dictionary keeps values as they are. It does not those of floats: to it one NaN is
    like another, and -0.0 like 0.0.
    """
    return not pa.types.is_floating(kind) and not pa.types.is_boolean(kind)


def leaves(schema: pa.Schema) -> dict[str, Any]:
    """The type of what stands in each column, by the path that Parquet has for it; none if a path
    could mean another column.
    """
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
