"""`convert` for datasets: record files, Parquet, Arrow, JSON lines, shards of tensors, from any to
any.
"""

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
    """What `convert` with the same arguments will do, as plain data: print it, keep `plan.json()`,
    or run `plan.task(i)` where you like.

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)}, shards=2)
    >>> made = plan(f"{folder}/a-*.tfrecord", f"{folder}/out", "parquet")
    >>> len(made), made.shard(0)
    (2, 'part-00000-of-00002.parquet')
    """
    with engines.using(engine, workers, engine_options) as crew:
        return planner.plan_for(src, dst, to, engine=crew, **options)


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
    """Writes a dataset in another format, in other shards, filtered or shuffled, and returns a
    `DatasetReport` (of a dry run, the `Plan`).

    `src` is a path, a pattern, a folder, a URL, or a list of them. `dst` is a folder, in which each
    source becomes a shard, unless `shards` says how many; or a file, if its name says the format.
    Formats: tfrecord, parquet, arrow, jsonl, npz, safetensors.

    schema     what the features are (tw.Schema or a path); found from the sources if not given
    columns    only these
    where      only records for which it holds: "label == 3 and len(tokens) < 512"
    shuffle    a seed: one order over all records, the same for any number of workers
    cast       {column: dtype}: fractions are rounded, what does not fit is an error
    tensors    columns that are kept exactly in an Example, as TensorProtos
    on_corrupt "skip" passes over what is damaged, and the report names each file
    engine     "local": processes of this machine; "ray": a Ray cluster (engine_options={"address":
               ...}); or one of your own
    resume     what an earlier run has done is not done again, if its size and time are those in the
               manifest
    verify     the checksums of what an earlier run has done are compared with the manifest, too
    overwrite  allows to replace a dataset that was made in another way; its shards are removed
               first
    progress   is called with how much is done (0 to 1) and a `Progress`: shards, records/s,
               bytes/s, seconds left

    >>> import tempfile, numpy as np, tensorwire as tw
    >>> folder = tempfile.mkdtemp()
    >>> _ = tw.write_examples(f"{folder}/a.tfrecord", {"x": np.arange(10)})
    >>> convert(f"{folder}/a.tfrecord", f"{folder}/out", "jsonl", where="x >= 8", workers=0).records
    2
    >>> with open(f"{folder}/out/part-00000-of-00001.jsonl") as lines:
    ...     print(lines.read(), end="")
    {"x":8}
    {"x":9}
    """
    return driver.plan_and_execute(
        lambda crew, beginning: planner.plan_for(
            src, dst, to, engine=crew, format=format, schema=schema, columns=columns, shards=shards, name=name, compression=compression,
            level=level, quantize=quantize, tensors=tensors, cast=cast, where=where, shuffle=shuffle, on_corrupt=on_corrupt, memory=memory,
            soon=not dry_run, beginning=beginning,
        ),
        engine, workers, engine_options, dry_run,
        resume=resume, verify=verify, overwrite=overwrite, progress=progress,
    )  # fmt: skip


def run(
    made: Plan,
    engine: Any = "local",
    *,
    resume: bool = True,
    verify: bool = False,
    overwrite: bool = False,
    progress: Tell | None = None,
) -> DatasetReport:
    """Runs a plan."""
    with engines.using(engine) as crew:
        return driver.execute(
            made,
            crew,
            resume=resume,
            verify=verify,
            overwrite=overwrite,
            progress=progress,
        )
