"""Requests out of a socket: by a deadline, and into bounded memory.

Heads and small bodies are read as far as bytes have come, without waiting (`receive_now`,
`next_head`, `is_complete`), so that a client that sends half a request occupies no thread. Large
bodies are read by a thread (`request`).
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
_PATIENCE = 5.0
SMALL = 64 << 10
"""Bytes of a body that is read without a thread."""


class Bounds(NamedTuple):
    """What clients may ask of the server."""

    body: int = 256 << 20
    """Bytes of a body, as they come and unpacked."""
    connections: int = 128
    """Requests that are answered at once. Connections that wait do not count."""
    timeout: float = 60.0
    """Seconds from the first byte of a request to its last."""
    head: float = 10.0
    """Seconds from the first byte of a request to the end of its headers."""
    idle: float = 60.0
    """Seconds that a connection may wait for its next request."""
    stalled: float = 30.0
    """Seconds in which a client has to take a megabyte of its answer."""


class Gone(Exception):
    """The client has closed the connection, or is too slow to be waited for."""


class BodyMemory:
    """Memory for the bodies of all requests and answers together, so that many large ones at once
    are refused and do not fill the machine.

    A model needs some more while it runs: a number of one digit and a comma becomes a float32, and
    comes back as text.
    """

    def __init__(self, total: int) -> None:
        self.total, self._left, self._changed = total, total, threading.Condition()

    def take(self, size: int) -> None:
        """Waits for others to finish, but not for long: they may wait for the same. Not all of them
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
    """What comes on one connection."""

    def __init__(self, sock: socket.socket, bounds: Bounds, budget: BodyMemory) -> None:
        self._sock, self._bounds, self._budget = sock, bounds, budget
        self._ahead = bytearray()
        """Bytes that were read before they were needed."""
        self._looked = 0
        self._until = time.monotonic() + bounds.idle
        self._held = 0
        self.progress = time.monotonic()
        """When the last bytes came."""
        self._head: Head | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has come yet."""
        return self._head is None and not self._ahead

    @property
    def until(self) -> float:
        """When the connection ends unless more comes."""
        return self._until

    def next(self) -> None:
        """Prepares for the next request on the connection."""
        self._head, self._looked, now = None, 0, time.monotonic()
        self._until = now + (self._first_deadline if self._ahead else self._bounds.idle)

    def receive_now(self) -> bool:
        """Takes the bytes that have come; whether there were any. Gone at the end of the stream."""
        try:
            piece = self._sock.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            return False
        if not piece:
            raise Gone
        self.progress = time.monotonic()
        if self.is_idle:
            self._until = self.progress + self._first_deadline
        self._ahead += piece
        return True

    def forget(self) -> None:
        """Throws away what has come."""
        self._ahead.clear()

    @property
    def _first_deadline(self) -> float:
        return min(self._bounds.head, self._bounds.timeout)

    def next_head(self) -> Head | None:
        """The head of the next request, if all of it has come."""
        if self._head is None:
            end = self._ahead.find(b"\r\n\r\n", self._looked)
            if (len(self._ahead) if end < 0 else end) > MOST_HEAD:
                raise BadRequest(431, f"headers of more than {MOST_HEAD} bytes")
            if end < 0:
                self._looked = max(0, len(self._ahead) - 3)
                return None
            head = parse_head(bytes(self._ahead[:end]).lstrip(b"\r\n"))
            del self._ahead[: end + 4]
            if head.length is not None and head.length > self._bounds.body:
                raise self._too_large()
            self._head = head
            self._until += self._bounds.timeout - self._first_deadline
        return self._head

    def is_complete(self, head: Head) -> bool:
        """Whether all of a body has come, too."""
        return head.length is not None and len(self._ahead) >= head.length

    @staticmethod
    def is_small(head: Head) -> bool:
        """Whether a body is to be waited for without a thread."""
        return head.length is not None and head.length <= SMALL and not head.continues

    def request(self, head: Head) -> HttpRequest:
        """The request with its body, unpacked. `release` gives its memory back."""
        body = self._whole(head.length) if head.length is not None else self._chunked()
        coding = head.headers.get("content-encoding", "identity").lower()
        if coding in ("gzip", "x-gzip"):
            body = self._unpacked(body)
        elif coding != "identity":
            raise BadRequest(415, f"bodies come as they are or by gzip, not {coding!r:.60}")
        return HttpRequest(head.method, head.target, head.headers, body.data)

    def release(self, keep: int = 0) -> None:
        """Gives memory back, as the request is done; the answer may still need some, or more."""
        keep = min(keep, self._budget.total)
        if keep > self._held:
            self._hold(keep - self._held)
        elif keep < self._held:
            self._budget.give(self._held - keep)
            self._held = keep

    def drain(self, seconds: float) -> None:
        """Throws away what a refused client still sends, or it would never read why: its system
        drops the answer with the connection.
        """
        self._until = time.monotonic() + seconds
        try:
            while True:
                self._ahead.clear()
                self._more()
        except (Gone, OSError):
            pass

    def _too_large(self) -> BadRequest:
        return BadRequest(
            413,
            f"the body is larger than {self._bounds.body} bytes; the server's --max-body allows"
            " more",
        )

    def _hold(self, size: int) -> None:
        self._budget.take(size)
        self._held += size

    def _receive(self, view: memoryview) -> int:
        left = self._until - time.monotonic()
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

    def _find(self, mark: bytes, most: int, what: str) -> int:
        """Where a mark ends, which must come within some bytes."""
        looked = 0
        while (at := self._ahead.find(mark, looked)) < 0:
            looked = max(0, len(self._ahead) - len(mark) + 1)
            if len(self._ahead) > most:
                raise BadRequest(431, f"{what} of more than {most} bytes")
            self._more()
        if at > most:
            raise BadRequest(431, f"{what} of more than {most} bytes")
        return at + len(mark)

    def _whole(self, length: int) -> Array:
        # Memory that nobody has written to costs nothing, so a length that is only claimed does not
        # either.
        body: Array = np.empty(length, np.uint8)
        self._fill(body.data, 0, length)
        return body

    def _fill(self, view: memoryview, at: int, end: int) -> None:
        ready = min(len(self._ahead), end - at)
        self._hold(ready)
        view[at : at + ready] = self._ahead[:ready]
        del self._ahead[:ready]
        at += ready
        while at < end:
            step = min(_STEP, end - at)
            self._hold(step)
            stop = at + step
            while at < stop:
                at += self._receive(view[at:stop])

    def _chunked(self) -> Array:
        body: Array = np.empty(_PIECE, np.uint8)
        size = 0
        while count := self._chunk():
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
                raise BadRequest(400, "a chunk is longer than it says")
            del self._ahead[:2]
        while self._line() != b"":
            pass  # trailers, which nobody needs
        return body[:size]

    def _chunk(self) -> int:
        return chunk_size(self._line())

    def _line(self) -> bytes:
        end = self._find(b"\r\n", 8192, "a line")
        line = bytes(self._ahead[: end - 2])
        del self._ahead[:end]
        return line

    def _unpacked(self, body: Array) -> Array:
        """At most as large as a body may be, and counted as it grows."""
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
            raise BadRequest(400, f"the body is no gzip: {error}") from None
        if not stream.eof or stream.unused_data:
            raise BadRequest(
                400,
                (
                    "the body's gzip is cut off"
                    if not stream.eof
                    else "something stands behind the body's gzip"
                ),
            )
        joined: Any = np.empty(size, np.uint8)
        at = size
        while pieces:  # each is gone once it is copied
            piece = pieces.pop()
            at -= len(piece)
            joined[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        return joined  # type: ignore[no-any-return]
