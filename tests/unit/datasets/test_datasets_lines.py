"""JSON lines as columns, number by number; and the small parts of datasets: statistics, choices,
runs of a shuffle, permutations.
"""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from tensorwire import datasets, storage
from tensorwire.codecs.conversion_spec import ConversionSpec
from tensorwire.codecs.jsonl import JsonLinesRows
from tensorwire.codecs.rows import Reading, SourcePart
from tensorwire.datasets import external_shuffle as shuffling
from tensorwire.datasets import permutation, row_selection, statistics
from tensorwire.datasets.shard_plan import run_name
from tensorwire.records.batch import Batch
from tensorwire.storage.local import LocalSource


def lines(path, rows):
    path.write_text(
        "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
    )
    return str(path)


def part_of(path, **about):
    return SourcePart(path, 0, "", 0, **about)


def column(folder, values, feature):
    """What is read of a file whose rows have these values; None where a row has none."""
    path = lines(folder / "a.jsonl", [{} if value is None else {"x": value} for value in values])
    spec = ConversionSpec("jsonl", "parquet", tw.Schema({"x": feature}).json())
    return next(JsonLinesRows().read(part_of(path), spec, Reading()))


class TestNans:
    """NaNs with other bits than the usual one are kept, those of signalling NaNs too."""

    BITS = [
        0x7FC00000,
        0xFFC00000,
        0x7FC12345,
        0x7F800001,
        0xFFFFFFFF,
        0x7F800000,
        0x80000000,
        0x3F800000,
    ]

    def test_from_records_and_back(self, tmp_path):
        x = np.array(self.BITS, np.uint32).view(np.float32)
        rows = {
            "x": x,
            "pair": np.stack([x, x[::-1]], axis=1),
            "list": tw.Ragged(np.repeat(x, 2), np.arange(0, 17, 2)),
        }
        tw.write_examples(tmp_path / "a.tfrecord", rows)
        tw.convert(tmp_path / "a.tfrecord", tmp_path / "a.jsonl", workers=0)
        tw.convert(tmp_path / "a.jsonl", tmp_path / "b.tfrecord", workers=0)
        before, after = (
            list(tw.RecordReader(tmp_path / name)) for name in ("a.tfrecord", "b.tfrecord")
        )
        assert before == after
        words = [json.loads(line)["x"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
        assert (
            words[0] == "NaN"
            and words[1] == "NaN(ffc00000)"
            and words[5:] == ["Infinity", -0.0, 1.0]
        )

    @pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float8_e5m2"])
    def test_dtypes(self, tmp_path, dtype):
        made = np.zeros(4, getattr(ml_dtypes, dtype, dtype))
        bits = made.view(f"u{made.itemsize}")
        bits[:] = np.array([np.nan]).astype(made.dtype).view(bits.dtype)[0]
        bits[1] |= 1
        bits[2] ^= 1 << (8 * made.itemsize - 1)
        tw.write_examples(tmp_path / "a.tfrecord", {"x": made.reshape(2, 2)}, tensors=["x"])
        tw.convert(tmp_path / "a.tfrecord", tmp_path / "a.jsonl", workers=0)
        tw.convert(tmp_path / "a.jsonl", tmp_path / "b.tfrecord", workers=0)
        assert list(tw.RecordReader(tmp_path / "a.tfrecord")) == list(
            tw.RecordReader(tmp_path / "b.tfrecord")
        )

    def test_widths(self, tmp_path):
        wide = column(
            tmp_path, ["NaN(7fc00001)", "NaN(7ff8000000000001)"], tw.Feature("float", (), "float64")
        )["x"]
        assert wide.view(np.uint64).tolist() == [0x7FF8000020000000, 0x7FF8000000000001]
        for text in (
            "NaN(7ff8000000000001)",
            "NaN(3f800000)",
            "NaN(7f800000)",
            "NaN()",
            "NaN(7FC00001)",
            "NaN(7fc00001) ",
        ):
            with pytest.raises(tw.SchemaError) as caught:
                column(tmp_path, ["NaN", text], tw.Feature("float", (), "float32"))
            assert caught.value.record == 1
        # The bits of a narrower float need a schema with its dtype: float16 and bfloat16 look
        # alike.
        assert np.isnan(
            column(tmp_path, ["NaN", "NaN(7fc1)"], tw.Feature("float", (), "float32"))["x"]
        ).all()
        rows = lines(tmp_path / "s.jsonl", [{"x": "NaN(7ff8000000000001)"}, {"x": 1.5}])
        assert tw.convert(rows, tmp_path / "s.parquet", workers=0).records == 2


class TestNumbers:
    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("float32", 1e300), ("float32", -1e300), ("float64", 10**400), ("float16", 70000.5), ("float8_e4m3fn", 1e10),
            ("float32", 16777217), ("float64", 9007199254740993), ("float64", -(2**63) + 1), ("bfloat16", 257), ("float16", 2**20),
            ("float8_e4m3fn", "Infinity"), ("float4_e2m1fn", "NaN"), ("int4", 0.5), ("int4", 8), ("float32", True), ("float32", "x"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("shape", [(), (None,), (2,)])
    def test_a_number_that_would_be_another(self, tmp_path, dtype, value, shape):
        rows = [1, None, value, 1] if shape == () else [[1, 1], None, [1, value], [1, 1]]
        with pytest.raises(tw.SchemaError) as error:
            column(tmp_path, rows, tw.Feature("float", shape, dtype))
        assert (error.value.record, error.value.tensor) == (2, "x")

    @pytest.mark.parametrize("value", [1.5, 2**63, -1, True, "1", None])
    def test_an_integer_that_is_none(self, tmp_path, value):
        dtype = "uint8" if value == -1 else "int64"
        with pytest.raises(tw.SchemaError) as error:
            column(tmp_path, [[1], [2], [3, value]], tw.Feature("int64", (None,), dtype))
        assert error.value.record == 2

    def test_what_is_kept(self, tmp_path):
        values = [0.1, 16777216, None, 2**100, 16777217.0, "NaN", "-Infinity", -0.0, 1e-60]
        found = column(tmp_path, values, tw.Feature("float", ()))
        wanted = np.array([0 if value is None else value for value in values], np.float64).astype(
            np.float32
        )
        assert found["x"].tobytes() == wanted.tobytes() and found.present["x"].tolist() == [
            value is not None for value in values
        ]
        assert column(tmp_path, [2**60, 0.1, 9007199254740992], tw.Feature("float", (), "float64"))[
            "x"
        ].tolist() == [2**60, 0.1, 2**53]
        assert column(tmp_path, [-(2**63), 2**63 - 1], tw.Feature("int64", ()))["x"].tolist() == [
            -(2**63),
            2**63 - 1,
        ]
        assert column(tmp_path, [2**64 - 1], tw.Feature("int64", (), "uint64"))["x"].tolist() == [
            2**64 - 1
        ]
        assert column(tmp_path, [True, 0], tw.Feature("int64", (), "bool"))["x"].tolist() == [
            True,
            False,
        ]
        assert column(tmp_path, [3.0, -8], tw.Feature("int64", (), "int4"))["x"].astype(
            int
        ).tolist() == [3, -8]
        assert column(tmp_path, [None, 4], tw.Feature("float", (), "float8_e8m0fnu"))["x"][
            1
        ] == ml_dtypes.float8_e8m0fnu(4)

    def test_what_the_message_says(self, tmp_path):
        with pytest.raises(tw.SchemaError, match=r"16777217 .*float32.*schema=.*tensors=.*cast="):
            column(tmp_path, [16777217], tw.Feature("float", ()))
        with pytest.raises(tw.SchemaError, match=r"does not fit float32.*schema="):
            column(tmp_path, [1e300], tw.Feature("float", ()))

    def test_what_it_says_helps(self, tmp_path):
        """Lines become Examples: rounded if they may be, as float64 where that is asked for, and
        cast from what they were.
        """
        path = lines(tmp_path / "a.jsonl", [{"x": 0.1}, {"x": 16777217}])
        with pytest.raises(tw.SchemaError) as error:
            tw.convert(path, tmp_path / "a.tfrecord", workers=0)
        assert error.value.record == 1
        tw.convert(path, tmp_path / "b.tfrecord", tensors=["x"], workers=0)
        assert next(iter(tw.read_examples(tmp_path / "b.tfrecord")))["x"].tolist() == [
            0.1,
            16777217,
        ]
        tw.convert(path, tmp_path / "c.tfrecord", cast={"x": "float32"}, workers=0)
        assert next(iter(tw.read_examples(tmp_path / "c.tfrecord")))["x"].tolist() == [
            np.float32(0.1),
            16777216,
        ]


class TestNesting:
    @pytest.mark.parametrize(
        ("shape", "value"),
        [
            ((2, 2), [[1, 2, 3], [4]]), ((2, 2), [[1], [2], [3], [4]]), ((2, 2), [[1, 2], 3, 4]), ((2, 2), [[[1, 2], [3, 4]]]),
            ((2, 2), [[1, 2], [3, [4]]]), ((2, 2), [1, 2, 3]), ((None,), [[1], [2]]), ((None,), [1, [2]]), ((2,), [[1], [2]]),
            ((2,), [[1, 2]]), ((4,), [[1, 2], [3, 4]]), ((), [1]), ((1, 2, 2), [[1, 2], [3, 4]]), ((2, 0), [[], [], []]),
            ((2, 2), [[1, 2], 3]),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("kind", ["int64", "bytes"])
    def test_wrong(self, tmp_path, shape, value, kind):
        if kind == "bytes":
            value = json.loads("".join(f'"{c}"' if c.isdigit() else c for c in json.dumps(value)))
        with pytest.raises(tw.SchemaError) as error:
            column(tmp_path, [None, value], tw.Feature(kind, shape))
        assert (error.value.record, error.value.tensor) == (1, "x")

    def test_right(self, tmp_path):
        square = tw.Feature("int64", (2, 2))
        assert column(tmp_path, [[[1, 2], [3, 4]], None, [5, 6, 7, 8]], square)["x"].tolist() == [
            [[1, 2], [3, 4]],
            [[0, 0]] * 2,
            [[5, 6], [7, 8]],
        ]
        assert column(tmp_path, [[[[1], [2]]]], tw.Feature("int64", (1, 2, 1)))["x"].tolist() == [
            [[[1], [2]]]
        ]
        assert column(tmp_path, [3, [4]], tw.Feature("int64", (1,)))["x"].tolist() == [[3], [4]]
        ragged = column(tmp_path, [3, [], None, [4, 5]], tw.Feature("int64", (None,)))
        assert [row.tolist() for row in ragged["x"]] == [[3], [], [], [4, 5]] and ragged.present[
            "x"
        ].tolist() == [True, True, False, True]
        assert column(tmp_path, [[[], []], []], tw.Feature("float", (2, 0)))["x"].shape == (2, 2, 0)

    def test_strings_in_a_shape_without_any(self, tmp_path):
        with open(tmp_path / "a.jsonl", "wb") as file:
            JsonLinesRows().writer(file, ConversionSpec("jsonl", "jsonl")).add(
                Batch({"x": tw.Strings.of([]).reshape(3, 2, 0)}, None, 3)
            )
        assert (tmp_path / "a.jsonl").read_text() == '{"x":[[],[]]}\n' * 3


class TestFiles:
    def test_damage_behind_the_last_record(self, tmp_path):
        path = lines(tmp_path / "a.jsonl", ["{\n", {"x": 1}, "[\n", {"x": 2}, "]\n", "}\n"])
        spec = ConversionSpec(
            "jsonl", "parquet", tw.Schema({"x": tw.Feature("int64", ())}).json(), on_corrupt="skip"
        )
        reading = Reading()
        assert (
            JsonLinesRows().count(path, 1, spec, reading).records == 2 and len(reading.damage) == 4
        )
        found = [Reading(), Reading()]
        for first, one in enumerate(found):
            assert [
                batch["x"].tolist()
                for batch in JsonLinesRows().read(
                    part_of(path, first=first, stop=first + 1), spec, one
                )
            ] == [[first + 1]]
        assert len(found[1].damage) == 4 and {one.why for one in found[0].damage} <= {
            one.why for one in reading.damage
        }
        assert {one.why for one in found[1].damage} == {one.why for one in reading.damage}

    def test_a_part_ends_where_it_ends(self, tmp_path):
        path = lines(tmp_path / "a.jsonl", [{"x": 1}, {"x": 2}, "{"])
        spec = ConversionSpec("jsonl", "parquet", tw.Schema({"x": tw.Feature("int64", ())}).json())
        assert [
            batch["x"].tolist()
            for batch in JsonLinesRows().read(part_of(path, first=0, stop=2), spec, Reading())
        ] == [[1, 2]]

    @pytest.mark.parametrize("compression", ["snappy", "zlib", "ZLIB"])
    def test_what_could_not_be_read_back(self, tmp_path, compression):
        path = lines(tmp_path / "a.jsonl", [{"x": 1}])
        with pytest.raises(tw.EncodeError, match="gzip, zstd, lz4"):
            datasets.convert(path, tmp_path / "out", "jsonl", compression=compression, workers=0)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("compression", [None, "gzip", "zstd", "lz4"])
    def test_what_can(self, tmp_path, compression):
        path = lines(tmp_path / "a.jsonl", [{"x": i} for i in range(100)])
        datasets.convert(path, tmp_path / "out", "jsonl", compression=compression, workers=0)
        datasets.convert(tmp_path / "out", tmp_path / "back.jsonl", workers=0)
        assert [
            json.loads(line)["x"] for line in (tmp_path / "back.jsonl").read_text().splitlines()
        ] == list(range(100))

    def test_columns_that_nobody_reads_may_be_anything(self, tmp_path):
        path = lines(
            tmp_path / "a.jsonl",
            [{"x": 1, "object": {"a": 1}, "nested": [[1]], "mixed": 1}, {"x": 2, "mixed": "a"}],
        )
        spec = ConversionSpec("jsonl", "parquet")
        for names, wrong in {
            None: "object",
            ("x", "nested"): "nested",
            ("mixed",): "mixed",
        }.items():
            with pytest.raises(tw.TensorwireError) as error:
                JsonLinesRows().schema([path], dataclasses.replace(spec, reads=names), 0)
            assert error.value.tensor == wrong
        assert dict(JsonLinesRows().schema([path], dataclasses.replace(spec, reads=["x"]), 0)) == {
            "x": tw.Feature("int64", ())
        }


class TestStatistics:
    @pytest.mark.parametrize(
        ("found", "values"),
        [
            (tw.Ragged(np.zeros(0, np.float32), np.zeros(4, np.int64)), 0), (np.zeros((3, 0), np.int32), 0), (np.zeros((3, 0, 2)), 0),
            (tw.Ragged(np.zeros((0, 2)), np.zeros(4, np.int64)), 0), (tw.Strings.of([]).reshape(3, 0), 0),
            (tw.Ragged(tw.Strings.of([]), np.zeros(4, np.int64)), 0), (tw.Ragged(np.ones((2, 2)), np.array([0, 0, 2, 2])), 2),
            (tw.Ragged(tw.Strings.of(["a", "bc"]).reshape(1, 2), np.array([0, 0, 1, 1])), 1),
        ],
    )  # fmt: skip
    def test_lists_with_nothing_in_them(self, found, values):
        about = statistics._of_column(Batch({"x": found}, None, 3), "x")
        assert (
            about["present"] == 3
            and about["values"] == values
            and bool(values) == bool({"range", "sizes"} & about.keys())
        )

    def test_of_a_file(self, tmp_path):
        tw.save(tmp_path / "a.safetensors", {"x": np.zeros((3, 0), np.float32)})
        assert datasets.stats(tmp_path / "a.safetensors", workers=0).features["x"]["lengths"] == [
            0,
            0,
        ]


def test_a_name_that_rows_do_not_have():
    with pytest.raises(tw.SchemaError, match="did you mean 'label'") as error:
        row_selection.values_of(Batch({"label": np.arange(3), "x": np.zeros(3)}, None, 3), "lable")
    assert error.value.tensor == "lable"


NAMES = ["\0position", "\0present/x", "x", "__metadata__", "names", "", "a/0", "\0record"]


class TestRuns:
    def spec(self, **about):
        return ConversionSpec("parquet", "parquet", shuffle=3, total=8, bounds=[0, 4, 8], **about)

    def scattered(self, folder):
        numbers = np.arange(8)
        columns = {name: numbers * 10 + place for place, name in enumerate(NAMES)} | {
            "s": tw.Strings.of([f"{n}" for n in numbers])
        }
        present = {
            name: numbers % 2 == place % 2 if place % 3 else numbers >= 0
            for place, name in enumerate(columns)
        }
        shuffling.scatter(
            storage.join(str(folder), run_name(0)),
            [(Batch(columns, present, 8), numbers)],
            self.spec(),
        )
        return columns, present

    def test_names_of_any_kind(self, tmp_path):
        columns, present = self.scattered(tmp_path)
        order = np.argsort(permutation.Permutation(8, 3)(np.arange(8)))
        for shard in (0, 1):
            (found,) = shuffling.gather(str(tmp_path), 1, shard, self.spec())
            rows = order[4 * shard : 4 * shard + 4]
            assert list(found) == list(columns) and found.size == 4
            for name in columns:
                assert [found[name][i] for i in range(4)] == [columns[name][i] for i in rows]
                assert (found.present[name] == present[name][rows]).all()

    def test_shuffled_by_name(self, tmp_path):
        path = lines(
            tmp_path / "a.jsonl", [{name: i for name in NAMES if i % 3 or name} for i in range(30)]
        )
        assert datasets.shuffle(path, tmp_path / "out", 1, shards=2, workers=0).records == 30
        found = [
            json.loads(line)
            for one in sorted(tmp_path.glob("out/*.jsonl"))
            for line in one.read_text().splitlines()
        ]
        wanted = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
        assert found != wanted and sorted(found, key=lambda row: row["x"]) == wanted

    def test_too_much_is_not_read(self, tmp_path, monkeypatch):
        """The table of a run says how much a shard has in it."""
        shuffling.scatter(
            str(tmp_path / run_name(0)),
            [(Batch({"x": np.arange(8)}, None, 8), np.arange(8))],
            self.spec(),
        )
        read, sizes = LocalSource.read_many, []
        monkeypatch.setattr(
            LocalSource,
            "read_many",
            lambda self, ranges: sizes.extend(n for _, n in ranges) or read(self, ranges),
        )
        with pytest.raises(tw.LimitError, match="memory="):
            next(shuffling.gather(str(tmp_path), 1, 0, self.spec(memory=100)))
        assert sizes == [16]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 1000])
@pytest.mark.parametrize("small", [0, 4, 1 << 20])
def test_permutations_with_small_tables(count, small):
    made = permutation.Permutation(count, 7, small=small)
    assert sorted(made(np.arange(count)).tolist()) == list(range(count))
    assert (made._table is None) == (count > small)
    if count <= small:
        assert (made(np.arange(count)) == permutation.Permutation(count, 7)(np.arange(count))).all()


def test_a_null_inside_lists_is_no_number(tmp_path):
    schema = {"x": tw.Feature("bytes", (None, None), "int64", encoding="tensor")}
    for text in ('{"x":[[1,null],[3]]}', '{"x":[null,[7]]}'):
        (tmp_path / "a.jsonl").write_text(text + "\n")
        with pytest.raises(tw.SchemaError):
            tw.convert(tmp_path / "a.jsonl", tmp_path / "o.npz", schema=schema, overwrite=True)
    (tmp_path / "a.jsonl").write_text('{"x":[[1,2],[3]]}\n{}\n')
    tw.convert(tmp_path / "a.jsonl", tmp_path / "o.npz", schema=schema, overwrite=True)
    assert tw.load(tmp_path / "o.npz")["x"].tolist() == [[[1, 2], [3]], []]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_nans_that_we_write_can_be_read(tmp_path, dtype):
    negative = -np.full(2, np.nan).astype(getattr(ml_dtypes, dtype, dtype))
    tw.save(tmp_path / "a.npz", {"x": negative})
    tw.convert(tmp_path / "a.npz", tmp_path / "a.jsonl")
    tw.convert(tmp_path / "a.jsonl", tmp_path / "b.npz")
    assert np.isnan(tw.load(tmp_path / "b.npz")["x"].astype(np.float32)).all()
