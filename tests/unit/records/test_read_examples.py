"""Examples as columns: against TensorFlow, the schema and its inference, threads, order, errors,
and the datasets of other libraries.
"""

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.records import index, infer, paths

ROWS = 1000


def columns(count=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "label": rng.integers(-5, 5, count),
        "x": rng.standard_normal((count, 4), np.float32),
        "id": tw.Strings.of([b"id-%d" % i for i in range(count)]),
        "ids": tw.Ragged.of(
            [rng.integers(-(1 << 62), 1 << 62, i % 5).tolist() for i in range(count)],
            dtype=np.int64,
        ),
        "words": tw.Ragged.of(
            [[b"w" * (j + i % 3) for j in range(i % 4)] for i in range(count)] or [[]]
        ),
    }


def write(path, data=None, **options):
    tw.write_examples(path, columns() if data is None else data, **options)
    return str(path)


def joined(batches, name):
    """One column over all batches."""
    parts = [batch[name] for batch in batches]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return [row for part in parts for row in part.tolist()]


def test_columns_come_back(tmp_path):
    path = write(tmp_path / "a.tfrecord")
    want = columns()
    for options in (
        {},
        {"workers": 0},
        {"workers": 3},
        {"batch_size": 7},
        {"batch_size": 5000},
        {"prefetch": 1},
    ):
        batches = list(tw.read_examples(path, **options))
        assert sum(batch.size for batch in batches) == ROWS
        for name, column in want.items():
            got = joined(batches, name)
            assert (
                np.array_equal(got, column)
                if isinstance(column, np.ndarray)
                else got == column.tolist()
            ), name
        assert all(batch.present[name].all() for batch in batches for name in batch)


@pytest.mark.tensorflow
@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_files_of_tensorflow_read_as_parse_example_reads_them(tf, tmp_path, compression):
    rng = np.random.default_rng(1)
    path = str(tmp_path / "a")
    records = []
    for i in range(200):
        feature = {
            "one": tf.train.Feature(int64_list=tf.train.Int64List(value=[i - 100])),
            "three": tf.train.Feature(float_list=tf.train.FloatList(value=rng.standard_normal(3))),
            "bytes": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"%d" % i, b""])),
            "vary": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i % 5))),
            "words": tf.train.Feature(
                bytes_list=tf.train.BytesList(value=[b"x" * j for j in range(i % 3)])
            ),
        }
        if i % 3:
            feature["sometimes"] = tf.train.Feature(float_list=tf.train.FloatList(value=[i / 2]))
        records.append(
            tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
        )
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    spec = {
        "one": tf.io.FixedLenFeature([], tf.int64),
        "three": tf.io.FixedLenFeature([3], tf.float32),
        "bytes": tf.io.FixedLenFeature([2], tf.string),
        "vary": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        "words": tf.io.VarLenFeature(tf.string),
        "sometimes": tf.io.FixedLenFeature([], tf.float32, default_value=-1.0),
    }
    theirs = tf.io.parse_example(tf.constant(records), spec)
    for schema in (spec, tw.Schema.from_feature_spec(spec)):
        (ours,) = tw.read_examples(path, schema, batch_size=200)
        for name in ("one", "three", "sometimes"):
            assert tw.equal(ours[name], theirs[name].numpy())
        assert ours["bytes"].tolist() == theirs["bytes"].numpy().tolist()
        assert tw.equal(ours["vary"], tw.tensor(theirs["vary"]))
        assert ours["words"].tolist() == tf.RaggedTensor.from_sparse(theirs["words"]).to_list()
        assert ours.present["sometimes"].tolist() == [i % 3 != 0 for i in range(200)]
    (inferred,) = tw.read_examples(path, batch_size=200)
    assert (
        tw.equal(inferred["three"], theirs["three"].numpy())
        and inferred["sometimes"][0] == 0
        and inferred["sometimes"].shape == (200,)
    )
    back = tw.Schema.from_feature_spec(tw.infer_schema(path).to_feature_spec(tf.io))
    assert {name: feature.shape for name, feature in back.items()} == {
        name: feature.shape for name, feature in tw.infer_schema(path).items()
    }
    theirs = tf.io.parse_example(tf.constant(records), tw.infer_schema(path).to_feature_spec(tf.io))
    assert tw.equal(inferred["three"], theirs["three"].numpy())


# -----------------------------------------------------------------------------------------------------------------
# schema


def test_inference(tmp_path):
    rows = [
        {"one": i, "two": [0.5, i], "vary": [1] * (i % 3), "none": None, "name": b"n"}
        for i in range(10)
    ]
    rows[3].pop("one")
    path = write(tmp_path / "a", rows, schema_file=False)
    schema = tw.infer_schema(path)
    assert {name: (feature.kind, feature.shape) for name, feature in schema.items()} == {
        "one": ("int64", ()),
        "two": ("float", (2,)),
        "vary": ("int64", (None,)),
        "name": ("bytes", ()),
    }
    assert (
        schema.records == 10
        and schema.complete
        and schema["one"].seen == {"present": 9, "lengths": [1, 1], "range": [0, 9]}
    )
    assert tw.Schema.from_json(json.dumps(schema.json())) == schema
    schema.save(tmp_path / "s.json")
    assert tw.Schema.load(tmp_path / "s.json") == schema
    (batch,) = tw.read_examples(path, str(tmp_path / "s.json"), ["vary", "one"])
    assert (
        list(batch) == ["vary", "one"]
        and batch.present["one"].tolist() == [i != 3 for i in range(10)]
        and batch["one"][3] == 0
    )
    assert [("one" in row, row["vary"].tolist()) for row in batch.rows()] == [
        (i != 3, [1] * (i % 3)) for i in range(10)
    ]
    with pytest.raises(tw.SchemaError, match="did you mean 'vary'"):
        tw.read_examples(path, columns=["varry"])


@pytest.mark.parametrize(
    ("kind", "shape", "default"),
    [
        ("int64", (), 0), ("int64", (), 7), ("int64", (2,), [0, 3]), ("float", (), 0.0), ("float", (2,), [0.5, -1.0]),
        ("float", (), float("inf")), ("float", (2,), [-float("inf"), 0.0]),
        ("bytes", (), b""), ("bytes", (), b"\x00\xff"), ("bytes", (), ""), ("bytes", (), "text"), ("bytes", (2,), [b"a", b"\xfe"]),
    ],
)  # fmt: skip
def test_a_default_as_json(tmp_path, kind, shape, default):
    """Zero and nothing are defaults, too, and bytes in a list stay bytes."""
    schema = tw.Schema({"x": tw.Feature(kind, shape, default=default)})
    schema.save(tmp_path / "s.json")
    back = tw.Schema.load(tmp_path / "s.json")
    assert (
        back == schema and back["x"].default == default and type(back["x"].default) is type(default)
    )
    # what NumPy gives is kept as plain values
    as_array = tw.Feature(kind, shape, default=np.array(default))
    assert tw.Feature.from_json(json.loads(json.dumps(as_array.json()))).default == (
        default if shape else np.array(default).tolist()
    )


@pytest.mark.parametrize("default", [{"bytes": 5}, {"bytes": "\u1234"}, {"byte": "x"}, {}])
def test_a_default_that_is_none(default):
    with pytest.raises(tw.DecodeError, match="Latin-1"):
        tw.Feature.from_json({"kind": "bytes", "shape": [], "default": default})


def test_a_sample_looks_at_the_beginning_the_middle_and_the_end(tmp_path):
    rows = [
        {"a": i, **({"late": 1} if i == 999 else {}), **({"middle": b"m"} if i == 505 else {})}
        for i in range(1000)
    ]
    path = write(tmp_path / "a", rows, schema_file=False)
    schema = tw.infer_schema(path, sample=3000)
    assert {"a", "late", "middle"} == set(schema) and not schema.complete and schema.records < 500
    full = tw.infer_schema(path, full=True)
    assert full.complete and full["a"].seen["range"] == [0, 999]
    assert tw.read_examples(path).schema["a"].seen["range"] == [0, 999]  # which the index has kept


@pytest.mark.parametrize("size", [100_000, 900_000, 3_000_000])
def test_a_sample_of_large_records(tmp_path, size):
    """... which begin far from each other, and are longer than what is read at once."""
    path = write(
        tmp_path / "a", [{"a": i, "b": bytes([i]) * size} for i in range(12)], schema_file=False
    )
    schema = tw.infer_schema(path, sample=3000)
    assert (
        set(schema) == {"a", "b"} and 1 <= schema.records <= 3 and schema["a"].seen["range"][0] == 0
    )
    assert tw.infer_schema(path).records == 12


def test_records_that_hold_records(tmp_path):
    """A sample of the middle may begin inside of one: what looks damaged there is not."""
    inner = write(tmp_path / "inner", [{"z": [1.5, 2.5]} for _ in range(3000)], schema_file=False)
    path = write(
        tmp_path / "a",
        [{"id": k, "blob": Path(inner).read_bytes()} for k in range(30)],
        schema_file=False,
    )
    for sample in (300_000, 1_000_000, 2_000_000):
        assert {"id", "blob"} <= set(tw.infer_schema(path, sample=sample))


def test_damage_in_the_middle_of_a_sample_has_its_number(tmp_path):
    path = write(tmp_path / "a", [{"a": i} for i in range(10_000)], schema_file=False)
    data, middle = bytearray(Path(path).read_bytes()), int(index.build(path).offsets[5100])
    data[middle + 9] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(tw.ChecksumError) as caught:
        tw.infer_schema(path, sample=30_000)
    assert (
        caught.value.offset == middle and caught.value.record == 5100 and caught.value.path == path
    )


def test_a_record_that_contradicts_a_sample_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(infer, "SAMPLE", 3000)
    rows = [{"a": [1, 2] if i == 300 else [1], "b": b"x"} for i in range(1000)]
    path = write(tmp_path / "a", rows, schema_file=False)
    seen = []
    with pytest.raises(
        tw.SchemaError, match=r"feature 'a' has 2 values.*full=True.*a schema of your own"
    ) as caught:
        for batch in tw.read_examples(path, batch_size=100):
            seen.append(batch["a"].shape)
    assert seen == [(100,)] * 3 and (
        caught.value.record,
        caught.value.tensor,
        caught.value.path,
    ) == (300, "a", path)
    assert caught.value.offset is not None
    batches = list(tw.read_examples(path, tw.infer_schema(path, full=True), batch_size=100))
    assert all(isinstance(batch["a"], tw.Ragged) for batch in batches)
    with pytest.raises(tw.SchemaError, match="is a bytes list, expected float") as caught:
        list(tw.read_examples(path, {"b": tw.Feature("float", ())}))
    assert caught.value.record == 0
    with pytest.raises(tw.SchemaError, match="lacks this feature") as caught:
        list(tw.read_examples(path, {"c": tw.Feature("float", (), required=True)}, batch_size=10))
    assert caught.value.record == 0 and caught.value.tensor == "c"


def test_the_schema_beside_the_file(tmp_path):
    path = write(
        tmp_path / "a.tfrecord",
        {"flag": np.array([True, False]), "text": ["é", "b"], "half": np.float16([0.5, 2])},
        shards=2,
    )
    assert os.path.exists(paths.schema_beside(path))
    batch = next(iter(tw.read_examples(str(tmp_path / "a-*.tfrecord"))))
    assert batch["flag"].dtype == bool and batch["text"].text and batch["half"].dtype == np.float16
    write(tmp_path / "a-00000-of-00002.tfrecord", {"flag": np.array([7])}, schema_file=False)
    with pytest.warns(UserWarning, match=r"a\.tfrecord\.schema\.json"):  # written anew
        batch = next(iter(tw.read_examples(str(tmp_path / "a-*.tfrecord"))))
    assert batch["flag"].tolist() == [7, 0]
    os.truncate(tmp_path / "a-00001-of-00002.tfrecord", 30)  # damage is not for the schema to find
    with pytest.raises(tw.TruncatedError):
        list(tw.read_examples(str(tmp_path / "a-00001-*.tfrecord")))
    schema = tw.Schema({"flag": tw.Feature("int64", (), "bool")})
    with pytest.raises(tw.SchemaError, match="does not fit bool"):
        list(tw.read_examples(str(tmp_path / "a-00000-*.tfrecord"), schema))
    (tmp_path / "b.tfrecord").write_bytes((tmp_path / "a-00000-of-00002.tfrecord").read_bytes())
    for bad in (
        b"",
        b"{}",
        b'{"tensorwire_schema": 1, "features": {"a": {"kind": "no"}}}',
        b'{"tensorwire_schema": 1, "features": 3}',
    ):
        (tmp_path / "b.tfrecord.schema.json").write_bytes(bad)
        with pytest.raises(tw.DecodeError):
            tw.read_examples(tmp_path / "b.tfrecord")


def test_features_that_make_no_sense():
    for wrong in (
        ("int32",),
        ("int64", (-1,)),
        ("int64", (2, None)),
        ("float", (), "string"),
        ("int64", (), "", False, None, "tensor"),
        ("bytes", (), "float32"),
    ):
        with pytest.raises(tw.SchemaError):
            tw.Feature(*wrong)
    with pytest.raises(tw.SchemaError):
        tw.Schema({"a": 3})


# -----------------------------------------------------------------------------------------------------------
# order, threads


def test_shuffle_and_shard(tmp_path):
    tw.write_examples(tmp_path / "a.tfrecord", {"n": np.arange(ROWS)}, shards=3)
    where = str(tmp_path / "a-*.tfrecord")
    orders = [
        joined(tw.read_examples(where, shuffle=5, workers=workers, batch_size=64), "n").tolist()
        for workers in (0, 1, 3)
    ]
    assert orders[0] == orders[1] == orders[2] and sorted(orders[0]) == list(range(ROWS))
    assert joined(tw.read_examples(where, shuffle=6), "n").tolist() != orders[0]
    assert (
        joined(tw.read_examples(where, shuffle=True), "n").tolist()
        != joined(tw.read_examples(where, shuffle=True), "n").tolist()
    )
    for options in ({}, {"shuffle": 1}):
        for count in (2, 3, 5):
            shares = [
                joined(tw.read_examples(where, shard=(i, count), **options), "n").tolist()
                for i in range(count)
            ]
            assert sorted(n for share in shares for n in share) == list(range(ROWS))
    with pytest.raises(tw.UsageError, match="pass a seed"):
        tw.read_examples(where, shuffle=True, shard=(0, 2))
    assert [batch.size for batch in tw.read_examples(where, batch_size=300, drop_last=True)] == [
        300
    ] * 3


def test_leaving_early_ends_all_threads(tmp_path):
    path = write(tmp_path / "a")
    before = threading.active_count()
    for _, _batch in zip(range(2), tw.read_examples(path, batch_size=10, workers=4), strict=False):
        assert threading.active_count() > before
    assert threading.active_count() == before
    iterator = iter(tw.read_examples(path, batch_size=10, workers=4))
    next(iterator)
    iterator.close()
    assert threading.active_count() == before
    with pytest.raises(ZeroDivisionError):
        for _batch in tw.read_examples(path, batch_size=10, workers=4):
            1 / 0  # noqa: B018
    del iterator
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_errors_in_workers_say_where(tmp_path, workers):
    before = threading.active_count()
    path = write(tmp_path / "a", shards=2)
    where = str(tmp_path / "a-*-of-*")
    second = f"{path}-00001-of-00002"
    ends = tw.records.index.build(second).offsets
    data = bytearray((tmp_path / "a-00001-of-00002").read_bytes())
    data[int(ends[123]) + 14] ^= 1
    (tmp_path / "a-00001-of-00002").write_bytes(data)
    seen = []
    with pytest.raises(tw.ChecksumError) as caught:
        for batch in tw.read_examples(where, batch_size=100, workers=workers):
            seen.append(batch.size)
    assert seen == [100] * 6 and (caught.value.path, caught.value.record) == (second, 123)
    assert int(ends[123]) <= caught.value.offset < int(ends[124])
    examples = tw.read_examples(where, batch_size=100, workers=workers, on_corrupt="skip")
    assert sum(batch.size for batch in examples) == ROWS - 1 and [
        gap.offset for gap in examples.skipped
    ] == [int(ends[123])]
    assert threading.active_count() == before


def test_records_that_are_no_examples(tmp_path):
    path = str(tmp_path / "a")
    with tw.RecordWriter(path) as writer:
        writer.write(tw.dumps(np.arange(3)))
        writer.write(b"\x0a\xff")
    with pytest.raises(tw.DecodeError) as caught:
        tw.infer_schema(path)
    assert caught.value.path == path and caught.value.record is not None
    assert tw.inspect(path).records == 2 and tw.inspect(path).schema is None
    with pytest.raises(tw.DecodeError) as caught:
        list(tw.read_examples(path, {"a": tw.Feature("int64")}))
    assert (caught.value.path, caught.value.offset is not None) == (path, True)


def test_reuse_lends_memory_until_the_next_batch(tmp_path):
    path = write(tmp_path / "a")
    want = columns()
    for workers in (0, 2):
        start = 0
        addresses = set()
        for batch in tw.read_examples(path, batch_size=100, workers=workers, reuse=True):
            assert np.array_equal(batch["x"], want["x"][start : start + batch.size])
            assert batch["words"].tolist() == want["words"].tolist()[start : start + batch.size]
            addresses.add(batch["x"].ctypes.data)
            start += batch.size
        assert start == ROWS and len(addresses) < 8
    with pytest.raises(tw.UsageError, match="reuse=True"):
        tw.read_examples(path, reuse=True, to="torch")


def test_without_reuse_every_batch_has_its_own_memory(tmp_path):
    path = write(tmp_path / "a")
    batches = list(tw.read_examples(path, batch_size=10, workers=2))
    copies = [{name: tw.dumps(batch[name]) for name in batch} for batch in batches]
    list(tw.read_examples(path, batch_size=10, workers=2))
    assert copies == [{name: tw.dumps(batch[name]) for name in batch} for batch in batches]
    batches[0]["x"][:] = 0  # and it is the caller's to change


@pytest.mark.parametrize("workers", [0, 2])
def test_views_are_not_copied_and_live_as_long_as_they_are_held(tmp_path, workers):
    images = [np.random.default_rng(i).bytes(i * 100) for i in range(300)]
    rows = [
        {"image": image, "pair": [image[:3], b"x"], "n": i, "name": b"n"}
        for i, image in enumerate(images)
    ]
    rows[5].pop("image")
    path = write(tmp_path / "a", rows)
    batches = list(tw.read_examples(path, batch_size=7, workers=workers, views=["image", "pair"]))
    views = np.concatenate([batch["image"] for batch in batches])
    assert [bytes(view) for view in views] == [
        b"" if i == 5 else image for i, image in enumerate(images)
    ]
    assert (
        all(isinstance(view, memoryview) and view.readonly for view in views)
        and not batches[0].present["image"][5]
    )
    assert [bytes(view) for view in np.concatenate([batch["pair"] for batch in batches])[:, 0]] == [
        image[:3] for image in images
    ]
    assert list(batches[0]) == list(tw.read_examples(path).schema) and batches[0][
        "n"
    ].tolist() == list(range(7))
    assert [
        bytes(v) for b in tw.read_examples(path, views=["image"], shuffle=3) for v in b["image"]
    ] != [bytes(view) for view in views]
    for wrong in (["n"], ["nothing"], "image"):
        with pytest.raises(tw.UsageError, match="views"):
            tw.read_examples(path, views=wrong)


def test_bad_arguments(tmp_path):
    path = write(tmp_path / "a")
    for wrong in (
        {"batch_size": 0},
        {"workers": -1},
        {"on_corrupt": "x"},
        {"to": "fortran"},
        {"shard": (3, 2)},
    ):
        with pytest.raises((tw.EncodeError, tw.UsageError)):
            list(tw.read_examples(path, **wrong))
    with pytest.raises(tw.SchemaError):
        tw.read_examples(path, schema=7)
    with pytest.raises(tw.UsageError, match="list of names"):
        tw.read_examples(path, columns="label")


# --------------------------------------------------------------------------------------------------------------
# sequences


def sequences(count=50):
    for i in range(count):
        lists = {
            "token": [b"t%d" % j for j in range(i % 4)],
            "pair": [[j, -j] for j in range(i % 3)],
            "vary": [[0.5] * j for j in range(i % 5)],
        }
        if i % 7 == 0:
            lists.pop("pair")
        yield {"id": i, "name": f"n{i}"}, lists


def test_sequence_examples_come_back(tmp_path):
    path = str(tmp_path / "a")
    assert tw.write_sequence_examples(path, sequences()) == 50
    for schema_file in (True, False):
        if not schema_file:
            os.remove(paths.schema_beside(path))
        rows = [
            row for batch in tw.read_sequence_examples(path, batch_size=8) for row in batch.rows()
        ]
        for (context, lists), (got, steps) in zip(sequences(), rows, strict=True):
            assert got["id"] == context["id"] and got["name"] == (
                context["name"] if schema_file else context["name"].encode()
            )
            assert set(steps) == set(lists)
            assert {name: value.tolist() for name, value in steps.items()} == lists
    batch = next(iter(tw.read_sequence_examples(path)))
    assert batch.sequences["pair"].shape == (50, None, 2) and batch.sequences["vary"].shape == (
        50,
        None,
        None,
    )
    assert tw.write_sequence_examples(tmp_path / "b", tw.read_sequence_examples(path)) == 50
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert set(tw.read_sequence_examples(path, columns=["id", "vary"]).schema.sequences) == {"vary"}
    for wrong in ([{}], [({}, {"a": "text"})], [({}, {"a": [None]})], {"a": 1}):
        with pytest.raises((tw.EncodeError, tw.UsageError)):
            tw.write_sequence_examples(tmp_path / "c", wrong)
    assert not (tmp_path / "c").exists()


@pytest.mark.tensorflow
def test_tensorflow_reads_our_sequence_examples(tf, tmp_path):
    path = str(tmp_path / "a")
    tw.write_sequence_examples(path, sequences())
    for (context, lists), record in zip(sequences(), tw.RecordReader(path), strict=True):
        proto = tf.train.SequenceExample.FromString(record)
        assert proto.SerializeToString(deterministic=True) == record
        got, steps = tf.io.parse_single_sequence_example(
            record,
            {"id": tf.io.FixedLenFeature([], tf.int64)},
            {
                "token": tf.io.FixedLenSequenceFeature([], tf.string),
                "vary": tf.io.RaggedFeature(tf.float32),
            },
        )
        assert (
            got["id"] == context["id"]
            and steps["token"].numpy().tolist() == lists["token"]
            and steps["vary"].to_list() == lists["vary"]
        )


# ----------------------------------------------------------------------------------------------------------
# other libraries


@pytest.mark.tensorflow
def test_tf_data(tf, tmp_path):
    path = write(tmp_path / "a")
    dataset = tw.read_examples(path, batch_size=300).tf_dataset()
    seen = list(dataset)
    want = columns()
    assert [batch["label"].shape[0] for batch in seen] == [300, 300, 300, 100] and len(
        list(dataset)
    ) == 4
    assert np.array_equal(np.concatenate([batch["x"] for batch in seen]), want["x"])
    assert [row for batch in seen for row in batch["words"].to_list()] == want["words"].tolist()
    assert dataset.element_spec["x"] == tf.TensorSpec([None, 4], tf.float32)
    batch = next(iter(tw.read_examples(path, to="tensorflow")))
    assert (
        isinstance(batch["ids"], tf.RaggedTensor)
        and batch["id"].dtype == tf.string
        and batch.size == ROWS
    )


@pytest.mark.arrow
def test_arrow_and_hugging_face(tmp_path):
    import datasets

    rows = [
        {
            "a": i,
            "v": [float(i)] * 3,
            "s": f"s{i}",
            "r": [i] * (i % 3),
            "m": np.full((2, 2), i, np.float32),
        }
        for i in range(100)
    ]
    rows[7].pop("v")
    rows[8].pop("m")
    path = write(tmp_path / "a", rows)
    table = tw.read_examples(path, batch_size=30).arrow().read_all()
    assert table.num_rows == 100 and table["v"][7].as_py() is None and table["m"].null_count == 1
    assert table["r"].to_pylist() == [row["r"] for row in rows] and table["s"].to_pylist() == [
        row["s"] for row in rows
    ]
    assert str(table.schema.field("v").type) == "fixed_size_list<item: float>[3]"
    made = datasets.Dataset(tw.read_examples(path, columns=["a", "v", "s", "r"]).arrow().read_all())
    assert made[50] == {"a": 50, "v": [50.0] * 3, "s": "s50", "r": [50] * 2}


@pytest.mark.torch
def test_torch_datasets(tmp_path):
    import torch
    from torch.utils.data import DataLoader

    from tensorwire.torch import ExampleDataset, ExampleMapDataset

    tw.write_examples(tmp_path / "a.tfrecord", {**columns(), "n": np.arange(ROWS)}, shards=3)
    where = str(tmp_path / "a-*.tfrecord")
    for workers in (0, 2):
        for shuffle in (None, 4):
            dataset = ExampleDataset(where, 64, shuffle=shuffle)
            batches = list(DataLoader(dataset, batch_size=None, num_workers=workers))
            assert sorted(int(n) for batch in batches for n in batch["n"]) == list(range(ROWS))
            assert isinstance(batches[0]["x"], torch.Tensor) and batches[0]["id"][0].startswith(
                b"id-"
            )
            dataset.set_epoch(1)
            again = [
                int(n)
                for batch in DataLoader(dataset, batch_size=None, num_workers=workers)
                for n in batch["n"]
            ]
            assert (again == [int(n) for batch in batches for n in batch["n"]]) == (shuffle is None)
    ranks = [
        [int(row["n"]) for row in ExampleDataset(where, None, columns=["n"], shard=(rank, 2))]
        for rank in range(2)
    ]
    assert sorted(ranks[0] + ranks[1]) == list(range(ROWS))
    mapped = ExampleMapDataset(where, columns=["n", "x", "id"])
    assert len(mapped) == ROWS and int(mapped[-1]["n"]) == ROWS - 2  # the last of the third shard
    seen = [
        int(n)
        for batch in DataLoader(mapped, batch_size=50, shuffle=True, num_workers=2)
        for n in batch["n"]
    ]
    assert sorted(seen) == list(range(ROWS)) != seen
    with pytest.raises(tw.UsageError, match="a seed"):
        ExampleDataset(where, 64, shuffle=True)


@pytest.mark.torch
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("size", [16, None])
def test_set_epoch_reaches_persistent_workers(tmp_path, size, start):
    from torch.utils.data import DataLoader

    from tensorwire.torch import ExampleDataset

    tw.write_examples(tmp_path / "a.tfrecord", {"n": np.arange(200)})
    dataset = ExampleDataset(tmp_path / "a.tfrecord", size, shuffle=7)
    loader = DataLoader(
        dataset, None, num_workers=1, persistent_workers=True, multiprocessing_context=start
    )

    def order(epoch):
        dataset.set_epoch(epoch)
        return np.concatenate([np.ravel(batch["n"]) for batch in loader]).tolist()

    first, second, again = order(0), order(1), order(0)
    assert first == again != second and sorted(first) == sorted(second) == list(range(200))
    other = ExampleDataset(tmp_path / "a.tfrecord", size, shuffle=7)
    other.set_epoch(1)
    for copy in (other, pickle.loads(pickle.dumps(other))):
        assert np.concatenate([np.ravel(batch["n"]) for batch in copy]).tolist() == second


def test_torch_is_not_needed_for_the_rest():
    code = (
        "import tensorwire as tw, sys; tw.read_examples, tw.io.parse_example; assert not {'torch',"
        " 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------------------------------
# memory


@pytest.mark.large
def test_memory_does_not_grow_with_the_file(tmp_path):
    """10 M records: at most 1 MB more after the first million; and the peak does not depend on the
    size.
    """
    count = 1_000_000
    path = str(tmp_path / "a")
    tw.write_examples(
        path,
        {
            "n": np.arange(count),
            "s": tw.Strings(np.zeros(8 * count, np.uint8), np.arange(count + 1) * 8),
        },
        durable=False,
    )
    code = f"""
import resource, time
import tensorwire as tw
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
seen, marks = 0, []
schema = tw.infer_schema({path!r})
for batch in tw.read_examples([{path!r}] * 10, schema, batch_size=10_000, workers=2):
    seen += batch.size
    if seen == 100_000:  # threads may run as far ahead as they ever will: what that takes is not growth
        time.sleep(1)
    if seen % 1_000_000 == 0:
        marks.append(rss())
n = 0
for record in tw.RecordReader([{path!r}] * 10):
    n += 1
    if n % 1_000_000 == 0:
        marks.append(rss())
print(max(marks[1:10]) - marks[0], max(marks[11:]) - marks[10], seen, n)
"""
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert out[2:] == ["10000000", "10000000"] and int(out[0]) <= 1 << 20 and int(out[1]) <= 1 << 20
