"""Conversion of datasets between record files, Parquet, Arrow, JSON lines and shards of tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import driver, engines, planner
from .progress import DatasetReport, Tell
from .shard_plan import Plan


def plan(
    src: Any,
    dst: str | os.PathLike[str],
    to: str | None = None,
    *,
    engine: Any = "local",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    **options: Any,
) -> Plan:
    """Returns the plan that `convert` with the same arguments would run. Nothing is written.

    A plan is plain data: print it, store `plan.json()`, run it with `datasets.run`, or run single
    tasks (`plan.task(i)`) with a scheduler of your own. Raises the errors of `convert` that can be
    found before data is read.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)}, shards=2)
    >>> made = tw.datasets.plan(f"{folder}/a-*.tfrecord", f"{folder}/out", "parquet")
    >>> len(made), made.shard(0)
    (2, 'part-00000-of-00002.parquet')
    """
    with engines.using(engine, workers, engine_options) as opened:
        return planner.plan_for(src, dst, to, engine=opened, **options)


def convert(
    src: Any,
    dst: str | os.PathLike[str],
    to: str | None = None,
    *,
    format: str | None = None,
    schema: Any = None,
    columns: Sequence[str] | None = None,
    shards: int | None = None,
    name: str = "part",
    compression: str | None = None,
    level: int | None = None,
    quantize: Mapping[str, str] | None = None,
    tensors: Sequence[str] = (),
    cast: Mapping[str, str] | None = None,
    where: str | None = None,
    shuffle: int | bool | None = None,
    on_corrupt: str = "raise",
    engine: Any = "local",
    engine_options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    resume: bool = True,
    verify: bool = False,
    overwrite: bool = False,
    memory: int = 2 << 30,
    dry_run: bool = False,
    progress: Tell | None = None,
) -> Any:
    """Converts a dataset to another format or another number of shards, filtered or shuffled.

    Returns a `DatasetReport`, or the `Plan` with `dry_run=True`. `src` is a path, a glob pattern, a
    folder, a URL, or a list of them. `dst` is a folder with one shard for each source unless
    `shards` is given, or a single file if its extension names the format. Formats: tfrecord,
    parquet, arrow, jsonl, npz, safetensors.

    schema     the features (tw.Schema or a path); inferred from the sources by default
    columns    read and write only these columns
    where      keep only matching records: "label == 3 and len(tokens) < 512"
    shuffle    a seed: one random order over all records, the same for any number of workers
    cast       {column: dtype}: fractions are rounded, values out of range are an error
    tensors    columns that are stored exactly in an Example, as TensorProtos
    on_corrupt "skip" leaves damaged data out, and the report lists each file
    engine     "local": processes on this machine; "ray": a Ray cluster (engine_options={"address":
               ...}); or an `Engine` of your own
    resume     skip shards of an earlier run whose size and time match the manifest
    verify     compare the checksums of these shards with the manifest, too
    overwrite  allow replacing a dataset that was made with other options; its shards are removed
               first
    progress   called with the share that is done (0 to 1) and a `Progress`: shards, records/s,
               bytes/s, seconds left

    Raises `UsageError` for options that do not fit each other or the target format, `SchemaError`
    for sources that do not have the columns asked for, `DecodeError` for damaged sources, and
    `FileExistsError` if `dst` has other files and `overwrite` is not set.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)})
    >>> tw.datasets.convert(
    ...     f"{folder}/a.tfrecord", f"{folder}/out", "jsonl", where="x >= 8", workers=0
    ... ).records
    2
    >>> with open(f"{folder}/out/part-00000-of-00001.jsonl") as lines:
    ...     print(lines.read(), end="")
    {"x":8}
    {"x":9}
    """
    return driver.plan_and_execute(
        lambda opened, beginning: planner.plan_for(
            src,
            dst,
            to,
            engine=opened,
            format=format,
            schema=schema,
            columns=columns,
            shards=shards,
            name=name,
            compression=compression,
            level=level,
            quantize=quantize,
            tensors=tensors,
            cast=cast,
            where=where,
            shuffle=shuffle,
            on_corrupt=on_corrupt,
            memory=memory,
            soon=not dry_run,
            beginning=beginning,
        ),
        engine,
        workers,
        engine_options,
        dry_run,
        resume=resume,
        verify=verify,
        overwrite=overwrite,
        progress=progress,
    )


def run(
    made: Plan,
    engine: Any = "local",
    *,
    resume: bool = True,
    verify: bool = False,
    overwrite: bool = False,
    progress: Tell | None = None,
) -> DatasetReport:
    """Runs a plan that `plan` has made, and returns a `DatasetReport`.

    `engine`, `resume`, `verify`, `overwrite` and `progress` are those of `convert`. Raises
    `DecodeError` if a source has changed since the plan was made.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)})
    >>> made = tw.datasets.plan(f"{folder}/a.tfrecord", f"{folder}/out", "jsonl")
    >>> tw.datasets.run(made).written
    1
    """
    with engines.using(engine) as opened:
        return driver.execute(
            made,
            opened,
            resume=resume,
            verify=verify,
            overwrite=overwrite,
            progress=progress,
        )
