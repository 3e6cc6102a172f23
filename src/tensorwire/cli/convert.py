"""tensorwire convert"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from typing import Any

from .._errors import UsageError
from ..api import rename_rules
from ..codecs import ROW_FORMATS
from ..codecs.rows import of_name
from ..core import dtypes
from ..datasets.converting import convert as convert_dataset
from ..datasets.dispatch import is_dataset
from ..datasets.tensor_files import ConversionReport, convert
from . import dataset, terminal
from .arguments import (
    add_formats,
    add_json,
    add_limits,
    checked,
    count,
    examples,
    limits_of,
    names,
    read_from,
)


def options(parser: argparse.ArgumentParser) -> None:
    what = (
        "a tensor file, checkpoint or SavedModel, or - for standard input; or a dataset: record"
        " files, a pattern, a folder, a URL"
    )
    parser.add_argument("source", metavar="SRC", help=what)
    parser.add_argument(
        "target",
        metavar="DST",
        help="the file to write, or - for standard output; of a dataset a folder, too",
    )
    add_formats(parser, "any", "if the name does not say it")
    parser.add_argument(
        "--rename",
        action="append",
        type=_rule,
        default=[],
        metavar="RULE",
        help="like sed: s/pattern/replacement/[gi]",
    )
    parser.add_argument("--map", metavar="FILE", help="new names by old name: a JSON object")
    parser.add_argument(
        "--dtype",
        action="append",
        type=_dtype,
        default=[],
        metavar="[PATTERN=]D",
        help="cast floats to D, or only those tensors",
    )
    parser.add_argument(
        "--include", action="append", metavar="PATTERN", help="only tensors that are called so"
    )
    parser.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="no tensors that are called so"
    )
    parser.add_argument(
        "--shard-size",
        type=_size,
        metavar="N",
        help="write files of at most N bytes (5GB) with an index, as the hubs do",
    )
    parser.add_argument(
        "--compression", metavar="C", help="gzip, zstd, lz4 ..., as far as the format has it"
    )
    few = (
        "store floats in fewer bits (int8, bfloat16 ...), or only those tensors; of a dataset,"
        " those columns"
    )
    parser.add_argument(
        "--quantize", action="append", default=[], metavar="[NAME=]SCHEME", help=few
    )
    dataset.add_choice(parser, "datasets: ")
    parser.add_argument(
        "--shuffle",
        type=count,
        metavar="SEED",
        help="datasets: one order over all records, the same for the same seed",
    )
    parser.add_argument(
        "--cast",
        action="append",
        type=_cast,
        default=[],
        metavar="NAME=D",
        help="datasets: a column as another dtype, rounded if need be",
    )
    parser.add_argument(
        "--tensors",
        type=names,
        metavar="A,B",
        help="datasets: features that an Example keeps exactly, as TensorProtos",
    )
    dataset.add_run(parser)
    add_limits(parser)
    add_json(parser)
    examples(
        parser,
        "convert model.safetensors model.npz",
        "convert predictions.npz small.safetensors --include logits --dtype float16 --compression"
        " gzip",
        "convert model.safetensors sharded.safetensors --rename 's/layers/blocks/' --shard-size 1MB"
        " --dry-run",
        "convert 'train-*.tfrecord' lines --to jsonl --shards 3 --where 'label < 5'",
    )


_rule = checked(rename_rules.rule, keep=True)
_dtype = checked(lambda text: dtypes.named(text.rpartition("=")[2]), keep=True)
_size = checked(rename_rules.size, keep=True)


def _parsed_cast(text: str) -> None:
    name, equals, dtype = text.rpartition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is no NAME=D, such as label=int32")
    dtypes.named(dtype)


_cast = checked(_parsed_cast, keep=True)


def run(args: argparse.Namespace) -> int:
    if (
        args.source != "-"
        and args.target != "-"
        and is_dataset(args.source, args.target, args.to, _asked(args))
    ):
        terminal.show(_dataset(args), args.json)
        return 0
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


_OF_DATASETS = ("columns", "where", "shuffle", "schema", "cast", "tensors", "shards", "workers")
_OF_TENSORS = ("rename", "map", "dtype", "include", "exclude", "shard_size", "limit")


def _asked(args: argparse.Namespace) -> dict[str, Any]:
    """Options that say whether this is a dataset."""
    return {
        name: value
        for name in (*_OF_DATASETS, "format")
        if (value := getattr(args, name)) not in (None, [])
    }


def _dataset(args: argparse.Namespace) -> Any:
    for name in _OF_TENSORS:
        if getattr(args, name):
            raise UsageError(
                f"--{name.replace('_', '-')} is for tensor files, and this is a dataset"
            )
    if args.shards == 0:
        raise UsageError("--shards 0: one file at least")
    if args.to is None and of_name(args.target) is None:
        raise UsageError(f"--to says which format: {', '.join(ROW_FORMATS)}")
    for one in args.quantize:
        if "=" not in one:
            raise UsageError(f"of a dataset, --quantize names the column: --quantize x={one}")
    options: dict[str, Any] = {
        name: getattr(args, name)
        for name in ("columns", "where", "shuffle", "schema", "shards", "compression", "format")
    }
    options["tensors"] = args.tensors or ()
    pairs = {"cast": args.cast, "quantize": args.quantize}
    options |= {
        name: {one.rpartition("=")[0]: one.rpartition("=")[2] for one in given}
        for name, given in pairs.items()
    }
    with terminal.bar() as bar:
        tell = None if bar is None else lambda done, progress: bar.show(done, str(progress))
        return convert_dataset(
            args.source, args.target, args.to, progress=tell, **options, **dataset.run_options(args)
        )


def _convert(args: argparse.Namespace, target: str) -> ConversionReport:
    with terminal.bar() as bar:
        return convert(
            read_from(args.source),
            target,
            args.to,
            format=args.format,
            rename=[*_mapping(args.map), *args.rename],
            dtype=_by_pattern(args.dtype),
            include=args.include,
            exclude=args.exclude,
            shard_size=args.shard_size,
            compression=args.compression,
            quantize=_by_pattern(args.quantize),
            overwrite=args.overwrite,
            dry_run=args.dry_run,
            limits=limits_of(args),
            progress=None if bar is None else bar.show,
        )


def _mapping(path: str | None) -> list[dict[str, str]]:
    return [] if path is None else [rename_rules.names_from(path)]


def _by_pattern(given: list[str]) -> str | dict[str, str] | None:
    """One dtype or scheme for all, or one by pattern."""
    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return {pattern or "*": dtype for pattern, _, dtype in (one.rpartition("=") for one in given)}
