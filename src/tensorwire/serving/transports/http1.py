"""HTTP/1.1 for clients, without I/O: the bytes of a request, and a parser for responses.

We do not use urllib3 or http.client, for three reasons. A deadline has to hold for the whole
exchange: a server that sends one byte a second never exceeds a timeout for single reads. A body is
received directly into its final buffer. And threads and asyncio share one implementation. So the
client needs only NumPy.

1. The parser is strict wherever two parsers could disagree about the end of a response: lines end
   with CRLF, a length consists of digits, Content-Length and Transfer-Encoding exclude each other.
2. A violation is a TransportError with the offset of the byte.
3. A body that is too large is a LimitError as soon as the server announces its size, or as soon as
   it exceeds the limit.
4. Numbers of header lines, bytes of the head and interim responses are limited, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ..._errors import TransportError, UsageError
from ..._limits import DEFAULT, Limits
from ...core.memory import flat
from . import Answer, Call
from .bodies import Body, check_size, make_body
from .receive_buffer import SIZE, ReceiveBuffer

HEAD = SIZE
"""The most bytes of a response's head and trailers together."""
FIELDS = 100
"""The most header fields of a response."""
INTERIM = 16
"""The most interim responses (100 Continue, 103 Early Hints)."""
_CHUNK_LINE = 4096
"""The most bytes of a chunk's size line; its extensions are ignored."""
_JOINED = 16 << 10
"""Buffers up to this size are joined before they are sent: a copy is cheaper than a packet or a TLS
record of their own.
"""
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS = re.compile(rb"HTTP/1\.([0-9]) ([1-5][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HEX = re.compile(rb"[0-9a-fA-F]+")
_TARGET = re.compile(r"[!-~]+")
_OURS = frozenset(("content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"))
"""Headers that control the exchange, and that callers cannot set."""


def request(
    call: Call, host: str, prefix: str = "", headers: Mapping[str, str] | None = None
) -> list[memoryview]:
    """Return the bytes of a request as buffers: small ones are joined, large ones are not copied.

    >>> b"".join(request(Call("POST", "/v1/models/m:predict", [b"{}"]), "localhost:8501"))
    b'POST /v1/models/m:predict HTTP/1.1\\r\\nHost: localhost:8501\\r\\nContent-Length:
    2\\r\\n\\r\\n{}'
    """
    body = [flat(buffer) for buffer in call.body]
    size = sum(map(len, body))
    fields = {"host": ("Host", host)}
    for name, value in [*(headers or {}).items(), *call.headers.items()]:
        fields[name.lower()] = check_header(name, value)
    if size or call.method not in ("GET", "HEAD"):
        fields["content-length"] = ("Content-Length", str(size))
    target = prefix + call.target or "/"
    if not _TOKEN.fullmatch(call.method) or not _TARGET.fullmatch(target):
        raise UsageError(
            f"invalid request line {call.method!r} {target!r}: characters other than visible ASCII"
            " have to be percent-encoded"
        )
    lines = [
        f"{call.method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in fields.values()),
        "",
        "",
    ]
    return list(_joined([memoryview("\r\n".join(lines).encode("latin-1")), *body]))


def check_header(name: str, value: str) -> tuple[str, str]:
    """Return a header as it is sent; raise EncodeError if it is not valid.

    >>> check_header("Authorization", "Bearer x")
    ('Authorization', 'Bearer x')
    """
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise UsageError(f"invalid header name {name!r}")
    if name.lower() in _OURS:
        raise UsageError(
            f"the header {name!r} is set by the transport", hint="remove it from headers="
        )
    if (
        not isinstance(value, str)
        or _CONTROL.search(value)
        or any(ord(letter) > 255 for letter in value)
    ):
        raise UsageError(
            f"invalid value of the header {name!r}: line ends, control characters and characters"
            " outside Latin-1 are not allowed"
        )
    return name, value.strip(" \t")


def _joined(buffers: Iterable[memoryview]) -> Iterator[memoryview]:
    """Join neighbouring small buffers; large ones are passed through."""
    small = bytearray()
    for buffer in buffers:
        if len(buffer) <= _JOINED:
            small += buffer
        if small and (len(buffer) > _JOINED or len(small) > SIZE):
            yield memoryview(small)
            small = bytearray()
        if len(buffer) > _JOINED:
            yield buffer
    if small:
        yield memoryview(small)


class ResponseReader:
    """A parser for one response, as a state machine.

    The caller writes received bytes into `room()` and reports their number with `filled(count)`, 0
    for the end of the stream, until `done`.

    >>> reader, data = ResponseReader("GET"), b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}"
    >>> reader.room()[: len(data)] = data
    >>> reader.filled(len(data))
    >>> reader.done, reader.keep, reader.answer.status, bytes(reader.answer.body)
    (True, True, 200, b'{}')
    """

    def __init__(self, method: str, limits: Limits = DEFAULT) -> None:
        self._method, self._limits = method, limits
        self._window = ReceiveBuffer()
        # Whether the last `room` was in the body's own memory.
        self._direct = False
        # The name of the method for the current state. A bound method would make a reference
        # cycle, which would keep the body alive until the next garbage collection.
        self._state = "_status_line"
        self._head_left, self._fields_left, self._interim_left = HEAD, FIELDS, INTERIM
        self._status, self._minor = 0, 1
        self._headers: dict[str, str] = {}
        self._body, self._whole = Body(limits), memoryview(b"")
        # Bytes of the body, or of the current chunk, that have not come yet.
        self._left = 0
        # False for a body that ends when the server closes the connection.
        self._delimited = True
        self.done = False

    @property
    def started(self) -> bool:
        """Whether any byte has come."""
        return self._window.came > 0

    @property
    def answer(self) -> Answer:
        return Answer(self._status, self._headers, self._whole)

    @property
    def keep(self) -> bool:
        """Whether the connection can be reused: the response is complete, nothing follows it, and
        the server does not close the connection.
        """
        tokens = {token.strip().lower() for token in self._headers.get("connection", "").split(",")}
        stays = "close" not in tokens and (self._minor > 0 or "keep-alive" in tokens)
        return self.done and stays and self._delimited and not self.surplus

    @property
    def surplus(self) -> bool:
        """Whether bytes have come after the end of the response."""
        return len(self._window) > 0

    def room(self) -> memoryview:
        """Return the memory for the next bytes; it is never empty before `done`."""
        self._direct = not len(self._window) and self._reads_directly()
        if self._direct:
            return self._body.room(self._left if self._delimited else None)
        return self._window.room()

    def forget(self) -> None:
        """Release the body's memory, after an error."""
        self._body.forget()

    def _reads_directly(self) -> bool:
        """Return whether the next bytes can go directly into the body's memory."""
        # A small chunk goes through the buffer, so that one read gets its data, its end and the
        # line of the next chunk.
        return self._body.direct and (
            self._state in ("_sized", "_open") or (self._state == "_chunk" and self._left > SIZE)
        )

    def filled(self, count: int) -> None:
        """Process `count` bytes that were written to `room()`; 0 if the connection was closed."""
        if not count:
            self._closed()
        elif self._direct:
            self._window.passed(count)
            self._body.wrote(count)
            self._passed(count)
        else:
            self._window.filled(count)
            while not self.done and getattr(self, self._state)():
                pass

    def _closed(self) -> None:
        """Finish a body that ends with the connection; for all others raise TransportError."""
        if self._state == "_open":
            self._finish()
            return
        left = f"{self._left:,} bytes before the end of"
        phrases = {
            "_status_line": "in the status line",
            "_field": "in the headers",
            "_sized": f"{left} the body",
            "_chunk": f"{left} a chunk",
        }
        phrase = (
            phrases.get(self._state, "between two chunks") if self.started else "without an answer"
        )
        raise TransportError(f"the server closed the connection {phrase}", offset=self._window.came)

    def _wrong(self, message: str) -> TransportError:
        """Return an error with the offset of the next byte to be parsed."""
        return TransportError(message, offset=self._window.offset)

    # Each state is a method that consumes bytes of the buffer. It returns False if it needs more.

    def _status_line(self) -> bool:
        begin = self._window.peek(20)
        if not b"HTTP/1.".startswith(begin[:7]):
            # 0x15 is the content type of a TLS alert record.
            error = self._wrong(
                f"the server does not answer in HTTP/1.1: the answer begins with {begin!r}"
            )
            error.hint = "it may expect TLS: try https://" if begin[:1] == b"\x15" else None
            raise error
        line = self._head_line()
        if line is None:
            return False
        match = _STATUS.fullmatch(line)
        if not match:
            raise self._wrong(f"invalid status line {line[:50]!r}")
        self._minor, self._status = int(match[1]), int(match[2])
        self._headers = {}
        self._state = "_field"
        return True

    def _field(self) -> bool:
        line = self._head_line()
        if line:
            name, value = self._split(line)
            self._headers[name] = (
                f"{self._headers[name]}, {value}" if name in self._headers else value
            )
        elif line is not None:
            self._head_done()
        return line is not None

    def _head_line(self) -> bytes | None:
        """Consume a line of the head or the trailers; None if its end has not come."""
        line = self._window.line(self._head_left, "the head")
        if line is not None:
            self._head_left -= len(line) + 2
        return line

    def _split(self, line: bytes) -> tuple[str, str]:
        """Return (name in lower case, value) of a header line."""
        self._fields_left -= 1
        if self._fields_left < 0:
            raise self._wrong(f"the answer has more than {FIELDS} header fields")
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            raise self._wrong(f"invalid header field {line[:50]!r}")
        return name.lower(), value.strip(" \t")

    def _head_done(self) -> None:
        if self._status < 200:
            self._interim_left -= 1
            if self._status == 101:
                raise self._wrong("the server switches to another protocol (101) without a request")
            if self._interim_left < 0:
                raise self._wrong(f"more than {INTERIM} interim responses (1xx)")
            self._state = "_status_line"
        elif (
            self._method == "HEAD"
            or self._status in (204, 304)
            or (self._method == "CONNECT" and self._status < 300)
        ):
            self._finish()
        else:
            self._begin_body()

    def _begin_body(self) -> None:
        """Choose the framing of the body: chunked, of known size, or until the end of stream."""
        encoding, coding, size = (
            self._headers.get("content-encoding", ""),
            self._headers.get("transfer-encoding"),
            self._length(),
        )
        if coding is not None:
            if coding.lower() != "chunked" or size is not None or self._minor < 1:
                more = (
                    " and a Content-Length"
                    if size is not None
                    else " in HTTP/1.0"
                    if self._minor < 1
                    else ""
                )
                raise self._wrong(
                    f"the answer has the Transfer-Encoding {coding[:50]!r}{more}, so the end of its"
                    " body is ambiguous"
                )
            self._state, self._body = "_chunk_line", make_body(encoding, self._limits)
        elif size is None:
            self._state, self._body, self._delimited = (
                "_open",
                make_body(encoding, self._limits),
                False,
            )
        elif size:
            self._state, self._body, self._left = (
                "_sized",
                make_body(encoding, self._limits, size),
                size,
            )
        else:
            self._finish()

    def _length(self) -> int | None:
        """Return the Content-Length, or None if there is no such header."""
        header = self._headers.get("content-length")
        if header is None:
            return None
        values = {value.strip(" \t") for value in header.split(",")}
        value = values.pop()
        if values or not value.isascii() or not value.isdigit():
            raise self._wrong(f"invalid Content-Length {header[:50]!r}: expected one number")
        # Python refuses to parse very long numbers. 20 digits are above any limit, too.
        size = int(value.lstrip("0")[:20] or "0")
        check_size(size, self._limits)
        return size

    def _sized(self) -> bool:
        piece = self._window.take(self._left)
        if len(piece):
            self._body.add(piece)
        self._passed(len(piece))
        return len(piece) > 0

    def _open(self) -> bool:
        self._body.add(self._window.take(SIZE))
        return False

    def _chunk(self) -> bool:
        return self._sized()

    def _passed(self, count: int) -> None:
        """Count bytes of the body, and change the state after the last one."""
        self._left -= count
        if not self._left and self._state == "_sized":
            self._finish()
        elif not self._left:
            self._state = "_chunk_end" if self._state == "_chunk" else self._state

    def _chunk_line(self) -> bool:
        line = self._window.line(_CHUNK_LINE, "the size line of a chunk")
        if line is None:
            return False
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not _HEX.fullmatch(digits):
            raise self._wrong(f"invalid chunk size {line[:50]!r}")
        # As in `_length`: 17 hexadecimal digits are above any limit.
        self._left = int(digits.lstrip(b"0")[:17] or b"0", 16)
        check_size(self._body.came + self._left, self._limits)
        self._state = "_chunk" if self._left else "_trailer"
        return True

    def _chunk_end(self) -> bool:
        end = self._window.peek(2)
        if not b"\r\n".startswith(end):
            raise self._wrong("the data of a chunk is longer than the chunk size")
        if len(end) < 2:
            return False
        self._window.take(2)
        self._state = "_chunk_line"
        return True

    def _trailer(self) -> bool:
        line = self._head_line()
        if line:
            self._split(line)
        elif line is not None:
            self._finish()
        return line is not None

    def _finish(self) -> None:
        # An empty body is accepted even if it is declared as gzip, which it is not.
        if self._body.came or not self._delimited:
            self._whole = self._body.finish()
        self.done = True
