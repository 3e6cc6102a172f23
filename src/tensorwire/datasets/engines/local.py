"""Processes on this machine. One that dies takes nothing with it: its task is given to another.

Workers are no forks of ours, so they hold no lock and no connection of ours, and need no guard in
your script.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..._errors import EncodeError, TensorwireError
from ...codecs.conversion_spec import ConversionSpec
from ...transforms.compression.streams import available_cores
from . import RETRIES, Outcome, Watch, answer, errors_as_json, outcome
from .processes import PATIENCE, Process, Processes


class LocalEngine:
    """`workers` processes (one a core if not said; 0 does all in this one). A task is tried
    `retries` times more if its worker dies.

    Threads may share one: each run has workers of its own. A fork of the process starts its own,
    too.

    >>> LocalEngine(workers=2).workers
    2
    """

    def __init__(self, workers: int | None = None, *, retries: int = RETRIES) -> None:
        if workers is not None and workers < 0:
            raise EncodeError(f"workers={workers}: 0 for this process, or a number of processes")
        self.workers = available_cores() if workers is None else workers
        self.retries = retries
        self._watches = threading.local()
        self._settle()

    def _settle(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._crews: set[_Crew] = set()
        """Those at work, one for each run."""
        self._processes = Processes()
        self._idle: list[Process] = []
        """Processes that wait for the next run, so that not each has to start its own."""
        self._left = weakref.finalize(self, _end_all, self._idle, self._processes)

    def _here(self) -> None:
        """In a fork, all that was started is the other process's: we let go of it, and begin anew."""
        if self._pid != os.getpid():
            self._left()
            self._settle()

    @property
    def watch(self) -> Watch | None:
        """Is told how far the tasks are, of the runs of the thread that has set it."""
        return getattr(self._watches, "watch", None)

    @watch.setter
    def watch(self, watch: Watch | None) -> None:
        self._watches.watch = watch

    def prepare(self, tasks: int, formats: Iterable[str]) -> None:
        """Starts processes for so many tasks, and has them load what they will need, while it is
        still being found out what to do.
        """
        if not self.workers:
            return
        self._here()
        self._processes.prepare(formats)
        for _ in range(min(self.workers, tasks) - len(self._idle)):
            process = self._processes.start()
            process.send({"formats": list(formats)})
            self._idle.append(process)

    def run(self, spec: ConversionSpec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
        """Outcomes as they come. Leaving early, by an error or Ctrl-C, ends the workers; else they
        wait for the next run or for `close`.
        """
        if not self.workers:
            for task in tasks:
                tell = functools.partial(self.watch, task) if self.watch is not None else None
                yield outcome(task, answer(task, spec, tell))
            return
        self._here()
        outcomes: queue.Queue[_Found] = queue.Queue(4 * self.workers)
        source, orders = _Source(tasks), {"spec": spec.json(), "folder": _folder()}
        crew = _Crew(
            [
                _Worker(orders, source, outcomes, self.retries, self._idle, self._processes)
                for _ in range(self.workers)
            ]
        )
        left = self.workers
        try:
            with self._lock:
                self._crews.add(crew)
            crew.start()
            while left:
                found = outcomes.get()
                if found is None:
                    left -= 1
                elif isinstance(found, Outcome):
                    yield found
                elif isinstance(found, _SoFar):
                    if (watch := self.watch) is not None:
                        watch(found.task, *found.numbers)
                else:
                    raise found
        finally:
            source.stop()
            # a fork in the middle of a run leaves it, too, and has none of its threads
            if crew.pid == os.getpid():
                self._leave(crew, outcomes, early=left > 0)

    def _leave(self, crew: _Crew, outcomes: queue.Queue[_Found], early: bool) -> None:
        if early:
            crew.end()
        late = time.monotonic() + PATIENCE
        while (thread := crew.thread()) is not None:
            with contextlib.suppress(queue.Empty):  # it may be waiting for room
                while True:
                    outcomes.get_nowait()
            thread.join(0.05)
            if time.monotonic() > late:  # it may be waiting for a copy that does not come
                self._processes.interrupt()
                late = math.inf
        with self._lock:
            self._crews.discard(crew)

    def close(self) -> None:
        """Ends all processes. A run that is under way, of whatever thread, raises."""
        self._here()
        with self._lock:
            crews = list(self._crews)
        for crew in crews:
            crew.end()
        _end_all(self._idle, self._processes)


class _SoFar(NamedTuple):
    """How far a task is."""

    task: dict[str, Any]
    numbers: list[Any]


_Found = Outcome | _SoFar | BaseException | None
"""What a worker says of its tasks; at last, None."""


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
        self,
        orders: dict[str, Any],
        source: _Source,
        outcomes: queue.Queue[_Found],
        retries: int,
        idle: list[Process],
        processes: Processes,
    ) -> None:
        self._orders, self._source, self._outcomes, self._retries = (
            orders,
            source,
            outcomes,
            retries,
        )
        self._idle, self._processes = idle, processes
        self._process: Process | None = None
        self._over = False
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, name="tensorwire-worker", daemon=True)

    def _begin(self) -> Process:
        process = self._hold(self._waiting() or self._processes.start())
        if not self._begins(process) and process.copy:
            self._bury()
            process = self._hold(self._processes.new())
        process.send(self._orders)
        return process

    def _begins(self, process: Process) -> bool:
        """Waits for its first word. Whoever wanted to end it before that could not."""
        begun = process.begins()
        with self._lock:
            if self._over:
                process.kill()
                raise _Over
        return begun

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
            # Its task is not done, and the others may be: a run that is left hears it no more, any
            # other must not end as if all were there.
            self._outcomes.put(TensorwireError("the engine was closed while it worked"))
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
            made = (
                outcome(task, found, attempts)
                if found is not None
                else Outcome(task, None, _died(task, status, attempts), attempts)
            )
            passing = found is None or (
                made.error is not None and errors_as_json.passing(made.error)
            )
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


class _Crew:
    """The workers of one run."""

    def __init__(self, workers: list[_Worker]) -> None:
        self._workers, self.pid = workers, os.getpid()

    def start(self) -> None:
        for one in self._workers:
            one.thread.start()

    def thread(self) -> threading.Thread | None:
        """One that is still at work."""
        return next((one.thread for one in self._workers if one.thread.is_alive()), None)

    def end(self) -> None:
        for one in self._workers:
            one.end()


def _folder() -> str | None:
    """Where the paths of tasks start from, which is not where workers were started; None if it is
    gone.
    """
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return None


def _end_all(idle: list[Process], processes: Processes) -> None:
    try:
        with contextlib.suppress(IndexError):
            while True:
                idle.pop().end()
    finally:
        processes.close()


class _Over(Exception):
    """The engine is being closed."""


def _died(task: dict[str, Any], status: int | None, attempts: int) -> TensorwireError:
    how = (
        "early"
        if status is None
        else f"by signal {-status}"
        if status < 0
        else f"with status {status}"
    )
    path = next((part["path"] for part in task.get("parts", ())), task.get("path"))
    return TensorwireError(
        f"the worker ended {how}, {attempts} times; is there enough memory for it?", path=path
    )
