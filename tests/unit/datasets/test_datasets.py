"""Datasets: any format to any other, in other shards, filtered, shuffled, split and sampled; and
again after a death.
"""

import collections
import dataclasses
import importlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support.dataset_files import SCHEMA, crew_of, done, records, rows_for, until, write
from tensorwire import datasets
from tensorwire.codecs import column_rows
from tensorwire.codecs.conversion_spec import VERSION, ConversionSpec
from tensorwire.datasets import permutation as ordering
from tensorwire.datasets import row_selection
from tensorwire.datasets.engines.local import LocalEngine
from tensorwire.datasets.manifest import Manifest
from tensorwire.records.batch import Batch
from tensorwire.wire import kernels

pytestmark = pytest.mark.arrow


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write(str(tmp_path_factory.mktemp("source")), 600, 6)


class TestThereAndBack:
    @pytest.mark.parametrize(
        "format", ["parquet", "arrow", "jsonl", "npz", "safetensors", "tfrecord"]
    )
    @pytest.mark.parametrize("shards", [None, 1, 4, 9])
    def test_every_record_once(self, source, tmp_path, format, shards):
        there = datasets.convert(source, tmp_path / "there", format, shards=shards, workers=0)
        assert (
            there.records == 600 and there.shards == (shards or 6) and there.written == there.shards
        )
        back = datasets.convert(
            tmp_path / "there", tmp_path / "back", "tfrecord", shards=5, workers=0
        )
        assert back.records == 600
        found = records(f"{tmp_path}/back/*.tfrecord")
        if format == "jsonl":  # JSON has one NaN, and that is the one that rows_for has
            assert sum(found.values()) == 600
        assert found == records(source)

    @pytest.mark.parametrize("middle", ["parquet", "arrow", "jsonl"])
    def test_between_columns(self, source, tmp_path, middle):
        datasets.convert(source, tmp_path / "a", "parquet", workers=0)
        datasets.convert(tmp_path / "a", tmp_path / "b", middle, shards=2, workers=0)
        datasets.convert(tmp_path / "b", tmp_path / "c", "tfrecord", schema=SCHEMA, workers=0)
        assert records(f"{tmp_path}/c/*.tfrecord") == records(source)

    @pytest.mark.parametrize("compression", ["gzip", "zlib", "snappy"])
    def test_compressed_records(self, tmp_path, compression):
        source = write(f"{tmp_path}/in", 300, 3, compression=compression)
        datasets.convert(source, tmp_path / "a", "jsonl", compression="gzip", shards=2, workers=0)
        assert os.path.exists(f"{tmp_path}/a/part-00001-of-00002.jsonl.gz")
        datasets.convert(
            tmp_path / "a", tmp_path / "b", "tfrecord", compression=compression, shards=4, workers=0
        )
        assert records(f"{tmp_path}/b/part-*.tfrecord*[!n]") == records(source)

    def test_order_is_kept(self, source, tmp_path):
        datasets.convert(source, tmp_path / "a", "tfrecord", shards=7, workers=0)
        assert list(tw.RecordReader(f"{tmp_path}/a/*.tfrecord")) == list(tw.RecordReader(source))
        sizes = [
            len(tw.RecordReader(f"{tmp_path}/a/part-{i:05d}-of-00007.tfrecord")) for i in range(7)
        ]
        assert sizes == [600 * (i + 1) // 7 - 600 * i // 7 for i in range(7)]

    def test_records_that_are_no_examples_are_moved(self, tmp_path):
        with tw.RecordWriter(tmp_path / "a.tfrecord") as writer:
            writer.write_many([os.urandom(n) for n in range(200)])
        datasets.convert(
            tmp_path / "a.tfrecord", tmp_path / "out", "tfrecord", shards=3, shuffle=1, workers=0
        )
        assert records(f"{tmp_path}/out/*.tfrecord") == records(tmp_path / "a.tfrecord")

    def test_more_shards_than_records(self, tmp_path):
        source = write(f"{tmp_path}/in", 3, 1)
        for format in ("parquet", "tfrecord", "jsonl", "arrow", "safetensors"):
            datasets.convert(source, tmp_path / format, format, shards=8, workers=0)
            datasets.convert(
                tmp_path / format, tmp_path / f"{format}-back", "tfrecord", schema=SCHEMA, workers=0
            )
            assert records(f"{tmp_path}/{format}-back/*.tfrecord") == records(source)

    def test_many_files_to_one(self, source, tmp_path):
        assert (
            datasets.convert(source, tmp_path / "all.parquet", workers=0).shards == 1
            and (tmp_path / "all.parquet").is_file()
        )
        datasets.convert(tmp_path / "all.parquet", tmp_path / "back.tfrecord", workers=0)
        # in their order, too
        assert list(tw.RecordReader(tmp_path / "back.tfrecord")) == list(tw.RecordReader(source))
        mixed = datasets.convert(source, tmp_path / "mixed.tfrecord", shuffle=0, workers=2)
        assert mixed.records == 600 and records(tmp_path / "mixed.tfrecord") == records(source)
        assert list(tw.RecordReader(tmp_path / "mixed.tfrecord")) != list(tw.RecordReader(source))
        few = datasets.sample(source, tmp_path / "few.tfrecord", records=7, workers=0)
        assert few.records == 7 and not records(tmp_path / "few.tfrecord") - records(source)
        # where the shuffle's records waited
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
        datasets.convert(
            source, tmp_path / "folder", "tfrecord", columns=["id"], shards=1, workers=0
        )
        assert os.listdir(tmp_path / "folder").count("part-00000-of-00001.tfrecord") == 1

    def test_a_name_is_kept(self, source, tmp_path):
        """What a file's name says is in it: the format, for those too that keep the sources' if it
        says none, and the compression.
        """
        marks = {
            "parquet": b"PAR1",
            "jsonl": b'{"',
            "tfrecord.gz": b"\x1f\x8b",
            "jsonl.zst": b"\x28\xb5\x2f\xfd",
            "arrow": b"ARROW1",
        }
        for ending, mark in marks.items():
            for number, do in enumerate((datasets.convert, datasets.merge, datasets.shuffle)):
                assert do(source, tmp_path / f"{number}.{ending}", workers=0).records == 600
                assert (tmp_path / f"{number}.{ending}").read_bytes().startswith(mark)
            datasets.sample(source, tmp_path / f"few.{ending}", records=3, workers=0)
            assert (tmp_path / f"few.{ending}").read_bytes().startswith(mark)
        datasets.convert(source, tmp_path / "z.safetensors.zst", workers=0)
        datasets.convert(
            tmp_path / "z.safetensors.zst", tmp_path / "z.tfrecord", schema=SCHEMA, workers=0
        )
        assert records(tmp_path / "z.tfrecord") == records(source)
        for name, options in {
            "a.parquet.gz": {}, "a.npz.zst": {}, "a.tfrecord": {"to": "parquet"}, "a.tfrecord.gz": {"compression": "zstd"}
        }.items():  # fmt: skip
            with pytest.raises(tw.UsageError, match="the name "):
                datasets.convert(source, tmp_path / name, workers=0, **options)
            assert not (tmp_path / name).exists()

    def test_lines_of_somebody_else(self, tmp_path):
        """A mark in front, two characters at the ends of lines, empty ones, and a feature that
        nobody has.
        """
        lines = [b'\xef\xbb\xbf{"a":1,"none":null}', b"", b'{"a":2}', b'{"none":null,"a":3}'] + [
            b'{"a":%d}' % i for i in range(4, 100)
        ]
        (tmp_path / "a.jsonl").write_bytes(b"\r\n".join(lines))
        report = datasets.convert(
            tmp_path / "a.jsonl", tmp_path / "out", "tfrecord", shards=3, workers=0
        )
        found = [
            int(i) for batch in tw.read_examples(f"{tmp_path}/out/*.tfrecord") for i in batch["a"]
        ]
        assert report.records == 99 and found == list(range(1, 100))

    def test_a_folder_is_a_dataset(self, source, tmp_path):
        """Of tensors, if they are npz files, or if we have made it: safetensors alone may be a
        model.
        """
        for format in ("npz", "safetensors"):
            tw.convert(source, tmp_path / format, to=format, workers=0)
            assert tw.convert(tmp_path / format, tmp_path / f"{format}.arrow").records == 600
        (tmp_path / "model").mkdir()
        tw.save(tmp_path / "model" / "model.safetensors", {"w": np.zeros(3)})
        with pytest.raises(IsADirectoryError, match=r"pass a file in it: '.*model'"):
            tw.convert(tmp_path / "model", tmp_path / "model.npz")

    @pytest.mark.parametrize("seed", [0, 1])
    def test_a_shuffle_by_workers(self, source, tmp_path, seed):
        """Seed 0 is a seed, which was lost on the way to a worker."""
        datasets.shuffle(source, tmp_path / "out", seed, shards=2, workers=1)
        assert records(f"{tmp_path}/out/*.tfrecord") == records(source)

    def test_a_spec_as_json_is_the_same_spec(self):
        """Whatever of it is 0, empty or False, and that is its default or not."""
        for shuffle, level, seed, strata, columns, bounds in itertools.product(
            (None, 0), (None, 0), (0, 1), (None, {}), (None, []), (None, [0])
        ):
            spec = ConversionSpec(
                "tfrecord",
                "jsonl",
                shuffle=shuffle,
                level=level,
                seed=seed,
                strata=strata,
                columns=columns,
                bounds=bounds,
            )
            assert ConversionSpec.from_json(json.loads(json.dumps(spec.json()))) == spec
        assert ConversionSpec("jsonl", "jsonl").json() == {
            "version": VERSION,
            "source": "jsonl",
            "target": "jsonl",
        }

    def test_one_shuffled_file_with_damage(self, tmp_path):
        """A run that fails leaves nothing, and one that passes over damage says so once."""
        source = write(str(tmp_path / "in"), 60, 3)
        first = sorted((tmp_path / "in").iterdir())[0]
        data = bytearray(first.read_bytes())
        data[20] ^= 1
        first.write_bytes(data)
        with pytest.raises(tw.DecodeError, match=first.name):
            datasets.shuffle(source, tmp_path / "out.tfrecord", workers=0)
        assert os.listdir(tmp_path) == ["in"]
        (tmp_path / ".out.tfrecord.shuffle").mkdir()  # of a driver that was killed
        (tmp_path / ".out.tfrecord.shuffle" / "000009.run").write_bytes(b"old")
        report = datasets.shuffle(source, tmp_path / "out.tfrecord", on_corrupt="skip", workers=0)
        assert report.records == 59 and report.damaged == [str(first)] and len(report.damage) == 1
        assert sorted(os.listdir(tmp_path)) == ["in", "out.tfrecord"]

    def test_one_file(self, tmp_path):
        source = write(f"{tmp_path}/in", 50, 1)
        name = f"{tmp_path}/in/a-00000-of-00001.tfrecord"
        report = datasets.convert(name, tmp_path / "b.parquet", workers=0)
        assert report.records == 50 and sorted(os.listdir(tmp_path)) == ["b.parquet", "in"]
        with pytest.raises(FileExistsError):
            datasets.convert(name, tmp_path / "b.parquet", workers=0)
        datasets.convert(tmp_path / "b.parquet", tmp_path / "c.tfrecord", workers=0)
        assert records(tmp_path / "c.tfrecord") == records(source)

    def test_schema_stands_beside_and_is_found(self, tmp_path):
        os.makedirs(tmp_path / "in")
        tw.write_examples(
            tmp_path / "in/a.tfrecord",
            {"b": np.array([True, False]), "t": ["ä", "b"], "m": np.ones((2, 2, 2), np.uint8)},
        )
        for format in ("parquet", "arrow", "tfrecord"):
            datasets.convert(
                tmp_path / "in/a.tfrecord",
                tmp_path / format,
                format,
                workers=0,
                columns=["b", "t", "m"],
            )
            datasets.convert(tmp_path / format, tmp_path / f"{format}-back", "tfrecord", workers=0)
            batch = next(iter(tw.read_examples(f"{tmp_path}/{format}-back/*.tfrecord")))
            assert (
                batch["b"].tolist() == [True, False]
                and batch["t"].tolist() == ["ä", "b"]
                and batch["m"].shape == (2, 2, 2)
            )
        import pyarrow.parquet as pq

        table = pq.read_table(tmp_path / "parquet/part-00000-of-00001.parquet")
        assert table.column("b").to_pylist() == [True, False] and table.column("t").to_pylist() == [
            "ä",
            "b",
        ]


def write_table(columns, path):
    """As pyarrow writes it."""
    pa, pq, feather = (
        importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet", "pyarrow.feather")
    )
    table = pa.table({name: tw.to(column, "arrow") for name, column in columns.items()})
    if path.suffix == ".arrow":
        feather.write_feather(table, str(path), compression="uncompressed")
    else:
        pq.write_table(table, path)


class TestForeignTables:
    def test_integers_of_every_kind(self, tmp_path):
        """Written as differences, unless they come again; and these are exact at both ends of each
        type, and over a step of 2**64 - 1.
        """
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        columns = {}
        for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
            ends, noise = (
                np.iinfo(name),
                np.random.default_rng(0)
                .integers(0, 256, (5000, 8), np.uint8)
                .view(np.int64)
                .reshape(-1),
            )
            values = noise.astype(name)
            values[1::7], values[2::7] = ends.min, ends.max
            columns[name] = pa.array(values, mask=np.arange(5000) % 5 == 4)
        columns["again"] = pa.array(np.arange(5000) % 3)
        columns["lists"] = pa.array(
            [list(range(i % 4, i)) for i in range(100)] * 50, pa.large_list(pa.int64())
        )
        table = pa.table(columns)
        pq.write_table(table, tmp_path / "in.parquet")
        datasets.convert(tmp_path / "in.parquet", tmp_path / "out", "parquet", workers=0)
        found = pq.ParquetFile(next((tmp_path / "out").glob("*.parquet")))
        assert found.read().equals(table)
        group = found.metadata.row_group(0)
        about = {(one := group.column(i)).path_in_schema: one for i in range(group.num_columns)}
        assert (
            "DELTA_BINARY_PACKED" in about["int64"].encodings
            and "RLE_DICTIONARY" in about["again"].encodings
        )
        assert (
            about["int64"].statistics.min == -(2**63)
            and about["lists.list.element"].statistics is None
        )

    @pytest.mark.parametrize("format", ["parquet", "arrow", "npz", "safetensors"])
    def test_columns_that_some_files_have(self, tmp_path, format):
        """They are missing in the others, and nothing is lost."""
        (tmp_path / "in").mkdir()
        files = [
            {"a": np.arange(2)},
            {"a": np.arange(3), "b": np.float32([1, 2, 3])},
            {"a": np.arange(1), "c": tw.Strings.of(["é"])},
        ]
        for number, columns in enumerate(files):
            if format in ("parquet", "arrow"):
                write_table(columns, tmp_path / f"in/{number}.{format}")
            else:
                tw.save(tmp_path / f"in/{number}.{format}", columns)
        report = datasets.convert(
            tmp_path / "in", tmp_path / "out", "tfrecord", shards=1, workers=0
        )
        rows = [
            row for batch in tw.read_examples(f"{tmp_path}/out/*.tfrecord") for row in batch.rows()
        ]
        assert report.records == 6 and [row["a"] for row in rows] == [0, 1, 0, 1, 2, 0]
        assert [row.get("b") for row in rows] == [None, None, 1, 2, 3, None] and [
            row.get("c") for row in rows
        ] == [None] * 5 + ["é"]
        for target, more in itertools.product(
            ("parquet", "arrow", "npz", "safetensors", "jsonl"),
            ({}, {"shuffle": 0}, {"where": "a >= 0"}),
        ):
            there = tmp_path / f"{target}-{'-'.join(more)}"
            assert (
                datasets.convert(
                    tmp_path / "in", there, target, shards=1, workers=0, **more
                ).records
                == 6
            )
            datasets.convert(there, f"{there}-back", "jsonl", shards=1, workers=0)
            lines = [
                json.loads(line)
                for line in Path(f"{there}-back/part-00000-of-00001.jsonl").read_text().splitlines()
            ]
            wanted = [
                {"a": 0},
                {"a": 0, "b": 1},
                {"a": 0, "c": "é"},
                {"a": 1},
                {"a": 1, "b": 2},
                {"a": 2, "b": 3},
            ]
            assert sorted(lines, key=str) == sorted(wanted, key=str) and (
                more.get("shuffle") is not None or lines[:2] == [{"a": 0}, {"a": 1}]
            )
        assert (
            datasets.convert(
                tmp_path / "in", tmp_path / "few", "parquet", shards=1, where="b > 1", workers=0
            ).records
            == 2
        )
        with pytest.raises(tw.SchemaError, match="no column 'b'"):
            schema = tw.Schema(
                {"a": tw.Feature("int64", ()), "b": tw.Feature("float", (), required=True)}
            )
            datasets.convert(
                tmp_path / "in", tmp_path / "other", "tfrecord", schema=schema, workers=0
            )

    def test_a_column_that_the_plan_did_not_see(self, tmp_path, monkeypatch):
        monkeypatch.setattr(column_rows, "FILES", 1)
        pq = importlib.import_module("pyarrow.parquet")
        (tmp_path / "in").mkdir()
        for number, columns in enumerate(
            [{"a": np.arange(2)}, {"a": np.arange(3), "b": np.arange(3)}]
        ):
            write_table(columns, tmp_path / f"in/{number}.parquet")
        with pytest.raises(tw.SchemaError, match="would be lost") as caught:
            datasets.convert(tmp_path / "in", tmp_path / "out", "tfrecord", workers=0)
        assert caught.value.tensor == "b" and caught.value.path.endswith("1.parquet")
        assert (
            datasets.convert(
                tmp_path / "in", tmp_path / "out", "tfrecord", columns=["a"], workers=0
            ).records
            == 5
        )
        # a shard has the columns of its own files
        for number, more in enumerate(({"shards": 1}, {"shards": 1, "shuffle": 3}, {})):
            datasets.convert(
                tmp_path / "in", tmp_path / f"same{number}", "parquet", workers=0, **more
            )
            found = [
                pq.read_table(path).to_pylist()
                for path in sorted((tmp_path / f"same{number}").glob("*.parquet"))
            ]
            assert sorted(
                row["b"] for rows in found for row in rows if row.get("b") is not None
            ) == [0, 1, 2]

    def test_names_with_points(self, tmp_path):
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        table = pa.table({"a.b": list(range(100)), "a": [[i, i] for i in range(100)]})
        pq.write_table(table, tmp_path / "in.parquet")
        datasets.convert(tmp_path / "in.parquet", tmp_path / "out.parquet", workers=0)
        found = pq.ParquetFile(tmp_path / "out.parquet")
        assert (
            found.read().cast(table.schema).equals(table)
            and found.metadata.row_group(0).column(0).statistics.max == 99
        )

    def test_what_an_example_does_not_hold(self, tmp_path):
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        os.makedirs(tmp_path / "in")
        table = pa.table(
            {
                "x": [0.1, None, 0.3],
                "n": pa.array([1, 2, None], pa.int32()),
                "s": ["a", None, "c"],
                "l": [[1], None, []],
            }
        )
        pq.write_table(table, tmp_path / "in/a.parquet")
        with pytest.raises(tw.EncodeError, match=r"float64.*cast="):
            datasets.convert(tmp_path / "in", tmp_path / "a", "tfrecord", workers=0)
        datasets.convert(
            tmp_path / "in", tmp_path / "a", "tfrecord", cast={"x": "float32"}, workers=0
        )
        batch = next(iter(tw.read_examples(f"{tmp_path}/a/*.tfrecord")))
        assert batch["x"].tolist() == [np.float32(0.1), 0.0, np.float32(0.3)] and batch.present[
            "x"
        ].tolist() == [True, False, True]
        assert (
            batch["n"].dtype == np.int32
            and batch["s"].tolist() == ["a", "", "c"]
            and batch.present["l"].tolist() == [True, False, True]
        )
        datasets.convert(tmp_path / "in", tmp_path / "b", "tfrecord", tensors=["x"], workers=0)
        assert next(iter(tw.read_examples(f"{tmp_path}/b/*.tfrecord")))["x"].tolist() == [
            0.1,
            0.0,
            0.3,
        ]

    def test_dates_are_refused_by_name(self, tmp_path):
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        pq.write_table(
            pa.table({"when": pa.array([1], pa.timestamp("s")), "n": [1]}), tmp_path / "a.parquet"
        )
        with pytest.raises(tw.SchemaError) as error:
            datasets.convert(tmp_path / "a.parquet", tmp_path / "b", "tfrecord", workers=0)
        assert error.value.tensor == "when"
        assert (
            datasets.convert(
                tmp_path / "a.parquet", tmp_path / "b", "jsonl", columns=["n"], workers=0
            ).records
            == 1
        )

    def test_garbage(self, tmp_path):
        rng = random.Random(1)
        for format in ("parquet", "arrow"):
            source = write(f"{tmp_path}/{format}-in", 40, 1)
            datasets.convert(source, tmp_path / f"{format}", format, workers=0)
            name = f"{tmp_path}/{format}/part-00000-of-00001.{format}"
            data = Path(name).read_bytes()
            os.makedirs(tmp_path / f"{format}-bad")
            for i in range(40):
                at = rng.randrange(len(data))
                bad = (
                    data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
                    if i % 2
                    else data[:at]
                )
                with open(tmp_path / f"{format}-bad/a.{format}", "wb") as file:
                    file.write(bad)
                try:
                    datasets.convert(
                        f"{tmp_path}/{format}-bad/a.{format}",
                        tmp_path / f"{format}-{i}",
                        "tfrecord",
                        workers=0,
                    )
                except tw.TensorwireError as error:
                    assert error.path is not None


class TestChoice:
    def test_where(self, source, tmp_path):
        found = datasets.convert(
            source,
            tmp_path / "a",
            "jsonl",
            where="id < 100 and not has(sometimes) and len(tokens) > 1",
            columns=["id"],
            workers=0,
        )
        wanted = [
            row["id"]
            for row in rows_for(600)
            if row["id"] < 100 and "sometimes" not in row and len(row["tokens"]) > 1
        ]
        assert found.records == len(wanted)
        lines = [
            json.loads(line)
            for i in range(6)
            for line in Path(f"{tmp_path}/a/part-{i:05d}-of-00006.jsonl").read_text().splitlines()
        ]
        assert sorted(line["id"] for line in lines) == wanted and all(
            line.keys() == {"id"} for line in lines
        )

    @pytest.mark.parametrize("what", ["quantize", "cast"])
    def test_what_holds_for_a_column_names_it(self, source, tmp_path, what):
        with pytest.raises(tw.UsageError, match=f"{what}={{'x': 'int8'}}"):
            tw.convert(source, tmp_path / "a", "tfrecord", **{what: "int8"})

    @pytest.mark.parametrize(
        "text",
        [
            "__import__('os')",
            "id.real",
            "id + 1 > 2",
            "(lambda: 1)()",
            "id ==",
            "[x for x in id]",
            "f'{id}'",
        ],
    )
    def test_where_runs_nothing(self, text):
        with pytest.raises(tw.SchemaError):
            row_selection.Condition(text)

    def test_conditions(self):
        columns = {
            "n": np.array([1, 2, 3]),
            "s": tw.Strings.of(["a", "b", "c"]),
            "r": tw.Ragged([1, 2, 3], [0, 1, 1, 3]),
        }
        columns["f"] = np.float32([0.1, np.nan, 2])
        batch = Batch(
            columns,
            {**dict.fromkeys(columns, np.ones(3, bool)), "n": np.array([True, True, False])},
            3,
        )
        wanted = {
            "n > 1": [0, 1, 0], "n == 3": [0, 0, 0], "not n == 3": [1, 1, 1], "n != 1": [0, 1, 1], "s in ['a', 'c']": [1, 0, 1],
            "1 < n <= 2": [0, 1, 0], "len(r) == 0 or s == 'a'": [1, 1, 0], "has(n)": [1, 1, 0], "s != 'b'": [1, 0, 1], "n == -1": [0, 0, 0],
            "n not in [1]": [0, 1, 1], "col('n') < 2": [1, 0, 0], "f == 0.1": [0, 0, 0], "f < 0.2": [1, 0, 0], "f != 2": [1, 1, 0],
            "2 in r": [0, 0, 1], "len(r) > 1 and n == 3": [0, 0, 0], "s > 3": [0, 0, 0], "n in [2, 3]": [0, 1, 0], "n < 1.5": [1, 0, 0],
        }  # fmt: skip
        for text, expected in wanted.items():
            condition = row_selection.Condition(text)
            assert condition(batch).astype(int).tolist() == expected, text
            assert condition.slow(batch).astype(int).tolist() == expected, text
        with pytest.raises(tw.SchemaError, match="did you mean"):
            row_selection.Condition("nn > 1").check(["n"])

    def test_strangers(self, tmp_path):
        """One in the last of many records is found, and so are feature lists; what has a name and
        nothing else is not missed.
        """
        schema = tw.Schema({"a": tw.Feature("int64", ())})
        tw.write_examples(
            tmp_path / "many.tfrecord", {"a": np.arange(300_000)}, schema_file=False, durable=False
        )
        plain = list(itertools.islice(tw.RecordReader(tmp_path / "many.tfrecord"), 1))
        nameless = b"\x0a\x07\x0a\x05\x0a\x01z\x12\x00"  # {"z": Feature()}
        # feature_lists {"l": [[1, 2]]}
        lists = b"\x12\x0f\x0a\x0d\x0a\x01l\x12\x08\x0a\x06\x1a\x04\x0a\x02\x01\x02"
        stranger = b"\x0a\x0c\x0a\x0a\x0a\x01q\x12\x05\x1a\x03\x0a\x01\x07"  # {"q": [7]}
        for more, lost in ((nameless, None), (lists, "l"), (stranger, "q")):
            with tw.RecordWriter(tmp_path / "a.tfrecord", mode="w") as writer:
                for record in tw.RecordReader(tmp_path / "many.tfrecord"):
                    writer.write(record)
                writer.write(plain[0] + more)
            plan = datasets.plan(
                tmp_path / "a.tfrecord", tmp_path / "out.parquet", schema=schema, workers=0
            )
            # as if it had been inferred
            plan = dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, strict=True))
            if lost is None:
                assert datasets.run(plan, LocalEngine(0), overwrite=True).records == 300_001
                continue
            with pytest.raises(tw.SchemaError, match="would be lost") as error:
                datasets.run(plan, LocalEngine(0), overwrite=True)
            assert error.value.tensor == lost and error.value.path.endswith("a.tfrecord")

    def test_columns_and_a_stranger(self, tmp_path):
        os.makedirs(tmp_path / "in")
        tw.write_examples(tmp_path / "in/a.tfrecord", [{"a": 1}] * 10, schema_file=False)
        tw.write_examples(
            tmp_path / "in/b.tfrecord", [{"a": 1}] * 9 + [{"a": 1, "rare": 2}], schema_file=False
        )
        schema = {"a": tw.Feature("int64", ())}
        assert (
            datasets.convert(
                tmp_path / "in", tmp_path / "x", "parquet", schema=schema, workers=0
            ).records
            == 20
        )
        plan = datasets.plan(tmp_path / "in", tmp_path / "y", "parquet", workers=0)
        hidden = dataclasses.replace(plan.spec, features=tw.Schema(schema).json())
        hidden = datasets.Plan(hidden, plan.target, plan.sources, plan.shards)
        # as if the sample had not seen it
        with pytest.raises(tw.SchemaError, match="would be lost") as error:
            datasets.run(hidden, LocalEngine(0))
        assert error.value.tensor == "rare" and error.value.path.endswith("b.tfrecord")


class TestOrder:
    @pytest.mark.parametrize("count", [0, 1, 2, 5, 1000, (1 << 20) + 7, 3_000_000])
    def test_permutation(self, count):
        found = ordering.Permutation(count, 3)(np.arange(count))
        assert (np.sort(found) == np.arange(count)).all()
        if count > 1000:
            assert (
                abs(np.corrcoef(np.arange(count), found)[0, 1]) < 0.01
                and (found != ordering.Permutation(count, 4)(np.arange(count))).mean() > 0.99
            )
            some = np.array([5, count - 1, 77])
            assert (ordering.Permutation(count, 3)(some) == found[some]).all()

    def test_small_permutations_are_all_as_likely(self):
        found = collections.Counter(
            tuple(ordering.Permutation(3, seed)(np.arange(3)).tolist()) for seed in range(6000)
        )
        assert len(found) == 6 and min(found.values()) > 850

    @pytest.mark.parametrize("format", ["tfrecord", "parquet"])
    def test_one_shuffle_for_any_number_of_workers(self, source, tmp_path, format):
        reports = [
            datasets.shuffle(source, tmp_path / str(n), 7, format, shards=4, workers=n)
            for n in (0, 2)
        ]
        assert [report.records for report in reports] == [600, 600]
        for name in [f"part-{i:05d}-of-00004.{format}" for i in range(4)]:
            assert (
                Path(tmp_path / "0" / name).read_bytes() == Path(tmp_path / "2" / name).read_bytes()
            )
        datasets.convert(tmp_path / "0", tmp_path / "back", "tfrecord", workers=0)
        assert records(f"{tmp_path}/back/*.tfrecord") == records(source)
        ids = [batch["id"] for batch in tw.read_examples(f"{tmp_path}/back/*.tfrecord", SCHEMA)]
        order = np.concatenate(ids)
        assert (
            order
            == ordering.Permutation(600, 7)(np.arange(600))
            .argsort()[np.argsort(_ids(source))]
            .argsort()
        ).all() or abs(np.corrcoef(np.arange(600), order)[0, 1]) < 0.2
        assert not any(name.endswith(".run") for _, _, names in os.walk(tmp_path) for name in names)
        assert sorted(os.listdir(tmp_path / "0/_tensorwire")) == [
            "lock",
            "manifest.json",
            "shards.jsonl",
            "sources.jsonl",
        ]
        again = datasets.shuffle(source, tmp_path / "0", 7, format, shards=4, workers=0)
        assert again.written == 0 and again.records == 600
        other = datasets.shuffle(source, tmp_path / "other", 8, format, shards=4, workers=0)
        assert (
            other.records == 600
            and Path(tmp_path / "0" / name).read_bytes()
            != Path(tmp_path / "other" / name).read_bytes()
        )


def _ids(pattern):
    return np.concatenate([batch["id"] for batch in tw.read_examples(pattern, SCHEMA)])


class TestSelecting:
    def test_split(self, tmp_path):
        source = f"{tmp_path}/a.tfrecord"
        tw.write_examples(
            source, {"user": [f"u{i % 97}" for i in range(2000)], "n": np.arange(2000)}, shards=3
        )
        report = datasets.split(
            f"{tmp_path}/a-*.tfrecord",
            tmp_path / "out",
            {"train": 0.8, "validation": 0.2},
            by="user",
            workers=0,
        )
        found = {
            name: list(tw.read_examples(f"{tmp_path}/out/{name}-*.tfrecord"))
            for name in ("train", "validation")
        }
        users = {
            name: {user for batch in batches for user in batch["user"].tolist()}
            for name, batches in found.items()
        }
        assert (
            not users["train"] & users["validation"]
            and len(users["train"] | users["validation"]) == 97
        )
        assert (
            all(row_selection.share(0, user.encode()) < 0.8 for user in users["train"])
            and sum(report.splits.values()) == 2000
        )
        again = datasets.split(
            f"{tmp_path}/a-*.tfrecord",
            tmp_path / "p",
            {"train": 0.8, "validation": 0.2},
            by="user",
            to="parquet",
            workers=0,
        )
        assert again.splits == report.splits

    def test_stratified_sample(self, tmp_path):
        labels = np.array([0] * 900 + [1] * 90 + [2] * 10)[
            np.random.default_rng(0).permutation(1000)
        ]
        tw.write_examples(
            f"{tmp_path}/a.tfrecord", {"label": labels, "n": np.arange(1000)}, shards=4
        )
        report = datasets.sample(
            f"{tmp_path}/a-*.tfrecord", tmp_path / "out", 0.1, by="label", workers=0
        )
        assert report.records == 100
        found = np.concatenate(
            [batch["label"] for batch in tw.read_examples(f"{tmp_path}/out/*.tfrecord")]
        )
        assert np.bincount(found).tolist() == [90, 9, 1]
        few = datasets.sample(
            f"{tmp_path}/a-*.tfrecord",
            tmp_path / "few",
            records=37,
            seed=2,
            shards=2,
            where="n >= 500",
            workers=0,
        )
        numbers = np.concatenate(
            [batch["n"] for batch in tw.read_examples(f"{tmp_path}/few/*.tfrecord")]
        )
        assert (
            few.records == 37 == len(set(numbers.tolist()))
            and few.shards == 2
            and numbers.min() >= 500
        )

    def test_merge_and_stats(self, source, tmp_path):
        other = write(f"{tmp_path}/other", 100, 2)
        assert datasets.merge([source, other], tmp_path / "out", shards=3, workers=0).records == 700
        assert records(f"{tmp_path}/out/*.tfrecord") == records(source) + records(other)
        found = datasets.stats(source, workers=0)
        assert (
            found.records == 600
            and found.features["sometimes"]["present"] == 200
            and found.features["id"]["range"] == [0, 599]
        )
        datasets.convert(source, tmp_path / "p", "parquet", workers=0)
        columns = datasets.stats(tmp_path / "p", workers=2)
        for name, about in found.features.items():
            mine = columns.features[name]
            assert all(
                mine[key] == about[key]
                for key in ("present", "lengths", "values", "range", "nan", "sizes")
                if key in about
            ), name

    @pytest.mark.parametrize("middle", [None, "parquet", "jsonl"])
    def test_datasets_with_different_schemas(self, tmp_path, middle):
        """Each keeps its own; what is put together has one that is true of all, and loses nothing."""
        tw.write_examples(
            tmp_path / "a.tfrecord",
            {"flag": np.array([True, False]), "x": np.ones((2, 3), np.float32)},
            shards=2,
        )
        tw.write_examples(
            tmp_path / "b.tfrecord",
            {"flag": np.array([True]), "x": np.ones((1, 2), np.float32), "word": ["é"]},
        )
        tw.write_examples(
            tmp_path / "c.tfrecord",
            {"flag": np.array([True]), "late": np.array([7])},
            schema_file=False,
        )
        sources = [str(tmp_path / name) for name in ("a-*.tfrecord", "b.tfrecord")]
        out = tmp_path / "out"
        if middle is not None:
            datasets.convert(sources, tmp_path / "middle", middle, workers=0)
        datasets.merge(
            sources if middle is None else tmp_path / "middle", out, "tfrecord", workers=0
        )
        assert records(f"{out}/*.tfrecord") == records(sources)
        rows = [row for batch in tw.read_examples(f"{out}/*.tfrecord") for row in batch.rows()]
        assert [row["flag"] for row in rows] == [True, False, True] and rows[0][
            "flag"
        ].dtype == bool
        assert [len(row["x"]) for row in rows] == [3, 3, 2] and [
            row.get("word") for row in rows
        ] == [None, None, "é"]
        # One without a schema, too: what it has is looked at.
        datasets.convert(
            [*sources, str(tmp_path / "c.tfrecord")], tmp_path / "all", "jsonl", workers=0
        )
        lines = [
            json.loads(line)
            for path in sorted(tmp_path.glob("all/*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        assert [line.get("late") for line in lines] == [None, None, None, 7]

    def test_datasets_that_contradict_each_other(self, tmp_path):
        tw.write_examples(tmp_path / "a.tfrecord", {"x": np.array([1])})
        tw.write_examples(tmp_path / "b.tfrecord", {"x": ["one"]})
        sources = str(tmp_path / "?.tfrecord")
        with pytest.raises(
            tw.SchemaError,
            match=(
                r"a.tfrecord.schema.json and .*b.tfrecord.schema.json contradict each"
                r" other.*schema="
            ),
        ):
            datasets.merge(sources, tmp_path / "p", "parquet", workers=0)
        # as bytes they can be moved, and no schema is true of all
        datasets.merge(sources, tmp_path / "out", workers=0)
        assert records(f"{tmp_path}/out/*.tfrecord") == records(sources) and not list(
            tmp_path.glob("out/*.json")
        )


class TestResume:
    def test_only_what_is_missing(self, source, tmp_path):
        out = tmp_path / "out"
        assert datasets.convert(source, out, "parquet", workers=0).written == 6
        again = datasets.convert(source, out, "parquet", workers=0)
        assert (again.written, again.skipped, again.records) == (0, 6, 600)
        os.unlink(out / "part-00002-of-00006.parquet")
        with open(out / "part-00003-of-00006.parquet", "ab") as file:
            file.write(b"x")
        data = bytearray(Path(out / "part-00004-of-00006.parquet").read_bytes())
        data[50] ^= 1
        Path(out / "part-00004-of-00006.parquet").write_bytes(data)
        os.utime(out / "part-00005-of-00006.parquet")  # another stamp, the same bytes
        assert (
            datasets.convert(source, out, "parquet", workers=0).written,
            os.path.exists(out / "_SUCCESS"),
        ) == (3, True)
        assert datasets.convert(source, out, "parquet", workers=0, resume=False).written == 6

    def test_a_changed_source(self, tmp_path):
        source = write(f"{tmp_path}/in", 60, 3)
        datasets.convert(source, tmp_path / "out", "jsonl", workers=0)
        tw.write_examples(
            f"{tmp_path}/in/a-00001-of-00003.tfrecord",
            rows_for(5),
            schema=SCHEMA,
            schema_file=False,
        )
        again = datasets.convert(source, tmp_path / "out", "jsonl", workers=0)
        assert (again.written, again.records) == (1, 45)

    def test_another_plan_in_the_same_place(self, source, tmp_path):
        datasets.convert(source, tmp_path / "out", "parquet", workers=0)
        Path(tmp_path / "out/README").touch()
        with pytest.raises(FileExistsError, match="with other options"):
            datasets.convert(source, tmp_path / "out", "parquet", compression="snappy", workers=0)
        Path(tmp_path / "out/.part-00000-of-00006.parquet.0.tensorwire").touch()
        report = datasets.convert(
            source,
            tmp_path / "out",
            "parquet",
            shards=2,
            compression="snappy",
            overwrite=True,
            workers=0,
        )
        names = sorted(name for name in os.listdir(tmp_path / "out") if not name.startswith("_"))
        assert (
            names == ["README", "part-00000-of-00002.parquet", "part-00001-of-00002.parquet"]
            and report.swept == 7
        )
        with pytest.raises(FileExistsError, match="not from tensorwire"):
            datasets.convert(source, os.path.dirname(source), "parquet", workers=0)

    def test_sources_are_not_written_over(self, source, tmp_path, monkeypatch):
        datasets.convert(source, tmp_path / "out", "tfrecord", workers=0)
        before = records(f"{tmp_path}/out/*.tfrecord")
        monkeypatch.chdir(tmp_path)
        for src, dst in (
            (tmp_path / "out", "out"),
            ("./out/part-0000[0-3]*", tmp_path / "out"),
            ("out", f"{tmp_path}/out/../out/"),
        ):
            for shards in (6, 2):
                with pytest.raises(tw.UsageError, match="over its own sources"):
                    datasets.convert(
                        src,
                        dst,
                        "tfrecord",
                        shards=shards,
                        where="id < 5",
                        overwrite=True,
                        workers=0,
                    )
        assert records(f"{tmp_path}/out/*.tfrecord") == before

    def test_manifest(self, source, tmp_path):
        datasets.convert(source, tmp_path / "out", "tfrecord", shards=3, workers=0)
        manifest = Manifest(str(tmp_path / "out"))
        for name, line in manifest.read().items():
            data = Path(tmp_path / "out" / name).read_bytes()
            assert (line.size, line.crc32c, line.records) == (
                len(data),
                f"{kernels.crc32c(data):08x}",
                200,
            )
        assert manifest.about()["shards"] == 3 and manifest.finished()["records"] == 600
        sources = [
            json.loads(line)
            for line in Path(tmp_path / "out/_tensorwire/sources.jsonl").read_text().splitlines()
        ]
        assert [size for _, size, _ in sources] == [os.path.getsize(path) for path, _, _ in sources]
        with open(tmp_path / "out/_tensorwire/shards.jsonl", "ab") as file:
            file.write(b'["part-00001-of-00003.tfrecord", "torn')
        assert (
            datasets.convert(source, tmp_path / "out", "tfrecord", shards=3, workers=0).written == 0
        )

    @pytest.mark.parametrize("text", ["{", "[]", ""])
    def test_a_manifest_that_is_none(self, source, tmp_path, text):
        datasets.convert(source, tmp_path / "out", "parquet", workers=0)
        Path(tmp_path / "out/_tensorwire/manifest.json").write_text(text)
        with pytest.raises(tw.DecodeError, match="overwrite=True") as caught:
            datasets.convert(source, tmp_path / "out", "parquet", workers=0)
        assert caught.value.path == str(tmp_path / "out/_tensorwire/manifest.json")
        assert (
            datasets.convert(source, tmp_path / "out", "parquet", overwrite=True, workers=0).skipped
            == 6
        )

    def test_two_drivers(self, source, tmp_path):
        plan = datasets.plan(source, tmp_path / "out", "parquet", workers=0)
        first = Manifest(str(tmp_path / "out"))
        with first.locked(), pytest.raises(tw.EncodeError, match="another run"):
            first.open(plan)
            datasets.convert(source, tmp_path / "out", "parquet", workers=0)

    def test_plan_is_data(self, source, tmp_path):
        for options in ({}, {"shards": 4}, {"shuffle": 1, "shards": 2}):
            plan = datasets.convert(
                source, tmp_path / "out", "parquet", dry_run=True, workers=0, **options
            )
            again = datasets.Plan.from_json(json.loads(json.dumps(plan.json())))
            assert [again.task(i) for i in range(len(again))] == [
                plan.task(i) for i in range(len(plan))
            ] and again.spec.hash == plan.spec.hash
            assert "sources of tfrecord" in str(plan) and not os.path.exists(tmp_path / "out")


class TestDamage:
    def test_skip_names_every_file(self, tmp_path):
        source = write(f"{tmp_path}/in", 90, 3)
        for i in (0, 2):
            name = f"{tmp_path}/in/a-{i:05d}-of-00003.tfrecord"
            data = bytearray(Path(name).read_bytes())
            data[40] ^= 1  # in the data of the first record
            Path(name).write_bytes(data)
        with pytest.raises(tw.DecodeError) as error:
            datasets.convert(source, tmp_path / "a", "parquet", schema=SCHEMA, workers=2)
        assert error.value.path.endswith(".tfrecord") and error.value.record is not None
        for shards in (None, 2):
            report = datasets.convert(
                source,
                tmp_path / f"b{shards}",
                "parquet",
                schema=SCHEMA,
                on_corrupt="skip",
                shards=shards,
                workers=0,
            )
            assert report.records == 88 and [os.path.basename(path) for path in report.damaged] == [
                "a-00000-of-00003.tfrecord",
                "a-00002-of-00003.tfrecord",
            ]
            again = datasets.convert(
                source,
                tmp_path / f"b{shards}",
                "parquet",
                schema=SCHEMA,
                on_corrupt="skip",
                shards=shards,
                workers=0,
            )
            assert again.written == 0 and again.damaged == report.damaged

    def test_a_record_that_is_no_example(self, tmp_path):
        good = list(tw.RecordReader(write(f"{tmp_path}/in", 20, 1)))
        with tw.RecordWriter(tmp_path / "b.tfrecord") as writer:
            writer.write_many([*good[:7], b"\x0a\xff no message", *good[7:]])
        with pytest.raises(tw.DecodeError) as error:
            datasets.convert(
                tmp_path / "b.tfrecord", tmp_path / "a", "jsonl", schema=SCHEMA, workers=0
            )
        assert error.value.record == 7
        report = datasets.convert(
            tmp_path / "b.tfrecord",
            tmp_path / "a",
            "jsonl",
            schema=SCHEMA,
            on_corrupt="skip",
            workers=0,
        )
        assert (
            report.records == 20
            and len(report.damage) == 1
            and "record 7" in report.damage[0]["why"]
        )

    def test_bad_lines(self, tmp_path):
        with open(tmp_path / "a.jsonl", "w") as file:
            file.write('{"a": 1}\n{"a": \n\n{"a": 3}\n[4]\n{"a": 5}')
        with pytest.raises(tw.DecodeError) as error:
            datasets.convert(
                tmp_path / "a.jsonl",
                tmp_path / "x",
                "tfrecord",
                schema={"a": tw.Feature("int64", ())},
                workers=0,
            )
        assert (error.value.record, error.value.path) == (1, str(tmp_path / "a.jsonl"))
        report = datasets.convert(
            tmp_path / "a.jsonl", tmp_path / "x", "tfrecord", on_corrupt="skip", shards=2, workers=0
        )
        assert report.records == 3 and len(report.damage) >= 2


SCRIPT = """
import sys
from tensorwire import datasets
report = datasets.convert(sys.argv[1], sys.argv[2], "parquet", workers=2)
print(report.written, report.skipped)
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return write(str(tmp_path_factory.mktemp("many")), 4000, 200)


DEADLY = """
import os, signal, sys
if "fork_server" in " ".join(sys.orig_argv):
    def deadly():
        from tensorwire.datasets import task
        task.run = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    os.register_at_fork(after_in_child=deadly)
"""


class TestDeath:
    """200 shards of few records: the full size, 2 M records, is scripts/datasets_at_full_size.py."""

    @pytest.mark.parametrize("who", ["a worker", "the fork server", "all"])
    def test_a_worker_is_killed(self, many, tmp_path, who):
        out = str(tmp_path / "out")
        killed = []

        def kill():
            until(lambda: done(out) >= 20)
            server, workers = crew_of(os.getpid())
            killed.extend(
                {"a worker": workers[:1], "the fork server": server, "all": server + workers}[who]
            )
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        report = datasets.convert(many, out, "parquet", workers=2)
        thread.join()
        assert (
            killed
            and report.records == 4000
            and report.retried <= {"a worker": 1, "the fork server": 0, "all": 2}[who]
        )
        back = datasets.convert(out, tmp_path / "back", "tfrecord", workers=2)
        assert back.records == 4000 and records(f"{tmp_path}/back/*.tfrecord") == records(many)
        assert not [name for name in os.listdir(out) if name.startswith(".")]

    def test_the_driver_is_killed(self, many, tmp_path):
        out = str(tmp_path / "out")
        driver = subprocess.Popen([sys.executable, "-c", SCRIPT, many, out], stdout=subprocess.PIPE)
        until(lambda: done(out) >= 50)
        crew = [pid for group in crew_of(driver.pid) for pid in group]
        driver.kill()
        driver.communicate()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in crew), 10)
        there = done(out)
        assert 50 <= there < 200 and not os.path.exists(f"{out}/_SUCCESS")
        again = subprocess.run(
            [sys.executable, "-c", SCRIPT, many, out], capture_output=True, text=True, check=True
        )
        written, skipped = map(int, again.stdout.split())
        # All but those whose line was not yet written: one of each worker, and four of each that
        # wait for a busy driver.
        assert written + skipped == 200 and skipped >= there - 2 * (1 + 4)
        datasets.convert(out, tmp_path / "back", "tfrecord", workers=2)
        assert records(f"{tmp_path}/back/*.tfrecord") == records(many)

    def test_a_task_that_kills_every_worker(self, many, tmp_path, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        (tmp_path / "sitecustomize.py").write_text(
            "import os, sys\nif 'datasets.engines' in ' '.join(sys.orig_argv): os._exit(9)\n"
        )
        with pytest.raises(tw.TensorwireError, match="with status 9, 4 times") as error:
            datasets.convert(many, tmp_path / "out", "parquet", workers=1)
        assert error.value.path.endswith(".tfrecord")

    def test_a_task_that_kills_every_copy(self, many, tmp_path, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        (tmp_path / "sitecustomize.py").write_text(DEADLY)
        with pytest.raises(tw.TensorwireError, match=r"by signal 9, 4 times .*enough memory"):
            datasets.convert(many, tmp_path / "out", "parquet", workers=1)

    def test_ctrl_c(self, many, tmp_path):
        out = str(tmp_path / "out")
        driver = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, many, out],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(lambda: done(out) >= 5)
        crew = [pid for group in crew_of(driver.pid) for pid in group]
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=20)
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in crew), 10)
        assert crew and driver.returncode != 0 and not os.path.exists(f"{out}/_SUCCESS")


class TestSize:
    def test_plan_for_a_million_shards(self):
        code = """
import re, time
from tensorwire.storage import FileEntry
from tensorwire.datasets import ConversionSpec, Plan
start = time.process_time()  # the machine is shared
sources = [FileEntry(f"s3://bucket/data/year=2026/train-{i:07d}-of-1000000.tfrecord", 1 << 30, f"{i:032x}") for i in range(1_000_000)]
plan = Plan(ConversionSpec("tfrecord", "parquet"), "s3://bucket/out", sources, len(sources))
count = sum(len(plan.task(i)["parts"]) for i in range(0, len(plan), 10))
plan.sources_hash
seconds = time.process_time() - start
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())  # getrusage would say the peak of whoever started it
print(seconds, int(peak[1]) / 1024, count)
"""
        seconds, megabytes, _ = map(
            float,
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout.split(),
        )
        assert seconds < 10 and megabytes < 500
