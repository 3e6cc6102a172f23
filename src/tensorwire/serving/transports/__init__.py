"""Transports: they send one call to a server and return its answer, before a deadline. They do not
deal with tensors, models or retries.

    http_client.HttpTransport       HTTP/1.1, with or without TLS. The exchange is written once, as
    http_async.AsyncHttpTransport   a generator that threads and asyncio drive (drivers.py);
                                    http1.py implements HTTP without I/O
    rpc.RpcTransport                gRPC by grpcio, bytes in and bytes out
    rpc_async.AsyncRpcTransport
    mock.MockTransport              for tests: returns prepared answers and records the calls

A transport raises ConnectError if the server did not get the request (so a retry is safe),
TransportError if the exchange broke off, DeadlineError if the deadline has passed, and LimitError
if the answer is too large. An answer with an error status is returned as an Answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..._errors import DeadlineError, TransportError


class ConnectError(TransportError):
    """The server was not reached, or closed a kept-alive connection before it read the request: a
    retry is safe.
    """


class Call(NamedTuple):
    """A request, ready to be sent."""

    method: str
    """"GET" or "POST"; for gRPC the method's full name,
    "/tensorflow.serving.PredictionService/Predict".
    """
    target: str = ""
    """The path, percent-encoded; empty for gRPC."""
    body: Sequence[Any] = ()
    """Buffers, which are sent one after the other."""
    headers: Mapping[str, str] = {}


class Answer(NamedTuple):
    """The response to a call."""

    status: int
    """The HTTP status; for gRPC the one that TensorFlow Serving's REST API has for that code."""
    headers: Mapping[str, str]
    """Names in lower case. For gRPC "grpc-status" and the server's metadata."""
    body: memoryview
    """The whole body, decompressed; for gRPC the message, or the text of the error."""


@dataclass(frozen=True)
class Deadline:
    """A point in time by which a call has to be finished.

    >>> Deadline.after(60).left() <= 60
    True
    """

    at: float
    seconds: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Return the deadline that many seconds from now."""
        return cls(clock() + seconds, seconds, clock)

    def left(self) -> float:
        """Return the seconds that are left; raise DeadlineError if the deadline has passed."""
        left = self.at - self.clock()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self) -> DeadlineError:
        """Return the error for a deadline that has passed."""
        return DeadlineError(
            f"no answer within {self.seconds:g} s", hint="a larger deadline= allows more time"
        )


class Transport(Protocol):
    """A transport for threads."""

    def send(self, call: Call, deadline: Deadline) -> Answer: ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    """A transport for asyncio."""

    async def send(self, call: Call, deadline: Deadline) -> Answer: ...

    async def close(self) -> None: ...
