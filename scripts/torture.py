"""The long tier of tests. It takes about an hour, and its last run is the page docs/torture.md.

    .venv/bin/python scripts/torture.py [--stages NAME ...] [--processes 2] [--seconds 60]

Stages:

- properties: every Hypothesis test with 2,000 examples (`make test` tries 150)
- sweeps: tests marked `torture`: every single-bit flip and cut, 50,000 generated TensorProtos and
  40,000 Examples against TensorFlow, 200 times kill -9 while a file is replaced, 4,000 damaged HDF5
  files
- mutants: 100,000 mutated files of every format against every reader (scripts/attack.py)
- fuzzers: libFuzzer with ASan and UBSan on every kernel, 60 seconds each (scripts/fuzz)

A stage that fails does not stop the others. Stages may run at different times: the outcome of each is
kept in build/torture, with its commit, and the page is written when there is one of every stage.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "torture.md"
KEPT = ROOT / "build" / "torture"
_EXAMPLES = re.compile(r"(\d+) passing(?: examples?)?, (\d+) failing")
_RUNS = re.compile(r"^(\w+): (\d+) runs in \d+ s$", re.MULTILINE)


class Outcome(NamedTuple):
    """What one stage did."""

    what: str
    cases: int
    seconds: float
    findings: list[str]
    commit: str = ""
    date: str = ""


def run(command: list[str], log: Path, **environment: str) -> tuple[str, float]:
    """Run a command, show its output while it runs, and return its output and its duration."""
    started = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
        process.wait()
    return log.read_text(errors="replace"), time.monotonic() - started


def pytest(marker: str, folder: Path, processes: int) -> tuple[str, xml.Element, float]:
    report = folder / f"{marker}.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        str(processes),
        "--dist",
        "worksteal",
        "--hypothesis-show-statistics",
    ]
    command += ["-m", f"{marker} and not timing", f"--junitxml={report}"]
    text, seconds = run(command, folder / f"{marker}.log", TENSORWIRE_TORTURE="1")
    return text, xml.parse(report).getroot(), seconds


def failures(report: xml.Element) -> list[str]:
    failed = [
        case
        for case in report.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return [f"{case.get('classname')}::{case.get('name')}" for case in failed]


def properties(folder: Path, processes: int, seconds: int) -> Outcome:
    text, report, duration = pytest("hypothesis", folder, processes)
    examples = sum(int(passing) + int(failing) for passing, failing in _EXAMPLES.findall(text))
    tests = len(list(report.iter("testcase")))
    return Outcome(
        f"{tests} Hypothesis tests, up to 2,000 examples each",
        examples,
        duration,
        failures(report),
    )


def sweeps(folder: Path, processes: int, seconds: int) -> Outcome:
    _, report, duration = pytest("torture", folder, processes)
    cases = sum(int(p.get("value", 0)) for p in report.iter("property") if p.get("name") == "cases")
    tests = len(list(report.iter("testcase")))
    return Outcome(
        f"{tests} sweeps: flips and cuts, generated messages against TensorFlow, kill -9",
        cases,
        duration,
        failures(report),
    )


def mutants(folder: Path, processes: int, seconds: int) -> Outcome:
    report = folder / "mutants.json"
    _, duration = run(
        [sys.executable, "scripts/attack.py", "--json", str(report)], folder / "mutants.log"
    )
    result = json.loads(report.read_text())
    findings = [f"{finding['target']}: {finding['fault']}" for finding in result["findings"]]
    what = f"mutated inputs for {len(result['targets'])} kinds of input, seed {result['seed']}"
    return Outcome(what, sum(result["targets"].values()), duration, findings)


def fuzzers(folder: Path, processes: int, seconds: int) -> Outcome:
    text, duration = run(["scripts/fuzz", str(seconds)], folder / "fuzzers.log")
    runs = _RUNS.findall(text)
    findings = re.findall(r"^fuzz: (.* failed; .*)$", text, re.MULTILINE)
    what = f"{len(runs)} libFuzzer targets with ASan and UBSan, {seconds} s each"
    return Outcome(what, sum(int(count) for _, count in runs), duration, findings)


STAGES = {"properties": properties, "sweeps": sweeps, "mutants": mutants, "fuzzers": fuzzers}


def page(outcomes: dict[str, Outcome]) -> str:
    """The text of docs/torture.md."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    total = sum(outcome.seconds for outcome in outcomes.values())
    lines = [
        "# The last long run",
        "",
        "<!-- Made by scripts/torture.py (`make torture`). Do not edit. -->",
        "",
        (
            "`make torture` runs the long versions of the tests behind [the promises](safety.md)."
            " This page is its last run."
        ),
        "",
        (
            f"- Machine: {platform.system()} {platform.machine()}, {cores} cores, Python"
            f" {platform.python_version()}"
        ),
        f"- Duration: {duration(total)}",
        f"- Findings: {sum(len(outcome.findings) for outcome in outcomes.values())}",
        "",
        "| stage | what ran | cases | duration | findings | commit | date |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    for name, outcome in outcomes.items():
        lines.append(
            f"| {name} | {outcome.what} | {outcome.cases:,} | {duration(outcome.seconds)} |"
            f" {len(outcome.findings)} | `{outcome.commit}` | {outcome.date} |"
        )
    if any(outcome.findings for outcome in outcomes.values()):
        lines += ["", "## Findings", ""]
        lines += [
            f"- {name}: `{finding}`"
            for name, outcome in outcomes.items()
            for finding in outcome.findings
        ]
    return "\n".join(lines) + "\n"


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def revision() -> str:
    """The commit, marked if the working tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (
        " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=STAGES,
        default=list(STAGES),
        help="only these; the page shows the last outcome of the others",
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="how many run tests at once (default: 2)"
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="how long each fuzzer runs (default: 60)"
    )
    args = parser.parse_args()
    commit = revision()
    folder = Path(tempfile.mkdtemp(prefix="tensorwire-torture-"))
    KEPT.mkdir(parents=True, exist_ok=True)
    print(f"logs: {folder}", flush=True)
    for name in args.stages:
        print(f"=== {name}", flush=True)
        outcome = STAGES[name](folder, args.processes, args.seconds)
        if outcome.cases == 0:
            raise SystemExit(f"torture: the stage {name} tried nothing; see {folder}")
        outcome = outcome._replace(commit=commit, date=f"{datetime.now(UTC):%Y-%m-%d}")
        (KEPT / f"{name}.json").write_text(json.dumps(outcome._asdict()))
        print(f"=== {name}: {outcome}", flush=True)
    outcomes = {
        name: Outcome(**json.loads(path.read_text()))
        for name in STAGES
        if (path := KEPT / f"{name}.json").exists()
    }
    if len(outcomes) == len(STAGES):
        PAGE.write_text(page(outcomes))
    return 1 if any(outcome.findings for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
