"""Drivers for I/O that is written once for threads and for asyncio.

The I/O is a generator of steps. It never blocks: it yields a `Wait` for a socket, and the driver (a
loop in this thread, or `http_async.run` in an event loop) waits and sends the result back.
"""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Generator
from typing import NamedTuple, TypeVar

from . import Deadline

T = TypeVar("T")


class Wait(NamedTuple):
    """A wait until a socket is readable (`select.POLLIN`), writable (`POLLOUT`) or either.

    The driver sends back True, or False if the time `until` has passed.
    """

    sock: socket.socket
    events: int
    until: float = math.inf


Steps = Generator[Wait | None, bool, T]
"""Steps yield None after some work, without a wait, so that the driver can check the deadline and
let other tasks run.
"""


def run(steps: Steps[T], deadline: Deadline) -> T:
    """Run the steps in this thread; raise DeadlineError if they take too long.

    >>> def steps():
    ...     yield None
    ...     return 7
    >>> run(steps(), Deadline.after(1))
    7
    """
    try:
        deadline.left()
        wait = next(steps)
        while True:
            deadline.left()
            wait = steps.send(wait is None or _ready(wait, deadline))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        # Run the cleanup of the steps, which closes their sockets.
        steps.close()


def seconds_to(end: float, deadline: Deadline) -> float:
    """Return the seconds until `end` as a timeout: between 0 and 1e6, which all systems accept."""
    return max(0.0, min(end - deadline.clock(), 1e6))


def _ready(wait: Wait, deadline: Deadline) -> bool:
    """Wait until the socket is ready; return False if `wait.until` has passed."""
    poll = select.poll()
    poll.register(wait.sock, wait.events)
    end = min(wait.until, deadline.at)
    if poll.poll(math.ceil(seconds_to(end, deadline) * 1000)):
        return True
    if end == deadline.at:
        raise deadline.passed()
    return False
