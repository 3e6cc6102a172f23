"""One task: a pure function of what it is told, which any engine can call on any machine.

    report = run(task, spec)        # both plain JSON: plan.task(i), plan.spec.json()

A shard is written to a temporary file, made durable and renamed (to a bucket: uploaded under its
one name), so it is there whole or not at all, and doing it twice does no harm. What comes back is a
few numbers.
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
"""Values by which a sample may be balanced."""
_TABLE = 1 << 10
"""Records of a stratum up to which its order is held."""
_PIECE = 4 << 20


Tell = Callable[[float, int, int], None]
"""Is told how much of a task's sources is read (0 to 1, as far as that is known), and the records
and bytes that are written.
"""


def run(
    task: dict[str, Any], spec: ConversionSpec | dict[str, Any], tell: Tell | None = None
) -> dict[str, Any]:
    """Does what a task says, and reports. An error knows the source, and the record where there is
    one.
    """
    made = spec if isinstance(spec, ConversionSpec) else ConversionSpec.from_json(spec)
    started = time.perf_counter()
    so_far = SoFar(tell)
    report: dict[str, Any] = _WORK[task["do"]](task, made, so_far)
    return report | {
        "damage": [list(one) for one in so_far.damage],
        "seconds": round(time.perf_counter() - started, 6),
    }


class SoFar(Reading):
    """How far a task is, for whoever wants to know. `share` is of all its parts."""

    def __init__(self, tell: Tell | None = None) -> None:
        super().__init__()
        self.records = self.bytes = 0
        self._tell = tell

    def reach(self, share: float) -> None:
        super().reach(share)
        if self._tell is not None:
            self._tell(share, self.records, self.bytes)


class Summed:
    """A file that counts what is written to it, and takes its checksum."""

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
        """What is behind it is flushed at its end."""

    def close(self) -> None:
        """Whoever opened the file closes it."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def check_source(part: SourcePart) -> None:
    """That a source is what it was when the plan was made."""
    found = storage.stat(part.path)
    if found is None:
        raise FileNotFoundError(f"{storage.shown(part.path)} is gone since the plan was made")
    if (found.size, found.stamp) != (part.size, part.stamp):
        raise DecodeError(
            "the source has changed since the plan was made; run it again",
            path=storage.shown(part.path),
            offset=0,
        )


def rows(
    task: dict[str, Any], spec: ConversionSpec, so_far: SoFar
) -> Iterator[tuple[Batch, Array]]:
    """What a task reads, as far as it goes on; and the number of each row over all sources."""
    condition = row_selection.Condition(spec.where) if spec.where else None
    parts = [part_from(about) for about in task["parts"]]
    weights = [part.size if part.stop is None else part.stop - part.first for part in parts]
    done, total = 0, max(1, sum(weights))
    complete = _Complete(parts, spec)
    for part, weight in zip(parts, weights, strict=True):
        check_source(part)
        picked = _Sample(spec, part) if spec.strata is not None else None
        at, reading = part.first, Reading(so_far.damage)
        for found in formats.named(spec.source).read(part, spec, reading):
            batch = complete(found, part.path)
            numbers = np.arange(at, at + batch.size)
            at += batch.size
            if condition is not None:
                batch, numbers = _kept(batch, numbers, condition(batch))
            if "share" in task:
                batch, numbers = _kept(
                    batch, numbers, _shared(batch, numbers, part, spec, task["share"])
                )
            if picked is not None:
                batch, numbers = _kept(batch, numbers, picked(batch))
            so_far.reach(
                (done + (weight * reading.share if part.stop is None else at - part.first)) / total
            )
            if batch.size:
                yield batch, part.base + numbers
        check_source(part)  # nor has it changed while it was read
        done += weight


class _Complete:
    """Gives each batch the columns of all files, where only they say what there is and some may
    have more than others: those that the plan has looked into, and those that this shard is made
    of."""

    def __init__(self, parts: Sequence[SourcePart], spec: ConversionSpec) -> None:
        self._spec, source = spec, formats.named(spec.source)
        found = (
            [column_rows.unpacked(base64.b64decode(spec.blank))[0]]
            if spec.blank is not None
            else []
        )
        paths = list(dict.fromkeys(part.path for part in parts)) if source.declares_columns else []
        if len(paths) > 1:
            found += column_rows.looked_into(paths, spec, lambda path: source.blank(path, spec))
        known = Batch.union(found)
        typed = [name for name in known if not is_untyped(known[name])]
        self._blank = known.select(typed) if found else None
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
        """A batch without rows."""
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
    """Rows whose hash falls into a share."""
    if spec.by is not None:
        places = row_selection.shares(spec.seed, row_selection.values_of(batch, spec.by))
    else:
        places = permutation.keys(spec.seed, numbers + (part.number << 40)) / 2.0**64
    return (places >= share[0]) & (places < share[1])


class _Sample:
    """Picks rows so that of each stratum exactly as many are picked as are wanted, over all
    sources.
    """

    def __init__(self, spec: ConversionSpec, part: SourcePart) -> None:
        self._spec, self._strata = spec, spec.strata or {}
        self._at = Counter(part.ranks)
        self._orders: dict[str, permutation.Permutation] = {}

    def __call__(self, batch: Batch) -> Array:
        out: Array = np.zeros(batch.size, np.bool_)
        if not batch.size:
            return out
        values = stratum(batch, self._spec)
        order = np.argsort(values, kind="stable")
        found, starts = np.unique(values[order], return_index=True)
        for name, places in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            total, wanted = self._strata.get(name, [0, 0])
            if name not in self._orders:
                self._orders[name] = permutation.Permutation(
                    total, self._spec.seed + int(digest(name)[:8], 16), small=_TABLE
                )
            ranks = self._at[name] + np.arange(len(places))
            out[places] = self._orders[name](ranks) < wanted
            self._at[name] += len(places)
        return out


def stratum(batch: Batch, spec: ConversionSpec) -> Array:
    """What each row is counted under: the feature's bytes in hexadecimal."""
    if spec.by is None:
        return np.zeros(batch.size, "U1")
    return np.array([value.hex() for value in row_selection.values_of(batch, spec.by)], "U")


def _write(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    found = (finished(batch, spec) for batch, _ in rows(task, spec, so_far))
    return writing(
        task["path"], spec, found, so_far, part_from(task["parts"][0]), task.get("guard")
    )


def finished(batch: Batch, spec: ConversionSpec) -> Batch:
    """The columns that are written, as they are written."""
    chosen = batch if spec.columns is None else batch.select(spec.columns)
    return column_rows.cast(chosen, spec)


def writing(
    path: str,
    spec: ConversionSpec,
    found: Iterator[Batch],
    so_far: SoFar,
    like: SourcePart,
    guard: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A shard, whole or not at all. One without records has the columns of a source."""
    with storage.writer(path) as file:
        summed = Summed(file)
        sink = formats.named(spec.target).writer(summed, spec)
        try:
            for batch in found:
                sink.add(batch)
                so_far.records, so_far.bytes = so_far.records + batch.size, summed.size
            if (
                not so_far.records
                and spec.schema is None
                and formats.named(spec.source).declares_columns
            ):
                sink.add(finished(_Complete([like], spec).blank(like.path), spec))
            sink.close()
            check(guard)
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
    found = formats.named(spec.source).count(part.path, task["marks"], spec, so_far)
    return {"records": found.records, "step": found.step, "marks": found.marks}


def _strata(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    """How many rows of each stratum a source has."""
    found: Counter[str] = Counter()
    for batch, _ in rows(task, spec, so_far):
        found.update(stratum(batch, spec).tolist())
        if len(found) > _STRATA:
            raise DecodeError(
                f"more than {_STRATA:,} different values: rows are balanced by a feature with few",
                tensor=spec.by,
                offset=0,
            )
    return {"strata": dict(found), "records": sum(found.values())}


def _stats(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    part = part_from(task["parts"][0])
    check_source(part)
    return statistics.of_source(part, spec, so_far)


def _check(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    return checksum(task["path"])


def checksum(path: str) -> dict[str, Any]:
    """The size, checksum and stamp of a shard as it is, to be compared with the manifest."""
    value, offset = 0, 0
    with storage.opened(path, ahead=True) as file:
        buffer = memory.fresh(min(_PIECE, max(1, file.size)))
        while got := file.read_some(offset, buffer):
            value, offset = kernels.crc32c(buffer[:got], value), offset + got
        return {"bytes": offset, "crc32c": f"{value:08x}", "stamp": file.stamp}


def _scatter(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    found = ((finished(batch, spec), numbers) for batch, numbers in rows(task, spec, so_far))
    return shuffling.scatter(task["path"], found, spec, lambda: check(task.get("guard")))


def _gather(task: dict[str, Any], spec: ConversionSpec, so_far: SoFar) -> dict[str, Any]:
    assert spec.bounds is not None
    number, bounds = task["number"], spec.bounds

    def found() -> Iterator[Batch]:
        for batch in shuffling.gather(task["runs"], task["count"], number, spec):
            yield batch
            so_far.reach(so_far.records / (bounds[number + 1] - bounds[number]))

    return writing(task["path"], spec, found(), so_far, part_from(task["like"]), task.get("guard"))


_WORK = {
    "write": _write, "count": _count, "strata": _strata, "stats": _stats, "check": _check, "scatter": _scatter, "gather": _gather,
}  # fmt: skip
