"""The REST port: connections and threads. Slow clients, idle connections and too many clients do
not block other clients.

1. The accepting thread accepts connections and reads heads and small bodies, as far as they have
   come. Thousands of connections may wait there; none of them occupies a worker thread.
2. A complete request takes one of `Bounds.connections` slots and goes to a worker thread. If no
   slot is free, it is answered 503 with Retry-After. Large bodies are received by a worker before
   they take a slot.
3. A refused client is drained before its connection is closed: closing a socket with unread bytes
   resets the connection, and the client loses the answer.
4. When file descriptors run short, the connection that has been silent for longest is closed.
   Connections whose request is received or answered by a worker are not closed.
5. On `stop`, requests that have a slot are answered. All others get 503 until the last one is done.

A connection is owned by one thread at a time: by the accepting thread while it is in `_waiting`, by
a worker after `_proceed`, and by the accepting thread again after the worker has put it into
`_returned`. Only its owner reads, writes and closes the socket. Other threads may only shut it down
(`end`), which wakes up the owner.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection

from ..hosts import is_own_host
from .http1 import BadRequest, Head, HttpRequest
from .request_reader import BodyMemory, Bounds, Gone
from .server_connection import DRAIN, Handler, ServerConnection
from .worker_threads import WorkerThreads

Log = Callable[[str], None]
_RESERVED = 128
"""File descriptors that are reserved for models, logs and the gRPC port."""
_MOST_OPEN = 16_384
_AT_ONCE = 64
"""New connections that are accepted before the open ones get a turn."""
_TICK = 0.25
"""Seconds between two checks for connections whose time has run out."""
_LINGER = 0.2
"""Seconds that idle connections stay open on `stop`, so that a request on its way is answered."""
_NEXT = 0.02
"""Seconds that a worker waits for the next request on the connection that it has answered."""
_STALLED = 1.0
"""Seconds without a byte after which the transfer of a large body gives way to another one."""


class HttpServer:
    """An HTTP server. It has its port from the start, and accepts connections between `start` and
    `stop`.

    `hosts` are allowed names in the Host header, in addition to those of the loopback interface.
    """

    def __init__(
        self,
        handler: Handler,
        host: str,
        port: int,
        bounds: Bounds,
        log: Log | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        self._handler, self._log, self.bounds = handler, log, bounds
        self._hosts = (host, *hosts)
        self.budget = BodyMemory(2 * bounds.body)
        # Guards the two sets below, which `stop` waits to be empty.
        self._state = threading.Condition()
        self._running: set[ServerConnection] = set()
        self._receiving: set[ServerConnection] = set()
        self._returned: deque[ServerConnection] = deque()
        """Connections that workers have answered, on their way back to the accepting thread."""
        self._waiting: OrderedDict[ServerConnection, None] = OrderedDict()
        """Connections of the accepting thread; the one that was silent for longest comes first."""
        self._stopping = self._closing = False
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        usable = _MOST_OPEN if descriptors == resource.RLIM_INFINITY else descriptors - _RESERVED
        self._most_open = max(_RESERVED, min(_MOST_OPEN, usable))
        self._workers = WorkerThreads()
        self._thread: threading.Thread | None = None
        self._selector = selectors.DefaultSelector()
        self._listener = listen(host, port)
        self._listener.setblocking(False)
        # A byte that is written to the bell wakes up the accepting thread, which selects the alarm.
        self._alarm, self._bell = socket.socketpair()
        for sock in (self._alarm, self._bell):
            sock.setblocking(False)
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._accepting, name="tensorwire-rest", daemon=True)
        self._thread.start()

    def stop(self, grace: float) -> bool:
        """Let requests in progress finish within `grace` seconds; refuse others with 503.

        Returns whether all of them have finished.
        """
        with self._state:
            self._stopping = True
            self._ring()
            for connection in self._receiving:
                connection.end(socket.SHUT_RD)
            done = self._state.wait_for(lambda: not self._running and not self._receiving, grace)
            busy = [*self._running, *self._receiving]
        for connection in busy:
            connection.end()
        self._closing = True
        self._ring()
        if self._thread is not None:
            self._thread.join(_LINGER + 2)
        self._workers.stop()
        for closable in (self._listener, self._selector, self._alarm, self._bell):
            closable.close()
        return done

    def _ring(self) -> None:
        """Wake up the accepting thread."""
        # Sending fails if the buffer is full of wake-ups that are not read yet.
        with contextlib.suppress(OSError):
            self._bell.send(b"\0")

    # The accepting thread

    def _accepting(self) -> None:
        """Run the accepting thread.

        1. Select: accept connections, and read from those that are readable.
        2. Take back the connections that workers have answered.
        3. Close the connections whose time has run out, every `_TICK` seconds.
        4. After `stop`, refuse clients that still connect, for `_LINGER` seconds; then end.
        """
        looked, ends = time.monotonic(), None
        while True:
            for key, _ in self._selector.select(0.02 if self._stopping else _TICK):
                if key.fileobj is self._listener:
                    self._accept(_AT_ONCE)
                elif key.fileobj is self._alarm:
                    self._alarm.recv(4096)
                # An event may be stale: a connection can be dropped by an event before it in the
                # same round.
                elif key.data in self._waiting:
                    self._readable(key.data)
            while self._returned:
                connection = self._returned.popleft()
                self._wait_for(connection)
                self._proceed(connection)
            now = time.monotonic()
            if now - looked > _TICK or self._stopping:
                self._expire(now)
                looked = now
            if self._closing and ends is None:
                self._stop_listening()
                ends = now + _LINGER
            if ends is not None and (now > ends or not self._waiting):
                break
        for connection in [*self._waiting]:
            self._drop(connection)

    def _stop_listening(self) -> None:
        """Accept and refuse all clients in the backlog, then close the listening socket.

        Closing it with clients in the backlog would reset their connections.
        """
        self._listener.listen(0)
        self._accept(self._most_open)
        self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self, most: int) -> None:
        """Accept up to `most` connections, and read what they have sent already."""
        for _ in range(most):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Most likely there is no file descriptor left.
                if not self._evict():
                    time.sleep(0.05)
                return
            if len(self._waiting) >= self._most_open:
                self._evict()
            try:
                connection = ServerConnection(self, sock, str(address[0]))
            except OSError:
                # The client has closed the connection already.
                sock.close()
                continue
            self._wait_for(connection)
            self._readable(connection)

    def _evict(self) -> bool:
        """Close the connection that has been silent for longest; return False if there is none."""
        if not self._waiting:
            return False
        self._drop(next(iter(self._waiting)))
        return True

    def _wait_for(self, connection: ServerConnection) -> None:
        """Make the accepting thread the owner of a connection."""
        self._waiting[connection] = None
        connection.sock.setblocking(False)
        self._selector.register(connection.sock, selectors.EVENT_READ, connection)

    def _forget(self, connection: ServerConnection) -> None:
        """End the ownership of the accepting thread."""
        self._waiting.pop(connection, None)
        self._selector.unregister(connection.sock)

    def _drop(self, connection: ServerConnection) -> None:
        self._forget(connection)
        connection.close()

    def _readable(self, connection: ServerConnection) -> None:
        """Read the bytes that have come, and proceed with the request."""
        try:
            if not connection.incoming.receive_now():
                return
        except (Gone, OSError):
            self._drop(connection)
            return
        self._waiting.move_to_end(connection)
        if connection.drains_until is None:
            self._proceed(connection)
        else:
            connection.incoming.forget()

    def _proceed(self, connection: ServerConnection) -> None:
        """Hand a request to a worker: a small one when it is complete, a large one earlier."""
        incoming = connection.incoming
        try:
            head = incoming.next_head()
            if head is None:
                return
            self.check(connection, head)
            is_small = incoming.is_small(head)
            if not is_small:
                self._receive(connection)
            elif incoming.is_complete(head):
                self.take_slot(connection)
            else:
                return
            self._workers.reserve()
        except BadRequest as refused:
            self._release(connection)
            self._refuse(connection, refused)
            return
        self._forget(connection)
        connection.sock.setblocking(True)
        self._workers.put(lambda: self._work(connection, head, is_small))

    def _refuse(self, connection: ServerConnection, refused: BadRequest) -> None:
        """Refuse a request in the accepting thread, without waiting; the client is drained then."""
        connection.incoming.forget()
        connection.drains_until = time.monotonic() + DRAIN
        try:
            connection.sock.send(connection.refusal(refused))
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(connection)

    def _expire(self, now: float) -> None:
        """Close the connections whose time has run out."""
        for connection in [*self._waiting]:
            until = (
                connection.incoming.until
                if connection.drains_until is None
                else connection.drains_until
            )
            if self._stopping and connection.incoming.is_idle:
                connection.lingers_until = min(connection.lingers_until, now + _LINGER)
                until = min(until, connection.lingers_until)
            if now > until:
                self._drop(connection)

    # Slots

    def check(self, connection: ServerConnection, head: Head) -> None:
        """Refuse requests with a foreign Host header, and all requests while the server stops.

        The Host header is checked against DNS rebinding: a web page must not reach this server
        under a name of its own.
        """
        host = head.headers.get("host")
        if host is not None and not is_own_host(host, (*self._hosts, connection.own_address)):
            raise BadRequest(
                403,
                f"the Host header {host!r:.60} is not allowed; --allow-host or hosts= allows names",
            )
        if self._stopping:
            raise BadRequest(503, "the server is stopping")

    def take_slot(self, connection: ServerConnection) -> None:
        """Take a slot for a complete request; raise BadRequest if none is free."""
        with self._state:
            if self._stopping:
                raise BadRequest(503, "the server is stopping")
            if len(self._running) >= self.bounds.connections:
                raise BadRequest(
                    503,
                    f"more than {self.bounds.connections} concurrent requests; try again later",
                )
            self._receiving.discard(connection)
            self._running.add(connection)

    def _receive(self, connection: ServerConnection) -> None:
        """Let a worker receive a large body; a transfer that has stalled is ended to make room."""
        with self._state:
            if len(self._receiving) >= self.bounds.connections:
                slowest = min(self._receiving, key=lambda other: other.incoming.progress)
                if time.monotonic() - slowest.incoming.progress < _STALLED:
                    raise BadRequest(503, "too many large requests at once; try again later")
                self._receiving.discard(slowest)
                slowest.end()
            self._receiving.add(connection)

    def received(self, connection: ServerConnection, head: Head) -> HttpRequest:
        """Receive the body of a request; refuse it if the server stops meanwhile."""
        try:
            return connection.incoming.request(head)
        except Gone:
            if self._stopping:
                raise BadRequest(503, "the server is stopping") from None
            raise

    def _release(self, connection: ServerConnection) -> None:
        """Free the slot of a connection, if it has one."""
        with self._state:
            self._running.discard(connection)
            self._receiving.discard(connection)
            self._state.notify_all()

    # Workers

    def _work(self, connection: ServerConnection, head: Head, has_slot: bool) -> None:
        """Answer a request, and those that follow immediately on the same connection.

        Afterwards the connection goes back to the accepting thread (`returns`), or is closed.
        """
        incoming, returns = connection.incoming, False
        try:
            while connection.answer_one(self._handler, head, has_slot) and not head.close:
                self._release(connection)
                incoming.next()
                returns = True
                if self._stopping or not self._follows(connection):
                    return
                next_head = incoming.next_head()
                if (
                    next_head is None
                    or not incoming.is_small(next_head)
                    or not incoming.is_complete(next_head)
                ):
                    return
                head, has_slot, returns = next_head, True, False
                self.check(connection, head)
                self.take_slot(connection)
        except BadRequest as refused:
            returns = False
            connection.refuse(refused)
        except (Gone, OSError):
            returns = False
        finally:
            self._release(connection)
            if returns:
                self._returned.append(connection)
                self._ring()
            else:
                connection.close()

    def _follows(self, connection: ServerConnection) -> bool:
        """Return whether another request follows within `_NEXT` seconds.

        The worker does not wait if other requests need a thread.
        """
        if not connection.incoming.is_idle:
            return True
        if self._workers.are_needed:
            return False
        connection.sock.settimeout(_NEXT)
        try:
            return connection.incoming.receive_now()
        except TimeoutError:
            return False

    def log(self, line: str) -> None:
        """Pass a line to the log, if there is one."""
        if self._log is not None:
            self._log(line)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError with the address if it cannot be opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise OSError(f"cannot listen on {host_port(host, port)}: {reason}") from None


def host_port(host: str, port: int) -> str:
    """Return host:port, with an IPv6 address in brackets.

    >>> host_port("127.0.0.1", 8501), host_port("::1", 8501)
    ('127.0.0.1:8501', '[::1]:8501')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
