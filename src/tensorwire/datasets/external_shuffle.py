"""An external shuffle: a random order of all records, for datasets larger than memory.

1. Records are numbered over all sources. A seeded permutation (`permutation`) maps the number of a
   record to its position in the shuffled dataset, and shard i holds the positions from
   `bounds[i]` up to `bounds[i + 1]`.
2. `scatter` reads each source once, and writes its records, sorted by position, to one temporary
   file, a run.
3. `gather` makes one shard: it reads the shard's slice of every run, sorts the records by position
   in memory, and writes them.
4. So a shard must fit into memory and the dataset need not. The order depends only on the seed,
   the sources and the number of shards, never on the number of workers or their timing.

A run file holds the packed pieces of rows, then a table of little-endian int64, then a trailer of
16 bytes: the offset of the table and the number of its rows. A table row belongs to one batch of
about 64 MB, and has the offset at which the piece of each shard begins, and as its last entry the
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .. import storage
from .._errors import LimitError
from ..codecs import column_rows
from ..codecs.conversion_spec import ConversionSpec
from ..codecs.rows import ROWS
from ..core.tensors import Array
from ..records.batch import Batch
from . import permutation
from .shard_plan import run_name

_BATCH = 64 << 20
"""Bytes of rows that are sorted together. Smaller batches would make tiny pieces."""
_TRAILER = 16


def scatter(
    path: str,
    batches: Iterable[tuple[Batch, Array]],
    spec: ConversionSpec,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Writes a run, and returns its report. `check` is called before the run becomes visible."""
    assert spec.bounds is not None and spec.shuffle is not None
    position = permutation.Permutation(spec.total, spec.shuffle)
    bounds = np.array(spec.bounds, np.int64)
    tables: list[Array] = []
    records = 0
    with storage.writer(path) as file:
        offset = 0
        for batch, numbers in _merged(batches):
            positions = position(numbers)
            order = np.argsort(positions, kind="stable")
            batch, positions = batch.take(order), positions[order]
            cuts = np.searchsorted(positions, bounds)
            table = np.zeros(len(bounds), np.int64)
            for shard in range(len(bounds) - 1):
                table[shard] = offset
                low, high = int(cuts[shard]), int(cuts[shard + 1])
                if low < high:
                    piece = column_rows.packed(batch.slice(low, high), positions[low:high])
                    offset += file.write(piece)
            table[-1] = offset
            tables.append(table)
            records += batch.size
        for table in tables:
            file.write(table.astype("<i8").tobytes())
        file.write(offset.to_bytes(8, "little") + len(tables).to_bytes(8, "little"))
        size = offset + sum(8 * len(table) for table in tables) + _TRAILER
        check()
    entry = storage.stat(path)
    return {
        "records": records,
        "bytes": size,
        "crc32c": "",
        "stamp": entry.stamp if entry is not None else "",
    }


def _merged(batches: Iterable[tuple[Batch, Array]]) -> Iterator[tuple[Batch, Array]]:
    """Small batches merged to batches of at least `_BATCH` bytes, with the record numbers."""
    pending: list[tuple[Batch, Array]] = []
    size = 0
    for batch, numbers in batches:
        pending.append((batch, numbers))
        size += batch.nbytes
        if size >= _BATCH:
            yield (
                Batch.concatenate([batch for batch, _ in pending]),
                np.concatenate([numbers for _, numbers in pending]),
            )
            pending, size = [], 0
    if pending:
        yield (
            Batch.concatenate([batch for batch, _ in pending]),
            np.concatenate([numbers for _, numbers in pending]),
        )


def gather(folder: str, count: int, number: int, spec: ConversionSpec) -> Iterator[Batch]:
    """Yields the records of shard `number` in shuffled order, from the `count` runs in `folder`."""
    assert spec.bounds is not None
    pieces: list[tuple[Batch, Array]] = []
    size = 0
    for run in range(count):
        path = storage.join(folder, run_name(run))
        with storage.source(path) as file:
            bounds = _table(file, number, len(spec.bounds))
            size += sum(nbytes for _, nbytes in bounds)
            # The limit is checked before the pieces are read.
            if size > spec.memory:
                raise LimitError(
                    "a shard to be shuffled must fit into memory, and this one has more than"
                    f" {spec.memory:,} bytes",
                    hint="pass a larger shards= or a larger memory=",
                )
            pieces += [
                column_rows.unpacked(piece) for piece in (file.read_many(bounds) if bounds else ())
            ]
    if not pieces:
        return
    whole = Batch.concatenate([batch for batch, _ in pieces])
    order = np.argsort(np.concatenate([positions for _, positions in pieces]), kind="stable")
    # The pieces are freed before the sorted copies are made.
    pieces.clear()
    for start in range(0, len(order), ROWS):
        yield whole.take(order[start : start + ROWS])


def _table(file: storage.OpenedObject, shard: int, width: int) -> list[tuple[int, int]]:
    """The offset and size of each piece of a shard in a run, with two small reads.

    `width` is the number of entries in a row of the table. A piece ends where the next shard's
    begins, so two neighbouring entries are read from each row.
    """
    end = bytes(file.read_at(file.size - _TRAILER, _TRAILER))
    start, count = int.from_bytes(end[:8], "little"), int.from_bytes(end[8:], "little")
    if not count:
        return []
    entries = file.read_many([(start + 8 * (row * width + shard), 16) for row in range(count)])
    bounds = [np.frombuffer(pair, "<i8").tolist() for pair in entries]
    return [(low, high - low) for low, high in bounds if low < high]
