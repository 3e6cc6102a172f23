"""docs/cli.md is what `--help` says, and its examples run."""

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tensorwire as tw
from support.cli import COMMAND
from tensorwire.cli import COMMANDS, docs, parser

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
SERVERS = ("request", "serve", "view")
"""What these talk to has tests of its own."""


def examples():
    return [
        (name, line.strip())
        for name in COMMANDS
        for line in parser(name).epilog.split("\n")[1:]
        if line.strip()
    ]


def test_the_page_is_fresh():
    assert PAGE.read_text() == docs.page(), (
        "make it again: python -m tensorwire.cli.docs > docs/cli.md"
    )


def test_every_command_and_option_is_in_it():
    text = PAGE.read_text()
    for name in COMMANDS:
        assert f"## tensorwire {name}\n" in text
        for action in parser(name)._actions:
            assert all(
                re.search(rf"(?m)^  .*{re.escape(option)}\b", text)
                for option in action.option_strings
            )


@pytest.fixture
def folder(tmp_path):
    """The files that the examples speak of."""
    rng = np.random.default_rng(3)
    value = {
        "embedding": rng.standard_normal((50, 8)).astype(np.float32),
        "layers": [{"w": rng.random((4, 4))} for _ in range(2)],
    }
    tw.save(tmp_path / "model.safetensors", value, checksum=True)
    tw.save(tmp_path / "half.safetensors", tw.load(tmp_path / "model.safetensors"))
    tw.save(
        tmp_path / "predictions.npz",
        {
            "logits": rng.standard_normal((6, 7, 8)).astype(np.float32),
            "tokens": tw.Ragged.of([[1], [2, 3]]),
        },
    )
    rows = [{"label": i % 5, "ids": list(range(i % 4))} for i in range(100)]
    tw.write_examples(tmp_path / "train.tfrecord", rows, shards=2)
    return tmp_path


def test_every_example_runs(folder):
    ran = 0
    for name, line in examples():
        words = shlex.split(line)
        assert words[:2] == ["tensorwire", name], line
        if name in SERVERS:
            parser(name).parsed(words[2:])  # at least it is understood
            continue
        source = None
        if "<" in words:
            source, words = folder / words[words.index("<") + 1], words[: words.index("<")]
        with open(source or "/dev/null", "rb") as given:
            found = subprocess.run(
                [*COMMAND, *words[1:]], cwd=folder, stdin=given, capture_output=True, text=True
            )
        assert found.returncode == 0, (line, found.stderr)
        assert found.stdout and found.stderr == "", line
        ran += 1
    assert ran >= 25
