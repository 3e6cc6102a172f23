"""The command `tensorwire formats`: the list of formats."""

from __future__ import annotations

import argparse

from ..api import values as api
from . import terminal
from .arguments import add_json, examples


def options(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    examples(parser, "formats", "formats --json")


def run(args: argparse.Namespace) -> int:
    rows = api.formats().values()
    if args.json:
        terminal.say_json([{**row._asdict(), "suffixes": list(row.suffixes)} for row in rows])
        return 0
    width = max(len(row.name) for row in rows)
    for row in rows:
        terminal.say(
            f"{row.name:{width}} "
            f" {row.about}{'' if row.recognised else ' (not detected: pass --format)'}"
        )
    return 0
