"""The command `tensorwire show`: the values of tensors and records."""

from __future__ import annotations

import argparse
import os
import sys

from .._errors import UsageError
from ..codecs.identify import holds_records
from ..explore import records, selection
from ..explore.contents import MOST, contents
from ..explore.pictures import Paint
from ..explore.values import Look
from ..records.filters import Where
from . import terminal
from .arguments import (
    add_format,
    add_json,
    add_limits,
    add_names,
    checked,
    count,
    examples,
    limits_of,
    read_from,
)

RECORDS = 5
"""The number of records that are shown without -n."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Print the values of tensors: statistics, the first and last values, and on a terminal a heat map or
histogram. For record files print the records with all their features. Only the parts that are shown
are read; statistics of large tensors come from a sample."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help=(
            "a tensor file, checkpoint or record file ('train-*.tfrecord'), or - for standard input"
        ),
    )
    parser.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="only these tensors or features; for tensors also glob patterns ('layers/*')",
    )
    add_names(parser, "the same, as a list with commas")
    parser.add_argument(
        "-n",
        "--number",
        type=count,
        metavar="N",
        help=(
            f"the number of tensors (default: {MOST}), of rows of named tensors (8) or of records"
            f" ({RECORDS}) to show; 0 for all"
        ),
    )
    parser.add_argument(
        "--slice",
        type=checked(selection.parse),
        metavar="SLICE",
        help="only this slice of each tensor, as in Python: '0,:,3'",
    )
    parser.add_argument("--heat", action="store_true", help="draw a heat map")
    parser.add_argument("--histogram", action="store_true", help="draw a histogram")
    parser.add_argument(
        "--all", action="store_true", help="compute statistics of whole tensors, not of samples"
    )
    parser.add_argument(
        "--skip", type=count, default=0, metavar="N", help="records: skip the first N"
    )
    parser.add_argument(
        "--where",
        type=checked(Where),
        metavar="EXPRESSION",
        help="records: only those that match, for example 'label == 3 and len(ids) > 2'",
    )
    add_format(parser)
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "show model.safetensors",
        "show model.safetensors 'layers/*' --histogram",
        "show predictions.npz logits --slice '0,:,:5' --heat",
        "show 'train-*.tfrecord' -n 3 --where 'label == 3 and len(ids) > 2'",
        "show train-00000-of-00002.tfrecord --columns label,ids --skip 10 --json",
    )


def run(args: argparse.Namespace) -> int:
    if args.format == "tfrecord" or (
        args.format is None and (_is_pattern(args.file) or holds_records(args.file))
    ):
        return _records(args)
    if args.where is not None or args.skip:
        raise UsageError("--where and --skip are only for record files")
    names = [*args.name, *(args.names or [])]
    pictures = terminal.is_terminal(sys.stdout) and not args.json
    chosen = True if args.heat else None if pictures and not args.histogram else False
    bars = True if args.histogram else None if pictures and not args.heat else False
    paint = Paint(max(terminal.width(), 20), terminal.true_colour(), terminal.unicode())
    rows = 8 if args.number is None or not names else args.number or 1 << 40
    look = Look(paint, chosen, bars, args.all, rows, args.slice)
    most = MOST if args.number is None else args.number or None
    limits = limits_of(args)
    shown = contents(
        read_from(args.file), names, format=args.format, most=most, look=look, limits=limits
    )
    if args.json:
        terminal.say_json(shown.json)
    else:
        terminal.say_lines(shown.lines)
    return 0


def _records(args: argparse.Namespace) -> int:
    given = [
        flag
        for flag, value in (
            ("--slice", args.slice),
            ("--heat", args.heat),
            ("--histogram", args.histogram),
        )
        if value
    ]
    if given:
        raise UsageError(f"{given[0]} is only for tensor files, and this is a record file")
    columns = [*args.name, *(args.names or [])]
    most = RECORDS if args.number is None else args.number or None
    chosen = {"skip": args.skip, "count": most, "where": args.where}
    matches = records.read(args.file, columns=columns, limits=limits_of(args), **chosen)
    for number, record in enumerate(matches):
        if args.json:
            terminal.say_json(record.json(columns or None), indent=None)
        else:
            terminal.say_lines(
                [
                    *([""] if number else []),
                    *record.lines(columns or None, max(terminal.width(), 100)),
                ]
            )
    return 0


def _is_pattern(file: str) -> bool:
    """Return whether the argument is a glob pattern and not the name of an existing file."""
    return any(character in file for character in "*?[") and not os.path.exists(file)
