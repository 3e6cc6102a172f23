"""What a run will do, as plain data: the sources, the spec, and for each shard what it reads. A
plan can be printed, and kept as JSON.

Shards are not held one by one: which part of which source a shard has follows from a few arrays, so
a plan of a million shards is little more than the names of its sources.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from .. import storage
from ..codecs import rows
from ..codecs.conversion_spec import ConversionSpec, digest
from ..codecs.rows import SourcePart
from ..core.tensors import Array
from ..records.paths import BOOKS
from ..storage import FileEntry

RUNS = "shuffle"
"""The folder of a shuffle's runs begins so. Another plan has another: what it has left is not
mistaken for ours.
"""
RUN = ".run"
_SHOWN = 3


class Split(NamedTuple):
    """A dataset among several that are made of the same sources: those whose hash falls between two
    bounds.
    """

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """Made by `plan(...)`; `len(plan)` shards, each made by one task."""

    spec: ConversionSpec
    target: str
    """A folder, or the one file that is written."""
    sources: list[FileEntry]
    shards: int
    """Of each split."""
    name: str = "part"
    single: bool = False
    splits: tuple[Split, ...] = ()
    starts: Array | None = None
    """int64 [sources + 1]: how many records come before each source, where that is known."""
    marks: list[tuple[int, list[int]]] | None = None
    """For each source: where every how many-th of its records begins."""
    ranks: list[dict[str, int]] = field(default_factory=list)
    """For a sample: how many records of each stratum come before each source."""
    damage: list[Any] = field(default_factory=list)
    """What could not be read when the records were counted: [path, why, bytes]."""

    def __len__(self) -> int:
        return self.shards * max(1, len(self.splits))

    @property
    def size(self) -> int:
        """Bytes of all sources."""
        return sum(entry.size for entry in self.sources)

    @property
    def by_records(self) -> bool:
        """Whether shards are cut by records, and not where sources end."""
        return self.starts is not None and not self.ranks and self.shards != len(self.sources)

    @cached_property
    def suffix(self) -> str:
        return rows.suffix(self.spec)

    def shard(self, number: int) -> str:
        """The name of a shard in the folder.

        Which numbers and how many is in the name, so a shard of another plan is never taken for one
        of this.
        """
        if self.single:
            return self.target
        split, number = divmod(number, self.shards)
        name = self.splits[split].name if self.splits else self.name
        return f"{name}-{number:05d}-of-{self.shards:05d}{self.suffix}"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Names of shards of this plan, and of others that were written to the same place under the
        same names.
        """
        names = "|".join(re.escape(split.name) for split in self.splits) or re.escape(self.name)
        return re.compile(rf"(?:{names})-\d{{5,}}-of-\d{{5,}}\.[a-z0-9.]+")

    def path(self, name: str) -> str:
        return name if self.single else storage.join(self.target, name)

    def parts(self, number: int) -> list[SourcePart]:
        """What a shard reads."""
        number %= self.shards
        if self.spec.shuffle is not None:
            return []
        if self.by_records:
            assert self.starts is not None
            total = int(self.starts[-1])
            found = list(
                self._between(total * number // self.shards, total * (number + 1) // self.shards)
            )
            return found or [self.whole(0)._replace(stop=0)]  # no records, but it knows the columns
        count = len(self.sources)
        return [
            self.whole(i)
            for i in range(count * number // self.shards, count * (number + 1) // self.shards)
        ]

    def whole(self, number: int) -> SourcePart:
        """All of one source."""
        path, size, stamp = self.sources[number]
        base = int(self.starts[number]) if self.starts is not None else 0
        return SourcePart(
            path, size, stamp, number, base=base, ranks=self.ranks[number] if self.ranks else {}
        )

    def _between(self, first: int, stop: int) -> Iterator[SourcePart]:
        """The records from, to, counted over all sources."""
        assert self.starts is not None
        at = bisect.bisect_right(self.starts, first) - 1
        while at < len(self.sources) and self.starts[at] < stop:
            base, end = int(self.starts[at]), int(self.starts[at + 1])
            low, high = max(first, base) - base, min(stop, end) - base
            if low < high:
                yield self.whole(at)._replace(first=low, stop=high, mark=self._mark(at, low))
            at += 1

    def _mark(self, source: int, record: int) -> tuple[int, int] | None:
        step, offsets = self.marks[source] if self.marks is not None else (1, [])
        place = record // step
        return (place * step, offsets[place]) if place < len(offsets) else None

    def task(self, number: int) -> dict[str, Any]:
        """What a worker is told, besides the spec: one shard."""
        task = {
            "do": "write",
            "number": number,
            "path": self.path(self.shard(number)),
            "parts": [part_json(part) for part in self.parts(number)],
        }
        if self.splits:
            split = self.splits[number // self.shards]
            task["share"] = [split.low, split.high]
        return task

    @property
    def runs_folder(self) -> str:
        """For a shuffle: where the records wait between its halves. Of one file, that is beside it."""
        if not self.single:
            return storage.join(
                self.target, f"{BOOKS}/{RUNS}-{digest([self.spec.hash, self.sources_hash])}"
            )
        folder, slash, name = self.target.rpartition("/")
        return f"{folder}{slash}.{name}.shuffle"

    def runs(self) -> list[dict[str, Any]]:
        """For a shuffle: the tasks of its first half, each of one source."""
        if self.spec.shuffle is None:
            return []
        return [
            {
                "do": "scatter",
                "number": i,
                "path": storage.join(self.runs_folder, run_name(i)),
                "parts": [part_json(self.whole(i))],
            }
            for i in range(len(self.sources))
        ]

    def gathered(self, number: int) -> dict[str, Any]:
        """For a shuffle: a task of its second half. Which runs there are follows from their number."""
        path = self.path(self.shard(number))
        like = part_json(self.whole(0)._replace(stop=0))
        return {
            "do": "gather",
            "number": number,
            "path": path,
            "runs": self.runs_folder,
            "count": len(self.sources),
            "like": like,
        }

    def key(self, task: dict[str, Any]) -> str:
        """A shard with another key is another shard: it hangs on the spec, and on the sources as
        they are.
        """
        known = {name: value for name, value in task.items() if name not in ("path", "guard")}
        return digest([self.spec.hash, self.sources_hash if task["do"] == "gather" else "", known])

    @cached_property
    def sources_hash(self) -> str:
        found = hashlib.sha256()
        for entry in self.sources:
            found.update(
                f"{entry.path}\0{entry.size}\0{entry.stamp}\n".encode("utf-8", "surrogateescape")
            )
        return found.hexdigest()[:20]

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        out: dict[str, Any] = {
            "spec": self.spec.json(), "target": self.target, "shards": self.shards, "name": self.name, "single": self.single,
            "sources": [list(entry) for entry in self.sources], "splits": [list(split) for split in self.splits],
        }  # fmt: skip
        if self.starts is not None:
            out["starts"] = self.starts.tolist()
        if self.marks is not None:
            out["marks"] = [list(mark) for mark in self.marks]
        if self.ranks:
            out["ranks"] = self.ranks
        if self.damage:
            out["damage"] = self.damage
        return out

    @classmethod
    def from_json(cls, about: dict[str, Any]) -> Self:
        """The inverse of `json`."""
        starts = about.get("starts")
        return cls(
            ConversionSpec.from_json(about["spec"]), about["target"],
            [FileEntry(*entry) for entry in about["sources"]], about["shards"], about["name"],
            about["single"], tuple(Split(*split) for split in about["splits"]), None if starts is None else np.array(starts, np.int64),
            [(step, offsets) for step, offsets in about["marks"]] if "marks" in about else None,
            about.get("ranks", []), about.get("damage", []),
        )  # fmt: skip

    def __str__(self) -> str:
        spec = self.spec
        total = f", {int(self.starts[-1]):,} records" if self.starts is not None else ""
        lines = [f"{len(self.sources):,} sources of {spec.source}, {self.size:,} bytes{total}"]
        lines += [
            f"  {storage.shown(entry.path)}  {entry.size:,}" for entry in self.sources[:_SHOWN]
        ]
        lines += (
            [f"  ... {len(self.sources) - _SHOWN:,} more"] if len(self.sources) > _SHOWN else []
        )
        lines.append(
            f"-> {len(self):,} shards of {spec.target} in {storage.shown(self.target)}, spec"
            f" {spec.hash}"
        )
        lines += [
            f"  {self.shard(i)}  {_shown(self.parts(i))}".rstrip()
            for i in range(min(len(self), _SHOWN))
        ]
        lines += [f"  ... {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []
        how = {
            name: value
            for name, value in spec.json().items()
            if name not in ("version", "source", "target", "features", "bounds", "memory", "strict")
        }
        lines += [f"{name} {value}" for name, value in how.items()]
        if spec.schema is not None:
            lines.append(repr(spec.schema))
        return "\n".join(lines)


def run_name(number: int) -> str:
    """The name of the records of one source, sorted by the shard that they go to.

    >>> run_name(7)
    '000007.run'
    """
    return f"{number:06d}{RUN}"


def part_json(part: SourcePart) -> dict[str, Any]:
    """Without what has its default."""
    known: dict[str, Any] = {
        "path": part.path,
        "size": part.size,
        "stamp": part.stamp,
        "number": part.number,
    }
    for name in ("first", "stop", "mark", "base", "ranks"):
        value = getattr(part, name)
        if value not in (None, 0, {}) or (name == "stop" and value == 0):
            known[name] = list(value) if name == "mark" else value
    return known


def part_from(about: dict[str, Any]) -> SourcePart:
    mark = about.get("mark")
    return SourcePart(**{**about, "mark": None if mark is None else (mark[0], mark[1])})


def _shown(parts: Sequence[SourcePart]) -> str:
    first = [
        f"{part.path.rsplit('/', 1)[-1]}[{part.first}:{'' if part.stop is None else part.stop}]"
        for part in parts[:_SHOWN]
    ]
    return " ".join([*first, *([f"... {len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else [])])
