"""A worker process of the local engine: tasks in on standard input, answers out on standard output, each a line of JSON.

It ends when its input does, in the middle of a task too: then whoever started it is gone. What it was writing is a temporary file, which
the next run sweeps away.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import IO, Any

from .. import task as _task
from ..spec import Spec
from . import faults


def _listen(source: IO[bytes], tasks: queue.Queue[bytes]) -> None:
    for line in source:
        tasks.put(line)
    os._exit(0)


def answer(task: dict[str, Any], spec: Spec) -> dict[str, Any]:
    """What came of a task, as JSON."""
    try:
        return {"report": _task.run(task, spec)}
    except Exception as error:
        found = faults.packed(error)
        found.setdefault("path", next((part["path"] for part in task.get("parts", ())), task.get("path")))
        return {"error": found}


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whoever prints does not disturb the answers
    tasks: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    spec = Spec.from_json(json.loads(tasks.get()))
    while True:
        found = answer(json.loads(tasks.get()), spec)
        out.write(json.dumps(found).encode() + b"\n")
        out.flush()
