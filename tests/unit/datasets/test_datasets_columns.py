"""Files of columns that differ: what one has, another lacks, calls something else, or cannot be
read.
"""

import json

import numpy as np
import pytest

import tensorwire as tw
from support.tiers import require
from tensorwire import datasets

pa = require("pyarrow")
pq = require("pyarrow.parquet")

pytestmark = pytest.mark.arrow
LISTS = pa.list_(pa.list_(pa.int64()))
ALL = ("parquet", "arrow", "npz", "safetensors", "jsonl", "tfrecord")


@pytest.fixture
def source(tmp_path):
    """Writes Parquet files, and gives the folder."""

    def write(*tables):
        (tmp_path / "in").mkdir(exist_ok=True)
        for number, columns in enumerate(tables):
            pq.write_table(pa.table(columns), tmp_path / f"in/f{number:03d}.parquet")
        return tmp_path / "in"

    return write


@pytest.fixture
def convert(tmp_path):
    """Converts into a new folder each time, which it gives."""
    made = iter(range(1000))

    def converted(source, to, **options):
        folder = tmp_path / f"out{next(made)}"
        datasets.convert(source, folder, to, workers=0, **options)
        return folder

    return converted


def rows(folder):
    """Of Parquet or Examples, each a dict without what is missing."""
    if list(folder.glob("*.parquet")):
        found = [
            row
            for path in sorted(folder.glob("*.parquet"))
            for row in pq.read_table(path).to_pylist()
        ]
        return [{name: value for name, value in row.items() if value is not None} for row in found]
    return [
        row
        for batch in tw.read_examples(sorted(map(str, folder.glob("*.tfrecord"))))
        for row in batch.rows()
    ]


@pytest.mark.parametrize(
    "options", [{}, {"tensors": ["x"]}, {"shuffle": 0}, {"tensors": ["x"], "shuffle": 0}], ids=str
)
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([[[1, 2], [3]]], LISTS),
        pa.array([[[1, 2]]], pa.list_(pa.list_(pa.int64(), 2))),
        pa.array([["a", "b"]]),
    ],
    ids=str,
)
def test_no_value_is_made_up(source, convert, column, shards, options):
    """A record of a file without the column has no such feature, whatever the feature is in an
    Example.
    """
    folder = convert(
        source({"id": [1], "x": column}, {"id": [2]}), "tfrecord", shards=shards, **options
    )
    found = {int(row["id"]): row for row in rows(folder)}
    assert set(found) == {1, 2} and "x" in found[1] and set(found[2]) == {"id"}


@pytest.mark.parametrize("to", ["parquet", "arrow", "npz", "safetensors", "jsonl"])
@pytest.mark.parametrize(
    "options", [{}, {"shards": 1}, {"shards": 1, "shuffle": 0}, {"shuffle": 3}], ids=str
)
@pytest.mark.parametrize(
    "columns",
    [
        (pa.array(["a"]), pa.array([b"\xff"])), (pa.array([["a"]]), pa.array([[b"b"]])), (pa.array([5]), pa.array(["s"])),
        (pa.array([1]), pa.array([0.5])), (pa.array([True]), pa.array([5])), (pa.array([[1]]), pa.array([1])),
    ],
    ids=["text-bytes", "lists", "int-text", "int-float", "bool-int", "depth"],
)  # fmt: skip
def test_one_name_for_two_kinds_is_refused(source, convert, columns, options, to):
    """Wherever they lie, in one shard or in two."""
    there = source({"id": [1]}, {"id": [2], "x": columns[0]}, {"id": [3], "x": columns[1]})
    with pytest.raises(tw.SchemaError, match="different types in different files") as caught:
        convert(there, to, **options)
    assert caught.value.tensor == "x" and caught.value.path.endswith("f002.parquet")
    assert (
        datasets.stats(convert(there, to, columns=["id"], **options), format=to, workers=0).records
        == 3
    )


def test_files_that_the_plan_has_not_seen(source, convert):
    """Of twenty it looks into sixteen: another may lack a column that they have, or have another
    kind of it.
    """
    there = source(*({"a": [i]} if i == 4 else {"a": [i], "b": [1.5]} for i in range(20)))
    for options in (
        {},
        {"columns": ["a", "b"]},
        {"shuffle": 1},
        {"columns": ["a", "b"], "shuffle": 1},
    ):
        folder = convert(there, "parquet", **options)
        assert {tuple(pq.read_schema(path).names) for path in folder.glob("*.parquet")} == {
            ("a", "b")
        }
        assert sorted(map(str, rows(folder))) == sorted(
            str({"a": i} | ({"b": 1.5} if i != 4 else {})) for i in range(20)
        )
    assert len(rows(convert(there, "parquet", where="b > 1"))) == 19
    convert(there, "npz", quantize={"b": "int8"})
    pq.write_table(pa.table({"a": [4], "b": ["text"]}), there / "f004.parquet")
    for to in ("parquet", "npz", "jsonl", "tfrecord"):
        with pytest.raises((tw.SchemaError, tw.EncodeError)):
            convert(there, to)


@pytest.mark.parametrize("to", ["parquet", "arrow", "npz", "safetensors"])
@pytest.mark.parametrize("options", [{}, {"shards": 1}, {"shards": 1, "shuffle": 0}], ids=str)
def test_lists_of_one_length_of_lists(source, convert, to, options):
    kind = pa.list_(pa.list_(pa.int64()), 2)
    there = source(
        {"id": [1, 2, 3], "x": pa.array([[[1, 2], [3]], None, [[4], []]], kind)}, {"id": [4]}
    )
    back = convert(convert(there, to, **options), "parquet")
    found = {row["id"]: row.get("x") for row in rows(back)}
    assert found == {1: [[1, 2], [3]], 2: None, 3: [[4], []], 4: None}


def test_lists_of_pairs(source, convert):
    """As boxes are."""
    values = [[[1, 2], [3, 4]], [], [[5, 6]]]
    for to in ("parquet", "arrow"):
        folder = convert(source({"x": pa.array(values, pa.list_(pa.list_(pa.int64(), 2)))}), to)
        assert [
            row["x"] for row in rows(folder if to == "parquet" else convert(folder, "parquet"))
        ] == values


def nested(kind):
    """Lists of lists of a type; some rows are missing, or empty."""
    one, two = (
        pa.scalar(value, kind).as_py()
        for value in ([1, 2] if kind in (pa.int64(), pa.float32()) else ["a", "bc"])
    )
    return {
        "lists": pa.array([[[one, two], [one]], None, [], [[], [two]]], pa.list_(pa.list_(kind))),
        "pairs": pa.array(
            [[[one, two]], None, [], [[two, one], [one, one]]], pa.list_(pa.list_(kind, 2))
        ),
        "pair of lists": pa.array(
            [[[one], [two, one]], None, [[], []], [[two], []]], pa.list_(pa.list_(kind), 2)
        ),
        "depth": pa.array(
            [[[[one]]], None, [], [[[], [two, one]]]], pa.list_(pa.list_(pa.list_(kind)))
        ),
    }


@pytest.mark.parametrize("to", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "options", [{}, {"shards": 1}, {"shards": 3}, {"shards": 1, "shuffle": 0}], ids=str
)
@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.string(), pa.binary()], ids=str)
def test_lists_of_lists_by_way_of_examples(source, convert, kind, options, to):
    """Values, nesting and lengths come back, and so does what is missing."""
    columns = nested(kind)
    there = source({"id": [1, 2, 3, 4], **columns}, {"id": [5]})
    records = convert(there, "tfrecord", **options)
    folder = convert(records, to)
    found = {
        row["id"]: row for row in rows(folder if to == "parquet" else convert(folder, "parquet"))
    }
    for number, row in enumerate(pa.table(columns).to_pylist(), 1):
        wanted = {name: value for name, value in row.items() if value is not None}
        assert found[number] == {"id": number, **wanted}
    assert found[5] == {"id": 5}
    again = convert(folder, "tfrecord")
    assert sorted(tw.RecordReader(f"{again}/*.tfrecord")) == sorted(
        tw.RecordReader(f"{records}/*.tfrecord")
    )


@pytest.mark.parametrize("dtype", ["complex64", "float64", "int64"])
def test_lists_of_numbers_that_no_list_of_an_example_holds(tmp_path, convert, dtype):
    x = tw.Ragged(np.arange(3).astype(dtype), [0, 2, 2, 3])
    tw.save(tmp_path / "a.parquet", {"x": x})
    folder = convert(
        convert(tmp_path / "a.parquet", "tfrecord", tensors=["x"]), "parquet", shards=1
    )
    (path,) = folder.glob("*.parquet")
    assert tw.equal(tw.load(path)["x"], x)


@pytest.mark.parametrize("to", ["parquet", "jsonl"])
def test_of_which_examples_a_table_was_made_is_kept(tmp_path, convert, to):
    """However often it is converted on the way."""
    columns = {
        "m": np.arange(12, dtype=np.float32).reshape(2, 2, 3),
        "boxes": tw.Ragged(np.arange(8.0).reshape(2, 4), [0, 2, 2]),
    }
    tw.write_examples(
        tmp_path / "a.tfrecord",
        {**columns, "q": np.ones((2, 3), "f4")},
        tensors=["m", "boxes"],
        quantize={"q": "int8"},
    )
    folder = convert(tmp_path / "a.tfrecord", "parquet")
    for more in ({"shards": 1}, {"where": "has(m)"}, {"shuffle": 0}):
        again = convert(convert(convert(folder, to, **more), "arrow"), "tfrecord")
        assert sorted(tw.RecordReader(f"{again}/*.tfrecord")) == sorted(
            tw.RecordReader(tmp_path / "a.tfrecord")
        )
    few = convert(convert(folder, to, columns=["m"]), "tfrecord")
    assert rows(few)[1]["m"].tolist() == columns["m"][1].tolist()


@pytest.mark.parametrize("format", ["parquet", "arrow", "npz", "safetensors"])
@pytest.mark.parametrize("options", [{}, {"shards": 1}, {"shards": 2}, {"shuffle": 1}], ids=str)
@pytest.mark.parametrize("bad", [0, 1])
def test_a_file_that_cannot_be_opened_is_passed_over(
    source, convert, tmp_path, format, options, bad
):
    there = convert(source({"a": [1, 2]}, {"a": [3, 4]}, {"a": [5]}), format)
    name = sorted(there.glob(f"part*.{format}"))[bad]
    name.write_bytes(name.read_bytes()[:50])
    for to in ALL:
        with pytest.raises(tw.TensorwireError):
            convert(there, to, **options)
        report = datasets.convert(
            there, tmp_path / f"skipped-{to}", to, workers=0, on_corrupt="skip", **options
        )
        assert report.records == 3 and report.damaged == [str(name)] and len(report.damage) == 1


def test_a_column_of_nulls_has_the_type_of_the_others(source, convert):
    there = source({"v": [1, 2], "z": pa.nulls(2)}, {"v": [3], "z": ["q"]})
    for options in ({}, {"shards": 1}, {"shuffle": 0}):
        assert sorted(map(str, rows(convert(there, "parquet", **options)))) == [
            "{'v': 1}",
            "{'v': 2}",
            "{'v': 3, 'z': 'q'}",
        ]
        assert sorted("z" in row for row in rows(convert(there, "tfrecord", **options))) == [
            False,
            False,
            True,
        ]
    alone = source({"v": [1, 2], "z": pa.nulls(2)}, {"v": [3], "z": pa.nulls(1)})
    for to in ALL:
        with pytest.raises(tw.TensorwireError, match="columns=") as caught:
            convert(alone, to)
        assert caught.value.tensor == "z"


def test_a_column_that_only_where_looks_at_may_be_of_any_type(source, convert):
    assert rows(
        convert(source({"id": [1, 2], "x": [0.1, 5.0]}), "tfrecord", columns=["id"], where="x > 2")
    ) == [{"id": 2}]


def test_the_order_of_columns_is_one(source, convert):
    folder = convert(source({"a": [1], "b": [1]}, {"b": [2], "a": [2]}, {"b": [3]}), "parquet")
    assert {tuple(pq.read_schema(path).names) for path in folder.glob("*.parquet")} == {("a", "b")}


def test_a_file_by_two_ways_is_read_once(source, tmp_path):
    there = source({"v": [1, 2]})
    for name in ("a", "b"):
        (there / name).mkdir()
    assert (
        datasets.convert(f"{there}/*/../f000.parquet", tmp_path / "o", "parquet", workers=0).records
        == 2
    )


def test_one_more_source_that_has_less(source, tmp_path):
    there = source(*({"a": [i], "b": [i]} for i in range(3)))
    datasets.convert(there, tmp_path / "o", "jsonl", workers=0)
    pq.write_table(pa.table({"a": [3]}), there / "f003.parquet")
    assert datasets.convert(there, tmp_path / "o", "jsonl", workers=0).records == 4
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "o").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert lines == [{"a": 0, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3}]


@pytest.mark.parametrize("to", ["parquet", "tfrecord", "jsonl", "arrow"])
@pytest.mark.parametrize("schema_file", [True, False])
@pytest.mark.parametrize("shards", [None, 1, 3])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_integers_and_floats_of_record_files_by_a_cast(tmp_path, to, schema_file, shards, dtype):
    """A feature that is an integer in one file and a float in another is refused, unless cast=
    says what it is.
    """
    tw.write_examples(
        tmp_path / "a.tfrecord", {"v": np.arange(3), "n": np.arange(3)}, schema_file=schema_file
    )
    tw.write_examples(
        tmp_path / "b.tfrecord",
        {"v": np.float32([0.5, 1.0, 7.0]), "n": np.arange(3, 6)},
        schema_file=schema_file,
    )
    source = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    with pytest.raises(tw.SchemaError):
        tw.convert(source, tmp_path / "no", to="parquet", workers=0)
    tw.convert(source, tmp_path / "out", to=to, shards=shards, cast={"v": dtype}, workers=0)
    tw.convert(tmp_path / "out", tmp_path / "o.npz", shards=1, workers=0)
    found = tw.load(
        tmp_path / "o.npz"
        if (tmp_path / "o.npz").is_file()
        else next((tmp_path / "o.npz").glob("*.npz"))
    )
    order = np.argsort(np.asarray(found["n"]))
    assert np.asarray(found["v"])[order].tolist() == [
        0,
        1,
        2,
        0.5 if dtype == "float32" else 0,
        1,
        7,
    ]


def test_a_cast_keeps_default_and_required(tmp_path):
    tw.write_examples(tmp_path / "a.tfrecord", [{"v": 1}, {"w": 1}], schema_file=False)
    tw.write_examples(tmp_path / "b.tfrecord", [{"v": 0.5}, {"w": 1}], schema_file=False)
    files, how = (
        [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"],
        {"cast": {"v": "float32"}, "columns": ["v"], "overwrite": True},
    )
    tw.convert(files, tmp_path / "o.npz", schema={"v": tw.Feature("float", (), default=9.0)}, **how)
    assert tw.load(tmp_path / "o.npz")["v"].tolist() == [1, 9, 0.5, 9]
    for schema in (tw.Feature("float", (), default=9.5), tw.Feature("float", (), required=True)):
        with pytest.raises((tw.SchemaError, tw.DecodeError)):
            tw.convert(files, tmp_path / "o.npz", schema={"v": schema}, **how)
