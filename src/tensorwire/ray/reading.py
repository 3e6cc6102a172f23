"""Record files as datasets: the driver divides them, the workers decode them into Arrow's memory."""

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
"""Bytes of a block: what Ray moves and keeps at once."""
_UNPACKED = 4
"""How many times its size a compressed file has in memory, about."""


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
    """A ray.data.Dataset of the records of TFRecord files of tf.train.Example: a path, a pattern,
    or a list of them.

    The schema is found once, here, as `tw.read_examples` finds it. A scalar feature is a column of
    numbers, bytes and text are Arrow's, a feature of a fixed shape is a tensor, any other a list. A
    feature that a record does not have is a null, unless the schema has a default for it. Files are
    divided among the workers; a plain file that is alone is divided by its index.

    batch_size   rows that are decoded together; blocks have some 32 MiB
    on_corrupt   "skip" passes over damaged records, and logs what was lost
    The last three are those of `ray.data.read_datasource`.
    """
    source = ExampleSource(path, columns, schema, batch_size, on_corrupt, compression, limits)
    said: dict[str, Any] = {
        "override_num_blocks": override_num_blocks,
        "concurrency": concurrency,
        "ray_remote_args": ray_remote_args,
    }
    return _data.read_datasource(
        source, **{name: value for name, value in said.items() if value is not None}
    )


class ExampleSource(_data.Datasource):  # type: ignore[misc]
    """What `read_examples` gives to Ray."""

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
        # workers are in another folder
        self._names = [storage.absolute(name) for name in RecordReader(path).paths]
        known = storage.stats(self._names)
        missing = next((name for name in self._names if name not in known), None)
        if missing is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), storage.shown(missing))
        self._sizes = [known[name].size for name in self._names]
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
        """How Ray shows it."""
        return "Examples"

    def estimate_inmemory_data_size(self) -> int:
        """About as many bytes as the files have."""
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
        """A task for each lot of files, or for each share of a file."""
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
        lots = _balanced(self._sizes, min(wanted, len(self._names)))
        return [
            _Share([self._names[i] for i in lot], (0, 1), None, sum(self._sizes[i] for i in lot))
            for lot in lots
        ]

    def _divided(self, name: str, size: int, pieces: int) -> list[_Share]:
        """Shares of one file, by its index. Of an object an index is only used if it is there:
        making one reads all of it.
        """
        options = self._options["compression"], self._options["limits"]
        with storage.source(name) as source:
            packed = _blocks.compression_of(source, options[0])
        index = (
            None
            if packed
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
        known = {field.name for field in fields(_block.BlockMetadata)}
        said = {
            "num_rows": share.rows,
            "size_bytes": share.size,
            "input_files": share.names,
            "exec_stats": None,
            "schema": None,
        }
        about = _block.BlockMetadata(
            **{name: value for name, value in said.items() if name in known}
        )
        work = partial(_tables, share, self.schema, self._strict, self._options, self._settings)
        limit = {} if most is None else {"per_task_row_limit": most}
        return _data.ReadTask(work, about, **limit)


class _Share(NamedTuple):
    """What one task reads."""

    names: list[str]
    part: tuple[int, int]
    rows: int | None
    size: int


def _balanced(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Neighbouring files in lots of about the same size.

    >>> _balanced([5, 1, 1, 1, 5], 3)
    [[0], [1, 2, 3], [4]]
    """
    ends = np.cumsum([size + 1 for size in sizes])
    middles = ends - (np.asarray(sizes) + 1) / 2
    lots: list[list[int]] = [[] for _ in range(count)]
    for number, middle in enumerate(middles.tolist()):
        lots[min(count - 1, int(middle * count / ends[-1]))].append(number)
    return [lot for lot in lots if lot]


def _tables(
    share: _Share,
    schema: Schema,
    strict: bool,
    options: dict[str, Any],
    settings: dict[str, str],
) -> Iterator[Any]:
    """The blocks of one task. Runs in a worker, with the storage settings of the driver."""
    remote.take_over(settings)
    pa = require("pyarrow", extra="arrow")
    part = None if share.part == (0, 1) else share.part
    examples = _read_examples(share.names, schema, workers=0, shard=part, **options)
    examples.strict = strict
    held: list[Any] = []
    for batch in examples:
        held.append(_arrow(batch, schema))
        if sum(one.nbytes for one in held) >= BLOCK:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
    for gap in examples.skipped:
        logging.getLogger("tensorwire").warning("passed over %s", gap)


def _arrow(batch: Batch, schema: Schema) -> Any:
    """A record batch, zero-copy where nothing is missing; what has a fixed shape as tensors, which
    Ray gives as arrays.
    """
    present = {
        name: there if schema[name].default is None else np.ones_like(there)
        for name, there in batch.present.items()
    }
    return adapters.arrow_batch(Batch(batch, present, batch.size), plain=False)
