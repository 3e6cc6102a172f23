"""The command `tensorwire profile`: the best format and compression for a file's tensors."""

from __future__ import annotations

import argparse
from typing import Any

from .._errors import EncodeError, SchemaError, UnknownFormatError, UsageError, choices
from ..api import lazy
from ..api.profiling import Profile, profile
from ..api.profiling.choosing import WHAT
from ..api.profiling.plot import check
from ..codecs.identify import holds_records
from ..records.example_reader import read_examples
from . import terminal
from .arguments import (
    FILES,
    add_file,
    add_json,
    add_limits,
    completed,
    examples,
    limits_of,
    read_from,
)

ROWS = 1024
"""The number of records that are measured of a record file."""


def options(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--name", metavar="TENSOR", help="measure only this tensor of the file")
    parser.add_argument("--formats", type=_list, metavar="A,B", help="only these formats")
    parser.add_argument(
        "--compressions",
        type=_list,
        metavar="A,B",
        help="only these compressions, with or without levels (zstd,zstd:19), or none",
    )
    parser.add_argument(
        "--quantize", type=_list, metavar="A,B", help="only these quantization schemes, or none"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="the time limit in seconds (default: 10)"
    )
    parser.add_argument(
        "--all", action="store_true", help="measure large values as a whole, not a sample of them"
    )
    parser.add_argument("--best", choices=WHAT, help="print only the best choice for this goal")
    parser.add_argument("--lossy", action="store_true", help="with --best: allow quantization")
    completed(
        parser.add_argument(
            "--plot", metavar="FILE", help="plot size against speed to an .svg, .png or .pdf file"
        ),
        FILES,
    )
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "profile predictions.npz --seconds 2",
        "profile model.safetensors --name embedding --formats safetensors,npz --compressions zlib"
        " --best size",
        "profile train-00000-of-00002.tfrecord --seconds 1 --json",
    )


def _list(text: str) -> list[str]:
    return [] if text == "none" else text.split(",")


def run(args: argparse.Namespace) -> int:
    if args.plot is not None:
        # Check the file name first: measuring takes seconds.
        try:
            check(args.plot)
        except ValueError as error:
            raise UsageError(str(error)) from None
    value = _value(args)
    limits: dict[str, Any] = {"sample": None} if args.all else {}
    try:
        result = profile(
            value,
            formats=args.formats,
            compressions=args.compressions,
            quantize=args.quantize,
            seconds=args.seconds,
            **limits,
        )
    except EncodeError:
        raise
    except (UnknownFormatError, ValueError) as error:
        raise UsageError(str(error)) from None
    if args.plot is not None:
        result.plot(args.plot)
    _print(result, args)
    return 1 if result.wrong else 0


def _print(result: Profile, args: argparse.Namespace) -> None:
    if args.best is None:
        terminal.show(result, args.json)
        return
    best = result.best(args.best, lossy=args.lossy)
    if args.json:
        terminal.say_json(best.json())
        return
    given = ", ".join(f"{name}={option!r}" for name, option in best.options.items())
    terminal.say(f"{best.why}\ntw.dumps(x, {given})")


def _value(args: argparse.Namespace) -> Any:
    """Return the value of a file; for a record file, the columns of its first records."""
    if holds_records(args.file, args.format):
        batch = next(
            iter(read_examples(args.file, batch_size=ROWS, workers=0, limits=limits_of(args))), None
        )
        if batch is None:
            raise SchemaError("the file has no records to measure", path=args.file)
        value = dict(batch)
        if not args.json and args.best is None:
            terminal.say(f"columns of the first records (at most {ROWS:,}):")
    elif args.name is not None:
        return lazy.load(
            read_from(args.file), args.format, names=[args.name], limits=limits_of(args)
        )[args.name]
    else:
        return lazy.load(read_from(args.file), args.format, limits=limits_of(args))
    if args.name is None:
        return value
    if args.name not in value:
        raise SchemaError(f"no column {args.name!r}{choices(args.name, value)}", path=args.file)
    return value[args.name]
