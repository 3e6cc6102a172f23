"""What is this? One answer for every kind of file and name, in every verb.

The table has a row for each thing that a user may name. Every verb must agree with the answer of
`identify`: `open`, `load`, `inspect`, `verify`, `convert`, `diff`, and the commands `show`, `count`
and `schema`.
"""

import gzip
import subprocess
import sys
import warnings

import numpy as np
import pytest

import tensorwire as tw
from support.cli import run
from tensorwire.api import lazy
from tensorwire.codecs import FORMATS
from tensorwire.codecs.identify import by_name, identify
from tensorwire.datasets import dispatch

TENSORS = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "y": np.arange(3)}


def tensors(name, format="safetensors", **options):
    def make(folder):
        tw.save(folder / name, TENSORS, format, **options)
        return folder / name

    return make


def records(name, **options):
    def make(folder):
        tw.write_examples(folder / "made.tfrecord", TENSORS, **options)
        (folder / "made.tfrecord").rename(folder / name)
        return folder / name

    return make


def checkpoint(ask):
    def make(folder):
        tw.save(folder / "model.ckpt-1000", TENSORS, "checkpoint")
        return folder / ask

    return make


def checkpoint_folder(folder):
    from tensorwire import checkpoint

    tw.save(folder / "model.ckpt-7", TENSORS, "checkpoint")
    checkpoint.save_state(folder, str(folder / "model.ckpt-7"))
    return folder


def hub(folder):
    tw.convert(tensors("a.npz", "npz")(folder), folder / "model.safetensors", shard_size=32)
    return folder / "model.safetensors.index.json"


def shards(pattern):
    def make(folder):
        (folder / "data").mkdir()
        tw.write_examples(folder / "data" / "train.tfrecord", TENSORS, shards=2)
        return folder / "data" / pattern if pattern else folder / "data"

    return make


def dataset(folder):
    source = records("in.tfrecord")(folder)
    tw.convert(source, folder / "out", to="parquet", workers=0)
    return folder / "out"


def lines(folder):
    (folder / "a.jsonl").write_text('{"y": 1}\n{"y": 2}\n{"y": 3}\n')
    return folder / "a.jsonl"


def compressed_records(folder):
    plain = records("plain")(folder)
    (folder / "packed").write_bytes(gzip.compress(plain.read_bytes()))
    return folder / "packed"


# name -> (maker, kind, format, layout, compression)
TABLE = {
    "safetensors": (tensors("a.safetensors"), "tensors", "safetensors", "file", None),
    "a suffix in the middle": (
        tensors("a.tfr2.npz.safetensors"), "tensors", "safetensors", "file", None,
    ),
    "record suffix in the middle": (tensors("b.tfrecord.npz", "npz"), "tensors", "npz", "file", None),
    "npz": (tensors("a.npz", "npz"), "tensors", "npz", "file", None),
    "arrow": (tensors("a.arrow", "arrow"), "tensors", "arrow", "file", None),
    "parquet": (tensors("a.parquet", "parquet"), "tensors", "parquet", "file", None),
    "json": (tensors("a.json", "json"), "tensors", "json", "file", None),
    "tensorproto": (tensors("a.pb", "tensorproto"), "tensors", "tensorproto", "file", None),
    "protobuf": (tensors("a.tensor", "protobuf"), "tensors", "protobuf", "file", None),
    "no suffix": (tensors("model"), "tensors", "safetensors", "file", None),
    "a wrong suffix": (tensors("a.npz", "safetensors"), "tensors", "safetensors", "file", None),
    "compressed": (tensors("a.safetensors.gz", compression="gzip"), "tensors", "safetensors", "file", "gzip"),
    "compressed, no suffix": (tensors("packed", compression="gzip"), "tensors", "safetensors", "file", "gzip"),
    "zlib, by its name alone": (
        tensors("a.safetensors.zz", compression="zlib"), "tensors", "safetensors", "file", "zlib",
    ),
    "records": (records("a.tfrecord"), "rows", "tfrecord", "file", None),
    "records, TFDS name": (
        records("mnist-train.tfrecord-00000-of-00001"), "rows", "tfrecord", "file", None,
    ),
    "records, no suffix": (records("data"), "rows", "tfrecord", "file", None),
    "records, a wrong suffix": (records("a.bin"), "rows", "tfrecord", "file", None),
    "records, gzip": (records("a.tfrecord.gz", compression="gzip"), "rows", "tfrecord", "file", "gzip"),
    "records, gzip, no suffix": (compressed_records, "rows", "tfrecord", "file", "gzip"),
    "JSON lines": (lines, "rows", "jsonl", "file", None),
    "a numbered checkpoint": (checkpoint("model.ckpt-1000"), "tensors", "checkpoint", "files", None),
    "its index": (checkpoint("model.ckpt-1000.index"), "tensors", "checkpoint", "files", None),
    "its data": (
        checkpoint("model.ckpt-1000.data-00000-of-00001"), "tensors", "checkpoint", "files", None,
    ),
    "a checkpoint's folder": (checkpoint_folder, "tensors", "checkpoint", "files", None),
    "a model in several files": (hub, "tensors", "safetensors", "files", None),
    "a pattern": (shards("train-*.tfrecord"), "rows", "tfrecord", "pattern", None),
    "a folder of shards": (shards(""), "rows", "tfrecord", "folder", None),
    "a dataset": (dataset, "rows", None, "folder", None),
}  # fmt: skip


@pytest.fixture(params=TABLE, ids=list(TABLE))
def row(request, tmp_path):
    make, *answer = TABLE[request.param]
    return str(make(tmp_path)), *answer


def test_identify(row):
    path, kind, format, layout, compression = row
    with identify(path) as found:
        assert (found.kind, found.format, found.layout) == (kind, format, layout)
        assert found.compression == compression


def test_every_verb_agrees(row, tmp_path):
    path, kind, format, layout, compression = row
    is_tensors = kind == "tensors"
    if is_tensors:
        assert tw.equal(dict(tw.load(path)), TENSORS)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with tw.open(path) as file:
                assert file.format == format and set(file) == set(TENSORS)
        assert any("compressed as a whole" in str(w.message) for w in caught) == bool(compression)
        assert tw.inspect(path).format == format
        assert tw.verify(path).ok and tw.verify(path).tensors >= 2
        assert tw.diff(path, path).equal
    else:
        with pytest.raises((tw.TensorwireError, OSError)):
            tw.load(path, names=["x"])
    if format == "tfrecord" and layout == "file":
        assert tw.inspect(path).records == 3 and tw.verify(path).records == 3
    assert dispatch.is_dataset(path, tmp_path / "x.safetensors", None, {}) == (not is_tensors)


def test_convert_agrees(row, tmp_path):
    """Tensors go tensor by tensor, rows as a dataset; both give the same values."""
    path, kind, _, _, _ = row
    if kind == "tensors":
        tw.convert(path, tmp_path / "new.safetensors")
        assert tw.equal(dict(tw.load(tmp_path / "new.safetensors")), TENSORS)
        return
    report = tw.convert(path, tmp_path / "new", to="npz", workers=0, shards=1)
    assert report.records == 3
    (shard,) = (tmp_path / "new").glob("*.npz")
    assert tw.load(shard)["y"].sum() in (3, 6)


@pytest.mark.slow
def test_commands_agree(row):
    path, kind, format, layout, _ = row
    assert run("show", path).returncode == (0 if kind == "tensors" or (format == "tfrecord" and layout != "folder") else 1)  # fmt: skip
    counted = format == "tfrecord" and layout != "folder"
    for command in ("count", "schema"):
        assert (run(command, path).returncode == 0) == counted, command


def test_bytes():
    for format in ("safetensors", "tensorproto", "npy", "npz", "protobuf", "json"):
        value = np.arange(3) if format == "npy" else TENSORS
        with identify(tw.dumps(value, format)) as found:
            assert (found.kind, found.format, found.layout) == ("tensors", format, "bytes")
    with identify(b"\x00 nothing of the kind") as found:
        assert found.format is None and isinstance(found.error, tw.UnknownFormatError)


def test_lists_are_rows():
    with identify(["a.parquet", "b.parquet"]) as found:
        assert (found.kind, found.format, found.layout) == ("rows", "parquet", "list")
    with identify(["a.parquet", "b.npz"]) as found:
        assert found.format is None


def test_a_format_that_is_named_is_believed(tmp_path):
    path = tensors("a.npz", "safetensors")(tmp_path)
    with identify(path, "npz") as found:
        assert found.format == "npz"
    with identify(path, ("safetensors", "npz")) as found:
        assert found.format == "safetensors"
    with identify(path, "tfrecord") as found:
        assert found.kind == "rows"


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        identify(tmp_path / "absent.safetensors")
    with identify(tmp_path) as found:
        assert found.format is None and found.layout == "folder"


def test_one_table_of_suffixes():
    """Every suffix is one format's, and every name with it is that format, compressed or not."""
    suffixes = [suffix for row in FORMATS.values() for suffix in row.suffixes]
    assert len(suffixes) == len(set(suffixes)) > 20
    for format in FORMATS.values():
        for suffix in format.suffixes:
            assert by_name(f"a.b{suffix}") == (format.name, None)
            assert by_name(f"dir.npz/a{suffix}.zst") == (format.name, "zstd")
            assert by_name(f"a{suffix}-00001-of-00002") == (format.name, None)


def test_a_file_is_opened_once_and_no_decompressor_runs(tmp_path):
    path = tensors("a.safetensors")(tmp_path)
    code = f"""
import sys, tensorwire as tw
from tensorwire.transforms import compression
compression.entry = None  # what finds a decompressor
tw.inspect(tw.dumps({{"x": 1}}))
opens = []
sys.addaudithook(lambda event, args: opens.append(args[0]) if event == "open" else None)
for verb in (tw.inspect, tw.open, tw.load, tw.verify):
    opens.clear()
    verb({str(path)!r})
    assert opens.count({str(path)!r}) == 1, (verb, opens)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_verb_closes_what_it_opened(row, monkeypatch):
    """By calling close, not when the file is collected: a Keras file has a child process."""
    path, kind, _, _, _ = row
    if kind != "tensors":
        return
    closed, close = [], lazy.File.close
    monkeypatch.setattr(lazy.File, "close", lambda file: (closed.append(file), close(file)))
    for number, work in enumerate(
        (tw.inspect, tw.verify, lambda path: tw.load(path, names=["x"])), 1
    ):
        work(path)
        assert len(closed) == number, work
