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

    def run(self, spec: Spec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
        """Outcomes as they come. Leaving early, by an error or Ctrl-C, ends all workers."""
        if not self.workers:
            for task in tasks:
                tell = functools.partial(self.watch, task) if self.watch is not None else None
                yield outcome(task, answer(task, spec, tell))
            return
        outcomes: queue.Queue[Outcome | _SoFar | BaseException | None] = queue.Queue(4 * self.workers)
        source = _Source(tasks)
        self._crew = [_Worker(spec, source, outcomes, self.retries) for _ in range(self.workers)]
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
            self.close()
            while any(one.is_alive() for one in self._crew):  # a thread may be waiting for room
                with contextlib.suppress(queue.Empty):
                    outcomes.get(timeout=0.05)
            self._crew = []

    def close(self) -> None:
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

    def __init__(self, spec: Spec, source: _Source, outcomes: queue.Queue[Any], retries: int) -> None:
        self._spec, self._source, self._outcomes, self._retries = spec, source, outcomes, retries
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
            # A session of its own: Ctrl-C in a terminal comes to us alone, and we end the workers.
            process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ONE_CORE | os.environ, start_new_session=True,
            )  # fmt: skip
            self._process = process
        self._send(process, self._spec.json())
        return process

    @staticmethod
    def _send(process: subprocess.Popen[bytes], message: Any) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead, which the next read will show
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()

    def _run(self) -> None:
        try:
            while (task := self._source.next()) is not None:
                self._outcomes.put(self._done(task))
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
        self._send(process, task)
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

    def _bury(self) -> None:
        """Ends the process, and closes what leads to it."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(BrokenPipeError), process:  # which closes both pipes, and waits
                pass

    def end(self) -> None:
        """Ends the process, whatever it is at; the thread finds out."""
        with self._lock:
            self._over = True
            if self._process is not None:
                self._process.kill()


class _Over(Exception):
    """The engine is being closed."""


def _died(task: dict[str, Any], status: int, attempts: int) -> TensorwireError:
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    path = next((part["path"] for part in task.get("parts", ())), task.get("path"))
    return TensorwireError(f"the worker ended {how}, {attempts} times; is there enough memory for it?", path=path)
