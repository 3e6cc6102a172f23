"""The driver and the books at a million shards, without the data: plan, tasks out, reports in,
lines written, and read again.

    python scripts/datasets_at_a_million_shards.py [--shards 1000000] [--files]

With --files it is the plan alone, of that many files that are there: found, looked at, and a few of
them read.

The engine here answers every task at once with a report of the right form, so what is measured is
all that the driver does for a shard.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorwire as tw
from tensorwire import datasets, storage
from tensorwire.datasets import ConversionSpec, Plan, driver
from tensorwire.datasets.engines import Outcome
from tensorwire.datasets.manifest import Manifest
from tensorwire.storage import FileEntry


class Answering:
    """An engine without workers; it counts what would go over the wire."""

    out = back = 0

    def run(self, spec: ConversionSpec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
        for task in tasks:
            report = {
                "records": 1000,
                "bytes": 0,
                "crc32c": "12345678",
                "stamp": "0",
                "damage": [],
                "read": 1 << 30,
                "seconds": 1.0,
            }
            self.out += len(json.dumps(task))
            self.back += len(json.dumps(report))
            yield Outcome(task, report)

    def close(self) -> None: ...


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def of_files(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="tensorwire-million-") as folder:
        tw.write_examples(f"{folder}/one", [{"x": 1}], schema_file=False)
        data = Path(folder, "one").read_bytes()
        os.mkdir(f"{folder}/in")
        for i in range(count):
            with open(
                f"{folder}/in/train-{i:07d}-of-{count:07d}.tfrecord", "wb", buffering=0
            ) as file:
                file.write(data)
        start = time.perf_counter()
        plan = datasets.plan(f"{folder}/in/*.tfrecord", f"{folder}/out", "parquet")
        print(
            f"plan of {len(plan):,} files: {time.perf_counter() - start:.1f} s,"
            f" {megabytes():.0f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=1_000_000)
    parser.add_argument("--files", action="store_true")
    args = parser.parse_args()
    if args.files:
        of_files(args.shards)
        return
    count = args.shards
    start = time.perf_counter()
    sources = [
        FileEntry(f"s3://bucket/data/train-{i:07d}-of-{count:07d}.tfrecord", 1 << 30, f"{i:032x}")
        for i in range(count)
    ]
    with tempfile.TemporaryDirectory(prefix="tensorwire-million-") as folder:
        out = os.path.join(folder, "out")
        plan = Plan(ConversionSpec("tfrecord", "parquet"), out, sources, count)
        _ = plan.sources_hash, plan.task(0), plan.task(count - 1)
        print(f"plan: {time.perf_counter() - start:.1f} s, {megabytes():.0f} MB")
        os.mkdir(out)
        for i in range(count):  # the driver looks whether they are there
            os.close(os.open(plan.path(plan.shard(i)), os.O_CREAT | os.O_WRONLY))
        engine = Answering()
        start = time.perf_counter()
        driver.execute(plan, engine, overwrite=True)
        taken = time.perf_counter() - start
        books = sum(entry.size for entry in storage.listing(os.path.join(out, "_tensorwire")))
        print(
            f"driver and manifest: {taken:.1f} s, {count / taken:,.0f} shards/s, {megabytes():.0f}"
            f" MB, books of {books / 1e6:.0f} MB"
        )
        print(f"a task is {engine.out / count:.0f} bytes, a report {engine.back / count:.0f}")
        start = time.perf_counter()
        lines = Manifest(out).read()
        print(
            f"reading the books again: {time.perf_counter() - start:.1f} s, {len(lines):,} lines,"
            f" {megabytes():.0f} MB"
        )


if __name__ == "__main__":
    main()
