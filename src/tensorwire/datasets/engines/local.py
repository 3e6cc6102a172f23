"""Processes on this machine. One that dies takes nothing with it: its task is given to another.

Workers are new interpreters, not forks, so they hold no lock and no connection of ours, and need no guard in your script.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..._errors import EncodeError, TensorwireError
from ..spec import Spec
from . import RETRIES, Outcome, Watch, answer, faults, outcome

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tensorwire.datasets.engines.worker import main; main()"

_ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A worker is one core's work. NumPy would start a thread for each core, which takes as long as its own import."""


class LocalEngine:
    """`workers` processes (one a core if not said; 0 does all in this one). A task is tried `retries` times more if its worker dies.

    >>> LocalEngine(workers=2).workers
    2
    """

    def __init__(self, workers: int | None = None, *, retries: int = RETRIES) -> None:
        if workers is not None and workers < 0:
            raise EncodeError(f"workers={workers}: 0 for this process, or a number of processes")
        self.workers = (
            workers if workers is not None else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        self.retries = retries
        self.watch: Watch | None = None
        self._crew: list[_Worker] = []
        self._idle: list[subprocess.Popen[bytes]] = []
        """Processes that wait for the next run, so that not each has to start its own."""
        weakref.finalize(self, _end_all, self._idle)

    def prepare(self, tasks: int, formats: Iterable[str]) -> None:
        """Starts processes for so many tasks, and has them load what they will need, while it is still being found out what to do."""
        for _ in range(min(self.workers, tasks) - len(self._idle)):
            self._idle.append(_started())
            _send(self._idle[-1], {"formats": list(formats)})

    def run(self, spec: Spec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
        """Outcomes as they come. Leaving early, by an error or Ctrl-C, ends the workers; else they wait for the next run or for `close`."""
        if not self.workers:
            for task in tasks:
                tell = functools.partial(self.watch, task) if self.watch is not None else None
                yield outcome(task, answer(task, spec, tell))
            return
        outcomes: queue.Queue[Outcome | _SoFar | BaseException | None] = queue.Queue(4 * self.workers)
        source = _Source(tasks)
        self._crew = [_Worker(spec, source, outcomes, self.retries, self._idle) for _ in range(self.workers)]
        left = len(self._crew)
        try:
            while left:
                found = outcomes.get()
                if found is None:
                    left -= 1
                elif isinstance(found, Outcome):
                    yield found
                elif isinstance(found, _SoFar):
                    if self.watch is not None:
                        self.watch(found.task, *found.numbers)
                else:
                    raise found
        finally:
            source.stop()
            if left:
                self._end_crew()
            while any(one.is_alive() for one in self._crew):  # a thread may be waiting for room
                with contextlib.suppress(queue.Empty):
                    outcomes.get(timeout=0.05)
            self._crew = []

    def close(self) -> None:
        """Ends all processes."""
        self._end_crew()
        _end_all(self._idle)

    def _end_crew(self) -> None:
        for one in self._crew:
            one.end()


class _SoFar(NamedTuple):
    """How far a task is."""

    task: dict[str, Any]
    numbers: list[Any]


class _Source:
    """The tasks that are left, for many threads."""

    def __init__(self, tasks: Iterable[dict[str, Any]]) -> None:
        self._tasks, self._lock = iter(tasks), threading.Lock()
        self._ended = False

    def next(self) -> dict[str, Any] | None:
        with self._lock:
            if self._ended:
                return None
            found = next(self._tasks, None)
            self._ended = found is None
            return found

    def stop(self) -> None:
        self._ended = True


class _Worker:
    """A process, and the thread that talks to it."""

    def __init__(self, spec: Spec, source: _Source, outcomes: queue.Queue[Any], retries: int, idle: list[subprocess.Popen[bytes]]) -> None:
        self._spec, self._source, self._outcomes, self._retries, self._idle = spec, source, outcomes, retries, idle
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tensorwire-worker", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _begin(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._over:
                raise _Over
            process = self._waiting() or _started()
            self._process = process
        _send(process, {"spec": self._spec.json()})
        return process

    def _waiting(self) -> subprocess.Popen[bytes] | None:
        """One that is there already, and alive."""
        with contextlib.suppress(IndexError):
            while True:
                process = self._idle.pop()
                if process.poll() is None:
                    return process
                _ended(process)
        return None

    def _run(self) -> None:
        try:
            while (task := self._source.next()) is not None:
                self._outcomes.put(self._done(task))
            self._rest()
        except _Over:
            pass
        except BaseException as error:  # of the iterator of tasks: it is the driver's
            self._outcomes.put(error)
        finally:
            self._bury()
            self._outcomes.put(None)

    def _done(self, task: dict[str, Any]) -> Outcome:
        attempts = 0
        while True:
            attempts += 1
            found, status = self._asked(task)
            made = outcome(task, found, attempts) if found is not None else Outcome(task, None, _died(task, status, attempts), attempts)
            passing = found is None or (made.error is not None and faults.passing(made.error))
            if not passing or attempts > self._retries:
                return made

    def _asked(self, task: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
        """The answer, or None and the exit status of a worker that died."""
        process = self._process if self._process is not None else self._begin()
        _send(process, task)
        assert process.stdout is not None
        while (line := process.stdout.readline()).endswith(b"\n"):
            found = json.loads(line)
            if "so_far" not in found:
                return found, 0
            self._outcomes.put(_SoFar(task, found["so_far"]))
        if self._over:
            raise _Over
        self._bury()
        return None, process.returncode

    def _rest(self) -> None:
        """The process is for the next run."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None and not self._over:
                self._idle.append(process)
                return
        if process is not None:
            _ended(process)

    def _bury(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            _ended(process)

    def end(self) -> None:
        """Ends the process, whatever it is at; the thread finds out."""
        with self._lock:
            self._over = True
            if self._process is not None:
                self._process.kill()


def _started() -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in a terminal comes to us alone, and we end the workers.
    return subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps(sys.path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ONE_CORE | os.environ, start_new_session=True,
    )  # fmt: skip


def _send(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it is dead, which the next read will show
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, and closes what leads to it."""
    process.kill()
    with contextlib.suppress(BrokenPipeError), process:  # which closes both pipes, and waits
        pass


def _end_all(processes: list[subprocess.Popen[bytes]]) -> None:
    while processes:
        _ended(processes.pop())


class _Over(Exception):
    """The engine is being closed."""


def _died(task: dict[str, Any], status: int, attempts: int) -> TensorwireError:
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    path = next((part["path"] for part in task.get("parts", ())), task.get("path"))
    return TensorwireError(f"the worker ended {how}, {attempts} times; is there enough memory for it?", path=path)
