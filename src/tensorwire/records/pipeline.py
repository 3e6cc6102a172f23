"""An ordered thread pipeline: jobs are taken one at a time and run in parallel.

How results stay in order while threads work independently:

1. A thread first acquires one of `depth` permits, so at most `depth` results are in progress or
   waiting for the consumer.
2. It takes the next job from the source under the `_source` lock. Reading a file happens there, one
   thread at a time, and the job's number fixes the place of its result.
3. It runs the job without a lock. Decoding releases the GIL, so jobs run in parallel.
4. It stores the result, or the exception, under its number and notifies the consumer.
5. The consumer waits for exactly the next number, removes that result and returns its permit. So
   the order of the results does not depend on the number of threads.
6. An exception takes the place of a result. It is raised in order, after all results before it, and
   closes the pipeline.
7. The end of the source, and `close`, release one permit per thread, so that no thread waits for
   ever. A thread that gets such a permit sees the flag and returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class Pipeline(Generic[Job, Result]):
    """An iterator over the results of jobs, in the order of the jobs.

    `close` stops and joins all threads, whatever they are doing. So does an error, after it is
    raised.

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
                # An error of the source takes the number of the job that could not be read. It is
                # the last result.
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
                # The thread may wait long for its next job. It must not keep memory of this one
                # alive meanwhile.
                del job
            with self._ready:
                self._results[number] = result, error
                self._ready.notify()
            del result, error

    def _finish(self, count: int) -> None:
        with self._ready:
            self._end = count
            self._ready.notify()
        # Wake the threads that wait for a permit, so that they see the end and return.
        for _ in self._threads:
            self._room.release()

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        with self._ready:
            while self._given not in self._results:
                if self._stopped or (self._end is not None and self._given >= self._end):
                    break
                self._ready.wait()
            entry = self._results.pop(self._given, None)
        if entry is None:
            self.close()
            raise StopIteration
        self._given += 1
        self._room.release()
        result, error = entry
        if error is not None:
            self.close()
            raise error
        return result  # type: ignore[return-value]

    def close(self) -> None:
        """Stop all threads and wait for them."""
        self._stopped = True
        for _ in self._threads:
            self._room.release()
        with self._ready:
            self._ready.notify_all()
        for thread in self._threads:
            # A thread cannot join itself, in case one of these threads closes the pipeline.
            if thread is not threading.current_thread():
                thread.join()
        self._results.clear()
        close = getattr(self._jobs, "close", None)
        if close is not None:
            close()
