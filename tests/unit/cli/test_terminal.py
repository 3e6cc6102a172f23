"""Commands in a terminal: colours, pictures, bars, with rich and without, NO_COLOR, Ctrl-C; and
readers that leave early.
"""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import tensorwire as tw
from support.cli import COMMAND, in_terminal, run, without_rich
from tensorwire.cli import terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TRUE = {"COLORTERM": "truecolor"}


def plain(text):
    return COLOUR.sub("", text)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminal")
    tw.save(
        folder / "x.safetensors",
        {
            "x": np.arange(60.0).reshape(6, 10),
            "v": np.arange(100) ** 2,
            "s": tw.Sparse([[0, 0]], [1.0], (4, 4)),
        },
    )
    tw.write_examples(folder / "a.tfrecord", {"label": np.arange(2000)})
    return folder / "x.safetensors"


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect",),
        ("verify",),
        ("show",),
        ("show", "x", "--slice", "0"),
        ("inspect", "--json"),
        ("show", "--json"),
    ],
)
def test_colours_change_nothing_but_colours(file, arguments):
    words = (arguments[0], file, *arguments[1:])
    piped = run(*words, env={**os.environ, "COLUMNS": "100"})
    found = in_terminal(*words)
    assert found.returncode == 0 and "\x1b[" in found.text and "\x1b" not in piped.stdout
    if "--json" in arguments:
        assert json.loads(plain(found.text)) == json.loads(piped.stdout)
    elif arguments != ("show",):  # which has pictures in a terminal
        assert plain(found.text) == piped.stdout


def test_pictures_come_by_themselves_in_a_terminal(file):
    found = in_terminal("show", file, "x", **TRUE)
    assert (
        "\x1b[38;2;68;1;84;48;2" in found.text
        and "▀" in found.text
        and "heat map: from 0 (violet) to 59 (yellow)" in plain(found.text)
    )
    without = in_terminal("show", file, "x")
    assert (
        "▀" not in without.text
        and "██" in without.text
        and "heat map: from 0 (blank) to 59 (full)" in plain(without.text)
    )
    assert (
        "███" in in_terminal("show", file, "v").text
        and "heat" not in in_terminal("show", file, "v").text
    )
    assert "⠁" in in_terminal("show", file, "s").text


@pytest.mark.parametrize("hidden", [False, True], ids=["rich", "no rich"])
def test_no_colour(file, tmp_path, hidden):
    more = without_rich(tmp_path) if hidden else {}
    for words in (("show", file, "x"), ("inspect", file), ("schema", file.parent / "a.tfrecord")):
        found = in_terminal(*words, NO_COLOR="1", COLORTERM="truecolor", **more)
        assert found.returncode == 0 and not COLOUR.search(found.text)
    found = in_terminal("inspect", "nothing", NO_COLOR="1", **more)
    assert (
        found.returncode == 1
        and found.text == "tensorwire inspect: No such file or directory: nothing\n"
    )


def test_all_works_without_rich(file, tmp_path):
    more = without_rich(tmp_path)
    found = in_terminal("inspect", file, **more)
    assert found.returncode == 0 and "\x1b" not in found.text and "6, 10" in found.text
    # the heat map is ours
    assert "\x1b[38;2;" in in_terminal("show", file, "x", **TRUE, **more).text
    assert json.loads(in_terminal("show", file, "--json", **more).text)["format"] == "safetensors"
    found = in_terminal("schema", file.parent / "a.tfrecord", "--full", **more)
    assert found.returncode == 0 and "label" in plain(found.text)


def test_errors_are_red_in_a_terminal_only(file):
    found = in_terminal("inspect", "nothing")
    assert (
        found.returncode == 1
        and found.text == "\x1b[31mtensorwire inspect: No such file or directory: nothing\x1b[0m\n"
    )
    found = in_terminal("inspct")
    assert found.returncode == 2 and "did you mean 'inspect'?" in found.text


@pytest.mark.parametrize("hidden", [False, True], ids=["rich", "no rich"])
def test_a_bar_is_drawn_and_taken_away(file, tmp_path, hidden):
    more = without_rich(tmp_path) if hidden else {}
    found = in_terminal("convert", file, tmp_path / "y.npz", **more)
    assert (
        found.returncode == 0
        and "%" in found.text
        and ("\x1b[K" in found.text or "\x1b[2K" in found.text)
    )
    assert "%" not in run("convert", file, tmp_path / "z.npz").stderr


def test_long_work_on_bytes_shows_a_bar(monkeypatch, capsys):
    """verify and repair: after a moment, and not at all where nobody sits."""
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(terminal, "coloured", lambda stream: False)
    for moment, drawn in ((0, True), (60, False)):
        monkeypatch.setattr(terminal, "_MOMENT", moment)
        with terminal.bytes_bar() as tell:
            tell(250, 1000)
            tell(0, 0)
        assert ("250 of 1,000 bytes" in capsys.readouterr().err) is drawn
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: False)
    with terminal.bytes_bar() as tell:
        assert tell is None


def test_a_dumb_terminal_gets_plain_text(file):
    assert "\x1b" not in in_terminal("show", file, TERM="dumb").text


def test_help_fits_the_terminal():
    for columns in (50, 200):
        found = in_terminal("show", "--help", columns=columns)
        text = found.text.split("arguments:")[1].split("examples:")[0]
        assert found.returncode == 0 and max(map(len, text.splitlines())) <= max(
            52, min(columns, 100)
        )


def test_a_terminal_without_unicode_gets_ascii(file):
    found = in_terminal("show", file, "x", "s", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (
        found.returncode == 0 and found.text.isascii() and "heat map: from 0" in plain(found.text)
    )


@pytest.mark.parametrize(
    "words",
    [
        ("show", "{records}", "-n", "0"),
        ("show", "{records}", "-n", "0", "--json"),
        ("formats",),
        ("completion", "bash"),
        ("--help",),
    ],
)
def test_a_reader_that_leaves_early(file, words):
    """As `| head -1` does: quiet, whether all was written before or not."""
    given = [word.replace("{records}", str(file.parent / "a.tfrecord")) for word in words]
    process = subprocess.Popen([*COMMAND, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert first and errors == b"" and process.wait(60) in (0, 141)


def test_nobody_reads_at_all(file):
    for words in (
        ("show", str(file.parent / "a.tfrecord"), "-n", "0"),
        ("inspect", str(file)),
        ("--help",),
    ):
        found = subprocess.run(
            ["bash", "-c", 'exec 3>&1; "$@" | true; exit ${PIPESTATUS[0]}', "-", *COMMAND, *words],
            capture_output=True,
        )
        assert found.returncode in (0, 141) and found.stderr == b""


def test_ctrl_c_is_quiet(tmp_path):
    code = (
        "import sys, time\nfrom tensorwire.cli import main\nimport tensorwire.cli.formats as"
        " command\n"
    )
    code += (
        "def run(args):\n    print('started', flush=True)\n    time.sleep(60)\ncommand.run ="
        " run\nsys.exit(main(['formats']))"
    )
    found = in_terminal(command=[sys.executable, "-c", code], keys=b"\x03", when=b"started\r\n")
    assert found.returncode == 130 and found.text.replace("^C", "") == "started\n"


def test_ctrl_c_while_it_reads():
    process = subprocess.Popen(
        [*COMMAND, "inspect", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # more than a pipe holds: once it is written, somebody reads
    process.stdin.write(bytes(1 << 20))
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and out == b"" and errors == b""
