"""The command `tensorwire verify`: the integrity of a file or dataset."""

from __future__ import annotations

import argparse

from ..datasets.dispatch import verify
from . import terminal
from .arguments import add_file, add_json, add_limits, examples, limits_of, read_from


def options(parser: argparse.ArgumentParser) -> None:
    help = "a tensor file, checkpoint, record file or dataset folder, or - for standard input"
    add_file(parser, help)
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "verify model.safetensors",
        "verify train-00000-of-00002.tfrecord --json",
        "verify - < model.safetensors",
    )


def run(args: argparse.Namespace) -> int:
    with terminal.bytes_bar() as callback:
        report = verify(
            read_from(args.file), args.format, limits=limits_of(args), progress=callback
        )
    terminal.show(report, args.json)
    return 0 if report.ok else 1
