"""One call to an HTTP server, from the connection to the answer: what the transports for threads
and for asyncio share.

A call is sent and its answer read at the same time: a server that refuses a large body says so
while it is still being sent, and one that reads nothing cannot keep us from seeing what it says.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Self

from ..._errors import EncodeError, LimitError, TransportError
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
"""Buffers for one system call; there is a limit, which is not the same everywhere."""


class HttpConnection:
    """A server, and the connections to it.

    url          http(s)://host[:port][/prefix]; the prefix is put before every call's target
    context      for https: other authorities, a certificate of ours; without it the system's
                 authorities
    connect      seconds for a new connection, TLS included, over all addresses of the name together
    proxy        http://[user:password@]host:port; none is taken from the environment
    connections  how many there may be at once; more calls wait for their turn
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
        if self._proxy and not self._origin.secure:  # it wants the whole URL
            self._prefix = f"http://{self._origin.authority}{self._prefix}"
            self._headers.update(
                {"Proxy-Authorization": self._proxy.login} if self._proxy.login else {}
            )
        if not 0 < connect < math.inf:
            raise EncodeError(f"connect={connect} has to be a number of seconds")
        if isinstance(connections, bool) or not isinstance(connections, int) or connections < 1:
            raise EncodeError(f"connections={connections!r:.60}; a number of at least 1 is needed")
        self._connect_seconds, self._limits = connect, limits
        self._context = context
        if self._origin.secure and context is None:
            from .tls import default_context  # ssl takes its time to load

            self._context = default_context()
        self._pool = ConnectionPool(connections)

    def _exchange(self, call: Call, deadline: Deadline) -> Steps[Answer]:
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
        headers = {"Proxy-Authorization": proxy.login} if proxy.login else {}
        buffers = request(Call("CONNECT", self._origin.place, headers=headers), self._origin.place)
        reader = ResponseReader("CONNECT", self._limits)
        try:
            yield from _talk(connection, buffers, reader, until)
            status = reader.answer.status
            if status >= 500:
                raise ConnectError(
                    f"the proxy {proxy.place} has no connection to {self._origin.place}: status"
                    f" {status}"
                )
            if not 200 <= status < 300 or reader.surplus:
                raise TransportError(
                    f"the proxy {proxy.place} makes no connection to {self._origin.place}: status"
                    f" {status}"
                )
        except BaseException:
            connection.close()
            raise

    def _where(self, call: Call) -> str:
        return f"http{'s' if self._origin.secure else ''}://{self._origin.authority}{self._origin.prefix}{call.target}"


FAILURES = (TransportError, LimitError)
"""Errors of the server, which get its URL."""


class HttpTransport(HttpConnection):
    """One call, one answer; for any number of threads at once. Arguments are those of HttpConnection.

    >>> with HttpTransport("http://127.0.0.1:1", connect=0.5) as transport:
    ...     transport.send(Call("GET", "/v1/models/m"), Deadline.after(1))
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: no connection to 127.0.0.1:1 (... refused); does it
    run there? ...
    """

    def send(self, call: Call, deadline: Deadline) -> Answer:
        try:
            return run(self._exchange(call, deadline), deadline)
        except FAILURES as error:
            error.add(path=self._where(call))
            raise

    def close(self) -> None:
        """Closes what is kept; a call that is on its way is finished."""
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
    """Sends and reads until the answer is there; whether all was sent by then."""
    unsent = deque(buffers)
    broken: OSError | None = None
    while not reader.done:
        events = 0
        try:
            if unsent:
                _drop(unsent, connection.send([*islice(unsent, _AT_ONCE)]))
                yield None
                continue
        except Busy as busy:  # it may be answering already
            events = busy.events
        except OSError as error:  # it may have said why
            broken = error.with_traceback(None)  # which would be a cycle
            unsent.clear()
        try:
            count = connection.receive(reader.room())
        except Busy as busy:
            if not (yield Wait(connection.sock, events | busy.events, until)):
                raise ConnectError(
                    "the proxy does not answer in time; connect= allows more"
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
    """Forgets so many bytes at the front."""
    while unsent and count >= len(unsent[0]):
        count -= len(unsent.popleft())
    if count:
        unsent[0] = unsent[0][count:]


def _broke(connection: Connection, reader: ResponseReader, error: OSError | None) -> TransportError:
    why = f": {error}" if error else ""
    if reader.started:
        return TransportError(f"the connection broke off during the answer{why}")
    if connection.used:
        return ConnectError(
            f"the server closed a connection that was kept open{why}; nothing was answered"
        )
    return TransportError(f"the server took the connection and closed it without an answer{why}")
