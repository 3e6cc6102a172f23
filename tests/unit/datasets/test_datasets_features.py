"""Features that are more than a list: images, matrices, strings in a shape, tensors of any shape;
through every format, and changed.
"""

import importlib

import numpy as np
import pytest

import tensorwire as tw
from tensorwire import datasets

pytestmark = pytest.mark.arrow
COUNT = 20


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("features") / "a.tfrecord"
    rows = [
        {
            "id": i, "small": rng.integers(0, 256, 5, np.uint8), "flags": np.array([True, False, i % 2 == 0]), "matrix": rng.random((2, 2)),
            "image": rng.integers(0, 256, (4, 5, 3), np.uint8), "names": tw.Strings.of(["a", f"b{i}", "é", ""]).reshape(2, 2),
            "pair": tw.Strings.of([b"\xff", b"x" * i], text=False), "vary": rng.random((i % 3, 2), np.float32),
        }
        for i in range(COUNT)
    ]  # fmt: skip
    for i in range(COUNT):
        rows[i] |= {"sometimes": rng.integers(0, 9, (2, 2), np.int32)} if i % 3 else {}
        rows[i] |= {"words": tw.Strings.of(["x", "y"])} if i % 2 else {}
    tw.write_examples(path, rows)
    tw.convert(path, path.parent / "q.tfrecord", quantize={"matrix": "int8"}, workers=0)
    return path


def batch(path):
    return next(iter(tw.read_examples(path)))


def same(left, right, but=()):
    a, b = batch(left), batch(right)
    assert set(a) == set(b)
    for name in set(a) - set(but):
        assert tw.equal(a[name], b[name]) and (a.present[name] == b.present[name]).all(), name


@pytest.mark.parametrize("name", ["a", "q"])
@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl"])
def test_there_and_back(source, tmp_path, format, name):
    """The same bytes, and the same schema beside them: what was a tensor is one again."""
    source = source.with_stem(name)
    tw.convert(source, tmp_path / f"a.{format}", workers=0)
    tw.convert(tmp_path / f"a.{format}", tmp_path / "back.tfrecord", workers=0)
    assert list(tw.RecordReader(tmp_path / "back.tfrecord")) == list(tw.RecordReader(source))
    same(source, tmp_path / "back.tfrecord")
    assert dict(tw.infer_schema(tmp_path / "back.tfrecord")) == dict(tw.infer_schema(source))


def test_a_filter_keeps_what_features_mean(source, tmp_path):
    tw.convert(source, tmp_path / "few.tfrecord", where="id < 5", workers=0)
    few, all_ = batch(tmp_path / "few.tfrecord"), batch(source)
    assert few["image"].shape == (5, 4, 5, 3) and (few["image"] == all_["image"][:5]).all()
    assert all(
        (np.asarray(a) == np.asarray(b)).all()
        for a, b in zip(few["vary"], all_["vary"], strict=False)
    )


@pytest.mark.parametrize("format", ["npz", "safetensors"])
def test_files_without_a_schema(source, tmp_path, format):
    """Values stay. What was bytes on the way is bytes then."""
    tw.convert(source, tmp_path / f"a.{format}", workers=0)
    tw.convert(tmp_path / f"a.{format}", tmp_path / "back.tfrecord", tensors=["matrix"], workers=0)
    same(source, tmp_path / "back.tfrecord", ["vary"])


@pytest.mark.parametrize("format", ["tfrecord", "parquet", "arrow", "jsonl", "npz", "safetensors"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("id", "int32"),
        ("id", "float32"),
        ("small", "float16"),
        ("image", "float32"),
        ("matrix", "float32"),
        ("flags", "uint8"),
    ],
)
def test_casts(source, tmp_path, format, name, dtype):
    columns = ["id", "flags", "small", "image", "matrix"]
    tw.convert(
        source,
        tmp_path / f"a.{format}",
        columns=columns,
        cast={"matrix": "float32", name: dtype},
        workers=0,
    )
    tw.convert(tmp_path / f"a.{format}", tmp_path / "back.tfrecord", workers=0)
    found = batch(tmp_path / "back.tfrecord")[name]
    assert found.dtype == np.dtype(dtype) and (found == batch(source)[name].astype(dtype)).all()


def test_casts_of_what_is_no_number(source, tmp_path):
    for name in ("names", "pair"):
        with pytest.raises(tw.EncodeError, match="cast= applies to numbers") as error:
            tw.convert(source, tmp_path / "a.parquet", cast={name: "float32"}, workers=0)
        assert error.value.tensor == name
    tw.convert(source, tmp_path / "a.parquet", cast={"vary": "float64"}, workers=0)
    found = tw.load(tmp_path / "a.parquet", names=["vary"])["vary"]
    assert found.values.dtype == np.float64 and found.tolist() == batch(source)["vary"].tolist()


@pytest.mark.parametrize("format", ["tfrecord", "parquet", "jsonl", "npz"])
@pytest.mark.parametrize("cast", [{}, {"small": "float64"}])
def test_written_as_tensors(source, tmp_path, format, cast):
    """Lists become tensors, of another dtype too, and what was a tensor stays one."""
    columns = ["id", "small", "pair", "image", "vary"]
    place = source if format == "tfrecord" else tmp_path / f"a.{format}"
    if place is not source:
        tw.convert(source, place, columns=columns, workers=0)
    tw.convert(
        place,
        tmp_path / "b.tfrecord",
        columns=columns,
        tensors=["id", "small", "pair", "image"],
        cast=cast,
        workers=0,
    )
    found, was = batch(tmp_path / "b.tfrecord"), batch(source)
    assert (
        found["small"].dtype == np.dtype(cast.get("small", "uint8"))
        and (found["small"] == was["small"]).all()
    )
    assert (found["image"] == was["image"]).all() and (found["id"] == was["id"]).all()
    assert [one.tolist() for one in found["pair"]] == was["pair"].tolist()
    schema = tw.Schema.load(tmp_path / "b.tfrecord.schema.json")
    assert {schema[name].encoding for name in ("id", "small", "pair")} == {"tensor"}


def test_statistics_and_samples_of_them(source, tmp_path):
    assert datasets.stats(source, workers=0).records == COUNT
    assert datasets.sample(source, tmp_path / "few.parquet", records=4, workers=0).records == 4
    assert datasets.shuffle(source, tmp_path / "mixed.jsonl", workers=0).records == COUNT


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_lists_in_lists_of_somebody_else(tmp_path, format):
    """No list of an Example holds them, so each is a tensor there; and bytes beside them stay
    bytes.
    """
    pa = importlib.import_module("pyarrow")
    table = pa.table({"nested": [[[1, 2], [3]], [[4]], []], "raw": [b"a", b"", b"\xff"]})
    with pa.OSFile(str(tmp_path / f"a.{format}"), "wb") as file:
        if format == "arrow":
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            importlib.import_module("pyarrow.parquet").write_table(table, file)
    tw.convert(tmp_path / f"a.{format}", tmp_path / "a.tfrecord", workers=0)
    found = batch(tmp_path / "a.tfrecord")
    assert [one.tolist() for one in found["nested"]] == [[[1, 2], [3]], [[4]], []] and found[
        "raw"
    ].tolist() == [b"a", b"", b"\xff"]
