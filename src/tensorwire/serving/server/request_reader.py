"""Reading requests from sockets, with deadlines and bounded memory.

1. Heads and small bodies are read as far as bytes have come, without waiting (`receive_now`,
   `next_head`, `is_complete`). So a client that sends half a request does not occupy a thread.
2. Large bodies are read by a worker thread (`request`), until a deadline.
3. Memory for bodies is counted as bytes come, not when a client announces them (`BodyMemory`).
"""

from __future__ import annotations

import random
import socket
import threading
import time
import zlib
from typing import Any, NamedTuple

import numpy as np

from ...core.tensors import Array
from .http1 import MOST_HEAD, BadRequest, Head, HttpRequest, chunk_size, parse_head

_STEP = 1 << 20
_PIECE = 64 << 10
_LINE = 8192
_PATIENCE = 5.0
SMALL = 64 << 10
"""The most bytes of a body that is read without a worker thread."""


class Bounds(NamedTuple):
    """Limits of a server for its clients.

    >>> import tensorwire as tw
    >>> from tensorwire.serving.server import Bounds
    >>> Bounds(body=1 << 20).connections
    128
    """

    body: int = 256 << 20
    """The most bytes of a body, before and after decompression."""
    connections: int = 128
    """The most concurrent requests. Idle connections do not count."""
    timeout: float = 60.0
    """Seconds from the first byte of a request to its last."""
    head: float = 10.0
    """Seconds from the first byte of a request to the end of its headers."""
    idle: float = 60.0
    """Seconds that a connection may wait for its next request."""
    stalled: float = 30.0
    """Seconds in which a client has to receive a megabyte of its answer."""


class Gone(Exception):
    """The client has closed the connection, or its time has run out."""


class BodyMemory:
    """A budget of memory for the bodies of all requests and answers together.

    Too many large requests at once are refused, instead of exhausting the machine's memory. A model
    needs additional memory while it runs: "1," in a body becomes a float32 of four bytes.
    """

    def __init__(self, total: int) -> None:
        self.total, self._left, self._changed = total, total, threading.Condition()

    def take(self, size: int) -> None:
        """Take memory; wait a little for other requests to finish, then raise BadRequest.

        All requests may be waiting for each other. The time is random, so that not all of them
        give up at once.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: size <= self._left, random.uniform(1, _PATIENCE)):
                raise BadRequest(503, "too many large requests at once; try again later")
            self._left -= size

    def give(self, size: int) -> None:
        with self._changed:
            self._left += size
            self._changed.notify_all()


class Incoming:
    """The requests that come over one connection."""

    def __init__(self, sock: socket.socket, bounds: Bounds, budget: BodyMemory) -> None:
        self._sock, self._bounds, self._budget = sock, bounds, budget
        self._ahead = bytearray()
        """Bytes that were received and are not parsed yet."""
        self._looked = 0
        self.until = time.monotonic() + bounds.idle
        """The time at which the connection is closed, if the request is not complete by then."""
        self._held = 0
        self.progress = time.monotonic()
        """The time at which the last bytes came."""
        self._head: Head | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has come yet."""
        return self._head is None and not self._ahead

    def next(self) -> None:
        """Prepare for the next request on the connection."""
        self._head, self._looked, now = None, 0, time.monotonic()
        self.until = now + (self._first_deadline if self._ahead else self._bounds.idle)

    def receive_now(self) -> bool:
        """Receive bytes without waiting; return whether any came. Gone at the end of stream."""
        try:
            piece = self._sock.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            return False
        if not piece:
            raise Gone
        self.progress = time.monotonic()
        if self.is_idle:
            self.until = self.progress + self._first_deadline
        self._ahead += piece
        return True

    def forget(self) -> None:
        """Discard the received bytes."""
        self._ahead.clear()

    @property
    def _first_deadline(self) -> float:
        return min(self._bounds.head, self._bounds.timeout)

    def next_head(self) -> Head | None:
        """Return the head of the next request, or None if it is not complete."""
        if self._head is None:
            end = self._ahead.find(b"\r\n\r\n", self._looked)
            if (len(self._ahead) if end < 0 else end) > MOST_HEAD:
                raise BadRequest(431, f"the head has more than {MOST_HEAD} bytes")
            if end < 0:
                self._looked = max(0, len(self._ahead) - 3)
                return None
            head = parse_head(bytes(self._ahead[:end]).lstrip(b"\r\n"))
            del self._ahead[: end + 4]
            if head.length is not None and head.length > self._bounds.body:
                raise self._too_large()
            self._head = head
            self.until += self._bounds.timeout - self._first_deadline
        return self._head

    def is_complete(self, head: Head) -> bool:
        """Return whether the whole body has come."""
        return head.length is not None and len(self._ahead) >= head.length

    @staticmethod
    def is_small(head: Head) -> bool:
        """Return whether a body is read without a worker thread."""
        return head.length is not None and head.length <= SMALL and not head.continues

    def request(self, head: Head) -> HttpRequest:
        """Read and decompress the body and return the request. `release` frees its memory."""
        body = self._whole(head.length) if head.length is not None else self._chunked()
        coding = head.headers.get("content-encoding", "identity").lower()
        if coding in ("gzip", "x-gzip"):
            body = self._unpacked(body)
        elif coding != "identity":
            raise BadRequest(
                415, f"unsupported Content-Encoding {coding!r:.60} (supported: gzip, identity)"
            )
        return HttpRequest(head.method, head.target, head.headers, body.data)

    def release(self, keep: int = 0) -> None:
        """Return the memory of the request to the budget; `keep` bytes are held for the answer."""
        keep = min(keep, self._budget.total)
        if keep > self._held:
            self._hold(keep - self._held)
        elif keep < self._held:
            self._budget.give(self._held - keep)
            self._held = keep

    def drain(self, seconds: float) -> None:
        """Discard what a refused client still sends.

        Closing a socket with unread bytes resets the connection, and the client would lose the
        answer.
        """
        self.until = time.monotonic() + seconds
        try:
            while True:
                self._ahead.clear()
                self._more()
        except (Gone, OSError):
            pass

    def _too_large(self) -> BadRequest:
        return BadRequest(
            413,
            f"the body has more than {self._bounds.body} bytes, the limit of the server"
            " (--max-body)",
        )

    def _hold(self, size: int) -> None:
        self._budget.take(size)
        self._held += size

    def _receive(self, view: memoryview) -> int:
        """Wait for bytes until the deadline; raise Gone if none come."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise Gone
        self._sock.settimeout(left)
        try:
            count = self._sock.recv_into(view)
        except TimeoutError:
            raise Gone from None
        if not count:
            raise Gone
        self.progress = time.monotonic()
        return count

    def _more(self) -> None:
        piece = bytearray(_PIECE)
        count = self._receive(memoryview(piece))
        self._ahead += memoryview(piece)[:count]

    def _whole(self, length: int) -> Array:
        # The system provides memory when it is first written to, so a large Content-Length without
        # a body costs nothing.
        body: Array = np.empty(length, np.uint8)
        self._fill(body.data, 0, length)
        return body

    def _fill(self, view: memoryview, position: int, end: int) -> None:
        """Receive bytes into view[position:end], and count their memory step by step."""
        ready = min(len(self._ahead), end - position)
        self._hold(ready)
        view[position : position + ready] = self._ahead[:ready]
        del self._ahead[:ready]
        position += ready
        while position < end:
            step = min(_STEP, end - position)
            self._hold(step)
            stop = position + step
            while position < stop:
                position += self._receive(view[position:stop])

    def _chunked(self) -> Array:
        """Read a chunked body. Its memory doubles whenever it is full."""
        body: Array = np.empty(_PIECE, np.uint8)
        size = 0
        while count := chunk_size(self._line()):
            if size + count > self._bounds.body:
                raise self._too_large()
            if size + count > len(body):
                larger: Array = np.empty(max(2 * len(body), size + count), np.uint8)
                larger[:size] = body[:size]
                body = larger
            self._fill(body.data, size, size + count)
            size += count
            while len(self._ahead) < 2:
                self._more()
            if self._ahead[:2] != b"\r\n":
                raise BadRequest(400, "the data of a chunk is longer than the chunk size")
            del self._ahead[:2]
        # Skip the trailers.
        while self._line() != b"":
            pass
        return body[:size]

    def _line(self) -> bytes:
        """Read a line of at most _LINE bytes and return it without its end."""
        looked = 0
        while (end := self._ahead.find(b"\r\n", looked)) < 0 and len(self._ahead) <= _LINE:
            looked = max(0, len(self._ahead) - 1)
            self._more()
        if not 0 <= end <= _LINE:
            raise BadRequest(431, f"a line of a chunked body has more than {_LINE} bytes")
        line = bytes(self._ahead[:end])
        del self._ahead[: end + 2]
        return line

    def _unpacked(self, body: Array) -> Array:
        """Decompress a gzip body; its size is limited, and its memory is counted as it grows."""
        stream = zlib.decompressobj(wbits=31)
        pieces: list[bytes] = []
        size, rest = 0, body.data
        try:
            while not stream.eof and (rest or not pieces or pieces[-1]):
                pieces.append(stream.decompress(rest, _STEP))
                rest = memoryview(stream.unconsumed_tail)
                size += len(pieces[-1])
                if size > self._bounds.body:
                    raise self._too_large()
                self._hold(len(pieces[-1]))
        except zlib.error as error:
            raise BadRequest(400, f"the body is not valid gzip: {error}") from None
        if not stream.eof or stream.unused_data:
            raise BadRequest(
                400,
                (
                    "the gzip data of the body is truncated"
                    if not stream.eof
                    else "the body has extra bytes after its gzip data"
                ),
            )
        joined: Any = np.empty(size, np.uint8)
        position = size
        # The pieces are copied from the last to the first, so that each is freed after its copy.
        while pieces:
            piece = pieces.pop()
            position -= len(piece)
            joined[position : position + len(piece)] = np.frombuffer(piece, np.uint8)
        return joined  # type: ignore[no-any-return]
