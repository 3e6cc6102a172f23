"""A worker process of the local engine: specs and tasks in on standard input, answers out on standard output, each a line of JSON.

While it works it says now and then how far it is: {"so_far": [share, records, bytes]}.

It ends when its input does, in the middle of a task too: then whoever started it is gone. What it was writing is a temporary file, which
the next run sweeps away.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import IO, Any

from .. import formats
from .. import task as _task
from ..spec import Spec
from ..task import Tell
from . import faults

_EVERY = 0.2
"""Seconds between two words of how far a task is."""


def _listen(source: IO[bytes], tasks: queue.Queue[bytes]) -> None:
    for line in source:
        tasks.put(line)
    os._exit(0)


def answer(task: dict[str, Any], spec: Spec, tell: Tell | None = None) -> dict[str, Any]:
    """What came of a task, as JSON. `tell` is told how far it is; see `tensorwire.datasets.task.run`."""
    try:
        return {"report": _task.run(task, spec, tell)}
    except Exception as error:
        found = faults.packed(error)
        found.setdefault("path", next((part["path"] for part in task.get("parts", ())), task.get("path")))
        return {"error": found}


class _Line:
    """To whoever started us."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._last = out, 0.0

    def send(self, found: dict[str, Any]) -> None:
        self._out.write(json.dumps(found).encode() + b"\n")
        self._out.flush()

    def tell(self, *so_far: float) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            self.send({"so_far": so_far})


def main() -> None:
    line = _Line(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whoever prints does not disturb the answers
    tasks: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    spec = Spec("", "")
    while True:
        message = json.loads(tasks.get())
        if "spec" in message:  # what is done to all tasks from here on
            spec = Spec.from_json(message["spec"])
        elif "formats" in message:
            for name in message["formats"]:
                formats.load(name)
        else:
            line.send(answer(message, spec, line.tell))
