"""Tables as rows of a dataset: what Arrow and Parquet files share, and batches as record batches.

A dataset yields the values that `tw.load` returns, because both use the same column mapping. A
feature that a record lacks is a null. Columns that no tensor can represent (dates, structs, nulls
inside lists) raise an error with their name.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ..._errors import DecodeError, EncodeError, SchemaError, TensorwireError
from ..._limits import DEFAULT
from ..._optional import require
from ...core.tensors import Ragged, Strings
from ...records.batch import DIFFER, Batch, BatchColumn
from ...records.schema import Feature, Schema
from ...wire import json as jsontext
from ...wire.arrow_columns import PRESENT
from .. import example_features
from ..column_rows import ColumnRows, empty, example_schema, looked_into, opened, some
from ..container import Container, UnsupportedTensor
from ..conversion_spec import ConversionSpec
from ..parquet import read_by_pyarrow
from ..rows import ByteOutput, Damage, Reading, SourcePart
from . import batches as arrow_batches
from . import schema as arrow_schema
from .parts import RefusedColumn
from .schema import SpecParts

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")
_WIDTHS = (("list", "large_list"), ("string", "large_string"), ("binary", "large_binary"))
_SOME = "some files have this column and others do not"
_LEAVE_OUT = "columns= leaves it out"
KEY = "tensorwire.schema"
"""The metadata key of the Example schema, with which rows are converted back to Examples."""

Piece = tuple[int, Callable[[int, int], Batch]]
"""A number of adjacent rows, and the function that reads a range of them."""


class TableRows(ColumnRows):
    """The base of table formats that pyarrow opens."""

    format: ClassVar[str]
    codecs: ClassVar[tuple[str, ...]]
    usual: ClassVar[str] = "none"
    """The default compression."""

    def arrow_schema(self, path: str) -> pa.Schema:
        """Returns the Arrow schema of a file."""
        raise NotImplementedError

    def schema_of(self, path: str, spec: ConversionSpec) -> Schema:
        return schema_of(self.arrow_schema(path), spec)

    def remembers(self, path: str) -> bool:
        return remembered(self.arrow_schema(path)) is not None

    def names(self, path: str, spec: ConversionSpec) -> list[str]:
        return list(self.arrow_schema(path).names)

    def blank(self, path: str, spec: ConversionSpec) -> Batch:
        return blank_of(self.arrow_schema(path), spec)

    def bare(self, names: list[str], paths: Sequence[str], spec: ConversionSpec) -> list[str]:
        """Returns the columns of bytes, or lists of bytes, that this run does not parse as tensors.

        Files are opened until the type of every column is known.
        """
        wanted = {name for name in names if name not in spec.tensors}
        kinds: dict[str, pa.DataType] = {}
        for schema in looked_into(some(paths), spec, self.arrow_schema) if wanted else ():
            missing = wanted - kinds.keys()
            kinds |= {name: schema.field(name).type for name in missing if name in schema.names}
            if wanted == kinds.keys():
                break
        return [name for name in names if name in kinds and _holds_bytes(kinds[name])]

    def check_target(self, spec: ConversionSpec) -> None:
        require("pyarrow", extra="arrow")
        name = self.format.capitalize()
        if spec.compression is not None and spec.compression not in self.codecs:
            raise EncodeError(
                f"{name} supports compression {', '.join(self.codecs)}, not"
                f" {spec.compression!r:.40}",
                format=self.format,
            )
        self._check_level(spec.compression or self.usual, spec.level)
        if spec.quantize:
            raise EncodeError(
                f"{name} datasets cannot store quantized columns",
                format=self.format,
                hint="quantize= is for tfrecord, npz and safetensors",
            )

    def _check_level(self, codec: str, level: int | None) -> None:
        """Checks that pyarrow supports this compression level."""
        pa = require("pyarrow", extra="arrow")
        if level is None or codec == "none":
            return
        if (codec, self.format) == ("lz4", "parquet"):
            codec = "lz4_raw"
        try:
            pa.Codec(codec, compression_level=level)
        except (pa.ArrowException, ValueError, OSError, TypeError) as error:
            codec = codec.removesuffix("_raw")
            raise EncodeError(
                f"invalid compression level {level} for {codec}: {error!s:.100}",
                format=self.format,
            ) from None

    @contextlib.contextmanager
    def guarded(self, path: str) -> Iterator[None]:
        """Turns pyarrow's exceptions about invalid bytes into a DecodeError with the path."""
        try:
            with read_by_pyarrow(self.format):
                yield
        except TensorwireError as error:
            raise error.add(path=path) from None

    def open(
        self, path: str, spec: ConversionSpec, reading: Reading, open: Callable[[], _T]
    ) -> _T | None:
        """Opens a file with pyarrow; None if it is damaged and to be skipped."""

        def guarded_open() -> _T:
            with self.guarded(path):
                return open()

        return opened(path, spec, reading, guarded_open)

    def rows(
        self,
        pieces: Iterator[Piece],
        part: SourcePart,
        row: int,
        total: int,
        spec: ConversionSpec,
        reading: Reading,
        lost: str = "",
    ) -> Iterator[Batch]:
        """Yields the rows of a part as batches.

        `row` is the number of the first row of `pieces`, of `total` rows in the file. `lost` is the
        beginning of the damage report.
        """
        stop = end(part)
        while row < stop:
            try:
                with self.guarded(part.path):
                    piece = next(pieces, None)
                    if piece is None:
                        return
                    count, read = piece
                    low, high = max(0, part.first - row), min(count, stop - row)
                    row += count
                    batch = read(low, high) if low < high else None
            except DecodeError as error:
                if not spec.skips:
                    raise error.add(record=row) from None
                reading.damage.append(Damage(part.path, f"{lost}from row {row} on: {error}"))
                return
            reading.reach(row / max(1, total))
            if batch is not None:
                yield batch

    def validated(
        self, record_batches: Iterable[pa.RecordBatch], spec: ConversionSpec
    ) -> Iterator[Piece]:
        """Validates pyarrow's record batches and yields them as pieces."""
        for batch in record_batches:
            batch.validate(full=True)
            yield batch.num_rows, functools.partial(self._sliced, batch, spec)

    def _sliced(self, batch: pa.RecordBatch, spec: ConversionSpec, low: int, high: int) -> Batch:
        return batch_of(batch.slice(low, high - low), spec, self.format)


class TableWriter:
    """Writes record batches with the schema of the first batch."""

    def __init__(self, file: ByteOutput, spec: ConversionSpec) -> None:
        self._pa = require("pyarrow", extra="arrow")
        self._file, self._spec = file, spec
        self._schema: pa.Schema | None = None

    def add(self, batch: Batch) -> None:
        if self._schema is None:
            self._schema = table_schema(self._spec, batch)
            self._open(self._schema)
        self._write(arrow_batch(self._pa, batch, self._schema), batch)

    def _open(self, schema: pa.Schema) -> None:
        """Starts the file."""

    def _write(self, record_batch: pa.RecordBatch, batch: Batch) -> None:
        """Writes or buffers a batch."""
        raise NotImplementedError

    def close(self) -> None:
        if self._schema is None:
            blank = empty(self._spec)
            if blank is None:
                name = {"arrow": "an Arrow", "parquet": "a Parquet"}[self._spec.target]
                why = f"there are no rows to infer columns from, but {name} file needs columns"
                raise EncodeError(why, format=self._spec.target)
            self._schema = table_schema(self._spec, blank)
            self._open(self._schema)
        self._finish()

    def _finish(self) -> None:
        """Finishes the file."""
        raise NotImplementedError


def end(part: SourcePart) -> int:
    """Returns the number after the last row of a part."""
    return part.stop if part.stop is not None else 1 << 62


def _holds_bytes(kind: pa.DataType) -> bool:
    types = require("pyarrow", extra="arrow").types
    # Quantized columns are lists of bytes.
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def batch_of(
    record_batch: pa.RecordBatch, spec: ConversionSpec | None = None, format: str = "arrow"
) -> Batch:
    """Returns a record batch as a Batch, in the shapes of the schema.

    With a spec, only its columns are read, without those that the record batch lacks and those of
    type null. Without one, all columns are read.
    """
    picked = record_batch.select(readable(record_batch.schema, spec))
    columns, _ = arrow_batches.columns(
        picked.schema, [picked], DEFAULT.call(picked.nbytes), None, format
    )
    return batch_from(columns, record_batch.num_rows, spec)


def readable(arrow: pa.Schema, spec: ConversionSpec | None) -> list[str]:
    """Returns the columns of a table to read. The others may be in other files."""
    _check_unique(arrow.names)
    if spec is None:
        return list(arrow.names)
    names = arrow.names if spec.names is None else spec.names
    existing = [name for name in names if name in arrow.names]
    return [name for name in existing if not _is_null(arrow.field(name).type)]


def batch_from(
    table_columns: Mapping[str, SpecParts],
    count: int,
    spec: ConversionSpec | None = None,
    rows: tuple[int, int] | None = None,
) -> Batch:
    """Returns columns of a table of `count` rows, or some of their rows, as a Batch."""
    schema = None if spec is None else spec.schema
    flags = arrow_schema.flags(dict(table_columns))
    size = count if rows is None else rows[1] - rows[0]
    columns, present = {}, {}
    for name, (node, parts) in table_columns.items():
        if name in flags:
            continue
        if "dict" in node:
            raise SchemaError(
                "a struct cannot be a dataset column",
                tensor=name,
                hint="call table.flatten() in pyarrow first",
            )
        try:
            budget = DEFAULT.call(sum(part.nbytes for part in parts))
            column = Container({"dict": {name: node}}, parts, {}, budget).read(name, rows)
            flag = flags.get(name + PRESENT)
            present[name] = np.ones(size, np.bool_) if flag is None else flag[1][0].read(rows)
        except UnsupportedTensor as error:
            refused = isinstance(parts[0], RefusedColumn)
            advice = parts[0].advice if refused else error.hint
            hint = _LEAVE_OUT if advice is None else f"{advice}; {_LEAVE_OUT}"
            raise SchemaError(error.message, tensor=name, hint=hint) from None
        if not isinstance(column, (np.ndarray, Strings, Ragged)) or column.shape[:1] != (size,):
            raise SchemaError(
                f"dataset columns must have {size} rows, but this one has shape {column.shape}",
                tensor=name,
            )
        columns[name] = _shaped(column, schema.get(name) if schema is not None else None)
    return Batch(columns, present, size)


def _is_null(kind: pa.DataType) -> bool:
    return bool(require("pyarrow", extra="arrow").types.is_null(kind))


def blank_of(arrow: pa.Schema, spec: ConversionSpec) -> Batch:
    """Returns a table's columns without rows. A column of type null has dtype object."""
    blank = batch_of(empty_rows(arrow), spec)
    untyped = [
        name
        for name in arrow.names
        if (spec.names is None or name in spec.names) and _is_null(arrow.field(name).type)
    ]
    return Batch({**blank, **{name: np.empty(0, object) for name in untyped}}, size=0)


def _check_unique(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        name = next(name for number, name in enumerate(names) if name in names[:number])
        raise SchemaError(
            f"two columns are named {name!r}",
            tensor=name,
            hint="rename one of them",
        )


def _shaped(column: BatchColumn, feature: Feature | None) -> Any:
    """Returns strings of a fixed shape, which are lists in Arrow, as a dense tensor."""
    if (
        feature is None
        or not feature.fixed
        or not isinstance(column, Ragged)
        or not isinstance(column.values, Strings)
    ):
        return column
    width = math.prod(dim or 0 for dim in feature.shape or ())
    if not width or len(column.row_splits) > 1 or (np.diff(column.row_splits[0]) != width).any():
        return column
    return column.values.reshape(-1, *(dim or 0 for dim in feature.shape or ()))


def table_schema(spec: ConversionSpec, batch: Batch) -> pa.Schema:
    """Returns the Arrow schema for writing: the columns of a batch, and the Example schema as
    metadata.
    """
    schema = arrow_batches.record_batch(batch.slice(0, 0), {}).schema
    if spec.schema is None:
        return schema
    return schema.with_metadata(
        {KEY: jsontext.write(example_features.remembered(spec).json()).decode()}
    )


def arrow_batch(pa: ModuleType, batch: Batch, schema: pa.Schema) -> Any:
    """Returns a batch as a record batch of the given schema."""
    record_batch = arrow_batches.record_batch(batch, batch.present)
    for name in dict.fromkeys([*schema.names, *record_batch.schema.names]):
        kinds = [
            side.field(name).type if name in side.names else None
            for side in (schema, record_batch.schema)
        ]
        if None in kinds:
            raise EncodeError(_SOME, tensor=name, hint="columns= selects the columns to keep")
        if not _are_alike(pa, *kinds):
            raise EncodeError(DIFFER.format(" and ".join(map(str, kinds))), tensor=name)
    return pa.RecordBatch.from_arrays(
        [_as_kind(pa, record_batch.column(field.name), field.type) for field in schema],
        schema=schema,
    )


def _are_alike(pa: ModuleType, a: pa.DataType, b: pa.DataType) -> bool:
    """Whether two types are equal except for the width of their offsets."""
    for kinds in _WIDTHS:
        if {
            kind for kind in (a, b) if any(getattr(pa.types, f"is_{name}")(kind) for name in kinds)
        } == {a, b}:
            return "list" not in kinds or _are_alike(pa, a.value_type, b.value_type)
    return bool(a == b)


def _as_kind(pa: ModuleType, column: pa.Array, kind: pa.DataType) -> Any:
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowInvalid as error:
        raise EncodeError(
            f"a batch is too large for the Arrow type {kind}: {error!s:.100}"
        ) from None


def empty_rows(arrow: pa.Schema) -> Any:
    """Returns a record batch without rows."""
    pa = require("pyarrow", extra="arrow")
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in arrow], schema=arrow)


def remembered(arrow: pa.Schema) -> Schema | None:
    """Returns the Example schema in a table's metadata; None if the columns have changed."""
    stored = (arrow.metadata or {}).get(KEY.encode())
    schema = Schema.from_json(stored) if stored is not None else None
    return schema if schema is not None and set(schema) == set(arrow.names) else None


def schema_of(arrow: pa.Schema, spec: ConversionSpec) -> Schema:
    """Returns the Example schema of a table, from its metadata or its types."""
    pa = require("pyarrow", extra="arrow")
    _check_unique(arrow.names)
    if (kept := remembered(arrow)) is not None:
        return kept
    fields = [
        field
        for field in arrow
        if (spec.reads is None or field.name in spec.reads) and not _is_null(field.type)
    ]
    return example_schema(batch_of(empty_rows(pa.schema(fields, arrow.metadata))), spec)
