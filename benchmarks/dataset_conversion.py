"""A dataset of TFRecord files to Parquet: ours, Ray Data with TensorFlow behind it, and a plain
tf.data script. And how we scale.

    python -m benchmarks.dataset_conversion [--records 2000000] [--shards 16] [--rounds 5] [--only tf,ray,scaling] [--strict]

Rivals race in turns, from the same files, and write Parquet compressed with Snappy: ours with two
worker processes, Ray with two CPUs, tf.data with as many threads as it likes. What each wrote is
read back and compared in a first round that does not count. Starting Ray and importing TensorFlow
is not measured; starting our workers is. Ray is so slow that its race is over fewer records.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tensorwire as tw
from tensorwire import datasets

OURS, RAY, TF = "tensorwire, 2 workers", "ray.data.read_tfrecords", "tf.data and pyarrow"
NEEDED, AT_MOST = 5.0, 0.6
FEW = 40
"""Ray's race has one record in so many."""


def make(folder: str, records: int, shards: int) -> str:
    """Small Examples: numbers, a vector, a list of tokens, a short string."""
    rng = np.random.default_rng(0)
    # Ray makes a number of a list of one, and then fails where others have more
    lengths = rng.integers(2, 24, records)
    columns = {
        "id": np.arange(records),
        "label": rng.integers(0, 10, records),
        "score": rng.random(records, np.float32),
        "embedding": rng.random((records, 16), np.float32),
        "tokens": tw.Ragged(
            rng.integers(0, 50_000, int(lengths.sum())), np.concatenate([[0], np.cumsum(lengths)])
        ),
        "name": tw.Strings.of([b"name-%07d" % i for i in range(records)]),
    }
    tw.write_examples(
        f"{folder}/a.tfrecord", columns, shards=shards, schema_file=False, durable=False
    )
    return f"{folder}/a-*.tfrecord"


SCHEMA = tw.Schema(
    {
        "id": tw.Feature("int64", ()), "label": tw.Feature("int64", ()), "score": tw.Feature("float", ()),
        "embedding": tw.Feature("float", (16,)), "tokens": tw.Feature("int64", (None,)), "name": tw.Feature("bytes", ()),
    }
)  # fmt: skip
"""What the tf.data script is told, too."""


def ours(source: str, out: str, workers: int = 2) -> None:
    datasets.convert(source, out, "parquet", schema=SCHEMA, compression="snappy", workers=workers)


def by_ray(source: str, out: str) -> None:
    import glob

    import ray

    ray.data.read_tfrecords(sorted(glob.glob(source))).write_parquet(out)


def by_tf(source: str, out: str) -> None:
    """What one writes by hand: parse in batches, hand the columns to pyarrow."""
    import glob

    import pyarrow as pa
    import pyarrow.parquet as pq
    import tensorflow as tf

    os.makedirs(out)
    spec = {
        "id": tf.io.FixedLenFeature([], tf.int64), "label": tf.io.FixedLenFeature([], tf.int64),
        "score": tf.io.FixedLenFeature([], tf.float32), "embedding": tf.io.FixedLenFeature([16], tf.float32),
        "tokens": tf.io.RaggedFeature(tf.int64), "name": tf.io.FixedLenFeature([], tf.string),
    }  # fmt: skip
    for number, path in enumerate(sorted(glob.glob(source))):
        found = (
            tf.data.TFRecordDataset(path)
            .batch(4096)
            .map(lambda x: tf.io.parse_example(x, spec), tf.data.AUTOTUNE)
            .prefetch(2)
        )
        writer = None
        for batch in found:
            columns = {}
            for name, value in batch.items():
                if isinstance(value, tf.RaggedTensor):
                    columns[name] = pa.ListArray.from_arrays(
                        pa.array(value.row_splits.numpy(), pa.int32()),
                        pa.array(value.values.numpy()),
                    )
                elif value.shape.rank == 2:
                    columns[name] = pa.FixedSizeListArray.from_arrays(
                        pa.array(value.numpy().reshape(-1)), 16
                    )
                else:
                    columns[name] = pa.array(value.numpy())
            table = pa.table(columns)
            writer = writer or pq.ParquetWriter(
                f"{out}/{number:05d}.parquet", table.schema, compression="snappy"
            )
            writer.write_table(table)
        if writer is not None:
            writer.close()


def check(out: str, records: int) -> None:
    """Every record, once, with its values."""
    import pyarrow.dataset as ds

    table = ds.dataset(
        [os.path.join(out, name) for name in os.listdir(out) if name.endswith(".parquet")]
    ).to_table(["id", "name", "score"])
    order = np.argsort(table.column("id").to_numpy())
    assert (table.column("id").to_numpy()[order] == np.arange(records)).all(), (
        "records were lost or repeated"
    )
    name = table.column("name")[int(order[7])].as_py()
    assert name in (b"name-0000007", [b"name-0000007"]), name


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0", RAY_TQDM="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0"
    )
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        _node_ip_address="127.0.0.1",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        ray.shutdown()


class Times:
    """Seconds of each round: by the clock, and of CPU in this process and in those that it waited
    for.
    """

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def __str__(self) -> str:
        return (
            f"{min(self.wall):7.2f} {statistics.median(self.wall):7.2f}"
            f" {statistics.median(self.cpu):7.2f}"
        )


def race(
    rival: str, way: Callable[[str, str], None], records: int, shards: int, rounds: int
) -> float:
    """Ours and a rival, turn by turn; how many times as long as ours theirs took, by the median."""
    ways = {OURS: ours, rival: way}
    found = {name: Times() for name in ways}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        source, out = make(folder, records, shards), f"{folder}/out"
        for turn in range(rounds + 1):
            for name in ways if turn % 2 else reversed(ways):
                start, spent = time.perf_counter(), sum(os.times()[:4])
                ways[name](source, out)
                wall, cpu = time.perf_counter() - start, sum(os.times()[:4]) - spent
                if turn:
                    found[name].wall.append(wall)
                    found[name].cpu.append(cpu)
                else:
                    check(out, records)
                shutil.rmtree(out)
    best, typical = (
        kind(found[rival].wall) / kind(found[OURS].wall) for kind in (min, statistics.median)
    )
    print(
        f"{records:,} records in {shards} files, {rounds} rounds: best and median seconds, CPU"
        " seconds (not of Ray's own processes)"
    )
    for name, times in found.items():
        print(f"  {times}  {name}")
    print(
        f"  their time / ours: {best:.1f} by the best, {typical:.1f} by the median; {NEEDED:.0f}"
        f" needed: {_verdict(typical >= NEEDED)}\n"
    )
    return typical


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


_SCALING = """
import sys, resource, time
from tensorwire import datasets
workers = int(sys.argv[3])
start = time.perf_counter()
datasets.convert(sys.argv[1], sys.argv[2], "parquet", compression="snappy", workers=workers)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, time.perf_counter() - start)
"""


def scaling(records: int, shards: int, rounds: int) -> dict[str, Any]:
    """Wall time with one worker and with two, turn by turn, of the call and of the command around
    it (which loads Python and NumPy first), and what the largest worker took, for this many records
    and for a quarter of them in a quarter of the files."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name, part in (("all", 1), ("quarter", 4)):
            os.makedirs(f"{folder}/{name}")
            source = make(f"{folder}/{name}", records // part, max(1, shards // part))
            times: dict[tuple[str, int], list[float]] = {
                (what, workers): [] for what in ("call", "command") for workers in (1, 2)
            }
            for turn, workers in enumerate([1, 2, 2, 1] * rounds):
                out = f"{folder}/out"
                start = time.perf_counter()
                command = [sys.executable, "-c", _SCALING, source, out, str(workers)]
                done = subprocess.run(
                    command, capture_output=True, text=True, check=True
                ).stdout.split()
                if turn > 1:  # the first of each finds cold caches
                    times["command", workers].append(time.perf_counter() - start)
                    times["call", workers].append(float(done[1]))
                found[f"{name}, {workers} workers, MB"] = int(done[0]) / 1024
                shutil.rmtree(out)
            for (what, workers), taken in times.items():
                found[f"{name}, {what}, {workers} workers, s, best"] = min(taken)
                found[f"{name}, {what}, {workers} workers, s, median"] = statistics.median(taken)
    for what, kind in itertools.product(("call", "command"), ("best", "median")):
        one, two = (found[f"all, {what}, {workers} workers, s, {kind}"] for workers in (1, 2))
        found[f"2 workers over 1, {what}, {kind}"] = two / one
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="tf,ray,scaling", help="which of tf, ray and scaling")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    args = parser.parse_args()
    only = set(args.only.split(","))
    # workers find their bytecode, as those of an installed package do
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    met = []
    if "tf" in only:
        met.append(race(TF, by_tf, args.records, args.shards, args.rounds) >= NEEDED)
    if "ray" in only:
        with cluster():
            met.append(
                race(RAY, by_ray, args.records // FEW, args.shards, min(args.rounds, 2)) >= NEEDED
            )
    if "scaling" in only:
        found = scaling(args.records, args.shards, args.rounds)
        for name, value in found.items():
            print(f"{value:10.2f}  {name}")
        met.append(found["2 workers over 1, call, median"] <= AT_MOST)
        print(f"at most {AT_MOST} of the call needed: {_verdict(met[-1])}")
    return 1 if args.strict and not all(met) else 0


if __name__ == "__main__":
    sys.exit(main())
