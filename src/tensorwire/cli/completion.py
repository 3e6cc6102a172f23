"""The command `tensorwire completion`: completion scripts for shells."""

from __future__ import annotations

import argparse

from . import shells
from .arguments import examples


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Print a shell script that completes commands, options, option values and file names.

  bash  add  eval "$(tensorwire completion bash)"  to ~/.bashrc
  zsh   add  eval "$(tensorwire completion zsh)"  to ~/.zshrc, after compinit
  fish  run  tensorwire completion fish > ~/.config/fish/completions/tensorwire.fish"""
    parser.add_argument(
        "shell", metavar="SHELL", choices=sorted(shells.SCRIPTS), help="bash, zsh or fish"
    )
    examples(parser, "completion bash", "completion fish")


def run(args: argparse.Namespace) -> int:
    print(shells.SCRIPTS[args.shell](shells.commands()))
    return 0
