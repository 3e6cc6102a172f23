"""`python -m benchmarks`: measure, print, and say which targets are met."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from dataclasses import replace
from pathlib import Path

from tensorwire.case import QUICK, MiB, Plan
from tensorwire.cases import cases

from tensorwire import machine, report, targets

_MEMORY = 8 << 30
"""With less, the largest size is left out: each contender holds its own 256 MiB, and some copy them
twice.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=report.OPENING)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds and smaller sizes, about two minutes"
    )
    parser.add_argument(
        "--only", metavar="TEXT", default="", help='only cases named so: "32 B", "loads", "strings"'
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every measurement to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    chosen = parser.parse_args(arguments)

    plan = QUICK if chosen.quick else Plan()
    if machine.memory_available() < _MEMORY and plan.large > 64 * MiB:
        print(
            f"Less than {_MEMORY >> 30} GiB of memory is free: sizes over 64 MiB are left out.",
            file=sys.stderr,
        )
        plan = replace(plan, sizes=(*plan.sizes[:-1], 64 * MiB))
    print(report.opening())
    results = []
    for case in cases(plan):
        if chosen.only in case.name:
            results.append(case.run())
            gc.collect()
            print(report.case_table(results[-1]), end="\n\n", flush=True)
    if not results:
        parser.error(
            f"no case has {chosen.only!r} in its name; there are:"
            f" {', '.join(case.name for case in cases(plan))}"
        )
    checked = targets.check(results)
    sections = (
        report.statements_section(results),
        report.limits_section(results),
        report.targets_section(checked),
    )
    print(*sections, sep="\n\n")
    if chosen.json:
        chosen.json.write_text(json.dumps(report.as_json(plan, results, checked), indent=1) + "\n")
    return 1 if chosen.strict and not all(target.met for target in checked) else 0


if __name__ == "__main__":
    sys.exit(main())
