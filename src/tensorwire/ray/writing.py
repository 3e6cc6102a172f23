"""Datasets as record files: each task writes one, and the driver puts the schema of all beside
them.
"""

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
from .._errors import EncodeError, TensorwireError
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
    """Writes a ray.data.Dataset as TFRecord files of tf.train.Example, by the workers; returns the
    number of records.

    With `shards=n` the rows are divided evenly into `NAME-00007-of-00064.SUFFIX`; without, each
    task writes `NAME-000007.SUFFIX`. A null is a feature that a record does not have. `schema`,
    `compression`, `level`, `tensors`, `base64` and `schema_file` are those of `tw.write_examples`;
    the schema beside the files says what all shards amount to, and is written last.
    """
    if shards is not None and shards < 1:
        raise EncodeError(f"at least one shard, not {shards}")
    wanted = None if schema is None else as_schema(schema)
    sink = ExampleTarget(
        path, pack.Options(tensors, base64, None, wanted), shards, compression, level, schema_file
    )
    said: dict[str, Any] = {"concurrency": concurrency, "ray_remote_args": ray_remote_args}
    rows = dataset if shards is None else dataset.repartition(shards)
    rows.write_datasink(sink, **{name: value for name, value in said.items() if value is not None})
    return sink.finish()


class _Shard(NamedTuple):
    """What a task has written."""

    path: str
    records: int
    mark: FileMark
    features: dict[str, Any]


class ExampleTarget(_data.Datasink):  # type: ignore[misc]
    """What `write_examples` gives to Ray."""

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
        # workers are in another folder
        self._path, self._options, self._count = storage.absolute(os.fspath(path)), options, shards
        self._how: dict[str, Any] = {"compression": compression, "level": level}
        self._schema_file = schema_file
        self._settings = remote.settings()
        self._done: list[_Shard] = []

    def get_name(self) -> str:
        """How Ray shows it."""
        return "Examples"

    def on_write_start(self, *schema: Any) -> None:
        """Nothing: files appear when they are whole."""

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Shard:
        """One shard. Runs in a worker; if that dies, another one writes the same file."""
        remote.take_over(self._settings)
        return self._write(ctx.task_idx, (table for block in blocks for table in _batches(block)))

    def _write(self, number: int, batches: Iterable[Batch]) -> _Shard:
        if self._count is not None and number >= self._count:
            raise EncodeError(
                f"Ray made more than {self._count} tasks; leave shards= out", path=self._path
            )
        place = self._place(number)
        if not storage.is_url(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
        with RecordWriter(place, **self._how) as writer:
            sink = ExampleSink(writer, self._options, None)
            for batch in batches:
                sink.add(batch)
        features = {name: feature.json() for name, feature in sink.features.items()}
        return _Shard(place, writer.records, paths.mark(place), features)

    def _place(self, number: int) -> str:
        if self._count is not None:
            return paths.shard(self._path, number, self._count)
        return paths.shard(self._path, number, 1).replace(
            f"-{number:05d}-of-00001", f"-{number:06d}"
        )

    def on_write_complete(self, results: Any) -> None:
        """Keeps what the tasks have said; Ray calls it once, in the driver."""
        self._done = [_Shard(*shard) for shard in getattr(results, "write_returns", results)]

    def finish(self) -> int:
        """Shards that nobody had rows for, and the schema. -> the number of records"""
        done = {shard.path: shard for shard in self._done}
        for number in range(self._count or 0):
            if self._place(number) not in done:
                done[self._place(number)] = self._write(number, ())
        self._remove_others(done)
        records = sum(shard.records for shard in done.values())
        if self._schema_file and done:
            schema = self._schema(list(done.values()), records)
            for place in [self._path] if self._count is not None else done:
                schema.save(place + paths.SCHEMA)
        return records

    def _remove_others(self, done: Container[str]) -> None:
        """Files of an earlier writing to the same path, which had more tasks: their names do not
        say how many there are.
        """
        if self._count is not None:
            return
        before, _, after = self._place(0).rpartition("-000000")
        with contextlib.suppress(FileNotFoundError):  # there is none
            for entry in storage.find(
                f"{glob.escape(before)}-[0-9][0-9][0-9][0-9][0-9][0-9]{glob.escape(after)}"
            ):
                if entry.path not in done:
                    storage.delete(entry.path)
                    storage.delete(entry.path + paths.SCHEMA)

    def _schema(self, shards: list[_Shard], records: int) -> Schema:
        features: dict[str, Feature] = dict(self._options.schema or {})
        for shard in shards:
            for name, about in shard.features.items():
                feature = Feature.from_json(about)
                try:
                    features[name] = (
                        feature if name not in features else pack.merge(features[name], feature)
                    )
                except TensorwireError as error:
                    raise error.add(tensor=name, path=shard.path) from None
        files = {shard.path.rpartition("/")[2]: shard.mark for shard in shards}
        return Schema(features, records=records, complete=True, files=files)


def _batches(block: Any) -> Iterator[Batch]:
    """A block of Ray as batches of columns."""
    pa = require("pyarrow", extra="arrow")
    table = _block.BlockAccessor.for_block(block).to_arrow()
    if not table.num_rows:
        return
    rows = max(1, math.ceil(table.num_rows * BLOCK / max(table.nbytes, 1)))
    for batch in table.combine_chunks().to_batches(max_chunksize=rows):
        # a null is a feature that nobody has here
        named = [field.name for field in batch.schema if not pa.types.is_null(field.type)]
        own = {name: _own(pa, batch.column(name)) for name in named}
        found = batch_of(batch.select([name for name, tensors in own.items() if tensors is None]))
        columns: dict[str, Any] = {}
        present = dict(found.present)
        for name, tensors in own.items():
            if tensors is None:
                columns[name] = found[name]
            else:
                columns[name], present[name] = tensors
        yield Batch(columns, present, batch.num_rows)


def _own(pa: ModuleType, column: pa.Array) -> tuple[Any, Array] | None:
    """Ray's own tensors, which it makes of what a function for map_batches returns, and where there
    are some; None for other columns.

    Numbers are an array, vectors a ragged one. Of what has more dimensions the next block may have
    another shape, so each is a tensor.
    """
    if not isinstance(column, pa.ExtensionArray) or isinstance(
        column.type, pa.FixedShapeTensorType
    ):
        return None
    rows = column.to_numpy(zero_copy_only=False)
    if rows.dtype != object and rows.ndim < 3:
        return np.ascontiguousarray(rows), np.ones(len(rows), np.bool_)
    alone: Array = np.empty(len(rows), object)
    alone[:] = list(rows) if rows.dtype != object else rows
    there = np.array([row is not None for row in alone], np.bool_)
    kinds = {(np.ndim(row), np.asarray(row).dtype.kind in "OSU") for row in alone[there]}
    if len(kinds) != 1 or (kind := kinds.pop())[0] != 1:
        return alone, there
    parts = [[] if row is None else row for row in alone]
    splits = np.cumsum([0, *map(len, parts)])
    if kind[1]:
        return Ragged(Strings.of([item for part in parts for item in part]), splits), there
    return (
        Ragged(np.concatenate([part for part in parts if len(part)] or [alone[there][0]]), splits),
        there,
    )
