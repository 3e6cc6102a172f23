"""`python -m benchmarks.page FILE`: the tables of docs/benchmarks.md, as Markdown, from the JSON of
a run.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from tensorwire.figures import rate, ratio
from tensorwire.limits import READ, READ_CRC, READ_CRC_COPY

Case = dict[str, Any]


STORES = {
    "Bytes": ("dumps store small", "loads store small", "dumps store many", "loads store many"),
    "Save, files": ("save store small", "save store many", "save store state"),
    "Load, files": ("load store small", "load store many", "load store state", "touch store state"),
    "Rows of a table": ("rows store table", "slices store table", "open store table"),
}
"""Tables of the cases about files."""


def medians(case: Case) -> dict[str, float]:
    return {one["name"]: statistics.median(one["wall"]) for one in case["contenders"]}


def ours(case: Case) -> list[str]:
    return [one["name"] for one in case["contenders"] if one["role"] == "ours"]


def table(cases: list[Case], columns: list[str]) -> str:
    """One row a contender, one column a case; a cell has a ratio for each of our ways, in the order
    of `ours`.
    """
    times = [medians(case) for case in cases]
    ways = [way for way in ours(cases[0]) if all(way in time for time in times)]
    rows = [f"| their time / ours | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for name in max(times, key=len):  # the large sizes have rows that the small ones lack
        if name not in ways:
            cells = [
                " / ".join(ratio(time[name] / time[way]) for way in ways) if name in time else ""
                for time in times
            ]
            rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def dense(cases: dict[str, Case], which: str) -> str:
    found = {
        name.removeprefix(f"{which} "): case
        for name, case in cases.items()
        if re.fullmatch(rf"{which} \d+ \w+", name)
    }
    return table(list(found.values()), list(found))


def records(case: Case) -> str:
    """One row a contender: how fast it goes through a file, and what the others take for each of
    ours, by CPU time.
    """
    cpu = {one["name"]: statistics.median(one["cpu"]) for one in case["contenders"]}
    rivals = [one["name"] for one in case["contenders"] if one["role"] == "rival"]
    mine = ours(case) if rivals else []
    head = [
        "records",
        "of CPU",
        *(f"their CPU / {name.removeprefix('tensorwire, ')}" for name in mine),
    ]
    rows = [f"| | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
    for name, wall in medians(case).items():
        ratios = [ratio(cpu[name] / cpu[way]) if name != way else "" for way in mine]
        rows.append(
            f"| {name} |"
            f" {' | '.join([rate(case['records'] / wall), rate(case['records'] / cpu[name]), *ratios])} |"
        )
    return "\n".join(rows)


def distances(cases: list[Case]) -> str:
    """How far ours are from reading a file plainly, by CPU time."""
    floors = (READ, READ_CRC, READ_CRC_COPY)
    rows = [
        f"| CPU time in times of | GB/s of CPU | {' | '.join(floors)} |",
        f"|---|{'---:|' * (1 + len(floors))}",
    ]
    for case in cases:
        cpu = {one["name"]: statistics.median(one["cpu"]) for one in case["contenders"]}
        for one in case["contenders"] if READ in cpu else ():
            if one["size"]:
                cells = [
                    f"{one['size'] / cpu[one['name']] / 1e9:.1f}",
                    *(ratio(cpu[one["name"]] / cpu[floor]) for floor in floors),
                ]
                rows.append(f"| {case['name']}: {one['name']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def page(run: dict[str, Any]) -> str:
    """Every table whose cases were run, each under its title."""
    cases: dict[str, Case] = {case["name"]: case for case in run["cases"]}
    found = []
    for which in ("dumps", "loads"):
        if any(re.fullmatch(rf"{which} \d+ \w+", name) for name in cases):
            found.append(
                f"### {which}, one float32 tensor (tensorproto /"
                f" safetensors)\n\n{dense(cases, which)}"
            )
    for name in ("many, one by one", "many, one list", "strings", "sparse"):
        if f"dumps {name}" not in cases or f"loads {name}" not in cases:
            continue
        pair = [cases[f"dumps {name}"], cases[f"loads {name}"]]
        ways = " / ".join(way.removeprefix("tensorwire ") for way in ours(pair[0]))
        found.append(
            f"### {pair[0]['about'].removeprefix('dumps of ')}"
            f" ({ways})\n\n{table(pair, ['dumps', 'loads'])}"
        )
    for title, names in STORES.items():
        some = [cases[name] for name in names if name in cases]
        if some:
            ways = " / ".join(way.removeprefix("tensorwire, ") for way in ours(some[0]))
            found.append(
                f"### {title}"
                f" ({ways})\n\n{table(some, [case['name'].replace(' store', ',') for case in some])}"
            )
    files = [case for name, case in cases.items() if name.startswith("records")]
    found += [f"### {case['about']}\n\n{records(case)}" for case in files]
    if files:
        found.append(f"### Distance to a plain reading\n\n{distances(files)}")
    rows = [
        f"| {target['what']} | {target['measured']:.2f}{target['unit']} | {_needed(target)} |"
        for target in run["targets"]
    ]
    return "\n\n".join(
        [
            *found,
            "\n".join(["### Targets\n", "| target | measured | needed |", "|---|---:|---|", *rows]),
        ]
    )


def _needed(target: dict[str, Any]) -> str:
    return (
        f"{'<=' if target['at_most'] else '>='}"
        f" {target['needed']:g}{target['unit']}{'' if target['met'] else ', **MISSED**'}"
    )


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())))
