"""The REST port: a bounded number of connections, a thread for each, requests one after the other on every one of them."""

from __future__ import annotations

import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from .http1 import Head, Refused, Request, Response, answer, write_head
from .reading import Bounds, Budget, Gone, Incoming

Handler = Callable[[Request], Response]
Log = Callable[[str], None]
_PACKED = 1024
"""Bytes from which an answer is worth packing."""
_TOGETHER = 64 << 10
_STEP = 1 << 20


class HttpServer:
    """Listens from the start; accepts connections between `start` and `stop`."""

    def __init__(self, handler: Handler, host: str, port: int, bounds: Bounds, log: Log | None = None) -> None:
        self._handler, self._bounds, self._log = handler, bounds, log
        self._budget = Budget(2 * bounds.body)
        self._state = threading.Condition()
        self._open: dict[_Connection, float | None] = {}
        """All connections; of those that wait for a request, since when."""
        self._stopping = False
        self._listener = listen(host, port)
        self._thread: threading.Thread | None = None
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        self._thread = threading.Thread(target=self._accept, name="tensorwire-rest", daemon=True)
        self._thread.start()

    def stop(self, grace: float) -> bool:
        """Lets running requests finish, within the grace; others are answered 503. Whether all of them have finished."""
        with self._state:
            self._stopping = True
            for connection, since in self._open.items():
                if since is not None:
                    connection.end()
            done = self._state.wait_for(lambda: None not in self._open.values(), grace)
        self._close_listener()
        with self._state:
            for connection in self._open:
                connection.end()
            self._state.wait_for(lambda: not self._open, 1)
        if self._thread is not None:
            self._thread.join(1)
        return done

    def _close_listener(self) -> None:
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up the thread that accepts
        except OSError:
            pass
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0 or self._stopping:
                    return
                time.sleep(0.05)  # no file descriptors, most likely: some connection will end
                continue
            connection = _Connection(self, sock, str(address[0]))
            if self._make_room():
                with self._state:
                    self._open[connection] = time.monotonic()
                threading.Thread(target=self._serve, args=(connection,), name="tensorwire-connection", daemon=True).start()
            else:
                connection.refuse(Refused(503, f"more than {self._bounds.connections} connections; try again later"), drain=0)
                connection.close()

    def _make_room(self) -> bool:
        """A connection that has waited longest for a request makes place for a new one."""
        with self._state:
            if len(self._open) < self._bounds.connections:
                return True
            waiting = [(since, number, one) for number, (one, since) in enumerate(self._open.items()) if since is not None]
            if not waiting:
                return False
            min(waiting)[2].end()
            return self._state.wait_for(lambda: len(self._open) < self._bounds.connections, 1)

    def _serve(self, connection: _Connection) -> None:
        try:
            while connection.answer_one(self._handler):
                pass
        except (Gone, OSError):
            pass
        finally:
            connection.close()
            with self._state:
                del self._open[connection]
                self._state.notify_all()

    def begins(self, connection: _Connection) -> bool:
        """A connection has a request; whether it is answered."""
        with self._state:
            if not self._stopping:
                self._open[connection] = None
            return not self._stopping

    def ends(self, connection: _Connection) -> bool:
        """A connection has answered; whether it may wait for another request."""
        with self._state:
            self._open[connection] = time.monotonic()
            self._state.notify_all()
            return not self._stopping

    def log(self, line: str) -> None:
        if self._log is not None:
            self._log(line)

    @property
    def bounds(self) -> Bounds:
        return self._bounds

    @property
    def budget(self) -> Budget:
        return self._budget


class _Connection:
    def __init__(self, server: HttpServer, sock: socket.socket, client: str) -> None:
        self._server, self._sock, self._client = server, sock, client
        self._incoming = Incoming(sock, server.bounds, server.budget)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(self) -> None:
        """From another thread: whoever waits on the socket wakes up and closes it."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self._incoming.release()
        self._sock.close()

    def answer_one(self, handler: Handler) -> bool:
        """Reads a request and answers it; whether there may be another."""
        self._incoming.wait()
        begun = self._server.begins(self)
        started, refused = time.perf_counter(), None
        try:
            head = self._incoming.head()
            if not begun:
                raise Refused(503, "the server is stopping")
            if head.continues:
                self._send([b"HTTP/1.1 100 Continue\r\n\r\n"])
            request = self._incoming.request(head)
        except Refused as error:
            refused = Refused(error.status, error.message)  # without the traceback, which holds what there is of the body
        except MemoryError:
            refused = Refused(503, "there is not enough memory for this request")
        if refused is not None:
            self._incoming.release()
            self.refuse(refused)
            return False
        response = handler(request)
        del request
        try:
            self._incoming.release(keep=sum(map(_size, response.chunks)))
        except Refused as error:
            response = answer({"error": error.message}, error.status)
        size = self._answer(head, response)
        self._incoming.release()
        took = (time.perf_counter() - started) * 1000
        self._server.log(f"{self._client} {head.method} {head.target:.200} {response.status} {size} bytes {took:.1f} ms")
        return self._server.ends(self) and not head.close

    def refuse(self, refused: Refused, drain: float = 2.0) -> None:
        """Says why, and takes what the client still sends, for a little while."""
        self._server.log(f"{self._client} - {refused.status} {refused.message}")
        response = answer({"error": refused.message}, refused.status)
        extra = {"Retry-After": "1"} if refused.status == 503 else {}
        try:
            body = b"".join(response.chunks)
            self._send([write_head(refused.status, {**response.headers, **extra}, len(body), True) + body])
            self._sock.shutdown(socket.SHUT_WR)
            if drain:
                self._incoming.drain(drain)
        except (Gone, OSError):
            pass

    def _answer(self, head: Head, response: Response) -> int:
        chunks, headers = list(response.chunks), dict(response.headers)
        size = sum(map(_size, chunks))
        if size >= _PACKED and _takes_gzip(head.headers.get("accept-encoding", "")):
            chunks, headers = _packed(chunks), {**headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            size = sum(map(len, chunks))
        first = write_head(response.status, headers, size, head.close)
        if head.method == "HEAD":
            chunks = []
        if size <= _TOGETHER:
            self._send([b"".join([first, *chunks])])
        else:
            self._send([first, *chunks])
        return size

    def _send(self, chunks: Sequence[Any]) -> None:
        self._sock.settimeout(self._server.bounds.stalled)
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            for at in range(0, len(view), _STEP):
                self._sock.sendall(view[at : at + _STEP])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError says where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise OSError(f"cannot listen on {where}: {os.strerror(error.errno) if error.errno else error}") from None


def _size(chunk: Any) -> int:
    return memoryview(chunk).nbytes


def _takes_gzip(said: str) -> bool:
    """Whether a client's Accept-Encoding has gzip in it, and not with a weight of 0.

    >>> _takes_gzip("deflate, gzip;q=0.5"), _takes_gzip("gzip;q=0"), _takes_gzip("")
    (True, False, False)
    """
    for part in said.split(","):
        name, _, weight = part.strip().lower().partition(";")
        if name.strip() in ("gzip", "x-gzip"):
            return weight.replace(" ", "").rstrip("0").rstrip(".") not in ("q=", "q=0")
    return False


def _packed(chunks: Sequence[Any]) -> list[bytes]:
    stream = zlib.compressobj(1, wbits=31)
    return [piece for piece in (*map(stream.compress, chunks), stream.flush()) if piece]
