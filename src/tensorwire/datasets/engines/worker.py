"""A worker process of the local engine: specs and tasks in on standard input, answers out on
standard output, each a line of JSON.

While it works it says now and then how far it is: {"so_far": [share, records, bytes]}.

It ends when its input does, in the middle of a task too: then whoever started it is gone. What it
was writing is a temporary file, which the next run sweeps away.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import IO, Any

from ...codecs import rows
from ...codecs.conversion_spec import ConversionSpec
from .. import task as _task
from ..task import Tell
from . import errors_as_json

_EVERY = 0.2
"""Seconds between two words of how far a task is."""


def _listen(source: IO[bytes], tasks: queue.Queue[bytes]) -> None:
    for line in source:
        tasks.put(line)
    os._exit(0)


def answer(task: dict[str, Any], spec: ConversionSpec, tell: Tell | None = None) -> dict[str, Any]:
    """What came of a task, as JSON. `tell` is told how far it is; see
    `tensorwire.datasets.task.run`.
    """
    try:
        return {"report": _task.run(task, spec, tell)}
    except Exception as error:
        found = errors_as_json.packed(error)
        found.setdefault(
            "path", next((part["path"] for part in task.get("parts", ())), task.get("path"))
        )
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
    """A worker's life."""
    line = _Line(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whoever prints does not disturb the answers
    line.send({"pid": os.getpid()})
    tasks: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    spec, lost = ConversionSpec("", ""), None
    while True:
        message = json.loads(tasks.get())
        if "spec" in message:  # what is done to all tasks from here on
            spec, lost = ConversionSpec.from_json(message["spec"]), _moved(message["folder"])
        elif "formats" in message:
            _load(message["formats"])
        else:
            line.send(lost or answer(message, spec, line.tell))


def _moved(folder: str | None) -> dict[str, Any] | None:
    """Goes to the folder that the paths of tasks start from. If it cannot, that is the answer to
    all of them: elsewhere they would name other files."""
    if folder is None or _is_in(folder):
        return None
    try:
        os.chdir(folder)
    except OSError as error:
        return {"error": errors_as_json.packed(error)}
    return None


def _is_in(folder: str) -> bool:
    """Then we need not be able to go there, which not everybody may."""
    with contextlib.suppress(OSError):
        return os.getcwd() == folder
    return False


def _load(names: list[str]) -> None:
    for name in names:
        rows.load(name)


def nursery(control: int) -> None:
    """Loads what workers need, and becomes one as often as it is asked to. Requests come over a
    socket, a copy's pipes with them.
    """
    # of copies of a process with threads; see _is_alone
    warnings.simplefilter("ignore", DeprecationWarning)
    channel = socket.socket(fileno=control)
    copies: set[int] = set()
    while True:
        request, pipes = _request(channel)
        if not request:
            break
        asked = json.loads(request)
        if "load" in asked:
            _load(asked["load"])
            gc.freeze()  # what is loaded stays, and stays shared
        elif "wait" in asked:
            status = _waited(asked["wait"])
            copies.discard(asked["wait"])
            # whoever asked is gone, which the next request shows
            with contextlib.suppress(OSError):
                channel.send(json.dumps(status).encode())
        elif _is_alone():
            copies.add(_copied(channel, *pipes))
        for pipe in pipes:
            os.close(pipe)
    for pid in copies:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os._exit(0)  # somebody waits, and there is nothing to tidy


def _request(channel: socket.socket) -> tuple[bytes, list[int]]:
    """The next request and its pipes; nothing at the end, however that came."""
    with contextlib.suppress(OSError):
        return socket.recv_fds(channel, 1 << 16, 2)[:2]
    return b"", []


def _is_alone() -> bool:
    """Whether this process has no threads, which a copy would lose in the middle of something.
    jemalloc's own, which pyarrow brings, is made for that."""
    tasks = "/proc/self/task"
    names = {
        Path(tasks, number, "comm").read_text().strip()
        for number in os.listdir(tasks)
        if int(number) != os.getpid()
    }
    return names <= {"jemalloc_bg_thd"}


def _copied(channel: socket.socket, tasks: int, answers: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        channel.close()
        for mine, standard in ((tasks, 0), (answers, 1)):
            os.dup2(mine, standard)
            os.close(mine)
        main()
    finally:
        os._exit(1)


def _waited(pid: int) -> int | None:
    """How a copy has ended: its exit status, or the signal, below zero."""
    with contextlib.suppress(ChildProcessError):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None
