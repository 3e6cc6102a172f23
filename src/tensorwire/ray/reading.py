"""`read_examples`: the driver divides record files into tasks, the workers decode them to Arrow."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from .. import storage
from .._limits import Limits
from .._optional import require
from ..records import adapters
from ..records import blocks as _blocks
from ..records import index as _index
from ..records.batch import Batch
from ..records.example_reader import read_examples as _read_examples
from ..records.record_reader import Paths, RecordReader
from ..records.schema import Schema, SchemaLike
from ..storage import remote

_data: Any = require("ray.data", extra="ray")
_block: Any = require("ray.data.block", extra="ray")

_ROWS = 4096
BLOCK = 32 << 20
"""The size of a block in bytes, which Ray moves and stores as a unit."""
_UNPACKED = 4
"""The assumed ratio of decompressed to compressed size."""


def read_examples(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: SchemaLike | None = None,
    batch_size: int = _ROWS,
    on_corrupt: Literal["raise", "skip"] = "raise",
    compression: str | None = None,
    limits: Limits | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> Any:
    """Read TFRecord files of tf.train.Example as a ray.data.Dataset.

    `path` is a path, a glob pattern or a list of them. The schema is found once, in the driver,
    like in `tw.read_examples`. A scalar feature is a column of numbers, bytes and text are Arrow's
    types, a feature of a fixed shape is a tensor, and any other is a list. A feature that a record
    lacks is null, unless the schema has a default. Files are divided among the workers; a single
    uncompressed file is divided by its index.

    columns      the names of the features to read (default: all) schema       as for
    `tw.read_examples` batch_size   rows that are decoded together; blocks have about 32 MiB
    on_corrupt   "skip" skips damaged records and logs them override_num_blocks, concurrency,
    ray_remote_args  as for `ray.data.read_datasource`

    Raises FileNotFoundError for a missing file and SchemaError if records do not fit the schema.

    >>> import tensorwire as tw  # doctest: +SKIP
    >>> import tensorwire.ray  # doctest: +SKIP
    >>> dataset = tw.ray.read_examples("train-*.tfrecord", columns=["label"])  # doctest: +SKIP
    """
    source = ExampleSource(path, columns, schema, batch_size, on_corrupt, compression, limits)
    options: dict[str, Any] = {
        "override_num_blocks": override_num_blocks,
        "concurrency": concurrency,
        "ray_remote_args": ray_remote_args,
    }
    return _data.read_datasource(
        source, **{name: value for name, value in options.items() if value is not None}
    )


class ExampleSource(_data.Datasource):  # type: ignore[misc]
    """The Ray data source behind `read_examples`."""

    def __init__(
        self,
        path: Paths,
        columns: Sequence[str] | None,
        schema: SchemaLike | None,
        batch_size: int,
        on_corrupt: Literal["raise", "skip"],
        compression: str | None,
        limits: Limits | None,
    ) -> None:
        super().__init__()
        # The workers run in another folder, so the paths must be absolute.
        self._names = [storage.absolute(name) for name in RecordReader(path).paths]
        stats = storage.stats(self._names)
        missing = next((name for name in self._names if name not in stats), None)
        if missing is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), storage.shown(missing))
        self._sizes = [stats[name].size for name in self._names]
        self._settings = remote.settings()
        self._options: dict[str, Any] = {
            "on_corrupt": on_corrupt,
            "compression": compression,
            "limits": limits,
            "batch_size": batch_size,
        }
        examples = _read_examples(self._names, schema, columns, workers=0, **self._options)
        self.schema, self._strict = examples.schema, examples.strict

    def get_name(self) -> str:
        """Return the name that Ray shows."""
        return "Examples"

    def estimate_inmemory_data_size(self) -> int:
        """Return the approximate size of the data in memory."""
        packed = (
            _UNPACKED
            if self._options["compression"]
            or any(name.endswith((".gz", ".zlib", ".zst")) for name in self._names)
            else 1
        )
        return packed * sum(self._sizes)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: object = None
    ) -> list[Any]:
        """Return one task for each group of files, or for each share of a file."""
        shares = self._shares(max(1, parallelism))
        return [self._task(share, per_task_row_limit) for share in shares]

    def _shares(self, wanted: int) -> list[_Share]:
        pieces = wanted // len(self._names)
        if pieces > 1 and self._options["on_corrupt"] == "raise":
            return [
                share
                for name, size in zip(self._names, self._sizes, strict=True)
                for share in self._divided(name, size, pieces)
            ]
        groups = _balanced(self._sizes, min(wanted, len(self._names)))
        return [
            _Share(
                [self._names[i] for i in group], (0, 1), None, sum(self._sizes[i] for i in group)
            )
            for group in groups
        ]

    def _divided(self, name: str, size: int, pieces: int) -> list[_Share]:
        """Return shares of one file, by its index.

        The index of an object is only used if it exists: building one would read the whole object.
        """
        options = self._options["compression"], self._options["limits"]
        with storage.source(name) as source:
            codec = _blocks.compression_of(source, options[0])
        index = (
            None
            if codec
            else _index.load(name)
            if storage.is_url(name)
            else _index.open_index(name, *options)
        )
        if index is None or len(index) < 2:
            return [_Share([name], (0, 1), None, size)]
        count = min(pieces, len(index))
        rows = [len(index) * (i + 1) // count - len(index) * i // count for i in range(count)]
        return [_Share([name], (i, count), rows[i], size // count) for i in range(count)]

    def _task(self, share: _Share, most: int | None) -> Any:
        # The fields of BlockMetadata differ between versions of Ray.
        field_names = {field.name for field in fields(_block.BlockMetadata)}
        values = {
            "num_rows": share.rows,
            "size_bytes": share.size,
            "input_files": share.names,
            "exec_stats": None,
            "schema": None,
        }
        metadata = _block.BlockMetadata(
            **{name: value for name, value in values.items() if name in field_names}
        )
        work = partial(_tables, share, self.schema, self._strict, self._options, self._settings)
        limit = {} if most is None else {"per_task_row_limit": most}
        return _data.ReadTask(work, metadata, **limit)


class _Share(NamedTuple):
    """The part of the files that one task reads."""

    names: list[str]
    part: tuple[int, int]
    rows: int | None
    size: int


def _balanced(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return consecutive files in groups of about the same size.

    >>> _balanced([5, 1, 1, 1, 5], 3)
    [[0], [1, 2, 3], [4]]
    """
    ends = np.cumsum([size + 1 for size in sizes])
    middles = ends - (np.asarray(sizes) + 1) / 2
    groups: list[list[int]] = [[] for _ in range(count)]
    for number, middle in enumerate(middles.tolist()):
        groups[min(count - 1, int(middle * count / ends[-1]))].append(number)
    return [group for group in groups if group]


def _tables(
    share: _Share,
    schema: Schema,
    strict: bool,
    options: dict[str, Any],
    settings: dict[str, str],
) -> Iterator[Any]:
    """Yield the blocks of one task. Runs in a worker with the storage settings of the driver."""
    remote.take_over(settings)
    pa = require("pyarrow", extra="arrow")
    part = None if share.part == (0, 1) else share.part
    examples = _read_examples(share.names, schema, workers=0, shard=part, **options)
    examples.strict = strict
    tables: list[Any] = []
    for batch in examples:
        tables.append(_arrow(batch, schema))
        if sum(table.nbytes for table in tables) >= BLOCK:
            yield pa.Table.from_batches(tables)
            tables = []
    if tables:
        yield pa.Table.from_batches(tables)
    for gap in examples.skipped:
        logging.getLogger("tensorwire").warning("skipped %s", gap)


def _arrow(batch: Batch, schema: Schema) -> Any:
    """Return a record batch, without copies where no row is missing.

    Features of a fixed shape become tensors, which Ray returns as arrays.
    """
    present = {
        name: there if schema[name].default is None else np.ones_like(there)
        for name, there in batch.present.items()
    }
    return adapters.arrow_batch(Batch(batch, present, batch.size), plain=False)
