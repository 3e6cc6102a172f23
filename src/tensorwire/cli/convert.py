"""tensorwire convert"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile

from .. import dtypes
from ..conversion import Report, convert, rules
from . import terminal
from .arguments import add_format, add_json, checked, completed, examples, format_name, read_from
from .parsing import UsageError


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="a tensor file, checkpoint or SavedModel, or - for standard input")
    parser.add_argument("target", metavar="DST", help="the file to write, or - for standard output")
    completed(
        parser.add_argument("--to", type=format_name, metavar="FORMAT", help="the format to write, if the name does not say it"), "format"
    )
    add_format(parser)
    parser.add_argument("--rename", action="append", type=_rule, default=[], metavar="RULE", help="like sed: s/pattern/replacement/[gi]")
    parser.add_argument("--map", metavar="FILE", help="new names by old name: a JSON object")
    parser.add_argument(
        "--dtype", action="append", type=_dtype, default=[], metavar="[PATTERN=]D", help="cast floats to D, or only those tensors"
    )
    parser.add_argument("--include", action="append", metavar="PATTERN", help="only tensors that are called so")
    parser.add_argument("--exclude", action="append", metavar="PATTERN", help="no tensors that are called so")
    parser.add_argument("--shard-size", type=_size, metavar="N", help="write files of at most N bytes (5GB) with an index, as the hubs do")
    parser.add_argument("--compression", metavar="C", help="gzip, zstd, lz4 ..., as far as the format has it")
    parser.add_argument("--quantize", metavar="SCHEME", help="store floats in fewer bits: int8, bfloat16 ...")
    parser.add_argument("--overwrite", action="store_true", help="replace DST if it is there")
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    add_json(parser)
    examples(
        parser,
        "convert model.safetensors model.npz",
        "convert predictions.npz small.safetensors --include logits --dtype float16 --compression gzip",
        "convert model.safetensors sharded.safetensors --rename 's/layers/blocks/' --shard-size 1MB --dry-run",
    )


_rule = checked(rules.rule, keep=True)
_dtype = checked(lambda text: dtypes.named(text.rpartition("=")[2]), keep=True)
_size = checked(rules.size, keep=True)


def run(args: argparse.Namespace) -> int:
    if args.target != "-":
        terminal.show(_convert(args, args.target), args.json)
        return 0
    if args.to is None or args.shard_size is not None:
        raise UsageError("to standard output goes one file, in the format that --to names")
    with tempfile.TemporaryDirectory(prefix="tensorwire-") as folder:
        target = os.path.join(folder, "target")
        report = _convert(args, target)
        if args.dry_run:
            terminal.show(report, args.json)
        else:
            with open(target, "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    return 0


def _convert(args: argparse.Namespace, target: str) -> Report:
    with terminal.bar() as bar:
        return convert(
            read_from(args.source),
            target,
            args.to,
            format=args.format,
            rename=[*_mapping(args.map), *args.rename],
            dtype=_dtypes(args.dtype),
            include=args.include,
            exclude=args.exclude,
            shard_size=args.shard_size,
            compression=args.compression,
            quantize=args.quantize,
            overwrite=args.overwrite,
            dry_run=args.dry_run,
            progress=None if bar is None else bar.show,
        )


def _mapping(path: str | None) -> list[dict[str, str]]:
    return [] if path is None else [rules.names_from(path)]


def _dtypes(given: list[str]) -> str | dict[str, str] | None:
    """One dtype for all, or one by pattern."""
    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return {pattern or "*": dtype for pattern, _, dtype in (one.rpartition("=") for one in given)}
