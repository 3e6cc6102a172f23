"""Whole datasets: split by the hash of a feature, a stratified sample, several merged, shuffled,
and counted. All are plans like others.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._errors import EncodeError
from ..codecs import rows
from ..codecs.conversion_spec import ConversionSpec
from ..core import formatting
from . import driver, engines, planner, statistics
from .converting import convert
from .planner import reported
from .progress import Beginning, DatasetReport, Meter, Tell
from .shard_plan import Plan, Split, part_json


def _target(src: Any, dst: str | os.PathLike[str], to: str | None, format: str | None) -> str:
    """The format of the sources, unless another one is asked for, or is what the name of the target
    says.
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
    """Several datasets out of one, such as {"train": 0.9, "validation": 0.1}, in one folder, each
    with shards of its own name.

    A record goes by the hash of a feature (`by`), so that all records of a user stay together, and
    stay where they are when data is added: SHA-256 of "SEED:VALUE", its first 8 bytes as a
    big-endian number, over 2**64, falls into one of the shares in their order. Strings are hashed
    as they are, integers in decimal, a missing feature as nothing. Without `by` it goes by its
    place in the sources.

    The shares must sum to 1. `drop_rest=True` allows a smaller sum: the other records are not
    written.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"user": np.arange(1000) % 50, "x":
    ...     np.arange(1000)})
    >>> split(f"{folder}/a.tfrecord", f"{folder}/out", {"train": 0.8, "validation": 0.2}, by="user",
    ...     workers=0).splits
    {'train': 800, 'validation': 200}
    """
    splits = _splits(shares, drop_rest)
    goal = _target(src, dst, to, options.get("format"))
    options |= {"by": by, "seed": seed, "splits": splits, "single": False, "soon": not dry_run}
    return driver.plan_and_execute(
        lambda crew, beginning: planner.plan_for(src, dst, goal, engine=crew, beginning=beginning, **options),
        engine, workers, engine_options, dry_run,
        resume=resume, verify=verify, overwrite=overwrite, progress=progress,
    )  # fmt: skip


_ROUNDING = 1e-9
"""How far a sum of shares may be from 1 and still count as 1: 0.7 + 0.2 + 0.1 is not exactly 1."""


def _splits(shares: Mapping[str, float], drop_rest: bool) -> list[Split]:
    """The part of [0, 1) that belongs to each name.

    >>> _splits({"train": 0.7, "test": 0.2, "validation": 0.1}, False)[-1].high
    1.0
    """
    total = math.fsum(shares.values())
    if not shares or not all(share > 0 for share in shares.values()) or total > 1 + _ROUNDING:
        raise EncodeError(f"shares must be above 0 and sum to at most 1, not {dict(shares)}")
    if total < 1 - _ROUNDING and not drop_rest:
        rest = 100 * (1 - total)
        raise EncodeError(
            f"the shares {dict(shares)} sum to {total:.10g}, which leaves {rest:.4g} % of the"
            " records out: make them sum to 1, or pass drop_rest=True"
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
    """A random part of a dataset: a fraction, or so many records. With `by`, of each value of that
    feature the same fraction, exactly.

    Records are counted first; a seeded permutation of each value's records then says which are in.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"label": np.arange(1000) % 4})
    >>> sample(f"{folder}/a.tfrecord", f"{folder}/out", 0.1, by="label", workers=0).records
    100
    """
    if (
        (fraction is None) == (records is None)
        or (fraction is not None and not 0 < fraction <= 1)
        or (records is not None and records < 1)
    ):
        raise EncodeError("a fraction above 0 and up to 1, or a number of records")
    goal = _target(src, dst, to, options.get("format"))
    shards, options["shards"] = options.pop("shards", None), None
    if options.get("shuffle") is not None or shards == 1:
        options["shards"] = shards
    elif shards is not None:
        options["single"] = False
    options |= {"by": by, "seed": seed, "soon": not dry_run}

    def plan(crew: engines.Engine, beginning: Beginning) -> Plan:
        made = _sampled(
            planner.plan_for(src, dst, goal, engine=crew, beginning=beginning, **options),
            crew,
            fraction,
            records,
            beginning,
        )
        # sources are not cut, and no shard need be empty
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
        plan, engine, workers, engine_options, dry_run,
        resume=resume, verify=verify, overwrite=overwrite, progress=progress,
    )  # fmt: skip


def _sampled(
    plan: Plan,
    engine: engines.Engine,
    fraction: float | None,
    records: int | None,
    beginning: Beginning,
) -> Plan:
    """The plan with how many records of each stratum there are before every source, and how many
    are wanted.
    """
    found: list[Counter[str]] = [Counter()] * len(plan.sources)
    tasks = (
        {"do": "strata", "number": i, "parts": [part_json(plan.whole(i))]}
        for i in range(len(plan.sources))
    )
    for done, outcome in enumerate(
        planner.answered(engine.run(plan.spec, tasks), len(plan.sources))
    ):
        found[outcome.task["number"]] = Counter(reported(outcome)["strata"])
        beginning("counting what to choose from", plan.shards, done + 1, len(plan.sources))
    ranks, so_far = [], Counter[str]()
    for counts in found:
        ranks.append({name: so_far[name] for name in counts if so_far[name]})
        so_far.update(counts)
    wanted = _wanted(so_far, fraction, records)
    strata = {name: [count, wanted[name]] for name, count in sorted(so_far.items())}
    # Rows are filtered by `where` before they are counted, and so before they are picked.
    return replace(
        plan, spec=replace(plan.spec, strata=strata), ranks=[one or {"": 0} for one in ranks]
    )


def _size(plan: Plan) -> int:
    """How many records a sample has."""
    return sum(wanted for _, wanted in (plan.spec.strata or {}).values())


def _wanted(counts: Counter[str], fraction: float | None, records: int | None) -> dict[str, int]:
    """How many of each: shares rounded so that they add up.

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
    """One dataset out of several, in the order in which they are sorted; options as for `convert`."""
    return convert(src, dst, _target(src, dst, to, options.get("format")), **options)


def shuffle(
    src: Any, dst: str | os.PathLike[str], seed: int = 0, to: str | None = None, **options: Any
) -> DatasetReport:
    """The same records in one order over all shards, which hangs on the seed, the sources and the
    number of shards alone.
    """
    return convert(src, dst, _target(src, dst, to, options.get("format")), shuffle=seed, **options)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Stats:
    """What a dataset has. `json()` is for machines, `str()` for people."""

    sources: int
    bytes: int
    records: int
    features: dict[str, dict[str, Any]]
    damage: list[Any]

    def json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        return {
            "sources": self.sources,
            "bytes": self.bytes,
            "records": self.records,
            "features": self.features,
            "damage": self.damage,
        }

    def __str__(self) -> str:
        lines = [
            f"{formatting.plural(self.sources, 'file')}, {formatting.size(self.bytes)},"
            f" {formatting.plural(self.records, 'record')}"
        ]
        for name, about in sorted(self.features.items()):
            share = 100 * about["present"] / self.records if self.records else 0
            words = [
                f"in {about['present']:,} ({share:.4g} %)",
                f"values {about['values']:,}",
                f"lengths {_span(about['lengths'])}",
            ]
            words += [f"{key} {_span(about[key])}" for key in ("range", "sizes") if key in about]
            words += [f"NaN {about['nan']:,}"] if "nan" in about else []
            lines.append(f"  {name}: {about['kind']}, {', '.join(words)}")
        return "\n".join([*lines, *(f"  damage: {why}" for _, why, _ in self.damage)])

    __repr__ = __str__


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
    """How many records have each feature, how many values, and their ranges.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"label": np.arange(10)})
    >>> print(stats(f"{folder}/a.tfrecord", workers=0))
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
    with engines.using(engine, workers, engine_options) as crew, engines.watched(crew, meter.watch):
        for outcome in planner.answered(crew.run(spec, tasks), len(entries)):
            report = reported(outcome)
            total = statistics.added(total, report)
            damage += report["damage"]
            meter.made(outcome.task, report["records"], outcome.task["parts"][0]["size"])
    return Stats(len(entries), plan.size, total["records"], total["features"], damage)
