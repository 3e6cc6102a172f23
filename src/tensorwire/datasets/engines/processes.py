"""The processes of the local engine, as the driver sees them: pipes to each, its number, and how it
ended.

On Linux they are copies of one process, the nursery (`worker.nursery`): a new interpreter that
loads what workers need, has no threads and touches no data, so that a copy of it is safe, and ready
at once. Loading takes a fifth of a second, which else each would take for itself. Elsewhere, and
whenever the nursery is gone or declines, a worker is a new interpreter of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tensorwire.datasets.engines"
    " import worker; worker."
)

_ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A worker is one core's work. NumPy would start a thread for each core, which takes as long as its
own import.
"""


_NOTHING = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}

PATIENCE = 2.0
"""Seconds for a nursery to answer, or to end by itself. It may be loading from a slow disk, and
whoever leaves shall not wait for that.
"""


class Process:
    """A worker. Its first word is its number; a process that never says it has never begun.

    It belongs to the process that started it. A fork of that has the same pipes, and only lets go
    of them.
    """

    def __init__(
        self,
        tasks: io.BufferedWriter,
        answers: io.BufferedReader,
        wait: Callable[[int], int | None],
        *,
        copy: bool,
        pid: int = 0,
    ) -> None:
        self._tasks, self._answers, self._wait, self.copy = tasks, answers, wait, copy
        self._owner, self._begun = os.getpid(), False
        self.pid = pid
        """That of a copy is known as soon as it has said something."""

    def send(self, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is dead, which the next read will show
            self._tasks.write(json.dumps(message).encode() + b"\n")
            self._tasks.flush()

    def begins(self) -> bool:
        """Waits for its first word."""
        line = self._answers.readline() if not self._begun else b""
        if line.endswith(b"\n"):
            self.pid, self._begun = json.loads(line)["pid"], True
        return self._begun

    def read(self) -> dict[str, Any] | None:
        """What it says next; None if it has ended."""
        line = self._answers.readline() if self.begins() else b""
        found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return found

    def is_alive(self) -> bool:
        ended = select.poll()
        ended.register(self._answers, 0)  # asks for the end of the pipe alone
        return not ended.poll(0)

    def kill(self) -> None:
        """Whatever it is at. A copy that has not begun is not known yet: it must be killed when it
        has, or left without its pipes.
        """
        if self.pid and self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int | None:
        """Ends it, and closes what leads to it; its exit status, as far as that is known."""
        if self._owner != os.getpid():
            self._let_go()
            return None
        if not self.pid and _is_heard(self._answers):
            self.begins()
        self.kill()
        for pipe in (self._tasks, self._answers):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return self._wait(self.pid)

    def _let_go(self) -> None:
        """Closes our ends, without the word that may be half written: that is for the owner to
        finish.
        """
        for pipe in (self._tasks, self._answers):
            pipe.raw.close()


class Processes:
    """Starts processes for one engine, in one process: a fork of it needs another."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()
        self.copies = sys.platform == "linux"
        """Whether workers are copies of the nursery. Not any more, once it is gone."""

    def prepare(self, formats: Iterable[str]) -> None:
        """Has loaded what these formats need; nobody waits for it."""
        with self._lock:
            if self.copies:
                self._say({"load": list(formats)})

    def start(self) -> Process:
        """A worker. It may still be on its way when this returns, or never come: then ask for a
        `new` one.
        """
        with self._lock:
            return self._copied() if self.copies else self.new()

    def new(self) -> Process:
        """An interpreter of its own; and so are all from now on."""
        self.copies = False
        process = _started("main()", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert isinstance(process.stdin, io.BufferedWriter) and isinstance(
            process.stdout, io.BufferedReader
        )
        return Process(
            process.stdin, process.stdout, lambda _: _killed(process), copy=False, pid=process.pid
        )

    def _copied(self) -> Process:
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            tasks, to = os.pipe()
            theirs.callback(os.close, tasks)
            ours.callback(os.close, to)
            answers, out = os.pipe()
            theirs.callback(os.close, out)
            ours.callback(os.close, answers)
            self._say({"copy": True}, [tasks, out])
            ours.pop_all()
        return Process(os.fdopen(to, "wb"), os.fdopen(answers, "rb"), self._status, copy=True)

    def _say(self, message: Any, descriptors: Iterable[int] = ()) -> None:
        if self._control is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._nursery = _started(
                    f"nursery({theirs.fileno()})", pass_fds=[theirs.fileno()], **_NOTHING
                )
            self._control = ours
        with contextlib.suppress(OSError):  # it is dead, which whoever waits for the copy will see
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))

    def _status(self, pid: int) -> int | None:
        """How a copy has ended, which only the nursery knows."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            if pid and self._control is not None:
                self._control.send(json.dumps({"wait": pid}).encode())
                if not _is_heard(self._control, PATIENCE):
                    self._kill()
                    self._end()
                    return None
                status: int | None = json.loads(self._control.recv(64))
                return status
        return None

    def interrupt(self) -> None:
        """Ends the nursery at once. Copies that have begun go on; the others never will, and
        whoever waits for them sees it.
        """
        self._kill()  # first: who holds the lock may be waiting for the nursery
        with self._lock:
            self._end()

    def close(self) -> None:
        """Ends the nursery, and all copies that there still are."""
        # the nursery is another's, and the lock may be held by a thread that is not here
        if self._owner != os.getpid():
            if self._control is not None:
                self._control.close()
            return
        with self._lock:
            self._end()

    def _kill(self) -> None:
        if (nursery := self._nursery) is not None:
            nursery.kill()

    def _end(self) -> None:
        control, nursery, self._control, self._nursery = self._control, self._nursery, None, None
        if control is not None:
            with contextlib.suppress(OSError):
                # to close it is not enough: a fork of ours holds it, too
                control.shutdown(socket.SHUT_RDWR)
            control.close()
        if nursery is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                nursery.wait(PATIENCE)
            _killed(nursery)


def _is_heard(source: io.BufferedReader | socket.socket, seconds: float = 0.0) -> bool:
    """Whether there is something to read, or the end. Not by `select.select`, which knows no
    descriptors from 1024 on.
    """
    asked = select.poll()
    asked.register(source, select.POLLIN)
    return bool(asked.poll(1000 * seconds))


def _killed(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    return process.wait()


def _started(call: str, **pipes: Any) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in a terminal comes to us alone, and we end the workers.
    # as Python does
    command = [
        sys.executable,
        "-c",
        _START + call,
        json.dumps([place for place in sys.path if isinstance(place, str)]),
    ]
    return subprocess.Popen(command, env=_ONE_CORE | os.environ, start_new_session=True, **pipes)
