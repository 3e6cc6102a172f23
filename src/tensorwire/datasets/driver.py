"""The dataset driver: executes a plan with an engine, and records what is done in the manifest.

1. The driver handles names and numbers, never data. A shard costs one small task out, one small
   report in, and one line of the manifest.
2. A dataset has one writer at a time. The target is checked first without the lock, so that a
   mistake changes nothing, and once more with it, because another run may have finished meanwhile.
3. Before the first new shard is written, `_SUCCESS` and all old shards that this plan would not
   write are removed. Readers never see two generations in one folder.
4. A shard is skipped if its line in the manifest has the key of its task (a hash of the spec and of
   the sources) and the file has the recorded size and stamp. If only the stamp differs, a worker
   compares the checksum.
5. All other tasks go to the engine. Outcomes come in any order, and each task has exactly one. The
   line of a shard is written after the shard itself, so a crash costs repeated work, never a
   missing shard.
6. At the end the folder is listed. Every shard must be there with the size that its worker
   reported. Then the leftovers of earlier runs are removed, and `_SUCCESS` is written last.

A target that is a single file needs no manifest: it is replaced atomically.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from typing import Any

from .. import storage
from .._errors import TensorwireError, UsageError
from ..records.paths import BOOKS, SCHEMA, dataset
from ..records.schema import FileMark
from ..storage import FileEntry, files
from . import engines, planner
from .engines import Engine, Outcome
from .manifest import SEEN, Manifest, ManifestLine, check, is_ours, is_temporary, sweep
from .progress import Beginning, DatasetReport, Meter, Tell
from .shard_plan import RUN, RUNS, Plan

_MARKED = 10_000
"""The schema file lists the sizes of at most so many shards: every reader parses that list."""


def plan_and_execute(
    make: Callable[[Engine, Beginning], Plan],
    engine: Any,
    workers: int | None,
    options: Mapping[str, Any] | None,
    dry_run: bool,
    *,
    resume: bool,
    verify: bool,
    overwrite: bool,
    progress: Tell | None,
) -> DatasetReport | Plan:
    """Makes a plan and executes it; returns the plan itself if this is a dry run."""
    beginning = Beginning(progress)
    with engines.using(engine, workers, options) as opened:
        plan = make(opened, beginning)
        if dry_run:
            return plan
        return execute(
            plan,
            opened,
            resume=resume,
            verify=verify,
            overwrite=overwrite,
            progress=progress,
            since=beginning.start,
        )


def execute(
    plan: Plan,
    engine: Engine,
    *,
    resume: bool = True,
    verify: bool = False,
    overwrite: bool = False,
    progress: Tell | None = None,
    since: float | None = None,
) -> DatasetReport:
    """Executes a plan, and skips the shards of an earlier run that are intact.

    `verify` reads these shards and compares their checksums with the manifest.
    """
    started = time.monotonic() if since is None else since
    if plan.single:
        report = _one(plan, engine, overwrite, progress)
    else:
        report = _many(plan, engine, resume, verify, overwrite, progress)
    _note(report, plan.damage)
    # Each task that reads a part of a file reports all damage of that file.
    once = {tuple(entry.values()): entry for entry in report.damage}
    report.damage = [once[key] for key in sorted(once)]
    report.seconds = time.monotonic() - started
    return report


def _one(plan: Plan, engine: Engine, overwrite: bool, progress: Tell | None) -> DatasetReport:
    """Writes a single file, which appears complete or not at all and so needs no manifest."""
    storage.check_replaceable(plan.target, overwrite)
    if any(_is_same(entry.path, plan.target) for entry in plan.sources):
        raise UsageError(
            "a file cannot be converted to itself",
            path=plan.target,
            hint="write to another path, and rename the file afterwards",
        )
    report, runs = DatasetReport(plan.target, 1), plan.runs()
    meter = Meter(1, progress, len(runs))
    try:
        with engines.watched(engine, meter.watch):
            if runs:
                _make_folder(plan.runs_folder)
                for outcome in planner.answered(engine.run(plan.spec, runs), len(runs)):
                    _note(report, planner.reported(outcome)["damage"])
                    report.retried += int(outcome.attempts > 1)
                    meter.prepared(outcome.task)
            for outcome in planner.answered(
                engine.run(plan.spec, [plan.gathered(0) if runs else plan.task(0)]), 1
            ):
                done = planner.reported(outcome)
                _count(report, done["records"], done["bytes"], done["damage"])
                report.written, report.retried = 1, report.retried + int(outcome.attempts > 1)
                meter.made(outcome.task, done["records"], done["bytes"])
    finally:
        if runs:
            _remove_runs(plan)
    _save_schema(plan, [entry] if (entry := storage.stat(plan.target)) else [])
    return report


def _is_same(path: str, other: str) -> bool:
    if storage.is_url(path) or storage.is_url(other):
        return storage.normal(path) == storage.normal(other)
    return os.path.exists(other) and os.path.samefile(path, other)


def _make_folder(path: str) -> None:
    if not storage.is_url(path):
        os.makedirs(path, exist_ok=True)


def _remove_runs(plan: Plan) -> None:
    """Removes the temporary runs of a shuffle, including those that a killed driver has left."""
    within = plan.runs_folder if plan.single else storage.join(plan.target, BOOKS)
    folders = {plan.runs_folder}
    for entry in storage.listing(within):
        folder, _, name = entry.path.rpartition("/")
        if (plan.single or _is_runs(folder)) and (name.endswith(RUN) or is_temporary(name)):
            storage.delete(entry.path)
            folders.add(folder)
    for folder in folders if not storage.is_url(plan.runs_folder) else ():
        # A folder that holds a file of another program stays.
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _is_runs(folder: str) -> bool:
    above, _, name = folder.rpartition("/")
    return above.rpartition("/")[2] == BOOKS and name.startswith(RUNS)


def _many(
    plan: Plan,
    engine: Engine,
    resume: bool,
    verify: bool,
    overwrite: bool,
    progress: Tell | None,
) -> DatasetReport:
    manifest = Manifest(plan.target)
    _check_place(plan, manifest, overwrite)
    _make_folder(plan.runs_folder if plan.spec.shuffle is not None else plan.target)
    with manifest.locked():
        # Another run may have written here between the first check and the lock.
        _check_place(plan, manifest, overwrite)
        run = _Run(plan, engine, manifest, resume, verify, progress)
        _check_sources(plan, run.recorded)
        removed = manifest.open(plan, run.remove_old_shards)
        report = run.all()
        entries = [
            entry
            for entry in storage.listing(plan.target)
            if not _is_runs(entry.path.rpartition("/")[0])
        ]
        # If another run has taken the lease, the files to be removed may be its shards.
        check(manifest.lease)
        others = _check_all(plan, run.recorded, entries)
        _save_schema(plan, entries)
        _remove_runs(plan)
        report.swept = removed + sweep(plan, run.recorded, others)
        manifest.succeed(
            {
                "shards": report.shards,
                "records": report.records,
                "bytes": report.bytes,
                "spec": plan.spec.hash,
            }
        )
        return report


def _check_all(
    plan: Plan, made: dict[str, tuple[int, str]], entries: list[FileEntry]
) -> list[FileEntry]:
    """Checks that every shard exists as the manifest says, and returns all other files.

    A worker that sees another disk reports shards that the driver cannot find, and in a bucket
    another run may have replaced a shard.
    """
    prefix, others = plan.target.rstrip("/") + "/", []
    missing = {plan.shard(i) for i in range(len(plan))}
    for entry in entries:
        name = entry.path.removeprefix(prefix)
        if name not in missing:
            others.append(entry)
            continue
        missing.remove(name)
        size, stamp = made.get(name, (-1, ""))
        if entry.size != size:
            if name in made:
                problem = f"a shard has {entry.size:,} bytes, and its worker reported {size:,}"
            else:
                problem = "a shard exists that is not in the manifest"
            raise TensorwireError(problem, path=plan.path(name), hint=SEEN)
        if (
            storage.is_url(plan.target)
            and entry.stamp != stamp
            and not _has_stamp(plan.path(name), stamp)
        ):
            raise TensorwireError(
                "a shard was replaced by another run",
                path=plan.path(name),
                hint="run this conversion again",
            )
    if missing:
        raise TensorwireError(
            "a shard that a worker has written does not exist",
            path=plan.path(min(missing)),
            hint=SEEN,
        )
    return others


def _has_stamp(path: str, stamp: str) -> bool:
    """Whether an object has this stamp. Some stores list another one than they return for it."""
    entry = storage.stat(path)
    return entry is not None and entry.stamp == stamp


def _save_schema(plan: Plan, entries: list[FileEntry]) -> None:
    """Writes the schema sidecar file of the shards, with the size of each.

    It is named after the name that all shards share, without their numbers.
    """
    schema = planner.written_schema(plan.spec, plan.sources)
    sizes = {os.path.basename(entry.path): entry.size for entry in entries}
    names = [split.name for split in plan.splits] or [plan.name]
    shared = [storage.join(plan.target, name + plan.suffix) for name in names]
    for path in [plan.target] if plan.single else shared:
        if schema is not None:
            shards = [shard for shard in sizes if dataset(shard) == os.path.basename(path)]
            marked = shards if len(shards) <= _MARKED else []
            schema.files = {shard: FileMark(sizes[shard], None) for shard in marked}
            schema.save(path + SCHEMA)
        elif plan.spec.target in ("tfrecord", "jsonl") and storage.stat(path + SCHEMA) is not None:
            # It describes a dataset that was here before.
            storage.delete(path + SCHEMA)


def _check_place(plan: Plan, manifest: Manifest, overwrite: bool) -> None:
    """Raises if the target has files of another program, or is another finished dataset."""
    if not storage.is_url(plan.target) and os.path.isfile(plan.target):
        raise FileExistsError(f"{plan.target} is a file, not a folder for a dataset")
    if overwrite:
        return
    contents = manifest.about()
    if contents is None:
        others = [
            entry.path for entry in storage.listing(plan.target) if f"/{BOOKS}/" not in entry.path
        ]
        if others:
            why = f"has files that are not from tensorwire ({storage.shown(others[0])})"
            raise FileExistsError(
                f"{storage.shown(plan.target)} {why}; choose another folder, or pass overwrite=True"
            )
    elif manifest.finished() is not None and (difference := _difference(plan, manifest, contents)):
        where = storage.shown(plan.target)
        raise FileExistsError(
            f"{where} is a finished dataset, made {difference}; choose another folder, or pass"
            " overwrite=True"
        )


def _difference(plan: Plan, manifest: Manifest, contents: dict[str, Any]) -> str | None:
    """How a finished dataset differs from that of the plan; None if the plan writes the same
    dataset, or adds sources to it.
    """
    if contents.get("hash") != plan.spec.hash or contents.get("splits", []) != [
        list(split) for split in plan.splits
    ]:
        return "with other options"
    if not _has_all(plan, manifest, contents):
        return "from other sources"
    is_one_each = contents.get("shards") == contents.get("sources") and len(plan) == len(
        plan.sources
    )
    if contents.get("shards") != len(plan) and not is_one_each:
        return f"with {contents.get('shards')} shards"
    return "with other shard names" if contents.get("name", plan.name) != plan.name else None


def _has_all(plan: Plan, manifest: Manifest, contents: dict[str, Any]) -> bool:
    """Whether the plan has all sources of a finished dataset, so that no record would be lost."""
    return contents.get("sources_hash") == plan.sources_hash or set(
        map(_real, manifest.sources())
    ) <= {_real(entry.path) for entry in plan.sources}


def _check_sources(plan: Plan, recorded: Container[str]) -> None:
    """Raises if a shard would replace a source, or the final sweep would remove one: then the run
    could not be repeated.
    """
    target = _real(plan.target)
    folders: dict[str, bool] = {}
    for entry in plan.sources:
        path = entry.path
        if not storage.is_url(path) and os.path.islink(path):
            # A link in another folder may point to a shard that would be removed.
            path = os.path.realpath(path)
        folder, _, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = _real(folder) == target
        if folders[folder] and is_ours(name, plan, recorded):
            raise UsageError(
                "a dataset cannot be written over its own sources",
                path=entry.path,
                hint="write to another folder, and rename it afterwards",
            )


def _real(path: str) -> str:
    return storage.normal(path) if storage.is_url(path) else os.path.realpath(path)


def _count(report: DatasetReport, records: int, nbytes: int, damage: list[Any]) -> None:
    report.records += records
    report.bytes += nbytes
    _note(report, damage)


def _note(report: DatasetReport, damage: list[Any]) -> None:
    report.damage += [{"path": path, "why": why, "bytes": lost} for path, why, lost in damage]


class _Run:
    """One execution of a plan of many shards."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        manifest: Manifest,
        resume: bool,
        verify: bool,
        progress: Tell | None,
    ) -> None:
        self._plan, self._engine, self._manifest, self._verify = plan, engine, manifest, verify
        lines = manifest.read()
        self.recorded = {name: (line.size, line.stamp) for name, line in lines.items()}
        """The size and stamp of every file in the manifest, of all runs so far."""
        self._scattered = 0
        """The number of records in the runs of a shuffle."""
        self._lines = lines if resume else {}
        prefix = plan.target.rstrip("/") + "/"
        self._listed = (
            {
                entry.path.removeprefix(prefix): (entry.size, entry.stamp)
                for entry in storage.listing(plan.target)
            }
            if self._lines
            else {}
        )
        self._report = DatasetReport(plan.target, len(plan))
        self._meter = Meter(
            len(plan), progress, len(plan.sources) if plan.spec.shuffle is not None else 0
        )
        self._unverified: list[tuple[dict[str, Any], ManifestLine]] = []
        """Shards of the right size whose checksum has to decide whether they are skipped."""
        self._lock = threading.RLock()
        """An engine may pull tasks, and so call `_is_done`, from threads of its own."""

    def remove_old_shards(self) -> int:
        """Removes the shards of earlier runs that this plan would not write, and returns how many.

        This happens before the first new shard is written, so that two generations of a dataset
        are never in one folder. A shard with the same key stays, because this run would write the
        same bytes.
        """
        plan, prefix = self._plan, self._plan.target.rstrip("/") + "/"
        kept = set()
        for number in range(len(plan)) if self._lines else ():
            task = plan.gathered(number) if plan.spec.shuffle is not None else plan.task(number)
            line = self._lines.get(self._name(task))
            if line is not None and line.key == plan.key(task):
                kept.add(line.name)
        entries = [
            (entry.path.removeprefix(prefix), entry.path) for entry in storage.listing(plan.target)
        ]
        old = {
            name: path
            for name, path in entries
            if name not in kept
            and is_ours(name, plan, self.recorded)
            and not _is_runs(path.rpartition("/")[0])
        }
        # If another run has taken the lease, the old shards may be its new ones.
        check(self._manifest.lease)
        for path in old.values():
            storage.delete(path)
        for path in sorted({dataset(path) + SCHEMA for path in old.values()}) if not kept else ():
            storage.delete(path)
        return len(old)

    def all(self) -> DatasetReport:
        """Makes all shards that are missing. A shuffle first writes its runs, one for each source,
        and then its shards.
        """
        plan = self._plan
        if plan.spec.shuffle is None:
            self._work(plan.task(i) for i in range(len(plan)))
            return self._report
        missing = [task for i in range(len(plan)) if not self._is_done(task := plan.gathered(i))]
        missing += self._verify_checksums()
        if missing:
            self._work(iter(plan.runs()), shards=False)
            self._work(iter(missing), must_run=True)
            # Shards that were skipped and shards that are new must add up to the sources, or
            # they come from different runs.
            if self._report.records != self._scattered:
                raise TensorwireError(
                    f"the shuffle has read {self._scattered:,} records and written"
                    f" {self._report.records:,}",
                    path=storage.shown(plan.target),
                    hint="run it again with overwrite=True",
                )
        else:
            # The runs are not needed any more, but the damage that was found while they were
            # written belongs in this report, too.
            for task in plan.runs():
                line = self._lines.get(self._name(task))
                _note(
                    self._report,
                    line.damage if line is not None and line.key == plan.key(task) else [],
                )
        return self._report

    def _work(
        self, tasks: Iterator[dict[str, Any]], shards: bool = True, must_run: bool = False
    ) -> None:
        """Runs all tasks that are not done; with `must_run`, all of them.

        Tasks are pulled lazily, as the engine has room for them: a plan may have a million.
        """
        under_way: set[int] = set()
        lease = self._manifest.lease

        def missing() -> Iterator[dict[str, Any]]:
            for task in tasks:
                if must_run or not self._is_done(task, shards):
                    with self._lock:
                        under_way.add(task["number"])
                    yield task if lease is None else {**task, "guard": lease}

        with (
            engines.watched(self._engine, self._meter.watch),
            self._stopping(self._engine.run(self._plan.spec, missing())) as outcomes,
        ):
            for outcome in outcomes:
                self._book(outcome, shards)
                with self._lock:
                    if outcome.task["number"] not in under_way:
                        raise TensorwireError(planner.UNEXPECTED)
                    under_way.remove(outcome.task["number"])
        if under_way or next(tasks, None) is not None:
            raise TensorwireError("the engine has ended without an outcome for all of its tasks")
        if not must_run and (again := self._verify_checksums(shards)):
            self._work(iter(again), shards, must_run=True)

    @contextlib.contextmanager
    def _stopping(self, outcomes: Iterable[Outcome]) -> Iterator[Iterable[Outcome]]:
        """After an error, ends the workers and removes the temporary files that they leave."""
        try:
            yield outcomes
        except BaseException:
            if isinstance(outcomes, Generator):
                outcomes.close()
            for folder in (self._plan.target, self._plan.runs_folder):
                if not storage.is_url(folder):
                    files.sweep(folder)
            raise

    def _book(self, outcome: Any, shards: bool) -> None:
        """Records an outcome in the manifest and in the report, or raises its error."""
        done, task = planner.reported(outcome), outcome.task
        line = ManifestLine(
            self._name(task),
            self._plan.key(task),
            done["records"],
            done["bytes"],
            done["crc32c"],
            done["stamp"],
            done["damage"],
        )
        with self._lock:
            self._manifest.add(line)
            self.recorded[line.name] = line.size, line.stamp
            self._report.retried += int(outcome.attempts > 1)
            self._add(task, line, shards)
            if shards:
                self._report.written += 1
                self._meter.made(task, line.records, line.size)
            else:
                self._meter.prepared(task)

    def _add(self, task: dict[str, Any], line: ManifestLine, shards: bool) -> None:
        """Counts a shard, or a run of a shuffle, in the report."""
        if not shards:
            self._scattered += line.records
            _note(self._report, line.damage)
            return
        _count(self._report, line.records, line.size, line.damage)
        if self._plan.splits:
            name = self._plan.splits[task["number"] // self._plan.shards].name
            self._report.splits[name] = self._report.splits.get(name, 0) + line.records

    def _name(self, task: dict[str, Any]) -> str:
        return str(task["path"]).removeprefix(self._plan.target.rstrip("/") + "/")

    def _is_done(self, task: dict[str, Any], shards: bool = True) -> bool:
        """Whether the manifest and the folder agree that this file is complete.

        A file of the right size with another stamp counts as done for now; its checksum is compared
        after the other tasks (`_verify_checksums`).
        """
        line = self._lines.get(self._name(task))
        listed = self._listed.get(line.name) if line is not None else None
        if (
            line is None
            or listed is None
            or listed[0] != line.size
            or line.key != self._plan.key(task)
        ):
            return False
        must_read = self._verify or listed[1] != line.stamp
        # Runs of a shuffle have no checksum: without their stamp they are made again.
        if must_read and not line.crc32c:
            return False
        with self._lock:
            if must_read:
                self._unverified.append((task, line))
                return True
            self._meter.resumed(shards)
            self._add(task, line, shards)
        return True

    def _verify_checksums(self, shards: bool = True) -> list[dict[str, Any]]:
        """Compares the unverified files with the checksums in the manifest, and returns the tasks
        of those that differ and have to be made again.
        """
        unverified, self._unverified = self._unverified, []
        again = []
        checks = (
            {"do": "check", "number": i, "path": task["path"]}
            for i, (task, _) in enumerate(unverified)
        )
        for outcome in (
            planner.answered(self._engine.run(self._plan.spec, checks), len(unverified))
            if unverified
            else ()
        ):
            task, line = unverified[outcome.task["number"]]
            actual = planner.reported(outcome)
            if (actual["bytes"], actual["crc32c"]) != (line.size, line.crc32c):
                again.append(task)
                continue
            # The next run knows the new stamp and need not read the file again.
            self._manifest.add(line._replace(stamp=actual["stamp"]))
            self.recorded[line.name] = line.size, actual["stamp"]
            self._meter.resumed(shards)
            self._add(task, line, shards)
        return again
