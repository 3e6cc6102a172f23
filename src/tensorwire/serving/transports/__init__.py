"""How bytes get to a server and back. A transport knows nothing of tensors, models or retries: one
call, one answer, by a deadline.

    http_client.HttpTransport       HTTP/1.1, over TLS too. An exchange is written once, as steps that
    http_async.AsyncHttpTransport   say what they wait for (drivers.py). http1.py has the rules of
                                    HTTP, without I/O
    rpc.RpcTransport                gRPC by grpcio, bytes in and bytes out
    rpc_async.AsyncRpcTransport
    mock.MockTransport              for tests: answers that you give, calls that you can look at

A transport raises TransportError when the exchange broke off, ConnectError when it never began (so
that it may be tried again), DeadlineError when the time was up, LimitError when the answer is too
large. An answer with an error status is an Answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..._errors import DeadlineError, TransportError


class ConnectError(TransportError):
    """The server was not reached, or closed a connection that was kept open before it took the
    request: nothing has happened yet.
    """


class Call(NamedTuple):
    """One exchange, ready to be sent."""

    method: str
    """"GET" or "POST"; by gRPC the method's full name,
    "/tensorflow.serving.PredictionService/Predict".
    """
    target: str = ""
    """The path, percent-encoded; by gRPC nothing."""
    body: Sequence[Any] = ()
    """Buffers, one after the other."""
    headers: Mapping[str, str] = {}


class Answer(NamedTuple):
    """What came back."""

    status: int
    """HTTP's; by gRPC the one that TensorFlow Serving's REST API gives for that code."""
    headers: Mapping[str, str]
    """Names in lower case. By gRPC "grpc-status" and what the server added."""
    body: memoryview
    """All of it, unpacked; by gRPC the message, or the text of the error."""


@dataclass(frozen=True)
class Deadline:
    """A point in time that everything has to be done by.

    >>> Deadline.after(60).left() <= 60
    True
    """

    at: float
    seconds: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        return cls(clock() + seconds, seconds, clock)

    def left(self) -> float:
        """Seconds that are left; DeadlineError if there are none."""
        left = self.at - self.clock()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self) -> DeadlineError:
        return DeadlineError(f"no answer within {self.seconds:g} s; deadline= allows more")


class Transport(Protocol):
    def send(self, call: Call, deadline: Deadline) -> Answer: ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    async def send(self, call: Call, deadline: Deadline) -> Answer: ...

    async def close(self) -> None: ...
