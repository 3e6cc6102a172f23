"""Datasets in npz and safetensors: a shard is a file of columns with a common first dimension.

A shard is held in memory while it is read or written. A column that some records lack has a second
column of bools, "NAME/present", that is true for the records that have it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import storage
from .._errors import EncodeError, LimitError, SchemaError, TensorwireError
from ..core import memory
from ..core.quantized import has_codes
from ..core.tensors import Sparse
from ..records.batch import Batch
from ..records.schema import Schema
from ..transforms.compression import oneshot
from ..transforms.quantization import tree
from ..wire.arrow_columns import PRESENT
from . import FORMATS
from .column_rows import ColumnRows, check_columns, empty, example_schema, opened
from .container import Container
from .conversion_spec import ConversionSpec
from .identify import by_name
from .opening import codec, open_container
from .rows import ROWS, ByteOutput, Counted, Reading, SourcePart, local


def _rows(shapes: dict[str, Any], path: str) -> int:
    counts = {shape[0] if shape else -1 for shape in shapes.values()}
    if len(counts) != 1 or -1 in counts:
        raise SchemaError(
            "the columns of a shard must have one length, found the shapes"
            f" {dict(list(shapes.items())[:6])}",
            path=path,
        )
    return int(counts.pop())


def _load(path: str, spec: ConversionSpec) -> Batch:
    with local(path) as place, _opened(place, spec) as container:
        value = _floats(container.value(), container)
        memory.make_writable(value)
        return _batch(value, path)


def _floats(value: Any, container: Container) -> Any:
    return tree.dequantized(value, True, container.budget) if has_codes(value) else value


@contextlib.contextmanager
def _opened(path: str, spec: ConversionSpec) -> Iterator[Container]:
    """Opens the tensors of a shard."""
    source = storage.source_of(path)
    try:
        yield open_container(source, spec.source, by_name(path)[1], None, {}).container
    except TensorwireError as error:
        raise error.add(path=path) from None
    finally:
        source.close()


def _batch(value: Any, path: str) -> Batch:
    if not hasattr(value, "items"):
        raise SchemaError("expected named columns, found a single tensor", path=path)
    columns = {name: column for name, column in value.items() if not _is_flag(name, value)}
    if any(
        isinstance(column, Sparse) or not hasattr(column, "shape") for column in columns.values()
    ):
        raise SchemaError("columns must be dense, ragged or strings", path=path)
    rows = _rows({name: column.shape for name, column in columns.items()}, path)
    flags = {name: name + PRESENT for name in columns if _is_flag(name + PRESENT, value)}
    present = {
        name: np.asarray(value[flags[name]]) if name in flags else np.ones(rows, np.bool_)
        for name in columns
    }
    if any(mask.shape != (rows,) for mask in present.values()):
        raise SchemaError(f"a column {PRESENT!r} must have one flag per row", path=path)
    return Batch(columns, present, rows)


def _is_flag(name: str, columns: Mapping[str, Any]) -> bool:
    """Whether a column holds the flags of another column."""
    return (
        name in columns
        and name.endswith(PRESENT)
        and name.removesuffix(PRESENT) in columns
        and getattr(columns[name], "dtype", None) == np.bool_
    )


def _blank(path: str, spec: ConversionSpec) -> Batch:
    """Returns the columns of a file as a batch without rows."""
    with _opened(path, spec) as container:
        _rows(container.shapes(), path)
        return _batch(
            {name: _floats(container.read(name, (0, 0)), container) for name in container}, path
        )


def _chosen(batch: Batch, names: Sequence[str] | None) -> Batch:
    """Selects the columns to read that the file has. `datasets.task` adds those that it lacks."""
    return batch if names is None else batch.select([name for name in names if name in batch])


class TensorRowsWriter:
    """Collects the batches of a shard, and writes them as one value when it is closed."""

    def __init__(self, file: ByteOutput, spec: ConversionSpec) -> None:
        self._file, self._spec = file, spec
        self._batches: list[Batch] = []
        self._size = 0

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size > self._spec.memory:
            raise EncodeError(
                f"the shard has more than {self._spec.memory:,} bytes, which must fit in memory",
                hint="use more shards=, or a larger memory=",
            )

    def close(self) -> None:
        blank = empty(self._spec)
        if not self._batches and blank is None:
            raise EncodeError(
                "an empty dataset without a schema has no columns to write",
                format=self._spec.target,
            )
        whole = Batch.concatenate(self._batches or [blank])  # type: ignore[list-item]
        columns: dict[str, Any] = {}
        for name, column in whole.items():
            if name.endswith(PRESENT):
                raise EncodeError(f"column names that end in {PRESENT!r} are reserved", tensor=name)
            columns[name] = column
            if not whole.present[name].all():
                columns[name + PRESENT] = whole.present[name]
        value, expanded = columns, 0
        if self._spec.quantize:
            value = tree.quantized(columns, self._spec.quantize)
            expanded = tree.expanded(value)
        compresses = bool(FORMATS[self._spec.target].compressions)
        own = (
            {"compression": self._spec.compression} if compresses and self._spec.compression else {}
        )
        chunks: Iterable[Any] = codec(self._spec.target, own).encode(value)
        if self._spec.compression and not compresses:
            chunks = oneshot.compress(chunks, self._spec.compression, None, None, expanded)
        for chunk in chunks:
            self._file.write(chunk)


class TensorRows(ColumnRows):
    """The dataset format of npz and safetensors files."""

    def count(self, path: str, marks: int, spec: ConversionSpec, reading: Reading) -> Counted:
        """Counts the rows from the header."""

        def rows() -> int:
            with local(path) as place, _opened(place, spec) as container:
                return _rows(container.shapes(), path)

        return Counted(opened(path, spec, reading, rows) or 0, [])

    def schema_of(self, path: str, spec: ConversionSpec) -> Schema:
        try:
            return example_schema(_chosen(_blank(path, spec), spec.reads), spec)
        except TensorwireError as error:
            raise error.add(path=path) from None

    def names(self, path: str, spec: ConversionSpec) -> list[str]:
        return list(_blank(path, spec))

    def blank(self, path: str, spec: ConversionSpec) -> Batch:
        return _chosen(_blank(path, spec), spec.names)

    def bare(self, names: list[str], paths: Sequence[str], spec: ConversionSpec) -> list[str]:
        # These formats store features as columns, never as the bytes of an Example.
        return []

    def read(self, part: SourcePart, spec: ConversionSpec, reading: Reading) -> Iterator[Batch]:
        if part.size > spec.memory:
            raise LimitError(
                f"the shard has {part.size:,} bytes, which must fit in memory; memory= allows"
                f" {spec.memory:,}",
                path=part.path,
            )
        batch = opened(part.path, spec, reading, lambda: _load(part.path, spec))
        if batch is None:
            return
        check_columns(batch, spec, part.path)
        batch = _chosen(batch, spec.names)
        stop = batch.size if part.stop is None else min(part.stop, batch.size)
        for start in range(part.first, stop, ROWS):
            reading.reach(min(stop, start + ROWS) / batch.size)
            yield batch.slice(start, min(stop, start + ROWS))

    def writer(self, file: ByteOutput, spec: ConversionSpec) -> TensorRowsWriter:
        return TensorRowsWriter(file, spec)

    def check_target(self, spec: ConversionSpec) -> None:
        """Checks the compression. The codec checks the other options for the first shard."""
        if spec.target == "safetensors" and spec.compression in ("zlib", "snappy"):
            raise EncodeError(
                f"compression={spec.compression!r} cannot be recognised when the file is read",
                format=spec.target,
                hint="use gzip, zstd or lz4",
            )
