"""A server that does everything wrong, one fault at a time: raw sockets on 127.0.0.1, one thread
for each connection.

`MODES` is the table: a name, what the server does, what a transport has to make of it. `with
BadServer(MODES[name]) as server:` runs one.
"""

import contextlib
import functools
import gzip
import os
import socket
import ssl
import struct
import threading
import time
from typing import Any, NamedTuple

from tensorwire import DeadlineError, LimitError, TransportError
from tensorwire.serving.transports import ConnectError

BODY = b'{"predictions": [1.0]}'
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PACKED = gzip.compress(BODY)
NOISE = gzip.compress(os.urandom(60_000), 1)
DRIP = 0.02
"""Seconds between two bytes."""


class Mode(NamedTuple):
    serve: Any
    """What is done with a connection: `serve(server, sock)`."""
    error: type[Exception] | None
    """What a transport raises; None if the server's answer is an answer, however bad."""
    status: int = 200
    """Of the answer."""
    calls: int = 1
    """How many there have to be, on one transport, before the fault shows. Those before it get an
    answer.
    """
    sent: int = 100
    """Bytes in the request's body."""
    tls: str = ""
    """Whose certificate the server has: "ours", "another host's", "a stranger's", "expired"."""
    scheme: str = ""
    """Of the URL, where that is not what the server speaks."""
    host: str = "127.0.0.1"
    words: str = ""
    """Of the error's message."""
    listens: bool = True
    accepts: bool = True


MODES: dict[str, Mode] = {}


def mode(error: type[Exception] | None, **options: Any) -> Any:
    def add(serve: Any) -> Any:
        MODES[serve.__name__] = Mode(serve, error, **options)
        return serve

    return add


def says(
    name: str, error: type[Exception] | None, answer: bytes, then: str = "close", **options: Any
) -> None:
    """A mode that reads the request, says this, and then closes, resets or waits for the client."""

    def serve(server: "BadServer", sock: socket.socket) -> None:
        server.read(sock)
        sock.sendall(answer)
        if then == "reset":
            time.sleep(0.05)  # a reset takes along what the client has not read yet
            reset(sock)
        elif then == "wait":
            wait_for_end(sock)

    MODES[name] = Mode(serve, error, **options)


class BadServer:
    """`connections` and `requests` count what came. `leaked` counts connections that the client has
    not closed when it should have.
    """

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.connections = self.requests = self.closed = self.leaked = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []  # one for each connection
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        scheme = self.mode.scheme or ("https" if self.mode.tls else "http")
        self.url = f"{scheme}://{self.mode.host}:{self.port}"
        self._callers: list[socket.socket] = []
        self._open: list[socket.socket] = []

    @property
    def context(self) -> ssl.SSLContext | None:
        """What a client needs to trust this server, if its certificate is right."""
        if not self.url.startswith("https"):
            return None
        context = ssl.create_default_context()
        authority("ours").configure_trust(context)
        return context

    def __enter__(self) -> "BadServer":
        if not self.mode.listens:
            return self
        self._listener.listen(128 if self.mode.accepts else 0)
        if self.mode.accepts:
            self._acceptor.start()
        else:
            self.mode.serve(self, self._listener)
        return self

    def __exit__(self, *error: object) -> None:
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        for caller in self._callers:
            caller.close()
        if self._acceptor.ident:
            self._acceptor.join()
        for sock in self._open:  # those that a transport keeps
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.join()

    def join(self) -> None:
        """Waits until every connection has come to its end."""
        self.stopping.set()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a connection of the bad server hangs"

    def fill(self) -> None:
        """Takes all the places where connections wait to be accepted."""
        for _ in range(8):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", self.port))
            self._callers.append(caller)

    def read(self, sock: socket.socket) -> bytes:
        """A whole request, with its body."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._some(sock)
        head, _, body = data.partition(b"\r\n\r\n")
        size = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        got = len(body)
        while got < size:
            got += len(self._some(sock))
        with self._lock:
            self.requests += 1
        return head

    def drip(self, sock: socket.socket, data: bytes) -> None:
        """One byte at a time, again and again."""
        while not self.stopping.wait(DRIP):
            sock.sendall(data[:1])
            data = data[1:] + data[:1]
        wait_for_end(sock)

    def ignore(self, sock: socket.socket) -> None:
        """Reads nothing until the end."""
        self.stopping.wait(5)
        wait_for_end(sock)

    def _some(self, sock: socket.socket) -> bytes:
        data = sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the client has closed")
        return data

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
            thread = threading.Thread(target=self._handle, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _handle(self, sock: socket.socket) -> None:
        sock.settimeout(5)
        try:
            if self.mode.tls:
                sock = server_context(self.mode.tls).wrap_socket(sock, server_side=True)
            self._open.append(sock)
            self.mode.serve(self, sock)
        except TimeoutError:
            with self._lock:
                self.leaked += 1
        except OSError:  # the client has gone, as it should
            pass
        finally:
            sock.close()
            with self._lock:
                self.closed += 1


def wait_for_end(sock: socket.socket) -> None:
    """Until the client closes; a TimeoutError if it does not, which counts as leaked."""
    while sock.recv(1 << 18):
        pass


def reset(sock: socket.socket) -> None:
    """Ends a connection the hard way."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@functools.cache
def authority(name: str) -> Any:
    import trustme

    return trustme.CA(organization_name=name)


@functools.cache
def server_context(whose: str) -> ssl.SSLContext:
    import datetime

    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    hosts = ["other.example"] if whose == "another host's" else ["127.0.0.1", "localhost"]
    dates = (
        {"not_before": past, "not_after": past + datetime.timedelta(days=1)}
        if whose == "expired"
        else {}
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority("stranger" if whose == "a stranger's" else "ours").issue_cert(
        *hosts, **dates
    ).configure_cert(context)
    return context


def sized(body: bytes, length: object, *headers: bytes) -> bytes:
    return b"\r\n".join(
        [b"HTTP/1.1 200 OK", b"Content-Length: " + str(length).encode(), *headers, b"", body]
    )


def packed(body: bytes, encoding: bytes = b"gzip") -> bytes:
    return sized(body, len(body), b"Content-Encoding: " + encoding)


# ---- no connection


@mode(ConnectError, listens=False, words="refused")
def refused(server: BadServer, sock: socket.socket) -> None: ...


@mode(ConnectError, listens=False, host="no-such-host.invalid", words="cannot resolve host name")
def no_such_host(server: BadServer, sock: socket.socket) -> None: ...


@mode(DeadlineError, accepts=False)
def slow_accept(server: BadServer, sock: socket.socket) -> None:
    server.fill()


@mode(DeadlineError, accepts=False)
def never_accepts(server: BadServer, sock: socket.socket) -> None: ...


# ---- no answer


@mode(DeadlineError)
def silence(server: BadServer, sock: socket.socket) -> None:
    wait_for_end(sock)


@mode(TransportError)
def closes_at_once(server: BadServer, sock: socket.socket) -> None: ...


@mode(TransportError)
def resets_at_once(server: BadServer, sock: socket.socket) -> None:
    sock.recv(1)
    reset(sock)


@mode(TransportError)
def flapping(server: BadServer, sock: socket.socket) -> None:
    """Every second connection works, beginning with the second."""
    server.read(sock)
    if server.connections % 2:
        reset(sock)
    else:
        sock.sendall(GOOD)


says("closes_after_request", TransportError, b"", words="without an answer")
says("resets_after_request", TransportError, b"", "reset", words="without an answer")
says("resets_in_status", TransportError, b"HTTP/1.1 2", "reset")
says("resets_in_headers", TransportError, GOOD[:40], "reset")
says("resets_in_body", TransportError, GOOD[:-5], "reset")
says("resets_in_chunk", TransportError, CHUNKED + b"10\r\nabc", "reset")
says("cut_status", TransportError, b"HTTP/1.1 200 O", words="in the status line")
says(
    "cut_headers",
    TransportError,
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
    words="in the headers",
)
says("cut_body", TransportError, GOOD[:-5], words="5 bytes before the end of the body")
says(
    "cut_chunk", TransportError, CHUNKED + b"10\r\nabc", words="13 bytes before the end of a chunk"
)
says("cut_between_chunks", TransportError, CHUNKED + b"3\r\nabc\r\n", words="between two chunks")
says("cut_gzip", TransportError, packed(PACKED[:-5]), words="not valid gzip")
says(
    "cut_gzip_without_length",
    TransportError,
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + PACKED[:-5],
    words="not valid gzip",
)


# ---- too slow


def drips(name: str, before: bytes, data: bytes) -> None:
    def serve(server: BadServer, sock: socket.socket) -> None:
        server.read(sock)
        sock.sendall(before)
        server.drip(sock, data)

    MODES[name] = Mode(serve, DeadlineError)


drips("drips_status", b"HTTP/1.1 200 ", b"O")
drips("drips_headers", b"HTTP/1.1 200 OK\r\n", b"a: b\r\n")
drips("drips_body", sized(b"", 1 << 20), b"x")
drips("drips_chunk", CHUNKED + b"100000\r\n", b"x")
drips("drips_chunks", CHUNKED, b"1\r\nx\r\n")
drips(
    "drips_gzip",
    packed(b"")[:-4].replace(b"Length: 0", b"Length: 99999")
    + b"\r\n\r\n\x1f\x8b\x08\x10\0\0\0\0\0\xff",
    b"x",
)
says("stops_in_body", DeadlineError, GOOD[:-5], "wait")
says("promises_much", DeadlineError, sized(b"x", 15 << 20), "wait")
says("promises_a_large_chunk", DeadlineError, CHUNKED + b"f00000\r\nx", "wait")


# ---- lengths that lie

says("length_too_long", TransportError, sized(BODY, len(BODY) + 10), words="10 bytes before")
says(
    "length_too_short",
    None,
    sized(BODY + b"HTTP/1.1 500 Smuggled\r\n\r\n", len(BODY)),
    "wait",
    calls=2,
)
says("length_huge", LimitError, sized(BODY, 2**60), "wait")
says("length_of_many_digits", LimitError, sized(BODY, "9" * 5000), "wait")
says(
    "length_negative", TransportError, sized(BODY, -5), "wait", words="invalid Content-Length '-5'"
)
says("length_signed", TransportError, sized(BODY, "+5"), "wait")
says("length_of_letters", TransportError, sized(BODY, "many"), "wait")
says(
    "length_twice",
    TransportError,
    sized(BODY, len(BODY), b"Content-Length: 7"),
    "wait",
    words="invalid Content-Length '22, 7'",
)
says(
    "length_and_chunks",
    TransportError,
    sized(BODY, len(BODY), b"Transfer-Encoding: chunked"),
    "wait",
    words="ambiguous",
)
says(
    "chunk_too_long",
    TransportError,
    CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "wait",
    words="longer than the chunk size",
)
says("chunk_too_short", TransportError, CHUNKED + b"10\r\nabc\r\n0\r\n\r\n")
says("chunk_huge", LimitError, CHUNKED + b"%x\r\nabc" % 2**60, "wait")
says(
    "chunk_negative",
    TransportError,
    CHUNKED + b"-3\r\nabc\r\n",
    "wait",
    words="invalid chunk size",
)
says("chunk_of_letters", TransportError, CHUNKED + b"xyz\r\nabc\r\n", "wait")
says(
    "chunk_line_too_long",
    TransportError,
    CHUNKED + b"3;" + b"x" * 5000,
    "wait",
    words="more than 4,096 bytes",
)
says(
    "chunks_in_old_http",
    TransportError,
    CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
    "wait",
    words="in HTTP/1.0",
)


# ---- too much


def endless(name: str, error: type[Exception], before: bytes, data: bytes, words: str = "") -> None:
    def serve(server: BadServer, sock: socket.socket) -> None:
        server.read(sock)
        sock.sendall(before)
        while not server.stopping.is_set():
            sock.sendall(data)
        wait_for_end(sock)

    MODES[name] = Mode(serve, error, words=words)


endless("endless_body", LimitError, b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)
endless("endless_chunks", LimitError, CHUNKED, b"10000\r\n%s\r\n" % (b"x" * 65536))
endless("endless_tiny_chunks", DeadlineError, CHUNKED, b"1;xxxxxxxxxx\r\nx\r\n" * 4000)
endless(
    "endless_trailers",
    TransportError,
    CHUNKED + b"0\r\n",
    b"a: b\r\n" * 100,
    "more than 100 header fields",
)
endless("endless_status", TransportError, b"HTTP/1.1 200 ", b"x" * 1000, "head has more than")
endless(
    "endless_headers",
    TransportError,
    b"HTTP/1.1 200 OK\r\n",
    b"a: b\r\n" * 100,
    "more than 100 header fields",
)
endless(
    "endless_header", TransportError, b"HTTP/1.1 200 OK\r\na: ", b"x" * 1000, "head has more than"
)
endless(
    "endless_interim",
    TransportError,
    b"",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 10,
    "more than 16 interim",
)
endless(
    "endless_gzip",
    LimitError,
    CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n",
    b"%x\r\n%s\r\n" % (len(NOISE), NOISE),
)


@functools.cache
def bomb() -> bytes:
    """A GiB of zeros."""
    return gzip.compress(bytes(16 << 20)) * 64


@mode(LimitError)
def gzip_bomb(server: BadServer, sock: socket.socket) -> None:
    server.read(sock)
    sock.sendall(packed(bomb()))
    wait_for_end(sock)


@mode(LimitError)
def gzip_bomb_in_chunks(server: BadServer, sock: socket.socket) -> None:
    server.read(sock)
    sock.sendall(CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n")
    for at in range(0, len(bomb()), 1000):
        part = bomb()[at : at + 1000]
        sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))
    sock.sendall(b"0\r\n\r\n")


# ---- not what we speak

says("unknown_encoding", TransportError, packed(BODY, b"br"), "wait", words="supported: gzip")
says(
    "packed_twice",
    TransportError,
    packed(gzip.compress(PACKED), b"gzip, gzip"),
    "wait",
    words="supported: gzip",
)
says("wrong_gzip", TransportError, packed(BODY), "wait", words="not valid gzip")
says(
    "wrong_gzip_checksum",
    TransportError,
    packed(PACKED[:-8] + bytes(4) + PACKED[-4:]),
    "wait",
    words="checksum",
)
says("http_0_9", TransportError, b"<html>It works!</html>\n", words="does not answer in HTTP")
says(
    "http_2",
    TransportError,
    b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x80\0\4\0\1\0\0\0\5\0\xff\xff\xff",
    "wait",
    words="does not answer in HTTP",
)
says("ssh", TransportError, b"SSH-2.0-OpenSSH_9.2\r\n", "wait", words="does not answer in HTTP")
says(
    "no_status", TransportError, GOOD.replace(b" 200 OK", b""), "wait", words="invalid status line"
)
says("status_too_large", TransportError, GOOD.replace(b"200", b"999"), "wait")
says("line_feeds", TransportError, GOOD.replace(b"\r\n", b"\n"), "wait", words="LF instead of CRLF")
says(
    "folded_header",
    TransportError,
    GOOD.replace(b"Content-Type:", b"a: b\r\n c\r\nContent-Type:"),
    "wait",
    words="invalid header field",
)
says(
    "zero_in_header",
    TransportError,
    GOOD.replace(b"application", b"app\0"),
    "wait",
    words="invalid header field",
)
says(
    "switches_protocol",
    TransportError,
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "wait",
    words="switches to another protocol",
)
says(
    "unknown_coding",
    TransportError,
    CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n",
    "wait",
    words="ambiguous",
)


# ---- answers, though not those one hopes for

says(
    "redirect",
    None,
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "wait",
    status=302,
)
says(
    "redirect_to_itself",
    None,
    b"HTTP/1.1 307 Again\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
    "wait",
    status=307,
)
says(
    "too_many_requests",
    None,
    b"HTTP/1.1 429 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    "wait",
    status=429,
)
says("unavailable", None, b"HTTP/1.1 503 Later\r\nContent-Length: 2\r\n\r\n{}", "wait", status=503)
says("not_json", None, sized(b"\xff<html>", 7), "wait")
says("body_after_204", None, b"HTTP/1.1 204 No Content\r\n\r\n" + BODY, "wait", status=204, calls=2)
says(
    "interim_first",
    None,
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + GOOD,
    "wait",
)


# ---- large requests


@mode(DeadlineError, sent=64 << 20)
def never_reads(server: BadServer, sock: socket.socket) -> None:
    server.ignore(sock)


@mode(None, sent=64 << 20, status=413)
def refuses_early_and_closes(server: BadServer, sock: socket.socket) -> None:
    sock.recv(1000)
    sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")


@mode(None, sent=64 << 20, status=413)
def refuses_early_and_stays(server: BadServer, sock: socket.socket) -> None:
    sock.recv(1000)
    sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
    server.ignore(sock)


@mode(TransportError, sent=64 << 20)
def closes_early(server: BadServer, sock: socket.socket) -> None:
    sock.recv(1000)


@mode(TransportError, sent=64 << 20)
def resets_early(server: BadServer, sock: socket.socket) -> None:
    sock.recv(1 << 20)
    reset(sock)


# ---- connections that were kept


@mode(None, calls=2)
def closes_between_calls(server: BadServer, sock: socket.socket) -> None:
    server.read(sock)
    sock.sendall(GOOD)


@mode(ConnectError, calls=2, words="kept-alive")
def closes_on_second_call(server: BadServer, sock: socket.socket) -> None:
    server.read(sock)
    sock.sendall(GOOD)
    server.read(sock)


@mode(ConnectError, calls=2, words="kept-alive")
def resets_on_second_call(server: BadServer, sock: socket.socket) -> None:
    server.read(sock)
    sock.sendall(GOOD)
    server.read(sock)
    reset(sock)


# ---- TLS

says(
    "tls_wrong_host", TransportError, GOOD, tls="another host's", words="not valid for '127.0.0.1'"
)
says("tls_unknown_authority", TransportError, GOOD, tls="a stranger's", words="cafile")
says("tls_expired", TransportError, GOOD, tls="expired", words="expired")
says("plain_on_a_tls_port", TransportError, b"", tls="ours", scheme="http")
says(
    "tls_cut", TransportError, b"HTTP/1.1 200 OK\r\n\r\n" + BODY, tls="ours", words="broke off"
)  # without TLS's own end, nobody knows that this was all
says("tls_resets_in_body", TransportError, GOOD[:-5], "reset", tls="ours")


@mode(TransportError, scheme="https", words="try http://")
def tls_on_a_plain_port(server: BadServer, sock: socket.socket) -> None:
    sock.recv(100_000)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@mode(DeadlineError, scheme="https")
def tls_silence(server: BadServer, sock: socket.socket) -> None:
    wait_for_end(sock)


@mode(ConnectError, scheme="https")
def tls_closes(server: BadServer, sock: socket.socket) -> None:
    sock.recv(100_000)


@mode(ConnectError, scheme="https")
def tls_resets(server: BadServer, sock: socket.socket) -> None:
    sock.recv(1)
    reset(sock)


@mode(DeadlineError, sent=64 << 20, tls="ours")
def tls_never_reads(server: BadServer, sock: socket.socket) -> None:
    server.ignore(sock)
