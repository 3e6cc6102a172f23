"""Progress callbacks of a dataset run, and the report at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

_SHOWN = 20


@dataclass(frozen=True)
class Progress:
    """The progress of a run, as a progress callback gets it. `str()` is a line for people.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder, seen = tempfile.mkdtemp(), []
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)})
    >>> _ = tw.convert(f"{folder}/a.tfrecord", f"{folder}/out", to="jsonl", workers=0,
    ...     progress=lambda share, progress: seen.append(progress))
    >>> seen[-1].shards, seen[-1].of, seen[-1].share
    (1, 1, 1.0)
    """

    shards: int
    """Shards that are complete, including those of earlier runs."""
    of: int
    """The number of shards in total, as far as it is known."""
    records: int
    """Records that this run has written, including those of unfinished shards."""
    bytes: int
    seconds: float
    share: float
    """The share of the whole work that is done, from 0 to 1."""
    before: float = 0.0
    """The share that was done before this run."""
    doing: str = ""
    """The current step of planning; empty once shards are written."""

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """The estimated seconds until the end, at the speed so far; None if nothing is done yet."""
        done = self.share - self.before
        return self.seconds / done * (1 - self.share) if done > 0 else None

    def __str__(self) -> str:
        """The current step, or shards, speed and the time left.

        >>> print(Progress(50, 200, 1_000_000, 80_000_000, 10.0, 0.25))
        50 of 200 shards, 100,000 records/s, 8.0 MB/s, 30 s left
        """
        if self.doing:
            return self.doing
        left = "" if self.left is None else f", {self.left:.0f} s left"
        speed = f"{self.records_per_second:,.0f} records/s, {self.bytes_per_second / 1e6:,.1f} MB/s"
        return f"{self.shards:,} of {self.of:,} shards, {speed}{left}"


Tell = Callable[[float, Progress], None]


class Beginning:
    """Reports the steps of planning: each step when it begins, and its progress now and then."""

    def __init__(self, tell: Tell | None, *, every: float = 0.2) -> None:
        self.start = self._last = time.monotonic()
        self._tell, self._every, self._doing = tell, every, ""

    def __call__(self, doing: str, shards: int, done: int = 0, of: int = 0) -> None:
        """`shards` is the number of shards in total, as far as it is known."""
        now = time.monotonic()
        if self._tell is None or (doing == self._doing and now - self._last < self._every):
            return
        self._last, self._doing = now, doing
        step = f"{doing}, {done:,} of {of:,} files" if of else doing
        self._tell(0.0, Progress(0, shards, 0, 0, now - self.start, 0.0, doing=step))


class Meter:
    """Counts what is done, and calls the progress callback now and then.

    Engines call it from several threads. The callback is never called concurrently.

    total   the number of shards
    first   the number of tasks before the first shard (the runs of a shuffle), which count as half
            of the work
    """

    def __init__(
        self, total: int, tell: Tell | None, first: int = 0, *, every: float = 0.2
    ) -> None:
        self._total, self._tell, self._first, self._every = total, tell, first, every
        self._start = self._last = time.monotonic()
        self._shards = self._prepared = self._records = self._bytes = 0
        self._before = 0.0
        self._under_way: dict[int, tuple[float, int, int]] = {}
        # Reentrant, because a callback may cause another call in the same thread.
        self._lock = threading.RLock()

    def resumed(self, shard: bool = True) -> None:
        """Counts a shard, or a first task, that an earlier run has done."""
        with self._lock:
            share = self._share()
            self._shards, self._prepared = self._shards + shard, self._prepared + (not shard)
            self._before += self._share() - share
            self._now()

    def made(self, task: dict[str, Any], records: int, nbytes: int) -> None:
        """Counts a shard that this run has written."""
        with self._lock:
            self._under_way.pop(task["number"], None)
            self._shards, self._records, self._bytes = (
                self._shards + 1,
                self._records + records,
                self._bytes + nbytes,
            )
            self._now()

    def prepared(self, task: dict[str, Any]) -> None:
        """Counts one of the first tasks."""
        with self._lock:
            self._under_way.pop(task["number"], None)
            self._prepared += 1
            self._now()

    def watch(self, task: dict[str, Any], share: float, records: int, nbytes: int) -> None:
        """Sets the progress of a task that is running."""
        with self._lock:
            self._under_way[task["number"]] = share, records, nbytes
            self._now()

    def _share(self) -> float:
        if self._shards == self._total:
            return 1.0
        going = sum(share for share, _, _ in self._under_way.values())
        if not self._first:
            return (self._shards + going) / self._total
        early = going if self._prepared < self._first else 0.0
        return (self._prepared + early) / self._first / 2 + (
            self._shards + going - early
        ) / self._total / 2

    def _now(self) -> None:
        now = time.monotonic()
        if self._tell is None or (now - self._last < self._every and self._shards != self._total):
            return
        self._last = now
        records = self._records + sum(records for _, records, _ in self._under_way.values())
        nbytes = self._bytes + sum(nbytes for _, _, nbytes in self._under_way.values())
        progress = Progress(
            self._shards,
            self._total,
            records,
            nbytes,
            now - self._start,
            self._share(),
            self._before,
        )
        self._tell(progress.share, progress)


@dataclass
class DatasetReport:
    """The result of a dataset run. `json()` is for machines, `str()` for people.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)}, shards=2)
    >>> report = tw.convert(f"{folder}/a-*.tfrecord", f"{folder}/out", to="jsonl", workers=0)
    >>> report.shards, report.written, report.skipped, report.records
    (2, 2, 0, 10)
    """

    target: str
    shards: int
    written: int = 0
    """Shards that this run has written."""
    records: int = 0
    """Records in all shards."""
    bytes: int = 0
    """Bytes of all shards."""
    retried: int = 0
    """Tasks that took more than one attempt."""
    damage: list[dict[str, Any]] = field(default_factory=list)
    """Data that could not be read: path, why, bytes. Only with on_corrupt="skip"."""
    swept: int = 0
    """Files of earlier runs that were removed."""
    seconds: float = 0.0
    splits: dict[str, int] = field(default_factory=dict)
    """The number of records of each split."""

    @property
    def skipped(self) -> int:
        """Shards of an earlier run that were intact."""
        return self.shards - self.written

    @property
    def damaged(self) -> list[str]:
        """The paths of all files with damage."""
        return sorted({entry["path"] for entry in self.damage})

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        return {**asdict(self), "skipped": self.skipped, "damaged": self.damaged}

    def __str__(self) -> str:
        speed = (
            f", {self.records / self.seconds:,.0f} records/s"
            if self.seconds and self.written == self.shards
            else ""
        )
        more = {
            " were there already": self.skipped,
            " tried again": self.retried,
            " leftovers removed": self.swept,
        }
        lines = [
            (
                f"{self.target}: {self.records:,} records in {_shards(self.shards)} of"
                f" {self.bytes:,} bytes, {self.seconds:.1f} s{speed}"
            ),
            f"  {_shards(self.written)} written"
            + "".join(f", {count:,}{what}" for what, count in more.items() if count),
        ]
        lines += [f"  {name}: {count:,} records" for name, count in self.splits.items()]
        if self.damage:
            lines.append(f"  damage in {len(self.damaged):,} files:")
            lines += [f"    {entry['why']}" for entry in self.damage[:_SHOWN]]
            lines += (
                [f"    ... and {len(self.damage) - _SHOWN:,} more"]
                if len(self.damage) > _SHOWN
                else []
            )
        return "\n".join(lines)


def _shards(count: int) -> str:
    return f"{count:,} shard{'' if count == 1 else 's'}"
