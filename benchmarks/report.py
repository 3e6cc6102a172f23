"""The words, the tables, the JSON. Ratios are their time over ours: above 1 we win."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tensorwire.case import Plan, Result
from tensorwire.figures import duration, rate, ratio
from tensorwire.targets import Target
from tensorwire.timing import Timing

from tensorwire import limits, machine

OPENING = """\
These are benchmarks of tensorwire by the authors of tensorwire, so they are biased: we chose the cases, we know our library best,
and cases where we lost have had our attention. Measure your own tensors before you decide anything.
"""

_OTHERS = 3
"""Ways of ours besides the first that have a column of their own."""

HOW = """\
All contenders of a case run in one process, interleaved: each round runs everyone once, in a new order. A time is of one call,
with the garbage collector off, and includes freeing the result; the statements stand at the end. Ratios (x) are their time over
ours, so above 1.00 we win and below we lose. Median and best of the rounds (at least 3, if a call takes seconds), wall clock
and CPU of all threads. Before the clock starts, every contender's round trip is checked on the same value. Everyone reads what
its own dumps gave; of records all read one file, which we wrote (TensorFlow, if it is gzipped). Records' targets are of CPU.
The floor (x.tobytes, memcpy, plain read) says neither dtype nor shape: nothing to win there, only a distance."""


def opening() -> str:
    facts = machine.facts()
    rivals = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    where = (
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_average']:.1f},"
        f" {facts['system']}"
    )
    return (
        f"{OPENING}\n{HOW}\n\nMachine: {where}, huge pages: {facts['huge_pages']}\nPython"
        f" {facts['python']}: {rivals}\n"
    )


def case_table(result: Result) -> str:
    """Each contender against our first way in four columns, and against our others in one, unless
    they are many.
    """
    main, *others = result.ours()
    others = others if len(others) <= _OTHERS else []
    head = [
        "",
        "median",
        "worst",
        *(["records", "by CPU"] if result.records else []),
        "x median",
        "x best",
        "x CPU",
        "x CPU best",
        *[f"x {_short(one.name)}" for one in others],
        "note",
    ]
    rows = [head]
    for timing in result.timings:
        row = [timing.name, duration(timing.median), duration(timing.worst)]
        row += (
            [rate(result.records / took) for took in (timing.median, timing.cpu_median)]
            if result.records
            else []
        )
        row += [*map(ratio, _ratios(timing, main))]
        row += [ratio(timing.median / one.median) for one in others]
        left = f"{len(timing.wall)} rounds" if len(timing.wall) < len(main.wall) else ""
        rows.append([*row, ", ".join(filter(None, [timing.contender.note, left]))])
    title = f"## {result.about}\n   x: their time / that of {main.name}; {len(main.wall)} rounds\n"
    return title + columns(rows)


def _short(name: str) -> str:
    return name.removeprefix("tensorwire").lstrip(", ").removeprefix("tensorproto, ")


def _ratios(theirs: Timing, ours: Timing) -> list[float]:
    pairs = [
        (theirs.median, ours.median),
        (theirs.best, ours.best),
        (theirs.cpu_median, ours.cpu_median),
        (theirs.cpu_best, ours.cpu_best),
    ]
    return [a / b if b else float("nan") for a, b in pairs]


def columns(rows: list[list[str]]) -> str:
    """Rows as aligned text: the first column and the last to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)),
            row[-1],
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def limits_section(results: list[Result]) -> str:
    rows = [[*row, ""] for row in limits.table(results)]
    head = "## Limits: speed, and time in times of a memcpy (medians, same rounds)\n"
    found = head + (columns(rows) if len(rows) > 1 else "no large case was run")
    files = [[*row, ""] for row in limits.files_table(results)]
    if len(files) == 1:
        return found
    return (
        f"{found}\n\n## Limits of files: speed, and CPU time in times of a plain reading (medians,"
        f" same rounds)\n{columns(files)}"
    )


def targets_section(targets: list[Target]) -> str:
    missed = sum(not target.met for target in targets)
    head = (
        f"## Targets: {len(targets) - missed} met, {missed} missed (those whose cases were run)\n"
    )
    return head + "\n".join(map(str, targets))


def statements_section(results: list[Result]) -> str:
    """What was compared with what; cases with the same statements stand together."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for result in results:
        pairs = tuple((timing.name, timing.contender.statement) for timing in result.timings)
        groups.setdefault(pairs, []).append(result.name)
    lines = ["## What was timed"]
    for pairs, names in groups.items():
        lines += [
            "; ".join(names),
            columns([["  " + name, "", statement] for name, statement in pairs]),
        ]
    return "\n".join(lines)


def as_json(plan: Plan, results: list[Result], targets: list[Target]) -> dict[str, Any]:
    """Everything that was measured: seconds a call, for each round."""
    return {
        "bias": OPENING.strip(),
        "machine": machine.facts(),
        "plan": vars(plan),
        "cases": [
            {
                "name": result.name,
                "about": result.about,
                "records": result.records,
                "contenders": [
                    {
                        "name": timing.name,
                        "statement": timing.contender.statement,
                        "role": timing.contender.role,
                        "self_describing": timing.contender.self_describing,
                        "note": timing.contender.note,
                        "scale": timing.contender.scale,
                        "size": timing.contender.size,
                        "loops": timing.loops,
                        "wall": timing.wall,
                        "cpu": timing.cpu,
                    }
                    for timing in result.timings
                ],
            }
            for result in results
        ],
        "targets": [{**asdict(target), "met": target.met} for target in targets],
    }
