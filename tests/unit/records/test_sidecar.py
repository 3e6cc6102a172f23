"""Schemas and indexes beside record files: of other data, damaged, or made by an attacker."""

import itertools
import json
import os
import random
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support import cli
from tensorwire.wire.crc import crc32c

OURS = (tw.DecodeError, tw.SchemaError)
"""What hostile sidecars may raise; LimitError and ChecksumError are DecodeErrors."""


def sidecar(path):
    return Path(f"{path}.schema.json")


def first(path, **options):
    return next(iter(tw.read_examples(path, **options)))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.tfrecord")


class TestMatch:
    """A schema says for which data it was written: the size, and a checksum of the first bytes."""

    def test_data_that_was_replaced_without_its_schema(self, path):
        tw.write_examples(path, {"x": np.arange(3), "flag": np.array([True, False, True])})
        old = sidecar(path).read_bytes()
        tw.write_examples(path, {"x": np.float32([0.5, 1.5])})
        sidecar(path).write_bytes(old)  # as if the process had died between the two files
        with pytest.warns(UserWarning, match=r"schema\.json"):
            batch = first(path)
        assert list(batch) == ["x"] and batch["x"].tolist() == [0.5, 1.5]

    def test_the_same_beginning_and_another_size(self, path):
        tw.write_examples(path, [{"x": 1}])
        old = sidecar(path).read_bytes()
        tw.write_examples(path, [{"x": 1}, {"x": 2, "y": b"b"}])
        sidecar(path).write_bytes(old)
        with pytest.warns(UserWarning, match=r"schema\.json"):
            assert set(first(path)) == {"x", "y"}

    @pytest.mark.parametrize("which", [0, 1, 2])
    def test_one_of_many_shards(self, path, tmp_path, which):
        """One shard that is another file makes the schema wrong for all that are read with it."""
        tw.write_examples(path, {"flag": np.array([True, False, True, True])}, shards=3)
        shard = tmp_path / f"a-{which:05d}-of-00003.tfrecord"
        tw.write_examples(shard, {"flag": [7]}, schema_file=False)
        with pytest.warns(UserWarning, match=r"schema\.json"):
            assert first(tmp_path / "a-*.tfrecord")["flag"].dtype == np.int64
        others = [tmp_path / f"a-{i:05d}-of-00003.tfrecord" for i in range(3) if i != which]
        assert first(others)["flag"].dtype == bool

    def test_another_number_of_shards(self, path, tmp_path):
        tw.write_examples(path, {"x": np.arange(4)}, shards=2)
        old = sidecar(path).read_bytes()
        tw.write_examples(path, {"y": np.arange(4)}, shards=4)
        sidecar(path).write_bytes(old)
        with pytest.warns(UserWarning, match=r"schema\.json"):
            assert list(first(tmp_path / "a-*-of-00004.tfrecord")) == ["y"]

    def test_files_that_were_renamed(self, path, tmp_path):
        tw.write_examples(path, {"flag": np.array([True, False])}, shards=2)
        for i in range(2):
            name = f"{i:05d}-of-00002.tfrecord"
            os.rename(tmp_path / f"a-{name}", tmp_path / f"b-{name}")
        os.rename(sidecar(path), tmp_path / "b.tfrecord.schema.json")
        assert first(tmp_path / "b-*.tfrecord")["flag"].dtype == bool

    def test_schemas_of_before(self, path):
        """They have neither a size nor a checksum of their own."""
        tw.write_examples(path, {"flag": np.array([True, False])})
        about = json.loads(sidecar(path).read_text())
        (name, (_, head)), *_ = about.pop("files").items()
        del about["crc32c"]
        about["heads"] = {name: head}
        sidecar(path).write_text(json.dumps(about))
        assert first(path)["flag"].dtype == bool
        tw.write_examples(path, {"flag": [5]}, schema_file=False)
        with pytest.warns(UserWarning, match=r"schema\.json"):
            assert first(path)["flag"].tolist() == [5]

    def test_damaged_data_keeps_its_schema(self, path):
        tw.write_examples(path, {"flag": np.array([True, False, True])})
        data = bytearray(Path(path).read_bytes())
        data[20] ^= 1
        Path(path).write_bytes(data)
        with pytest.raises(tw.ChecksumError):
            list(tw.read_examples(path))
        assert first(path, on_corrupt="skip")["flag"].dtype == bool

    def test_appending_where_the_schema_is_of_other_data(self, path):
        tw.write_examples(path, {"flag": np.array([True])})
        old = sidecar(path).read_bytes()
        with tw.RecordWriter(path, mode="a") as writer:
            writer.write(next(iter(tw.RecordReader(path))))
        with pytest.warns(UserWarning, match=r"schema\.json"):
            tw.write_examples(path, {"other": [1.5]}, mode="a")
        assert sidecar(path).read_bytes() == old  # it would know only what was added
        with pytest.warns(UserWarning, match=r"schema\.json"):
            assert set(first(path)) == {"flag", "other"}

    def test_sequence_examples(self, path):
        tw.write_sequence_examples(path, [({"flag": True}, {"x": [1, 2]})])
        old = sidecar(path).read_bytes()
        tw.write_sequence_examples(path, [({}, {"x": [1.5]})])
        sidecar(path).write_bytes(old)
        with pytest.warns(UserWarning, match=r"schema\.json"):
            assert next(iter(tw.read_sequence_examples(path))).sequences["x"].tolist() == [[1.5]]


class TestDifferentSchemas:
    """Files whose schemas differ are read together, as `tw.convert` reads them."""

    def test_union(self, tmp_path):
        tw.write_examples(
            tmp_path / "a.tfrecord",
            {"x": np.arange(2), "flag": np.array([True, False]), "v": np.ones((2, 3), np.float32)},
        )
        columns = {"x": [5], "v": np.ones((1, 2), np.float32), "s": ["é"]}
        tw.write_examples(tmp_path / "b.tfrecord", columns)
        batch = first([tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"])
        assert batch["x"].tolist() == [0, 1, 5] and batch["v"].tolist() == [
            [1, 1, 1],
            [1, 1, 1],
            [1, 1],
        ]
        assert batch["flag"].dtype == bool and batch.present["flag"].tolist() == [True, True, False]
        assert batch["s"].tolist() == ["", "", "é"] and batch.present["s"].tolist() == [
            False,
            False,
            True,
        ]
        tw.convert(str(tmp_path / "*.tfrecord"), tmp_path / "o.jsonl")
        lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
        names = [{name for name in batch if batch.present[name][row]} for row in range(3)]
        assert [set(line) for line in lines] == names

    def test_files_with_and_without_a_schema(self, tmp_path):
        tw.write_examples(tmp_path / "a.tfrecord", {"x": [1], "s": ["é"]})
        tw.write_examples(tmp_path / "b.tfrecord", {"x": [2], "y": [0.5]}, schema_file=False)
        batch = first(tmp_path / "*.tfrecord")
        assert batch["x"].tolist() == [1, 2] and batch["s"].tolist() == ["é", ""]
        assert batch.present["y"].tolist() == [False, True]

    def test_contradictions(self, tmp_path):
        tw.write_examples(tmp_path / "a.tfrecord", {"x": [1]})
        tw.write_examples(tmp_path / "b.tfrecord", {"x": [0.5]})
        with pytest.raises(tw.SchemaError) as caught:
            tw.read_examples(tmp_path / "*.tfrecord")
        assert caught.value.tensor == "x"


class TestChecksum:
    def test_every_flipped_bit(self, path):
        tw.write_examples(
            path,
            [{"x": 3, "flag": True}, {"x": 5, "flag": False, "image": np.zeros((2, 2), np.uint8)}],
        )
        good, batch = sidecar(path).read_bytes(), first(path)
        assert b"crc32c" in good
        outcomes = set()
        for bit in range(8 * len(good)):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            sidecar(path).write_bytes(bad)
            try:
                found = first(path, workers=0)
            except tw.DecodeError as error:
                assert error.path == str(sidecar(path))
                outcomes.add("error")
                continue
            outcomes.add("the same")  # a letter of the name "crc32c", or a space
            assert tw.equal(dict(found), dict(batch))
        assert "error" in outcomes

    def test_a_schema_that_was_edited(self, tmp_path):
        place = tmp_path / "s.json"
        tw.Schema({"x": tw.Feature("int64", ())}).save(place)
        about = json.loads(place.read_text())
        about["features"]["y"] = {"kind": "float", "shape": []}
        place.write_text(json.dumps(about))
        with pytest.raises(tw.ChecksumError) as caught:
            tw.Schema.load(place)
        assert caught.value.path == str(place)
        del about["crc32c"]
        place.write_text(json.dumps(about, indent=4, sort_keys=True))
        assert set(tw.Schema.load(place)) == {"x", "y"}


WRONG = [
    None,
    True,
    -1,
    0,
    1,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**400,
    1.5,
    1e300,
    "",
    "x",
    "int64",
    "bytes",
    [],
    [None],
    {},
    {"a": 1},
    [[1]],
]
"""Values of every type, for every place."""


def places(value, above=()):
    """All paths to the values inside of JSON."""
    yield above
    items = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else items:
        yield from places(item, (*above, key))


def put(value, where, new):
    if not where:
        return new
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = new
    return copy


class TestHostileSchemas:
    def read(self, path):
        """Whatever the schema says: columns, or one of our errors."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for batch in tw.read_examples(path, workers=0, limits=tw.Limits(tensor=1 << 20)):
                    assert batch.size
            except OURS:
                return False
        return True

    def test_wrong_values_in_every_place(self, path):
        row = {"x": [3, 4], "f": 1.5, "b": b"abc", "image": np.zeros((2, 2), np.uint8), "s": "é"}
        tw.write_examples(path, [row, row, row, {"f": 2.5}])
        about = json.loads(sidecar(path).read_text())
        del about["crc32c"]  # an attacker's checksum would be right
        about["features"]["f"]["default"] = 0.5
        choose = random.Random(1)
        for where in places(about):
            for wrong in choose.sample(WRONG, 9):
                try:
                    text = json.dumps(put(about, where, wrong))
                except ValueError:
                    continue
                sidecar(path).write_text(text)
                self.read(path)

    @pytest.mark.parametrize(
        "shape",
        [
            [2**63],
            [2**31],
            [2**31 - 1],
            [2**62, 2**62],
            [0, 2**63],
            [1] * 100,
            [2**20, 2**11],
            [-1],
            [2**28],
            [None, 2**62],
            [True],
        ],
    )
    @pytest.mark.parametrize("encoding", ["", "tensor", "raw", "base64", "quantized"])
    def test_shapes(self, path, shape, encoding):
        tw.write_examples(path, [{"x": b"abc"}, {"y": b"abc"}], schema_file=False)
        feature = {"kind": "bytes" if encoding else "int64", "shape": shape, "encoding": encoding}
        if encoding not in ("", "base64"):
            feature["dtype"] = "float64"
        for name in ("x", "missing"):
            about = {
                "tensorwire_schema": 1,
                "features": {name: feature, "y": {"kind": "bytes", "shape": []}},
            }
            sidecar(path).write_text(json.dumps(about))
            assert not self.read(path)

    @pytest.mark.parametrize(
        "entry",
        [
            b'"records": null',
            b'"records": 1e400',
            b'"records": 5, "complete": "no"',
            b'"sequences": 7',
            b'"files": {"a.tfrecord": [1, 2, 3]}',
            b'"files": {"a.tfrecord": ["x", 1.5]}',
            b'"heads": {"a.tfrecord": "x"}',
            b'"crc32c": 1, "deep": ' + b"[" * 900 + b"]" * 900,
            b'"features": {"x": {"kind": "float", "default": ' + b"[" * 900 + b"]" * 900 + b"}}",
            b'"features": {"x": {"kind": "int64", "shape": [], "default": 9223372036854775808}}',
            b'"features": {"x": {"kind": "int64", "shape": [], "dtype": "M8,(2)"}}',
        ],
    )
    def test_entries(self, path, entry):
        features = b"" if b"features" in entry else b'"features": {}, '
        self.refused(path, b'{"tensorwire_schema": 1, ' + features + entry + b"}")

    @pytest.mark.parametrize("text", [b"", b"null", b"[" * 100_000, b'{"a":' * 100_000, b"\xff"])
    def test_texts(self, path, text):
        self.refused(path, text)

    def refused(self, path, text):
        tw.write_examples(path, {"x": [1]}, schema_file=False)
        sidecar(path).write_bytes(text)
        with pytest.raises(tw.DecodeError) as caught:
            tw.read_examples(path)
        assert caught.value.path == str(sidecar(path))

    @pytest.mark.slow
    def test_many_features_that_no_record_has(self, path):
        tw.write_examples(path, {"x": [1]}, schema_file=False)
        features = {f"f{i}": {"kind": "int64", "shape": [1 << 21]} for i in range(10_000)}
        sidecar(path).write_text(json.dumps({"tensorwire_schema": 1, "features": features}))
        with pytest.raises(tw.LimitError) as caught:
            first(path)
        assert caught.value.path == path and caught.value.tensor is not None

    def test_convert(self, path, tmp_path):
        tw.write_examples(path, {"x": [1]}, schema_file=False)
        features = {"y": {"kind": "int64", "shape": [2**31 - 1]}}
        sidecar(path).write_text(json.dumps({"tensorwire_schema": 1, "features": features}))
        with pytest.raises(OURS):
            tw.convert(path, tmp_path / "o.parquet")


class TestReuse:
    @pytest.mark.large
    def test_a_long_record_and_a_large_batch(self, path):
        """Memory is taken for the records that there are."""
        tw.write_examples(path, {"x": np.ones((2, 500_000), np.int64)})
        for workers in (0, 2):
            options = {"batch_size": 100_000_000, "reuse": True, "workers": workers}
            batches = list(tw.read_examples(path, **options))
            assert [batch["x"].shape for batch in batches] == [(2, 500_000)]
            assert batches[0]["x"].all()

    @pytest.mark.large
    def test_rows_that_outgrow_the_first_memory(self, path):
        rows = 300
        values = np.arange(rows * 40_000, dtype=np.float32)
        tw.write_examples(path, {"x": values.reshape(rows, -1)}, durable=False)
        for options in ({"reuse": True}, {"reuse": False}, {"reuse": True, "workers": 0}):
            (batch,) = tw.read_examples(path, batch_size=1000, **options)
            assert (batch["x"].reshape(-1) == values).all()


def indexed(path, offsets, units=(), changes=None):
    """An index with right checksums, whatever it says."""
    numbers = np.array([*offsets, *(number for unit in units for number in unit)], "<i8")
    found = os.stat(path)
    about = {
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "compression": None,
        "records": len(offsets) - 1,
        "units": len(units),
        "crc32c": crc32c(numbers.tobytes()),
        "schema": None,
    } | (changes or {})
    text = json.dumps(about).encode()
    head = b"TWINDEX1" + struct.pack("<Q", len(text)) + text
    head += struct.pack("<I", crc32c(head))
    Path(f"{path}.idx").write_bytes(head + bytes(-len(head) % 64) + numbers.tobytes())


class TestHostileIndexes:
    """Right checksums, and numbers that cannot be."""

    def write(self, path, compression=None, count=9):
        records = [bytes([i]) * (20 * i) for i in range(count)]
        with tw.RecordWriter(path, compression=compression) as writer:
            for record in records:
                writer.write(record)
        return records

    def read(self, path, records):
        """What a reader gives is true, or one of our errors with the path."""
        for use in (
            lambda reader: [reader[i] for i in range(len(reader))],
            lambda reader: reader[:],
            lambda reader: sorted(reader.shuffle(3), key=len),
            lambda reader: list(reader.shard(0, 2)) + list(reader.shard(1, 2)),
            lambda reader: sorted(itertools.chain(*reader.shuffle(1).batches(4)), key=len),
        ):
            with tw.RecordReader(path) as reader:
                try:
                    assert use(reader) == records
                except tw.DecodeError as error:
                    assert error.path == str(path)

    @pytest.mark.slow
    @pytest.mark.parametrize("compression", [None, "gzip", "zlib", "snappy"])
    def test_wrong_numbers(self, path, compression):
        records = self.write(path, compression)
        with tw.RecordReader(path) as reader:
            assert reader[3] == records[3]
        count = 12 if compression else 10
        good = np.frombuffer(Path(f"{path}.idx").read_bytes()[-8 * count :], "<i8").tolist()
        offsets, units = good[:10], [tuple(good[10:])] if compression else []
        indexed(path, offsets, units, {"compression": compression})
        self.read(path, records)
        choose = random.Random(2)
        wrong = [
            -(2**63),
            -1,
            0,
            1,
            15,
            2**31,
            2**40,
            2**62,
            2**63 - 1,
            offsets[-1],
            offsets[-1] + 1,
            offsets[4],
        ]
        for _ in range(120):
            numbers = [*offsets, *(number for unit in units for number in unit)]
            for place in choose.sample(range(len(numbers)), choose.choice([1, 1, 2, 5])):
                numbers[place] = choose.choice(wrong)
            indexed(
                path,
                numbers[:10],
                [tuple(numbers[10:])] if compression else [],
                {"compression": compression},
            )
            self.read(path, records)
        for falling in (
            offsets[::-1],
            sorted(offsets, key=lambda _: choose.random()),
            [offset // 2 for offset in offsets],
        ):
            indexed(path, falling, units, {"compression": compression})
            self.read(path, records)

    def test_wrong_words(self, path):
        records = self.write(path)
        offsets = np.cumsum([0, *(len(record) + 16 for record in records)]).tolist()
        for name in ("size", "mtime_ns", "compression", "records", "units", "crc32c", "schema"):
            for wrong in WRONG:
                try:
                    indexed(path, offsets, changes={name: wrong})
                except ValueError:
                    continue
                self.read(path, records)
                assert tw.inspect(path).records == len(records)
                assert tw.verify(path).records == len(records)
        indexed(path, offsets, changes={"records": -3, "units": 6})
        self.read(path, records)
        indexed(path, offsets, changes={"compression": "gzip"})
        self.read(path, records)

    def test_a_schema_in_an_index(self, path):
        tw.write_examples(path, {"x": [1, 2]}, schema_file=False)
        offsets = np.cumsum([0, *(len(record) + 16 for record in tw.RecordReader(path))]).tolist()
        for wrong in (
            *WRONG,
            {"tensorwire_schema": 1, "features": {"x": {"kind": "int64", "shape": [2**63]}}},
        ):
            try:
                indexed(path, offsets, changes={"schema": wrong})
            except ValueError:
                continue
            assert first(path)["x"].tolist() == [1, 2]
        indexed(
            path,
            offsets,
            changes={
                "schema": {
                    "tensorwire_schema": 1,
                    "features": {"y": {"kind": "int64", "shape": []}},
                }
            },
        )
        with pytest.raises(tw.SchemaError) as caught:  # what it leaves out is not dropped
            first(path)
        assert caught.value.tensor == "x"


class TestDatasets:
    def test_a_schema_of_another_conversion(self, path, tmp_path):
        tw.write_examples(path, {"flag": np.array([True, False, True, False])})
        for name in ("many", "many/one.tfrecord"):
            options = {"shards": 2} if name == "many" else {}
            tw.convert(path, tmp_path / name, "tfrecord", columns=["flag"], workers=0, **options)
        folder = tmp_path / "many"
        for place, names in ((folder / "one.tfrecord", ["one.tfrecord"]), (None, None)):
            where = place or str(folder / "*-of-00002.tfrecord")
            assert first(where)["flag"].dtype == bool
            shards = names or sorted(name.name for name in folder.glob("*-of-00002.tfrecord"))
            tw.write_examples(folder / shards[0], {"flag": [0.5]}, schema_file=False)
            if not names:
                tw.write_examples(folder / shards[1], {"flag": [1.5]}, schema_file=False)
            with pytest.warns(UserWarning, match=r"schema\.json"):
                assert first(where)["flag"][0] == 0.5

    def convert(self, path, target):
        return tw.convert(path, target, "jsonl", shards=2, workers=0)

    def test_lines_of_a_manifest(self, path, tmp_path):
        """A line that cannot be true means that its shard is made again."""
        tw.write_examples(path, {"x": np.arange(8)})
        target = tmp_path / "out"
        self.convert(path, target)
        lines = target / "_tensorwire" / "shards.jsonl"
        good = [line for line in lines.read_bytes().splitlines() if line]
        about = json.loads(good[0])
        choose = random.Random(3)
        for where in [(), *((i,) for i in range(len(about) + 2))]:
            for wrong in choose.sample(WRONG, 8):
                entry = [*about, [], 5] if where == (len(about) + 1,) else [*about, []]
                text = json.dumps(put(entry, where, wrong))
                lines.write_bytes(text.encode() + b"\n" + good[1] + b"\n")
                (target / "_SUCCESS").unlink()
                report = self.convert(path, target)
                assert type(report.records) is int and not report.damage
                texts = [shard.read_text() for shard in target.glob("*.jsonl")]
                rows = [json.loads(line) for line in "".join(texts).splitlines()]
                assert sorted(row["x"] for row in rows) == list(range(8))

    @pytest.mark.parametrize("text", [b"", b"null", b"[1]", b'{"records": "x"}', b"[" * 100_000])
    def test_sums_and_sources(self, path, tmp_path, text):
        tw.write_examples(path, {"x": np.arange(8)})
        target = tmp_path / "out"
        self.convert(path, target)
        for name in ("_SUCCESS", "_tensorwire/sources.jsonl", "_tensorwire/manifest.json"):
            good = (target / name).read_bytes()
            (target / name).write_bytes(text)
            try:
                assert self.convert(path, target).records == 8
            except (tw.TensorwireError, FileExistsError):
                (target / name).write_bytes(good)


class TestShown:
    """`inspect` and the command `schema` show the schema that readers use, with what a sample shows
    of it.
    """

    def test_the_sidecar_is_shown(self, tmp_path):
        path = tmp_path / "a.tfrecord"
        tw.write_examples(path, {"m": np.zeros((5, 2, 3)), "n": np.arange(5)}, tensors=["m"])
        known = tw.Schema.load(f"{path}.schema.json")
        summary = tw.inspect(path)
        assert (
            summary.schema == known
            and summary.schema["m"].shape == (2, 3)
            and summary.problems == []
        )
        assert summary.schema["n"].seen["range"] == [0, 4] and summary.schema.records == 5
        command = cli.run("schema", path, "--json")
        assert command.returncode == 0 and json.loads(command.stdout)["features"]["m"]["shape"] == [
            2,
            3,
        ]
        os.unlink(f"{path}.schema.json")
        assert tw.inspect(path).schema["m"].kind == "bytes" and tw.inspect(path).schema != known

    def test_a_damaged_sidecar(self, tmp_path):
        path = tmp_path / "a.tfrecord"
        tw.write_examples(path, {"n": np.arange(5)})
        text = (tmp_path / "a.tfrecord.schema.json").read_text()
        (tmp_path / "a.tfrecord.schema.json").write_text(text.replace("int64", "float"))
        summary = tw.inspect(path)
        assert len(summary.problems) == 1 and summary.schema["n"].kind == "int64"
        assert cli.run("inspect", path).returncode == 1 and cli.run("schema", path).returncode == 1


class TestReviewed:
    def test_a_torn_shard_keeps_the_schema(self, tmp_path):
        columns = {"h": np.arange(60).astype("float16"), "u": np.arange(60, dtype=np.uint8)}
        tw.write_examples(tmp_path / "a.tfrecord", columns, shards=3)
        torn = tmp_path / "a-00001-of-00003.tfrecord"
        torn.write_bytes(torn.read_bytes()[:-5])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batches = list(tw.read_examples(f"{tmp_path}/a-*.tfrecord", on_corrupt="skip"))
        assert {(str(batch["h"].dtype), str(batch["u"].dtype)) for batch in batches} == {
            ("float16", "uint8")
        }

    def test_an_index_whose_differences_wrap(self, tmp_path):
        path = tmp_path / "a.tfrecord"
        with tw.RecordWriter(path) as writer:
            writer.write_many([b"x" * 40] * 4)
        size = path.stat().st_size
        indexed(path, [0, 2**63 - 1, -(2**63) + 100, -1000, size], [], {"compression": None})
        assert [tw.RecordReader(path)[i] for i in range(4)] == [b"x" * 40] * 4

    @pytest.mark.parametrize(
        ("shape", "dtype"), [((1 << 33, None), "int64"), ((1 << 29, None), "string")]
    )
    def test_blank_lists_of_a_vast_shape(self, tmp_path, shape, dtype):
        tw.write_examples(tmp_path / "a.tfrecord", [{"b": 1}], schema_file=False)
        schema = {"a": tw.Feature("bytes", shape, dtype, encoding="tensor")}
        with pytest.raises((tw.LimitError, tw.SchemaError)):
            list(tw.read_examples(tmp_path / "a.tfrecord", schema=schema))

    def test_a_ragged_with_uniform_inner_lists(self, tmp_path):
        splits = [np.array(part) for part in ([0, 2, 3], [0, 2, 3, 4], [0, 2, 4, 6, 8])]
        tw.write_examples(
            tmp_path / "a.tfrecord", {"x": tw.Ragged(np.arange(8), splits, (None, None, 2))}
        )
        (batch,) = tw.read_examples(tmp_path / "a.tfrecord")
        assert batch["x"].tolist() == [[[[0, 1], [2, 3]], [[4, 5]]], [[[6, 7]]]]

    def test_patterns_that_ask_for_names_with_an_underscore(self, tmp_path):
        for name in ("_u", "v"):
            tw.write_examples(tmp_path / f"{name}.tfrecord", {"x": np.arange(2)})
        for pattern, count in (("[_v]*.tfrecord", 4), ("_*.tfrecord", 2), ("*.tfrecord", 2)):
            assert (
                sum(len(batch["x"]) for batch in tw.read_examples(f"{tmp_path}/{pattern}")) == count
            )
            assert (
                tw.convert(f"{tmp_path}/{pattern}", tmp_path / "o.npz", overwrite=True).records
                == count
            )
