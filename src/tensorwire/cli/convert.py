"""The command `tensorwire convert`: tensor files and datasets in another format."""

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
    help = (
        "a tensor file, checkpoint or SavedModel, or - for standard input; or a dataset: record"
        " files, a glob pattern, a folder or a URL"
    )
    parser.add_argument("source", metavar="SRC", help=help)
    parser.add_argument(
        "target",
        metavar="DST",
        help="the file to write, or - for standard output; for a dataset a file or a folder",
    )
    add_formats(parser, "any", "from the file name")
    parser.add_argument(
        "--rename",
        action="append",
        type=_rule,
        default=[],
        metavar="RULE",
        help="rename tensors, as sed does: s/pattern/replacement/[gi]",
    )
    parser.add_argument(
        "--map", metavar="FILE", help="rename tensors by a JSON object of old name: new name"
    )
    parser.add_argument(
        "--dtype",
        action="append",
        type=_dtype,
        default=[],
        metavar="[PATTERN=]D",
        help="cast floats to the dtype D, or only the tensors whose names match PATTERN",
    )
    parser.add_argument(
        "--include",
        action="append",
        metavar="PATTERN",
        help="convert only tensors whose names match",
    )
    parser.add_argument(
        "--exclude", action="append", metavar="PATTERN", help="leave out tensors whose names match"
    )
    parser.add_argument(
        "--shard-size",
        type=_size,
        metavar="N",
        help="write shards of at most N bytes (5GB) and an index, as on the Hugging Face Hub",
    )
    parser.add_argument(
        "--compression", metavar="C", help="gzip, zstd, lz4 ..., if the format supports it"
    )
    quantize = (
        "store floats in fewer bits (int8, bfloat16 ...), or only the named tensors; for a dataset"
        " the named columns"
    )
    parser.add_argument(
        "--quantize", action="append", default=[], metavar="[NAME=]SCHEME", help=quantize
    )
    dataset.add_choice(parser, "datasets: ")
    parser.add_argument(
        "--shuffle",
        type=count,
        metavar="SEED",
        help="datasets: shuffle all records; the same seed gives the same order",
    )
    parser.add_argument(
        "--cast",
        action="append",
        type=_cast,
        default=[],
        metavar="NAME=D",
        help="datasets: cast a column to another dtype, with rounding",
    )
    parser.add_argument(
        "--tensors",
        type=names,
        metavar="A,B",
        help="datasets: store these features bit-exactly in an Example, as TensorProtos",
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
        raise ValueError(f"expected NAME=D, for example label=int32, found {text!r}")
    dtypes.named(dtype)


_cast = checked(_parsed_cast, keep=True)


def run(args: argparse.Namespace) -> int:
    if (
        args.source != "-"
        and args.target != "-"
        and is_dataset(args.source, args.target, args.to, _dataset_options(args))
    ):
        terminal.show(_dataset(args), args.json)
        return 0
    if args.target != "-":
        terminal.show(_convert(args, args.target), args.json)
        return 0
    if args.to is None or args.shard_size is not None:
        raise UsageError(
            "writing to standard output needs --to FORMAT and does not support --shard-size"
        )
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


def _dataset_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the given options that only datasets have, and the format."""
    return {
        name: value
        for name in (*_OF_DATASETS, "format")
        if (value := getattr(args, name)) not in (None, [])
    }


def _dataset(args: argparse.Namespace) -> Any:
    for name in _OF_TENSORS:
        if getattr(args, name):
            raise UsageError(
                f"--{name.replace('_', '-')} is for tensor files, and the source is a dataset"
            )
    if args.shards == 0:
        raise UsageError("--shards must be at least 1")
    if args.to is None and of_name(args.target) is None:
        raise UsageError(
            f"cannot tell the format from the name {args.target!r:.80}",
            hint=f"pass --to: {', '.join(ROW_FORMATS)}",
        )
    for scheme in args.quantize:
        if "=" not in scheme:
            raise UsageError(
                "for a dataset, --quantize needs the name of a column",
                hint=f"write --quantize COLUMN={scheme}",
            )
    options: dict[str, Any] = {
        name: getattr(args, name)
        for name in ("columns", "where", "shuffle", "schema", "shards", "compression", "format")
    }
    options["tensors"] = args.tensors or ()
    pairs = {"cast": args.cast, "quantize": args.quantize}
    options |= {
        name: {pair.rpartition("=")[0]: pair.rpartition("=")[2] for pair in given}
        for name, given in pairs.items()
    }
    with terminal.bar() as bar:
        callback = None if bar is None else lambda done, progress: bar.show(done, str(progress))
        return convert_dataset(
            args.source,
            args.target,
            args.to,
            progress=callback,
            **options,
            **dataset.run_options(args),
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
    """Parse `[PATTERN=]VALUE` options: one value for all tensors, or a dict of them by pattern."""
    if not given:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return {pattern or "*": dtype for pattern, _, dtype in (text.rpartition("=") for text in given)}
