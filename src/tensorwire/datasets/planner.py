"""The planner: finds the sources of a dataset, their format, schema and size, and makes the plan.

1. Find the files, and the source and target formats, and check all options that need no data. A
   wrong option raises before a worker is started.
2. Tell the engine early how many tasks there will be, so that workers start while the planner still
   reads.
3. Read a schema, a declaration of columns, or a sample of the sources, but only if a task has to
   know the columns before it reads: TFRecord to TFRecord without options moves records as bytes and
   needs none.
4. Files that declare their own columns (Parquet, Arrow, npz, safetensors) may differ. An empty
   batch (`blank`) with the union of the columns of some files goes into the spec, so that every
   shard has the same columns.
5. Count the records, with the engine, only if shards are cut by records or shuffled. Otherwise
   shard i simply reads its range of the source files.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import storage
from .._errors import DecodeError, EncodeError, SchemaError, TensorwireError, UsageError, choices
from ..codecs import ROW_FORMATS, column_rows, example_features, rows
from ..codecs.conversion_spec import ConversionSpec
from ..codecs.identify import identify
from ..core import dtypes
from ..core.tensors import Array
from ..records import sidecar
from ..records.batch import Batch, is_untyped
from ..records.blocks import compression_named
from ..records.paths import is_data
from ..records.schema import Schema, as_schema
from ..storage import FileEntry
from ..transforms import compression as compressions
from .engines import Engine, Outcome
from .progress import Beginning
from .row_selection import Condition
from .shard_plan import Plan, Split, part_json

_MARKS = 4096
"""The most offsets that are remembered of one source, so that readers can start inside it."""
UNEXPECTED = "the engine has returned an outcome twice, or for an unknown task"


def find(src: Any) -> list[FileEntry]:
    """The files of a dataset, each once: `src` is a path, pattern, folder or URL, or a list of
    them.

    In folders and by patterns, indexes, schema files, manifests and other names that begin with "_"
    or "." are skipped. A file that is named exactly is always taken.
    """
    given = [os.fspath(path) for path in ([src] if isinstance(src, (str, os.PathLike)) else src)]
    if not given:
        raise UsageError("the list of source files is empty")
    named = {storage.normal(path) for path in given}
    entries = [
        entry
        for entry in storage.find(given)
        if is_data(entry.path, *given) or storage.normal(entry.path) in named
    ]
    # Several patterns, or a path with "..", may lead to the same file twice. The first one counts.
    if len(given) > 1 or ".." in given[0]:
        entries = list({storage.normal(entry.path): entry for entry in reversed(entries)}.values())[
            ::-1
        ]
    if not entries:
        raise FileNotFoundError(f"no data file matches {storage.shown(given[0])!r}")
    return entries


def source_format(entries: Sequence[FileEntry], given: str | None) -> str:
    """The format of all sources, by their names; if no name has a known extension, by the first
    bytes of the first file.
    """
    if given is not None:
        rows.named(given)
        return given
    formats = {rows.of_name(entry.path) for entry in entries}
    if formats == {None}:
        with identify(entries[0].path) as first:
            formats = {first.format if first.format in ROW_FORMATS else None}
    if len(formats) != 1 or None in formats:
        names = ", ".join(sorted(name or "unknown" for name in formats))
        raise SchemaError(
            f"the sources must have one format, and their names say {names}",
            path=entries[0].path if entries else None,
            hint="pass format=",
        )
    return str(formats.pop())


def target_format(dst: str, to: str | None) -> tuple[str, str | None]:
    """(the target format, the format that the name of `dst` says)"""
    named = rows.of_name(dst)
    if to is None and named is None:
        raise UsageError(
            f"the name of the target does not say a format{choices('', ROW_FORMATS)}",
            path=dst,
            hint="pass to=",
        )
    rows.named(to or named or "")
    return to or named or "", named


def plan_for(
    src: Any,
    dst: str | os.PathLike[str],
    to: str | None = None,
    *,
    engine: Engine,
    format: str | None = None,
    schema: Any = None,
    columns: Sequence[str] | None = None,
    shards: int | None = None,
    name: str = "part",
    compression: str | None = None,
    level: int | None = None,
    quantize: Mapping[str, str] | None = None,
    tensors: Sequence[str] = (),
    cast: Mapping[str, str] | None = None,
    where: str | None = None,
    shuffle: int | bool | None = None,
    on_corrupt: str = "raise",
    memory: int = 2 << 30,
    by: str | None = None,
    seed: int = 0,
    splits: Sequence[Split] = (),
    single: bool | None = None,
    soon: bool = False,
    beginning: Beginning | None = None,
) -> Plan:
    """Makes the plan of a conversion; see `datasets.convert` for the options.

    `soon` says that the plan is going to be run, so that the engine may start its workers already.
    """
    beginning = beginning or Beginning(None)
    beginning("finding the sources", checked_shards(shards) or 1)
    entries = find(src)
    kind, (goal, named) = source_format(entries, format), target_format(os.fspath(dst), to)
    target = storage.normal(os.fspath(dst))
    if on_corrupt not in ("raise", "skip"):
        raise UsageError(f'on_corrupt must be "raise" or "skip", not {on_corrupt!r}')
    if splits and shuffle is not None:
        raise UsageError(
            "a split cannot be shuffled at the same time",
            hint="shuffle the sources first, or each split afterwards",
        )
    check_name(name)
    # A random seed would make every resumed run start again.
    if shuffle is True:
        raise UsageError("shuffle must be a seed, not True", hint="pass shuffle=0")
    for option, given in (("quantize", quantize), ("cast", cast)):
        if given is not None and not isinstance(given, Mapping):
            raise UsageError(
                f"{option} must be a dict of columns, such as {option}={{'x': {given!r}}}"
            )
    if single is None:
        single = named is not None and shards in (None, 1) and not os.path.isdir(target)
    if single:
        compression = _of_one_file(target, goal, named, compression)
    if soon and hasattr(engine, "prepare"):
        engine.prepare(
            1 if single and shuffle is None else max(shards or 0, len(entries)), {kind, goal}
        )
    if goal in ("tfrecord", "jsonl"):
        compression = compression_named(compression)
    spec = ConversionSpec(
        kind,
        goal,
        compression=compression,
        level=level,
        quantize=dict(quantize or {}),
        tensors=list(tensors),
        cast=dict(cast or {}),
        where=where,
        on_corrupt=on_corrupt,
        shuffle=None if shuffle is None or shuffle is False else int(shuffle),
        by=by,
        seed=seed,
        memory=memory,
    )
    beginning("reading the schema of the sources", shards or len(entries))
    spec = with_schema(spec, entries, schema, columns)
    rows.named(goal).check_target(spec)
    made = Plan(
        spec, target, entries, 1 if single else shards or len(entries), name, single, tuple(splits)
    )
    if spec.shuffle is not None:
        return _shuffled(counted(made, engine, beginning))
    return counted(made, engine, beginning) if made.shards not in (1, len(entries)) else made


def checked_shards(shards: int | None) -> int | None:
    if shards is not None and (not isinstance(shards, int) or shards < 1):
        raise UsageError(f"shards must be an integer of at least 1, not {shards!r}")
    return shards


def check_name(name: str) -> None:
    """Raises unless shards of this name are visible files in their folder."""
    if (
        not name
        or not all(letter.isalnum() or letter in "-_." for letter in name)
        or name[0] in "._-"
    ):
        raise UsageError(
            f"invalid shard name {name!r}: use letters, digits, '-', '_' and '.', and begin with a"
            " letter or digit"
        )


def _of_one_file(target: str, goal: str, named: str | None, compression: str | None) -> str | None:
    """The compression of a single target file. Raises if the name of the file contradicts `to=` or
    `compression=`.
    """
    if named != goal:
        raise UsageError(
            f"the name of the target says {named}, and to= says {goal}",
            path=target,
            hint="choose another name, or pass shards= to write a folder",
        )
    by_name = compressions.named_by(target)
    if by_name is None:
        return compression
    if goal not in rows.STREAMS:
        raise UsageError(
            f"{goal} cannot be compressed as a whole, and the name of the target says {by_name}",
            path=target,
            hint="use a name without it, and pass compression=",
        )
    if compression not in (None, by_name):
        raise UsageError(
            f"the name of the target says {by_name}, and compression= says {compression!r}",
            path=target,
        )
    return by_name


def with_schema(
    spec: ConversionSpec, entries: Sequence[FileEntry], schema: Any, columns: Sequence[str] | None
) -> ConversionSpec:
    """The spec with the columns that workers have to know before they read the first record."""
    if isinstance(columns, (str, bytes)):
        raise UsageError(f"columns must be a list of names, not {columns!r}")
    columns = None if columns is None else list(dict.fromkeys(columns))
    for dtype in spec.cast.values():
        dtypes.named(dtype)
    uses_columns = (
        spec.where is not None
        or spec.by is not None
        or columns is not None
        or schema is not None
        or spec.quantize
        or spec.tensors
        or spec.cast
    )
    # Records are then copied as bytes, and may hold anything.
    if spec.source == spec.target == "tfrecord" and not uses_columns:
        return spec
    needs = (
        spec.source in ("tfrecord", "jsonl")
        or spec.target == "tfrecord"
        or _remember(spec, entries)
    )
    if not needs and schema is None:
        return _without_schema(spec, entries, columns)
    names = [entry.path for entry in entries]
    try:
        size = sum(entry.size for entry in entries)
        reads = None if columns is None else list(dict.fromkeys([*columns, *_needed(spec)]))
        # Columns that are only filtered by are never written, so the target need not hold them.
        unwritten = [name for name in _needed(spec) if columns is not None and name not in columns]
        inference = replace(spec, reads=reads, tensors=[*spec.tensors, *unwritten])
        full = (
            as_schema(schema)
            if schema is not None
            else rows.named(spec.source).schema(names, inference, size)
        )
    except TensorwireError as error:
        raise error.add(path=names[0]) from error.__cause__
    assert full is not None
    if full.sequences:
        raise SchemaError(
            "SequenceExamples cannot be converted to columns",
            hint="convert from tfrecord to tfrecord without columns= and where=, which copies the"
            " records",
        )
    if not full:
        raise SchemaError(
            "no feature was found in a sample of the sources", path=names[0], hint="pass schema="
        )
    keep = list(columns) if columns is not None else list(full)
    read = list(dict.fromkeys([*keep, *_needed(spec)]))
    chosen = full.select(read)
    plain = Schema({name: replace(feature, seen={}) for name, feature in chosen.items()})
    as_bytes = example_features.bare(plain, spec.source, spec.target)
    bare = rows.named(spec.source).bare(as_bytes, names, spec)
    strict = schema is None and columns is None
    out = replace(
        spec,
        features=plain.json(),
        bare=bare,
        strict=strict,
        columns=keep if len(read) > len(keep) else None,
    )
    _check_names(out, keep)
    example_features.check_casts(out)
    return _with_blank(out, entries)[0] if rows.named(spec.source).declares_columns else out


def _remember(spec: ConversionSpec, entries: Sequence[FileEntry]) -> bool:
    """Whether the sources have the schema of the Examples that they were made of, so that the
    target can keep it.
    """
    source = rows.named(spec.source)
    if not source.declares_columns or spec.target in ("npz", "safetensors"):
        return False

    def remembers(path: str) -> bool:
        # The error of a damaged file is raised by the task that reads it.
        with contextlib.suppress(TensorwireError):
            return source.remembers(path)
        return False

    return all(storage.side_by_side(remembers, column_rows.some([entry.path for entry in entries])))


def _without_schema(
    spec: ConversionSpec, entries: Sequence[FileEntry], columns: Sequence[str] | None
) -> ConversionSpec:
    """The spec for files that declare their own columns."""
    needed = _needed(spec)
    if columns is not None:
        spec = replace(spec, columns=list(columns), reads=list(dict.fromkeys([*columns, *needed])))
    spec, union = _with_blank(spec, entries)
    for name in spec.reads or needed:
        if name not in union:
            path = entries[0].path
            raise SchemaError(
                f"no column {name!r}{choices(name, rows.named(spec.source).names(path, spec))}",
                tensor=name,
                path=path,
            )
    _check_names(spec, list(union) if columns is None else columns)
    return spec


def _with_blank(spec: ConversionSpec, entries: Sequence[FileEntry]) -> tuple[ConversionSpec, Batch]:
    """(the spec with the union of the columns of some of the files, that union as a batch without
    rows). A column of one file may be missing in another.
    """
    paths = column_rows.some([entry.path for entry in entries])
    blanks = _blanks(spec, paths)
    union, how = Batch.union(blanks), column_rows.comparison(spec.target, spec.shuffle is not None)
    for path, blank in zip(paths, blanks, strict=True):
        try:
            column_rows.check_alike(blank, union, how, spec.cast)
        except TensorwireError as error:
            raise error.add(path=path) from None
    for name in union:
        if spec.schema is None and is_untyped(union[name]):
            raise EncodeError(
                "the column has only nulls and no type",
                tensor=name,
                path=paths[0],
                hint="leave it out with columns=",
            )
    typed = union.select([name for name in union if not is_untyped(union[name])])
    if not typed:
        return spec, union
    packed = column_rows.packed(typed, np.zeros(0, np.int64))
    return replace(spec, blank=base64.b64encode(packed).decode()), union


def _blanks(spec: ConversionSpec, paths: Sequence[str]) -> list[Batch]:
    """The columns of each file as a batch without rows. A damaged file has none, if damage is
    skipped.
    """
    source = rows.named(spec.source)

    def blank(path: str) -> Batch:
        try:
            return source.blank(path, spec)
        except TensorwireError as error:
            if spec.skips and isinstance(error, DecodeError):
                return Batch({}, size=0)
            raise error.add(path=path) from error.__cause__

    return storage.side_by_side(blank, paths)


def _needed(spec: ConversionSpec) -> list[str]:
    """The columns that `where=` and `by=` read, written or not."""
    names = sorted(Condition(spec.where).names) if spec.where is not None else []
    return [*names, *([spec.by] if spec.by is not None else [])]


def _check_names(spec: ConversionSpec, keep: Sequence[str]) -> None:
    for option, names in (
        ("quantize", spec.quantize),
        ("tensors", spec.tensors),
        ("cast", spec.cast),
    ):
        for name in names:
            if name not in keep:
                raise UsageError(f"{option}= names an unknown column {name!r}{choices(name, keep)}")


def counted(plan: Plan, engine: Engine, beginning: Beginning) -> Plan:
    """The plan with the number of records of every source, counted by the engine's workers."""
    per = min(_MARKS, 4 * -(-len(plan) // len(plan.sources)))
    tasks = (
        {"do": "count", "number": i, "marks": per, "parts": [part_json(plan.whole(i))]}
        for i in range(len(plan.sources))
    )
    counts: Array = np.zeros(len(plan.sources) + 1, np.int64)
    marks: list[tuple[int, list[int]]] = [(1, [])] * len(plan.sources)
    damage: list[tuple[int, list[Any]]] = []
    for done, outcome in enumerate(answered(engine.run(plan.spec, tasks), len(plan.sources))):
        beginning("counting records", plan.shards, done + 1, len(plan.sources))
        report = reported(outcome)
        number = outcome.task["number"]
        counts[number + 1] = report["records"]
        marks[number] = report["step"], report["marks"]
        damage += [(number, entry) for entry in report["damage"]]
    return replace(
        plan, starts=np.cumsum(counts), marks=marks, damage=[entry for _, entry in sorted(damage)]
    )


def answered(outcomes: Iterable[Outcome], count: int) -> Iterator[Outcome]:
    """Yields the outcomes, and raises unless each of the tasks 0 to `count` has exactly one: an
    engine that loses tasks must not look as if it were done.
    """
    seen = bytearray(count)
    for outcome in outcomes:
        number = outcome.task["number"]
        if not 0 <= number < count or seen[number]:
            raise TensorwireError(UNEXPECTED)
        seen[number] = 1
        yield outcome
    if lost := seen.count(0):
        raise TensorwireError(f"the engine has ended without an outcome for {lost:,} of its tasks")


def reported(outcome: Outcome) -> dict[str, Any]:
    """Returns the report of a task, or raises its error."""
    if outcome.error is not None:
        raise outcome.error
    assert outcome.report is not None
    return outcome.report


def _shuffled(plan: Plan) -> Plan:
    assert plan.starts is not None
    total = int(plan.starts[-1])
    bounds = [total * i // plan.shards for i in range(plan.shards + 1)]
    return replace(plan, spec=replace(plan.spec, total=total, bounds=bounds), marks=None)


def written_schema(spec: ConversionSpec, sources: Sequence[FileEntry]) -> Schema | None:
    """The schema to write next to the shards; None for formats that need none.

    Records that are copied as bytes keep the schema of their sources. If the sources have no schema
    in common, no schema file is written.
    """
    if spec.target not in ("tfrecord", "jsonl"):
        return None
    if spec.schema is not None:
        return example_features.remembered(spec)
    if spec.target == "tfrecord":
        with contextlib.suppress(SchemaError):
            schemas, without = sidecar.find([entry.path for entry in sources])
            return sidecar.union(schemas) if schemas and not without else None
    return None
