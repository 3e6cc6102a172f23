"""A dataset that replaces another one.

Never two generations side by side; and `tw.verify` of a dataset's folder.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support import cli
from tensorwire import datasets, storage

pytestmark = pytest.mark.arrow
COUNT = 1200


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tw.write_examples("a.tfrecord", {"x": np.arange(COUNT)}, shards=4)
    return tmp_path


def values(pattern):
    """What a stranger reads who knows nothing of manifests."""
    parquet = importlib.import_module("pyarrow.parquet")
    names = sorted(Path().glob(pattern))
    return sorted(x for name in names for x in parquet.read_table(name)["x"].to_pylist())


def convert(shards=None, to="parquet", **options):
    return tw.convert("a-*.tfrecord", "out", to=to, shards=shards, workers=0, **options)


KILLED = """
import os, signal, sys
import tensorwire as tw
from tensorwire.datasets import engines

class Dying:
    left = int(sys.argv[1])

    def run(self, spec, tasks):
        for task in tasks:
            if task["do"] in ("write", "gather"):
                if not self.left:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.left -= 1
            yield engines.outcome(task, engines.answer(task, spec))

    def close(self):
        pass

tw.convert("a-*.tfrecord", "out", engine=Dying(), **eval(sys.argv[2]))
"""


def killed(after, **options):
    """A run that dies after so many shards."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(after), repr(options)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "other",
    [
        {"to": "parquet", "shards": 5},
        {"to": "parquet", "shards": 24, "where": "x >= 10"},
        {"to": "parquet", "shards": 24, "name": "new"},
        {"to": "parquet", "shards": 5, "shuffle": 3},
    ],
)
def test_generations_never_mix(other):
    convert(24)
    before = sorted(os.listdir("out"))
    with pytest.raises(FileExistsError):
        tw.convert("a-*.tfrecord", "out", workers=0, **other)
    assert sorted(os.listdir("out")) == before and values("out/*.parquet") == list(range(COUNT))
    killed(2, overwrite=True, **other)
    found = values("out/*.parquet")
    assert len(set(found)) == len(found) and 0 < len(found) < COUNT
    assert len(list(Path("out").glob("*.parquet"))) == 2 and not tw.verify("out").ok
    report = tw.convert("a-*.tfrecord", "out", workers=0, **other)
    first = 10 if "where" in other else 0
    assert sorted(values("out/*.parquet")) == list(range(first, COUNT)) and report.skipped == 2
    assert tw.verify("out").ok and report.records == COUNT - first


def test_records_and_their_schema_go_together():
    tw.convert("a-*.tfrecord", "out", to="tfrecord", columns=["x"], shards=6, workers=0)
    killed(1, to="tfrecord", columns=["x"], where="x < 600", shards=3, overwrite=True)
    found = [int(x) for batch in tw.read_examples("out/*.tfrecord") for x in batch["x"]]
    assert 0 < len(found) <= 600 and max(found) < 600


def test_a_killed_removal_goes_on(monkeypatch):
    """The next run removes the rest, with or without overwrite=."""
    convert(24)
    real, left = storage.delete, [5]

    def delete(path):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        real(path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(storage, "delete", delete)
        convert(5, overwrite=True)
    assert {len(name.name) for name in Path("out").glob("*.parquet")} == {
        len("part-00000-of-00024.parquet")
    }
    killed(1, to="parquet", shards=5)
    assert [name.name for name in Path("out").glob("*.parquet")] == ["part-00000-of-00005.parquet"]
    assert convert(5).records == COUNT and values("out/*.parquet") == list(range(COUNT))


def test_what_is_the_same_is_not_made_again():
    """One source changes: the shards of the others stay."""
    schema = tw.Schema({"x": tw.Feature("int64", ())})
    convert(schema=schema)
    names = sorted(Path("out").glob("*.parquet"))
    before = {name: name.stat().st_mtime_ns for name in names}
    os.unlink("a.tfrecord.schema.json")
    tw.write_examples("a-00001-of-00004.tfrecord", {"x": np.arange(7)}, schema_file=False)
    report = convert(schema=schema)
    assert (report.written, report.skipped) == (1, 3)
    assert [name.stat().st_mtime_ns == before[name] for name in names] == [True, False, True, True]


def test_more_sources_need_no_overwrite():
    convert()
    tw.write_examples("a-more.tfrecord", {"x": np.arange(COUNT, COUNT + 5)}, schema_file=False)
    assert convert().records == COUNT + 5 and values("out/*.parquet") == list(range(COUNT + 5))


def flip(path):
    """One bit, and the time that the file had before."""
    about, blob = path.stat(), bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(blob)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize("options", [{}, {"shuffle": 1, "shards": 3}, {"shards": 2, "to": "jsonl"}])
def test_a_flipped_bit(options):
    to = options.pop("to", "parquet")
    tw.convert("a-*.tfrecord", "out", to=to, workers=0, **options)
    assert tw.verify("out").ok
    shard = sorted(Path("out").glob("part*"))[1]
    whole = shard.read_bytes()
    flip(shard)
    assert tw.convert("a-*.tfrecord", "out", to=to, workers=0, **options).written == 0
    found = tw.verify("out")
    assert not found and len(found.problems) == 1 and shard.name in found.problems[0]
    again = tw.convert("a-*.tfrecord", "out", to=to, workers=0, verify=True, **options)
    assert again.written == 1 and shard.read_bytes() == whole and tw.verify("out").ok
    assert tw.convert("a-*.tfrecord", "out", to=to, workers=0, verify=True, **options).written == 0


def test_split_and_sample_verify():
    datasets.split("a-*.tfrecord", "parts", {"a": 0.5, "b": 0.5}, workers=0)
    assert tw.verify("parts").shards == 8
    flip(sorted(Path("parts").glob("b-*"))[0])
    assert not tw.verify("parts")
    assert (
        datasets.split(
            "a-*.tfrecord", "parts", {"a": 0.5, "b": 0.5}, workers=0, verify=True
        ).written
        == 1
    )
    datasets.sample("a-*.tfrecord", "few", 0.5, workers=0)
    flip(sorted(Path("few").glob("part-*"))[0])
    assert datasets.sample("a-*.tfrecord", "few", 0.5, workers=0, verify=True).written == 1


class TestVerify:
    def test_what_it_says(self):
        convert(5)
        told = []
        found = tw.verify("out", progress=lambda *now: told.append(now))
        size = sum(path.stat().st_size for path in Path("out").glob("*.parquet"))
        assert (found.ok, found.format, found.shards, found.records, found.nbytes) == (
            True,
            "parquet",
            5,
            COUNT,
            size,
        )
        assert found.problems == [] and found.checksums and told[-1] == (size, size)
        assert (
            json.loads(json.dumps(found.json()))["records"] == COUNT
            and tw.verify(Path("out") / ".") == found
        )

    @pytest.mark.parametrize(
        "damage",
        [
            lambda out: next(out.glob("part-00003*")).unlink(),
            lambda out: next(out.glob("part-00003*")).write_bytes(b""),
            lambda out: (out / "_SUCCESS").unlink(),
            lambda out: (out / "part-00000-of-00009.parquet").write_bytes(b"PAR1"),
            lambda out: (out / "stranger.parquet").write_bytes(b"PAR1"),
            lambda out: (out / "_tensorwire" / "shards.jsonl").write_bytes(b""),
            lambda out: (out / "_tensorwire" / "manifest.json").write_bytes(b'{"spec": 3}'),
            lambda out: (out / "_tensorwire" / "manifest.json").write_bytes(b"{"),
            lambda out: change(out, shards=10**15),
            lambda out: change(out, shards=0),
            lambda out: change(out, name="../../a"),
            lambda out: change(out, splits=[1]),
            lambda out: change(out, spec={"source": [], "target": {}}),
        ],
    )
    def test_not_whole(self, damage):
        convert(5)
        damage(Path("out"))
        found = tw.verify("out")
        assert not found.ok and found.problems

    def test_on_the_command_line(self):
        convert(5)
        assert cli.run("verify", "out").returncode == 0
        flip(next(Path("out").glob("part-00003*")))
        found = cli.run("verify", "out", "--json")
        assert found.returncode == 1 and json.loads(found.stdout)["shards"] == 4
        line = (
            "convert",
            "a-*.tfrecord",
            "out",
            "--to",
            "parquet",
            "--shards",
            "5",
            "--verify",
            "--json",
        )
        found = cli.run(*line)
        assert found.returncode == 0 and json.loads(found.stdout)["written"] == 1, found.stderr

    @pytest.mark.cloud
    def test_in_a_bucket(self):
        url = "memory://verified/out"
        tw.convert("a-*.tfrecord", url, to="jsonl", shards=3, workers=0)
        assert tw.verify(url).ok and tw.verify(url + "/").shards == 3
        shard = f"{url}/part-00001-of-00003.jsonl"
        storage.write_bytes(shard, storage.read_bytes(shard, 1 << 20).replace(b"5", b"6"))
        assert not tw.verify(url).ok


def change(out, **facts):
    path = out / "_tensorwire" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_links_to_shards_are_sources_too(tmp_path):
    """Old shards are removed before the new ones are written; those that links elsewhere lead to
    are read first.
    """
    tw.write_examples(tmp_path / "linked.tfrecord", {"x": np.arange(20)}, shards=2)
    tw.convert(f"{tmp_path}/linked-*.tfrecord", tmp_path / "target", to="tfrecord", shards=2)
    before = sorted(name for name in os.listdir(tmp_path / "target") if name.startswith("part"))
    (tmp_path / "links").mkdir()
    for number, name in enumerate(before):
        (tmp_path / "links" / f"in-{number}.tfrecord").symlink_to(tmp_path / "target" / name)
    with pytest.raises(tw.UsageError):
        tw.convert(
            f"{tmp_path}/links/*.tfrecord",
            tmp_path / "target",
            to="tfrecord",
            shards=3,
            overwrite=True,
        )
    assert [name for name in before if (tmp_path / "target" / name).exists()] == before
