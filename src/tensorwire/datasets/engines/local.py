"""Processes on this machine. One that dies takes nothing with it: its task is given to another.

Workers are no forks of ours, so they hold no lock and no connection of ours, and need no guard in your script.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..._errors import EncodeError, TensorwireError
from ..spec import Spec
from . import RETRIES, Outcome, Watch, answer, faults, outcome
from .processes import Process, Processes


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
        self._processes = Processes()
        self._idle: list[Process] = []
        """Processes that wait for the next run, so that not each has to start its own."""
        weakref.finalize(self, _end_all, self._idle, self._processes)

    def prepare(self, tasks: int, formats: Iterable[str]) -> None:
        """Starts processes for so many tasks, and has them load what they will need, while it is still being found out what to do."""
        if not self.workers:
            return
        self._processes.prepare(formats)
        for _ in range(min(self.workers, tasks) - len(self._idle)):
            self._idle.append(self._processes.start())
            self._idle[-1].send({"formats": list(formats)})

    def run(self, spec: Spec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
        """Outcomes as they come. Leaving early, by an error or Ctrl-C, ends the workers; else they wait for the next run or for `close`."""
        if not self.workers:
            for task in tasks:
                tell = functools.partial(self.watch, task) if self.watch is not None else None
                yield outcome(task, answer(task, spec, tell))
            return
        outcomes: queue.Queue[Outcome | _SoFar | BaseException | None] = queue.Queue(4 * self.workers)
        source = _Source(tasks)
        self._crew = [_Worker(spec, source, outcomes, self.retries, self._idle, self._processes) for _ in range(self.workers)]
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
        _end_all(self._idle, self._processes)

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

    def __init__(
        self, spec: Spec, source: _Source, outcomes: queue.Queue[Any], retries: int, idle: list[Process], processes: Processes
    ) -> None:
        self._spec, self._source, self._outcomes, self._retries = spec, source, outcomes, retries
        self._idle, self._processes = idle, processes
        self._process: Process | None = None
        self._over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tensorwire-worker", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _begin(self) -> Process:
        process = self._hold(self._waiting() or self._processes.start())
        if not process.begins() and process.copy:
            self._bury()
            process = self._hold(self._processes.new())
        process.send({"spec": self._spec.json()})
        return process

    def _hold(self, process: Process) -> Process:
        with self._lock:
            if not self._over:
                self._process = process
                return process
        process.end()
        raise _Over

    def _waiting(self) -> Process | None:
        """One that is there already, and alive."""
        with contextlib.suppress(IndexError):
            while True:
                process = self._idle.pop()
                if process.is_alive():
                    return process
                process.end()
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

    def _asked(self, task: dict[str, Any]) -> tuple[dict[str, Any] | None, int | None]:
        """The answer, or None and the exit status of a worker that died."""
        process = self._process if self._process is not None else self._begin()
        process.send(task)
        while (found := process.read()) is not None:
            if "so_far" not in found:
                return found, 0
            self._outcomes.put(_SoFar(task, found["so_far"]))
        if self._over:
            raise _Over
        return None, self._bury()

    def _rest(self) -> None:
        """The process is for the next run."""
        with self._lock:
            if not self._over and self._process is not None:
                self._idle.append(self._process)
                self._process = None

    def _bury(self) -> int | None:
        with self._lock:
            process, self._process = self._process, None
        return process.end() if process is not None else None

    def end(self) -> None:
        """Ends the process, whatever it is at; the thread finds out."""
        with self._lock:
            self._over = True
            if self._process is not None:
                self._process.kill()


def _end_all(idle: list[Process], processes: Processes) -> None:
    while idle:
        idle.pop().end()
    processes.close()


class _Over(Exception):
    """The engine is being closed."""


def _died(task: dict[str, Any], status: int | None, attempts: int) -> TensorwireError:
    how = "early" if status is None else f"by signal {-status}" if status < 0 else f"with status {status}"
    path = next((part["path"] for part in task.get("parts", ())), task.get("path"))
    return TensorwireError(f"the worker ended {how}, {attempts} times; is there enough memory for it?", path=path)
