"""The command `tensorwire diff`: the differences between two tensor files."""

from __future__ import annotations

import argparse

from .._errors import UsageError
from ..api.comparison import diff
from . import terminal
from .arguments import add_json, add_limits, examples, limits_of, read_from
from .convert import _rule


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "a", metavar="A", help="a tensor file, checkpoint or SavedModel, or - for standard input"
    )
    parser.add_argument("b", metavar="B", help="the file to compare it with, in any format")
    parser.add_argument(
        "--rename",
        action="append",
        type=_rule,
        default=[],
        metavar="RULE",
        help="rename the tensors of A first: s/pattern/replacement/[gi]",
    )
    parser.add_argument(
        "--atol",
        type=_tolerance,
        metavar="X",
        help="absolute tolerance; values may differ by X, and dtypes are not compared",
    )
    parser.add_argument(
        "--rtol",
        type=_tolerance,
        metavar="X",
        help="relative tolerance, as a fraction of the larger value",
    )
    parser.add_argument("--all", action="store_true", help="show equal tensors too")
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "diff model.safetensors model.npz",
        "diff model.safetensors half.safetensors --atol 0.001 --json",
    )


def _tolerance(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, found {text}")
    return number


def run(args: argparse.Namespace) -> int:
    if args.a == args.b == "-":
        raise UsageError("only one of A and B can be standard input")
    tolerances = {"atol": args.atol, "rtol": args.rtol}
    differences = diff(
        read_from(args.a),
        read_from(args.b),
        rename=args.rename,
        limits=limits_of(args),
        **tolerances,
    )
    if args.json:
        terminal.say_json(differences.json())
    else:
        terminal.say(differences.shown(args.all))
    return 0 if differences.equal else 1
