"""One task: a pure function of a task and a spec, which any engine can call on any machine.

    report = run(task, spec)        # both plain JSON: plan.task(i), plan.spec.json()

A shard is written to a temporary file, synced and renamed (in a bucket: uploaded under its final
name), so it appears complete or not at all, and a task can be repeated. The result is a few
numbers.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from .. import storage
from .._errors import DecodeError, TensorwireError
from ..codecs import column_rows
from ..codecs import rows as formats
from ..codecs.conversion_spec import ConversionSpec, digest
from ..codecs.rows import Reading, SourcePart
from ..core import memory
from ..core.tensors import Array
from ..records.batch import Batch, is_untyped
from ..wire import kernels
from . import external_shuffle as shuffling
from . import permutation, row_selection, statistics
from .manifest import check
from .shard_plan import part_from

_STRATA = 100_000
"""The most strata that a stratified sample may have."""
_TABLE = 1 << 10
"""The order of a stratum with up to so many records is a table; there may be many strata."""
_PIECE = 4 << 20


Tell = Callable[[float, int, int], None]
"""A callback with the share of a task's sources that is read (0 to 1, as far as it is known), and
the records and bytes that are written.
"""


def run(
    task: dict[str, Any], spec: ConversionSpec | dict[str, Any], tell: Tell | None = None
) -> dict[str, Any]:
    """Runs a task, and returns its report. Errors have the path of the source, and the record."""
    made = spec if isinstance(spec, ConversionSpec) else ConversionSpec.from_json(spec)
    started = time.perf_counter()
    so_far = SoFar(tell)
    report: dict[str, Any] = _WORK[task["do"]](task, made, so_far)
    return report | {
        "damage": [list(entry) for entry in so_far.damage],
        "seconds": round(time.perf_counter() - started, 6),
    }


class SoFar(Reading):
    """The progress and the damage of a task. `share` counts all of its parts."""

    def __init__(self, tell: Tell | None = None) -> None:
        super().__init__()
        self.records = self.bytes = 0
        self._tell = tell

    def reach(self, share: float) -> None:
        super().reach(share)
        if self._tell is not None:
            self._tell(share, self.records, self.bytes)


class Summed:
    """A file wrapper that computes the size and the CRC32C of what is written."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.crc = file, 0, 0

    def write(self, data: Any) -> int:
        view = memory.flat(data)
        self._file.write(view)
        self.crc = kernels.crc32c(view, self.crc)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Does nothing: the file is flushed when it is closed."""

    def close(self) -> None:
        """Does nothing: the file is closed where it was opened."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def check_source(part: SourcePart) -> None:
    """Raises if a source has changed since the plan was made."""
    entry = storage.stat(part.path)
    if entry is None:
        raise FileNotFoundError(f"{storage.shown(part.path)} was removed since the plan was made")
    if (entry.size, entry.stamp) != (part.size, part.stamp):
        raise DecodeError(
            "the source has changed since the plan was made",
            path=storage.shown(part.path),
            offset=0,
            hint="run the conversion again",
        )


def rows(
    task: dict[str, Any], spec: ConversionSpec, so_far: SoFar
) -> Iterator[tuple[Batch, Array]]:
    """Yields the batches of selected rows that a task reads, with the number of each row over all
    sources.

    `where=` is applied first, then the share of a split, then the sample: a sample counts only rows
    that pass the filter.
    """
    condition = row_selection.Condition(spec.where) if spec.where else None
    parts = [part_from(fields) for fields in task["parts"]]
    weights = [part.size if part.stop is None else part.stop - part.first for part in parts]
    done, total = 0, max(1, sum(weights))
    complete = _Complete(parts, spec)
    for part, weight in zip(parts, weights, strict=True):
        check_source(part)
        picked = _Sample(spec, part) if spec.strata is not None else None
        record, reading = part.first, Reading(so_far.damage)
        for read in formats.named(spec.source).read(part, spec, reading):
            batch = complete(read, part.path)
            numbers = np.arange(record, record + batch.size)
            record += batch.size
            if condition is not None:
                batch, numbers = _kept(batch, numbers, condition(batch))
            if "share" in task:
                batch, numbers = _kept(
                    batch, numbers, _shared(batch, numbers, part, spec, task["share"])
                )
            if picked is not None:
                batch, numbers = _kept(batch, numbers, picked(batch))
            so_far.reach(
                (done + (weight * reading.share if part.stop is None else record - part.first))
                / total
            )
            if batch.size:
                yield batch, part.base + numbers
        # The source must not have changed while it was read, either.
        check_source(part)
        done += weight


class _Complete:
    """Adds missing columns to batches of files that declare their own columns.

    Every batch gets the union of the columns of the files that the planner has read, and of the
    files of this shard.
    """

    def __init__(self, parts: Sequence[SourcePart], spec: ConversionSpec) -> None:
        self._spec, source = spec, formats.named(spec.source)
        blanks = (
            [column_rows.unpacked(base64.b64decode(spec.blank))[0]]
            if spec.blank is not None
            else []
        )
        paths = list(dict.fromkeys(part.path for part in parts)) if source.declares_columns else []
        if len(paths) > 1:
            blanks += column_rows.looked_into(paths, spec, lambda path: source.blank(path, spec))
        union = Batch.union(blanks)
        typed = [name for name in union if not is_untyped(union[name])]
        self._blank = union.select(typed) if blanks else None
        self._how = column_rows.comparison(spec.target, spec.shuffle is not None)

    def __call__(self, batch: Batch, path: str) -> Batch:
        spec, schema = self._spec, self._spec.schema
        if not formats.named(spec.source).declares_columns:
            return batch
        try:
            blank = self._blank if self._blank is not None else Batch.union([batch])
            column_rows.check_alike(batch, blank, self._how, spec.cast)
            lacking = [name for name in spec.names or () if name not in batch]
            unknown = [
                name for name in lacking if name not in blank or (schema and schema[name].required)
            ]
            extra = {name: column_rows.absent(name, spec, batch) for name in unknown}
            whole = batch.completed(Batch({**blank, **extra}, size=0) if extra else blank)
            return whole if spec.names is None else whole.select(spec.names)
        except TensorwireError as error:
            raise error.add(path=path) from None

    def blank(self, path: str) -> Batch:
        """A batch without rows that has all columns."""
        if self._blank is not None:
            return self(self._blank, path)
        return self(formats.named(self._spec.source).blank(path, self._spec), path)


def _kept(batch: Batch, numbers: Array, kept: Array) -> tuple[Batch, Array]:
    if kept.all():
        return batch, numbers
    chosen = np.flatnonzero(kept)
    return batch.take(chosen), numbers[chosen]


def _shared(
    batch: Batch, numbers: Array, part: SourcePart, spec: ConversionSpec, share: list[float]
) -> Array:
    """Which rows have a hash in the interval of a split."""
    if spec.by is not None:
        hashes = row_selection.shares(spec.seed, row_selection.values_of(batch, spec.by))
    else:
        # The number of the source in the upper bits makes the numbers of all rows different.
        hashes = permutation.keys(spec.seed, numbers + (part.number << 40)) / 2.0**64
    return (hashes >= share[0]) & (hashes < share[1])


class _Sample:
    """Picks the rows of a sample, so that over all sources each stratum has exactly its number.

    A row is picked if the permutation of its stratum maps its rank below that number. The ranks
    begin with the number of rows of the stratum in earlier sources, so workers need not
    communicate.
    """

    def __init__(self, spec: ConversionSpec, part: SourcePart) -> None:
        self._spec, self._strata = spec, spec.strata or {}
        self._ranks = Counter(part.ranks)
        self._orders: dict[str, permutation.Permutation] = {}

    def __call__(self, batch: Batch) -> Array:
        out: Array = np.zeros(batch.size, np.bool_)
        if not batch.size:
            return out
        values = stratum(batch, self._spec)
        order = np.argsort(values, kind="stable")
        names, starts = np.unique(values[order], return_index=True)
        for name, indices in zip(names.tolist(), np.split(order, starts[1:]), strict=True):
            total, wanted = self._strata.get(name, [0, 0])
            if name not in self._orders:
                self._orders[name] = permutation.Permutation(
                    total, self._spec.seed + int(digest(name)[:8], 16), small=_TABLE
                )
            ranks = self._ranks[name] + np.arange(len(indices))
            out[indices] = self._orders[name](ranks) < wanted
            self._ranks[name] += len(indices)
        return out


def stratum(batch: Batch, spec: ConversionSpec) -> Array:
    """The stratum of each row: the bytes of the feature in hexadecimal."""
    if spec.by is None:
        return np.zeros(batch.size, "U1")
    return np.array([value.hex() for value in row_selection.values_of(batch, spec.by)], "U")


def _write(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    batches = (finished(batch, spec) for batch, _ in rows(task, spec, so_far))
    return writing(
        task["path"], spec, batches, so_far, part_from(task["parts"][0]), task.get("guard")
    )


def finished(batch: Batch, spec: ConversionSpec) -> Batch:
    """The columns to be written, cast to their target dtypes."""
    chosen = batch if spec.columns is None else batch.select(spec.columns)
    return column_rows.cast(chosen, spec)


def writing(
    path: str,
    spec: ConversionSpec,
    batches: Iterator[Batch],
    so_far: SoFar,
    like: SourcePart,
    lease: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Writes a shard, complete or not at all, and returns its report.

    A shard without records gets the columns of the source `like`. The lease is checked after all
    data is written and before the file becomes visible.
    """
    with storage.writer(path) as file:
        summed = Summed(file)
        sink = formats.named(spec.target).writer(summed, spec)
        try:
            for batch in batches:
                sink.add(batch)
                so_far.records, so_far.bytes = so_far.records + batch.size, summed.size
            if (
                not so_far.records
                and spec.schema is None
                and formats.named(spec.source).declares_columns
            ):
                sink.add(finished(_Complete([like], spec).blank(like.path), spec))
            sink.close()
            check(lease)
        except TensorwireError as error:
            raise error.add(path=storage.shown(path)) from error.__cause__
    entry = storage.stat(path)
    stamp = entry.stamp if entry is not None else ""
    return {
        "records": so_far.records,
        "bytes": summed.size,
        "crc32c": f"{summed.crc:08x}",
        "stamp": stamp,
    }


def _count(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    part = part_from(task["parts"][0])
    check_source(part)
    result = formats.named(spec.source).count(part.path, task["marks"], spec, so_far)
    return {"records": result.records, "step": result.step, "marks": result.marks}


def _strata(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    """Counts the rows of each stratum in a source."""
    counts: Counter[str] = Counter()
    for batch, _ in rows(task, spec, so_far):
        counts.update(stratum(batch, spec).tolist())
        if len(counts) > _STRATA:
            raise DecodeError(
                f"the feature has more than {_STRATA:,} different values",
                tensor=spec.by,
                offset=0,
                hint="pass by= a feature with fewer values",
            )
    return {"strata": dict(counts), "records": sum(counts.values())}


def _stats(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    part = part_from(task["parts"][0])
    check_source(part)
    return statistics.of_source(part, spec, so_far)


def _check(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    return checksum(task["path"])


def checksum(path: str) -> dict[str, Any]:
    """Reads a shard, and returns its size, checksum and stamp, to compare with the manifest."""
    value, offset = 0, 0
    with storage.opened(path, ahead=True) as file:
        buffer = memory.fresh(min(_PIECE, max(1, file.size)))
        while got := file.read_some(offset, buffer):
            value, offset = kernels.crc32c(buffer[:got], value), offset + got
        return {"bytes": offset, "crc32c": f"{value:08x}", "stamp": file.stamp}


def _scatter(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    batches = ((finished(batch, spec), numbers) for batch, numbers in rows(task, spec, so_far))
    return shuffling.scatter(task["path"], batches, spec, lambda: check(task.get("guard")))


def _gather(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    assert spec.bounds is not None
    number, bounds = task["number"], spec.bounds

    def batches() -> Iterator[Batch]:
        for batch in shuffling.gather(task["runs"], task["count"], number, spec):
            yield batch
            so_far.reach(so_far.records / (bounds[number + 1] - bounds[number]))

    return writing(
        task["path"], spec, batches(), so_far, part_from(task["like"]), task.get("guard")
    )


_WORK = {
    "write": _write,
    "count": _count,
    "strata": _strata,
    "stats": _stats,
    "check": _check,
    "scatter": _scatter,
    "gather": _gather,
}
