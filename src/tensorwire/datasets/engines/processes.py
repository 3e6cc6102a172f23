"""The processes of the local engine, as the driver sees them: pipes to each, its number, and how it ended.

On Linux they are copies of one process, the nursery (`worker.nursery`): a new interpreter that loads what workers need, has no threads and
touches no data, so that a copy of it is safe, and ready at once. Loading takes a fifth of a second, which else each would take for itself.
Elsewhere, and whenever the nursery is gone or declines, a worker is a new interpreter of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tensorwire.datasets.engines import worker; worker."

_ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A worker is one core's work. NumPy would start a thread for each core, which takes as long as its own import."""


_NOTHING = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}


class Process:
    """A worker. Its first word is its number; a process that never says it has never begun."""

    def __init__(self, tasks: IO[bytes], answers: IO[bytes], wait: Callable[[int], int | None], *, copy: bool) -> None:
        self._tasks, self._answers, self._wait, self.copy = tasks, answers, wait, copy
        self.pid = 0
        """Known as soon as it has said something."""

    def send(self, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is dead, which the next read will show
            self._tasks.write(json.dumps(message).encode() + b"\n")
            self._tasks.flush()

    def begins(self) -> bool:
        """Waits for its first word."""
        line = self._answers.readline() if not self.pid else b""
        if line.endswith(b"\n"):
            self.pid = json.loads(line)["pid"]
        return self.pid > 0

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
        """Whatever it is at. One that has not begun will not."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int | None:
        """Ends it, and closes what leads to it; its exit status, as far as that is known."""
        if not self.pid and select.select([self._answers], [], [], 0)[0]:
            self.begins()
        self.kill()
        for pipe in (self._tasks, self._answers):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return self._wait(self.pid)


class Processes:
    """Starts processes for one engine."""

    def __init__(self) -> None:
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
        """A worker. It may still be on its way when this returns, or never come: then ask for a `new` one."""
        with self._lock:
            return self._copied() if self.copies else self.new()

    def new(self) -> Process:
        """An interpreter of its own; and so are all from now on."""
        self.copies = False
        process = _started("main()", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        return Process(process.stdin, process.stdout, lambda pid: _killed(process), copy=False)

    def _copied(self) -> Process:
        tasks, to = os.pipe()
        answers, out = os.pipe()
        self._say({"copy": True}, [tasks, out])
        os.close(tasks)
        os.close(out)
        return Process(os.fdopen(to, "wb"), os.fdopen(answers, "rb"), self._status, copy=True)

    def _say(self, message: Any, descriptors: Iterable[int] = ()) -> None:
        if self._control is None:
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._nursery = _started(f"nursery({theirs.fileno()})", pass_fds=[theirs.fileno()], **_NOTHING)
            theirs.close()
        with contextlib.suppress(OSError):  # it is dead, which whoever waits for the copy will see
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))

    def _status(self, pid: int) -> int | None:
        """How a copy has ended, which only the nursery knows."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            if pid and self._control is not None:
                self._control.send(json.dumps({"wait": pid}).encode())
                status: int | None = json.loads(self._control.recv(64))
                return status
        return None

    def close(self) -> None:
        """Ends the nursery, and all copies that there still are."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
            if self._nursery is not None:
                self._nursery.wait()
                self._nursery = None


def _killed(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    return process.wait()


def _started(call: str, **pipes: Any) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in a terminal comes to us alone, and we end the workers.
    command = [sys.executable, "-c", _START + call, json.dumps(sys.path)]
    return subprocess.Popen(command, env=_ONE_CORE | os.environ, start_new_session=True, **pipes)
