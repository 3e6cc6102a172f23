"""A worker process of the local engine, and the fork server that starts workers.

A worker reads specs and tasks from standard input and writes answers to standard output, each a
line of JSON. While it works it sends its progress now and then: {"so_far": [share, records,
bytes]}. It exits when its input ends, even in the middle of a task, because then the driver is
gone. The file that it was writing is a temporary one, which the next run removes.

The fork server (Linux):

1. It is a new interpreter, not a fork of the user's process, so it holds no lock, thread or
   connection of that process.
2. It imports what workers need once, and forks for every worker. A fork is ready in milliseconds,
   an import takes a fifth of a second.
3. Requests come over a Unix socket with message boundaries: {"load": formats}, {"copy": true} with
   the two pipes of the new worker attached, and {"wait": pid} for the exit status of a worker.
4. A fork copies only the thread that calls it, so a lock that another thread holds would stay
   locked for ever. If the fork server has threads, it declines: it closes the pipes without a fork,
   and the driver starts a new interpreter instead.
5. When its socket ends, the driver is gone or done. The fork server kills and reaps its workers,
   and exits.
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
"""Seconds between two progress messages of a task."""


def _listen(source: IO[bytes], tasks: queue.Queue[bytes]) -> None:
    """Reads tasks in a thread, so that the end of the input ends the process in the middle of a
    task, too.
    """
    for line in source:
        tasks.put(line)
    os._exit(0)


def answer(task: dict[str, Any], spec: ConversionSpec, tell: Tell | None = None) -> dict[str, Any]:
    """Runs a task, and returns its report or its error as JSON. `tell` gets its progress; see
    `tensorwire.datasets.task.run`.
    """
    try:
        return {"report": _task.run(task, spec, tell)}
    except Exception as error:
        fields = errors_as_json.packed(error)
        fields.setdefault(
            "path", next((part["path"] for part in task.get("parts", ())), task.get("path"))
        )
        return {"error": fields}


class _Answers:
    """The stream of answers to the driver."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self._last = out, 0.0

    def send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def tell(self, *so_far: float) -> None:
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            self.send({"so_far": so_far})


def main() -> None:
    """Runs a worker until its input ends."""
    answers = _Answers(os.fdopen(os.dup(1), "wb"))
    # Text that a library prints goes to standard error, and does not disturb the answers.
    os.dup2(2, 1)
    answers.send({"pid": os.getpid()})
    tasks: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    spec, failure = ConversionSpec("", ""), None
    while True:
        message = json.loads(tasks.get())
        # A spec holds for all tasks that follow it.
        if "spec" in message:
            spec, failure = ConversionSpec.from_json(message["spec"]), _moved(message["folder"])
        elif "formats" in message:
            _load(message["formats"])
        else:
            answers.send(failure or answer(message, spec, answers.tell))


def _moved(folder: str | None) -> dict[str, Any] | None:
    """Changes to the folder that relative paths of tasks start from; returns the error if it
    cannot.

    That error is then the answer to all tasks: in another folder their paths would name other
    files.
    """
    if folder is None or _is_in(folder):
        return None
    try:
        os.chdir(folder)
    except OSError as error:
        return {"error": errors_as_json.packed(error)}
    return None


def _is_in(folder: str) -> bool:
    """Whether this is the current folder already, which needs no permission to change to it."""
    with contextlib.suppress(OSError):
        return os.getcwd() == folder
    return False


def _load(names: list[str]) -> None:
    for name in names:
        rows.load(name)


def fork_server(control: int) -> None:
    """Runs the fork server on the socket with the descriptor `control`, until the socket ends."""
    # Python warns of forks in a process with threads. `_has_no_threads` is our check.
    warnings.simplefilter("ignore", DeprecationWarning)
    channel = socket.socket(fileno=control)
    workers: set[int] = set()
    while True:
        data, pipes = _request(channel)
        if not data:
            break
        request = json.loads(data)
        if "load" in request:
            _load(request["load"])
            # The garbage collector must not write to loaded objects, whose pages the workers share.
            gc.freeze()
        elif "wait" in request:
            status = _waited(request["wait"])
            workers.discard(request["wait"])
            # If the driver is gone, the next request shows it.
            with contextlib.suppress(OSError):
                channel.send(json.dumps(status).encode())
        elif _has_no_threads():
            workers.add(_forked(channel, *pipes))
        for pipe in pipes:
            os.close(pipe)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    # The driver waits for this process, and there is nothing to clean up.
    os._exit(0)


def _request(channel: socket.socket) -> tuple[bytes, list[int]]:
    """The next request and its pipes; b"" at the end of the socket, or if it broke."""
    with contextlib.suppress(OSError):
        return socket.recv_fds(channel, 1 << 16, 2)[:2]
    return b"", []


def _has_no_threads() -> bool:
    """Whether this process has no other threads, so that a fork is safe. The background thread of
    jemalloc, which comes with pyarrow, handles forks itself.
    """
    tasks = "/proc/self/task"
    names = {
        Path(tasks, number, "comm").read_text().strip()
        for number in os.listdir(tasks)
        if int(number) != os.getpid()
    }
    return names <= {"jemalloc_bg_thd"}


def _forked(channel: socket.socket, tasks: int, answers: int) -> int:
    """Forks a worker on these pipes, and returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    # The child never returns from here, whatever happens: it would become a second fork server.
    try:
        channel.close()
        for pipe, standard in ((tasks, 0), (answers, 1)):
            os.dup2(pipe, standard)
            os.close(pipe)
        main()
    finally:
        os._exit(1)


def _waited(pid: int) -> int | None:
    """The exit status of a worker; the negative number of the signal that killed it."""
    with contextlib.suppress(ChildProcessError):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None
