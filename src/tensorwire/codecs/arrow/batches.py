"""pyarrow record batches as columns, and columns as record batches.

Both directions use the column mapping of Arrow files, so a column means the same in every format
that pyarrow reads or writes.
"""

from __future__ import annotations

import io
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._errors import DecodeError, EncodeError, TruncatedError
from ..._limits import DEFAULT, Budget
from ..._optional import require
from ...core import memory
from ...core.tensors import Array
from ...frameworks.arrow import pyarrow_arrays
from ...wire import kernels
from ...wire.arrow_columns import KEY
from ...wire.arrow_ipc import FORMAT, MARK
from . import schema as arrow_schema
from . import table as arrow_columns
from .file import IpcFile
from .schema import SpecParts

if TYPE_CHECKING:
    import pyarrow as pa


def columns(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    limits: Budget,
    copy: bool | None,
    format: str,
) -> tuple[dict[str, SpecParts], dict[str, str]]:
    """Returns the columns of record batches, which share their memory, and the schema metadata."""
    file = _file(schema, batches, limits, format)
    return arrow_schema.columns(file, copy), dict(file.metadata)


def refused(
    schema: pa.Schema,
    error: DecodeError,
    rows: int,
    format: str,
) -> tuple[dict[str, SpecParts], dict[str, str]]:
    """Returns columns that raise `error` when they are read, and the schema metadata."""
    file = _file(schema, (), DEFAULT.call(0), format)
    return arrow_schema.all_refused(file, error, rows), dict(file.metadata)


def _file(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], limits: Budget, format: str
) -> IpcFile:
    pa = require("pyarrow", extra="arrow")
    sink, options = _Sink(), pa.ipc.IpcWriteOptions(allow_64bit=True)
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return IpcFile(sink.source(), limits, format)


def record_batch(
    table: Mapping[str, Any], present: Mapping[str, Array], plain: bool = True
) -> pa.RecordBatch:
    """Returns a pyarrow.RecordBatch of columns of one length. A row that is not present is null.

    `plain` writes rows of one dimension as fixed-size lists, which more readers support than
    fixed_shape_tensor.

    >>> import numpy as np
    >>> record_batch({"a": np.int8([1, 0])}, {"a": np.array([True, False])}).to_pylist()
    [{'a': 1}, {'a': None}]
    """
    pa = require("pyarrow", extra="arrow")
    for name, column in table.items():
        if isinstance(column, np.ndarray) and column.dtype == object:
            raise EncodeError(
                "tensors of different ranks cannot be an Arrow column",
                tensor=name,
                hint="leave the column out with columns=",
            )
    lowered = arrow_columns.columns(dict(table), None, FORMAT)
    if lowered.rows is None or KEY in lowered.texts:
        raise EncodeError(
            "table columns must be dense, ragged or of strings, and have one length",
            format=FORMAT,
        )
    converted = lowered.arrow(present, plain, empty_lists=True)
    message = kernels.ipc_schema(converted.fields, [])
    schema = pa.ipc.read_schema(pa.py_buffer(MARK + len(message).to_bytes(4, "little") + message))
    arrays = pyarrow_arrays(converted, [field.type for field in schema])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Sink(io.RawIOBase):
    """A file object that keeps pyarrow's buffers, so that large data is not copied."""

    def __init__(self) -> None:
        self._chunks: list[memoryview] = []
        self._size = 0

    def write(self, data: Any) -> int:
        view = memory.flat(data)
        self._chunks.append(view)
        self._size += len(view)
        return len(view)

    def source(self) -> ChunkSource:
        return ChunkSource(self._chunks)

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True


class ChunkSource:
    """A source of many chunks. A range within one chunk is read without a copy."""

    path: str | None = None

    def __init__(self, chunks: list[memoryview]) -> None:
        self._chunks = [chunk for chunk in chunks if len(chunk)]
        self._starts = [0, *itertools.accumulate(map(len, self._chunks))]
        self.size = self._starts[-1]

    def read_at(self, offset: int, count: int) -> memoryview:
        if not count:
            return memoryview(b"")
        if not 0 <= offset <= self.size - count:
            raise TruncatedError(
                f"{count} bytes are needed, but the source ends at {self.size}", offset=offset
            )
        i = bisect_right(self._starts, offset) - 1
        start = offset - self._starts[i]
        if start + count <= len(self._chunks[i]):
            return self._chunks[i][start : start + count]
        parts = [self._chunks[i][start:]]
        while (missing := count - sum(map(len, parts))) > 0:
            i += 1
            parts.append(self._chunks[i][:missing])
        return memoryview(b"".join(parts))

    def close(self) -> None:
        """Nothing is open."""
