"""Files: replaced whole or not at all, whatever happens; read by pread, mapping, or file object."""

import errno
import io
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support.tiers import TORTURE
from tensorwire.storage import files

VALUE = {
    "x": np.arange(1000.0),
    "words": tw.Strings.of(["é", ""]),
    "r": tw.Ragged.of([[1], []]),
    "n": 7,
}


class TestSaveAndLoad:
    def test_round_trip(self, tmp_path):
        for name, format in (
            ("a.safetensors", None),
            ("a.pb", None),
            ("noname", "tensorproto"),
            (Path("b.safetensors"), "safetensors"),
        ):
            tw.save(tmp_path / name, VALUE, format)
            assert tw.equal(tw.load(tmp_path / name), VALUE)
            assert tw.equal(tw.load(str(tmp_path / name), ("safetensors", "tensorproto")), VALUE)
        tw.save(tmp_path / "x.raw", VALUE["x"])
        assert tw.equal(tw.load(tmp_path / "x.raw", "raw", dtype="float64"), VALUE["x"])

    def test_what_is_loaded_is_ones_own(self, tmp_path):
        tw.save(tmp_path / "a.safetensors", VALUE | {"deep": [{"y": np.zeros(3)}]})
        found = tw.load(tmp_path / "a.safetensors")
        found["x"][0] = 5
        found["deep"][0]["y"][0] = 1
        found["words"].data[0] = 1
        assert found["x"].__array_interface__["data"][0] % 64 == 0
        assert tw.load(tmp_path / "a.safetensors")["x"][0] == 0
        for blob in (tw.dumps(VALUE), bytearray(tw.dumps(VALUE))):
            tw.load(blob)["x"][0] = 9
            tw.load(blob, names=["x"])["x"][0] = 9
            assert tw.loads(blob)["x"][0] == 0

    def test_small_files(self, tmp_path):
        for size in (0, 1, 20, 40, 64, 100, 600):
            tw.save(tmp_path / "s.safetensors", {"x": np.arange(size)})
            found = tw.load(tmp_path / "s.safetensors")
            assert tw.equal(found, {"x": np.arange(size)}) and found["x"].flags.writeable
            with pytest.raises(tw.DecodeError):
                (tmp_path / "s.safetensors").write_bytes(
                    tw.dumps({"x": np.arange(size)})[:-1] + (b"" if size else b"xx")
                )
                tw.load(tmp_path / "s.safetensors")

    def test_file_objects(self, tmp_path):
        file = io.BytesIO()
        tw.save(file, VALUE)
        assert tw.equal(tw.load(file), VALUE) and tw.equal(tw.load(file.getvalue()), VALUE)
        with open(tmp_path / "f", "w+b") as file:
            tw.save(file, VALUE, "tensorproto")
            assert tw.equal(tw.load(file), VALUE)

    def test_some_names(self, tmp_path):
        tw.save(
            tmp_path / "a.safetensors", {"a": np.zeros(3), "b": {"c": tw.Ragged.of([[1]])}, "d": 3}
        )
        assert tw.equal(
            tw.load(tmp_path / "a.safetensors", names=["b/c"]), {"b/c": tw.Ragged.of([[1]])}
        )
        tw.load(tmp_path / "a.safetensors", names=["a"])["a"][0] = 1
        with pytest.raises(tw.SchemaError, match="did you mean 'b/c'") as caught:
            tw.load(tmp_path / "a.safetensors", names=["b/d"])
        assert caught.value.path == str(tmp_path / "a.safetensors")

    def test_errors_name_the_file(self, tmp_path):
        path = tmp_path / "a.safetensors"
        tw.save(path, VALUE)
        os.truncate(path, 100)
        with pytest.raises(tw.TruncatedError) as caught:
            tw.load(path)
        assert caught.value.path == str(path) and caught.value.format == "safetensors"
        with pytest.raises(tw.EncodeError) as caught:
            tw.save(path, object())
        assert caught.value.path == str(path)
        with pytest.raises(tw.UnknownFormatError, match="pass format="):
            tw.save(tmp_path / "a.xyz", VALUE)
        with pytest.raises(FileNotFoundError):
            tw.load(tmp_path / "nothing")
        with pytest.raises(FileNotFoundError):
            tw.save(tmp_path / "no folder" / "a.safetensors", VALUE)

    def test_metadata(self, tmp_path):
        path = tmp_path / "a.safetensors"
        tw.save(path, {"x": np.zeros(2)}, metadata={"model": "nmt-v2"})
        assert tw.equal(tw.load(path), {"x": np.zeros(2)})
        with tw.open(path) as f:
            assert f.metadata == {"model": "nmt-v2"}
        bundle = tw.Bundle(
            {"x": np.zeros(2)}, {"a": "1"}, {"x": {"device": "cuda:0", "name": "kernel"}}
        )
        for format in ("safetensors", "tensorproto"):
            tw.save(path, bundle, format, metadata={"b": "2"})
            with tw.open(path) as f:
                assert f.metadata == {"a": "1", "b": "2"} and f.tensor_metadata == {
                    "x": {"device": "cuda:0", "name": "kernel"}
                }
            tw.save(path, bundle, format, drop_metadata=True)
            assert tw.load(path).metadata == {} and tw.load(path).tensor_metadata == {}
        with pytest.raises(tw.EncodeError, match="drop_metadata"):
            tw.dumps({"x": np.zeros(2)}, "tensorproto", metadata={"a": "b"})
        with pytest.raises(tw.EncodeError, match="drop_metadata"):
            tw.dumps(np.zeros(2), "raw", metadata={"a": "b"})
        assert tw.dumps(np.zeros(2), "raw", metadata={"a": "b"}, drop_metadata=True) == bytes(16)


class TestReplace:
    def test_the_old_file_or_the_new_one(self, tmp_path):
        path = tmp_path / "f"
        files.replace(path, [b"old"])
        with pytest.raises(TypeError):
            files.replace(path, [b"new", 3])
        assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["f"]
        files.replace(path, [b"n", b"", memoryview(b"ew")], durable=False)
        assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["f"]

    def test_many_buffers(self, tmp_path):
        chunks = [bytes([i % 256]) * (i % 7) for i in range(5000)]
        files.replace(tmp_path / "f", chunks)
        assert (tmp_path / "f").read_bytes() == b"".join(chunks)

    def test_mode_and_links_stay(self, tmp_path):
        (tmp_path / "real").write_bytes(b"x")
        os.chmod(tmp_path / "real", 0o640)
        (tmp_path / "link").symlink_to("real")
        files.replace(tmp_path / "link", [b"new"])
        assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"
        assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640

    def test_a_new_file_has_the_usual_mode(self, tmp_path):
        files.replace(tmp_path / "f", [b""])
        (tmp_path / "g").touch()
        assert (tmp_path / "f").stat().st_mode == (tmp_path / "g").stat().st_mode

    def test_writers_at_once(self, tmp_path):
        path = tmp_path / "f"
        threads = [
            threading.Thread(
                target=lambda i=i: [
                    files.replace(path, [bytes([i]) * 100_000], False) for _ in range(20)
                ]
            )
            for i in range(4)
        ]
        [thread.start() for thread in threads]
        while any(thread.is_alive() for thread in threads):
            if path.exists():
                data = path.read_bytes()
                assert len(data) == 100_000 and len(set(data)) == 1
        [thread.join() for thread in threads]
        assert os.listdir(tmp_path) == ["f"]

    def test_leftovers_of_the_dead_are_swept(self, tmp_path):
        code = (
            "import os, sys, tensorwire.storage.files as f\nwith f.replacing(sys.argv[1]) as fd:"
            " os.write(fd, b'half'); os._exit(9)"
        )
        for name in ("f", "another"):
            assert subprocess.run([sys.executable, "-c", code, tmp_path / name]).returncode == 9
        assert len(os.listdir(tmp_path)) == 1
        (tmp_path / ".config.tensorwire").write_bytes(b"not a temporary of ours")
        files.replace(tmp_path / "f", [b"whole"])
        assert (
            sorted(os.listdir(tmp_path)) == [".config.tensorwire", "f"]
            and (tmp_path / "f").read_bytes() == b"whole"
        )

    def test_a_temporary_cannot_be_foreseen(self, tmp_path, monkeypatch):
        """What lies at the name of a temporary is never written to: a pipe, a link to another file,
        a file with another mode.
        """
        (tmp_path / "victim").write_bytes(b"precious")
        names = iter([b"pipe" * 2, b"hard" * 2, b"soft" * 2, b"file" * 2])
        os.mkfifo(tmp_path / f".f.{(b'pipe' * 2).hex()}.tensorwire")
        os.link(tmp_path / "victim", tmp_path / f".f.{(b'hard' * 2).hex()}.tensorwire")
        os.symlink(tmp_path / "victim", tmp_path / f".f.{(b'soft' * 2).hex()}.tensorwire")
        monkeypatch.setattr(os, "urandom", lambda count: next(names))
        files.replace(tmp_path / "f", [b"new"])
        assert next(names, None) is None and (tmp_path / "f").read_bytes() == b"new"
        assert (tmp_path / "victim").read_bytes() == b"precious"

    def test_temporaries_have_random_names(self, tmp_path):
        names = set()
        for _ in range(5):
            with files.replacing(tmp_path / "f") as fd:
                os.write(fd, b"x")
                names.update(set(os.listdir(tmp_path)) - {"f"})
        assert len(names) == 5 and os.listdir(tmp_path) == ["f"]

    @pytest.mark.parametrize("name", ["x" * 255, "ä" * 127, "𝄞" * 63])
    def test_the_longest_names(self, tmp_path, name):
        tw.save(tmp_path / name, np.arange(3), "npy")
        assert tw.equal(tw.load(tmp_path / name), np.arange(3)) and os.listdir(tmp_path) == [name]

    def test_errors_name_the_file_of_the_caller(self, tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            tw.save(tmp_path / "missing" / "x.npy", np.arange(3))
        assert caught.value.filename == str(tmp_path / "missing")
        with pytest.raises(OSError) as caught:
            tw.save(tmp_path / ("x" * 252 + ".npy"), np.arange(3))
        assert caught.value.errno == errno.ENAMETOOLONG and caught.value.filename.endswith(
            "xxx.npy"
        )
        (tmp_path / "folder.npy").mkdir()
        with pytest.raises(IsADirectoryError):
            tw.save(tmp_path / "folder.npy", np.arange(3))
        os.mkfifo(tmp_path / "pipe.npy")
        with pytest.raises(FileExistsError):
            tw.save(tmp_path / "pipe.npy", np.arange(3))
        assert stat.S_ISFIFO(os.stat(tmp_path / "pipe.npy").st_mode)
        assert sorted(os.listdir(tmp_path)) == ["folder.npy", "pipe.npy"]

    def test_a_large_folder_is_not_listed_at_every_save(self, tmp_path, monkeypatch):
        for i in range(2000):
            (tmp_path / f"{i}").touch()
        looks, scandir = [], os.scandir
        monkeypatch.setattr(os, "scandir", lambda folder: looks.append(folder) or scandir(folder))
        for _ in range(10):
            files.replace(tmp_path / "f", [b"x"], durable=False)
        assert len(looks) < 5

    def test_a_living_writer_is_left_alone(self, tmp_path):
        with files._sibling(str(tmp_path / "f")) as (fd, temporary):
            os.write(fd, b"mine")
            files.replace(tmp_path / "f", [b"theirs"])
            assert Path(temporary).read_bytes() == b"mine"
            os.replace(temporary, tmp_path / "f")
        assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"mine"


KILLED = """
import sys, numpy as np, tensorwire as tw
path, i = sys.argv[1], 0
print("ready", flush=True)
while True:
    i += 1
    tw.save(path, {"x": np.full(8 << 20, i, np.float64)}, checksum=True)
"""


KILLS = 200 if TORTURE else 12


@pytest.mark.torture
@pytest.mark.large
def test_kill_while_replacing(tmp_path, record_property):
    """kill -9 at any moment: the old or the new file, whole; and the next save leaves nothing of
    the dead behind.
    """
    path, rng = tmp_path / "model.safetensors", random.Random(5)
    tw.save(path, {"x": np.zeros(8 << 20)}, checksum=True, durable=False)
    for _ in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.35))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        found = tw.load(path)["x"]
        assert len(found) == 8 << 20 and found[0] == found[-1]
        assert len(os.listdir(tmp_path)) <= 2
    tw.save(path, {"x": np.ones(2)})
    record_property("cases", KILLS)
    assert os.listdir(tmp_path) == ["model.safetensors"]


SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
static int turn(const char* name) {
  static int count = 0;
  const char* fail = getenv("SHIM_FAIL");
  const char* which = getenv("SHIM_CALL");
  if (!fail || !which || strcmp(which, name)) return 0;
  return ++count == atoi(fail);
}
#define WRAP(type, name, args, pass) \
  type name args { \
    if (turn(#name)) { errno = ENOSPC; return -1; } \
    return ((type(*) args)dlsym(RTLD_NEXT, #name)) pass; \
  }
WRAP(ssize_t, writev, (int fd, const struct iovec* v, int n), (fd, v, n))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, rename, (const char* a, const char* b), (a, b))
WRAP(int, ftruncate, (int fd, off_t n), (fd, n))
WRAP(int, ftruncate64, (int fd, off_t n), (fd, n))
"""

FAILING = """
import os, sys
import numpy as np
import tensorwire as tw
path = sys.argv[1]
value = {str(i): np.full(2000, i, np.float64) for i in range(3000)}
tw.dumps(value)
os.environ["SHIM_FAIL"] = sys.argv[2]
os.environ["SHIM_CALL"] = sys.argv[3]
try:
    tw.save(path, value)
    print("saved")
except OSError as error:
    print("failed", error.errno)
    print(error, file=sys.stderr)
"""


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(textwrap.dedent(SHIM))
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", folder / "shim.so", folder / "shim.c", "-ldl"], check=True
    )
    return folder / "shim.so"


@pytest.mark.large
def test_a_folder_that_cannot_be_synced(shim, tmp_path):
    """The rename is done by then: the error says that the new file is there."""
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    path = tmp_path / "f.safetensors"
    found = subprocess.run(
        [sys.executable, "-c", FAILING, str(path), "2", "fsync"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert found.stdout.startswith("failed 28") and "in place" in found.stderr, found
    assert len(tw.load(path)) == 3000 and os.listdir(tmp_path) == ["f.safetensors"]


@pytest.mark.large
@pytest.mark.parametrize(
    ("call", "number"), [("writev", 1), ("writev", 2), ("writev", 4), ("fsync", 1), ("rename", 1)]
)
def test_an_error_at_any_system_call_leaves_the_old_file(shim, tmp_path, call, number):
    path = tmp_path / "f.safetensors"
    tw.save(path, {"old": np.zeros(3)})
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    found = subprocess.run(
        [sys.executable, "-c", FAILING, str(path), str(number), call],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == "failed 28", found
    assert tw.equal(tw.load(path), {"old": np.zeros(3)}) and os.listdir(tmp_path) == [
        "f.safetensors"
    ]


class TestSources:
    def test_they_agree(self, tmp_path):
        (tmp_path / "f").write_bytes(bytes(range(200)))
        with open(tmp_path / "f", "rb") as stream:
            sources = [
                files.source(tmp_path / "f"),
                files.source(tmp_path / "f", mmap=True),
                files.source(stream),
                files.source(bytes(range(200))),
            ]
            for source in sources:
                assert (
                    source.size == 200
                    and bytes(source.read_at(10, 5)) == bytes(range(10, 15))
                    and bytes(source.read_at(200, 0)) == b""
                )
                with pytest.raises(tw.TruncatedError):
                    source.read_at(190, 11)
                source.close()

    def test_reads_are_aligned(self, tmp_path):
        (tmp_path / "f").write_bytes(bytes(1000))
        source = files.FileSource(tmp_path / "f")
        assert (
            np.frombuffer(source.read_at(7, 100), np.uint8).__array_interface__["data"][0] % 64 == 0
        )
        source.close()
        with pytest.raises(ValueError, match="closed"):
            source.read_at(0, 1)

    def test_an_empty_file(self, tmp_path):
        (tmp_path / "f").touch()
        for mmap in (False, True):
            with pytest.raises(tw.UnknownFormatError):
                tw.open(tmp_path / "f", mmap=mmap)
        with pytest.raises(tw.UnknownFormatError):
            tw.load(tmp_path / "f")

    def test_a_file_cut_while_it_is_open(self, tmp_path):
        """By pread that is an error, not a signal."""
        path = tmp_path / "a.safetensors"
        tw.save(path, {"x": np.zeros(100_000)})
        with tw.open(path) as f:
            os.truncate(path, 1000)
            with pytest.raises(tw.TruncatedError) as caught:
                f["x"].read()
            assert caught.value.path == str(path) and caught.value.tensor == "x"
