"""The local engine: worker processes on this machine.

1. Each run has its own workers. A worker is a thread of this process that talks to one worker
   process: it pulls a task, sends it, and puts the outcome in a queue. `run` yields from the queue.
2. If a process dies, its thread starts another one and repeats the task, up to `retries` times.
3. After a run, processes are kept idle for the next one. After an error they are killed.
4. Worker processes are not forks of the user's process. They hold none of its locks and
   connections, and a script needs no `if __name__ == "__main__"`.
5. `close` may come from any thread at any time, also before the first message of a new process has
   told its pid. So a worker is marked as closed under its lock, and its thread checks the mark
   whenever it takes a process or has waited for one.
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

from ..._errors import TensorwireError, UsageError
from ...codecs.conversion_spec import ConversionSpec
from ...transforms.compression.streams import available_cores
from . import RETRIES, Outcome, Watch, answer, errors_as_json, outcome
from .processes import PATIENCE, Process, Processes


class LocalEngine:
    """Runs tasks in `workers` processes: one for each core by default, 0 for this process itself.

    A task whose worker dies is repeated up to `retries` times. Threads may share an engine, because
    each run has its own workers. In a fork of this process it starts its own workers, too.

    >>> LocalEngine(workers=2).workers
    2
    """

    def __init__(self, workers: int | None = None, *, retries: int = RETRIES) -> None:
        if workers is not None and workers < 0:
            raise UsageError(
                f"workers must be 0 (this process) or a number of processes, not {workers}"
            )
        self.workers = available_cores() if workers is None else workers
        self.retries = retries
        self._watches = threading.local()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._running: set[_Worker] = set()
        """The workers of all runs that are under way."""
        self._processes = Processes()
        self._idle: list[Process] = []
        """Processes that wait for the next run."""
        self._finalizer = weakref.finalize(self, _end_all, self._idle, self._processes)

    def _check_fork(self) -> None:
        """In a fork, abandons the processes of the parent, and starts with none."""
        if self._pid != os.getpid():
            self._finalizer()
            self._reset()

    @property
    def watch(self) -> Watch | None:
        """The progress callback for the runs of the current thread."""
        return getattr(self._watches, "watch", None)

    @watch.setter
    def watch(self, watch: Watch | None) -> None:
        self._watches.watch = watch

    def prepare(self, tasks: int, formats: Iterable[str]) -> None:
        """Starts processes for so many tasks, and has them import what these formats need, while
        the planner is still at work.
        """
        if not self.workers:
            return
        self._check_fork()
        self._processes.prepare(formats)
        for _ in range(min(self.workers, tasks) - len(self._idle)):
            process = self._processes.start()
            process.send({"formats": list(formats)})
            self._idle.append(process)

    def run(self, spec: ConversionSpec, tasks: Iterable[dict[str, Any]]) -> Iterator[Outcome]:
        """Yields outcomes as they come. After an error, Ctrl-C or an early close of the iterator
        the processes are killed; otherwise they stay idle until the next run or `close`.
        """
        if not self.workers:
            for task in tasks:
                tell = functools.partial(self.watch, task) if self.watch is not None else None
                yield outcome(task, answer(task, spec, tell))
            return
        self._check_fork()
        messages: queue.Queue[_Message] = queue.Queue(4 * self.workers)
        source, setup = _Source(tasks), {"spec": spec.json(), "folder": _folder()}
        pid = os.getpid()
        workers = [
            _Worker(setup, source, messages, self.retries, self._idle, self._processes)
            for _ in range(self.workers)
        ]
        left = self.workers
        try:
            with self._lock:
                self._running.update(workers)
            for worker in workers:
                worker.thread.start()
            while left:
                message = messages.get()
                if message is None:
                    left -= 1
                elif isinstance(message, Outcome):
                    yield message
                elif isinstance(message, _SoFar):
                    if (watch := self.watch) is not None:
                        watch(message.task, *message.numbers)
                else:
                    raise message
        finally:
            source.stop()
            # A fork in the middle of a run comes here, too, and has none of the threads.
            if pid == os.getpid():
                self._leave(workers, messages, early=left > 0)

    def _leave(self, workers: list[_Worker], messages: queue.Queue[_Message], early: bool) -> None:
        """Waits until all threads of a run have ended."""
        if early:
            _end_workers(workers)
        deadline = time.monotonic() + PATIENCE
        while alive := [worker.thread for worker in workers if worker.thread.is_alive()]:
            # A thread may be waiting for room in the queue.
            with contextlib.suppress(queue.Empty):
                while True:
                    messages.get_nowait()
            alive[0].join(0.05)
            # A thread may be waiting for a fork that never begins.
            if time.monotonic() > deadline:
                self._processes.interrupt()
                deadline = math.inf
        with self._lock:
            self._running.difference_update(workers)

    def close(self) -> None:
        """Ends all processes. A run that is under way in another thread raises."""
        self._check_fork()
        with self._lock:
            running = list(self._running)
        _end_workers(running)
        _end_all(self._idle, self._processes)


class _SoFar(NamedTuple):
    """The progress of a task."""

    task: dict[str, Any]
    numbers: list[Any]


_Message = Outcome | _SoFar | BaseException | None
"""A message from the thread of a worker; the last one is None."""


class _Source:
    """The iterator of tasks, shared by the threads."""

    def __init__(self, tasks: Iterable[dict[str, Any]]) -> None:
        self._tasks, self._lock = iter(tasks), threading.Lock()
        self._ended = False

    def next(self) -> dict[str, Any] | None:
        with self._lock:
            if self._ended:
                return None
            task = next(self._tasks, None)
            self._ended = task is None
            return task

    def stop(self) -> None:
        self._ended = True


class _Worker:
    """A worker process, and the thread that talks to it."""

    def __init__(
        self,
        setup: dict[str, Any],
        source: _Source,
        messages: queue.Queue[_Message],
        retries: int,
        idle: list[Process],
        processes: Processes,
    ) -> None:
        self._setup, self._source, self._messages, self._retries = setup, source, messages, retries
        self._idle, self._processes = idle, processes
        self._process: Process | None = None
        self._closed = False
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, name="tensorwire-worker", daemon=True)

    def _begin(self) -> Process:
        """Takes an idle process or starts one, and sends it the spec."""
        process = self._adopt(self._idle_process() or self._processes.start())
        if not self._begins(process) and process.is_fork:
            self._reap()
            process = self._adopt(self._processes.new())
        process.send(self._setup)
        return process

    def _begins(self, process: Process) -> bool:
        """Waits for the first message of a process. `end` could not kill it before that, because
        its pid was not known.
        """
        begun = process.begins()
        with self._lock:
            if self._closed:
                process.kill()
                raise _Closed
        return begun

    def _adopt(self, process: Process) -> Process:
        """Makes a process that of this worker, unless the worker was closed meanwhile."""
        with self._lock:
            if not self._closed:
                self._process = process
                return process
        process.end()
        raise _Closed

    def _idle_process(self) -> Process | None:
        """A process of an earlier run that is still alive."""
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
                self._messages.put(self._done(task))
            self._release()
        except _Closed:
            # The task is not done. A run that is left early ignores this message; any other run
            # must not end as if all tasks were done.
            self._messages.put(TensorwireError("the engine was closed while it was running"))
        except BaseException as error:
            # The iterator of tasks has raised: the error belongs to the driver.
            self._messages.put(error)
        finally:
            self._reap()
            self._messages.put(None)

    def _done(self, task: dict[str, Any]) -> Outcome:
        """Runs a task, with retries."""
        attempts = 0
        while True:
            attempts += 1
            answered, status = self._attempt(task)
            made = (
                outcome(task, answered, attempts)
                if answered is not None
                else Outcome(task, None, _died(task, status, attempts), attempts)
            )
            passing = answered is None or (
                made.error is not None and errors_as_json.passing(made.error)
            )
            if not passing or attempts > self._retries:
                return made

    def _attempt(self, task: dict[str, Any]) -> tuple[dict[str, Any] | None, int | None]:
        """The answer to a task, or None and the exit status of a process that died."""
        process = self._process if self._process is not None else self._begin()
        process.send(task)
        while (message := process.read()) is not None:
            if "so_far" not in message:
                return message, 0
            self._messages.put(_SoFar(task, message["so_far"]))
        if self._closed:
            raise _Closed
        return None, self._reap()

    def _release(self) -> None:
        """Leaves the process to the next run."""
        with self._lock:
            if not self._closed and self._process is not None:
                self._idle.append(self._process)
                self._process = None

    def _reap(self) -> int | None:
        """Ends the process, if there is one, and returns its exit status."""
        with self._lock:
            process, self._process = self._process, None
        return process.end() if process is not None else None

    def end(self) -> None:
        """Kills the process, whatever it is doing. The thread then sees the end of its pipe."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()


def _end_workers(workers: Iterable[_Worker]) -> None:
    for worker in workers:
        worker.end()


def _folder() -> str | None:
    """The folder that relative paths of tasks start from, in which workers may not have been
    started; None if it was removed.
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


class _Closed(Exception):
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
        f"the worker process ended {how}, {attempts} times",
        path=path,
        hint="check that there is enough memory for it",
    )
