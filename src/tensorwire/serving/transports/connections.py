"""Connections to a server, and the pool that keeps them alive. Nothing here blocks; see `drivers`."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..._errors import UsageError
from . import ConnectError
from .addresses import Address, Origin, resolve
from .drivers import Steps, Wait

IDLE = 60.0
"""Seconds that an idle connection is kept: servers, proxies and firewalls drop them, too."""


class Busy(Exception):
    """The socket has no bytes to read, or no space to write, now."""

    def __init__(self, events: int) -> None:
        self.events = events
        """The poll events to wait for."""


class Connection:
    """A non-blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.used = False
        """Whether an answer has come over it: from then on the server may close it at any time."""
        self._pid, self._idle_since = os.getpid(), 0.0

    def send(self, buffers: Sequence[memoryview]) -> int:
        """Send bytes and return how many were taken; raise Busy if none can be sent now."""
        try:
            return self.sock.sendmsg(buffers)
        except BlockingIOError:
            raise Busy(select.POLLOUT) from None

    def receive(self, room: memoryview) -> int:
        """Receive bytes and return how many came, 0 at the end; raise Busy if none are there."""
        try:
            return self.sock.recv_into(room)
        except BlockingIOError:
            raise Busy(select.POLLIN) from None

    def rest(self) -> None:
        """Mark the connection as idle from now on."""
        self.used, self._idle_since = True, time.monotonic()

    @property
    def usable(self) -> bool:
        """Whether an idle connection can be reused.

        It was opened by this process (after a fork the parent still uses it), it was not idle for
        too long, and it has nothing to read: that would be unexpected bytes, or the end of stream.
        """
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return (
            self._pid == os.getpid()
            and time.monotonic() - self._idle_since < IDLE
            and not poll.poll(0)
        )

    def close(self) -> None:
        self.sock.close()


class ConnectionPool:
    """A pool with a bounded number of connections to a server.

    1. The connection that was used last is reused first.
    2. A call that finds all connections in use waits for its turn, first come, first served.
    3. It waits on a socket pair, to which `give_back` writes a byte. So the same steps run in
       threads and in event loops.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._forget_uses()

    def _forget_uses(self) -> None:
        """Reset the counts; after a fork the parent's calls do not count in the child."""
        self._pid, self._used = os.getpid(), 0
        self._queue: deque[socket.socket] = deque()

    def take(self) -> Steps[Connection | None]:
        """Return an idle connection, or None if the caller may open a new one.

        The caller has to call `give_back` in both cases.
        """
        turn: tuple[socket.socket, socket.socket] | None = None
        with self._lock:
            self._check()
            if self._used < self._most:
                self._used += 1
            else:
                try:
                    turn = socket.socketpair()
                except OSError as cause:
                    raise ConnectError(
                        f"all connections are in use, and no socket could be created to wait for"
                        f" one: {cause}"
                    ) from cause
                self._queue.append(turn[1])
        if turn is not None:
            yield from self._wait(*turn)
        return self._usable()

    def _wait(self, ours: socket.socket, theirs: socket.socket) -> Steps[None]:
        """Wait for a turn; leave the queue if the caller gives up."""
        has_turn = False
        try:
            has_turn = yield Wait(ours, select.POLLIN)
        finally:
            with ours, theirs, self._lock:
                if theirs in self._queue:
                    self._queue.remove(theirs)
                elif not has_turn:
                    # The deadline passed just when the turn came: the next call gets it.
                    self._pass_on()

    def _check(self) -> None:
        if self._closed:
            raise UsageError("the client is closed", hint="create a new one")
        if self._pid != os.getpid():
            self._forget_uses()

    def _usable(self) -> Connection | None:
        """Return an idle connection that can be reused, or None; close those that cannot."""
        while True:
            with self._lock:
                connection = self._kept.pop() if self._kept else None
            if connection is None or connection.usable:
                return connection
            connection.close()

    def give_back(self, connection: Connection | None) -> None:
        """End a use: keep the connection for the next call; None if the caller has closed it."""
        if connection is not None:
            connection.rest()
        with self._lock:
            if connection is not None and not self._closed:
                self._kept.append(connection)
                connection = None
            self._pass_on()
        if connection is not None:
            connection.close()

    def _pass_on(self) -> None:
        """Give the turn to the next call in the queue. The caller holds the lock."""
        if self._queue:
            self._queue.popleft().send(b"\0")
        else:
            self._used = max(0, self._used - 1)

    def close(self) -> None:
        """Close the idle connections; calls in progress and in the queue are finished."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, deque()
        for connection in kept:
            connection.close()

    def __del__(self) -> None:
        """Close the idle connections without a ResourceWarning: few programs close a client."""
        for connection in self._kept:
            connection.close()


def connect(
    origin: Origin, seconds: float, until: float, clock: Callable[[], float]
) -> Steps[Connection]:
    """Connect to the first address of a host name that answers, in the system's order.

    Each address gets an equal share of the time that is left.
    """
    failed: Exception | None = None
    try:
        addresses = yield from resolve(origin, until)
    except OSError as cause:
        # The name is not the reason: the process has no file descriptor left.
        raise ConnectError(f"cannot connect to {origin.place}: {cause}") from cause
    for after in reversed(range(len(addresses))):
        now = clock()
        try:
            return (
                yield from _connect(
                    addresses[-1 - after], now + (until - now) / (after + 1) if after else until
                )
            )
        except OSError as error:
            failed = error
    if isinstance(failed, TimeoutError):
        raise ConnectError(
            f"cannot connect to {origin.place} within {seconds:g} s",
            hint="a larger connect= allows more time",
        ) from failed
    raise ConnectError(
        f"cannot connect to {origin.place}: {failed}", hint="is the server running there?"
    ) from failed


def _connect(address: Address, until: float) -> Steps[Connection]:
    """Connect to one address; raise OSError if it fails, TimeoutError if it takes too long."""
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # Without TCP_NODELAY the end of a small request could wait for an acknowledgement of its
        # beginning.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(where)
        if code in (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR):
            if not (yield Wait(sock, select.POLLOUT, until)):
                raise TimeoutError
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return Connection(sock)
    except BaseException:
        sock.close()
        raise
