"""A shuffle of more than fits into memory, in two halves.

Every record has a number over all sources, and a seeded permutation says where that number goes
(`ordering`). The first half reads each source once and writes its records, sorted by where they go,
into one temporary file a source, a run. The second half makes each shard: it reads its slice of
every run, sorts it by position, and writes it. So a shard must fit into memory, and the dataset
need not; and the order hangs on the seed, the sources and the number of shards alone, not on who
did what.

A run is pieces, and at its end a table: for each lot of rows, where the piece of each shard begins.
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

_LOT = 64 << 20
"""Bytes of rows that are sorted together."""
_END = 16


def scatter(
    path: str,
    found: Iterable[tuple[Batch, Array]],
    spec: ConversionSpec,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Writes a run. `check` is called before it is there."""
    assert spec.bounds is not None and spec.shuffle is not None
    where = permutation.Permutation(spec.total, spec.shuffle)
    bounds = np.array(spec.bounds, np.int64)
    tables: list[Array] = []
    records = 0
    with storage.writer(path) as file:
        at = 0
        for batch, numbers in _lots(found):
            places = where(numbers)
            order = np.argsort(places, kind="stable")
            batch, places = batch.take(order), places[order]
            cuts = np.searchsorted(places, bounds)
            table = np.zeros(len(bounds), np.int64)
            for shard in range(len(bounds) - 1):
                table[shard] = at
                low, high = int(cuts[shard]), int(cuts[shard + 1])
                if low < high:
                    at += file.write(column_rows.packed(batch.slice(low, high), places[low:high]))
            table[-1] = at
            tables.append(table)
            records += batch.size
        for table in tables:
            file.write(table.astype("<i8").tobytes())
        file.write(at.to_bytes(8, "little") + len(tables).to_bytes(8, "little"))
        size = at + sum(8 * len(table) for table in tables) + _END
        check()
    entry = storage.stat(path)
    return {
        "records": records,
        "bytes": size,
        "crc32c": "",
        "stamp": entry.stamp if entry is not None else "",
    }


def _lots(found: Iterable[tuple[Batch, Array]]) -> Iterator[tuple[Batch, Array]]:
    """Batches put together, so that the pieces are not tiny."""
    held: list[tuple[Batch, Array]] = []
    size = 0
    for batch, numbers in found:
        held.append((batch, numbers))
        size += batch.nbytes
        if size >= _LOT:
            yield (
                Batch.concatenate([one for one, _ in held]),
                np.concatenate([one for _, one in held]),
            )
            held, size = [], 0
    if held:
        yield Batch.concatenate([one for one, _ in held]), np.concatenate([one for _, one in held])


def gather(folder: str, count: int, number: int, spec: ConversionSpec) -> Iterator[Batch]:
    """The records of a shard, in their order."""
    assert spec.bounds is not None
    held: list[tuple[Batch, Array]] = []
    size = 0
    for run in range(count):
        path = storage.join(folder, run_name(run))
        with storage.source(path) as file:
            bounds = _table(file, number, len(spec.bounds))
            size += sum(nbytes for _, nbytes in bounds)
            if size > spec.memory:  # before any of it is read
                raise LimitError(
                    "a shuffled shard is sorted in memory, and this one has more than"
                    f" {spec.memory:,} bytes; more shards=, or memory="
                )
            held += [
                column_rows.unpacked(piece) for piece in (file.read_many(bounds) if bounds else ())
            ]
    if not held:
        return
    whole = Batch.concatenate([batch for batch, _ in held])
    order = np.argsort(np.concatenate([places for _, places in held]), kind="stable")
    held.clear()
    for start in range(0, len(order), ROWS):
        yield whole.take(order[start : start + ROWS])


def _table(file: storage.OpenedObject, shard: int, width: int) -> list[tuple[int, int]]:
    """Where the pieces of a shard lie in a run, and their sizes: two small reads."""
    end = bytes(file.read_at(file.size - _END, _END))
    start, lots = int.from_bytes(end[:8], "little"), int.from_bytes(end[8:], "little")
    if not lots:
        return []
    found = file.read_many([(start + 8 * (lot * width + shard), 16) for lot in range(lots)])
    bounds = [np.frombuffer(one, "<i8").tolist() for one in found]
    return [(low, high - low) for low, high in bounds if low < high]
