"""The command `tensorwire repair`: the good records of a damaged record file."""

from __future__ import annotations

import argparse

from ..records.repair import repair
from . import terminal
from .arguments import add_json, add_limits, examples, limits_of


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a damaged record file")
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help="the file to write the good records to; without it the damage is only reported",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace TARGET if it exists")
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "repair train-00000-of-00002.tfrecord",
        "repair train-00000-of-00002.tfrecord good.tfrecord --json",
    )


def run(args: argparse.Namespace) -> int:
    with terminal.bytes_bar() as tell:
        report = repair(
            args.file, args.target, overwrite=args.overwrite, limits=limits_of(args), progress=tell
        )
    terminal.show(report, args.json)
    return 0 if report.ok else 1
