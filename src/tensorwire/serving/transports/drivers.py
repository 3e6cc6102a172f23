"""How the same steps run in a thread and in an event loop: they are a generator that says what it
waits for, and never waits itself.
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
    """Until a socket can be read (`select.POLLIN`), written (`POLLOUT`) or either. The answer is
    whether it can, or False after `until`.
    """

    sock: socket.socket
    events: int
    until: float = math.inf


Steps = Generator[Wait | None, bool, T]
"""None means that something was done, and more can be: a moment to look at the time and to let
others run.
"""


def run(steps: Steps[T], deadline: Deadline) -> T:
    """Takes the steps in this thread; a DeadlineError if they take too long.

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
        steps.close()  # whatever they have open


def seconds_to(end: float, deadline: Deadline) -> float:
    """What is left until then, as a timeout: not negative, and with a deadline that is never, not
    more than a few days.
    """
    return max(0.0, min(end - deadline.clock(), 1e6))


def _ready(wait: Wait, deadline: Deadline) -> bool:
    poll = select.poll()
    poll.register(wait.sock, wait.events)
    end = min(wait.until, deadline.at)
    if poll.poll(math.ceil(seconds_to(end, deadline) * 1000)):
        return True
    if end == deadline.at:
        raise deadline.passed()
    return False
