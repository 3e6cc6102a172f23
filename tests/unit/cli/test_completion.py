"""The scripts that `tensorwire completion` prints, in the shells themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import in_terminal, run
from tensorwire.cli import COMMANDS
from tensorwire.cli.shells import SCRIPTS, commands

BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_tensorwire
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in SCRIPTS:
        found = run("completion", shell)
        assert found.returncode == 0 and found.stderr == ""
        (folder / shell).write_text(found.stdout)
    return folder


def bash(scripts, *words):
    found = subprocess.run(
        ["bash", "-c", BASH, "-", scripts / "bash", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stderr == ""
    return found.stdout.split()


class TestBash:
    def test_commands(self, scripts):
        assert set(COMMANDS) <= set(bash(scripts, "tensorwire", ""))
        assert bash(scripts, "tensorwire", "sh") == ["show"] and bash(
            scripts, "tensorwire", "--v"
        ) == ["--version"]
        assert bash(scripts, "tensorwire", "--debug", "insp") == ["inspect"]

    @pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
    def test_every_option_of_every_command(self, scripts, command):
        found = bash(scripts, "tensorwire", command.name, "--")
        assert (
            found
            == [
                name for option in command.options for name in option.names if name.startswith("--")
            ]
            and "--help" in found
        )

    def test_values(self, scripts):
        assert bash(scripts, "tensorwire", "show", "x", "--format", "safe") == ["safetensors"]
        assert bash(scripts, "tensorwire", "profile", "x", "--best", "") == [
            "size",
            "encode",
            "decode",
            "balanced",
        ]
        assert bash(scripts, "tensorwire", "completion", "") == sorted(SCRIPTS)
        assert bash(scripts, "tensorwire", "show", "x", "--slice", "") == []

    def test_a_real_shell_completes_at_the_tab(self, scripts, tmp_path):
        """With readline: a command, an option, and a file whose name has to be quoted."""
        (tmp_path / "my model.safetensors").touch()
        keys = (
            f"cd {tmp_path}; source {scripts / 'bash'}; tensorwire() {{ printf '<%s>' \"$@\"; echo;"
            " }\n"
        )
        keys += "tensorwire sho\tmy\t--histo\t\nexit\n"
        found = in_terminal(
            command=["bash", "--norc", "--noprofile", "-i"],
            keys=keys.encode(),
            when=b"$",
            PS1="$",
            INPUTRC="/dev/null",
        )
        assert "<show><my model.safetensors><--histogram>" in found.text

    def test_the_script_is_good_shell(self, scripts):
        subprocess.run(["bash", "-n", scripts / "bash"], check=True)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
class TestZsh:
    def test_it_is_good_shell_and_completes(self, scripts, tmp_path):
        subprocess.run(["zsh", "-n", scripts / "zsh"], check=True)
        (tmp_path / "model.safetensors").touch()
        keys = "tensorwire sho\tmod\t --histo\t\nexit\n"
        start = f"autoload -Uz compinit; compinit -u -D; source {scripts / 'zsh'}; cd {tmp_path}\n"
        start += "tensorwire() { printf '<%s>' \"$@\"; echo; }\nPS1='ready>'\n"
        (tmp_path / ".zshrc").write_text(start)
        found = in_terminal(
            command=["zsh", "-i"], keys=keys.encode(), when=b"ready>", ZDOTDIR=str(tmp_path)
        )
        assert "<show><model.safetensors><--histogram>" in found.text


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
class TestFish:
    def complete(self, scripts, tmp_path, line):
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path),
        }
        code = f"source {scripts / 'fish'}; cd {tmp_path}; complete -C '{line}'"
        found = subprocess.run(
            ["fish", "--no-config", "-c", code], capture_output=True, text=True, env=environment
        )
        return [row.split("\t")[0] for row in found.stdout.splitlines()]

    def test_it_completes(self, scripts, tmp_path):
        (tmp_path / "model.safetensors").touch()
        assert set(COMMANDS) <= set(self.complete(scripts, tmp_path, "tensorwire "))
        assert self.complete(scripts, tmp_path, "tensorwire show --histo") == ["--histogram"]
        assert self.complete(scripts, tmp_path, "tensorwire show --format safe") == ["safetensors"]
        assert "model.safetensors" in self.complete(scripts, tmp_path, "tensorwire show mod")
        assert set(self.complete(scripts, tmp_path, "tensorwire completion ")) == set(SCRIPTS)


def test_scripts_name_no_place_of_this_machine(scripts):
    for shell in SCRIPTS:
        text = (scripts / shell).read_text()
        assert str(Path.home()) not in text.replace("~/", "") and sys.prefix not in text
