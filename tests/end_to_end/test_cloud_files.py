"""Tensors and records in a bucket, on a web server and in fsspec, through the same functions as
local files.
"""

import importlib
import io
import os
import pickle

import numpy as np
import pytest

import tensorwire as tw
from support.cloud_servers import BUCKET, S3, Proxy, Web, s3_environment
from tensorwire import storage

pytestmark = pytest.mark.cloud
ROOT = f"s3://{BUCKET}"


@pytest.fixture(scope="module")
def server():
    importlib.import_module("moto")
    importlib.import_module("obstore")
    server = S3()
    yield server
    server.close()


@pytest.fixture
def proxy(server):
    proxy = Proxy(server)
    with s3_environment(proxy.url):
        yield proxy
    proxy.close()


@pytest.fixture(params=["s3", "memory"])
def base(request, tmp_path):
    if request.param == "s3":
        with s3_environment(request.getfixturevalue("server").url):
            yield f"{ROOT}/{tmp_path.name}"
    else:
        importlib.import_module("fsspec")
        yield f"memory://{tmp_path.name}"


def asked(proxy):
    """Bytes of all ranges that were asked for."""
    total = 0
    for method, _, headers in proxy.requests:
        wanted = next((text for name, text in headers.items() if name.lower() == "range"), None)
        if method == "GET" and wanted:
            low, high = wanted.removeprefix("bytes=").split("-")
            total += int(high) - int(low) + 1
    return total


VALUE = {"a": np.arange(12.0).reshape(3, 4), "words": tw.Strings.of(["x", "yy"]), "n": 3}


@pytest.mark.parametrize(
    "name", ["x.safetensors", "x.npz", "x.npy", "x.safetensors.zst", "x.arrow", "x.json", "x.pb"]
)
def test_save_and_load(base, name):
    path = storage.join(base, name)
    value = (
        np.arange(6, dtype=np.float32)
        if name in ("x.npy", "x.pb")
        else {"a": np.arange(6.0), "b": np.int32([1])}
    )
    format = "tensorproto" if name == "x.pb" else None
    tw.save(path, value, format)
    found = tw.load(path, format)
    assert tw.equal(found, value)
    array = found if isinstance(found, np.ndarray) else found["a"]
    array[0] = 7  # the caller's own


def test_open_inspect_verify(base):
    path = storage.join(base, "x.safetensors")
    tw.save(path, VALUE, checksum=True, metadata={"who": "me"})
    with tw.open(path) as file:
        assert file.path == path and file.metadata == {"who": "me"} and file.lazy
        assert file["a"][1:2].tolist() == [[4, 5, 6, 7]] and file["words"].read().tolist() == [
            "x",
            "yy",
        ]
        again = pickle.loads(pickle.dumps(file))
        with again:
            assert again["a"][2].tolist() == [8, 9, 10, 11]
    assert tw.load(path, names=["a"])["a"].shape == (3, 4)
    summary = tw.inspect(path)
    assert summary.path == path and [tensor.name for tensor in summary.tensors][:1] == ["a"]
    assert tw.verify(path)
    data = bytearray(storage.read_bytes(path, 1 << 20))
    data[-5] ^= 1
    storage.write_bytes(path, data)
    assert not tw.verify(path)
    with pytest.raises(tw.UsageError, match="mmap"):
        tw.open(path, mmap=True)
    with pytest.raises(tw.EncodeError, match="local folder"):
        tw.save(storage.join(base, "model.ckpt"), {"a": np.zeros(3)}, "checkpoint")


def test_missing(base):
    path = storage.join(base, "missing.safetensors")
    for use in (tw.open, tw.load, tw.inspect, tw.verify):
        with pytest.raises(FileNotFoundError) as caught:
            use(path)
        assert caught.value.filename == path
    for use in (
        lambda path: list(tw.RecordReader(path)),
        tw.read_examples,
        tw.infer_schema,
        tw.inspect,
    ):
        with pytest.raises(FileNotFoundError):
            use(storage.join(base, "missing.tfrecord"))


def test_a_sample_reads_only_its_bytes(proxy):
    path, rows = f"{ROOT}/sample.tfrecord", 100_000
    tw.write_examples(
        path, {"id": np.arange(rows), "x": np.zeros((rows, 20), np.float32)}, schema_file=False
    )
    proxy.requests.clear()
    schema = tw.infer_schema(path, sample=300_000)
    assert schema["id"].seen["range"] == [0, rows - 1] and schema["x"].shape == (20,)
    assert asked(proxy) <= (64 << 10) + 300_000 + 2 * 12 and len(proxy.requests) <= 7


def test_rows_read_only_their_bytes(proxy):
    path, array = f"{ROOT}/rows.safetensors", np.arange(3 << 20, dtype=np.float32).reshape(-1, 1024)
    tw.save(path, {"a": array, "b": array})
    proxy.requests.clear()
    with tw.open(path) as file:
        assert file["b"].shape == array.shape
        assert (file["b"][2000:2003] == array[2000:2003]).all()
    # HEAD, the beginning, the rows
    assert asked(proxy) <= (64 << 10) + 3 * 4096 and len(proxy.requests) == 3
    proxy.requests.clear()
    assert (tw.load(path)["b"] == array).all()
    assert asked(proxy) == storage.stat(path).size


def test_a_sharded_model(base):
    for i in range(2):
        tw.save(storage.join(base, f"m-{i}.safetensors"), {f"t{i}": np.full(3, i)})
    index = storage.join(base, "m.safetensors.index.json")
    storage.write_bytes(
        index, b'{"metadata": {}, "weight_map": {"t0": "m-0.safetensors", "t1": "m-1.safetensors"}}'
    )
    assert tw.load(index)["t1"].tolist() == [1, 1, 1]
    with tw.open(index) as file:
        assert list(file) == ["t0", "t1"] and file["t0"].read().tolist() == [0, 0, 0]


@pytest.mark.parametrize("compression", [None, "gzip", "zlib", "snappy"])
def test_records(base, compression):
    path, records = storage.join(base, "a.tfrecord"), [os.urandom(i % 700) for i in range(3000)]
    with tw.RecordWriter(path, compression=compression) as writer:
        for record in records:
            writer.write(record)
    reader = tw.RecordReader(path, compression=compression)
    assert list(reader) == records and reader.paths == [path]
    assert storage.stat(path + ".idx") is None
    assert len(reader) == 3000 and reader[2345] == records[2345] and reader[10:20] == records[10:20]
    assert storage.stat(path + ".idx") is not None
    assert sorted(reader.shuffle(1)) == sorted(records) and list(reader.shuffle(1)) != records
    assert [record for i in range(3) for record in reader.shard(i, 3)] == records
    reader.close()
    summary = tw.inspect(path)
    assert summary.records == 3000 and summary.indexed and summary.compression == compression
    verified = tw.verify(path)
    assert verified and verified.records == 3000


def test_an_index_is_not_used_for_another_object(base):
    path = storage.join(base, "a.tfrecord")
    for records in ([b"one", b"two"], [b"three", b"fours"], [b"a"]):
        with tw.RecordWriter(path) as writer:
            writer.write_many(records)
        with tw.RecordReader(path) as reader:
            assert [reader[i] for i in range(len(reader))] == records
            assert reader[::-1] == records[::-1]


def test_records_of_many_shards(base):
    path = storage.join(base, "train.tfrecord")
    with tw.RecordWriter(path, shards=7) as writer:
        writer.write_many([b"%d" % i for i in range(100)])
    pattern = storage.join(base, "train-*.tfrecord")
    reader = tw.RecordReader(pattern)
    assert (
        len(reader.paths) == 7
        and sorted(map(int, reader)) == list(range(100))
        and len(reader) == 100
    )
    reader[50]
    assert len(tw.RecordReader(storage.join(base, "train-*")).paths) == 7  # without the indexes
    reader.close()
    storage.write_bytes(storage.join(base, "train-00000-of-00009.tfrecord"), b"")
    with pytest.raises(tw.EncodeError, match="00007"):
        tw.RecordReader(pattern)
    with pytest.raises(FileNotFoundError, match="nothing-"):
        tw.RecordReader(storage.join(base, "nothing-*.tfrecord"))


def test_a_writer_that_fails(base):
    path = storage.join(base, "a.tfrecord")
    with pytest.raises(KeyError), tw.RecordWriter(path, shards=3) as writer:
        writer.write(bytes(10 << 20))
        raise KeyError
    assert storage.listing(base) == []
    for mode in ("a", "live"):
        with pytest.raises(tw.UsageError, match="local file"):
            tw.RecordWriter(path, mode=mode)
    with pytest.raises(tw.UsageError, match="local"):
        next(iter(tw.RecordReader(path, follow=True)))
    with pytest.raises(tw.UsageError, match="local"):
        next(iter(tw.RecordReader(path, mmap=True)))


def test_examples(base):
    path, rows = storage.join(base, "e.tfrecord"), 1000
    data = {
        "id": np.arange(rows),
        "x": np.random.default_rng(0).random((rows, 4), np.float32),
        "w": [f"w{i}" for i in range(rows)],
    }
    assert tw.write_examples(path, data, shards=5) == rows
    pattern = storage.join(base, "e-*.tfrecord")
    assert storage.stat(path + ".schema.json") is not None
    batches = list(tw.read_examples(pattern, batch_size=128))
    ids = np.concatenate([batch["id"] for batch in batches])
    assert sorted(ids.tolist()) == list(range(rows))
    at = ids.tolist().index(123)
    assert (np.concatenate([batch["x"] for batch in batches])[at] == data["x"][123]).all()
    assert sum(batch["w"].tolist().count("w7") for batch in batches) == 1
    storage.delete(path + ".schema.json")
    assert set(tw.infer_schema(pattern)) == {"id", "x", "w"}
    assert next(iter(tw.read_examples(pattern, columns=["id"])))["id"].dtype == np.int64
    shuffled = np.concatenate([batch["id"] for batch in tw.read_examples(pattern, shuffle=3)])
    assert sorted(shuffled.tolist()) == list(range(rows)) and shuffled.tolist() != ids.tolist()


def test_damage(base, tmp_path):
    path, local = storage.join(base, "d.tfrecord"), str(tmp_path / "d.tfrecord")
    with tw.RecordWriter(path) as writer:
        writer.write_many([b"%d" % i * 50 for i in range(100)])
    data = bytearray(storage.read_bytes(path, 1 << 20))
    data[2000] ^= 1
    storage.write_bytes(path, data)
    with pytest.raises(tw.ChecksumError) as caught:
        list(tw.RecordReader(path))
    assert caught.value.path == path
    reader = tw.RecordReader(path, on_corrupt="skip")
    assert len(list(reader)) == 99 and reader.skipped[0].path == path
    assert not tw.verify(path)
    assert tw.repair(path, local).records == 99 and len(list(tw.RecordReader(local))) == 99
    with pytest.raises(tw.UsageError, match="local file"):
        tw.repair(path, path + ".new")


def test_a_folder_of_schemas_is_asked_for_once(proxy):
    path = f"{ROOT}/many/e.tfrecord"
    tw.write_examples(path, {"id": np.arange(60)}, shards=30)
    proxy.requests.clear()
    examples = tw.read_examples(f"{ROOT}/many/e-*.tfrecord")
    assert len(proxy.requests) < 40  # and not two for each shard
    assert sum(len(batch["id"]) for batch in examples) == 60


def test_reading_in_order_goes_on_after_trouble(proxy):
    path, records = f"{ROOT}/t.tfrecord", [bytes([i % 256]) * 1000 for i in range(20_000)]
    with tw.RecordWriter(path) as writer:
        writer.write_many(tw.Strings.of(records))
    count = iter(range(1000))
    proxy.fault = lambda method, path, headers: (
        ("cut", 1_300_000) if method == "GET" and next(count) % 2 == 0 else None
    )
    assert list(tw.RecordReader(path)) == records


def test_a_network_fault_is_not_damage(proxy, monkeypatch):
    monkeypatch.setattr("tensorwire.storage.remote.PATIENCE", 0.5)
    path = f"{ROOT}/n.tfrecord"
    with tw.RecordWriter(path) as writer:
        writer.write_many([bytes(100_000)] * 100)
    for use in (
        lambda: list(tw.RecordReader(path, on_corrupt="skip")),
        lambda: tw.verify(path),
        lambda: list(tw.RecordReader(path)),
    ):
        proxy.fault = lambda method, path, headers: (
            500 if method == "GET" and "bytes=0-" not in str(headers.get("range")) else None
        )
        with pytest.raises(tw.TransportError):
            use()


def test_an_index_that_cannot_be_kept(proxy):
    path = f"{ROOT}/i.tfrecord"
    with tw.RecordWriter(path) as writer:
        writer.write_many([b"a", b"b"])
    proxy.fault = lambda method, path, headers: 403 if method == "PUT" else None
    with tw.RecordReader(path) as reader:
        assert reader[1] == b"b"
    assert storage.stat(path + ".idx") is None


def test_web_server():
    importlib.import_module("obstore")
    web = Web()
    try:
        held = io.BytesIO()
        tw.save(held, {"a": np.arange(10)})
        web.files["/x.safetensors"] = held.getvalue()
        with tw.open(f"{web.url}/x.safetensors") as file:
            assert file["a"][3:5].tolist() == [3, 4]
        assert tw.load(f"{web.url}/x.safetensors")["a"].tolist() == list(range(10))
        from tensorwire.wire.kernels import frame

        web.files["/r.tfrecord"] = b"".join(frame(b"%d" % i) for i in range(50))
        with tw.RecordReader(f"{web.url}/r.tfrecord") as reader:
            assert len(reader) == 50 and reader[7] == b"7" and list(reader)[49] == b"49"
        with pytest.raises(tw.UsageError, match="web server"):
            tw.save(f"{web.url}/y.safetensors", {"a": np.zeros(3)})
    finally:
        web.close()
