"""The command `tensorwire dataset`: operations on datasets of many files."""

from __future__ import annotations

import argparse
import math
from typing import Any

from .._errors import UsageError
from ..datasets import merge, sample, shuffle, split, stats
from ..datasets.row_selection import Condition
from . import terminal
from .arguments import add_formats, add_json, checked, count, examples, names

OPERATIONS = ("stats", "split", "sample", "merge", "shuffle")


def options(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Compute statistics of a dataset of many files, or write a new dataset from it.

  stats    print the number of files, records and bytes, and statistics of every feature
  split    divide the records into parts, for example train and validation (--shares)
  sample   keep a fraction of the records, or a number of them (--fraction, --records)
  merge    write the records of all sources, in order, to one dataset
  shuffle  write all records in random order (--seed)"""
    parser.add_argument("work", metavar="OPERATION", choices=OPERATIONS, help="the operation")
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help=(
            "files, glob patterns, folders or URLs to read; except for stats the last path is the"
            " folder or file to write"
        ),
    )
    add_formats(parser, "dataset", "that of the sources")
    parser.add_argument(
        "--by",
        metavar="FEATURE",
        help=(
            "split: keep all records with the same value of this feature in one part; sample: take"
            " the same fraction of the records of each value"
        ),
    )
    parser.add_argument(
        "--shares",
        type=_shares,
        metavar="A=X,B=Y",
        help="split: the parts and their shares, which sum to 1 (train=0.9,validation=0.1)",
    )
    parser.add_argument(
        "--drop-rest",
        action="store_true",
        help="split: the shares may sum to less than 1; the other records are dropped",
    )
    parser.add_argument(
        "--fraction", type=_fraction, metavar="X", help="sample: the fraction of records to keep"
    )
    parser.add_argument(
        "--records", type=count, metavar="N", help="sample: the number of records to keep"
    )
    parser.add_argument(
        "--seed",
        type=count,
        default=0,
        metavar="N",
        help="split, sample, shuffle: the random seed (default: 0)",
    )
    add_choice(parser)
    parser.add_argument(
        "--compression", metavar="C", help="gzip, zstd, snappy ..., if the format supports it"
    )
    add_run(parser)
    add_json(parser)
    examples(
        parser,
        "dataset stats 'train-*.tfrecord'",
        "dataset split 'train-*.tfrecord' parts --shares train=0.8,validation=0.2 --by label",
        "dataset sample 'train-*.tfrecord' few --fraction 0.1 --by label",
        "dataset shuffle 'train-*.tfrecord' shuffled --seed 7 --shards 2",
    )


def add_choice(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    """Add the options that choose columns and records, and `--schema`."""
    where = f"{prefix}only records that match, for example 'label == 3 and len(ids) > 2'"
    parser.add_argument("--columns", type=names, metavar="A,B", help=f"{prefix}only these features")
    parser.add_argument(
        "--where", type=checked(Condition, keep=True), metavar="EXPRESSION", help=where
    )
    parser.add_argument(
        "--schema", metavar="FILE", help=f"{prefix}the schema of the features, a JSON file"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a dataset is written, and on which engine."""
    parser.add_argument(
        "--shards",
        type=count,
        metavar="N",
        help="the number of files to write (default: one for each source file)",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        metavar="ENGINE",
        help="where the tasks run",
    )
    parser.add_argument(
        "--address",
        metavar="HOST",
        help="ray: the cluster to join (default: start one on this machine)",
    )
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="the number of worker processes; 0 runs everything in this process",
    )
    parser.add_argument(
        "--on-corrupt",
        choices=("raise", "skip"),
        default="raise",
        metavar="WHAT",
        help="what to do with damaged records",
    )
    parser.add_argument(
        "--no-resume", action="store_true", help="start again instead of resuming a stopped run"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="when resuming, compare finished shards with the checksums in the manifest",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing target")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done and write nothing"
    )


def _parsed_shares(text: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for entry in text.split(","):
        name, _, share = entry.partition("=")
        if (name := name.strip()) in shares:
            raise ValueError(f"duplicate name {name!r}")
        shares[name] = _share(share)
    return shares


def _share(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {text.strip()}")
    return value


_shares = checked(_parsed_shares)
_fraction = checked(_share)


_ONLY = {
    "by": ("split", "sample"),
    "shares": ("split",),
    "drop_rest": ("split",),
    "fraction": ("sample",),
    "records": ("sample",),
}
_WRITING = (
    "to",
    "columns",
    "where",
    "schema",
    "compression",
    "shards",
    "no_resume",
    "verify",
    "overwrite",
    "dry_run",
)


def run(args: argparse.Namespace) -> int:
    for name, operations in (_ONLY | dict.fromkeys(_WRITING, OPERATIONS[1:])).items():
        if getattr(args, name) not in (None, False) and args.work not in operations:
            raise UsageError(
                f"--{name.replace('_', '-')} is for {' and '.join(operations)}, not for {args.work}"
            )
    with terminal.bar() as bar:
        callback = None if bar is None else lambda done, progress: bar.show(done, str(progress))
        report = _stats(args, callback) if args.work == "stats" else _written(args, callback)
    terminal.show(report, args.json)
    return 0


def _stats(args: argparse.Namespace, callback: Any) -> Any:
    return stats(
        args.paths,
        format=args.format,
        on_corrupt=args.on_corrupt,
        progress=callback,
        **_engine(args),
    )


def _written(args: argparse.Namespace, callback: Any) -> Any:
    """Run an operation that writes a dataset, and return its report."""
    *sources, target = args.paths
    if not sources:
        raise UsageError(
            f"{args.work} needs at least two paths: the sources and the target to write"
        )
    options = {
        name: getattr(args, name)
        for name in ("to", "format", "columns", "where", "schema", "compression", "shards")
    }
    options |= run_options(args) | {"progress": callback}
    if args.work == "split":
        if args.shares is None:
            raise UsageError("split needs --shares, for example train=0.9,validation=0.1")
        return split(
            sources,
            target,
            args.shares,
            by=args.by,
            seed=args.seed,
            drop_rest=args.drop_rest,
            **options,
        )
    if args.work == "sample":
        if (args.fraction is None) == (args.records is None):
            raise UsageError("sample needs either --fraction or --records")
        return sample(
            sources,
            target,
            args.fraction,
            records=args.records,
            by=args.by,
            seed=args.seed,
            **options,
        )
    if args.work == "shuffle":
        return shuffle(sources, target, args.seed, **options)
    return merge(sources, target, **options)


def run_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options of `add_run`, except `--shards`."""
    options = {"on_corrupt": args.on_corrupt, "resume": not args.no_resume, "verify": args.verify}
    options |= {"overwrite": args.overwrite, "dry_run": args.dry_run}
    return options | _engine(args)


def _engine(args: argparse.Namespace) -> dict[str, Any]:
    if args.address is not None and args.engine != "ray":
        raise UsageError("--address needs --engine ray")
    options = {"address": args.address} if args.address is not None else None
    return {"engine": args.engine, "engine_options": options, "workers": args.workers}
