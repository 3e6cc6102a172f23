"""Datasets in a bucket: a real S3 server, workers that talk to it, and a driver that dies."""

import importlib
import os
import subprocess
import sys
import threading

import pytest

import tensorwire as tw
from support.cloud_servers import BUCKET, S3, s3_environment
from support.dataset_files import SCHEMA, crew_of, records, rows_for, until
from tensorwire import datasets, storage
from tensorwire.datasets import engines
from tensorwire.datasets.manifest import Manifest, ManifestLine

pytestmark = [pytest.mark.cloud, pytest.mark.arrow]
ROOT = f"s3://{BUCKET}"
_DRIVER = """
import sys
from tensorwire import datasets
report = datasets.convert(sys.argv[1], sys.argv[2], "parquet", workers=2)
print(report.written, report.skipped)
"""


@pytest.fixture(scope="module")
def bucket():
    importlib.import_module("moto")
    importlib.import_module("obstore")
    server = S3()
    with s3_environment(server.url):
        tw.write_examples(
            f"{ROOT}/in/a.tfrecord", rows_for(600), shards=40, schema=SCHEMA, schema_file=False
        )
        yield server
    server.close()


def shards(folder):
    return [entry for entry in storage.listing(folder) if "/part-" in entry.path]


def test_there_and_back(bucket):
    source = f"{ROOT}/in/a-*.tfrecord"
    for format in ("parquet", "arrow", "jsonl"):
        there = datasets.convert(source, f"{ROOT}/{format}", format, shards=4, workers=2)
        back = datasets.convert(
            f"{ROOT}/{format}/", f"{ROOT}/{format}-back", "tfrecord", shards=3, workers=0
        )
        assert (
            there.records == back.records == 600
            and storage.stat(f"{ROOT}/{format}-back/_SUCCESS") is not None
        )
        assert records(f"{ROOT}/{format}-back/*.tfrecord") == records(source)
    assert datasets.convert(source, f"{ROOT}/parquet", "parquet", shards=4, workers=0).written == 0
    assert bucket.uploads() == 0


def test_the_books_do_not_wait_for_the_next_shard(bucket):
    manifest = Manifest(f"{ROOT}/books")
    for name in ("a", "b", "c"):
        manifest.add(ManifestLine(name, "key", 1, 2, "", ""))
    until(lambda: set(Manifest(f"{ROOT}/books").read()) == {"a", "b", "c"}, 5)
    manifest.close()
    assert len(storage.listing(f"{ROOT}/books")) == 2  # the first at once, the others together


def test_shuffle_and_leftovers(bucket):
    source = f"{ROOT}/in/a-*.tfrecord"
    datasets.shuffle(source, f"{ROOT}/shuffled", 3, shards=5, workers=0)
    assert records(f"{ROOT}/shuffled/*.tfrecord") == records(source)
    assert not [
        entry for entry in storage.listing(f"{ROOT}/shuffled") if entry.path.endswith(".run")
    ]
    datasets.shuffle(source, f"{ROOT}/one/all.tfrecord", 3, workers=0)
    assert records(f"{ROOT}/one/all.tfrecord") == records(source)
    assert [entry.path for entry in storage.listing(f"{ROOT}/one")] == [f"{ROOT}/one/all.tfrecord"]


def test_the_driver_is_killed(bucket):
    out = f"{ROOT}/killed"
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, f"{ROOT}/in/a-*.tfrecord", out], stdout=subprocess.PIPE
    )
    until(lambda: len(shards(out)) >= 10)
    crew = [pid for group in crew_of(driver.pid) for pid in group]
    driver.kill()
    driver.communicate()
    until(lambda: not any(children_alive(pid) for pid in crew), 10)
    booked = len(Manifest(out).read())
    report = datasets.convert(f"{ROOT}/in/a-*.tfrecord", out, "parquet", workers=2)
    assert report.written == 40 - booked and report.records == 600
    datasets.convert(out + "/", f"{ROOT}/killed-back", "tfrecord", workers=0)
    assert records(f"{ROOT}/killed-back/*.tfrecord") == records(f"{ROOT}/in/a-*.tfrecord")


def children_alive(pid):

    return os.path.exists(f"/proc/{pid}")


class Waiting:
    """An engine in this process that waits, before it does a task or after, until it is told to go
    on.
    """

    def __init__(self, at, before=True):
        self.at, self.before = at, before
        self.reached, self.go_on = threading.Event(), threading.Event()

    def _wait(self):
        self.reached.set()
        assert self.go_on.wait(60)

    def run(self, spec, tasks):
        for task in tasks:
            self.at -= task["do"] != "count"
            waits = self.at < 0 and not self.reached.is_set()
            if waits and self.before:
                self._wait()
            found = engines.answer(task, spec)
            if waits and not self.before:
                self._wait()
            yield engines.outcome(task, found)

    def close(self): ...


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"where": "len(tokens) < 2", "shards": 6}, {"where": "len(tokens) >= 2", "shards": 6}),
        ({"shards": 4}, {"shards": 6}),
        ({"shuffle": 1, "shards": 6}, {"shuffle": 1, "shards": 4}),
        ({"shuffle": 1, "shards": 4}, {"shuffle": 2, "shards": 4}),
    ],
    ids=["rows", "shards", "shuffled", "seeds"],
)
@pytest.mark.parametrize("end", [False, True], ids=["early", "late"])
def test_of_two_drivers_the_second_goes_on(bucket, first, second, before, end, request):
    """And writes its own records; the first one stops at once, and touches nothing any more."""
    source, out = f"{ROOT}/in/a-0000[0-4]-*.tfrecord", f"{ROOT}/two-{request.node.callspec.id}"
    early, late = (
        Waiting(5 * ("shuffle" in one) + one["shards"] - 2 if end else 1, before)
        for one in (first, second)
    )
    ended: list = []

    def run(engine, options):
        try:
            ended.append(
                datasets.convert(
                    source, out, "tfrecord", engine=engine, schema=SCHEMA, overwrite=True, **options
                )
            )
        except Exception as error:
            ended.append(error)

    threads = [threading.Thread(target=run, args=one) for one in ((early, first), (late, second))]
    for thread, engine in zip(threads, (early, late), strict=True):
        thread.start()
        assert engine.reached.wait(60)
    # the first one meets the other in the middle of its work
    for thread, engine in zip(threads, (early, late), strict=True):
        engine.go_on.set()
        thread.join(60)
    assert isinstance(ended[0], tw.TensorwireError) and "another run" in str(ended[0])
    report = ended[1]
    # the first one has written over a shard before it knew: that is seen, and done again
    if isinstance(report, Exception):
        assert "replaced by another run" in str(report) and storage.stat(f"{out}/_SUCCESS") is None
        report = datasets.convert(source, out, "tfrecord", workers=0, schema=SCHEMA, **second)
    wanted = f"{ROOT}/wanted-{request.node.callspec.id}"
    datasets.convert(source, wanted, "tfrecord", workers=0, schema=SCHEMA, **second)
    assert storage.stat(f"{out}/_SUCCESS") is not None and len(shards(out)) == second["shards"]
    assert [list(tw.RecordReader(f"{folder}/*.tfrecord")) for folder in (out,)] == [
        list(tw.RecordReader(f"{wanted}/*.tfrecord"))
    ]
    assert not [entry for entry in storage.listing(out) if entry.path.endswith(".run")]


def test_a_driver_that_was_overtaken_touches_a_finished_dataset_no_more(bucket):
    source, out = f"{ROOT}/in/a-*.tfrecord", f"{ROOT}/overtaken"
    early, ended = Waiting(6), []

    def run():
        with pytest.raises(tw.EncodeError, match="another run is writing"):
            datasets.convert(
                source, out, "tfrecord", engine=early, shards=8, schema=SCHEMA, where="id < 300"
            )
        ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    assert early.reached.wait(60)
    datasets.convert(source, out, "tfrecord", workers=0, shards=8, schema=SCHEMA, where="id >= 300")
    before = storage.listing(out)
    early.go_on.set()
    thread.join(60)
    data = [entry for entry in storage.listing(out) if "/_tensorwire/" not in entry.path]
    assert ended and data == [entry for entry in before if "/_tensorwire/" not in entry.path]
