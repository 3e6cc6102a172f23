"""Datasets in a bucket: a real S3 server, workers that talk to it, and a driver that dies."""

import importlib
import os
import subprocess
import sys

import pytest
from cloud_servers import BUCKET, S3, s3_environment
from test_datasets import SCHEMA, crew_of, records, rows_for, until

import tensorwire as tw
from tensorwire import datasets, storage
from tensorwire.datasets.manifest import Line, Manifest

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
        tw.write_examples(f"{ROOT}/in/a.tfrecord", rows_for(600), shards=40, schema=SCHEMA, schema_file=False)
        yield server
    server.close()


def shards(folder):
    return [entry for entry in storage.listing(folder) if "/part-" in entry.path]


def test_there_and_back(bucket):
    source = f"{ROOT}/in/a-*.tfrecord"
    for format in ("parquet", "arrow", "jsonl"):
        there = datasets.convert(source, f"{ROOT}/{format}", format, shards=4, workers=2)
        back = datasets.convert(f"{ROOT}/{format}/", f"{ROOT}/{format}-back", "tfrecord", shards=3, workers=0)
        assert there.records == back.records == 600 and storage.stat(f"{ROOT}/{format}-back/_SUCCESS") is not None
        assert records(f"{ROOT}/{format}-back/*.tfrecord") == records(source)
    assert datasets.convert(source, f"{ROOT}/parquet", "parquet", shards=4, workers=0).written == 0
    assert bucket.uploads() == 0


def test_the_books_do_not_wait_for_the_next_shard(bucket):
    manifest = Manifest(f"{ROOT}/books")
    for name in ("a", "b", "c"):
        manifest.add(Line(name, "key", 1, 2, "", ""))
    until(lambda: set(Manifest(f"{ROOT}/books").read()) == {"a", "b", "c"}, 5)
    manifest.close()
    assert len(storage.listing(f"{ROOT}/books")) == 2  # the first at once, the others together


def test_shuffle_and_leftovers(bucket):
    source = f"{ROOT}/in/a-*.tfrecord"
    datasets.shuffle(source, f"{ROOT}/shuffled", 3, shards=5, workers=0)
    assert records(f"{ROOT}/shuffled/*.tfrecord") == records(source)
    assert not [entry for entry in storage.listing(f"{ROOT}/shuffled") if entry.path.endswith(".run")]
    datasets.shuffle(source, f"{ROOT}/one/all.tfrecord", 3, workers=0)
    assert records(f"{ROOT}/one/all.tfrecord") == records(source)
    assert [entry.path for entry in storage.listing(f"{ROOT}/one")] == [f"{ROOT}/one/all.tfrecord"]


def test_the_driver_is_killed(bucket):
    out = f"{ROOT}/killed"
    driver = subprocess.Popen([sys.executable, "-c", _DRIVER, f"{ROOT}/in/a-*.tfrecord", out], stdout=subprocess.PIPE)
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
