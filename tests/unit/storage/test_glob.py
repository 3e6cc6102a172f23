"""Patterns of local files: what `glob` finds, but for what it passes over or finds again and again."""

import contextlib
import glob
import os
import random
import shutil
import socket
import tempfile

import numpy as np
import pytest

import tensorwire as tw
from tensorwire import datasets, storage

NAMES = ["a", "b", "ab", ".h", "_u", "[x]", "a.t", "b.t"]


def found(pattern):
    try:
        return [entry.path for entry in storage.find(pattern)]
    except FileNotFoundError:
        return []


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Folders in folders, three deep, with files and folders of the same names."""
    root, rng = tmp_path_factory.mktemp("tree"), random.Random(0)

    def fill(folder, depth):
        for name in NAMES:
            if depth and rng.random() < 0.6:
                (folder / name).mkdir()
                fill(folder / name, depth - 1)
            elif rng.random() < 0.8:
                (folder / name).write_bytes(name.encode())

    fill(root, 3)
    (root / "dead.t").symlink_to(root / "nowhere")
    (root / "round.t").symlink_to("round.t")
    (root / "astray.t").symlink_to("real/nothing")
    (root / "linked.t").symlink_to(root / "real")
    (root / "real").write_bytes(b"1")
    return root


def test_the_same_as_glob(tree, monkeypatch):
    monkeypatch.chdir(tree)
    rng, seen = random.Random(1), 0
    steps = [
        "*",
        "a*",
        "?",
        "[ab]",
        "[!a]*",
        ".*",
        "**",
        "*.t",
        "a",
        "b",
        "[[]x]",
        "_*",
        "x*",
        "a**",
    ]
    for _ in range(600):
        pattern = "/".join(rng.choices(steps, k=rng.randint(1, 4)))
        pattern = rng.choice(["", "", "./", f"{tree}/", "../" + tree.name + "/", "a//"]) + pattern
        if os.path.isdir(pattern) or not glob.has_magic(pattern):
            continue
        wanted = sorted(
            {path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}
        )
        assert found(pattern) == wanted, pattern
        seen += bool(wanted)
    assert seen > 100


def test_folders_by_a_pattern(tree):
    """Their files, as of one folder."""
    for end in ("/*/", "/a*/", "/**/"):
        folders = glob.glob(f"{tree}{end}", recursive=True)
        wanted = {
            os.path.join(path, name)
            for path in folders
            for name in os.listdir(path)
            if name[0] not in "._"
        }
        assert found(f"{tree}{end}") == sorted(
            os.path.normpath(path) for path in wanted if os.path.isfile(path)
        )


def test_a_link_that_leads_up_is_not_followed(tmp_path):
    """`glob` finds the file below forty times, and each time its records."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "up").symlink_to("..")
    (tmp_path / "beside").symlink_to("in")
    tw.write_examples(tmp_path / "in" / "deep" / "x.tfrecord", {"x": [1, 2]}, schema_file=False)
    assert len(glob.glob(f"{tmp_path}/in/**/*.tfrecord", recursive=True)) > 30
    assert found(f"{tmp_path}/in/**/*.tfrecord") == [f"{tmp_path}/in/deep/x.tfrecord"]
    assert sum(1 for _ in tw.RecordReader(f"{tmp_path}/in/**/*.tfrecord")) == 2
    assert len(found(f"{tmp_path}/**/*.tfrecord")) == 2  # by both names, as a list of both would


@contextlib.contextmanager
def nobody():
    """Somebody who may not read everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="there are no rights to take away")
def test_a_folder_that_may_not_be_read_is_an_error():
    """Not a dataset without what is in it."""
    folder = tempfile.mkdtemp()  # pytest's own are for their owner alone
    try:
        for name in ("one", "two"):
            os.mkdir(f"{folder}/{name}")
            tw.write_examples(f"{folder}/{name}/x.tfrecord", {"x": [1]}, schema_file=False)
            os.chmod(f"{folder}/{name}/x.tfrecord", 0o644)
        os.chmod(folder, 0o755)
        os.chmod(f"{folder}/one", 0o755)
        os.chmod(f"{folder}/two", 0)
        with nobody():
            assert len(glob.glob(f"{folder}/*/*.tfrecord")) == 1
            for pattern in (
                f"{folder}/*/*.tfrecord",
                f"{folder}/**/*.tfrecord",
                f"{folder}/two/*",
                f"{folder}/two",
            ):
                with pytest.raises(PermissionError) as caught:
                    storage.find(pattern)
                assert caught.value.filename == f"{folder}/two"
            with pytest.raises(PermissionError):
                storage.listing(folder)
            assert found(f"{folder}/one/*") == [f"{folder}/one/x.tfrecord"]
    finally:
        os.chmod(f"{folder}/two", 0o755)
        shutil.rmtree(folder)


RECORDS = [
    "a.tfrecord", "a.tfrecords", "a.tfrec", "a.tfr", "a.tfrecord.gz", "a-00000-of-00001.tfrecord",
    "mnist-train.tfrecord-00000-of-00001", "mnist-train.tfrecord-00000-of-00001.gz", "a [1].tfrecord",
]  # fmt: skip
VERBS = {
    "convert": lambda name: tw.convert(name, "o.jsonl", overwrite=True, workers=0).records,
    "stats": lambda name: datasets.stats(name, workers=0).records,
    "read_examples": lambda name: sum(len(batch["x"]) for batch in tw.read_examples(name)),
    "reader": lambda name: len(tw.RecordReader(name)),
    "schema": lambda name: 3 * len(tw.infer_schema(name)),
}
OF_ONE_FILE = {
    "inspect": lambda name: tw.inspect(name).records,
    "verify": lambda name: tw.verify(name).records,
}


@pytest.mark.parametrize("verb", [*VERBS, *OF_ONE_FILE])
@pytest.mark.parametrize("name", RECORDS)
def test_every_verb_knows_the_names_of_record_files(tmp_path, monkeypatch, name, verb):
    monkeypatch.chdir(tmp_path)
    tw.write_examples(name, {"x": np.arange(3)}, schema_file=False)
    assert (VERBS | OF_ONE_FILE)[verb](name) == 3


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_knows_the_same_patterns(tmp_path, monkeypatch, verb):
    """`**`, links that lead up, sidecars, manifests and hidden files."""
    monkeypatch.chdir(tmp_path)
    for folder in ("d", "d/e/f", "d/.hidden"):
        os.makedirs(folder, exist_ok=True)
    tw.write_examples("d/a.tfrecord", {"x": np.arange(1)})
    tw.write_examples("d/e/f/b.tfrecord", {"x": np.arange(2)})
    tw.write_examples("d/.hidden/c.tfrecord", {"x": np.arange(7)}, schema_file=False)
    tw.write_examples("d/e/_c.tfrecord", {"x": np.arange(7)}, schema_file=False)
    os.symlink("..", "d/e/up")
    len(tw.RecordReader("d/a.tfrecord", index=True))
    for pattern in (
        "d/**/*.tfrecord",
        "**/*.tfrecord",
        ["d/*.tfrecord", "d/e/f/**"],
        "d/**/[ab].tfrecord*",
    ):
        assert VERBS[verb](pattern) == 3, pattern
    with pytest.raises(FileNotFoundError):
        VERBS[verb]("d/**/*.nothing")


def test_manifests_are_not_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tw.write_examples("a.tfrecord", {"x": np.arange(3)})
    tw.convert("a.tfrecord", "deep/out", to="jsonl", shards=1, workers=0)
    assert tw.convert("deep/**/*.jsonl", "o.parquet", workers=0).records == 3
    assert tw.convert("deep/**", "p.parquet", workers=0).records == 3


@pytest.mark.parametrize("verb", VERBS)
def test_a_pattern_passes_over_what_is_no_file(tmp_path, monkeypatch, verb):
    """Opening a pipe would wait for ever."""
    monkeypatch.chdir(tmp_path)
    tw.write_examples("a.tfrecord", {"x": np.arange(3)}, schema_file=False)
    os.mkfifo("b.tfrecord")
    os.symlink("b.tfrecord", "c.tfrecord")
    os.symlink("/dev/zero", "d.tfrecord")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("e.tfrecord")
        for pattern in ("*.tfrecord", "**/*.tfrecord"):
            assert VERBS[verb](pattern) == 3


@pytest.mark.arrow
def test_both_suffixes_of_parquet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = {"x": np.arange(3)}
    for name in ("a.parquet", "a.pq"):
        tw.save(name, value)
        assert (
            tw.equal(dict(tw.load(name)), value)
            and tw.inspect(name).format == "parquet"
            and tw.verify(name)
        )
        with tw.open(name) as file:
            assert file.format == "parquet"
        tw.convert(name, f"{name}.npz")
        tw.convert(f"{name}.npz", f"again-{name}", overwrite=True)
        assert tw.equal(dict(tw.load(f"again-{name}")), value)
        tw.convert(name, f"{name}.tfrecord", workers=0)
        assert tw.convert(f"{name}.tfrecord", f"back-{name}", workers=0).records == 3
        assert datasets.stats(name, workers=0).records == 3
