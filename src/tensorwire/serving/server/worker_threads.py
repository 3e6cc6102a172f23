"""Worker threads for requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from .http1 import BadRequest


class WorkerThreads:
    """Worker threads: a new one is started whenever all are busy, and kept for later requests.

    They are daemons, so they do not keep the process alive.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = self._threads = 0

    @property
    def are_needed(self) -> bool:
        return not self._tasks.empty()

    def reserve(self) -> None:
        """Reserve a thread for the next `put`; raise BadRequest if none can be started."""
        with self._lock:
            if self._idle:
                self._idle -= 1
                return
            try:
                threading.Thread(target=self._run, name="tensorwire-request", daemon=True).start()
            except (RuntimeError, MemoryError):
                raise BadRequest(
                    503, "cannot start a thread for this request; try again later"
                ) from None
            self._threads += 1

    def put(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)

    def stop(self) -> None:
        for _ in range(self._threads):
            self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            # The task refers to the connection and its buffers.
            del task
            with self._lock:
                self._idle += 1
