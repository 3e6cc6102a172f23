"""Files of Examples as batches of columns."""

from __future__ import annotations

import contextlib
import copy
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from .._errors import DecodeError, EncodeError, SchemaError, TensorwireError
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
"""Bytes of columns that are allocated before it is known how many rows there are."""


class Piece(NamedTuple):
    """Some records of a block."""

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
    """Batches of columns from TFRecord files of tf.train.Example: a path, a pattern, or a list of
    them.

    Features of a fixed length are dense [batch, ...], others Ragged, bytes are Strings;
    `batch.present[name]` says which records have a feature. The schema is the one given (a
    tw.Schema, a dict of features or of tf.io's feature specs, a path), or the one beside the files,
    or is inferred once from a sample of them; a column is of the same kind in every batch. Unless
    `schema` or `columns` leaves it out, a feature that the schema does not have is an error, and so
    is a feature list.

    workers    threads that read and decode ahead (default: one a core, four at most; 0: none, all
               is done in the caller's thread)
    prefetch   batches that may be ready ahead of you
    shuffle    a seed: the records in an order that depends on it alone (True: another order every
               time)
    shard      (i, n): only the i-th of n shares; every record is in exactly one
    on_corrupt "skip" passes over damaged records; `Examples.skipped` says what was lost
    views      bytes columns that are not copied: arrays of memoryviews into the blocks that were
               read (large images; NumPy only)
    mmap       maps plain files instead of reading them; only for files that nobody truncates
               meanwhile
    reuse      a batch's arrays are valid only until the next batch, whose memory they are: saves
               time, forbids list(...)
    to         the framework of the columns, as for tw.to; `device` and `cast` too

    >>> import os, tempfile, tensorwire as tw
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> tw.write_examples(path, {"label": np.array([1, 0, 1]), "x": np.ones((3, 2), np.float32)})
    3
    >>> for batch in read_examples(path, batch_size=2):
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
    """What `read_examples` returns: iterate over it as often as you like. `schema` says what the
    columns are.
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
            raise EncodeError(f"a batch has at least one record, not {batch_size}")
        if views and to != "numpy":
            raise EncodeError(f"views=... gives memoryviews, which are no columns of {to}")
        if reuse and to != "numpy":
            raise EncodeError(
                f"reuse=True lends NumPy memory until the next batch; to={to!r} may keep it longer"
            )
        if shuffle is True and shard is not None:
            raise EncodeError(
                "shuffle=True is another order for every share, so records would be lost and"
                " repeated; pass a seed"
            )
        if workers is not None and workers < 0:
            raise EncodeError(f"workers={workers}: 0 for none, or a number of threads")
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
        """Of the columns that are read."""
        self.strict = schema is None and columns is None
        """Whether a feature that the schema does not have is an error: the caller left none out."""
        self._views = self._check_views(views)

    def _find_schema(
        self, schema: SchemaLike | None, columns: Sequence[str] | None, compression: str | None
    ) -> tuple[Schema, str]:
        """The schema, and words on where it came from for those who find that it does not fit."""
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
                    f"; the schema was inferred from a sample of {sampled[0].records} records: "
                    "schema=tw.infer_schema(path, full=True) looks at all of them, "
                    "or pass a schema of your own"
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
                raise EncodeError(
                    f"views=[{name!r}]: a view is of a bytes feature of a fixed length, as it is in"
                    " the file"
                )
        return frozenset(views)

    def _sequences(self) -> dict[str, Feature] | None:
        """The features of feature lists; None where only Examples are read."""
        return None

    @property
    def skipped(self) -> list[Any]:
        """What `on_corrupt="skip"` passed over in the last pass."""
        return self._reader.skipped

    def __iter__(self) -> Iterator[Any]:
        reader = self._reader
        # Shuffled first and divided then: the seed gives one order for all, of which each takes its
        # share.
        if self._shuffle is not None:
            reader = reader.shuffle(
                secrets.randbits(64) if self._shuffle is True else self._shuffle
            )
        if self._shard is not None:
            reader = reader.shard(*self._shard)
        lots = _lots(reader, self.batch_size, check=self._skips)
        # Without threads a block is decoded as soon as it is read, while it is in the cache; a
        # thread takes all of a batch at once.
        eager = self._workers > 0 or self._room() > _LAZY
        return _Decoding(self).run(map(list, lots) if eager else lots, self._workers, self._depth)

    def _room(self) -> int:
        """Bytes that the columns of a batch take at least."""
        return self.batch_size * sum(8 * max(1, feature.length) for feature in self.schema.values())

    def tf_dataset(self) -> Any:
        """A tf.data.Dataset of the batches: dicts of tensors with the right signature (needs
        TensorFlow).

        Inside it `from_generator` runs this reader, so TensorFlow's own parser and its proto
        classes are not used.
        """
        return adapters.tf_dataset(self._numpy, self.schema)

    def arrow(self) -> Any:
        """A pyarrow.RecordBatchReader of the batches: fixed and varying features are lists, missing
        ones are null (needs pyarrow).
        """
        nothing = example.ColumnBuffers(self._decoder(), 0).take()
        return adapters.arrow_reader(
            self._numpy, _columns.batch(dict(self.schema), nothing, 0, self.limits)
        )

    def _numpy(self) -> Iterator[Batch]:
        """The batches in our own kinds of tensors, each in memory of its own."""
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
        if not self._views:
            return self._given(_columns.batch(dict(self.schema), filled, rows, self.limits))
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
    """One pass over the files."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self._decoder = examples._decoder()
        self._pool = memory.MemoryPool()
        self._last: example.ColumnBuffers | None = None
        self._free: list[example.ColumnBuffers] = []

    def run(self, jobs: Iterator[Iterable[Piece]], workers: int, depth: int) -> Iterator[Any]:
        """Batches in order. Leaving early ends all threads."""
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

    def _work(self, lot: Iterable[Piece]) -> tuple[example.ColumnBuffers | None, Any]:
        examples = self._examples
        rows = sum(piece.rows for piece in lot) if isinstance(lot, list) else examples.batch_size
        if examples._reuse:
            columns = self._take(rows)
        else:
            columns = self._columns(rows, self._last, self._pool)
        done: list[Piece] = []
        for piece in lot:
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
            # Views need the block; everybody else gives its memory back, for the next one.
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
        """Memory that was lent out before, if the rows fit it."""
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
        """Adds the file, the record and the place in the file."""
        record, offset = block.where(index)
        error.record = record
        error.add(path=block.path, offset=offset, base=offset)
        self._explain(error)

    def _in_job(self, error: TensorwireError, job: list[Piece]) -> None:
        """The same for an error that knows its row in the batch."""
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
            error.args = (error.message + self._examples._origin,)


def _seen(places: Array, feature: Feature, job: list[Piece]) -> Array:
    """An array of views into the blocks, which live as long as the views do."""
    out: Array = np.empty(len(places) // 2, object)
    numbers, at = places.tolist(), 0
    for block, _, rows in job:
        view = memory.flat(block.data).toreadonly()
        for i in range(at, at + rows * feature.length):
            out[i] = view[numbers[2 * i] : numbers[2 * i] + numbers[2 * i + 1]]
        at += rows * feature.length
    return out.reshape(sum(piece.rows for piece in job), *(dim or 0 for dim in feature.shape or ()))


def _lots(reader: RecordReader, size: int, check: bool) -> Iterator[Iterator[Piece]]:
    """The records in lots of `size`, wherever the blocks end. Each lot must be used up before the
    next one.
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
    """Blocks, cut where a lot ends; and whether it does."""
    rows = 0
    for block in reader.blocks(check=check):
        first, left = 0, len(block.starts)
        while left:
            count = min(left, size - rows)
            first, left, rows = first + count, left - count, (rows + count) % size
            yield Piece(block, first - count, count), rows == 0
        del block


def _without_lists(schema: Schema, columns: Sequence[str] | None, path: str) -> Schema:
    """The schema of Examples. Feature lists must not get lost, unless `columns` leaves them out."""
    lists = [name for name in schema.sequences if columns is None or name in columns]
    if lists:
        raise SchemaError(
            f"the records are SequenceExamples, with feature lists such as {lists[0]!r}: "
            "tw.read_sequence_examples reads them, columns= leaves them out",
            tensor=lists[0],
            path=path,
        )
    if not schema.sequences:
        return schema
    return Schema(dict(schema), records=schema.records, complete=schema.complete)


def _from_indexes(names: list[str]) -> Schema | None:
    """What a full scan of exactly these files found, as their indexes keep it."""
    first: Any = None
    for name in names:
        index = _index.load(name)
        if index is None or index.schema is None or (first is not None and index.schema != first):
            return None
        first = index.schema
    with contextlib.suppress(DecodeError):  # an index can be made again, and so can what it says
        return Schema.from_json(first) if first is not None else None
    return None
