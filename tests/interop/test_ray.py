"""Ray Data: what is read is what was written, whoever dies on the way, and nobody needs TensorFlow
for it.
"""

import importlib
import os
import signal
import sys

import numpy as np
import pytest

import tensorwire as tw
from support.cloud_servers import BUCKET, S3, s3_environment
from tensorwire import storage
from tensorwire.codecs.conversion_spec import ConversionSpec
from tensorwire.datasets.engines.ray import RayEngine

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]
ROWS = 3000


@pytest.fixture(scope="module")
def ray():
    importlib.import_module("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    options = {
        "include_dashboard": False,
        "num_cpus": 2,
        "object_store_memory": 128 << 20,
        "log_to_driver": False,
    }
    ray.init(address="local", _node_ip_address="127.0.0.1", logging_level="ERROR", **options)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def server():
    """Started before Ray, whose workers take over the settings by which it is found."""
    importlib.import_module("moto")
    importlib.import_module("obstore")
    server = S3()
    with s3_environment(server.url):
        yield server
    server.close()


def rows_of(count=ROWS):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        row = {
            "id": i,
            "x": rng.random(3, np.float32),
            "word": f"w{i}",
            "raw": bytes([i % 256]) * (i % 5),
            "ids": list(range(i % 4)),
        }
        row["image"] = np.full((2, 2), i % 256, np.uint8)
        if i % 7 == 0:
            del row["word"], row["ids"]
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("ray") / "a.tfrecord")
    tw.write_examples(path, rows_of(), shards=6)
    return path.replace("a.tfrecord", "a-*.tfrecord")


def same(found, expected):
    """Whether rows are those that were written, in any order."""
    found = sorted(found, key=lambda row: row["id"])
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        for name, value in wanted.items():
            assert np.array_equal(row[name], value), (name, row[name], value)
        assert all(row[name] is None for name in row.keys() - wanted.keys())


@pytest.mark.cloud
def test_a_bucket(server, ray):
    import tensorwire.ray as twr

    base = f"s3://{BUCKET}/ray"
    rows = rows_of(500)
    tw.write_examples(f"{base}/in.tfrecord", rows, shards=4)
    dataset = twr.read_examples(f"{base}/in-*.tfrecord")
    same(dataset.take_all(), rows)
    assert twr.write_examples(dataset, f"{base}/out.tfrecord", shards=3, compression="gzip") == 500
    assert len(storage.find(f"{base}/out-*-of-00003.tfrecord")) == 3
    batches = list(tw.read_examples(f"{base}/out-*.tfrecord"))
    assert sorted(int(i) for batch in batches for i in batch["id"]) == list(range(500))
    # An object that is alone is divided once it has an index.
    alone = f"{base}/in-00000-of-00004.tfrecord"
    assert (
        len(twr.ExampleSource(alone, None, None, 100, "raise", None, None).get_read_tasks(4)) == 1
    )
    with tw.RecordReader(alone) as reader:
        reader[0]
    assert (
        len(twr.ExampleSource(alone, None, None, 100, "raise", None, None).get_read_tasks(4)) == 4
    )


@pytest.mark.cloud
def test_workers_have_the_settings_of_the_driver(ray, tmp_path):
    """Also those that the driver got after the cluster was there."""
    import tensorwire.ray as twr

    importlib.import_module("moto")
    late = S3()
    try:
        with s3_environment(late.url):
            base = f"s3://{BUCKET}/late"
            rows = rows_of(60)
            tw.write_examples(f"{base}/in.tfrecord", rows, shards=2)
            dataset = twr.read_examples(f"{base}/in-*.tfrecord")
            same(dataset.take_all(), rows)
            assert twr.write_examples(dataset, f"{base}/out.tfrecord", shards=2) == 60
            report = tw.convert(f"{base}/out-*.tfrecord", f"{base}/lines", to="jsonl", engine="ray")
            assert report.records == 60 and len(storage.find(f"{base}/lines/*.jsonl")) == 2
    finally:
        late.close()


def test_writing_makes_the_folder(ray, tmp_path):
    import tensorwire.ray as twr

    path = tmp_path / "new" / "deep" / "a.tfrecord"
    assert twr.write_examples(ray.data.range(10), str(path), shards=2) == 10
    assert sum(len(batch["id"]) for batch in tw.read_examples(f"{path.parent}/a-*.tfrecord")) == 10


def test_reading(ray, files):
    import tensorwire.ray as twr

    dataset = twr.read_examples(files)
    types = dict(zip(dataset.schema().names, map(str, dataset.schema().types), strict=True))
    assert (
        types["id"] == "int64"
        and "tensor" in types["x"]
        and types["word"] == "large_string"
        and types["raw"] == "large_binary"
    )
    same(dataset.take_all(), rows_of())
    batch = next(iter(dataset.iter_batches(batch_size=100, batch_format="numpy")))
    assert (
        batch["x"].shape == (100, 3)
        and batch["x"].dtype == np.float32
        and batch["image"].shape == (100, 2, 2)
    )
    chosen = twr.read_examples(files, columns=["id", "x"], override_num_blocks=2)
    assert chosen.schema().names == ["id", "x"] and chosen.count() == ROWS


def test_a_schema_with_a_default(ray, files):
    import tensorwire.ray as twr

    schema = {
        "id": tw.Feature("int64", ()),
        "word": tw.Feature("bytes", (), default="none", text=True),
    }
    found = twr.read_examples(files, schema=schema).take_all()
    assert sum(row["word"] == "none" for row in found) == len(range(0, ROWS, 7))


def test_one_file_is_divided(ray, files, tmp_path):
    import tensorwire.ray as twr

    path = str(tmp_path / "one.tfrecord")
    tw.write_examples(path, rows_of())
    source = twr.ExampleSource(path, None, None, 100, "raise", None, None)
    tasks = source.get_read_tasks(5)
    assert [task.metadata.num_rows for task in tasks] == [600] * 5
    assert [table.num_rows for task in tasks for table in task()] == [600] * 5
    same(twr.read_examples(path, override_num_blocks=5).take_all(), rows_of())
    packed = str(tmp_path / "one.tfrecord.gz")
    tw.write_examples(packed, rows_of(100), compression="gzip")
    assert twr.read_examples(packed, override_num_blocks=5).count() == 100


def test_files_are_divided_by_their_sizes(files):
    import tensorwire.ray as twr
    from tensorwire.ray.reading import _balanced

    assert _balanced([10] * 8, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert _balanced([100, 1, 1, 1], 2) == [[0], [1, 2, 3]]
    tasks = twr.ExampleSource(files, None, None, 100, "raise", None, None).get_read_tasks(4)
    names = [name for task in tasks for name in task.metadata.input_files]
    assert len(tasks) <= 4 and len(names) == len(set(names)) == 6


@pytest.mark.parametrize("shards", [4, None])
def test_writing(ray, files, tmp_path, shards):
    import tensorwire.ray as twr

    path = str(tmp_path / "out.tfrecord")
    assert twr.write_examples(twr.read_examples(files), path, shards=shards) == ROWS
    written = sorted(name for name in os.listdir(tmp_path) if name.endswith(".tfrecord"))
    if shards:
        assert written == [f"out-{i:05d}-of-00004.tfrecord" for i in range(4)]
        assert sorted(os.listdir(tmp_path)) == [*written, "out.tfrecord.schema.json"]
    found = [
        row for batch in tw.read_examples(str(tmp_path / "out-*.tfrecord")) for row in batch.rows()
    ]
    found = [{"word": None, "ids": None, **row} for row in found]
    same(found, rows_of())
    schema = tw.read_examples(str(tmp_path / "out-*.tfrecord")).schema
    assert (
        schema["image"].shape == (2, 2) and schema["image"].dtype == "uint8" and schema["word"].text
    )


def test_more_shards_than_rows(ray, tmp_path):
    import tensorwire.ray as twr

    assert (
        twr.write_examples(
            ray.data.from_items([{"a": 1}, {"a": 2}]), str(tmp_path / "f.tfrecord"), shards=5
        )
        == 2
    )
    assert sum(len(batch["a"]) for batch in tw.read_examples(str(tmp_path / "f-*.tfrecord"))) == 2
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".tfrecord")]) == 5


def test_written_again_with_fewer_tasks(ray, tmp_path):
    """What the first writing had more of is not read with the second."""
    import tensorwire.ray as twr

    other = tmp_path / "f-other.tfrecord"
    other.write_bytes(b"")
    for blocks, count in ((5, 10), (2, 4)):
        rows = ray.data.from_items([{"a": i} for i in range(count)], override_num_blocks=blocks)
        assert twr.write_examples(rows, str(tmp_path / "f.tfrecord")) == count
        assert (
            sum(len(batch["a"]) for batch in tw.read_examples(str(tmp_path / "f-0*.tfrecord")))
            == count
        )
    assert other.exists() and len(list(tmp_path.glob("f-0*.schema.json"))) == len(
        list(tmp_path.glob("f-0*.tfrecord"))
    )


def test_rays_own_tensors(ray, tmp_path):
    import tensorwire.ray as twr

    path = str(tmp_path / "t.tfrecord")
    dataset = ray.data.range_tensor(20, shape=(2, 3)).map_batches(
        lambda batch: {"data": batch["data"].astype(np.float32)}
    )
    assert twr.write_examples(dataset, path, shards=2) == 20
    arrays = np.concatenate(
        [batch["data"] for batch in tw.read_examples(str(tmp_path / "t-*.tfrecord"))]
    )
    assert arrays.shape == (20, 2, 3) and sorted(arrays[:, 0, 0].tolist()) == list(range(20))


def test_what_a_function_on_numpy_batches_returns(ray, tmp_path):
    """Ray makes tensors of its own of lists, and of what has another shape in every row, or only in
    another block.
    """
    import tensorwire.ray as twr

    def changed(batch):
        matrices = np.empty(len(batch["id"]), object)
        for row, number in enumerate(batch["id"]):
            matrices[row] = np.full((int(number) % 3 + 1, 2), number, np.float32)
        return {
            **batch,
            "matrix": matrices,
            "block": np.zeros((len(matrices), len(matrices) % 5 + 1, 2), np.int32),
        }

    rows = [
        {
            "id": i,
            "ids": np.arange(i % 4),
            "words": tw.Strings.of([f"w{j}é" for j in range(i % 3)]),
            "image": np.full((2, 2), i, np.uint8),
        }
        for i in range(100)
    ]
    tw.write_examples(tmp_path / "a.tfrecord", rows, shards=3)
    dataset = twr.read_examples(str(tmp_path / "a-*.tfrecord"), override_num_blocks=3).map_batches(
        changed, batch_format="numpy"
    )
    assert twr.write_examples(dataset, str(tmp_path / "b.tfrecord"), shards=3) == 100
    found = {
        int(row["id"]): row
        for batch in tw.read_examples(str(tmp_path / "b-*.tfrecord"))
        for row in batch.rows()
    }
    assert sorted(found) == list(range(100))
    for i, row in found.items():
        assert (
            row["ids"].tolist() == list(range(i % 4))
            and (row["image"] == i).all()
            and row["image"].shape == (2, 2)
        )
        assert [
            word.decode() if isinstance(word, bytes) else word for word in row["words"].tolist()
        ] == [f"w{j}é" for j in range(i % 3)]
        assert (
            row["matrix"].shape == (i % 3 + 1, 2)
            and (row["matrix"] == i).all()
            and row["matrix"].dtype == np.float32
        )
        assert row["block"].ndim == 2 and row["block"].shape[1] == 2


@pytest.mark.parametrize("write", [False, True])
def test_a_worker_that_is_killed(ray, files, tmp_path, write):
    import tensorwire.ray as twr

    mark = str(tmp_path / "killed")

    def die_once(batch):
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return batch
        return os.kill(os.getpid(), signal.SIGKILL)

    dataset = twr.read_examples(files, override_num_blocks=6).map_batches(
        die_once, batch_format="pyarrow"
    )
    if not write:
        same(dataset.take_all(), rows_of())
    else:
        assert twr.write_examples(dataset, str(tmp_path / "k.tfrecord")) == ROWS
        ids = [
            int(i)
            for batch in tw.read_examples(str(tmp_path / "k-*.tfrecord"), columns=["id"])
            for i in batch["id"]
        ]
        assert sorted(ids) == list(range(ROWS))
        assert not [
            name
            for name in os.listdir(tmp_path)
            if name.endswith(".tensorwire") or name.startswith(".")
        ]
    assert os.path.exists(mark)


def test_no_tensorflow_in_workers(ray, files):
    import tensorwire.ray as twr

    def loaded(batch):
        return {
            "loaded": [
                " ".join(name for name in ("tensorflow", "torch", "jax") if name in sys.modules)
            ]
        }

    found = (
        twr.read_examples(files, override_num_blocks=2)
        .map_batches(loaded, batch_format="numpy")
        .take_all()
    )
    assert found and {row["loaded"] for row in found} == {""}


def test_faults(ray, tmp_path):
    import tensorwire.ray as twr

    with pytest.raises(FileNotFoundError):
        twr.read_examples(str(tmp_path / "nothing.tfrecord"))
    path = str(tmp_path / "d.tfrecord")
    tw.write_examples(path, {"id": np.arange(1000)})
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"\0" * 20)
    with pytest.raises(Exception, match=r"d\.tfrecord.*byte"):
        twr.read_examples(path).take_all()
    assert 990 < twr.read_examples(path, on_corrupt="skip").count() < 1000
    with pytest.raises(tw.UsageError, match="at least 1"):
        twr.write_examples(None, path, shards=0)
    with pytest.raises(Exception, match="float64"):
        twr.write_examples(ray.data.from_items([{"a": 0.1}]), str(tmp_path / "g.tfrecord"))
    assert not [name for name in os.listdir(tmp_path) if name.startswith(("g", "."))]


def test_paths_are_from_the_present_folder(ray, tmp_path, monkeypatch):
    """Not from where Ray was started."""
    import tensorwire.ray as tr

    for name, first in (("one", 0), ("two", 1000)):
        (tmp_path / name).mkdir()
        tw.write_examples(tmp_path / name / "data.tfrecord", {"id": np.arange(first, first + 3)})
    for name, first in (("one", 0), ("two", 1000)):
        monkeypatch.chdir(tmp_path / name)
        assert sorted(row["id"] for row in tr.read_examples("data.tfrecord").take_all()) == [
            first,
            first + 1,
            first + 2,
        ]
        assert tr.write_examples(ray.data.range(10), "w.tfrecord", shards=2) == 10
        assert sum(1 for _ in tw.RecordReader("w-*.tfrecord")) == 10
        assert tw.convert("data.tfrecord", "out", to="jsonl", shards=2, engine="ray").records == 3
        assert (
            tw.convert("data.tfrecord", "mixed", to="jsonl", shuffle=0, engine="ray").records == 3
        )
        assert (
            len(list((tmp_path / name / "out").glob("*.jsonl"))) == 2
            and not (tmp_path / name / "mixed/_tensorwire/shuffle").exists()
        )


def test_nothing_is_what_is_left_of_an_empty_dataset(ray, tmp_path):
    import tensorwire.ray as tr

    path = str(tmp_path / "f.tfrecord")
    assert tr.write_examples(ray.data.range(100), path) == 100
    assert tr.write_examples(ray.data.from_items([]), path) == 0
    assert os.listdir(tmp_path) == []


def test_a_block_of_nulls(ray, tmp_path):
    """Which rows share a block is chance."""
    import tensorwire.ray as tr

    rows = [{"v": i, "z": None if i < 50 else i} for i in range(100)]
    assert (
        tr.write_examples(
            ray.data.from_items(rows, override_num_blocks=2), str(tmp_path / "z.tfrecord")
        )
        == 100
    )
    found = [row for batch in tw.read_examples(f"{tmp_path}/z-*.tfrecord") for row in batch.rows()]
    assert sorted((int(row["v"]), int(row.get("z", -1))) for row in found) == [
        (i, -1 if i < 50 else i) for i in range(100)
    ]


def test_options_of_tasks(ray, files, tmp_path):
    """Those that Ray knows; of more than there is, it says so."""
    how = {"options": {"max_retries": 1, "num_cpus": 0.5}}
    assert (
        tw.convert(files, tmp_path / "out", to="jsonl", engine="ray", engine_options=how).records
        == ROWS
    )
    engine = RayEngine(options={"num_cpus": 64})
    with pytest.warns(
        UserWarning, match="requires 64 CPU, and no node of the cluster has more than 2"
    ):
        engine._check_room()
    engine._embedded = True  # as without a cluster of one's own, where nobody will come
    with pytest.raises(tw.EncodeError, match="requires 64 CPU"):
        next(engine.run(ConversionSpec("tfrecord", "jsonl"), iter([])))


def test_dtypes_that_arrow_lacks(ray, tmp_path):
    """What `tw.save` wrote is written as Examples in its dtype; what Ray would show as other
    numbers is refused.
    """
    import ml_dtypes

    from tensorwire import ray as tensorwire_ray

    columns = {
        "x": np.array([1, 2, -3.5], ml_dtypes.bfloat16),
        "m": np.ones((3, 2), ml_dtypes.float8_e4m3fn),
        "i": np.arange(3),
    }
    tw.save(tmp_path / "a.parquet", columns)
    dataset = ray.data.read_parquet(str(tmp_path / "a.parquet"))
    tensorwire_ray.write_examples(dataset, str(tmp_path / "o.tfrecord"))
    batches = list(tw.read_examples(f"{tmp_path}/o-*.tfrecord"))
    for name, wanted in columns.items():
        found = np.concatenate([batch[name] for batch in batches])
        assert found.dtype == wanted.dtype and found.tolist() == wanted.tolist()
    with pytest.raises(Exception, match="bfloat16"):
        tensorwire_ray.read_examples(f"{tmp_path}/o-*.tfrecord").take_all()
