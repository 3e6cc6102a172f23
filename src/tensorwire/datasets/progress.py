"""How far a run is, and what it made of its sources."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from ..core import formatting

_SHOWN = 20


@dataclass(frozen=True)
class Progress:
    """What a progress callback is told."""

    shards: int
    """There, whoever made them."""
    of: int
    """That there will be, as far as is known."""
    records: int
    """Written by this run so far, those of shards that are not ready among them."""
    bytes: int
    seconds: float
    share: float
    """How much of all is done, from 0 to 1."""
    before: float = 0.0
    """How much of it was done before this run."""
    doing: str = ""
    """What is done before the first shard is begun; then nothing."""

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take, at the speed so far."""
        done = self.share - self.before
        return self.seconds / done * (1 - self.share) if done > 0 else None

    def __str__(self) -> str:
        """
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
    """Tells what is done before there is a plan: each thing at once, and now and then how far it
    is.
    """

    def __init__(self, tell: Tell | None, *, every: float = 0.2) -> None:
        self.start = self._last = time.monotonic()
        self._tell, self._every, self._doing = tell, every, ""

    def __call__(self, doing: str, shards: int, done: int = 0, of: int = 0) -> None:
        """`shards` is how many there will be, as far as is known."""
        now = time.monotonic()
        if self._tell is None or (doing == self._doing and now - self._last < self._every):
            return
        self._last, self._doing = now, doing
        words = f"{doing}, {done:,} of {of:,} files" if of else doing
        self._tell(0.0, Progress(0, shards, 0, 0, now - self.start, 0.0, doing=words))


class Meter:
    """Counts, and tells now and then. Many threads may call it: the tasks of a run are made where
    there is room for them. Whoever is told is told by one at a time, in order.

    total   shards that there will be
    first   tasks that come before them, as half of the work
    """

    def __init__(
        self, total: int, tell: Tell | None, first: int = 0, *, every: float = 0.2
    ) -> None:
        self._total, self._tell, self._first, self._every = total, tell, first, every
        self._start = self._last = time.monotonic()
        self._shards = self._prepared = self._records = self._bytes = 0
        self._before = 0.0
        self._under_way: dict[int, tuple[float, int, int]] = {}
        self._lock = threading.RLock()  # whoever is told may come back in the same thread

    def found(self, shard: bool = True) -> None:
        """One is there, made by an earlier run."""
        with self._lock:
            was = self._share()
            self._shards, self._prepared = self._shards + shard, self._prepared + (not shard)
            self._before += self._share() - was
            self._now()

    def made(self, task: dict[str, Any], records: int, nbytes: int) -> None:
        """A shard is ready."""
        with self._lock:
            self._under_way.pop(task["number"], None)
            self._shards, self._records, self._bytes = (
                self._shards + 1,
                self._records + records,
                self._bytes + nbytes,
            )
            self._now()

    def prepared(self, task: dict[str, Any]) -> None:
        """One of the first tasks is ready."""
        with self._lock:
            self._under_way.pop(task["number"], None)
            self._prepared += 1
            self._now()

    def watch(self, task: dict[str, Any], share: float, records: int, nbytes: int) -> None:
        """How far a task is."""
        with self._lock:
            self._under_way[task["number"]] = share, records, nbytes
            self._now()

    def _share(self) -> float:
        if self._shards == self._total:
            return 1.0
        going = sum(one[0] for one in self._under_way.values())
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
        records = self._records + sum(one[1] for one in self._under_way.values())
        nbytes = self._bytes + sum(one[2] for one in self._under_way.values())
        told = Progress(
            self._shards,
            self._total,
            records,
            nbytes,
            now - self._start,
            self._share(),
            self._before,
        )
        self._tell(told.share, told)


@dataclass
class DatasetReport:
    """What came of a run. `json()` is for machines, `str()` for people."""

    target: str
    shards: int
    written: int = 0
    """Made by this run; the others were there."""
    records: int = 0
    bytes: int = 0
    """Of all shards."""
    retried: int = 0
    """Tasks that took more than one try."""
    damage: list[dict[str, Any]] = field(default_factory=list)
    """What could not be read: path, why, bytes. Only with on_corrupt="skip"."""
    swept: int = 0
    """Leftovers that were removed."""
    seconds: float = 0.0
    splits: dict[str, int] = field(default_factory=dict)
    """Records by split."""

    @property
    def skipped(self) -> int:
        """Shards that were there already, and are what they should be."""
        return self.shards - self.written

    @property
    def damaged(self) -> list[str]:
        """Every file with damage."""
        return sorted({one["path"] for one in self.damage})

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
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
                f"{self.target}: {formatting.plural(self.records, 'record')} in"
                f" {formatting.plural(self.shards, 'shard')}, {formatting.size(self.bytes)}, {self.seconds:.1f} s{speed}"
            ),
            f"  {formatting.plural(self.written, 'shard')} written"
            + "".join(f", {count:,}{what}" for what, count in more.items() if count),
        ]
        lines += [f"  {name}: {count:,} records" for name, count in self.splits.items()]
        if self.damage:
            lines.append(f"  damage in {len(self.damaged):,} files:")
            lines += [f"    {one['why']}" for one in self.damage[:_SHOWN]]
            lines += (
                [f"    ... and {len(self.damage) - _SHOWN:,} more"]
                if len(self.damage) > _SHOWN
                else []
            )
        return "\n".join(lines)

    __repr__ = __str__
