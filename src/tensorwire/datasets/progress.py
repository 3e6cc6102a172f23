"""How far a run is, and what it made of its sources."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

_SHOWN = 20


@dataclass(frozen=True)
class Progress:
    """What a progress callback is told."""

    shards: int
    of: int
    records: int
    bytes: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take, at the speed so far."""
        return self.seconds / self.shards * (self.of - self.shards) if self.shards else None

    def __str__(self) -> str:
        """
        >>> print(Progress(50, 200, 1_000_000, 80_000_000, 10.0))
        50 of 200 shards, 100,000 records/s, 8.0 MB/s, 30 s left
        """
        left = "" if self.left is None else f", {self.left:.0f} s left"
        speed = f"{self.records_per_second:,.0f} records/s, {self.bytes_per_second / 1e6:,.1f} MB/s"
        return f"{self.shards:,} of {self.of:,} shards, {speed}{left}"


class Meter:
    """Counts, and tells now and then."""

    def __init__(self, total: int, tell: Any, every: float = 0.2) -> None:
        self._total, self._tell, self._every = total, tell, every
        self._start = self._last = time.monotonic()
        self.shards = self.records = self.bytes = 0

    def add(self, records: int, nbytes: int) -> None:
        self.shards, self.records, self.bytes = self.shards + 1, self.records + records, self.bytes + nbytes
        now = time.monotonic()
        if self._tell is not None and (now - self._last >= self._every or self.shards == self._total):
            self._last = now
            self._tell(self.shards / self._total, Progress(self.shards, self._total, self.records, self.bytes, now - self._start))


@dataclass
class Report:
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
        speed = f", {self.records / self.seconds:,.0f} records/s" if self.seconds and self.written == self.shards else ""
        more = {" were there already": self.skipped, " tried again": self.retried, " leftovers removed": self.swept}
        lines = [
            f"{self.target}: {self.records:,} records in {_shards(self.shards)} of {self.bytes:,} bytes, {self.seconds:.1f} s{speed}",
            f"  {_shards(self.written)} written" + "".join(f", {count:,}{what}" for what, count in more.items() if count),
        ]
        lines += [f"  {name}: {count:,} records" for name, count in self.splits.items()]
        if self.damage:
            lines.append(f"  damage in {len(self.damaged):,} files:")
            lines += [f"    {one['why']}" for one in self.damage[:_SHOWN]]
            lines += [f"    ... and {len(self.damage) - _SHOWN:,} more"] if len(self.damage) > _SHOWN else []
        return "\n".join(lines)


def _shards(count: int) -> str:
    return f"{count:,} shard{'' if count == 1 else 's'}"
