"""Connections to a server: made, and kept for the next call. Nothing here waits; see `drivers`."""

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
from .drivers import Steps, Wait

IDLE = 60.0
"""Seconds that a connection is kept without a call: servers and what stands between forget about
them, too.
"""


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
        """Whether it is as it was left: not too long ago, in this process (not the parent of a
        fork, which still has it), nothing to read.

        There should be nothing: bytes are those of no answer, and an end means that the server has
        closed it.
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
    """A bounded number of connections to a server: those in use, and those kept for the next call,
    of which the last one used is taken first.

    A call that finds all of them in use waits for its turn, first come, first served. It waits on a
    socket, to which `give_back` writes a byte, so that the same steps run in threads and in event
    loops.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._forget_uses()

    def _forget_uses(self) -> None:
        """After a fork, the calls of the parent process do not count here."""
        self._pid, self._used = os.getpid(), 0
        self._queue: deque[socket.socket] = deque()

    def take(self) -> Steps[Connection | None]:
        """A kept connection, or None if the caller may make a new one. `give_back` has to follow."""
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
                        f"no connection, and no descriptor to wait for one ({cause})"
                    ) from cause
                self._queue.append(turn[1])
        if turn is not None:
            yield from self._wait(*turn)
        return self._usable()

    def _wait(self, ours: socket.socket, theirs: socket.socket) -> Steps[None]:
        has_turn = False
        try:
            has_turn = yield Wait(ours, select.POLLIN)
        finally:
            with ours, theirs, self._lock:
                if theirs in self._queue:
                    self._queue.remove(theirs)
                elif not has_turn:  # the time was up just when the turn came
                    self._pass_on()

    def _check(self) -> None:
        if self._closed:
            raise EncodeError("this client is closed; make a new one")
        if self._pid != os.getpid():
            self._forget_uses()

    def _usable(self) -> Connection | None:
        """A kept connection; those that cannot be used any more are closed on the way."""
        while True:
            with self._lock:
                connection = self._kept.pop() if self._kept else None
            if connection is None or connection.usable:
                return connection
            connection.close()

    def give_back(self, connection: Connection | None) -> None:
        """Ends the use of a connection, which is kept, or of one that is closed."""
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
        """Lets the next call have its turn; with the lock."""
        if self._queue:
            self._queue.popleft().send(b"\0")
        else:
            self._used = max(0, self._used - 1)

    def close(self) -> None:
        """Closes the kept connections. Calls that have begun, or wait for their turn, are finished."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, deque()
        for connection in kept:
            connection.close()

    def __del__(self) -> None:
        """Many never close a client; what it kept is not worth a warning."""
        for connection in self._kept:
            connection.close()


def connect(
    origin: Origin, seconds: float, until: float, clock: Callable[[], float]
) -> Steps[Connection]:
    """A connection to any of the addresses of a name, in the system's order. Each has its share of
    the time that is left.
    """
    failed: Exception | None = None
    try:
        addresses = yield from resolve(origin, until)
    except OSError as cause:  # not the name's fault: there is no file descriptor left
        raise ConnectError(f"no connection to {origin.place} ({cause})") from cause
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
    why = (
        f"within {seconds:g} s; connect= allows more"
        if isinstance(failed, TimeoutError)
        else f"({failed}); does it run there?"
    )
    raise ConnectError(f"no connection to {origin.place} {why}") from failed


def _connect(address: Address, until: float) -> Steps[Connection]:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # the head of a small request does not wait for an acknowledgement
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
