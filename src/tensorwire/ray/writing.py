"""`write_examples`: each task writes one record file, and the driver writes the schema of all."""

from __future__ import annotations

import contextlib
import glob
import math
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import storage
from .._errors import EncodeError, TensorwireError, UsageError
from .._optional import require
from ..codecs.arrow.table_rows import batch_of
from ..core.tensors import Array, Ragged, Strings
from ..records import pack, paths
from ..records.batch import Batch
from ..records.example_writer import ExampleSink
from ..records.record_writer import RecordWriter
from ..records.schema import Feature, FileMark, Schema, SchemaLike, as_schema
from ..storage import remote
from .reading import BLOCK

if TYPE_CHECKING:
    import pyarrow as pa

_data: Any = require("ray.data", extra="ray")
_block: Any = require("ray.data.block", extra="ray")


def write_examples(
    dataset: Any,
    path: str,
    *,
    schema: SchemaLike | None = None,
    shards: int | None = None,
    compression: str | None = None,
    level: int | None = None,
    tensors: Sequence[str] = (),
    base64: Sequence[str] = (),
    schema_file: bool = True,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> int:
    """Write a ray.data.Dataset as TFRecord files of Examples and return the number of records.

    The workers write the files. A null is a feature that a record lacks.

    shards       write n files `NAME-00007-of-00064.SUFFIX` with equal numbers of rows; by default
    each
                 task writes `NAME-000007.SUFFIX`
    schema, compression, level, tensors, base64, schema_file  as for `tw.write_examples`; the schema
                 covers all shards and is written last
    concurrency, ray_remote_args  as for `ray.data.Dataset.write_datasink`

    Raises EncodeError for values that cannot be written and SchemaError for values that do not fit
    `schema`.

    >>> import tensorwire as tw  # doctest: +SKIP
    >>> import tensorwire.ray  # doctest: +SKIP
    >>> tw.ray.write_examples(dataset, "kept.tfrecord", shards=64)  # doctest: +SKIP
    """
    if shards is not None and shards < 1:
        raise UsageError(f"shards must be at least 1, not {shards}")
    wanted = None if schema is None else as_schema(schema)
    sink = ExampleTarget(
        path, pack.Options(tensors, base64, None, wanted), shards, compression, level, schema_file
    )
    options: dict[str, Any] = {"concurrency": concurrency, "ray_remote_args": ray_remote_args}
    rows = dataset if shards is None else dataset.repartition(shards)
    rows.write_datasink(
        sink, **{name: value for name, value in options.items() if value is not None}
    )
    return sink.finish()


class _Shard(NamedTuple):
    """The file that a task has written."""

    path: str
    records: int
    mark: FileMark
    features: dict[str, Any]


class ExampleTarget(_data.Datasink):  # type: ignore[misc]
    """The Ray data sink behind `write_examples`."""

    def __init__(
        self,
        path: str,
        options: pack.Options,
        shards: int | None,
        compression: str | None,
        level: int | None,
        schema_file: bool,
    ) -> None:
        super().__init__()
        # The workers run in another folder, so the path must be absolute.
        self._path, self._options, self._count = storage.absolute(os.fspath(path)), options, shards
        self._how: dict[str, Any] = {"compression": compression, "level": level}
        self._schema_file = schema_file
        self._settings = remote.settings()
        self._done: list[_Shard] = []

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "Examples"

    def on_write_start(self, *schema: Any) -> None:
        """Do nothing: files appear when they are complete."""

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Shard:
        """Write one shard. Runs in a worker; if that dies, another writes the same file."""
        remote.take_over(self._settings)
        return self._write(ctx.task_idx, (table for block in blocks for table in _batches(block)))

    def _write(self, number: int, batches: Iterable[Batch]) -> _Shard:
        if self._count is not None and number >= self._count:
            raise EncodeError(
                f"Ray created more than {self._count} tasks",
                path=self._path,
                hint="leave out shards=",
            )
        shard_path = self._place(number)
        if not storage.is_url(shard_path):
            os.makedirs(os.path.dirname(shard_path), exist_ok=True)
        with RecordWriter(shard_path, **self._how) as writer:
            sink = ExampleSink(writer, self._options, None)
            for batch in batches:
                sink.add(batch)
        features = {name: feature.json() for name, feature in sink.features.items()}
        return _Shard(shard_path, writer.records, paths.mark(shard_path), features)

    def _place(self, number: int) -> str:
        if self._count is not None:
            return paths.shard(self._path, number, self._count)
        return paths.shard(self._path, number, 1).replace(
            f"-{number:05d}-of-00001", f"-{number:06d}"
        )

    def on_write_complete(self, results: Any) -> None:
        """Keep the results of the tasks. Ray calls this once, in the driver."""
        self._done = [_Shard(*shard) for shard in getattr(results, "write_returns", results)]

    def finish(self) -> int:
        """Write empty shards and the schema, and return the number of records."""
        done = {shard.path: shard for shard in self._done}
        for number in range(self._count or 0):
            if self._place(number) not in done:
                done[self._place(number)] = self._write(number, ())
        self._remove_others(done)
        records = sum(shard.records for shard in done.values())
        if self._schema_file and done:
            schema = self._schema(list(done.values()), records)
            for shard_path in [self._path] if self._count is not None else done:
                schema.save(shard_path + paths.SCHEMA)
        return records

    def _remove_others(self, done: Container[str]) -> None:
        """Delete files of an earlier write to the same path that had more tasks.

        Without shards=, the names do not contain the number of files, so a reader would mix both
        writes.
        """
        if self._count is not None:
            return
        before, _, after = self._place(0).rpartition("-000000")
        # FileNotFoundError: no file matches.
        with contextlib.suppress(FileNotFoundError):
            for entry in storage.find(
                f"{glob.escape(before)}-[0-9][0-9][0-9][0-9][0-9][0-9]{glob.escape(after)}"
            ):
                if entry.path not in done:
                    storage.delete(entry.path)
                    storage.delete(entry.path + paths.SCHEMA)

    def _schema(self, shards: list[_Shard], records: int) -> Schema:
        features: dict[str, Feature] = dict(self._options.schema or {})
        for shard in shards:
            for name, content in shard.features.items():
                feature = Feature.from_json(content)
                try:
                    features[name] = (
                        feature if name not in features else pack.merge(features[name], feature)
                    )
                except TensorwireError as error:
                    raise error.add(tensor=name, path=shard.path) from None
        files = {shard.path.rpartition("/")[2]: shard.mark for shard in shards}
        return Schema(features, records=records, complete=True, files=files)


def _batches(block: Any) -> Iterator[Batch]:
    """Yield the batches of columns of a Ray block."""
    pa = require("pyarrow", extra="arrow")
    table = _block.BlockAccessor.for_block(block).to_arrow()
    if not table.num_rows:
        return
    rows = max(1, math.ceil(table.num_rows * BLOCK / max(table.nbytes, 1)))
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        # A column of type null is a feature that no record in this block has.
        named = [field.name for field in batch.schema if not pa.types.is_null(field.type)]
        ray_tensors = {name: _own(pa, batch.column(name)) for name in named}
        converted = batch_of(
            batch.select([name for name, tensors in ray_tensors.items() if tensors is None])
        )
        columns: dict[str, Any] = {}
        present = dict(converted.present)
        for name, tensors in ray_tensors.items():
            if tensors is None:
                columns[name] = converted[name]
            else:
                columns[name], present[name] = tensors
        yield Batch(columns, present, batch.num_rows)


def _own(pa: ModuleType, column: pa.Array) -> tuple[Any, Array] | None:
    """Return Ray's own tensors and which rows have one; None for other columns.

    Ray makes them from the results of functions for map_batches. Numbers become an array, vectors a
    Ragged. Of tensors with more dimensions, the next block may have another shape, so each row is a
    tensor.
    """
    if not isinstance(column, pa.ExtensionArray) or isinstance(
        column.type, pa.FixedShapeTensorType
    ):
        return None
    rows = column.to_numpy(zero_copy_only=False)
    if rows.dtype != object and rows.ndim < 3:
        return np.ascontiguousarray(rows), np.ones(len(rows), np.bool_)
    row_tensors: Array = np.empty(len(rows), object)
    row_tensors[:] = list(rows) if rows.dtype != object else rows
    there = np.array([row is not None for row in row_tensors], np.bool_)
    kinds = {(np.ndim(row), np.asarray(row).dtype.kind in "OSU") for row in row_tensors[there]}
    if len(kinds) != 1 or (kind := kinds.pop())[0] != 1:
        return row_tensors, there
    parts = [[] if row is None else row for row in row_tensors]
    splits = np.cumsum([0, *map(len, parts)])
    if kind[1]:
        return Ragged(Strings.of([item for part in parts for item in part]), splits), there
    return (
        Ragged(
            np.concatenate([part for part in parts if len(part)] or [row_tensors[there][0]]), splits
        ),
        there,
    )
