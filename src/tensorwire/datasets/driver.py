"""The driver: skips what is done, gives the rest to an engine, keeps the books, sweeps, and says
when all is there.

It sees names and numbers, never data: a shard costs it one small task out, one small report in, and
one line.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from typing import Any

from .. import storage
from .._errors import EncodeError, TensorwireError
from ..records.paths import BOOKS, SCHEMA, dataset
from ..records.schema import FileMark
from ..storage import FileEntry, files
from . import engines, planner
from .engines import Engine, Outcome
from .manifest import SEEN, Manifest, ManifestLine, check, is_ours, is_temporary, sweep
from .progress import Beginning, DatasetReport, Meter, Tell
from .shard_plan import RUN, RUNS, Plan

_MARKED = 10_000
"""Shards whose sizes the schema beside them has; readers would wait for a longer list."""


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
    """Makes a plan, and runs it, unless it is a dry run."""
    beginning = Beginning(progress)
    with engines.using(engine, workers, options) as crew:
        plan = make(crew, beginning)
        if dry_run:
            return plan
        return execute(
            plan,
            crew,
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
    """Runs a plan; what an earlier run has done, and is still what it should be, is not done again.

    `verify` reads the shards that an earlier run has done, and compares their checksums with the
    manifest.
    """
    started = time.monotonic() if since is None else since
    if plan.single:
        report = _one(plan, engine, overwrite, progress)
    else:
        report = _many(plan, engine, resume, verify, overwrite, progress)
    _note(report, plan.damage)
    # whoever reads a part of a file finds all of its damage
    once = {tuple(one.values()): one for one in report.damage}
    report.damage = [once[key] for key in sorted(once)]
    report.seconds = time.monotonic() - started
    return report


def _one(plan: Plan, engine: Engine, overwrite: bool, progress: Tell | None) -> DatasetReport:
    """One file, which needs no books: it is there whole, or not at all."""
    storage.check_replaceable(plan.target, overwrite)
    if any(_is_same(entry.path, plan.target) for entry in plan.sources):
        raise EncodeError(
            "a file cannot be converted to itself; write another one, and rename it",
            path=plan.target,
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
    _save_schema(plan, plan.target, [entry] if (entry := storage.stat(plan.target)) else [])
    return report


def _is_same(path: str, other: str) -> bool:
    if storage.is_url(path) or storage.is_url(other):
        return storage.normal(path) == storage.normal(other)
    return os.path.exists(other) and os.path.samefile(path, other)


def _make_folder(path: str) -> None:
    if not storage.is_url(path):
        os.makedirs(path, exist_ok=True)


def _remove_runs(plan: Plan) -> None:
    """The runs of a shuffle, those of an earlier run that died among them."""
    within = plan.runs_folder if plan.single else storage.join(plan.target, BOOKS)
    folders = {plan.runs_folder}
    for entry in storage.listing(within):
        folder, _, name = entry.path.rpartition("/")
        if (plan.single or _is_runs(folder)) and (name.endswith(RUN) or is_temporary(name)):
            storage.delete(entry.path)
            folders.add(folder)
    for folder in folders if not storage.is_url(plan.runs_folder) else ():
        with contextlib.suppress(OSError):  # somebody else's file is in it
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
        _check_place(plan, manifest, overwrite)  # somebody else may have been here meanwhile
        run = _Run(plan, engine, manifest, resume, verify, progress)
        _check_sources(plan, run.known)
        removed = manifest.open(plan, run.remove_old_shards)
        report = run.all()
        entries = [
            entry
            for entry in storage.listing(plan.target)
            if not _is_runs(entry.path.rpartition("/")[0])
        ]
        check(manifest.guard)  # before anything is removed that may be another's
        others = _check_all(plan, run.known, entries)
        _save_schema(plan, storage.join(plan.target, _beside(plan)), entries)
        _remove_runs(plan)
        report.swept = removed + sweep(plan, run.known, others)
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
    """That every shard is there, as the books say: workers who see another disk may believe that
    they have written them, and in a bucket another run may have written over them. -> what else is
    there"""
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
            what = f"has {entry.size:,} bytes, not {size:,}" if name in made else "is in no books"
            raise TensorwireError(f"a shard that was written {what}: {SEEN}", path=plan.path(name))
        if (
            storage.is_url(plan.target)
            and entry.stamp != stamp
            and not _has_stamp(plan.path(name), stamp)
        ):
            raise TensorwireError(
                "a shard was replaced by another run: run this one again", path=plan.path(name)
            )
    if missing:
        raise TensorwireError(
            f"a shard that was written is not there: {SEEN}", path=plan.path(min(missing))
        )
    return others


def _has_stamp(path: str, stamp: str) -> bool:
    """Whether an object has a stamp, which some stores say differently where they list it."""
    entry = storage.stat(path)
    return entry is not None and entry.stamp == stamp


def _beside(plan: Plan) -> str:
    """The name that all shards share, without their numbers: the schema stands beside it."""
    return f"{plan.splits[0].name if plan.splits else plan.name}{plan.suffix}"


def _save_schema(plan: Plan, path: str, entries: list[FileEntry]) -> None:
    """Puts the schema beside the shards, with the size of each."""
    schema = planner.written_schema(plan.spec, plan.sources)
    names = (
        [path]
        if plan.single or not plan.splits
        else [storage.join(plan.target, split.name + plan.suffix) for split in plan.splits]
    )
    for name in names:
        if schema is not None:
            sizes = {os.path.basename(entry.path): entry.size for entry in entries}
            shards = [shard for shard in sizes if dataset(shard) == os.path.basename(name)]
            marked = shards if len(shards) <= _MARKED else []
            schema.files = {shard: FileMark(sizes[shard], None) for shard in marked}
            schema.save(name + SCHEMA)
        elif plan.spec.target in ("tfrecord", "jsonl") and storage.stat(name + SCHEMA) is not None:
            storage.delete(name + SCHEMA)  # of what was there before


def _check_place(plan: Plan, manifest: Manifest, overwrite: bool) -> None:
    """That nothing is written over what should stay: a folder of somebody else's, or a finished
    dataset of another kind.
    """
    if not storage.is_url(plan.target) and os.path.isfile(plan.target):
        raise FileExistsError(f"{plan.target} is a file, and a dataset is a folder")
    if overwrite:
        return
    about = manifest.about()
    if about is None:
        others = [
            entry.path for entry in storage.listing(plan.target) if f"/{BOOKS}/" not in entry.path
        ]
        if others:
            why = f"has files that no run of ours has written ({storage.shown(others[0])})"
            raise FileExistsError(
                f"{storage.shown(plan.target)} {why}; another folder, or overwrite=True"
            )
    elif manifest.finished() is not None and (difference := _difference(plan, manifest, about)):
        where = storage.shown(plan.target)
        raise FileExistsError(
            f"{where} is a finished dataset, made {difference}; another folder, or overwrite=True"
        )


def _difference(plan: Plan, manifest: Manifest, about: dict[str, Any]) -> str | None:
    """How a finished dataset differs from the plan's.

    None if the plan makes the same one, or adds sources to it.
    """
    if about.get("hash") != plan.spec.hash or about.get("splits", []) != [
        list(split) for split in plan.splits
    ]:
        return "in another way"
    if not _has_all(plan, manifest, about):
        return "of other sources"
    is_one_each = about.get("shards") == about.get("sources") and len(plan) == len(plan.sources)
    if about.get("shards") != len(plan) and not is_one_each:
        return f"with {about.get('shards')} shards"
    return "under other names" if about.get("name", plan.name) != plan.name else None


def _has_all(plan: Plan, manifest: Manifest, about: dict[str, Any]) -> bool:
    """Whether the sources of a finished dataset are all among the plan's: nothing that it has is
    given up.
    """
    return about.get("sources_hash") == plan.sources_hash or set(
        map(_real, manifest.sources())
    ) <= {_real(entry.path) for entry in plan.sources}


def _check_sources(plan: Plan, known: Container[str]) -> None:
    """That no source is replaced, or swept away at the end: whoever ran it again would read
    something else.
    """
    target = _real(plan.target)
    folders: dict[str, bool] = {}
    for entry in plan.sources:
        path = entry.path
        if not storage.is_url(path) and os.path.islink(path):
            # a link elsewhere may lead to a shard that would be removed
            path = os.path.realpath(path)
        folder, _, name = path.rpartition("/")
        if folder not in folders:
            folders[folder] = _real(folder) == target
        if folders[folder] and is_ours(name, plan, known):
            raise EncodeError(
                "a dataset cannot be written over its own sources; write another folder, and"
                " rename it",
                path=entry.path,
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
    """One run of a plan of many shards."""

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
        self.known = {name: (line.size, line.stamp) for name, line in lines.items()}
        """All that was ever made here, its size and its stamp."""
        self._scattered = 0
        """Records in the runs of a shuffle."""
        self._lines = lines if resume else {}
        prefix = plan.target.rstrip("/") + "/"
        self._there = (
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
        self._unsure: list[tuple[dict[str, Any], ManifestLine]] = []
        self._order = threading.RLock()
        """Engines may ask for tasks, and so what is done, in threads of their own."""

    def remove_old_shards(self) -> int:
        """Removes the shards of earlier runs that are not shards of this plan, and returns how
        many.

        This is done before the first new shard is written: two generations of a dataset are never
        in one folder. A shard of
        an earlier run stays if it has the same key, so that this run would make the same one.
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
            and is_ours(name, plan, self.known)
            and not _is_runs(path.rpartition("/")[0])
        }
        check(self._manifest.guard)  # before anything is removed that may be another's
        for path in old.values():
            storage.delete(path)
        for path in sorted({dataset(path) + SCHEMA for path in old.values()}) if not kept else ():
            storage.delete(path)
        return len(old)

    def all(self) -> DatasetReport:
        plan = self._plan
        if plan.spec.shuffle is None:
            self._work(plan.task(i) for i in range(len(plan)))
            return self._report
        missing = [
            task
            for i in range(len(plan))
            if not self._is_done(task := plan.gathered(i), count=True)
        ]
        missing += self._sure()
        if missing:
            self._work(iter(plan.runs()), shards=False)
            self._work(iter(missing), known=True)
            if self._report.records != self._scattered:
                why = (
                    f"{self._scattered:,} records were read, and {self._report.records:,} were"
                    " written"
                )
                raise TensorwireError(
                    f"{why}: run it again, with overwrite=True", path=storage.shown(plan.target)
                )
        else:
            for task in plan.runs():
                line = self._lines.get(self._name(task))
                _note(
                    self._report,
                    line.damage if line is not None and line.key == plan.key(task) else [],
                )
        return self._report

    def _work(
        self, tasks: Iterator[dict[str, Any]], shards: bool = True, known: bool = False
    ) -> None:
        """Has all tasks done that are not done."""
        under_way: set[int] = set()
        guard = self._manifest.guard

        def wanted() -> Iterator[dict[str, Any]]:
            for task in tasks:
                if known or not self._is_done(task, shards):
                    with self._order:
                        under_way.add(task["number"])
                    yield task if guard is None else {**task, "guard": guard}

        with (
            engines.watched(self._engine, self._meter.watch),
            self._stopping(self._engine.run(self._plan.spec, wanted())) as outcomes,
        ):
            for outcome in outcomes:
                self._book(outcome, shards)
                with self._order:
                    if outcome.task["number"] not in under_way:
                        raise TensorwireError(
                            "the engine has answered a task twice, or one that nobody asked for"
                        )
                    under_way.remove(outcome.task["number"])
        if under_way or next(tasks, None) is not None:
            raise TensorwireError("the engine has ended without an answer to all of its tasks")
        if not known and (again := self._sure(shards)):
            self._work(iter(again), shards, known=True)

    @contextlib.contextmanager
    def _stopping(self, outcomes: Iterable[Outcome]) -> Iterator[Iterable[Outcome]]:
        """After an error, end the workers and remove the temporary files that they leave behind."""
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
        done, task = planner.reported(outcome), outcome.task
        with self._order:
            self._count(task, done, outcome.attempts, shards)

    def _count(
        self, task: dict[str, Any], done: dict[str, Any], attempts: int, shards: bool
    ) -> None:
        name = self._name(task)
        self._manifest.add(
            ManifestLine(
                name,
                self._plan.key(task),
                done["records"],
                done["bytes"],
                done["crc32c"],
                done["stamp"],
                done["damage"],
            )
        )
        self.known[name] = done["bytes"], done["stamp"]
        self._report.retried += int(attempts > 1)
        if shards:
            self._report.written += 1
            self._add(task, done["records"], done["bytes"], done["damage"])
            self._meter.made(task, done["records"], done["bytes"])
        else:
            self._scattered += done["records"]
            _note(self._report, done["damage"])
            self._meter.prepared(task)

    def _add(self, task: dict[str, Any], records: int, nbytes: int, damage: list[Any]) -> None:
        _count(self._report, records, nbytes, damage)
        if self._plan.splits:
            name = self._plan.splits[task["number"] // self._plan.shards].name
            self._report.splits[name] = self._report.splits.get(name, 0) + records

    def _name(self, task: dict[str, Any]) -> str:
        return str(task["path"]).removeprefix(self._plan.target.rstrip("/") + "/")

    def _is_done(self, task: dict[str, Any], count: bool) -> bool:
        """Whether the books and the file agree that this is there. A file of the right size with
        another stamp is looked at later.
        """
        line = self._lines.get(self._name(task))
        there = self._there.get(line.name) if line is not None else None
        if (
            line is None
            or there is None
            or there[0] != line.size
            or line.key != self._plan.key(task)
        ):
            return False
        must_read = self._verify or there[1] != line.stamp
        if must_read and not line.crc32c:
            return False
        with self._order:
            if must_read:
                self._unsure.append((task, line))
                return True
            self._meter.found(count)
            if count:
                self._add(task, line.records, line.size, line.damage)
            else:
                self._scattered += line.records
                _note(self._report, line.damage)
        return True

    def _sure(self, shards: bool = True) -> list[dict[str, Any]]:
        """Has the checksums taken of files whose stamps are not those in the books; the tasks of
        those that are something else.
        """
        unsure, self._unsure = self._unsure, []
        again = []
        checks = (
            {"do": "check", "number": i, "path": task["path"]} for i, (task, _) in enumerate(unsure)
        )
        for outcome in (
            planner.answered(self._engine.run(self._plan.spec, checks), len(unsure))
            if unsure
            else ()
        ):
            task, line = unsure[outcome.task["number"]]
            found = planner.reported(outcome)
            if (found["bytes"], found["crc32c"]) != (line.size, line.crc32c):
                again.append(task)
                continue
            self._manifest.add(line._replace(stamp=found["stamp"]))
            self.known[line.name] = line.size, found["stamp"]
            self._meter.found(shards)
            if shards:
                self._add(task, line.records, line.size, line.damage)
        return again
