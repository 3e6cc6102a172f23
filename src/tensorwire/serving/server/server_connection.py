"""One connection of the REST port: it reads a request, answers it, and refuses bad ones.

`http.py` decides which thread owns a connection, and when it is closed.
"""

from __future__ import annotations

import contextlib
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.memory import Buffer
from .http1 import BadRequest, Head, HttpRequest, Response, answer, write_head
from .request_reader import Gone, Incoming

if TYPE_CHECKING:
    from .http import HttpServer

Handler = Callable[[HttpRequest], Response]
_PACKED = 1024
"""Bytes from which an answer is worth compressing."""
_TOGETHER = 64 << 10
"""An answer up to this size is sent by one system call."""
_STEP = 1 << 20
"""Bytes that a client has to receive within `Bounds.stalled` seconds."""
DRAIN = 2.0
"""Seconds for which a refused client is drained."""


class ServerConnection:
    """A connection to a client: it answers requests and sends refusals."""

    def __init__(self, server: HttpServer, sock: socket.socket, client: str) -> None:
        self._server, self.sock, self._client = server, sock, client
        self.incoming = Incoming(sock, server.bounds, server.budget)
        self.drains_until: float | None = None
        """The time until which a refused client is drained."""
        self.lingers_until = float("inf")
        self.own_address = str(sock.getsockname()[0])
        """The address that the client has connected to, which is allowed in the Host header."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(self, how: int = socket.SHUT_RDWR) -> None:
        """End the connection from another thread: its owner wakes up and closes it.

        With SHUT_RD only the receiving of a body ends, and an answer can still be sent.
        """
        with contextlib.suppress(OSError):
            self.sock.shutdown(how)

    def close(self) -> None:
        self.incoming.release()
        self.sock.close()

    def answer_one(self, handler: Handler, head: Head, has_slot: bool) -> bool:
        """Read the body of a request and answer it; return whether another one may follow."""
        started, refused = time.perf_counter(), None
        try:
            if head.continues:
                self._send([b"HTTP/1.1 100 Continue\r\n\r\n"])
            request = self._server.received(self, head)
            if not has_slot:
                self._server.take_slot(self)
        except BadRequest as error:
            # A new exception, because the traceback of this one keeps the received body alive.
            refused = BadRequest(error.status, error.message)
        except MemoryError:
            refused = BadRequest(503, "not enough memory for this request")
        if refused is not None:
            self.incoming.release()
            self.refuse(refused)
            return False
        response = handler(request)
        del request
        try:
            self.incoming.release(keep=sum(map(_size, response.chunks)))
        except BadRequest as error:
            response = answer({"error": error.message}, error.status)
        size = self._answer(head, response)
        self.incoming.release()
        took = (time.perf_counter() - started) * 1000
        self._server.log(
            f"{self._client} {head.method} {head.target:.200} {response.status} {size} bytes"
            f" {took:.1f} ms"
        )
        return True

    def refuse(self, refused: BadRequest) -> None:
        """Refuse a request in a worker thread, and drain the client."""
        with contextlib.suppress(Gone, OSError):
            self._send([self.refusal(refused)])
            self.sock.shutdown(socket.SHUT_WR)
            self.incoming.drain(DRAIN)

    def refusal(self, refused: BadRequest) -> bytes:
        """Return the bytes of the answer to a refused request."""
        self._server.log(f"{self._client} - {refused.status} {refused.message}")
        response = answer({"error": refused.message}, refused.status)
        extra = {"Retry-After": "1"} if refused.status == 503 else {}
        body = b"".join(response.chunks)
        return write_head(refused.status, {**response.headers, **extra}, len(body), True) + body

    def _answer(self, head: Head, response: Response) -> int:
        """Send an answer, compressed if the client accepts that; return the size of its body."""
        chunks, headers = list(response.chunks), dict(response.headers)
        size = sum(map(_size, chunks))
        if size >= _PACKED and _takes_gzip(head.headers.get("accept-encoding", "")):
            chunks, headers = (
                _packed(chunks),
                {**headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"},
            )
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
        """Send buffers; a client that receives too slowly raises TimeoutError."""
        self.sock.settimeout(self._server.bounds.stalled)
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            for start in range(0, len(view), _STEP):
                self.sock.sendall(view[start : start + _STEP])


def _size(chunk: Buffer) -> int:
    return memoryview(chunk).nbytes


def _takes_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip, that is with a weight above 0.

    >>> _takes_gzip("deflate, gzip;q=0.5"), _takes_gzip("gzip;q=0"), _takes_gzip("")
    (True, False, False)
    """
    for part in header.split(","):
        name, _, weight = part.strip().lower().partition(";")
        if name.strip() in ("gzip", "x-gzip"):
            return weight.replace(" ", "").rstrip("0").rstrip(".") not in ("q=", "q=0")
    return False


def _packed(chunks: Sequence[Any]) -> list[bytes]:
    stream = zlib.compressobj(1, wbits=31)
    return [piece for piece in (*map(stream.compress, chunks), stream.flush()) if piece]
