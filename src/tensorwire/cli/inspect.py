"""The command `tensorwire inspect`: what a file contains."""

from __future__ import annotations

import argparse

from ..api import summary
from ..records.summary import RecordSummary
from . import terminal
from .arguments import add_file, add_json, add_limits, examples, limits_of, read_from


def options(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "inspect model.safetensors",
        "inspect train-00000-of-00002.tfrecord --json",
        "inspect - < predictions.npz",
    )


def run(args: argparse.Namespace) -> int:
    result = summary.inspect(read_from(args.file), args.format, limits=limits_of(args))
    terminal.show(result, args.json)
    return 1 if isinstance(result, RecordSummary) and result.problems else 0
