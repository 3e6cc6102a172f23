"""Operations on whole datasets: split, sample, merge, shuffle and statistics.

Each makes a plan that the driver executes, so all can be resumed and run on any engine.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .._errors import UsageError
from ..codecs import rows
from ..codecs.conversion_spec import ConversionSpec
from . import driver, engines, planner, statistics
from .converting import convert
from .planner import reported
from .progress import Beginning, DatasetReport, Meter, Tell
from .shard_plan import Plan, Split, part_json


def _target(src: Any, dst: str | os.PathLike[str], to: str | None, format: str | None) -> str:
    """The target format: `to`, else the one that the name of `dst` says, else that of the
    sources.
    """
    return to or rows.of_name(os.fspath(dst)) or planner.source_format(planner.find(src), format)


def split(
    src: Any,
    dst: str | os.PathLike[str],
    shares: Mapping[str, float],
    *,
    by: str | None = None,
    seed: int = 0,
    to: str | None = None,
    drop_rest: bool = False,
    engine: Any = "local",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    resume: bool = True,
    verify: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Tell | None = None,
    **options: Any,
) -> Any:
    """Splits a dataset into several, such as {"train": 0.9, "validation": 0.1}, by a hash.

    All are written to the folder `dst`, and the shards of each begin with its name. Returns a
    `DatasetReport`, or the `Plan` with `dry_run=True`. The other options are those of `convert`.

    by         the feature that is hashed: all records with the same value are in the same split,
               also when data is added later. Without it, the place of a record in the sources
               decides
    seed       another seed gives another split
    drop_rest  allows shares that sum to less than 1: the remaining records are not written

    The hash is SHA-256 of "SEED:VALUE". Its first 8 bytes, as a big-endian number divided by 2**64,
    fall into one of the shares in their order. Strings are hashed as they are, integers in decimal,
    a missing feature as the empty string.

    Raises `EncodeError` for shares that do not sum to 1, and `SchemaError` if `by` is not a feature
    with one string or integer.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> data = {"user": np.arange(1000) % 50, "x": np.arange(1000)}
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", data)
    >>> shares = {"train": 0.8, "validation": 0.2}
    >>> tw.datasets.split(
    ...     f"{folder}/a.tfrecord", f"{folder}/out", shares, by="user", workers=0
    ... ).splits
    {'train': 800, 'validation': 200}
    """
    splits = _splits(shares, drop_rest)
    goal = _target(src, dst, to, options.get("format"))
    options |= {"by": by, "seed": seed, "splits": splits, "single": False, "soon": not dry_run}
    return driver.plan_and_execute(
        lambda opened, beginning: planner.plan_for(
            src, dst, goal, engine=opened, beginning=beginning, **options
        ),
        engine,
        workers,
        engine_options,
        dry_run,
        resume=resume,
        verify=verify,
        overwrite=overwrite,
        progress=progress,
    )


_ROUNDING = 1e-9
"""How far a sum of shares may be from 1 and still count as 1: 0.7 + 0.2 + 0.1 is not exactly 1."""


def _splits(shares: Mapping[str, float], drop_rest: bool) -> list[Split]:
    """The interval of [0, 1) that belongs to each split.

    >>> _splits({"train": 0.7, "test": 0.2, "validation": 0.1}, False)[-1].high
    1.0
    """
    total = math.fsum(shares.values())
    if not shares or not all(share > 0 for share in shares.values()) or total > 1 + _ROUNDING:
        raise UsageError(f"shares must be above 0 and sum to at most 1, not {dict(shares)}")
    if total < 1 - _ROUNDING and not drop_rest:
        rest = 100 * (1 - total)
        raise UsageError(
            f"the shares {dict(shares)} sum to {total:.10g}, which leaves {rest:.4g} % of the"
            " records out",
            hint="make them sum to 1, or pass drop_rest=True",
        )
    names, low, splits = list(shares), 0.0, []
    for name in names:
        planner.check_name(name)
        is_end = name == names[-1] and total >= 1 - _ROUNDING
        high = 1.0 if is_end else low + shares[name]
        splits.append(Split(name, low, high))
        low = high
    return splits


def sample(
    src: Any,
    dst: str | os.PathLike[str],
    fraction: float | None = None,
    *,
    records: int | None = None,
    by: str | None = None,
    seed: int = 0,
    to: str | None = None,
    engine: Any = "local",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    resume: bool = True,
    verify: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Tell | None = None,
    **options: Any,
) -> Any:
    """Writes a random sample of a dataset: a `fraction` of it, or a number of `records`.

    With `by`, the sample is stratified: it has exactly the same fraction of each value of that
    feature. The records of each value are counted first, then a permutation with `seed` picks the
    sample. Returns a `DatasetReport`, or the `Plan` with `dry_run=True`. The other options are
    those of `convert`.

    Raises `EncodeError` unless exactly one of `fraction` and `records` is given, and `SchemaError`
    if `by` is not a feature with one string or integer.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"label": np.arange(1000) % 4})
    >>> tw.datasets.sample(
    ...     f"{folder}/a.tfrecord", f"{folder}/out", 0.1, by="label", workers=0
    ... ).records
    100
    """
    if (
        (fraction is None) == (records is None)
        or (fraction is not None and not 0 < fraction <= 1)
        or (records is not None and records < 1)
    ):
        raise UsageError(
            "expected either fraction=, above 0 and up to 1, or records=, at least 1, not"
            f" fraction={fraction!r} and records={records!r}"
        )
    goal = _target(src, dst, to, options.get("format"))
    shards, options["shards"] = options.pop("shards", None), None
    if options.get("shuffle") is not None or shards == 1:
        options["shards"] = shards
    elif shards is not None:
        options["single"] = False
    options |= {"by": by, "seed": seed, "soon": not dry_run}

    def plan(opened: engines.Engine, beginning: Beginning) -> Plan:
        made = _sampled(
            planner.plan_for(src, dst, goal, engine=opened, beginning=beginning, **options),
            opened,
            fraction,
            records,
            beginning,
        )
        # A sample does not cut sources, and it may be too small to fill a shard for each.
        if made.spec.shuffle is None and not made.single:
            made = replace(
                made,
                shards=min(
                    planner.checked_shards(shards) or len(made.sources),
                    len(made.sources),
                    max(1, _size(made)),
                ),
            )
        return made

    return driver.plan_and_execute(
        plan,
        engine,
        workers,
        engine_options,
        dry_run,
        resume=resume,
        verify=verify,
        overwrite=overwrite,
        progress=progress,
    )


def _sampled(
    plan: Plan,
    engine: engines.Engine,
    fraction: float | None,
    records: int | None,
    beginning: Beginning,
) -> Plan:
    """The plan of a sample. It knows how many records of each stratum come before every source, and
    how many of them to pick.
    """
    strata_of: list[Counter[str]] = [Counter()] * len(plan.sources)
    tasks = (
        {"do": "strata", "number": i, "parts": [part_json(plan.whole(i))]}
        for i in range(len(plan.sources))
    )
    for done, outcome in enumerate(
        planner.answered(engine.run(plan.spec, tasks), len(plan.sources))
    ):
        strata_of[outcome.task["number"]] = Counter(reported(outcome)["strata"])
        beginning("counting the records of each value", plan.shards, done + 1, len(plan.sources))
    ranks, so_far = [], Counter[str]()
    for counts in strata_of:
        ranks.append({name: so_far[name] for name in counts if so_far[name]})
        so_far.update(counts)
    wanted = _wanted(so_far, fraction, records)
    strata = {name: [count, wanted[name]] for name, count in sorted(so_far.items())}
    # Rows are filtered by `where` before they are counted, and so before they are picked.
    return replace(
        plan, spec=replace(plan.spec, strata=strata), ranks=[rank or {"": 0} for rank in ranks]
    )


def _size(plan: Plan) -> int:
    """The number of records in a sample."""
    return sum(wanted for _, wanted in (plan.spec.strata or {}).values())


def _wanted(counts: Counter[str], fraction: float | None, records: int | None) -> dict[str, int]:
    """How many records of each stratum to pick, by the largest remainder method, so that they add
    up to the size of the sample.

    >>> _wanted(Counter(a=3, b=3, c=4), 0.5, None)
    {'a': 2, 'b': 1, 'c': 2}
    """
    total = sum(counts.values())
    goal = min(total, records) if records is not None else round(total * (fraction or 0))
    exact = {name: goal * count / total for name, count in sorted(counts.items())} if total else {}
    out = {name: int(value) for name, value in exact.items()}
    rest = sorted(exact, key=lambda name: (out[name] - exact[name], name))
    for name in rest[: goal - sum(out.values())]:
        out[name] += 1
    return out


def merge(
    src: Sequence[Any], dst: str | os.PathLike[str], to: str | None = None, **options: Any
) -> Any:
    """Merges several datasets into one, sorted by path.

    `src` is a list of paths, patterns, folders or URLs. The format is that of the sources, unless
    `to` or the name of `dst` says another. Options, result and errors are those of `convert`.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(3)})
    >>> _ = tw.write_examples(f"{folder}/b.tfrecord", {"x": np.arange(4)})
    >>> tw.datasets.merge(
    ...     [f"{folder}/a.tfrecord", f"{folder}/b.tfrecord"], f"{folder}/out", shards=1, workers=0
    ... ).records
    7
    """
    return convert(src, dst, _target(src, dst, to, options.get("format")), **options)


def shuffle(
    src: Any, dst: str | os.PathLike[str], seed: int = 0, to: str | None = None, **options: Any
) -> DatasetReport:
    """Writes the records of a dataset in one random order over all shards.

    The order depends only on the seed, the sources and the number of shards, not on the number of
    workers. A shard must fit into `memory`. The format is that of the sources, unless `to` or the
    name of `dst` says another. Options, result and errors are those of `convert`.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)})
    >>> tw.datasets.shuffle(f"{folder}/a.tfrecord", f"{folder}/out", seed=7, workers=0).records
    10
    """
    goal = _target(src, dst, to, options.get("format"))
    return convert(src, dst, goal, shuffle=seed, **options)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Stats:
    """Statistics of a dataset, returned by `datasets.stats`. `json()` is for machines, `str()` for
    people.
    """

    sources: int
    bytes: int
    records: int
    features: dict[str, dict[str, Any]]
    damage: list[Any]

    def json(self) -> dict[str, Any]:
        """Returns plain dicts and lists."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{_many(self.sources, 'file')}, {self.bytes:,} bytes, {_many(self.records, 'record')}"
        ]
        for name, feature in sorted(self.features.items()):
            share = 100 * feature["present"] / self.records if self.records else 0
            words = [
                f"in {feature['present']:,} ({share:.4g} %)",
                f"values {feature['values']:,}",
                f"lengths {_span(feature['lengths'])}",
            ]
            words += [
                f"{key} {_span(feature[key])}" for key in ("range", "sizes") if key in feature
            ]
            words += [f"NaN {feature['nan']:,}"] if "nan" in feature else []
            lines.append(f"  {name}: {feature['kind']}, {', '.join(words)}")
        return "\n".join([*lines, *(f"  damage: {why}" for _, why, _ in self.damage)])


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _span(bounds: Sequence[Any]) -> str:
    low, high = (f"{bound:.6g}" if isinstance(bound, float) else f"{bound:,}" for bound in bounds)
    return low if low == high else f"{low} to {high}"


def stats(
    src: Any,
    *,
    format: str | None = None,
    engine: Any = "local",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    on_corrupt: str = "raise",
    progress: Tell | None = None,
) -> Stats:
    """Returns how many records have each feature, how many values it has, and their range.

    `src`, `format`, the engine and `on_corrupt` are those of `convert`. Raises `DecodeError` for
    damaged data unless `on_corrupt="skip"`.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"label": np.arange(10)})
    >>> print(tw.datasets.stats(f"{folder}/a.tfrecord", workers=0))
    1 file, ... bytes, 10 records
      label: int64, in 10 (100 %), values 10, lengths 1, range 0 to 9
    """
    entries = planner.find(src)
    kind = planner.source_format(entries, format)
    spec = ConversionSpec(kind, kind, on_corrupt=on_corrupt)
    if kind == "jsonl":
        spec = planner.with_schema(spec, entries, None, None)
    plan = Plan(spec, "", entries, len(entries))
    total: dict[str, Any] = {"records": 0, "features": {}}
    damage: list[Any] = []
    meter = Meter(len(entries), progress)
    tasks = (
        {"do": "stats", "number": i, "parts": [part_json(plan.whole(i))]}
        for i in range(len(entries))
    )
    with (
        engines.using(engine, workers, engine_options) as opened,
        engines.watched(opened, meter.watch),
    ):
        for outcome in planner.answered(opened.run(spec, tasks), len(entries)):
            report = reported(outcome)
            total = statistics.added(total, report)
            damage += report["damage"]
            meter.made(outcome.task, report["records"], outcome.task["parts"][0]["size"])
    return Stats(len(entries), plan.size, total["records"], total["features"], damage)
