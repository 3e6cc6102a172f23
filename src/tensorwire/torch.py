"""PyTorch datasets that read record files: `ExampleDataset` and `ExampleMapDataset`.

    dataset = tensorwire.torch.ExampleDataset("train-*.tfrecord", batch_size=256)
    loader = DataLoader(dataset, batch_size=None, num_workers=4)

The workers of a DataLoader divide the files (or the records, if there are few files) among them, so
that each record is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from . import frameworks
from ._errors import TensorwireError, UsageError
from ._limits import Limits
from ._optional import require
from .core.tensors import Strings
from .records import columns as _columns
from .records import coverage
from .records.batch import Batch, ForeignBatch, holds_strings
from .records.example_reader import Examples, read_examples
from .records.record_reader import Paths, RecordReader
from .records.schema import SchemaLike, as_schema
from .wire import example

_torch: Any = require("torch")
_data: Any = require("torch.utils.data")


class ExampleDataset(_data.IterableDataset[Any]):  # type: ignore[misc]
    """An iterable dataset of batches: dicts of torch tensors.

    String columns are lists and ragged columns nested tensors. With `batch_size=None` it yields one
    dict per record, for a DataLoader that makes the batches.

    shuffle    a seed; `set_epoch` changes the order shard      (rank, world_size) for processes
    that train together workers    threads per process that decode ahead schema, columns, drop_last,
    on_corrupt, compression, limits  as for `tw.read_examples`

    Raises UsageError for invalid arguments, and the errors of `tw.read_examples`.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> import numpy as np
    >>> import tensorwire.torch
    >>> from torch.utils.data import DataLoader
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> _ = tw.write_examples(path, {"label": np.arange(5)})
    >>> loader = DataLoader(tw.torch.ExampleDataset(path, batch_size=2), batch_size=None)
    >>> [batch["label"].tolist() for batch in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        paths: Paths,
        batch_size: int | None = 256,
        *,
        schema: SchemaLike | None = None,
        columns: Sequence[str] | None = None,
        shuffle: int | None = None,
        shard: tuple[int, int] | None = None,
        drop_last: bool = False,
        workers: int | None = None,
        on_corrupt: Literal["raise", "skip"] = "raise",
        compression: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__()
        if shuffle is not None and (isinstance(shuffle, bool) or not isinstance(shuffle, int)):
            raise UsageError(
                f"shuffle must be a seed, not {shuffle!r}: without a common order, workers would"
                " lose and repeat records"
            )
        self._size, self._shuffle, self._shard = batch_size, shuffle, shard or (0, 1)
        # The epoch is in shared memory, because persistent workers keep their copy of this object
        # and must still see a new epoch.
        self._epoch = _torch.zeros((), dtype=_torch.int64).share_memory_()
        self._drop, self._workers = drop_last, workers
        self._options: dict[str, Any] = {
            "on_corrupt": on_corrupt,
            "compression": compression,
            "limits": limits,
        }
        self.paths = RecordReader(paths).paths
        # The schema is found once, so that all workers use the same.
        examples = read_examples(self.paths, schema, columns, workers=0, **self._options)
        self.schema, self._strict = examples.schema, examples.strict

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which changes the order of a shuffled dataset.

        Call it before iterating, with the same number in all processes. It also reaches the
        persistent workers of a DataLoader.
        """
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._examples():
            if self._size is not None:
                yield _tensors(batch, None)
            else:
                yield from (_tensors(batch, row) for row in range(batch.size))

    def _examples(self) -> Examples:
        info = _data.get_worker_info()
        number, count = (0, 1) if info is None else (info.id, info.num_workers)
        rank, world = self._shard
        workers = self._workers if self._workers is not None else (2 if info is None else 0)
        examples = read_examples(
            self.paths,
            self.schema,
            batch_size=self._size or 1024,
            workers=workers,
            shuffle=None if self._shuffle is None else self._shuffle + int(self._epoch),
            shard=(rank * count + number, world * count),
            drop_last=self._drop and self._size is not None,
            **self._options,
        )
        examples.strict = self._strict
        return examples


class ExampleMapDataset(_data.Dataset[Any]):  # type: ignore[misc]
    """A map-style dataset of records by number, for samplers.

    `dataset[i]` is a dict of torch tensors; strings are bytes or str. Records are located by the
    index of the file. The arguments are those
    of `tw.read_examples`.

    >>> import tensorwire as tw
    >>> import os, tempfile
    >>> import numpy as np
    >>> import tensorwire.torch
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> _ = tw.write_examples(path, {"label": np.arange(5), "id": list("abcde")})
    >>> dataset = tw.torch.ExampleMapDataset(path)
    >>> len(dataset), dataset[3]
    (5, {'label': tensor(3), 'id': 'd'})
    """

    def __init__(
        self,
        paths: Paths,
        *,
        schema: SchemaLike | None = None,
        columns: Sequence[str] | None = None,
        compression: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._reader = RecordReader(paths, compression=compression, limits=limits)
        examples = read_examples(
            self._reader.paths, schema, columns, workers=0, compression=compression, limits=limits
        )
        self.schema, self._strict = as_schema(examples.schema), examples.strict
        self._limits = limits

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return many records at once, as a DataLoader requests them."""
        records = Strings.of([self._reader[number] for number in numbers], text=False)
        wanted = [feature.column(name) for name, feature in self.schema.items()]
        columns = example.ColumnBuffers(wanted, len(numbers), limits=self._limits)
        starts, sizes = records.offsets[:-1], np.diff(records.offsets)
        try:
            columns.fill(records.data, starts, sizes)
            if columns.strange and self._strict:
                coverage.check(self.schema, records.data, starts, sizes)
        except TensorwireError as error:
            error.record = numbers[error.record or 0]
            raise
        batch = _columns.batch(dict(self.schema), columns.take(), len(numbers), self._limits)
        return [_tensors(batch, row) for row in range(len(numbers))]


def _tensors(batch: Batch | ForeignBatch, row: int | None) -> dict[str, Any]:
    """Return a batch, or one row of it, in memory that torch may write to."""
    out = {}
    for name, column in batch.items():
        value = column if row is None else column[row]
        if holds_strings(value):
            out[name] = value.tolist()
        elif isinstance(value, (str, bytes)):
            out[name] = value
        else:
            out[name] = frameworks.to(value, "torch")
    return out
