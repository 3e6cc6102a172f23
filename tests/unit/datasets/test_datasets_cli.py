"""`tensorwire convert` and `tensorwire dataset` on datasets, as one types them."""

import json
import os
import shlex

import numpy as np
import pytest

import tensorwire as tw
from support.cli import run
from support.dataset_files import records

pytestmark = pytest.mark.arrow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("datasets")
    rows = {
        "user": np.arange(600) % 40,
        "label": np.arange(600) % 3,
        "x": np.linspace(0, 1, 600, dtype=np.float32),
    }
    tw.write_examples(folder / "train.tfrecord", rows, shards=4, durable=False)
    return folder


@pytest.fixture
def say(folder):
    """What a command prints; or, of one that fails, what it complains of."""

    def said(line, status=0):
        done = run(*shlex.split(line), cwd=folder)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if status == 0 else done.stderr

    return said


def test_convert_and_again(say, folder):
    line = "convert 'train-*.tfrecord' parquet --to parquet --shards 3 --workers 2"
    plan = say(line + " --dry-run")
    assert (
        "4 sources of tfrecord" in plan
        and "-> 3 shards of parquet in parquet" in plan
        and not (folder / "parquet").exists()
    )
    assert "600 records in 3 shards" in say(
        line
    ) and "0 shards written, 3 were there already" in say(line)
    os.unlink(folder / "parquet/part-00001-of-00003.parquet")
    report = json.loads(say(line + " --json"))
    assert (report["written"], report["skipped"], report["records"]) == (1, 2, 600)
    assert "--overwrite" in say("convert 'train-*.tfrecord' parquet --to jsonl", 1)
    say("convert parquet back --to tfrecord --workers 0")
    assert records(f"{folder}/back/*.tfrecord") == records(f"{folder}/train-*.tfrecord")


def test_choice_of_rows_and_columns(say, folder):
    say(
        "convert 'train-*.tfrecord' few --to jsonl --shards 1 --where 'label == 2 and user < 2'"
        " --columns user,label --shuffle 3"
    )
    lines = [
        json.loads(line)
        for line in (folder / "few/part-00000-of-00001.jsonl").read_text().splitlines()
    ]
    assert len(lines) == 10 and all(
        set(line) == {"user", "label"} and line["label"] == 2 and line["user"] < 2 for line in lines
    )
    assert [line["user"] for line in lines] != sorted(line["user"] for line in lines)


def test_what_an_example_does_not_hold(say, folder):
    (folder / "wide.jsonl").write_text('{"x": 0.1}\n{"x": 0.2}\n')
    assert "--tensors" in say("convert --help")
    say("convert wide.jsonl rounded --to parquet --workers 0")
    assert "--tensors name keeps it exactly" in say(
        "convert rounded exact --to tfrecord --workers 0", 1
    )
    say("convert rounded exact --to tfrecord --tensors x --workers 0")
    assert next(iter(tw.read_examples(f"{folder}/exact/*.tfrecord")))["x"].tolist() == [0.1, 0.2]
    say("convert rounded cast --to tfrecord --cast x=float32 --workers 0")
    assert next(iter(tw.read_examples(f"{folder}/cast/*.tfrecord")))["x"].tolist() == [
        np.float32(0.1),
        np.float32(0.2),
    ]


def test_the_works_of_dataset(say, folder):
    assert "label: int64, in 600 (100 %), values 600, lengths 1, range 0 to 2" in say(
        "dataset stats 'train-*.tfrecord' --workers 0"
    )
    said = say("dataset split 'train-*.tfrecord' parts --shares a=0.5,b=0.5 --by user --workers 0")
    users = [
        {
            int(user)
            for batch in tw.read_examples(f"{folder}/parts/{one}-*.tfrecord")
            for user in batch["user"]
        }
        for one in "ab"
    ]
    assert not users[0] & users[1] and len(users[0] | users[1]) == 40 and "  a: " in said
    say(
        "dataset sample 'train-*.tfrecord' some --records 30 --by label --compression gzip"
        " --workers 0"
    )
    labels = [
        int(label)
        for batch in tw.read_examples(f"{folder}/some/*.tfrecord.gz")
        for label in batch["label"]
    ]
    assert np.bincount(labels).tolist() == [10, 10, 10]
    assert "600 records in 2 shards" in say(
        "dataset merge parts/a-* parts/b-* merged --shards 2 --workers 0"
    )
    assert "leftovers" not in say("dataset shuffle merged mixed --seed 5 --workers 0")
    for name in ("merged", "mixed"):
        assert records(f"{folder}/{name}/*.tfrecord") == records(f"{folder}/train-*.tfrecord")


def test_shares_below_one(say, folder):
    say("dataset split 'train-*.tfrecord' cut --shares a=0.8,b=0.1 --workers 0", 2)
    assert not (folder / "cut").exists()
    say("dataset split 'train-*.tfrecord' cut --shares a=0.8,b=0.1 --drop-rest --workers 0")
    assert 0 < len(records(f"{folder}/cut/*.tfrecord")) < 600


def test_a_choice_of_columns_for_every_work(say, folder):
    schema = {
        "tensorwire_schema": 1,
        "features": {
            "user": {"kind": "int64", "shape": []},
            "label": {"kind": "float", "shape": []},
        },
    }
    (folder / "wrong.json").write_text(json.dumps(schema))
    for number, work in enumerate(
        ("split --shares a=1", "sample --fraction 0.5", "merge", "shuffle")
    ):
        name, *words = work.split()
        say(f"dataset {name} 'train-*.tfrecord' chosen{number} --columns user {' '.join(words)}")
        assert {
            column
            for batch in tw.read_examples(f"{folder}/chosen{number}/*.tfrecord")
            for column in batch
        } == {"user"}
        assert "expected float" in say(
            f"dataset {name} 'train-*.tfrecord' no{number} --schema wrong.json {' '.join(words)}", 1
        )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            "dataset stats 'train-*.tfrecord' --by label",
            "--by is for split and sample, not for stats",
        ),
        ("dataset stats 'train-*.tfrecord' --dry-run", "--dry-run is for"),
        ("dataset merge 'train-*.tfrecord' out --fraction 0.5", "--fraction is for sample"),
        ("dataset sample 'train-*.tfrecord' out", "--fraction or --records"),
        ("dataset merge 'train-*.tfrecord' out --drop-rest", "--drop-rest is for split"),
        ("dataset split 'train-*.tfrecord' out", "needs --shares"),
        ("dataset split 'train-*.tfrecord' out --shares a=x", "--shares"),
        (
            "dataset split 'train-*.tfrecord' out --shares train=0.9,train=0.1",
            "duplicate name 'train'",
        ),
        ("dataset split 'train-*.tfrecord' out --shares a=nan", "a finite number, found nan"),
        ("dataset sample 'train-*.tfrecord' out --fraction nan", "a finite number, found nan"),
        ("dataset shuffle out", "two paths"),
        ("dataset stir 'train-*.tfrecord' out", "stir"),
        (
            "convert 'train-*.tfrecord' out --to parquet --address 127.0.0.1:1",
            "--address needs --engine ray",
        ),
        (
            "convert 'train-*.tfrecord' out --to parquet --rename s/a/b/",
            "--rename is for tensor files",
        ),
    ],
)
def test_usage(say, folder, line, complaint):
    assert complaint in say(line, 2) and not (folder / "out").exists()


def test_formats_that_only_datasets_have(folder, say):
    """Of what is read and of what is written; a misspelt one is met by those that there are."""
    say("convert 'train-*.tfrecord' lines.jsonl")
    (folder / "lines.txt").write_bytes((folder / "lines.jsonl").read_bytes())
    say("convert lines.txt from-lines.parquet --format jsonl")
    assert "600 records" in say("dataset stats lines.txt --format jsonl")
    say("convert from-lines.parquet mixed.parquet --shuffle 0")
    assert "jsonl" in say("dataset merge lines.txt out --format jsonl --to prquet", 2)
    assert "jsonl" in say("convert lines.txt out --format jsnl --to parquet", 2)


def test_one_file_of_what_its_name_says(folder, say):
    say("dataset sample 'train-*.tfrecord' some.parquet --records 9")
    say("dataset shuffle 'train-*.tfrecord' mixed.tfrecord.gz")
    assert (folder / "some.parquet").read_bytes()[:4] == b"PAR1" and (
        folder / "mixed.tfrecord.gz"
    ).read_bytes()[:2] == b"\x1f\x8b"
    assert records(folder / "mixed.tfrecord.gz") == records(f"{folder}/train-*.tfrecord")
    assert "the name of the target says tfrecord" in say(
        "convert 'train-*.tfrecord' some.tfrecord --to parquet", 2
    )


def test_errors_name_options_and_not_arguments(folder, say):
    said = say("convert 'train-*.tfrecord' some.parquet --to tfrecord", 2)
    assert "--to says tfrecord" in said and "pass --shards to write a folder" in said
    say("convert 'train-*.tfrecord' there.jsonl")
    assert said.startswith("tensorwire convert: ") and "; --overwrite replaces it" in say(
        "convert 'train-*.tfrecord' there.jsonl", 1
    )


def test_columns_are_quantized_by_name(folder, say):
    rows = np.random.default_rng(0).random((20, 8), np.float32)
    tw.write_examples(folder / "floats.tfrecord", {"x": rows, "y": rows, "z": rows}, durable=False)
    say("convert floats.tfrecord bits --to tfrecord --quantize x=int8 --quantize y=float16")
    found = tw.read_examples(f"{folder}/bits/*.tfrecord").schema
    assert [found[name].encoding for name in "xyz"] == ["quantized", "quantized", ""]
    assert "--quantize COLUMN=int8" in say(
        "convert floats.tfrecord no --to tfrecord --quantize int8", 2
    )
    np.savez(folder / "w.npz", x=rows, y=rows)
    say("convert w.npz w.safetensors --quantize x=int8")
    kept = tw.load(folder / "w.safetensors", dequantize=False)
    assert isinstance(kept["x"], tw.Quantized) and isinstance(kept["y"], np.ndarray)
