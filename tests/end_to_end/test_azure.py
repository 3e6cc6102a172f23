"""Azure's blobs, by its own emulator: what is different from S3 is what the server says, not what
we do.
"""

import numpy as np
import pytest

import tensorwire as tw
from support.cloud_servers import BUCKET, Azure
from support.dataset_files import SCHEMA, records, rows_for
from tensorwire import datasets, storage

pytestmark = [pytest.mark.cloud, pytest.mark.arrow]
ROOT = f"az://{BUCKET}"


@pytest.fixture(scope="module", autouse=True)
def server():
    server = Azure()
    with server.environment():
        yield server
    server.close()


def test_files():
    # three parts of an upload
    value = {
        "x": np.random.default_rng(0).random((3000, 1000)),
        "words": tw.Strings.of(["a", "", "Straße"]),
    }
    tw.save(f"{ROOT}/models/a.safetensors", value, checksum=True)
    assert (
        tw.equal(tw.load(f"{ROOT}/models/a.safetensors"), value)
        and tw.verify(f"{ROOT}/models/a.safetensors").ok
    )
    with tw.open(f"{ROOT}/models/a.safetensors") as lazy:
        assert lazy["x"][2999, 3] == value["x"][2999, 3]
    for missing in (f"{ROOT}/none.safetensors", "az://nowhere/none.safetensors"):
        with pytest.raises(FileNotFoundError):
            tw.load(missing)


def test_an_object_is_one_wherever_it_is_named():
    """Azure puts an etag into quotes, but not when it lists."""
    storage.write_bytes(f"{ROOT}/one/a.bin", b"12345")
    assert storage.listing(f"{ROOT}/one") == [storage.stat(f"{ROOT}/one/a.bin")]
    before = storage.stat(f"{ROOT}/one/a.bin")
    storage.write_bytes(f"{ROOT}/one/a.bin", b"54321")
    assert storage.stat(f"{ROOT}/one/a.bin").stamp != before.stamp
    storage.delete(f"{ROOT}/one/a.bin")
    assert storage.stat(f"{ROOT}/one/a.bin") is None and storage.listing(f"{ROOT}/one") == []


def test_if_absent():
    with storage.writer(f"{ROOT}/once", if_absent=True) as file:
        file.write(b"first")
    with pytest.raises(FileExistsError), storage.writer(f"{ROOT}/once", if_absent=True) as file:
        file.write(b"second")
    assert storage.read_bytes(f"{ROOT}/once", 10) == b"first"


def test_datasets():
    source = f"{ROOT}/in/a-*.tfrecord"
    tw.write_examples(
        f"{ROOT}/in/a.tfrecord", rows_for(300), shards=6, schema=SCHEMA, schema_file=False
    )
    assert (
        datasets.convert(source, f"{ROOT}/parquet", "parquet", shards=4, workers=2).records == 300
    )
    assert datasets.convert(source, f"{ROOT}/parquet", "parquet", shards=4, workers=2).written == 0
    storage.delete(f"{ROOT}/parquet/part-00002-of-00004.parquet")
    assert datasets.convert(source, f"{ROOT}/parquet", "parquet", shards=4, workers=0).written == 1
    datasets.convert(f"{ROOT}/parquet/", f"{ROOT}/back", "tfrecord", workers=0)
    assert records(f"{ROOT}/back/*.tfrecord") == records(source)
