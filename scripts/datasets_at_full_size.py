"""200 shards, 2 million records: TFRecord to Parquet and back, with a worker killed on the way,
then with the driver killed.

    python scripts/datasets_at_full_size.py [--shards 200] [--records 2000000] [--engine local|ray] [--store disk|s3]

It prints what was measured, and fails if a record is lost, repeated or changed. A few minutes on
two cores, some gigabytes of disk; with `--store s3` everything lies in a bucket of an S3 server
(moto) on this machine, which holds it in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tensorwire as tw
from tensorwire import datasets, storage
from tensorwire.datasets.permutation import mix
from tensorwire.records.batch import Batch
from tensorwire.wire.crc import crc32c

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.cloud_servers import BUCKET, S3, s3_environment

_DRIVER = """
import sys
from tensorwire import datasets
print(datasets.convert(sys.argv[1], sys.argv[2], "parquet", engine=sys.argv[3], workers=2).written)
"""


def make(folder: str, records: int, shards: int) -> str:
    rng = np.random.default_rng(0)
    each = records // shards
    for shard in range(shards):
        lengths = rng.integers(0, 12, each)
        columns = {
            "id": np.arange(shard * each, (shard + 1) * each),
            "score": rng.random(each, np.float32),
            "vector": rng.random((each, 4), np.float32),
            "tokens": tw.Ragged(
                rng.integers(-(2**62), 2**62, int(lengths.sum())),
                np.concatenate([[0], np.cumsum(lengths)]),
            ),
            "bytes": tw.Strings.of([b"\xff%d" % i for i in range(each)], text=False),
        }
        some = rng.random(each) < 0.3
        batch = Batch(
            columns,
            {name: some if name == "score" else np.ones(each, np.bool_) for name in columns},
            each,
        )
        tw.write_examples(
            f"{folder}/a-{shard:05d}-of-{shards:05d}.tfrecord",
            [batch],
            schema_file=False,
            durable=False,
        )
    return f"{folder}/a-*.tfrecord"


def multiset(pattern: str) -> tuple[int, int, int]:
    """The number of records, and two sums of their checksums that do not hang on their order."""
    count, total, stirred = 0, 0, 0
    for block in tw.RecordReader(pattern, index=False).blocks():
        sums = np.array(
            [crc32c(record) + (len(record) << 32) for record in block.strings()], np.uint64
        )
        count, total = count + len(sums), (total + int(sums.sum(dtype=np.uint64))) % 2**64
        stirred = (stirred + int(mix(sums).sum(dtype=np.uint64))) % 2**64
    return count, total, stirred


def workers(engine: str) -> list[int]:
    """Processes that write shards now: copies of one that we have started. Ray names a worker after
    the task that it runs.
    """
    out = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    found = [
        (int(pid), int(parent), args)
        for pid, parent, args in (line.split(None, 2) for line in out.splitlines())
    ]
    ours = {
        pid for pid, parent, args in found if parent == os.getpid() and "datasets.engines" in args
    }
    return [
        pid
        for pid, parent, args in found
        if (parent in ours if engine == "local" else "ray::answer" in args)
    ]


def shards_in(folder: str) -> int:
    try:
        return sum(1 for entry in storage.listing(folder) if "/part-" in entry.path)
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def place(store: str) -> Iterator[str]:
    """A folder that is gone afterwards."""
    if store == "disk":
        with tempfile.TemporaryDirectory(prefix="tensorwire-full-") as folder:
            yield folder
        return
    server = S3()
    try:
        with s3_environment(server.url):
            yield f"s3://{BUCKET}/full"
            assert not server.uploads(), "an upload was begun and left"
    finally:
        server.close()


def killed_one(found: list[int]) -> bool:
    with contextlib.suppress(IndexError, ProcessLookupError):  # there is none yet, or it has ended
        os.kill(found[0], signal.SIGKILL)
        return True
    return False


def killing(folder: str, after: int, engine: str) -> threading.Thread:
    """Kills a worker once so many shards are there."""

    def kill() -> None:
        while shards_in(folder) < after:
            time.sleep(0.02)
        while not killed_one(workers(engine)):
            time.sleep(0.02)
        print(f"a worker was killed at {shards_in(folder)} shards")

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--store", choices=("disk", "s3"), default="disk")
    args = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with place(args.store) as folder:
        started = time.perf_counter()

        def said(what: object) -> None:
            print(f"{time.perf_counter() - started:6.1f} s  {what}", flush=True)

        def convert(source: str, out: str, to: str) -> datasets.DatasetReport:
            return datasets.convert(source, out, to, engine=args.engine, workers=2)

        source = make(folder, args.records, args.shards)
        wanted = multiset(source)
        said(f"{wanted[0]:,} records in {args.shards} files made, and read once")
        thread = killing(f"{folder}/parquet", args.shards // 3, args.engine)
        said(report := convert(source, f"{folder}/parquet", "parquet"))
        thread.join()
        assert report.retried <= 1
        said(convert(f"{folder}/parquet/", f"{folder}/back", "tfrecord"))
        assert multiset(f"{folder}/back/*.tfrecord") == wanted, (
            "records were lost, repeated or changed"
        )
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, source, f"{folder}/again", args.engine],
            stdout=subprocess.PIPE,
        )
        while shards_in(f"{folder}/again") < args.shards // 2:
            time.sleep(0.02)
        driver.kill()
        driver.communicate()
        time.sleep(2)  # its workers end with it
        there, booked = (
            shards_in(f"{folder}/again"),
            len(datasets.Manifest(f"{folder}/again").read()),
        )
        report = convert(source, f"{folder}/again", "parquet")
        said(
            f"the driver was killed at {there} shards, {booked} in its books; the second run wrote"
            f" {report.written} of {args.shards}"
        )
        assert report.written == args.shards - booked
        said(convert(f"{folder}/again/", f"{folder}/again-back", "tfrecord"))
        assert multiset(f"{folder}/again-back/*.tfrecord") == wanted, (
            "records were lost, repeated or changed"
        )
        said(f"{wanted[0]:,} records, the same multiset three times")


if __name__ == "__main__":
    main()
