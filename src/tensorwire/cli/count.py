"""The command `tensorwire count`: the number of records in record files."""

from __future__ import annotations

import argparse

from ..records.record_reader import RecordReader
from . import terminal
from .arguments import add_json, add_limits, add_records, examples, limits_of


def options(parser: argparse.ArgumentParser) -> None:
    add_records(parser)
    add_limits(parser)
    add_json(parser)
    examples(parser, "count train-00000-of-00002.tfrecord", "count 'train-*.tfrecord' --json")


def run(args: argparse.Namespace) -> int:
    paths = RecordReader(args.files).paths
    counts: dict[str, int] = {}
    with terminal.bar() as bar:
        for number, path in enumerate(paths):
            if bar is not None:
                bar.show(number / len(paths), path)
            counts[path] = len(RecordReader([path], limits=limits_of(args)))
    if args.json:
        terminal.say_json({"files": counts, "records": sum(counts.values())})
        return 0
    for path, count in counts.items() if len(counts) > 1 else ():
        terminal.say(f"{count:>15,}  {path}")
    terminal.say(f"{sum(counts.values()):>15,}  records")
    return 0
