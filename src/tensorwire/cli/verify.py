"""tensorwire verify"""

from __future__ import annotations

import argparse

from ..datasets.dispatch import verify
from . import terminal
from .arguments import add_file, add_json, add_limits, examples, limits_of, read_from


def options(parser: argparse.ArgumentParser) -> None:
    what = "a tensor file, checkpoint, record file or dataset folder, or - for standard input"
    add_file(parser, what)
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "verify model.safetensors",
        "verify train-00000-of-00002.tfrecord --json",
        "verify - < model.safetensors",
    )


def run(args: argparse.Namespace) -> int:
    with terminal.bytes_bar() as tell:
        found = verify(read_from(args.file), args.format, limits=limits_of(args), progress=tell)
    terminal.show(found, args.json)
    return 0 if found.ok else 1
