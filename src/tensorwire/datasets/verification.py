"""Verification of a dataset's folder against its manifest: every shard must exist with its size and
checksum, and no other data file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .. import storage
from .._errors import DecodeError, TensorwireError, TransportError
from ..codecs import rows
from ..codecs.conversion_spec import ConversionSpec
from ..records.paths import BOOKS
from . import planner
from .manifest import Manifest, ManifestLine
from .shard_plan import Plan, Split
from .task import checksum

_SHOWN = 20


@dataclass(frozen=True)
class DatasetVerification:
    """The result of `tw.verify` for a dataset: `ok`, and the problems if it is not intact. It is
    true if the dataset is intact.
    """

    ok: bool
    path: str
    format: str | None
    shards: int
    """The number of shards that are equal to the manifest."""
    records: int
    """The number of records in these shards, as the manifest says."""
    nbytes: int
    checksums: bool
    problems: list[str]

    def __bool__(self) -> bool:
        return self.ok

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        state = "whole" if self.ok else "NOT whole"
        sums = f"{self.shards:,} shards, {self.records:,} records, {self.nbytes:,} bytes read"
        lines = [f"{self.path}: {state}, {sums}, with checksums", *self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"... and {len(self.problems) - _SHOWN:,} more")
        return "\n  ".join(lines)


def verify_dataset(
    where: str | os.PathLike[str],
    progress: Callable[[int, int], None] | None = None,
) -> DatasetVerification:
    """Compares the size and CRC32C of every shard of a dataset with the manifest."""
    folder = storage.normal(os.fspath(where))
    manifest = Manifest(folder)
    lines = manifest.read()
    try:
        names, format = _shards(manifest, folder, len(lines))
    except TransportError:
        raise
    except TensorwireError as error:
        path = storage.join(folder, f"{BOOKS}/manifest.json")
        problem = str(error.add(path=storage.shown(path)))
        return DatasetVerification(False, storage.shown(folder), None, 0, 0, 0, True, [problem])
    problems = _unfinished(manifest, names, lines)
    prefix = folder.rstrip("/") + "/"
    entries = {entry.path.removeprefix(prefix): entry for entry in storage.listing(folder)}
    total = sum(entries[name].size for name in names if name in entries)
    shards = records = nbytes = 0
    for name in names:
        line = lines.get(name)
        if line is None or name not in entries:
            problems.append(
                f"{name} {'is missing' if line is not None else 'has no line in the manifest'}"
            )
            continue
        difference, size = _compared(storage.join(folder, name), line)
        nbytes += size
        if difference is None:
            shards, records = shards + 1, records + line.records
        else:
            problems.append(f"{name} {difference}")
        if progress is not None:
            progress(nbytes, max(total, nbytes))
    for name in sorted(entries.keys() - set(names)):
        if rows.of_name(name) is not None and not name.startswith(("_", ".")) and "/" not in name:
            problems.append(
                f"{name} is not a shard of this dataset, but readers of the folder would read it"
            )
    return DatasetVerification(
        not problems, storage.shown(folder), format, shards, records, nbytes, True, problems
    )


def _shards(manifest: Manifest, folder: str, most: int) -> tuple[list[str], str]:
    """(the names of the shards, their format), as manifest.json says."""
    contents = manifest.about()
    # manifest.json may hold anything, and the number of its shards must not exceed the lines that
    # exist: otherwise a damaged one would make a list without end.
    try:
        if contents is None:
            raise ValueError("manifest.json does not exist")
        spec = ConversionSpec.from_json(contents["spec"])
        splits = tuple(Split(*split) for split in contents.get("splits", []))
        count, name = contents["shards"], contents.get("name", "part")
        if not isinstance(count, int) or not 0 < count <= most:
            raise ValueError(f"it says {count!r} shards, and has lines for {most}")
        for part in (name, *(split.name for split in splits)):
            planner.check_name(part)
        plan = Plan(spec, folder, [], count // max(1, len(splits)), name, splits=splits)
        return [plan.shard(number) for number in range(len(plan))], spec.target
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        if isinstance(error, TensorwireError):
            raise
        raise DecodeError(
            f"the manifest is damaged: {error}", format="manifest", offset=0
        ) from None


def _unfinished(manifest: Manifest, names: list[str], lines: dict[str, ManifestLine]) -> list[str]:
    """The differences between _SUCCESS and the manifest, or that _SUCCESS is missing."""
    sums = manifest.finished()
    if sums is None:
        return ["the dataset is not finished: it has no _SUCCESS file; run its conversion again"]
    made = [lines[name] for name in names if name in lines]
    totals = {
        "shards": len(made),
        "records": sum(line.records for line in made),
        "bytes": sum(line.size for line in made),
    }
    return [
        f"_SUCCESS says {sums.get(name)!r:.40} {name}, and the manifest {count:,}"
        for name, count in totals.items()
        if sums.get(name) != count
    ]


def _compared(path: str, line: ManifestLine) -> tuple[str | None, int]:
    """(the difference from the manifest or None, bytes read)"""
    try:
        actual = checksum(path)
    except TransportError:
        raise
    except (OSError, TensorwireError) as error:
        return f"cannot be read: {error}", 0
    size: int = actual["bytes"]
    if size != line.size:
        return f"has {size:,} bytes, and the manifest says {line.size:,}", size
    if actual["crc32c"] != line.crc32c:
        return (
            f"has the checksum {actual['crc32c']}, and the manifest says {line.crc32c!r:.20}",
            size,
        )
    return None, size
