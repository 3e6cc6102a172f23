"""The plan of a run, as plain data: the sources, the spec, and what each shard reads.

A plan can be printed, and stored as JSON. Shards are not stored one by one: the part of the sources
that a shard reads follows from a few arrays, so a plan of a million shards is little larger than
the names of its sources.
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
"""The prefix of the folder for the runs of a shuffle. The rest of its name is a hash of the plan,
so that the leftovers of another plan are not mistaken for ours.
"""
RUN = ".run"
_SHOWN = 3


class Split(NamedTuple):
    """One of the datasets of a split: the records whose hash is from `low` up to `high`."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """The plan of a dataset run, made by `datasets.plan`. Each of its `len(plan)` shards is written
    by one task.

    `print(plan)` shows it, `plan.json()` and `Plan.from_json` store it, `plan.task(i)` is the task
    of shard i, and `datasets.run(plan)` executes it.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)})
    >>> made = tw.datasets.plan(f"{folder}/a.tfrecord", f"{folder}/out", "parquet", shards=2)
    >>> [(part.first, part.stop) for part in made.parts(1)]
    [(5, 10)]
    >>> tw.datasets.Plan.from_json(made.json()).shard(1)
    'part-00001-of-00002.parquet'
    """

    spec: ConversionSpec
    target: str
    """The folder, or the single file, that is written."""
    sources: list[FileEntry]
    shards: int
    """The number of shards of each split."""
    name: str = "part"
    single: bool = False
    splits: tuple[Split, ...] = ()
    starts: Array | None = None
    """int64 [sources + 1]: the number of records before each source; None if not counted."""
    marks: list[tuple[int, list[int]]] | None = None
    """For each source (step, offsets): the offsets of every step-th record."""
    ranks: list[dict[str, int]] = field(default_factory=list)
    """For a sample: the number of records of each stratum before each source."""
    damage: list[Any] = field(default_factory=list)
    """Damage that was found when the records were counted: [path, why, bytes]."""

    def __len__(self) -> int:
        return self.shards * max(1, len(self.splits))

    @property
    def size(self) -> int:
        """The bytes of all sources."""
        return sum(entry.size for entry in self.sources)

    @property
    def by_records(self) -> bool:
        """Whether shards are cut by records, and not at the ends of sources."""
        return self.starts is not None and not self.ranks and self.shards != len(self.sources)

    @cached_property
    def suffix(self) -> str:
        """The extension of every shard, such as ".tfrecord.gz"."""
        return rows.suffix(self.spec)

    def shard(self, number: int) -> str:
        """The name of a shard in the folder.

        The name has the number of shards, so a shard of a plan with another number of them is never
        mistaken for one of this plan.
        """
        if self.single:
            return self.target
        split, number = divmod(number, self.shards)
        name = self.splits[split].name if self.splits else self.name
        return f"{name}-{number:05d}-of-{self.shards:05d}{self.suffix}"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the names of the shards of this plan, and of other plans with the same `name` or
        splits, whatever their format or number of shards.
        """
        names = "|".join(re.escape(split.name) for split in self.splits) or re.escape(self.name)
        return re.compile(rf"(?:{names})-\d{{5,}}-of-\d{{5,}}\.[a-z0-9.]+")

    def path(self, name: str) -> str:
        """The path of the shard with this name."""
        return name if self.single else storage.join(self.target, name)

    def parts(self, number: int) -> list[SourcePart]:
        """The parts of the sources that a shard reads; none for a shuffle, whose shards read
        runs.
        """
        number %= self.shards
        if self.spec.shuffle is not None:
            return []
        if self.by_records:
            assert self.starts is not None
            total = int(self.starts[-1])
            parts = list(
                self._between(total * number // self.shards, total * (number + 1) // self.shards)
            )
            # A shard without records still needs a source, which declares its columns.
            return parts or [self.whole(0)._replace(stop=0)]
        count = len(self.sources)
        return [
            self.whole(i)
            for i in range(count * number // self.shards, count * (number + 1) // self.shards)
        ]

    def whole(self, number: int) -> SourcePart:
        """A part that is all of one source."""
        path, size, stamp = self.sources[number]
        base = int(self.starts[number]) if self.starts is not None else 0
        return SourcePart(
            path, size, stamp, number, base=base, ranks=self.ranks[number] if self.ranks else {}
        )

    def _between(self, first: int, stop: int) -> Iterator[SourcePart]:
        """The parts with the records from `first` up to `stop`, numbered over all sources."""
        assert self.starts is not None
        source = bisect.bisect_right(self.starts, first) - 1
        while source < len(self.sources) and self.starts[source] < stop:
            base, end = int(self.starts[source]), int(self.starts[source + 1])
            low, high = max(first, base) - base, min(stop, end) - base
            if low < high:
                mark = self._mark(source, low)
                yield self.whole(source)._replace(first=low, stop=high, mark=mark)
            source += 1

    def _mark(self, source: int, record: int) -> tuple[int, int] | None:
        """(a record, its offset): the last mark before `record`, where a reader can start."""
        step, offsets = self.marks[source] if self.marks is not None else (1, [])
        index = record // step
        return (index * step, offsets[index]) if index < len(offsets) else None

    def task(self, number: int) -> dict[str, Any]:
        """The task of one shard: with the spec, all that a worker needs."""
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
        """The folder for the runs of a shuffle; for a single file it is next to the file."""
        if not self.single:
            return storage.join(
                self.target, f"{BOOKS}/{RUNS}-{digest([self.spec.hash, self.sources_hash])}"
            )
        folder, slash, name = self.target.rpartition("/")
        return f"{folder}{slash}.{name}.shuffle"

    def runs(self) -> list[dict[str, Any]]:
        """The tasks of the first phase of a shuffle, one for each source; none if it is not one."""
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
        """The task of a shard in the second phase of a shuffle. The names of the runs follow from
        their number.
        """
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
        """The key of a shard: a hash of the spec, and of its sources with their sizes and stamps.

        Equal keys mean equal contents. The path is not part of it, so a dataset can be moved.
        """
        contents = {name: value for name, value in task.items() if name not in ("path", "guard")}
        # A task of a shuffle's second phase does not list its sources: it depends on all of them.
        sources = self.sources_hash if task["do"] == "gather" else ""
        return digest([self.spec.hash, sources, contents])

    @cached_property
    def sources_hash(self) -> str:
        """A hash of the paths, sizes and stamps of all sources."""
        hash = hashlib.sha256()
        for entry in self.sources:
            hash.update(
                f"{entry.path}\0{entry.size}\0{entry.stamp}\n".encode("utf-8", "surrogateescape")
            )
        return hash.hexdigest()[:20]

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        out: dict[str, Any] = {
            "spec": self.spec.json(),
            "target": self.target,
            "shards": self.shards,
            "name": self.name,
            "single": self.single,
            "sources": [list(entry) for entry in self.sources],
            "splits": [list(split) for split in self.splits],
        }
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
    def from_json(cls, contents: dict[str, Any]) -> Self:
        """The inverse of `json`."""
        starts = contents.get("starts")
        return cls(
            ConversionSpec.from_json(contents["spec"]),
            contents["target"],
            [FileEntry(*entry) for entry in contents["sources"]],
            contents["shards"],
            contents["name"],
            contents["single"],
            tuple(Split(*split) for split in contents["splits"]),
            None if starts is None else np.array(starts, np.int64),
            [(step, offsets) for step, offsets in contents["marks"]]
            if "marks" in contents
            else None,
            contents.get("ranks", []),
            contents.get("damage", []),
        )

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
    """The file name of a run: the records of one source, sorted by their target shard.

    >>> run_name(7)
    '000007.run'
    """
    return f"{number:06d}{RUN}"


def part_json(part: SourcePart) -> dict[str, Any]:
    """A part as JSON, without the fields that have their default."""
    fields: dict[str, Any] = {
        "path": part.path,
        "size": part.size,
        "stamp": part.stamp,
        "number": part.number,
    }
    for name in ("first", "stop", "mark", "base", "ranks"):
        value = getattr(part, name)
        if value not in (None, 0, {}) or (name == "stop" and value == 0):
            fields[name] = list(value) if name == "mark" else value
    return fields


def part_from(fields: dict[str, Any]) -> SourcePart:
    """The inverse of `part_json`."""
    mark = fields.get("mark")
    return SourcePart(**{**fields, "mark": None if mark is None else (mark[0], mark[1])})


def _shown(parts: Sequence[SourcePart]) -> str:
    first = [
        f"{part.path.rsplit('/', 1)[-1]}[{part.first}:{'' if part.stop is None else part.stop}]"
        for part in parts[:_SHOWN]
    ]
    return " ".join([*first, *([f"... {len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else [])])
