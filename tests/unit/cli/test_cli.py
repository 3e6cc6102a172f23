"""Every command as a process: what it prints, where, and how it ends."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

import tensorwire as tw
from support.cli import COMMAND, run
from tensorwire.cli import COMMANDS, GROUPS


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind, and what is wrong with some."""
    folder = tmp_path_factory.mktemp("files")
    tw.save(
        folder / "x.safetensors",
        {"x": np.arange(6.0).reshape(2, 3), "r": tw.Ragged.of([[1], [2, 3]])},
        checksum=True,
    )
    tw.save(folder / "y.safetensors", {"x": np.arange(6.0).reshape(2, 3) + 1})
    tw.write_examples(
        folder / "a.tfrecord", {"label": np.arange(10), "name": [f"n{i}" for i in range(10)]}
    )
    data = bytearray((folder / "x.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "changed.safetensors").write_bytes(data)
    (folder / "cut.safetensors").write_bytes(data[:100])
    (folder / "nonsense").write_bytes(b"\xff" * 100)
    data = bytearray((folder / "a.tfrecord").read_bytes())
    data[20] ^= 1
    (folder / "bad.tfrecord").write_bytes(data)
    return folder


def test_help_names_every_command_by_what_it_is_for():
    found = run("--help")
    assert found.returncode == 0 and found.stderr == ""
    lines = found.stdout.splitlines()
    for heading, group in GROUPS.items():
        start = lines.index(f"{heading}:")
        block = lines[start + 1 : start + lines[start:].index("")]
        assert set(group) <= {line.split()[0] for line in block}
    assert run("-h").stdout == found.stdout and run("--debug", "--help").stdout == found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_what_all_have(name):
    found = run(name, "--help")
    assert (
        found.returncode == 0
        and found.stderr == ""
        and found.stdout.startswith(f"usage: tensorwire {name} [options]")
    )
    assert "--debug" in found.stdout and "-h, --help" in found.stdout
    assert f"examples:\n  tensorwire {name}" in found.stdout
    assert max(map(len, found.stdout.split("examples:")[0].splitlines())) <= 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("view", "completion")])
def test_every_command_that_prints_a_result_can_print_json(name):
    assert "  --json  " in run(name, "--help").stdout


def test_version():
    assert run("--version").stdout == f"tensorwire {tw.__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspct", "x"), "unknown command 'inspct'; known: inspect, "),
        (("inspct", "x"), "did you mean 'inspect'?"),
        (("--what",), "unknown option --what"),
        (("formats", "--jsn"), "unknown option --jsn; did you mean --json?"),
        (("show", "--slise", "0", "x"), "did you mean --slice?"),
        (("show", "x", "--slise=0"), "unknown option --slise; did you mean --slice?"),
        (("inspect",), "FILE"),
        (("inspect", "a", "b"), "unexpected argument 'b'"),
        (("inspect", "x", "--format", "safetensor"), "did you mean 'safetensors'?"),
        (("show", "x", "-n", "-3"), "-n"),
        (("show", "x", "-n", "three"), "expected a non-negative integer, found 'three'"),
        (("show", "x", "--slice", "a"), "invalid slice 'a'"),
        (("show", "x", "--where", "label = 3"), "write == to compare"),
        (
            ("show", "x", "--where", "open('f')"),
            "the only functions are len(x), has(x) and col('a/name')",
        ),
        (("show", "x", "--columns", "a,,b"), "names separated by commas"),
        (("profile", "x", "--best", "siz"), "did you mean 'size'?"),
        (("profile", "x", "--seconds", "x"), "--seconds"),
        (("completion", "bsh"), "did you mean 'bash'?"),
        (("convert", "x"), "DST"),
        (("convert", "x", "y", "--rename", "what"), "--rename"),
        (("diff", "x"), "B"),
        (("diff", "x", "y", "--atol", "-1"), "--atol"),
        (("request",), "MODEL"),
        (("request", "x", "--curl", "--check"), "--check"),
        (("request", "grpc://127.0.0.1:1/m", "x=1", "--curl"), "curl does not support gRPC"),
        (("serve",), "[NAME=]DIR"),
        (("serve", "x", "--rest", "http"), "--rest"),
        (("serve", "x", "--rest", "none", "--grpc", "none"), "cannot both be none"),
        (("view",), "PATH"),
        (("count",), "FILE"),
        (("schema", "--full"), "FILE"),
        (("repair",), "FILE"),
        (("verify", "-", "x"), "unexpected argument"),
        (("demo", "x"), "unexpected argument"),
    ],
)
def test_wrong_usage(arguments, words):
    found = run(*arguments, stdin=subprocess.DEVNULL)
    assert found.returncode == 2 and found.stdout == "" and words in found.stderr.splitlines()[0]
    assert (
        found.stderr.startswith("tensorwire")
        and len(found.stderr.splitlines()) <= 2
        and "Traceback" not in found.stderr
    )


def test_without_a_command():
    shown = run(stdin=subprocess.DEVNULL)
    assert shown.returncode == 2 and shown.stdout == ""
    assert shown.stderr == run("--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inspect", "nothing"), "nothing"),
        (("inspect", "nonsense"), "nonsense"),
        (("inspect", "cut.safetensors"), "cut.safetensors"),
        (("show", "cut.safetensors"), "cut.safetensors"),
        (("show", "changed.safetensors", "r"), "changed.safetensors"),
        (("show", "x.safetensors", "z"), "no tensor 'z'; known: x, r"),
        (
            ("show", "x.safetensors", "x", "--slice", "7"),
            "index 7 is out of bounds for axis 0 with size 2 (path x.safetensors, tensor x)",
        ),
        (("show", "x.safetensors", "x", "--slice", "0,0,0"), "the slice has 3 dimensions"),
        (("show", "bad.tfrecord"), "bad.tfrecord"),
        (("show", "a.tfrecord", "--where", "lable == 3"), "did you mean 'label'?"),
        (("show", "no-*.tfrecord"), "no-*.tfrecord"),
        (("schema", "nothing"), "nothing"),
        (("schema", "a.tfrecord", "--columns", "lable"), "did you mean 'label'?"),
        (("count", "bad.tfrecord", "nothing"), "nothing"),
        (("repair", "nothing"), "nothing"),
        (("profile", "nonsense"), "nonsense"),
        (("profile", "x.safetensors", "--name", "z"), "no tensor 'z'"),
        (("diff", "x.safetensors", "nothing"), "nothing"),
        (("convert", "nothing", "z.npz"), "nothing"),
        (("convert", "cut.safetensors", "z.npz"), "cut.safetensors"),
        (("demo", "--out", "nonsense"), "nonsense"),
    ],
)
def test_bad_data(files, arguments, words):
    found = run(*arguments, cwd=files)
    assert found.returncode == 1 and len(found.stderr.splitlines()) == 1 and words in found.stderr
    assert found.stderr.startswith(f"tensorwire {arguments[0]}: ")


@pytest.mark.parametrize("place", ["before", "behind"])
def test_debug_shows_the_traceback(files, place):
    words = (
        ("--debug", "inspect", "nothing")
        if place == "before"
        else ("inspect", "nothing", "--debug")
    )
    found = run(*words, cwd=files)
    assert (
        found.returncode == 1
        and found.stderr.startswith("Traceback")
        and "FileNotFoundError" in found.stderr
    )


def test_formats():
    assert {line.split()[0] for line in run("formats").stdout.splitlines()} == set(tw.formats())
    assert [row["name"] for row in json.loads(run("formats", "--json").stdout)] == list(
        tw.formats()
    )


def test_demo(tmp_path):
    found = run("demo", cwd=tmp_path)
    assert (
        found.returncode == 0
        and found.stdout.count("bit-exact") >= 15
        and "DIFFERENT" not in found.stdout
    )
    value = tw.loads((tmp_path / "demo" / "predictions.safetensors").read_bytes())
    assert list(value) == ["logits", "tokens", "words", "features", "attention", "beam"]
    assert tw.equal(tw.loads((tmp_path / "demo" / "predictions.pb").read_bytes()), value)
    rows = json.loads(run("demo", "--json", "--out", str(tmp_path / "other")).stdout)
    assert all(row["exact"] for row in rows) and len({row["format"] for row in rows}) >= 10


def test_inspect_and_verify(files):
    found = run("inspect", "x.safetensors", cwd=files)
    assert found.returncode == 0 and "ragged" in found.stdout and found.stderr == ""
    assert json.loads(run("inspect", "x.safetensors", "--json", cwd=files).stdout)["tensors"][1][
        "shape"
    ] == [2, None]
    assert run("verify", "x.safetensors", cwd=files).stdout.startswith(
        "x.safetensors: whole, 2 tensors"
    )
    for command in ("verify", "inspect", "show"):
        data = (files / "x.safetensors").read_bytes()
        piped = subprocess.run(
            [*COMMAND, command, "-", "--json", "--format", "safetensors"],
            input=data,
            capture_output=True,
        )
        assert piped.returncode == 0 and json.loads(piped.stdout)["format"] == "safetensors"
    found = run("verify", "changed.safetensors", cwd=files)
    assert (
        found.returncode == 1
        and "NOT whole" in found.stdout
        and "checksum" in found.stdout
        and found.stderr == ""
    )
    assert (
        json.loads(run("verify", "changed.safetensors", "--json", cwd=files).stdout)["ok"] is False
    )


def test_convert_and_diff(files, tmp_path):
    target = tmp_path / "x.npz"
    assert run("convert", "x.safetensors", target, cwd=files).returncode == 0
    found = run("diff", "x.safetensors", target, cwd=files)
    assert found.returncode == 0 and "the same to the bit" in found.stdout
    found = run("diff", "x.safetensors", "y.safetensors", "--json", cwd=files)
    assert (
        found.returncode == 1 and json.loads(found.stdout)["equal"] is False and found.stderr == ""
    )
    with (files / "y.safetensors").open() as file:
        assert run("diff", "x.safetensors", "-", cwd=files, stdin=file).returncode == 1
    assert run("diff", "-", "-", cwd=files).returncode == 2
    piped = subprocess.run(
        [*COMMAND, "convert", files / "x.safetensors", "-", "--to", "npz"], capture_output=True
    )
    assert piped.returncode == 0 and tw.equal(
        tw.loads(piped.stdout)["x"], np.arange(6.0).reshape(2, 3)
    )
    assert run("convert", "x.safetensors", "-", cwd=files).returncode == 2


def test_profile(files):
    found = run(
        "profile",
        "x.safetensors",
        "--name",
        "x",
        "--formats",
        "npy,safetensors",
        "--compressions",
        "none",
        "--json",
        cwd=files,
    )
    assert found.returncode == 0 and {
        one["format"] for one in json.loads(found.stdout)["measurements"]
    } == {"npy", "safetensors"}
    found = run(
        "profile",
        "a.tfrecord",
        "--formats",
        "npz",
        "--compressions",
        "none",
        "--quantize",
        "none",
        "--best",
        "size",
        cwd=files,
    )
    assert found.returncode == 0 and "tw.dumps(x, format='npz')" in found.stdout
    assert run("profile", "x.safetensors", "--formats", "nozip", cwd=files).returncode == 2


def test_errors_and_names_cannot_paint_the_terminal(tmp_path):
    name = "evil\x1b[2J\x1b]0;owned\x07\nsecond line"
    tw.save(tmp_path / "evil.safetensors", tw.Bundle({name: np.zeros(3)}, {"note": "\x1b[31m"}))
    for arguments in (
        ("inspect", "evil.safetensors"),
        ("show", "evil.safetensors"),
        ("show", "evil.safetensors", "evil*"),
    ):
        found = run(*arguments, cwd=tmp_path)
        assert (
            found.returncode == 0
            and "\\x1b[2J" in found.stdout
            and "\x1b" not in found.stdout
            and "\x07" not in found.stdout
        )
    found = run("inspect", "no\x1b[2J\nsuch")
    assert (
        found.returncode == 1 and "\x1b" not in found.stderr and len(found.stderr.splitlines()) == 1
    )


def test_record_files(tmp_path):
    path = tmp_path / "a.tfrecord"
    tw.write_examples(
        path, {"label": list(range(100)), "name": [f"n{i}" for i in range(100)]}, shards=2
    )
    pattern = str(tmp_path / "a-*.tfrecord")
    assert run("count", pattern).stdout.split()[-2:] == ["100", "records"]
    assert json.loads(run("count", pattern, "--json").stdout)["records"] == 100
    assert "label: Feature(int64 ())  present 100" in run("schema", pattern).stdout
    assert json.loads(run("schema", pattern, "--full", "--json").stdout)["complete"]
    assert list(
        json.loads(run("schema", pattern, "--columns", "name", "--json").stdout)["features"]
    ) == ["name"]
    one = tmp_path / "a-00000-of-00002.tfrecord"
    assert (
        "50 records" in run("inspect", str(one)).stdout and run("verify", str(one)).returncode == 0
    )
    data = bytearray(one.read_bytes())
    data[20] ^= 1
    one.write_bytes(data)
    found = run("verify", str(one))
    assert found.returncode == 1 and "NOT whole, 49 records" in found.stdout
    found = run("repair", str(one), str(tmp_path / "good"))
    assert (
        found.returncode == 1
        and "49 good records" in found.stdout
        and len(list(tw.RecordReader(tmp_path / "good"))) == 49
    )
    assert json.loads(run("repair", str(tmp_path / "good"), "--json").stdout)["ok"]


def cached(tmp_path):
    """As any installed package is: its bytecode lies beside it."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}


def cost(environment, *command):
    """Seconds of processor time that a process takes, the least of several: on an idle machine that
    is its start-up, since it waits for nothing, and on a busy one it hardly changes."""
    times = []
    for _ in range(9):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, check=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.timing
def test_help_is_quick(tmp_path):
    assert cost(cached(tmp_path), "-m", "tensorwire", "--help") < 0.100


@pytest.mark.timing
def test_inspect_of_a_small_file_is_quick(files, tmp_path):
    """200 ms in all. What NumPy and ml_dtypes take of it is theirs: on a machine where these two
    alone take more than half, we may take four fifths as much again."""
    environment = cached(tmp_path)
    others = cost(environment, "-c", "import numpy, ml_dtypes")
    assert cost(environment, "-m", "tensorwire", "inspect", str(files / "x.safetensors")) < max(
        0.200, 1.8 * others
    )


def test_help_imports_no_numpy():
    code = (
        "import sys; from tensorwire.cli import main; main(['--help']); print(*sys.modules,"
        " file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()
    assert "tensorwire.cli" in loaded and not {"numpy", "rich", "tensorwire.core.tensors"} & set(
        loaded
    )
