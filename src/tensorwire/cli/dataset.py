"""tensorwire dataset"""

from __future__ import annotations

import argparse
import math
from typing import Any

from .._errors import UsageError
from ..datasets import merge, sample, shuffle, split, stats
from ..datasets.row_selection import Condition
from . import terminal
from .arguments import add_formats, add_json, checked, count, examples, names

WORK = ("stats", "split", "sample", "merge", "shuffle")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("work", metavar="WORK", choices=WORK, help="what to do")
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help=(
            "files, patterns, folders or URLs; the last one is the folder to write, or the file"
            " (all.parquet)"
        ),
    )
    add_formats(parser, "dataset", "if not that of the sources")
    parser.add_argument(
        "--by",
        metavar="FEATURE",
        help="split: its hash decides; sample: of each of its values the same part",
    )
    parser.add_argument(
        "--shares",
        type=_shares,
        metavar="A=X,B=Y",
        help="split: names and shares that sum to 1 (train=0.9,validation=0.1)",
    )
    parser.add_argument(
        "--drop-rest",
        action="store_true",
        help="split: shares may sum to less than 1; the other records are left out",
    )
    parser.add_argument("--fraction", type=_fraction, metavar="X", help="sample: the part to keep")
    parser.add_argument(
        "--records", type=count, metavar="N", help="sample: the number of records to keep"
    )
    parser.add_argument(
        "--seed",
        type=count,
        default=0,
        metavar="N",
        help="split, sample, shuffle: another one, another choice (0)",
    )
    add_choice(parser)
    parser.add_argument(
        "--compression", metavar="C", help="gzip, zstd, snappy ..., as far as the format has it"
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


def add_choice(parser: argparse.ArgumentParser, of: str = "") -> None:
    """What of a dataset is taken, and what it is."""
    where = f"{of}only records for which it holds: label == 3 and len(ids) > 2"
    parser.add_argument("--columns", type=names, metavar="A,B", help=f"{of}only these features")
    parser.add_argument(
        "--where", type=checked(Condition, keep=True), metavar="EXPRESSION", help=where
    )
    parser.add_argument("--schema", metavar="FILE", help=f"{of}what the features are, as JSON")


def add_run(parser: argparse.ArgumentParser) -> None:
    """How a dataset is written, and by whom."""
    parser.add_argument(
        "--shards",
        type=count,
        metavar="N",
        help="how many files to write; as many as there are sources if not said",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        metavar="ENGINE",
        help="who does the work",
    )
    parser.add_argument(
        "--address",
        metavar="HOST",
        help="ray: the cluster to join; one on this machine if not said",
    )
    parser.add_argument(
        "--workers", type=count, metavar="N", help="how many at once; 0 for this process alone"
    )
    parser.add_argument(
        "--on-corrupt",
        choices=("raise", "skip"),
        default="raise",
        metavar="WHAT",
        help="what to do with damage",
    )
    parser.add_argument(
        "--no-resume", action="store_true", help="do everything again, what is done too"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read what is done already, and compare its checksums with the manifest",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what is in the folder")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and write nothing"
    )


def _parsed_shares(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in text.split(","):
        name, _, part = one.partition("=")
        if (name := name.strip()) in found:
            raise ValueError(f"{name!r} stands twice")
        found[name] = _part(part)
    return found


def _part(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text.strip()} is no part of anything")
    return value


_shares = checked(_parsed_shares)
_fraction = checked(_part)


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
    for name, works in (_ONLY | dict.fromkeys(_WRITING, WORK[1:])).items():
        if getattr(args, name) not in (None, False) and args.work not in works:
            raise UsageError(
                f"--{name.replace('_', '-')} is for {' and '.join(works)}, not for {args.work}"
            )
    with terminal.bar() as bar:
        tell = None if bar is None else lambda done, progress: bar.show(done, str(progress))
        found = _stats(args, tell) if args.work == "stats" else _written(args, tell)
    terminal.show(found, args.json)
    return 0


def _stats(args: argparse.Namespace, tell: Any) -> Any:
    return stats(
        args.paths, format=args.format, on_corrupt=args.on_corrupt, progress=tell, **_engine(args)
    )


def _written(args: argparse.Namespace, tell: Any) -> Any:
    *sources, target = args.paths
    if not sources:
        raise UsageError(f"{args.work} reads sources and writes a folder: two paths at least")
    how = {
        name: getattr(args, name)
        for name in ("to", "format", "columns", "where", "schema", "compression", "shards")
    }
    how |= run_options(args) | {"progress": tell}
    if args.work == "split":
        if args.shares is None:
            raise UsageError("split needs --shares, such as train=0.9,validation=0.1")
        return split(
            sources,
            target,
            args.shares,
            by=args.by,
            seed=args.seed,
            drop_rest=args.drop_rest,
            **how,
        )
    if args.work == "sample":
        if (args.fraction is None) == (args.records is None):
            raise UsageError("sample needs --fraction or --records, one of them")
        return sample(
            sources, target, args.fraction, records=args.records, by=args.by, seed=args.seed, **how
        )
    if args.work == "shuffle":
        return shuffle(sources, target, args.seed, **how)
    return merge(sources, target, **how)


def run_options(args: argparse.Namespace) -> dict[str, Any]:
    """What `add_run` has asked for, other than shards."""
    how = {"on_corrupt": args.on_corrupt, "resume": not args.no_resume, "verify": args.verify}
    how |= {"overwrite": args.overwrite, "dry_run": args.dry_run}
    return how | _engine(args)


def _engine(args: argparse.Namespace) -> dict[str, Any]:
    if args.address is not None and args.engine != "ray":
        raise UsageError("--address is for --engine ray")
    options = {"address": args.address} if args.address is not None else None
    return {"engine": args.engine, "engine_options": options, "workers": args.workers}
