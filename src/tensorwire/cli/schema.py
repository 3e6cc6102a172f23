"""The command `tensorwire schema`: the features of record files."""

from __future__ import annotations

import argparse

from ..records import paths, sidecar
from ..records.infer import infer_schema
from . import terminal
from .arguments import add_json, add_limits, add_names, add_records, examples, limits_of


def options(parser: argparse.ArgumentParser) -> None:
    add_records(parser)
    add_names(parser, "only these features")
    parser.add_argument("--full", action="store_true", help="read every record, not a sample")
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "schema 'train-*.tfrecord'",
        "schema train-00000-of-00002.tfrecord --columns label,ids --full --json",
    )


def run(args: argparse.Namespace) -> int:
    with terminal.bar() as bar:
        callback = (
            None
            if bar is None
            else lambda done, total: bar.show(done / total if total else 1.0, "")
        )
        files = paths.expand(args.files)
        schema = infer_schema(files, full=args.full, limits=limits_of(args), progress=callback)
        schema = sidecar.described(files, schema)
    terminal.show(schema if args.names is None else schema.select(args.names), args.json)
    return 0
