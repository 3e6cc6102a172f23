"""Conformance checks for dataset engines.

1. Every task is run once and has one outcome.
2. An error comes back with its type, path and record; the other tasks go on.
3. Closing the iterator of outcomes stops the engine, which can then be used again.
4. Tasks are taken lazily, as workers become free.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from .. import datasets
from .._errors import DecodeError, TensorwireError
from ..datasets.engines import Engine
from ..records.example_writer import write_examples
from ..records.record_reader import RecordReader
from ..records.schema import Feature

_SHARDS, _EACH = 12, 25


def check_engine(engine: Engine, folder: str | None = None) -> dict[str, Any]:
    """Convert a small dataset with an engine and check the result.

    `folder` must be visible to all workers; the default is a temporary folder on this machine.

    Returns the number of shards and records. Raises AssertionError if a check fails.

    >>> import tensorwire as tw
    >>> from tensorwire.datasets.engines.local import LocalEngine
    >>> from tensorwire.testing import check_engine
    >>> check_engine(LocalEngine(workers=0))["shards"]
    12
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tensorwire-") as temporary:
            return check_engine(engine, temporary)
    source = os.path.join(folder, "source.tfrecord")
    numbers = np.arange(_SHARDS * _EACH)
    write_examples(
        source,
        {"n": numbers, "text": [f"row {n}" for n in numbers]},
        shards=_SHARDS,
        schema_file=False,
    )
    pattern = os.path.join(folder, "source-*.tfrecord")
    _check_outcomes(
        engine, datasets.plan(pattern, os.path.join(folder, "plain"), "jsonl", engine=engine)
    )
    report = datasets.convert(
        pattern, os.path.join(folder, "out"), "tfrecord", shards=7, shuffle=1, engine=engine
    )
    assert (report.records, report.shards, report.written) == (len(numbers), 7, 7), report
    back = sorted(RecordReader(os.path.join(folder, "out", "*.tfrecord"), index=False))
    assert back == sorted(RecordReader(pattern, index=False)), "records were lost or repeated"
    again = datasets.convert(
        pattern, os.path.join(folder, "out"), "tfrecord", shards=7, shuffle=1, engine=engine
    )
    assert again.written == 0, "finished shards were written again"
    _check_error(engine, source, folder)
    _check_leaving(engine, pattern, folder)
    return {"shards": _SHARDS, "records": report.records}


def _check_outcomes(engine: Engine, plan: datasets.Plan) -> None:
    os.makedirs(plan.target)
    tasks = [plan.task(i) for i in range(len(plan))]
    outcomes = list(engine.run(plan.spec, iter(tasks)))
    assert sorted(outcome.task["number"] for outcome in outcomes) == list(range(len(plan))), (
        "expected one outcome per task"
    )
    for outcome in outcomes:
        assert outcome.error is None and outcome.report is not None, outcome
        assert (
            outcome.report["records"] == _EACH
            and os.path.getsize(outcome.task["path"]) == outcome.report["bytes"]
        )
    assert list(engine.run(plan.spec, iter(()))) == [], "expected no outcomes without tasks"


def _check_error(engine: Engine, source: str, folder: str) -> None:
    """Check that an error comes back with its file and record, and that the other tasks go on."""
    path = source.replace(".tfrecord", f"-00003-of-{_SHARDS:05d}.tfrecord")
    with open(path, "r+b") as file:
        file.seek(15)
        byte = file.read(1)
        file.seek(15)
        file.write(bytes([byte[0] ^ 1]))
    plan = datasets.plan(
        source.replace(".tfrecord", "-*.tfrecord"),
        os.path.join(folder, "bad"),
        "jsonl",
        schema={"n": Feature("int64", ())},
        engine=engine,
    )
    os.makedirs(plan.target)
    outcomes = {
        outcome.task["number"]: outcome
        for outcome in engine.run(plan.spec, (plan.task(i) for i in range(len(plan))))
    }
    error = outcomes[3].error
    assert isinstance(error, DecodeError) and error.path == path and error.record == 0, (
        f"expected the DecodeError of {path}, found {error!r}"
    )
    assert all(
        outcome.error is None for number, outcome in outcomes.items() if number != 3
    ) and len(outcomes) == len(plan)
    assert not os.path.exists(plan.path(plan.shard(3))), "the failed shard was written"
    try:
        datasets.run(plan, engine, overwrite=True)
    except TensorwireError as raised:
        assert raised.path == path
    else:
        raise AssertionError("the error of a task was not raised")


def _check_leaving(engine: Engine, pattern: str, folder: str) -> None:
    """Check that closing the iterator stops the tasks, and that the engine can be used again."""
    plan = datasets.plan(pattern, os.path.join(folder, "left"), "tfrecord", engine=engine)
    os.makedirs(plan.target)
    started = []

    def tasks() -> Any:
        for number in range(100_000):
            started.append(number)
            yield plan.task(number % len(plan))

    outcomes: Any = engine.run(plan.spec, tasks())
    next(outcomes)
    outcomes.close()
    assert len(started) < 10_000, "tasks were taken before workers were free"
    assert len(list(engine.run(plan.spec, [plan.task(0)]))) == 1
