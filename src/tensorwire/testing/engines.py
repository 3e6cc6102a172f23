"""What every engine must do, ours or yours: run every task once, tell errors with all that they
know, and stop when nobody listens.
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
    """Converts a small dataset with an engine, as `convert` does, and checks what came of it. The
    folder must be seen by all workers.

    >>> from tensorwire.datasets.engines.local import LocalEngine
    >>> check_engine(LocalEngine(workers=0))["shards"]
    12
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tensorwire-") as made:
            return check_engine(engine, made)
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
    assert again.written == 0, "what was done is done again"
    _check_error(engine, source, folder)
    _check_leaving(engine, pattern, folder)
    return {"shards": _SHARDS, "records": report.records}


def _check_outcomes(engine: Engine, plan: datasets.Plan) -> None:
    os.makedirs(plan.target)
    tasks = [plan.task(i) for i in range(len(plan))]
    found = list(engine.run(plan.spec, iter(tasks)))
    assert sorted(outcome.task["number"] for outcome in found) == list(range(len(plan))), (
        "not every task has one outcome"
    )
    for outcome in found:
        assert outcome.error is None and outcome.report is not None, outcome
        assert (
            outcome.report["records"] == _EACH
            and os.path.getsize(outcome.task["path"]) == outcome.report["bytes"]
        )
    assert list(engine.run(plan.spec, iter(()))) == [], "no tasks have no outcomes"


def _check_error(engine: Engine, source: str, folder: str) -> None:
    """An error comes back as what it is, with the file and the record; the other tasks go on."""
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
    found = {
        outcome.task["number"]: outcome
        for outcome in engine.run(plan.spec, (plan.task(i) for i in range(len(plan))))
    }
    error = found[3].error
    assert isinstance(error, DecodeError) and error.path == path and error.record == 0, (
        f"{error!r} is not the error that was raised"
    )
    assert all(outcome.error is None for number, outcome in found.items() if number != 3) and len(
        found
    ) == len(plan)
    assert not os.path.exists(plan.path(plan.shard(3))), "a shard that failed is there"
    try:
        datasets.run(plan, engine, overwrite=True)
    except TensorwireError as raised:
        assert raised.path == path
    else:
        raise AssertionError("the error of a task is not raised")


def _check_leaving(engine: Engine, pattern: str, folder: str) -> None:
    """Whoever stops listening stops the tasks, and the engine can be used again."""
    plan = datasets.plan(pattern, os.path.join(folder, "left"), "tfrecord", engine=engine)
    os.makedirs(plan.target)
    asked = []

    def tasks() -> Any:
        for number in range(100_000):
            asked.append(number)
            yield plan.task(number % len(plan))

    outcomes: Any = engine.run(plan.spec, tasks())
    next(outcomes)
    outcomes.close()
    assert len(asked) < 10_000, "tasks are taken long before there is room for them"
    assert len(list(engine.run(plan.spec, [plan.task(0)]))) == 1
