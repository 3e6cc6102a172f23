"""HTTP/1.1 as a client speaks it, without I/O: the bytes of a request, and a reader that is given
the bytes of an answer.

It is our own and not urllib3's or http.client's for three reasons. A deadline has to hold for the
whole exchange: a server that sends one byte a second never trips a timeout for each read. A body
goes straight into its own buffer. And there is one set of rules for threads and for asyncio. So the
client needs NumPy and nothing else.

Strict where two readers could disagree about where an answer ends: line ends are CRLF, a length is
digits, Content-Length and Transfer-Encoding do not come together. What breaks a rule is a
TransportError, with the byte where it stands; a body that is too large is a LimitError, as soon as
the server says how large it is going to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ..._errors import EncodeError, TransportError
from ..._limits import DEFAULT, Limits
from ...core.memory import flat
from . import Answer, Call
from .bodies import Body, check_size, make_body
from .receive_buffer import SIZE, ReceiveBuffer

HEAD = SIZE
"""Bytes that an answer may have before its body and, as trailers, behind it ..."""
FIELDS = 100
"""... and header fields ..."""
INTERIM = 16
"""... and answers before the answer (100 Continue, 103 Early Hints)."""
_CHUNK_LINE = 4096
"""Bytes of a chunk's size and extensions, which mean nothing."""
_JOINED = 16 << 10
"""Buffers up to this size are joined before they are sent: a copy costs less than a packet or a TLS
record of its own.
"""
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS = re.compile(rb"HTTP/1\.([0-9]) ([1-5][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HEX = re.compile(rb"[0-9a-fA-F]+")
_TARGET = re.compile(r"[!-~]+")
_OURS = frozenset(("content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"))
"""Headers that say how the exchange goes on, and that is not the caller's to say."""


def request(
    call: Call, host: str, prefix: str = "", headers: Mapping[str, str] | None = None
) -> list[memoryview]:
    """The bytes of a request, as buffers: the head and what is small in one, what is large as it
    is.

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
        raise EncodeError(
            f"{call.method!r} {target!r} cannot be sent: what is not ASCII or not visible has to be"
            " percent-encoded"
        )
    lines = [
        f"{call.method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in fields.values()),
        "",
        "",
    ]
    return list(_joined([memoryview("\r\n".join(lines).encode("latin-1")), *body]))


def check_header(name: str, value: str) -> tuple[str, str]:
    """A header that can be sent, or an EncodeError.

    >>> check_header("Authorization", "Bearer x")
    ('Authorization', 'Bearer x')
    """
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise EncodeError(f"{name!r} cannot be the name of a header")
    if name.lower() in _OURS:
        raise EncodeError(f"the header {name!r} is the transport's own; leave it out")
    if (
        not isinstance(value, str)
        or _CONTROL.search(value)
        or any(ord(letter) > 255 for letter in value)
    ):
        raise EncodeError(
            f"the value of the header {name!r} has line ends, control characters or letters that"
            " are not Latin-1"
        )
    return name, value.strip(" \t")


def _joined(buffers: Iterable[memoryview]) -> Iterator[memoryview]:
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
    """Reads one answer. Put bytes into `room()` and say with `filled(count)` how many, 0 for the
    end, until `done`.

    >>> reader, data = ResponseReader("GET"), b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}"
    >>> reader.room()[: len(data)] = data
    >>> reader.filled(len(data))
    >>> reader.done, reader.keep, reader.answer.status, bytes(reader.answer.body)
    (True, True, 200, b'{}')
    """

    def __init__(self, method: str, limits: Limits = DEFAULT) -> None:
        self._method, self._limits = method, limits
        self._window = ReceiveBuffer()
        self._direct = False  # the last room was the body's own
        # the name, since the method itself would be a cycle that keeps the body alive
        self._state = "_status_line"
        self._head_left, self._fields_left, self._interim_left = HEAD, FIELDS, INTERIM
        self._status, self._minor = 0, 1
        self._headers: dict[str, str] = {}
        self._body, self._whole = Body(limits), memoryview(b"")
        self._left = 0  # bytes of the body, or of the chunk, that are still to come
        self._delimited = True
        self.done = False

    @property
    def started(self) -> bool:
        """Whether a byte has come."""
        return self._window.came > 0

    @property
    def answer(self) -> Answer:
        return Answer(self._status, self._headers, self._whole)

    @property
    def keep(self) -> bool:
        """Whether the connection can be used again: nothing is left on it, and the server does not
        say that it closes it.
        """
        said = {token.strip().lower() for token in self._headers.get("connection", "").split(",")}
        stays = "close" not in said and (self._minor > 0 or "keep-alive" in said)
        return self.done and stays and self._delimited and not self.surplus

    @property
    def surplus(self) -> bool:
        """Whether bytes have come that are not the answer's."""
        return len(self._window) > 0

    def room(self) -> memoryview:
        """Where the next bytes go; never empty before the answer is done."""
        self._direct = not len(self._window) and self._reads_directly()
        if self._direct:
            return self._body.room(self._left if self._delimited else None)
        return self._window.room()

    def forget(self) -> None:
        """Gives back the body's memory, after an error."""
        self._body.forget()

    def _reads_directly(self) -> bool:
        """A small chunk does not: with its data its end and the next chunk come in one read."""
        return self._body.direct and (
            self._state in ("_sized", "_open") or (self._state == "_chunk" and self._left > SIZE)
        )

    def filled(self, count: int) -> None:
        """So many bytes came; 0 if the server has closed the connection."""
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
        if self._state == "_open":
            self._finish()
            return
        left = f"{self._left:,} bytes before the end of"
        where = {
            "_status_line": "in the status line",
            "_field": "in the headers",
            "_sized": f"{left} the body",
            "_chunk": f"{left} a chunk",
        }
        what = where.get(self._state, "between two chunks") if self.started else "without an answer"
        raise TransportError(f"the server closed the connection {what}", offset=self._window.came)

    def _wrong(self, what: str) -> TransportError:
        return TransportError(what, offset=self._window.at)

    # Each of the states uses up some of the window, and says whether it could.

    def _status_line(self) -> bool:
        begin = self._window.peek(20)
        if not b"HTTP/1.".startswith(begin[:7]):
            tls = "; it seems to speak TLS: try https://" if begin[:1] == b"\x15" else ""
            raise self._wrong(f"the server does not answer in HTTP/1.1 but with {begin!r}{tls}")
        line = self._head_line()
        if line is None:
            return False
        match = _STATUS.fullmatch(line)
        if not match:
            raise self._wrong(f"{line[:50]!r} is not the status line of an answer")
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
        line = self._window.line(self._head_left, "a head")
        if line is not None:
            self._head_left -= len(line) + 2
        return line

    def _split(self, line: bytes) -> tuple[str, str]:
        self._fields_left -= 1
        if self._fields_left < 0:
            raise self._wrong(f"an answer with more than {FIELDS} header fields")
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            raise self._wrong(f"{line[:50]!r} is not a header field")
        return name.lower(), value.strip(" \t")

    def _head_done(self) -> None:
        if self._status < 200:
            self._interim_left -= 1
            if self._status == 101:
                raise self._wrong("the server changes to a protocol that nobody asked for")
            if self._interim_left < 0:
                raise self._wrong(f"more than {INTERIM} answers before the answer (1xx)")
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
                    f"an answer with the Transfer-Encoding {coding[:50]!r}{more}: its end is not"
                    " certain"
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
        said = self._headers.get("content-length")
        if said is None:
            return None
        values = {value.strip(" \t") for value in said.split(",")}
        value = values.pop()
        if values or not value.isascii() or not value.isdigit():
            raise self._wrong(f"the Content-Length {said[:50]!r} is not one number")
        # a longer number is too large anyhow, and Python would refuse to read it
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
        """Bytes of the body came, and maybe they were the last."""
        self._left -= count
        if not self._left and self._state == "_sized":
            self._finish()
        elif not self._left:
            self._state = "_chunk_end" if self._state == "_chunk" else self._state

    def _chunk_line(self) -> bool:
        line = self._window.line(_CHUNK_LINE, "a chunk's first line")
        if line is None:
            return False
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not _HEX.fullmatch(digits):
            raise self._wrong(f"{line[:50]!r} is not the size of a chunk")
        # here too, what is longer is too large
        self._left = int(digits.lstrip(b"0")[:17] or b"0", 16)
        check_size(self._body.came + self._left, self._limits)
        self._state = "_chunk" if self._left else "_trailer"
        return True

    def _chunk_end(self) -> bool:
        end = self._window.peek(2)
        if not b"\r\n".startswith(end):
            raise self._wrong("a chunk is longer than it says")
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
        # no body at all is not gzip either, and needs not be
        if self._body.came or not self._delimited:
            self._whole = self._body.finish()
        self.done = True
