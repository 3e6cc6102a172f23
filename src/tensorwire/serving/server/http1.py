"""HTTP/1.1 as a server hears it, without sockets: the head of a request and the size of a chunk, by
strict rules; an answer's bytes.

Whatever could be read in two ways is refused (two lengths, a length and chunks, lines that go on in
the next one), and lengths are bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

MOST_HEAD = 64 << 10
"""Bytes of a request's line and headers."""
MOST_HEADERS = 100
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]{1,8192}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_ABSOLUTE = re.compile(r"[Hh][Tt][Tt][Pp]://([^/?#]*)")


class BadRequest(Exception):
    """A request that cannot be read. The connection ends with it: nobody knows where the next
    request would begin.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Head(NamedTuple):
    """A request without its body."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case; what stands twice is joined by a comma."""
    length: int | None
    """Of the body; None if it comes in chunks."""
    close: bool
    """Whether the client wants no other answer on this connection."""

    @property
    def continues(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        return "expect" in self.headers


class HttpRequest(NamedTuple):
    method: str
    target: str
    headers: Mapping[str, str]
    body: Any


class Response(NamedTuple):
    status: int
    chunks: Sequence[Any] = ()
    headers: Mapping[str, str] = {"Content-Type": "application/json"}


def answer(value: object, status: int = 200) -> Response:
    """JSON that is no tensor.

    >>> b"".join(answer({"error": "no such model"}, 404).chunks)
    b'{"error": "no such model"}'
    """
    return Response(status, [json.dumps(value).encode()])


def parse_head(data: bytes) -> Head:
    """The head of a request, up to the empty line and without it.

    >>> parse_head(b"POST /v1/models/m:predict HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3")
    Head(method='POST', target='/v1/models/m:predict', headers={'host': 'a', 'content-length': '3'},
    length=3, close=False)
    """
    first, *lines = data.split(b"\r\n")
    found = _LINE.fullmatch(first)
    if found is None:
        raise BadRequest(400, "this is no request of HTTP/1.1")
    if len(lines) > MOST_HEADERS:
        raise BadRequest(431, f"more than {MOST_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest(400, "a header is a name, a colon and text, on one line")
        name, value = header[1].decode().lower(), header[2].decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    target = found[2].decode()
    if absolute := _ABSOLUTE.match(target):  # then its host counts, and not the header's
        target, headers["host"] = target[absolute.end() :], absolute[1]
    words = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    close = "close" in words or (found[3] == b"0" and "keep-alive" not in words)
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise BadRequest(417, f"nothing is known of the expectation {headers['expect']!r:.60}")
    return Head(found[1].decode(), target or "/", headers, _length(headers), close)


def _length(headers: Mapping[str, str]) -> int | None:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise BadRequest(400, "a body has a length, or comes in chunks, and not both")
        if coding.lower() != "chunked":
            raise BadRequest(501, f"bodies come whole or in chunks, not {coding!r:.60}")
        return None
    if length is None:
        return 0
    if not re.fullmatch(r"\d{1,18}", length, re.A):
        raise BadRequest(400, f"the length of a body is a number, not {length!r:.60}")
    return int(length)


def chunk_size(line: bytes) -> int:
    """What the line before a chunk says.

    >>> chunk_size(b"1a;name=value")
    26
    """
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise BadRequest(400, "a chunk begins with its size")
    return int(found[1], 16)


def write_head(status: int, headers: Mapping[str, str], length: int, close: bool) -> bytes:
    """The head of an answer.

    >>> write_head(200, {}, 2, close=True)
    b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n'
    """
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {length}",
    ]
    return "\r\n".join([*lines, *(["Connection: close"] if close else []), "", ""]).encode(
        "latin-1"
    )
