"""A model of several files that replaces an older one.

After a failure at any step it is the old one or the new one, whole.
"""

import contextlib
import errno
import itertools
import json
import os
import signal

import numpy as np
import pytest

import tensorwire as tw
from tensorwire import checkpoint, storage

STEPS = ("replace", "rename", "link", "unlink", "fsync", "writev", "open")


def content(value, count=6):
    return {f"w{i}": np.full((10, 10), value + i, np.float32) for i in range(count)}


def sharded(folder, value, count=6):
    tw.save(folder / "source.npz", content(value, count))
    tw.convert(folder / "source.npz", folder / "m.safetensors", shard_size="900", overwrite=True)


def by_save(folder, value, count=6):
    tw.save(folder / "m.ckpt-1", content(value, count), "checkpoint")


def by_convert(folder, value, count=6):
    tw.save(folder / "source.npz", content(value, count))
    tw.convert(folder / "source.npz", folder / "m.ckpt-1", "checkpoint", overwrite=True)


WRITERS = {
    "sharded": (sharded, "m.safetensors.index.json"),
    "checkpoint saved": (by_save, "m.ckpt-1"),
    "checkpoint converted": (by_convert, "m.ckpt-1"),
}


@pytest.fixture(params=WRITERS)
def kind(request):
    return WRITERS[request.param]


def patched(number, fault):
    """Calls `fault` instead of the `number`-th step that changes the folder."""
    steps = itertools.count(1)

    def step(real):
        def call(*arguments, **options):
            if next(steps) == number:
                fault()
            return real(*arguments, **options)

        return call

    patch = pytest.MonkeyPatch()
    for name in STEPS:
        patch.setattr(os, name, step(getattr(os, name)))
    return patch


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def is_killed(number, work):
    """Whether a child that dies at a step got so far; it did not if the work has fewer steps."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            patched(number, die)
            work()
            status = 0
        os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def files(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("m"))


def which(path):
    """The first value of the model at a path, after a look at all of it."""
    value = tw.load(path)
    first = float(value["w0"][0, 0])
    assert tw.equal(dict(sorted(value.items())), content(first, len(value))) and tw.verify(path).ok
    return first


@pytest.mark.slow
def test_killed_at_every_step(tmp_path, kind):
    write, name = kind
    outcomes = []
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, 1)
        count = len(files(folder))
        killed = is_killed(number, lambda folder=folder: write(folder, 100))
        outcomes.append(which(folder / name))
        write(folder, 1000)
        assert which(folder / name) == 1000 and len(files(folder)) <= count + 2, files(folder)
        write(folder, 2000)
        assert which(folder / name) == 2000 and len(files(folder)) <= count + 1
        if not killed:
            break
    assert number > 8 and set(outcomes) == {1.0, 100.0} and outcomes == sorted(outcomes)


def test_failing_at_every_step(tmp_path, kind):
    """Neither a mixture nor files that nothing names."""
    write, name = kind
    write(tmp_path, 1)
    before = files(tmp_path)
    for number in itertools.count(1):
        patch = patched(number, fail)
        try:
            with patch.context():
                write(tmp_path, 100)
        except OSError:
            if which(tmp_path / name) == 1:
                assert files(tmp_path) == before
            else:
                write(tmp_path, 1)
                before = files(tmp_path)
        else:
            break
        finally:
            patch.undo()
    assert number > 8 and which(tmp_path / name) == 100


def test_names_of_the_hub_while_nothing_is_in_the_way(tmp_path):
    hub = [f"m-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    sharded(tmp_path, 1)
    assert files(tmp_path) == [*hub, "m.safetensors.index.json"]
    sharded(tmp_path, 2)
    assert len(files(tmp_path)) == 4 and not set(hub) & set(files(tmp_path))
    assert all(name.endswith(one[1:]) for name, one in zip(files(tmp_path), hub, strict=False))
    sharded(tmp_path, 3)
    assert files(tmp_path) == [*hub, "m.safetensors.index.json"]
    from safetensors.numpy import load_file

    index = json.loads((tmp_path / "m.safetensors.index.json").read_text())
    assert {
        name: load_file(tmp_path / file)[name][0, 0] for name, file in index["weight_map"].items()
    }["w0"] == 3


def test_other_models_in_the_folder_stay(tmp_path):
    """Their names may look like shards of this one."""
    tw.save(tmp_path / "a.npz", content(7))
    others = ["m-g1.safetensors", "m2.safetensors", "m-00001.safetensors"]
    for name in others:
        tw.convert(tmp_path / "a.npz", tmp_path / name, shard_size="900")
    for value in (1, 2, 3):
        sharded(tmp_path, value)
    for name in others:
        assert which(tmp_path / f"{name}.index.json") == 7


def test_existing_shards_need_overwrite(tmp_path):
    sharded(tmp_path, 1)
    with pytest.raises(FileExistsError):
        tw.convert(tmp_path / "source.npz", tmp_path / "m.safetensors", shard_size="900")
    (tmp_path / "m.safetensors.index.json").unlink()
    before = files(tmp_path)
    with pytest.raises(FileExistsError):
        tw.convert(tmp_path / "source.npz", tmp_path / "m.safetensors", shard_size="900")
    assert files(tmp_path) == before


def test_a_source_is_not_swept(tmp_path):
    sharded(tmp_path, 1)
    with pytest.raises(tw.SchemaError):
        tw.convert(
            tmp_path / "m-00001-of-00003.safetensors",
            tmp_path / "m.safetensors.index.json",
            overwrite=True,
        )
    assert which(tmp_path / "m.safetensors.index.json") == 1


def test_data_files_of_any_number_are_swept(tmp_path):
    prefix = str(tmp_path / "m.ckpt-1")
    by_save(tmp_path, 1)
    for name in (
        "m.ckpt-1.data-00002-of-00005",
        "m.ckpt-1.data-00000-of-00002",
        "m.ckpt-10.data-00000-of-00001",
    ):
        (tmp_path / name).write_bytes(b"left")
    with checkpoint.Writer(prefix) as writer:
        writer.add("w0", np.zeros(3))
    assert files(tmp_path) == [
        "m.ckpt-1.data-00000-of-00003", "m.ckpt-1.data-00001-of-00003", "m.ckpt-1.data-00002-of-00003", "m.ckpt-1.index",
        "m.ckpt-10.data-00000-of-00001",
    ]  # fmt: skip
    assert tw.equal(dict(tw.load(prefix)), {"w0": np.zeros(3)})
    by_save(tmp_path, 4)
    assert (
        "m.ckpt-1.data-00000-of-00001" in files(tmp_path)
        and len(files(tmp_path)) == 3
        and which(prefix) == 4
    )


@pytest.mark.cloud
@pytest.mark.parametrize("checkpoints", [False, True])
def test_uploads_that_fail(tmp_path, monkeypatch, checkpoints):
    """An older model in a bucket is the one that is there, until all of the new one is."""
    root = f"memory://{tmp_path.name}"
    url = f"{root}/m.ckpt-1" if checkpoints else f"{root}/m.safetensors"
    options = {"to": "checkpoint"} if checkpoints else {"shard_size": "900"}

    def write(value):
        tw.save(tmp_path / "source.npz", content(value))
        return tw.convert(tmp_path / "source.npz", url, overwrite=True, **options)

    def stored():
        return {
            entry.path: storage.read_bytes(entry.path, 1 << 20) for entry in storage.listing(root)
        }

    def value_of(objects):
        folder = tmp_path / "copy"
        folder.mkdir(exist_ok=True)
        for path, data in objects.items():
            (folder / path.rpartition("/")[2]).write_bytes(data)
        return which(folder / ("m.ckpt-1" if checkpoints else "m.safetensors.index.json"))

    write(1)
    real, before = storage.writer, stored()
    for wanted in itertools.count(1):
        uploads = itertools.count(1)

        def failing(path, uploads=uploads, wanted=wanted, **how):
            if storage.is_url(path) and next(uploads) == wanted:
                raise OSError(errno.EIO, "no")
            return real(path, **how)

        monkeypatch.setattr(storage, "writer", failing)
        try:
            report = write(100)
            break
        except OSError:
            assert stored() == before
    after = stored()
    assert (
        wanted > (2 if checkpoints else 3)
        and value_of(after) == 100
        and set(report.files) == set(after)
    )
    assert not set(before) & set(after) - {
        path for path in before if path.endswith(("index", "json"))
    }
    if not checkpoints:
        assert float(tw.load(f"{url}.index.json")["w0"][0, 0]) == 100
