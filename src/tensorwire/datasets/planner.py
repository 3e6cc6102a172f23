"""Making a plan: finding the sources, what they are, how many records they have, and what every
shard will read.
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
from .._errors import DecodeError, EncodeError, SchemaError, TensorwireError, choices
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


def find(src: Any) -> list[FileEntry]:
    """The files of a dataset: paths, patterns, folders, URLs, or a list of them, each file once. In
    folders and by patterns, indexes, schemas and books are none of it, nor what else begins with
    "_" or "."."""
    given = [os.fspath(one) for one in ([src] if isinstance(src, (str, os.PathLike)) else src)]
    if not given:
        raise EncodeError("an empty list of files")
    named = {storage.normal(one) for one in given}
    found = [
        entry
        for entry in storage.find(given)
        if is_data(entry.path, *given) or storage.normal(entry.path) in named
    ]
    if len(given) > 1 or ".." in given[0]:  # by several ways
        found = list({storage.normal(entry.path): entry for entry in reversed(found)}.values())[
            ::-1
        ]
    if not found:
        raise FileNotFoundError(f"no file of data matches {storage.shown(given[0])!r}")
    return found


def source_format(entries: Sequence[FileEntry], given: str | None) -> str:
    """The one format that all sources have, by their names; where no name tells, by the first bytes
    of the first file.
    """
    if given is not None:
        rows.named(given)
        return given
    found = {rows.of_name(entry.path) for entry in entries}
    if found == {None}:
        with identify(entries[0].path) as first:
            found = {first.format if first.format in ROW_FORMATS else None}
    if len(found) != 1 or None in found:
        names = ", ".join(sorted(name or "unknown" for name in found))
        raise SchemaError(
            f"the names of the sources do not say one format ({names}); format= says it",
            path=entries[0].path if entries else None,
        )
    return str(found.pop())


def target_format(dst: str, to: str | None) -> tuple[str, str | None]:
    """(the format, the one that the name of `dst` says)"""
    named = rows.of_name(dst)
    if to is None and named is None:
        raise EncodeError(f"to= says which format{choices('', ROW_FORMATS)}", path=dst)
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
    """The plan. Records are counted, by the engine, only where shards are cut by records or
    shuffled. `soon` says that it will be run.
    """
    beginning = beginning or Beginning(None)
    beginning("finding the sources", checked_shards(shards) or 1)
    entries = find(src)
    kind, (goal, named) = source_format(entries, format), target_format(os.fspath(dst), to)
    target = storage.normal(os.fspath(dst))
    if on_corrupt not in ("raise", "skip"):
        raise EncodeError(f'on_corrupt is "raise" or "skip", not {on_corrupt!r}')
    if splits and shuffle is not None:
        raise EncodeError(
            "a split keeps the order of its sources; shuffle each of its parts, or the sources"
            " first"
        )
    check_name(name)
    if shuffle is True:
        raise EncodeError(
            "shuffle is a seed, so that a run that was broken off can go on: shuffle=0"
        )
    for what, given in (("quantize", quantize), ("cast", cast)):
        if given is not None and not isinstance(given, Mapping):
            raise EncodeError(f"{what} says it for each column, as in {what}={{'x': {given!r}}}")
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
        kind, goal, None, False, None, None, compression, level, dict(quantize or {}), list(tensors), dict(cast or {}), where, on_corrupt,
        None if shuffle is None or shuffle is False else int(shuffle), by, seed, memory=memory,
    )  # fmt: skip
    beginning("looking into the sources", shards or len(entries))
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
        raise EncodeError(f"at least one shard, not {shards!r}")
    return shards


def check_name(name: str) -> None:
    """That shards of this name lie in their folder, and are seen there."""
    if (
        not name
        or not all(letter.isalnum() or letter in "-_." for letter in name)
        or name[0] in "._-"
    ):
        raise EncodeError(f"{name!r} is no name for shards: letters, digits, and inside - _ .")


def _of_one_file(target: str, goal: str, named: str | None, compression: str | None) -> str | None:
    """How one file is compressed, whose name must not say something else than what will be in it."""
    if named != goal:
        raise EncodeError(
            f"the name says {named}, and to= says {goal}; another name, or shards= for a folder",
            path=target,
        )
    packed = compressions.named_by(target)
    if packed is None:
        return compression
    if goal not in rows.STREAMS:
        raise EncodeError(
            f"{goal} is compressed inside, by compression=; the name must not say {packed}",
            path=target,
        )
    if compression not in (None, packed):
        raise EncodeError(
            f"the name says {packed}, and compression= says {compression!r}", path=target
        )
    return packed


def with_schema(
    spec: ConversionSpec, entries: Sequence[FileEntry], schema: Any, columns: Sequence[str] | None
) -> ConversionSpec:
    """The spec with what the columns are, as far as somebody has to know before the first record is
    read.
    """
    if isinstance(columns, (str, bytes)):
        raise EncodeError(f"columns is a list of names, not {columns!r}")
    columns = None if columns is None else list(dict.fromkeys(columns))
    for dtype in spec.cast.values():
        dtypes.named(dtype)
    looks = (
        spec.where is not None
        or spec.by is not None
        or columns is not None
        or schema is not None
        or spec.quantize
        or spec.tensors
        or spec.cast
    )
    if spec.source == spec.target == "tfrecord" and not looks:
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
        asked = None if columns is None else list(dict.fromkeys([*columns, *_needed(spec)]))
        # of any type: nobody writes it
        looked_at = [name for name in _needed(spec) if columns is not None and name not in columns]
        look = replace(spec, reads=asked, tensors=[*spec.tensors, *looked_at])
        found = (
            as_schema(schema)
            if schema is not None
            else rows.named(spec.source).schema(names, look, size)
        )
    except TensorwireError as error:
        raise error.add(path=names[0]) from error.__cause__
    assert found is not None
    if found.sequences:
        raise SchemaError(
            "SequenceExamples are no columns; as records, from tfrecord to tfrecord without"
            " columns= and where=, they can be moved"
        )
    if not found:
        raise SchemaError(
            "no feature in the sources, as far as was looked; schema= says what to read",
            path=names[0],
        )
    keep = list(columns) if columns is not None else list(found)
    read = list(dict.fromkeys([*keep, *_needed(spec)]))
    chosen = found.select(read)
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
    """Whether the sources know of which Examples they were made, so that what is made of them can."""
    source = rows.named(spec.source)
    if not source.declares_columns or spec.target in ("npz", "safetensors"):
        return False

    def remembers(path: str) -> bool:
        with contextlib.suppress(TensorwireError):  # which whoever reads it will meet
            return source.remembers(path)
        return False

    return all(storage.side_by_side(remembers, column_rows.some([entry.path for entry in entries])))


def _without_schema(
    spec: ConversionSpec, entries: Sequence[FileEntry], columns: Sequence[str] | None
) -> ConversionSpec:
    """Files that say themselves what columns they have."""
    needed = _needed(spec)
    if columns is not None:
        spec = replace(spec, columns=list(columns), reads=list(dict.fromkeys([*columns, *needed])))
    spec, known = _with_blank(spec, entries)
    for name in spec.reads or needed:
        if name not in known:
            path = entries[0].path
            raise SchemaError(
                f"no column {name!r}{choices(name, rows.named(spec.source).names(path, spec))}",
                tensor=name,
                path=path,
            )
    _check_names(spec, list(known) if columns is None else columns)
    return spec


def _with_blank(spec: ConversionSpec, entries: Sequence[FileEntry]) -> tuple[ConversionSpec, Batch]:
    """The spec with the columns of some of the files: what one has, another may lack. And these
    columns.
    """
    paths = column_rows.some([entry.path for entry in entries])
    found = _blanks(spec, paths)
    known, how = Batch.union(found), column_rows.comparison(spec.target, spec.shuffle is not None)
    for path, one in zip(paths, found, strict=True):
        try:
            column_rows.check_alike(one, known, how, spec.cast)
        except TensorwireError as error:
            raise error.add(path=path) from None
    for name in known:
        if spec.schema is None and is_untyped(known[name]):
            raise EncodeError(
                "a column of nothing but nulls, which has no type; columns= leaves it out",
                tensor=name,
                path=paths[0],
            )
    typed = known.select([name for name in known if not is_untyped(known[name])])
    if not typed:
        return spec, known
    return (
        replace(
            spec, blank=base64.b64encode(column_rows.packed(typed, np.zeros(0, np.int64))).decode()
        ),
        known,
    )


def _blanks(spec: ConversionSpec, paths: Sequence[str]) -> list[Batch]:
    """The columns of files, each as a batch without rows; of a damaged one that is passed over,
    none.
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
    """Columns that are looked at, whether they are written or not."""
    names = sorted(Condition(spec.where).names) if spec.where is not None else []
    return [*names, *([spec.by] if spec.by is not None else [])]


def _check_names(spec: ConversionSpec, keep: Sequence[str]) -> None:
    for what, names in (
        ("quantize", spec.quantize),
        ("tensors", spec.tensors),
        ("cast", spec.cast),
    ):
        for name in names:
            if name not in keep:
                raise EncodeError(
                    f"{what} names {name!r}, and there is no such column{choices(name, keep)}"
                )


def counted(plan: Plan, engine: Engine, beginning: Beginning) -> Plan:
    """The same with the number of records of every source, counted by the engine's workers."""
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
        damage += [(number, one) for one in report["damage"]]
    return replace(
        plan, starts=np.cumsum(counts), marks=marks, damage=[one for _, one in sorted(damage)]
    )


def answered(outcomes: Iterable[Outcome], count: int) -> Iterator[Outcome]:
    """One outcome of each of so many tasks: an engine that loses some, or answers some twice, must
    not look like one that is done.
    """
    seen = bytearray(count)
    for outcome in outcomes:
        number = outcome.task["number"]
        if not 0 <= number < count or seen[number]:
            raise TensorwireError(
                "the engine has answered a task twice, or one that nobody asked for"
            )
        seen[number] = 1
        yield outcome
    if lost := seen.count(0):
        raise TensorwireError(f"the engine has ended without an answer to {lost:,} of its tasks")


def reported(outcome: Outcome) -> dict[str, Any]:
    """The report of a task that went well; else its error."""
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
    """What is put beside the shards, so that they come back as what they were. Records that are
    only moved keep the one that they had; if there is none that is true of all of them, there is
    none."""
    if spec.target not in ("tfrecord", "jsonl"):
        return None
    if spec.schema is not None:
        return example_features.remembered(spec)
    if spec.target == "tfrecord":
        with contextlib.suppress(SchemaError):
            schemas, without = sidecar.find([entry.path for entry in sources])
            return sidecar.union(schemas) if schemas and not without else None
    return None
