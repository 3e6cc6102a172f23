"""Datasets of many shards: converted, resharded, shuffled, filtered, split and sampled, on one
machine or a cluster.

    converting  the call
    spec        what is done with every record
    plans       which shard reads what, as plain data; planning: how a plan is made
    task        one shard: a pure function that any engine runs
    engines     local processes, Ray
    driver      skips what is done, keeps the books; manifest: the books
    formats     tfrecord, parquet, arrow, jsonl, npz, safetensors as batches of columns
    batches choosing ordering shuffling statistics   rows: taken, filtered, ordered, shuffled, counted
    selecting   split, sample, merge, shuffle, stats

Every record is in exactly one shard, whoever dies on the way.
"""

from __future__ import annotations

from ..codecs.conversion_spec import ConversionSpec
from .converting import convert, plan, run
from .manifest import Manifest
from .operations import merge, sample, shuffle, split, stats
from .progress import DatasetReport, Progress
from .shard_plan import Plan

__all__ = [
    "ConversionSpec",
    "DatasetReport",
    "Manifest",
    "Plan",
    "Progress",
    "convert",
    "merge",
    "plan",
    "run",
    "sample",
    "shuffle",
    "split",
    "stats",
]
