"""The HTTP client core: one call, from the connection to the answer, for threads and for asyncio.

1. A call takes a kept-alive connection from the pool, or opens a new one: TCP, then the tunnel
   through a proxy, then TLS. If all connections are in use, it waits for its turn.
2. The request is sent and the answer is read at the same time. A server may refuse a large body
   while it is being sent, and its answer is read even if it never reads the rest.
3. If sending fails, the answer is still read: it may say why.
4. A connection goes back into the pool only if the whole request was sent, the answer is complete,
   and nothing follows it. Otherwise it is closed.
5. If a kept-alive connection turns out to be closed before the first byte of the answer, the error
   is a ConnectError, which the client retries. On a new connection it is a TransportError: the
   server may have processed the request.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Self

from ..._errors import LimitError, TransportError, UsageError
from ..._limits import DEFAULT, Limits
from . import Answer, Call, ConnectError, Deadline
from .addresses import Origin
from .connections import Busy, Connection, ConnectionPool, connect
from .drivers import Steps, Wait, run
from .http1 import ResponseReader, check_header, request

if TYPE_CHECKING:
    import ssl

CONNECTIONS = 32
_AT_ONCE = 64
"""Buffers for one system call; systems limit their number, most to 1024."""


class HttpConnection:
    """A server and the connections to it.

    url          http(s)://host[:port][/prefix]; every call's target is appended to the prefix
    context      TLS settings for https://, such as other authorities or a client certificate; the
                 default trusts the system's authorities
    connect      seconds to open a connection, with TLS and all addresses of the host name
    proxy        http://[user:password@]host:port; environment variables are ignored
    connections  the most concurrent connections; more calls wait for their turn
    headers      sent with every call
    """

    def __init__(
        self,
        url: str,
        *,
        context: ssl.SSLContext | None = None,
        connect: float = 5.0,
        proxy: str | None = None,
        connections: int = CONNECTIONS,
        headers: Mapping[str, str] | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        self._origin = Origin.parse(url)
        self._proxy = Origin.parse(proxy, proxy=True) if proxy is not None else None
        self._headers = dict(check_header(name, value) for name, value in (headers or {}).items())
        self._prefix = self._origin.prefix
        # For http:// a proxy expects the full URL in the request line; https:// uses a tunnel.
        if self._proxy and not self._origin.secure:
            self._prefix = f"http://{self._origin.authority}{self._prefix}"
            self._headers.update(
                {"Proxy-Authorization": self._proxy.login} if self._proxy.login else {}
            )
        if not 0 < connect < math.inf:
            raise UsageError(f"connect= expects a positive number of seconds, got {connect}")
        if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
            raise UsageError(f"connections= expects a positive integer, got {connections!r:.60}")
        self._connect_seconds, self._limits = connect, limits
        self._context = context
        if self._origin.secure and context is None:
            # Imported here because ssl takes long to load.
            from .tls import default_context

            self._context = default_context()
        self._pool = ConnectionPool(connections)

    def _exchange(self, call: Call, deadline: Deadline) -> Steps[Answer]:
        """Send a call over a connection of the pool and return the answer."""
        buffers = request(call, self._origin.authority, self._prefix, self._headers)
        reader = ResponseReader(call.method, self._limits)
        connection, kept = (yield from self._pool.take()), None
        try:
            if connection is None:
                connection = yield from self._connect(deadline)
            all_sent = yield from _talk(connection, buffers, reader)
            kept = connection if all_sent and reader.keep else None
        except BaseException:
            reader.forget()
            raise
        finally:
            if connection is not None and kept is None:
                connection.close()
            self._pool.give_back(kept)
        return reader.answer

    def _connect(self, deadline: Deadline) -> Steps[Connection]:
        """Open a connection to the server: TCP, tunnel, TLS."""
        until = min(deadline.clock() + self._connect_seconds, deadline.at)
        connection = yield from connect(
            self._proxy or self._origin, self._connect_seconds, until, deadline.clock
        )
        if self._context is None or not self._origin.secure:
            return connection
        if self._proxy:
            yield from self._tunnel(connection, self._proxy, until)
        from .tls import secure

        return (yield from secure(connection, self._origin, self._context, until))

    def _tunnel(self, connection: Connection, proxy: Origin, until: float) -> Steps[None]:
        """Let a proxy connect to the server, by CONNECT."""
        headers = {"Proxy-Authorization": proxy.login} if proxy.login else {}
        buffers = request(Call("CONNECT", self._origin.place, headers=headers), self._origin.place)
        reader = ResponseReader("CONNECT", self._limits)
        try:
            yield from _talk(connection, buffers, reader, until)
            status = reader.answer.status
            if status >= 500:
                raise ConnectError(
                    f"the proxy {proxy.place} cannot connect to {self._origin.place}: status"
                    f" {status}"
                )
            # Bytes after the proxy's answer cannot come from the server, which speaks second.
            if not 200 <= status < 300 or reader.surplus:
                raise TransportError(
                    f"the proxy {proxy.place} refused to connect to {self._origin.place}: status"
                    f" {status}"
                )
        except BaseException:
            connection.close()
            raise

    def _where(self, call: Call) -> str:
        """Return the URL of a call, for error messages."""
        scheme = "https" if self._origin.secure else "http"
        return f"{scheme}://{self._origin.authority}{self._origin.prefix}{call.target}"


FAILURES = (TransportError, LimitError)
"""Errors that get the URL as their path."""


class HttpTransport(HttpConnection):
    """HTTP/1.1 for threads, with the arguments of HttpConnection. Threads can share it.

    >>> with HttpTransport("http://127.0.0.1:1", connect=0.5) as transport:
    ...     transport.send(Call("GET", "/v1/models/m"), Deadline.after(1))
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: cannot connect to 127.0.0.1:1: ... refused (path
    http://127.0.0.1:1/v1/models/m); is the server running there?
    """

    def send(self, call: Call, deadline: Deadline) -> Answer:
        """Send a call and return its answer."""
        try:
            return run(self._exchange(call, deadline), deadline)
        except FAILURES as error:
            error.add(path=self._where(call))
            raise

    def close(self) -> None:
        """Close the idle connections; calls in progress are finished."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _talk(
    connection: Connection,
    buffers: Iterable[memoryview],
    reader: ResponseReader,
    until: float = math.inf,
) -> Steps[bool]:
    """Send a request while reading its answer; return whether the whole request was sent."""
    unsent = deque(buffers)
    broken: OSError | None = None
    while not reader.done:
        events = 0
        try:
            if unsent:
                _drop(unsent, connection.send([*islice(unsent, _AT_ONCE)]))
                yield None
                continue
        except Busy as busy:
            # The server does not take more bytes now, but it may be answering already.
            events = busy.events
        except OSError as error:
            # Read on: the server may have answered before it closed the connection. The traceback
            # is dropped, because it refers to this frame: a reference cycle.
            broken = error.with_traceback(None)
            unsent.clear()
        try:
            count = connection.receive(reader.room())
        except Busy as busy:
            if not (yield Wait(connection.sock, events | busy.events, until)):
                raise ConnectError(
                    "the proxy did not answer in time", hint="a larger connect= allows more time"
                ) from None
            continue
        except OSError as error:
            raise _broke(connection, reader, broken or error) from error
        if not count and not reader.started:
            raise _broke(connection, reader, broken)
        reader.filled(count)
        yield None
    return not unsent and broken is None


def _drop(unsent: deque[memoryview], count: int) -> None:
    """Remove the first `count` bytes."""
    while unsent and count >= len(unsent[0]):
        count -= len(unsent.popleft())
    if count:
        unsent[0] = unsent[0][count:]


def _broke(connection: Connection, reader: ResponseReader, error: OSError | None) -> TransportError:
    """Return the error for a connection that broke off."""
    reason = f": {error}" if error else ""
    if reader.started:
        return TransportError(f"the connection broke off during the answer{reason}")
    if connection.used:
        return ConnectError(f"the server closed a kept-alive connection without an answer{reason}")
    return TransportError(f"the server closed the connection without an answer{reason}")
