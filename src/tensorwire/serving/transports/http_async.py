"""The HTTP transport for asyncio.

The event loop needs `add_reader` and `add_writer`: all loops have them, except Windows' proactor.
"""

from __future__ import annotations

import asyncio
import select
from typing import Self, TypeVar

from . import Answer, Call, Deadline
from .drivers import Steps, Wait, seconds_to
from .http_client import FAILURES, HttpConnection

_TURN = 0.005
"""Seconds of work after which other tasks get a turn."""
T = TypeVar("T")


class AsyncHttpTransport(HttpConnection):
    """HTTP/1.1 for asyncio, with the arguments of HttpConnection. Tasks can share it.

    A cancelled call closes its connection.

    >>> async def call():
    ...     async with AsyncHttpTransport("http://127.0.0.1:1", connect=0.5) as transport:
    ...         await transport.send(Call("GET", "/v1/models/m"), Deadline.after(1))
    >>> asyncio.run(call())
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: cannot connect to 127.0.0.1:1: ... refused (path
    http://127.0.0.1:1/v1/models/m); is the server running there?
    """

    async def send(self, call: Call, deadline: Deadline) -> Answer:
        """Send a call and return its answer."""
        try:
            return await run(self._exchange(call, deadline), deadline)
        except FAILURES as error:
            error.add(path=self._where(call))
            raise

    async def close(self) -> None:
        """Close the idle connections; calls in progress are finished."""
        self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


async def run(steps: Steps[T], deadline: Deadline) -> T:
    """Run the steps in this event loop; raise DeadlineError if they take too long.

    `drivers.run` does the same in a thread.
    """
    loop = asyncio.get_running_loop()
    try:
        deadline.left()
        turn, wait = loop.time(), next(steps)
        while True:
            deadline.left()
            if wait is not None:
                ready = await _ready(loop, wait, deadline)
                turn = loop.time()
            else:
                ready = True
                if loop.time() - turn > _TURN:
                    await asyncio.sleep(0)
                    turn = loop.time()
            wait = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        # Cancellation and errors run the cleanup of the steps, which closes their sockets.
        steps.close()


async def _ready(loop: asyncio.AbstractEventLoop, wait: Wait, deadline: Deadline) -> bool:
    """Wait until the socket is ready; return False if `wait.until` has passed."""
    ready: asyncio.Future[bool] = loop.create_future()

    def done(result: bool) -> None:
        if not ready.done():
            ready.set_result(result)

    end, file = min(wait.until, deadline.at), wait.sock.fileno()
    timer = loop.call_later(seconds_to(end, deadline), done, False)
    try:
        if wait.events & select.POLLIN:
            loop.add_reader(file, done, True)
        if wait.events & select.POLLOUT:
            loop.add_writer(file, done, True)
        if await ready:
            return True
    finally:
        timer.cancel()
        loop.remove_reader(file)
        loop.remove_writer(file)
    if end == deadline.at:
        raise deadline.passed()
    return False
