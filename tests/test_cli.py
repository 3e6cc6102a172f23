"""Every command as a process: what it prints, where, and how it ends."""

import json
import subprocess
import sys

import pytest

import tensorwire as tw
from tensorwire.cli import COMMANDS


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "tensorwire", *arguments], capture_output=True, text=True, **options)


def test_help_names_every_command():
    found = run("--help")
    assert found.returncode == 0 and all(name in found.stdout for name in COMMANDS)
    for name in COMMANDS:
        assert run(name, "--help").stdout.startswith(f"usage: tensorwire {name}")


def test_version():
    assert run("--version").stdout.strip() == f"tensorwire {tw.__version__}"


@pytest.mark.parametrize("arguments", [(), ("nothing",), ("formats", "--what")])
def test_wrong_usage(arguments):
    found = run(*arguments)
    assert found.returncode == 2 and found.stdout == "" and "usage:" in found.stderr


def test_formats():
    assert {line.split()[0] for line in run("formats").stdout.splitlines()} == set(tw.formats())
    assert [row["name"] for row in json.loads(run("formats", "--json").stdout)] == list(tw.formats())


def test_demo(tmp_path):
    found = run("demo", cwd=tmp_path)
    assert found.returncode == 0 and found.stdout.count("bit-exact") == 15 and "DIFFERENT" not in found.stdout
    value = tw.loads((tmp_path / "demo" / "predictions.safetensors").read_bytes())
    assert list(value) == ["logits", "tokens", "words", "features", "attention", "beam"]
    assert tw.equal(tw.loads((tmp_path / "demo" / "predictions.pb").read_bytes()), value)
    rows = json.loads(run("demo", "--json", "--out", str(tmp_path / "other")).stdout)
    assert all(row["exact"] for row in rows) and {row["format"] for row in rows} >= set(tw.formats())


def test_inspect_and_verify(tmp_path):
    path = tmp_path / "x.safetensors"
    tw.save(path, {"x": tw.Ragged.of([[1], [2, 3]])}, checksum=True, metadata={"model": "nmt"})
    found = run("inspect", str(path))
    assert found.returncode == 0 and "ragged" in found.stdout and "nmt" in found.stdout
    assert json.loads(run("inspect", str(path), "--json").stdout)["tensors"][0]["shape"] == [2, None]
    assert run("verify", str(path)).stdout.startswith(f"{path}: whole, 1 tensors")
    piped = subprocess.run([sys.executable, "-m", "tensorwire", "verify", "-", "--json"], input=path.read_bytes(), capture_output=True)
    assert piped.returncode == 0 and json.loads(piped.stdout)["ok"]
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    found = run("verify", str(path))
    assert found.returncode == 1 and "NOT whole" in found.stdout and "checksum" in found.stdout
    assert run("inspect", str(tmp_path / "nothing")).returncode == 1 and run("inspect").returncode == 2


def test_errors_are_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    found = run("demo", "--out", str(tmp_path / "file"))
    assert found.returncode == 1 and len(found.stderr.splitlines()) == 1 and found.stderr.startswith("tensorwire demo: ")
    assert "Traceback" in run("--debug", "demo", "--out", str(tmp_path / "file")).stderr


@pytest.mark.timing
def test_help_is_quick(tmp_path):
    """Under 100 ms more than Python itself; the best of several, compiled once."""
    import os
    import time

    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def best(*command):
        times = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], capture_output=True, check=True, env=environment)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best("-m", "tensorwire", "--help") - best("-c", "pass") < 0.1


def test_record_files(tmp_path):
    path = tmp_path / "a.tfrecord"
    tw.write_examples(path, {"label": list(range(100)), "name": [f"n{i}" for i in range(100)]}, shards=2)
    pattern = str(tmp_path / "a-*.tfrecord")
    assert run("count", pattern).stdout.split()[-2:] == ["100", "records"]
    assert json.loads(run("count", pattern, "--json").stdout)["records"] == 100
    assert "label: Feature(int64 ())  present 100" in run("schema", pattern).stdout
    assert json.loads(run("schema", pattern, "--full", "--json").stdout)["complete"]
    one = tmp_path / "a-00000-of-00002.tfrecord"
    assert "50 records" in run("inspect", str(one)).stdout and run("verify", str(one)).returncode == 0
    data = bytearray(one.read_bytes())
    data[20] ^= 1
    one.write_bytes(data)
    found = run("verify", str(one))
    assert found.returncode == 1 and "NOT whole, 49 records" in found.stdout
    found = run("repair", str(one), str(tmp_path / "good"))
    assert found.returncode == 1 and "49 good records" in found.stdout and len(list(tw.RecordReader(tmp_path / "good"))) == 49
    assert json.loads(run("repair", str(tmp_path / "good"), "--json").stdout)["ok"]
    for arguments in (("count", "nothing"), ("repair", "nothing"), ("schema", str(tmp_path / "no-*"))):
        found = run(*arguments)
        assert found.returncode == 1 and found.stdout == "" and found.stderr.startswith(f"tensorwire {arguments[0]}: ")
