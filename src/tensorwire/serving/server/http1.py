"""HTTP/1.1 for servers, without I/O: the head of a request, the size of a chunk, the head of an
answer.

Everything ambiguous is refused (two lengths, a length and chunks, folded header lines), and lengths
are limited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

MOST_HEAD = 64 << 10
"""The most bytes of a request's head."""
MOST_HEADERS = 100
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]{1,8192}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_ABSOLUTE = re.compile(r"[Hh][Tt][Tt][Pp]://([^/?#]*)")


class BadRequest(Exception):
    """A request that is refused. Its connection is closed, because the beginning of the next
    request is unknown.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Head(NamedTuple):
    """A request without its body."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case; repeated headers are joined by a comma."""
    length: int | None
    """The length of the body; None if it is chunked."""
    close: bool
    """Whether the connection is closed after the answer."""

    @property
    def continues(self) -> bool:
        """Whether the client waits for 100 Continue before it sends the body."""
        return "expect" in self.headers


class HttpRequest(NamedTuple):
    """A request with its body."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: Any


class Response(NamedTuple):
    """An answer."""

    status: int
    chunks: Sequence[Any] = ()
    headers: Mapping[str, str] = {"Content-Type": "application/json"}


def answer(value: object, status: int = 200) -> Response:
    """Return an answer with a small JSON value.

    >>> b"".join(answer({"error": "no such model"}, 404).chunks)
    b'{"error": "no such model"}'
    """
    return Response(status, [json.dumps(value).encode()])


def parse_head(data: bytes) -> Head:
    """Parse the head of a request, without the empty line at its end.

    >>> parse_head(b"POST /v1/models/m:predict HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3")
    Head(method='POST', target='/v1/models/m:predict', headers={'host': 'a', 'content-length': '3'},
    length=3, close=False)
    """
    first, *lines = data.split(b"\r\n")
    match = _LINE.fullmatch(first)
    if match is None:
        raise BadRequest(400, "invalid request line: expected HTTP/1.1")
    if len(lines) > MOST_HEADERS:
        raise BadRequest(431, f"the request has more than {MOST_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest(400, "invalid header: expected a name, a colon and a value")
        name, value = header[1].decode().lower(), header[2].decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    target = match[2].decode()
    # The host of a full URL in the request line takes precedence over the Host header.
    if absolute := _ABSOLUTE.match(target):
        target, headers["host"] = target[absolute.end() :], absolute[1]
    tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    close = "close" in tokens or (match[3] == b"0" and "keep-alive" not in tokens)
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise BadRequest(417, f"unknown expectation {headers['expect']!r:.60}")
    return Head(match[1].decode(), target or "/", headers, _length(headers), close)


def _length(headers: Mapping[str, str]) -> int | None:
    """Return the length of a body, or None if it is chunked."""
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise BadRequest(400, "Content-Length and Transfer-Encoding exclude each other")
        if coding.lower() != "chunked":
            raise BadRequest(501, f"unsupported Transfer-Encoding {coding!r:.60}")
        return None
    if length is None:
        return 0
    if not re.fullmatch(r"\d{1,18}", length, re.A):
        raise BadRequest(400, f"invalid Content-Length {length!r:.60}")
    return int(length)


def chunk_size(line: bytes) -> int:
    """Parse the size line of a chunk.

    >>> chunk_size(b"1a;name=value")
    26
    """
    match = _CHUNK.fullmatch(line)
    if match is None:
        raise BadRequest(400, "invalid chunk size")
    return int(match[1], 16)


def write_head(status: int, headers: Mapping[str, str], length: int, close: bool) -> bytes:
    """Return the head of an answer.

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
