"""tensorwire completion"""

from __future__ import annotations

import argparse

from . import shells
from .arguments import examples


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Print a script that completes commands, options, their values and file names.

  bash  put  eval "$(tensorwire completion bash)"  into ~/.bashrc
  zsh   put  eval "$(tensorwire completion zsh)"  into ~/.zshrc, behind compinit
  fish  tensorwire completion fish > ~/.config/fish/completions/tensorwire.fish"""
    parser.add_argument(
        "shell", metavar="SHELL", choices=sorted(shells.SCRIPTS), help="bash, zsh or fish"
    )
    examples(parser, "completion bash", "completion fish")


def run(args: argparse.Namespace) -> int:
    print(shells.SCRIPTS[args.shell](shells.commands()))
    return 0
