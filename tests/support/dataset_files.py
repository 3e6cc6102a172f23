"""Record files for tests of datasets, and waiting for what a conversion does."""

import collections
import contextlib
import os
import time
from pathlib import Path

import numpy as np

import tensorwire as tw


def rows_for(count, seed=0):
    """Every kind of feature: one value, a fixed number, any number, empty ones, missing ones; bytes
    that are no text; NaN and -0.0.
    """
    rng = np.random.default_rng(seed)
    floats = np.array([0.0, -0.0, np.nan, np.inf, 1e-40, 0.1], np.float32)
    out = []
    for i in range(count):
        row = {
            "id": i,
            "pair": [int(v) for v in rng.integers(-(2**63), 2**63 - 1, 2)],
            "f": floats[rng.integers(6)],
        }
        row["image"] = rng.integers(0, 256, int(rng.integers(0, 40)), np.uint8).tobytes()
        row["tokens"] = np.arange(int(rng.integers(0, 5)), dtype=np.int64)
        row["words"] = tw.Strings.of([b"w%d" % j for j in range(i % 3)], text=False)
        row["scores"] = rng.random(int(rng.integers(0, 3)), np.float32)
        if i % 3 == 0:
            row["sometimes"] = i
        if i % 5 == 0:
            row["triple"] = rng.random(3, np.float32)
        out.append(row)
    return out


SCHEMA = tw.Schema(
    {
        "id": tw.Feature("int64", ()), "pair": tw.Feature("int64", (2,)), "f": tw.Feature("float", ()), "image": tw.Feature("bytes", ()),
        "tokens": tw.Feature("int64", (None,)), "words": tw.Feature("bytes", (None,)), "scores": tw.Feature("float", (None,)),
        "sometimes": tw.Feature("int64", ()), "triple": tw.Feature("float", (3,)),
    }
)  # fmt: skip


def write(folder, count, shards, **options):
    os.makedirs(folder, exist_ok=True)
    options = {"schema_file": False, "schema": SCHEMA, **options}
    tw.write_examples(
        f"{folder}/a.tfrecord", rows_for(count), shards=shards, durable=False, **options
    )
    return f"{folder}/a-*.tfrecord"


def records(pattern):
    return collections.Counter(tw.RecordReader(pattern, index=False))


def parents():
    """By process, the one that has started it."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{name}/stat") as file,
        ):
            found[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    return found


def crew_of(driver):
    """The fork server, or what else the driver has started, and the workers."""
    known = parents()
    started = [
        pid
        for pid, parent in known.items()
        if parent == driver and b"datasets.engines" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return started, [pid for pid, parent in known.items() if parent in started]


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def done(folder):
    return (
        len([name for name in os.listdir(folder) if name.startswith("part-")])
        if os.path.isdir(folder)
        else 0
    )
