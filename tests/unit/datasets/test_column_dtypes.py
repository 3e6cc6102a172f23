"""Columns of Parquet and Arrow files in every dtype and kind: a dataset has the values that
`tw.load` has.
"""

import json

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from support.tiers import require
from tensorwire import datasets
from tensorwire.core import dtypes

pa = require("pyarrow")
pq = require("pyarrow.parquet")

pytestmark = pytest.mark.arrow
DTYPES = [row.name for row in dtypes.TABLE if not row.reading_only]
SOURCES = ("parquet", "arrow")
TARGETS = ("jsonl", "safetensors", "npz", "tfrecord", "parquet", "arrow")


def numbers(name, shape=(6,)):
    """Values of a dtype, its smallest and largest ones among them, and no NaN."""
    row = dtypes.named(name)
    raw = np.random.default_rng(7).integers(0, 256, (*shape, row.numpy.itemsize), np.uint8)
    if row.bits < 8:
        made = np.arange(np.prod(shape)).reshape(shape) % 2
    elif name == "bool":
        made = raw[..., 0] % 2
    elif row.numpy.kind in "iu":
        made = raw.view(row.numpy)[..., 0]
    else:
        made = raw[..., 0].astype(np.float32) / 16 - 4
        made = np.abs(made) + 1 if name == "float8_e8m0fnu" else made
        made = made + 1j if row.numpy.kind == "c" else made
    return np.asarray(made).astype(row.numpy)


def read_back(path, target):
    """The columns of a dataset of one shard, by another way than the one that wrote it."""
    if target == "jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return {name: [line[name] for line in lines] for name in lines[0]}
    if target == "tfrecord":
        (batch,) = tw.read_examples(path)
        return dict(batch)
    return tw.load(path)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(tmp_path, name, source, target):
    """Each value comes back in its dtype, or is refused; JSON has numbers and no dtypes."""
    x = numbers(name)
    tw.save(tmp_path / f"a.{source}", {"x": x, "m": numbers(name, (6, 3)), "i": np.arange(6)})
    values = {"x": x, "m": numbers(name, (6, 3)), "i": np.arange(6)}
    out = tmp_path / f"o.{target}"
    try:
        datasets.convert(tmp_path / f"a.{source}", out, target, workers=0)
    except tw.EncodeError as error:
        assert error.tensor in ("x", "m")
        assert (target, name) in {
            ("tfrecord", "float64"),
            ("tfrecord", "uint64"),
            ("jsonl", "complex64"),
            ("jsonl", "complex128"),
        }
        return
    found = read_back(out, target)
    for column, wanted in values.items():
        if target == "jsonl":
            assert np.array_equal(np.array(found[column], np.float64), wanted.astype(np.float64))
        else:
            assert tw.equal(np.asarray(found[column]), wanted), column


def test_the_door_for_all(tmp_path):
    """As the examples that were wrong: `tw.convert` by itself chooses rows, or is told to."""
    x = np.array([1, 2, -3.5], ml_dtypes.bfloat16)
    tw.save(tmp_path / "a.parquet", {"x": x})
    tw.convert(tmp_path / "a.parquet", tmp_path / "o.jsonl")
    assert (tmp_path / "o.jsonl").read_text().splitlines() == [
        '{"x":1.0}',
        '{"x":2.0}',
        '{"x":-3.5}',
    ]
    f8 = np.array([1, 2, -3.5], ml_dtypes.float8_e4m3fn)
    tw.save(tmp_path / "f8.arrow", {"x": f8})
    tw.convert(tmp_path / "f8.arrow", tmp_path / "f8.safetensors", shards=1)
    assert tw.equal(tw.load(tmp_path / "f8.safetensors")["x"], f8)
    tw.save(tmp_path / "i4.arrow", {"x": np.array([-8, 7], ml_dtypes.int4)})
    tw.convert(tmp_path / "i4.arrow", tmp_path / "i4.jsonl")
    assert (tmp_path / "i4.jsonl").read_text().splitlines() == ['{"x":-8}', '{"x":7}']


KINDS = {
    "strings": lambda x: tw.Strings.of(["a", "", "cé"]),
    "bytes": lambda x: tw.Strings.of([b"a", b"", b"\xff"]),
    "strings of a shape": lambda x: tw.Strings.of(["a", "", "c", "d", "e", "f"], (3, 2)),
    "ragged": lambda x: tw.Ragged(x[:4], [0, 1, 1, 4]),
    "ragged, int32": lambda x: tw.Ragged(x[:4], np.int32([0, 1, 1, 4])),
    "ragged of ragged": lambda x: tw.Ragged(x[:4], [[0, 2, 2, 3], [0, 1, 1, 4]]),
    "ragged of one length": lambda x: tw.Ragged(
        x[:4], [[0, 2, 4, 6], [0, 1, 1, 2, 3, 3, 4]], [2, None]
    ),
    "ragged of rows": lambda x: tw.Ragged(x.reshape(3, 2), [0, 1, 1, 3]),
    "ragged strings": lambda x: tw.Ragged(tw.Strings.of(["a", "bb"]), [0, 1, 1, 2]),
    "matrices": lambda x: np.stack([x.reshape(2, 3)] * 3),
    "rows without elements": lambda x: x[:0].reshape(3, 0),
}


@pytest.mark.parametrize("target", ["safetensors", "npz", "parquet", "arrow"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["float32", "bfloat16", "complex64", "int4"])
def test_every_kind(tmp_path, name, kind, source, target):
    value = KINDS[kind](numbers(name))
    tw.save(tmp_path / f"a.{source}", {"x": value})
    datasets.convert(tmp_path / f"a.{source}", tmp_path / f"o.{target}", target, workers=0)
    found = tw.load(tmp_path / f"o.{target}")["x"]
    assert type(found) is type(value) and found.shape == value.shape
    assert tw.equal(found, value) or (kind == "ragged, int32" and found.tolist() == value.tolist())


@pytest.mark.parametrize("target", ["safetensors", "npz", "parquet", "arrow"])
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_missing(tmp_path, source, target):
    """A table with nulls, by `tw.load` and by a dataset."""
    table = pa.table({
        "n": [1, None, 3], "s": ["a", None, ""], "l": [[1], None, []], "i": [1, 2, 3],
        "m": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
    })  # fmt: skip
    path = tmp_path / f"a.{source}"
    if source == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    datasets.convert(path, tmp_path / f"o.{target}", target, workers=0)
    found, wanted = tw.load(tmp_path / f"o.{target}"), tw.load(path)
    assert found.keys() == wanted.keys() and len(wanted) == 9
    for name in wanted:
        assert found[name].tolist() == wanted[name].tolist() and str(found[name].shape) == str(
            wanted[name].shape
        ), name


def test_files_of_records_with_missing_features(tmp_path):
    rows = [
        {"id": 1, "x": 0.5, "tag": "a", "ids": [1, 2]},
        {"id": 2},
        {"id": 3, "x": 2.0, "tag": "c", "ids": [3]},
    ]
    tw.write_examples(tmp_path / "a.tfrecord", rows)
    for target in SOURCES:
        tw.convert(tmp_path / "a.tfrecord", tmp_path / f"o.{target}", workers=0)
        found = tw.load(tmp_path / f"o.{target}")
        assert found["x"].tolist() == [0.5, 0, 2] and found["tag"].tolist() == ["a", "", "c"]
        assert found["ids"].tolist() == [[1, 2], [], [3]] and found["id"].tolist() == [1, 2, 3]
        for name in ("x", "tag", "ids"):
            assert found[f"{name}/present"].tolist() == [True, False, True]
        assert "id/present" not in found


@pytest.mark.parametrize("source", SOURCES)
def test_a_column_that_no_tensor_holds_is_refused_by_name(tmp_path, source):
    """And is not damage that may be passed over."""
    import datetime

    table = pa.table(
        {"good": [1, 2], "when": [datetime.datetime(2020, 1, 1)] * 2, "inside": [[1, None], [2]]}
    )
    path = tmp_path / f"a.{source}"
    if source == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    for columns in (None, ["good", "when"], ["good", "inside"]):
        for on_corrupt in ("raise", "skip"):
            with pytest.raises(tw.SchemaError) as caught:
                datasets.convert(
                    path, tmp_path / "o.jsonl", columns=columns, on_corrupt=on_corrupt, workers=0
                )
            assert caught.value.tensor in ("when", "inside") and caught.value.path
    assert datasets.convert(path, tmp_path / "o.jsonl", columns=["good"], workers=0).records == 2


def test_values_that_are_not_tables(tmp_path):
    """Tensors of several lengths in one row of an Arrow file are not records; quantized ones are
    the floats that they stand for.
    """
    tw.save(tmp_path / "a.arrow", {"a": np.arange(3), "b": np.arange(5)})
    with pytest.raises(tw.SchemaError):
        datasets.convert(tmp_path / "a.arrow", tmp_path / "o.jsonl", workers=0)
    x = np.linspace(-1, 1, 50, dtype=np.float32).reshape(10, 5)
    tw.save(tmp_path / "q.arrow", {"x": x}, quantize="int8")
    assert (
        datasets.convert(
            tmp_path / "q.arrow", tmp_path / "q.safetensors", shards=1, workers=0
        ).records
        == 10
    )
    assert tw.equal(tw.load(tmp_path / "q.safetensors")["x"], tw.load(tmp_path / "q.arrow")["x"])
    bundle = tw.Bundle({"x": x.astype(ml_dtypes.bfloat16)}, {"k": "v"})
    for source in SOURCES:
        tw.save(tmp_path / f"b.{source}", bundle)
        datasets.convert(tmp_path / f"b.{source}", tmp_path / "b.npz", workers=0, overwrite=True)
        assert tw.equal(tw.load(tmp_path / "b.npz")["x"], bundle["x"])


def test_arrow_for_others_has_no_storage_in_disguise(tmp_path):
    """What other libraries read as numbers is never the integers that stand for others."""
    tw.write_examples(
        tmp_path / "a.tfrecord", {"x": np.array([1, 2], ml_dtypes.bfloat16), "i": np.arange(2)}
    )
    with pytest.raises(tw.EncodeError) as caught:
        tw.read_examples(tmp_path / "a.tfrecord", workers=0).arrow().read_all()
    assert caught.value.tensor == "x"
