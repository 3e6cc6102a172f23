"""`read_examples`: TFRecord files of Examples as batches of columns."""

from __future__ import annotations

import contextlib
import copy
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from .._errors import DecodeError, SchemaError, TensorwireError, UsageError
from .._limits import Limits
from ..core import memory
from ..transforms.compression.streams import available_cores
from ..wire import example
from . import adapters, coverage, infer, sidecar
from . import columns as _columns
from . import index as _index
from .batch import Batch, ForeignBatch
from .blocks import Block
from .pipeline import Pipeline
from .record_reader import Paths, RecordReader
from .schema import BYTES, Feature, Schema, SchemaLike, as_schema

Array = np.ndarray[Any, Any]


_LAZY = 64 << 20
"""Bytes of columns above which a batch is allocated only when its number of rows is known."""


class Piece(NamedTuple):
    """Consecutive records of a block."""

    block: Block
    first: int
    rows: int


def read_examples(
    path: Paths,
    schema: SchemaLike | None = None,
    columns: Sequence[str] | None = None,
    *,
    batch_size: int = 1024,
    to: str = "numpy",
    device: object = None,
    cast: bool = False,
    workers: int | None = None,
    prefetch: int | None = None,
    shuffle: int | bool | None = None,
    shard: tuple[int, int] | None = None,
    on_corrupt: Literal["raise", "skip"] = "raise",
    drop_last: bool = False,
    reuse: bool = False,
    views: Sequence[str] = (),
    mmap: bool = False,
    compression: str | None = None,
    limits: Limits | None = None,
) -> Examples:
    """Read TFRecord files of tf.train.Example as batches of columns.

    `path` is a path, a glob pattern or a list of them. Features of a fixed length become dense
    arrays [batch, ...], features of varying length Ragged, and bytes Strings. `batch.present[name]`
    says which records have a feature.

    The schema is the given one (a tw.Schema, a dict of features or of tf.io's feature specs, or a
    path), else the sidecar file of the data, else it is inferred once from a sample. A column has
    the same type in every batch. A feature or feature list that the schema lacks is an error,
    unless `schema` or `columns` was given.

    columns    the names of the features to read (default: all) batch_size records per batch to
    the framework of the columns, with `device` and `cast` as for tw.to workers    threads that read
    and decode ahead (default: one per core, at most four; 0: decode in
               the calling thread)
    prefetch   the maximum number of batches that are ready ahead of time shuffle    a seed for the
    order of the records (True: a different order in every pass) shard      (i, n): read only share
    i of n; every record is in exactly one share on_corrupt "skip" skips damaged records and lists
    them in `Examples.skipped` drop_last  leave out a last batch with fewer records reuse      reuse
    the memory of a batch for the next one: faster, but a batch is only valid until
               the next, so list(...) does not work
    views      bytes columns to return without a copy, as arrays of memoryviews into the blocks that
               were read (for large images; NumPy only)
    mmap       map uncompressed files instead of reading them; they must not be truncated meanwhile
    compression  the compression of the files, "" for none (default: detect it) limits     the
    tw.Limits for untrusted files

    Returns `Examples`, which can be iterated over repeatedly. Raises SchemaError if the records do
    not fit the schema, DecodeError for damaged files and EncodeError for invalid arguments.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> tw.write_examples(path, {"label": np.array([1, 0, 1]), "x": np.ones((3, 2), np.float32)})
    3
    >>> for batch in tw.read_examples(path, batch_size=2):
    ...     print(batch["label"], batch["x"].shape)
    [1 0] (2, 2)
    [1] (1, 2)
    """
    return Examples(
        path,
        schema,
        columns,
        batch_size,
        to,
        device,
        cast,
        workers,
        prefetch,
        shuffle,
        shard,
        on_corrupt,
        drop_last,
        reuse,
        views,
        mmap,
        compression,
        limits,
    )


class Examples:
    """An iterable of batches, as returned by `read_examples`. `schema` describes the columns.

    It can be iterated over repeatedly; each pass reads the files again.
    """

    def __init__(
        self,
        path: Paths,
        schema: SchemaLike | None,
        columns: Sequence[str] | None,
        batch_size: int,
        to: str,
        device: object,
        cast: bool,
        workers: int | None,
        prefetch: int | None,
        shuffle: int | bool | None,
        shard: tuple[int, int] | None,
        on_corrupt: Literal["raise", "skip"],
        drop_last: bool,
        reuse: bool,
        views: Sequence[str],
        mmap: bool,
        compression: str | None,
        limits: Limits | None,
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        if views and to != "numpy":
            raise UsageError(f"views= returns memoryviews, which need to='numpy', not to={to!r}")
        if reuse and to != "numpy":
            raise UsageError(
                f"reuse=True needs to='numpy': tensors of to={to!r} may outlive the batch"
            )
        if shuffle is True and shard is not None:
            raise UsageError(
                "shuffle=True gives every shard its own order, so records would be lost and"
                " repeated",
                hint="pass a seed: shuffle=1",
            )
        if workers is not None and workers < 0:
            raise UsageError(f"workers must be a number of threads or 0 for none, not {workers}")
        self.batch_size, self.limits = batch_size, limits
        self._to, self._reuse, self._drop = (to, device, cast), reuse, drop_last
        self._workers = min(4, available_cores()) if workers is None else workers
        self._depth = max(1, prefetch) if prefetch is not None else self._workers + 2
        self._shuffle = shuffle if shuffle is not None and shuffle is not False else None
        self._reader = RecordReader(
            path, compression=compression, on_corrupt=on_corrupt, mmap=mmap, limits=limits
        )
        self._shard = shard
        self._skips = on_corrupt == "skip"
        self.schema, self._origin = self._find_schema(schema, columns, compression)
        """The features that are read."""
        self.strict = schema is None and columns is None
        """Whether a feature that the schema lacks is an error: the caller did not choose any."""
        self._views = self._check_views(views)

    def _find_schema(
        self, schema: SchemaLike | None, columns: Sequence[str] | None, compression: str | None
    ) -> tuple[Schema, str]:
        """Return the schema, and a hint for schema errors if it was inferred from a sample."""
        origin = ""
        if schema is not None:
            schema = as_schema(schema)
        else:
            sampled: list[Schema] = []

            def sample(names: list[str]) -> Schema:
                schema = _from_indexes(names)
                if schema is None:
                    schema = infer.of_files(
                        names,
                        compression=compression,
                        limits=self.limits,
                        skip=self._skips,
                    )
                sampled.append(schema)
                return schema

            schema = sidecar.known(self._reader.paths, sample)
            if sampled and not sampled[0].complete:
                origin = (
                    f"the schema was inferred from a sample of {sampled[0].records} records: pass"
                    " schema=tw.infer_schema(path, full=True) to examine all of them, or a schema"
                    " of your own"
                )
        if self._sequences() is None:
            schema = _without_lists(schema, columns, self._reader.paths[0])
        return (schema if columns is None else schema.select(columns)), origin

    def _check_views(self, views: Sequence[str]) -> frozenset[str]:
        for name in views:
            feature = self.schema.get(name)
            if (
                feature is None
                or feature.kind != BYTES
                or feature.encoding
                or not feature.fixed
                or isinstance(views, str)
            ):
                raise UsageError(
                    f"invalid views=[{name!r}]: expected a bytes feature of fixed length without"
                    " an encoding"
                )
        return frozenset(views)

    def _sequences(self) -> dict[str, Feature] | None:
        """Return the features of feature lists; None if only Examples are read."""
        return None

    @property
    def skipped(self) -> list[Any]:
        """The damaged parts of the files that `on_corrupt="skip"` skipped in the last pass."""
        return self._reader.skipped

    def __iter__(self) -> Iterator[Any]:
        reader = self._reader
        # Shuffling comes before sharding: the seed gives one order of all records, and each shard
        # takes its share of that order.
        if self._shuffle is not None:
            reader = reader.shuffle(
                secrets.randbits(64) if self._shuffle is True else self._shuffle
            )
        if self._shard is not None:
            reader = reader.shard(*self._shard)
        jobs = _lots(reader, self.batch_size, check=self._skips)
        # Without threads, a block is decoded as soon as it is read, while it is in the cache. A
        # thread takes all blocks of a batch at once, because reading happens under a lock.
        eager = self._workers > 0 or self._room() > _LAZY
        return _Decoding(self).run(map(list, jobs) if eager else jobs, self._workers, self._depth)

    def _room(self) -> int:
        """Return the least number of bytes that the columns of a batch take."""
        return self.batch_size * sum(8 * max(1, feature.length) for feature in self.schema.values())

    def tf_dataset(self) -> Any:
        """Return a tf.data.Dataset of the batches: dicts of tensors (needs TensorFlow).

        It runs this reader in `tf.data.Dataset.from_generator`, so it does not use TensorFlow's
        parser.
        """
        return adapters.tf_dataset(self._numpy, self.schema)

    def arrow(self) -> Any:
        """Return a pyarrow.RecordBatchReader of the batches (needs pyarrow).

        Features of fixed and of varying length are lists; missing features are null.
        """
        empty = example.ColumnBuffers(self._decoder(), 0).take()
        return adapters.arrow_reader(
            self._numpy, _columns.batch(dict(self.schema), empty, 0, self.limits)
        )

    def _numpy(self) -> Iterator[Batch]:
        """Iterate over batches of NumPy columns that each own their memory."""
        plain = copy.copy(self)
        plain._to, plain._reuse = ("numpy", None, False), False
        return iter(plain)

    def _decoder(self) -> example.Decoder:
        columns = [feature.column(name) for name, feature in self.schema.items()]
        kinds = [
            example.PLACES if name in self._views else column.kind
            for name, column in zip(self.schema, columns, strict=True)
        ]
        return example.Decoder(
            [column._replace(kind=kind) for column, kind in zip(columns, kinds, strict=True)]
        )

    def _batch(self, filled: list[example.Filled], job: list[Piece], rows: int) -> Any:
        """Build a batch from the decoded buffers of a job."""
        if not self._views:
            return self._given(_columns.batch(dict(self.schema), filled, rows, self.limits))
        # The decoder only located the columns of `views`, so they are built from the blocks of the
        # job.
        parts = dict(zip(self.schema, filled, strict=True))
        plain = {name: feature for name, feature in self.schema.items() if name not in self._views}
        batch = _columns.batch(plain, [parts[name] for name in plain], rows, self.limits)
        columns = {
            name: (
                _seen(parts[name].values, self.schema[name], job)
                if name in self._views
                else batch[name]
            )
            for name in self.schema
        }
        return Batch(columns, {name: parts[name].present for name in parts}, rows)

    def _given(self, batch: Batch) -> Batch | ForeignBatch:
        framework, device, cast = self._to
        return batch.to(framework, device, cast)

    def __repr__(self) -> str:
        return f"Examples of {self._reader!r}, {self.batch_size} a batch\n{self.schema!r}"


class _Decoding:
    """One pass over the files: decodes jobs and manages the memory of their columns."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self._decoder = examples._decoder()
        self._pool = memory.MemoryPool()
        self._last: example.ColumnBuffers | None = None
        self._free: list[example.ColumnBuffers] = []

    def run(self, jobs: Iterator[Iterable[Piece]], workers: int, depth: int) -> Iterator[Any]:
        """Yield batches in order. Closing the generator ends all threads."""
        if workers == 0:
            source: Any = map(self._work, jobs)
        else:
            source = Pipeline(jobs, self._work, workers, depth)
        lent: example.ColumnBuffers | None = None
        try:
            for columns, batch in source:
                if batch is not None:
                    yield batch
                del batch
                # With `reuse`, a batch owns its memory until the caller asks for the next batch.
                # With threads, the caller may still hold the last batch while the next one is
                # decoded, so memory is freed one batch later.
                if lent is not None:
                    self._free.append(lent)
                lent = columns
                if workers == 0 and lent is not None:
                    self._free.append(lent)
                    lent = None
        finally:
            if workers:
                source.close()
            getattr(jobs, "close", lambda: None)()

    def _work(self, job: Iterable[Piece]) -> tuple[example.ColumnBuffers | None, Any]:
        examples = self._examples
        rows = sum(piece.rows for piece in job) if isinstance(job, list) else examples.batch_size
        if examples._reuse:
            columns = self._take(rows)
        else:
            columns = self._columns(rows, self._last, self._pool)
        done: list[Piece] = []
        for piece in job:
            block, first, count = piece
            starts, sizes = block.starts[: first + count], block.sizes[: first + count]
            try:
                columns.fill(block.data, starts, sizes, first, examples._skips)
                if columns.strange and examples.strict:
                    coverage.check(examples.schema, block.data, starts, sizes, first)
                    columns.strange = False
            except TensorwireError as error:
                self._located(error, block, error.record or 0)
                raise
            # The loop must not keep a reference to the block: the reader reuses its buffer only if
            # no one holds it.
            # Only views still need the bytes after decoding.
            done.append(piece if examples._views else Piece(block.bare(), first, count))
            del piece, block
        if not examples._reuse:
            self._last = columns
        lent = columns if examples._reuse else None
        if columns.row < examples.batch_size and examples._drop:
            return lent, None
        try:
            return lent, examples._batch(columns.take(), done, columns.row)
        except TensorwireError as error:
            self._in_job(error, done)
            raise

    def _take(self, rows: int) -> example.ColumnBuffers:
        """Return memory of an earlier batch if the rows fit, else new memory."""
        try:
            columns = self._free.pop()
        except IndexError:
            columns = None
        if columns is None or columns.rows < rows:
            columns = self._columns(rows)
        columns.clear()
        return columns

    def _columns(
        self,
        rows: int,
        like: example.ColumnBuffers | None = None,
        pool: memory.MemoryPool | None = None,
    ) -> example.ColumnBuffers:
        limits = self._examples.limits
        return example.ColumnBuffers(self._decoder, rows, pool=pool, like=like, limits=limits)

    def _located(self, error: TensorwireError, block: Block, index: int) -> None:
        """Add the path, the record number and the file offset to an error."""
        record, offset = block.where(index)
        error.record = record
        error.add(path=block.path, offset=offset, base=offset)
        self._explain(error)

    def _in_job(self, error: TensorwireError, job: list[Piece]) -> None:
        """Add the same facts to an error whose `record` is a row of the batch."""
        row = error.record
        for block, first, rows in job if row is not None else ():
            assert row is not None
            if row < rows:
                error.offset = None
                return self._located(error, block, first + row)
            row -= rows
        error.add(path=job[0].block.path)
        return self._explain(error)

    def _explain(self, error: TensorwireError) -> None:
        if isinstance(error, SchemaError) and self._examples._origin:
            error.hint = "; ".join(filter(None, (error.hint, self._examples._origin)))


def _seen(places: Array, feature: Feature, job: list[Piece]) -> Array:
    """Return an array of memoryviews into the blocks, which they keep alive."""
    out: Array = np.empty(len(places) // 2, object)
    numbers, item = places.tolist(), 0
    for block, _, rows in job:
        view = memory.flat(block.data).toreadonly()
        for i in range(item, item + rows * feature.length):
            out[i] = view[numbers[2 * i] : numbers[2 * i] + numbers[2 * i + 1]]
        item += rows * feature.length
    return out.reshape(sum(piece.rows for piece in job), *(dim or 0 for dim in feature.shape or ()))


def _lots(reader: RecordReader, size: int, check: bool) -> Iterator[Iterator[Piece]]:
    """Yield the records in groups of `size`, independent of where blocks end.

    A group must be consumed before the next one is requested.
    """
    pieces = _pieces(reader, size, check)
    for piece, ends in pieces:
        yield _lot(piece, ends, pieces)
        del piece


def _lot(piece: Piece, ends: bool, pieces: Iterator[tuple[Piece, bool]]) -> Iterator[Piece]:
    yield piece
    del piece
    if ends:
        return
    for piece, ends in pieces:
        yield piece
        if ends:
            return
        del piece


def _pieces(reader: RecordReader, size: int, check: bool) -> Iterator[tuple[Piece, bool]]:
    """Yield blocks, cut where a batch ends, with whether the piece ends a batch."""
    rows = 0
    for block in reader.blocks(check=check):
        first, left = 0, len(block.starts)
        while left:
            count = min(left, size - rows)
            first, left, rows = first + count, left - count, (rows + count) % size
            yield Piece(block, first - count, count), rows == 0
        del block


def _without_lists(schema: Schema, columns: Sequence[str] | None, path: str) -> Schema:
    """Return the schema without feature lists.

    Raises SchemaError if there are any, unless `columns` leaves them out.
    """
    lists = [name for name in schema.sequences if columns is None or name in columns]
    if lists:
        raise SchemaError(
            f"the records are SequenceExamples with feature lists such as {lists[0]!r}",
            tensor=lists[0],
            path=path,
            hint="read them with tw.read_sequence_examples, or leave them out with columns=",
        )
    if not schema.sequences:
        return schema
    return Schema(dict(schema), records=schema.records, complete=schema.complete)


def _from_indexes(names: list[str]) -> Schema | None:
    """Return the schema that a full scan stored in the indexes, if all files have the same one."""
    first: Any = None
    for name in names:
        index = _index.load(name)
        if index is None or index.schema is None or (first is not None and index.schema != first):
            return None
        first = index.schema
    # An invalid schema in an index is ignored: the schema can be inferred again.
    with contextlib.suppress(DecodeError):
        return Schema.from_json(first) if first is not None else None
    return None
