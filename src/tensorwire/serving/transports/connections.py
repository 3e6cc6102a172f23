"""Connections to a server: made, and kept for the next call. Nothing here waits; see `waiting`."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..._errors import EncodeError
from . import ConnectError
from .addresses import Address, Origin, resolve
from .waiting import Steps, Wait

IDLE = 60.0
"""Seconds that a connection is kept without a call: servers and what stands between forget about them, too."""


class Busy(Exception):
    """The socket cannot take or give bytes now."""

    def __init__(self, events: int) -> None:
        self.events = events
        """What to wait for."""


class Connection:
    """A socket that never blocks."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.used = False
        """Whether an answer has come over it: then the server may close it whenever it wants."""
        self._pid, self._idle_since = os.getpid(), 0.0

    def send(self, buffers: Sequence[memoryview]) -> int:
        """How many bytes were taken; Busy if none can be."""
        try:
            return self.sock.sendmsg(buffers)
        except BlockingIOError:
            raise Busy(select.POLLOUT) from None

    def receive(self, room: memoryview) -> int:
        """How many bytes came; 0 if no more ever will, Busy if none have yet."""
        try:
            return self.sock.recv_into(room)
        except BlockingIOError:
            raise Busy(select.POLLIN) from None

    def rest(self) -> None:
        """It is kept from here on."""
        self.used, self._idle_since = True, time.monotonic()

    @property
    def usable(self) -> bool:
        """Whether it is as it was left: not too long ago, in this process (not the parent of a fork, which still has it), nothing to read.

        There should be nothing: bytes are those of no answer, and an end means that the server has closed it.
        """
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return self._pid == os.getpid() and time.monotonic() - self._idle_since < IDLE and not poll.poll(0)

    def close(self) -> None:
        self.sock.close()


class Pool:
    """Connections that wait for the next call, the last one used first. For any number of threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def take(self) -> Connection | None:
        """One that can be used; those that cannot are closed on the way."""
        while True:
            with self._lock:
                if self._closed:
                    raise EncodeError("this client is closed; make a new one")
                if not self._kept:
                    return None
                connection = self._kept.pop()
            if connection.usable:
                return connection
            connection.close()

    def keep(self, connection: Connection) -> None:
        connection.rest()
        with self._lock:
            drop: Connection | None = connection
            if not self._closed and self._most:
                self._kept.append(connection)
                drop = self._kept.popleft() if len(self._kept) > self._most else None
        if drop is not None:
            drop.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, deque()
        for connection in kept:
            connection.close()

    def __del__(self) -> None:
        """Many never close a client; what it kept is not worth a warning."""
        for connection in self._kept:
            connection.close()


def connect(origin: Origin, seconds: float, until: float, clock: Callable[[], float]) -> Steps[Connection]:
    """A connection to any of the addresses of a name, in the system's order. Each has its share of the time that is left."""
    failed: Exception | None = None
    try:
        addresses = yield from resolve(origin, until)
    except OSError as cause:  # not the name's fault: there is no file descriptor left
        raise ConnectError(f"no connection to {origin.place} ({cause})") from cause
    for after in reversed(range(len(addresses))):
        now = clock()
        try:
            return (yield from _connect(addresses[-1 - after], now + (until - now) / (after + 1) if after else until))
        except OSError as error:
            failed = error
    why = f"within {seconds:g} s; connect= allows more" if isinstance(failed, TimeoutError) else f"({failed}); does it run there?"
    raise ConnectError(f"no connection to {origin.place} {why}") from failed


def _connect(address: Address, until: float) -> Steps[Connection]:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the head of a small request does not wait for an acknowledgement
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
