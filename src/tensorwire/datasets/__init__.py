"""Datasets of many shards: convert, reshard, shuffle, filter, split and sample them, on one machine
or on a cluster.

    converting        the public calls: convert, plan, run
    operations        split, sample, merge, shuffle, stats
    dispatch          tw.convert and tw.verify: tensor file or dataset
    tensor_files      conversion of files of tensors by name
    planner           makes a plan; shard_plan: the plan, as plain data
    driver            executes a plan; manifest: what is done; verification: checks it
    engines           run tasks: local processes, Ray
    task              one shard: a pure function that any engine runs
    row_selection     filters, splits and samples of rows
    external_shuffle  a shuffle of more than fits into memory; permutation: its random order
    statistics        counts and ranges of every feature
    progress          progress callbacks and the report

Every record is written to exactly one shard, even if workers or the driver are killed and the run
is repeated.

>>> import tempfile, numpy as np, tensorwire as tw
>>> folder = tempfile.mkdtemp()
>>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)}, shards=2)
>>> tw.datasets.convert(f"{folder}/a-*.tfrecord", f"{folder}/out", "parquet", workers=0).records
10
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
