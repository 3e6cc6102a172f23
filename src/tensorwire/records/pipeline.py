"""Work on threads, in order: a source that is asked for one job at a time, and jobs that run side
by side.

What a thread takes from the source is done under a lock (reading a file), what it makes of it is
not (decoding, which holds no GIL). Results come out in the order of the jobs, however many threads
there are, and at most `depth` are under way or waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class Pipeline(Generic[Job, Result]):
    """An iterator over results. `close` stops and joins all threads, whatever they are at; so does
    an error, after it was raised.

    >>> list(Pipeline(iter(range(5)), lambda n: n * n, workers=2, depth=4))
    [0, 1, 4, 9, 16]
    """

    def __init__(
        self, jobs: Iterator[Job], work: Callable[[Job], Result], workers: int, depth: int
    ) -> None:
        self._jobs, self._work = jobs, work
        self._source = threading.Lock()
        self._room = threading.Semaphore(depth)
        self._ready = threading.Condition()
        self._results: dict[int, tuple[Result | None, BaseException | None]] = {}
        self._taken = self._given = 0
        self._end: int | None = None
        """The number of jobs, once it is known."""
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run, name=f"tensorwire-{i}", daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while True:
            self._room.acquire()
            with self._source:
                if self._stopped or self._end is not None:
                    return
                number = self._taken
                error: BaseException | None = None
                try:
                    job = next(self._jobs)
                    self._taken += 1
                except StopIteration:
                    self._finish(number)
                    return
                except BaseException as problem:
                    error = problem
                    self._taken += 1
                    self._finish(number + 1)
            result = None
            if error is None:
                try:
                    result = self._work(job)
                except BaseException as problem:
                    error = problem
                del job
            with self._ready:
                self._results[number] = result, error
                self._ready.notify()
            del result, error

    def _finish(self, count: int) -> None:
        with self._ready:
            self._end = count
            self._ready.notify()
        for _ in self._threads:  # those that wait for room need none any more
            self._room.release()

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        with self._ready:
            while self._given not in self._results:
                if self._stopped or (self._end is not None and self._given >= self._end):
                    break
                self._ready.wait()
            found = self._results.pop(self._given, None)
        if found is None:
            self.close()
            raise StopIteration
        self._given += 1
        self._room.release()
        result, error = found
        if error is not None:
            self.close()
            raise error
        return result  # type: ignore[return-value]

    def close(self) -> None:
        """Ends all threads and waits for them."""
        self._stopped = True
        for _ in self._threads:
            self._room.release()
        with self._ready:
            self._ready.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._results.clear()
        close = getattr(self._jobs, "close", None)
        if close is not None:
            close()
