"""Worker processes of the local engine, as the driver sees them: pipes, pid and exit status.

1. On Linux, workers are forks of one process, the fork server (`worker.fork_server`). Elsewhere,
   and once the fork server is gone or has declined, each worker is a new interpreter.
2. The driver creates two pipes for a worker, one for tasks and one for answers, and sends the
   worker's ends to the fork server.
3. The pid of a fork is known only from its first message. A fork that never sends it has never
   begun: the pipe of its answers ends, and the caller starts a new interpreter.
4. Only the parent of a process can read its exit status, so the driver asks the fork server for it.
5. All of this belongs to the process that made it. A fork of the user's process inherits the
   descriptors, and only closes them: it never kills, waits or writes.
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
"""A worker uses one core. NumPy would start a thread for each core, which takes as long as its
import.
"""


_NOTHING = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}

PATIENCE = 2.0
"""Seconds to wait until the fork server answers or exits. It may be loading from a slow disk, and
`close` must not wait for that.
"""


class Process:
    """A worker process. Its first message is its pid; if that never comes, it has not begun."""

    def __init__(
        self,
        tasks: io.BufferedWriter,
        answers: io.BufferedReader,
        wait: Callable[[int], int | None],
        *,
        fork: bool,
        pid: int = 0,
    ) -> None:
        self._tasks, self._answers, self._wait, self.is_fork = tasks, answers, wait, fork
        self._owner, self._begun = os.getpid(), False
        self.pid = pid
        """0 until the first message of a fork has come."""

    def send(self, message: Any) -> None:
        """Sends a task or a spec. If the process is dead, the next read shows it."""
        with contextlib.suppress(BrokenPipeError):
            self._tasks.write(json.dumps(message).encode() + b"\n")
            self._tasks.flush()

    def begins(self) -> bool:
        """Waits for the first message, and returns whether it came."""
        line = self._answers.readline() if not self._begun else b""
        if line.endswith(b"\n"):
            self.pid, self._begun = json.loads(line)["pid"], True
        return self._begun

    def read(self) -> dict[str, Any] | None:
        """The next message; None if the process has ended."""
        line = self._answers.readline() if self.begins() else b""
        message: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return message

    def is_alive(self) -> bool:
        ended = select.poll()
        # Without flags, poll reports only the end of the pipe.
        ended.register(self._answers, 0)
        return not ended.poll(0)

    def kill(self) -> None:
        """Kills the process. A fork that has not begun has no known pid: it must be killed when it
        begins, or ends by itself when its pipes are closed.
        """
        if self.pid and self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int | None:
        """Kills the process, closes its pipes, and returns its exit status if that is known."""
        if self._owner != os.getpid():
            self._abandon()
            return None
        if not self.pid and _is_readable(self._answers):
            self.begins()
        self.kill()
        for pipe in (self._tasks, self._answers):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return self._wait(self.pid)

    def _abandon(self) -> None:
        """Closes the inherited pipes in a fork, without flushing: a message that is half written is
        for the owner to finish.
        """
        for pipe in (self._tasks, self._answers):
            pipe.raw.close()


class Processes:
    """Starts the worker processes of one engine. A fork of this process needs an object of its
    own.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()
        self.forks = sys.platform == "linux"
        """Whether workers are forks of the fork server. False once it is gone."""

    def prepare(self, formats: Iterable[str]) -> None:
        """Has the fork server import what these formats need, and does not wait for it."""
        with self._lock:
            if self.forks:
                self._say({"load": list(formats)})

    def start(self) -> Process:
        """Starts a worker. A fork may begin after this returns, or never: then call `new`."""
        with self._lock:
            return self._forked() if self.forks else self.new()

    def new(self) -> Process:
        """Starts a worker as a new interpreter, and so all later ones."""
        self.forks = False
        process = _started("main()", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert isinstance(process.stdin, io.BufferedWriter) and isinstance(
            process.stdout, io.BufferedReader
        )
        return Process(
            process.stdin, process.stdout, lambda _: _killed(process), fork=False, pid=process.pid
        )

    def _forked(self) -> Process:
        """Asks the fork server for a worker. Its ends of the pipes are closed here in any case, our
        ends only after an error.
        """
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            tasks, to = os.pipe()
            theirs.callback(os.close, tasks)
            ours.callback(os.close, to)
            answers, out = os.pipe()
            theirs.callback(os.close, out)
            ours.callback(os.close, answers)
            self._say({"copy": True}, [tasks, out])
            ours.pop_all()
        return Process(os.fdopen(to, "wb"), os.fdopen(answers, "rb"), self._status, fork=True)

    def _say(self, message: Any, descriptors: Iterable[int] = ()) -> None:
        """Sends a request to the fork server, which is started for the first one."""
        if self._control is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._server = _started(
                    f"fork_server({theirs.fileno()})", pass_fds=[theirs.fileno()], **_NOTHING
                )
            self._control = ours
        # If the fork server is dead, the pipes of the new worker end, and its reader sees that.
        with contextlib.suppress(OSError):
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))

    def _status(self, pid: int) -> int | None:
        """The exit status of a fork, from the fork server."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            if pid and self._control is not None:
                self._control.send(json.dumps({"wait": pid}).encode())
                if not _is_readable(self._control, PATIENCE):
                    self._kill()
                    self._end()
                    return None
                status: int | None = json.loads(self._control.recv(64))
                return status
        return None

    def interrupt(self) -> None:
        """Kills the fork server at once. Forks that have begun go on; the others never begin, and
        the pipes of their readers end.
        """
        # The kill comes before the lock: the thread that holds it may wait for the fork server.
        self._kill()
        with self._lock:
            self._end()

    def close(self) -> None:
        """Ends the fork server and all remaining forks."""
        # In a fork of this process the fork server is not ours, and the lock may be held by a
        # thread that the fork does not have.
        if self._owner != os.getpid():
            if self._control is not None:
                self._control.close()
            return
        with self._lock:
            self._end()

    def _kill(self) -> None:
        if (server := self._server) is not None:
            server.kill()

    def _end(self) -> None:
        control, server, self._control, self._server = self._control, self._server, None, None
        if control is not None:
            # Closing is not enough to end the socket: a fork of this process has it open, too.
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_RDWR)
            control.close()
        if server is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(PATIENCE)
            _killed(server)


def _is_readable(source: io.BufferedReader | socket.socket, seconds: float = 0.0) -> bool:
    """Whether there is data to read, or the end. `select.select` cannot be used: it fails for
    descriptors above 1023.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _killed(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    return process.wait()


def _started(call: str, **pipes: Any) -> subprocess.Popen[bytes]:
    """Starts a new interpreter that calls a function of `worker`.

    It has a session of its own, so that Ctrl-C in a terminal reaches only the driver, which then
    ends the workers.
    """
    # As Python itself does, entries of sys.path that are not strings are ignored.
    command = [
        sys.executable,
        "-c",
        _START + call,
        json.dumps([folder for folder in sys.path if isinstance(folder, str)]),
    ]
    return subprocess.Popen(command, env=_ONE_CORE | os.environ, start_new_session=True, **pipes)
