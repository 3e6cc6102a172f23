"""gRPC as it travels: against real grpcio servers, against servers built on the official stubs, and
against servers that misbehave.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures
from types import SimpleNamespace

import numpy as np
import pytest

import tensorwire as tw
from support.bad_server import authority, reset
from support.tiers import TESTS, require
from tensorwire import (
    DeadlineError,
    LimitError,
    Limits,
    MissingDependencyError,
    TransportError,
    UsageError,
)
from tensorwire.serving.rpc import messages as rpc
from tensorwire.serving.rpc.messages import ModelSpec
from tensorwire.serving.transports import Call, ConnectError, Deadline
from tensorwire.serving.transports.rpc import RpcTarget, RpcTransport, refused
from tensorwire.serving.transports.rpc_async import AsyncRpcTransport

grpc = require("grpc")

HELLO = Call(rpc.PREDICT, body=[b"hello"])
UNBOUNDED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
]
SETTINGS = bytes(3) + b"\x04" + bytes(5)
"""How an HTTP/2 server begins."""
PATIENT = 20.0


class AsThread:
    """AsyncRpcTransport, called as the other one is."""

    def __init__(self, url, **options):
        self.transport = AsyncRpcTransport(url, **options)
        self.loop = asyncio.new_event_loop()

    def send(self, call, deadline):
        return self.loop.run_until_complete(self.transport.send(call, deadline))

    def close(self):
        self.loop.run_until_complete(self.transport.close())
        self.loop.close()


@pytest.fixture(params=["threads", "asyncio"])
def make(request):
    made = []

    def transport(url, **options):
        made.append((RpcTransport if request.param == "threads" else AsThread)(url, **options))
        return made[-1]

    yield transport
    for one in made:
        one.close()


class Handler(grpc.GenericRpcHandler):
    """Answers Predict by a function of bytes, and nothing else."""

    def __init__(self, function):
        self.function = function

    def service(self, details):
        return (
            grpc.unary_unary_rpc_method_handler(self.function)
            if details.method == rpc.PREDICT
            else None
        )


@contextlib.contextmanager
def serving(function, credentials=None, port=0, **options):
    with futures.ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, options=UNBOUNDED, **options)
        server.add_generic_rpc_handlers((Handler(function),))
        add = (
            server.add_insecure_port
            if credentials is None
            else lambda at: server.add_secure_port(at, credentials)
        )
        port = add(f"127.0.0.1:{port}")
        server.start()
        try:
            yield f"{'grpc' if credentials is None else 'grpcs'}://127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


@contextlib.contextmanager
def sockets(serve, backlog=8):
    """A server that does this with each connection."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        taken = []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    taken.append(sock)
                    threading.Thread(target=run, args=(sock,), daemon=True).start()

        def run(sock):
            with contextlib.suppress(OSError):
                serve(sock)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for sock in taken:
                sock.close()


def echo(request, context):
    return request


def credentials(host="127.0.0.1", whose="ours"):
    cert = authority(whose).issue_cert(host)
    return grpc.ssl_server_credentials(
        [(cert.private_key_pem.bytes(), b"".join(pem.bytes() for pem in cert.cert_chain_pems))]
    )


def trusted():
    return authority("ours").cert_pem.bytes()


# What is answered


def test_bytes_there_and_back(make):
    seen = {}

    def answer(request, context):
        seen["metadata"] = dict(context.invocation_metadata())
        context.send_initial_metadata((("x-first", "1"),))
        context.set_trailing_metadata((("x-last", "2"), ("x-raw-bin", b"\x00\xff")))
        return request[::-1]

    with serving(answer) as url:
        transport = make(url, headers={"Authorization": "Bearer abc"})
        body = [
            b"one",
            memoryview(b"two"),
            np.frombuffer(b"three", np.uint8).data,
            bytearray(b"four"),
        ]
        found = transport.send(
            Call(rpc.PREDICT, body=body, headers={"x-name-bin": "é"}), Deadline.after(PATIENT)
        )
    assert found.status == 200 and bytes(found.body) == b"onetwothreefour"[::-1]
    assert found.headers == {"grpc-status": "0", "x-first": "1", "x-last": "2", "x-raw-bin": "AP8="}
    assert (
        seen["metadata"]["authorization"] == "Bearer abc"
        and seen["metadata"]["x-name-bin"] == "é".encode()
    )


def test_large_and_empty_messages(make):
    """Far above the 4 MB that grpcio allows by itself."""
    with serving(echo) as url:
        transport = make(url)
        data = np.random.default_rng(1).bytes(32 << 20)
        assert transport.send(Call(rpc.PREDICT, body=[data]), Deadline.after(PATIENT)).body == data
        assert transport.send(Call(rpc.PREDICT, body=[]), Deadline.after(PATIENT)).body == b""


@pytest.mark.parametrize(
    "code",
    [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK],
    ids=lambda code: code.name,
)
def test_every_status_is_an_answer(make, code):
    def answer(request, context):
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "1200"), ("x-why", "because")))
        context.abort(code, "in the server's wörds")

    with serving(answer) as url:
        found = make(url).send(HELLO, Deadline.after(PATIENT))
    assert (
        found.status == rpc.CODES[code.value[0]][1]
        and str(found.body, "utf-8") == "in the server's wörds"
    )
    assert (
        found.headers["grpc-status"] == str(code.value[0]) and found.headers["x-why"] == "because"
    )
    assert found.headers["retry-after"] == "2"


def test_a_method_that_is_not_there(make):
    with serving(echo) as url:
        found = make(url).send(
            Call("/tensorflow.serving.PredictionService/Guess"), Deadline.after(PATIENT)
        )
    assert found.status == 501 and found.headers["grpc-status"] == "12"


def test_an_http_server_on_the_way(make):
    """A proxy that answers 404 to what it does not know, in HTTP/2 and without a word of gRPC."""

    def serve(sock):
        sock.recv(1 << 16)
        sock.sendall(SETTINGS + b"\x00\x00\x00\x04\x01\x00\x00\x00\x00")
        time.sleep(0.2)
        sock.recv(1 << 16)
        # HEADERS, the last of stream 1: ":status: 404"
        sock.sendall(b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x8d")
        time.sleep(1)

    with sockets(serve) as port:
        found = make(f"grpc://127.0.0.1:{port}").send(HELLO, Deadline.after(PATIENT))
    assert found.status == 404


def test_garbage_is_for_who_reads_it(make):
    with serving(lambda request, context: b"\xff\xff no protobuf") as url:
        found = make(url).send(HELLO, Deadline.after(PATIENT))
    with pytest.raises(tw.DecodeError):
        rpc.parse_predict_answer(found.body)


def test_tls(make):
    with serving(echo, credentials()) as url:
        assert (
            make(url, certificates=trusted()).send(HELLO, Deadline.after(PATIENT)).body == b"hello"
        )


def test_tls_both_sides(make):
    cert = authority("ours").issue_cert("client.example")
    identity = cert.private_key_pem.bytes(), b"".join(pem.bytes() for pem in cert.cert_chain_pems)
    own = authority("ours").issue_cert("127.0.0.1")
    pair = own.private_key_pem.bytes(), b"".join(pem.bytes() for pem in own.cert_chain_pems)
    both = grpc.ssl_server_credentials([pair], trusted(), require_client_auth=True)
    with serving(echo, both) as url:
        assert (
            make(url, certificates=trusted(), identity=identity)
            .send(HELLO, Deadline.after(PATIENT))
            .body
            == b"hello"
        )
        with pytest.raises(TransportError):
            make(url, certificates=trusted()).send(HELLO, Deadline.after(PATIENT))


def test_requests_are_packed(make):
    """Bytes that pass, counted on the way."""
    counted = []

    def relay(sock, port):
        with socket.create_connection(("127.0.0.1", port)) as server:
            back = threading.Thread(target=pump, args=(server, sock, []), daemon=True)
            back.start()
            pump(sock, server, counted)

    def pump(source, sink, counts):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                counts.append(len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    zeros = Call(rpc.PREDICT, body=[bytes(1 << 20)])
    with serving(lambda request, context: str(len(request)).encode()) as url:
        port = int(url.rpartition(":")[2])
        with sockets(lambda sock: relay(sock, port)) as way:
            for compression, most in ((None, 1 << 22), ("gzip", 1 << 16)):
                counted.clear()
                found = make(f"grpc://127.0.0.1:{way}", compression=compression).send(
                    zeros, Deadline.after(PATIENT)
                )
                assert found.body == b"1048576" and sum(counted) < most
                assert compression or sum(counted) > 1 << 20


def test_packed_answers_are_unpacked(make):
    with serving(lambda request, context: bytes(1 << 20), compression=grpc.Compression.Gzip) as url:
        assert make(url).send(HELLO, Deadline.after(PATIENT)).body == bytes(1 << 20)


# Whatever a server does


@contextlib.contextmanager
def nobody():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    yield f"grpc://127.0.0.1:{port}"


@contextlib.contextmanager
def at(context, scheme="grpc"):
    with context as port:
        yield f"{scheme}://127.0.0.1:{port}"


def silent(sock):
    while sock.recv(1 << 16):
        pass


def says(*words, then=silent):
    def serve(sock):
        sock.recv(1 << 16)
        for word in words:
            sock.sendall(word)
            time.sleep(0.1)
        then(sock)

    return serve


def slow(request, context):
    for _ in range(40):
        time.sleep(0.1)
        if not context.is_active():
            break
    return b""


@contextlib.contextmanager
def full():
    """A port whose queue is full: nobody accepts, and new connections hang."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(listener.getsockname())
        yield f"grpc://127.0.0.1:{listener.getsockname()[1]}"


DIES = """
import sys, time, grpc
from concurrent import futures
class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: (print("called", flush=True), time.sleep(60)))
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((Handler(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""


@contextlib.contextmanager
def dies():
    """A process that is killed once it has the call."""
    with subprocess.Popen(
        [sys.executable, "-c", DIES], stdout=subprocess.PIPE, text=True
    ) as process:
        port = int(process.stdout.readline())

        def kill():
            process.stdout.readline()
            process.kill()

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            process.kill()
            thread.join()


SECONDS = 0.6
FAULTS = {
    "refused": (nobody, ConnectError, "is a gRPC server running there"),
    "no such host": (
        lambda: contextlib.nullcontext("grpc://no-such-host.invalid:8500"),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
    "says nothing": (
        lambda: at(sockets(silent)),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
    "says nothing, by TLS": (
        lambda: at(sockets(silent), "grpcs"),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
    "accepts nobody": (full, ConnectError, "cannot connect to the gRPC server"),
    "closes at once": (
        lambda: at(sockets(lambda sock: sock.close())),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
    "resets at once": (
        lambda: at(sockets(reset)),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
    "speaks HTTP/1.1": (
        lambda: at(sockets(says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
    "garbage": (
        lambda: at(sockets(says(b"\x16garbage" * 100))),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
    "begins well, then garbage": (
        lambda: at(sockets(says(SETTINGS, b"\xff" * 500))),
        TransportError,
        "broke off",
    ),
    "begins well, then closes": (
        lambda: at(sockets(says(SETTINGS, then=lambda sock: sock.close()))),
        TransportError,
        "broke off",
    ),
    "begins well, then resets": (
        lambda: at(sockets(says(SETTINGS, then=reset))),
        TransportError,
        "broke off",
    ),
    "begins well, then nothing": (
        lambda: at(sockets(says(SETTINGS))),
        DeadlineError,
        "no answer within 0.6 s",
    ),
    "drips": (
        lambda: at(sockets(says(SETTINGS, *[SETTINGS[i % 9 : i % 9 + 1] for i in range(100)]))),
        DeadlineError,
        "no answer within",
    ),
    "sleeps": (lambda: serving(slow), DeadlineError, "no answer within 0.6 s"),
    "too much": (
        lambda: serving(lambda request, context: bytes((1 << 20) + 1)),
        LimitError,
        "more than 1048576 bytes",
    ),
    "far too much, packed": (
        lambda: serving(lambda request, context: bytes(1 << 24), compression=grpc.Compression.Gzip),
        LimitError,
        "more than 1048576 bytes",
    ),
    "killed": (dies, TransportError, "broke off"),
    "raises": (
        lambda: serving(lambda request, context: 1 / 0),
        500,
        "Exception calling application",
    ),
    "TLS for another host": (
        lambda: serving(echo, credentials("other.example")),
        TransportError,
        "TLS handshake failed",
    ),
    "TLS by a stranger": (
        lambda: serving(echo, credentials(whose="stranger")),
        TransportError,
        "TLS handshake failed",
    ),
    "no TLS": (lambda: serving(echo), TransportError, "TLS handshake failed"),
    "TLS where none is expected": (
        lambda: serving(echo, credentials()),
        ConnectError,
        "cannot connect to the gRPC server",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_over_in_time(make, name):
    """The documented error, by the deadline and one second at most, and never another one."""
    build, expected, words = FAULTS[name]
    patient = (
        5.0
        if name in ("killed", "too much", "far too much, packed", "raises") or "TLS" in name
        else SECONDS
    )
    with build() as url:
        options = {"limits": Limits(answer=1 << 20), "connect": 0.3}
        if name == "no TLS":
            url = url.replace("grpc:", "grpcs:")
        if name == "TLS where none is expected":
            url = url.replace("grpcs:", "grpc:")
        if url.startswith("grpcs"):
            options["certificates"] = trusted()
        transport = make(url, **options)
        start = time.monotonic()
        if isinstance(expected, int):
            found = transport.send(HELLO, Deadline.after(patient))
            assert found.status == expected and words in str(found.body, "utf-8")
        else:
            with pytest.raises(expected, match=words) as caught:
                transport.send(HELLO, Deadline.after(patient))
            assert caught.value.path == url + rpc.PREDICT
            assert type(caught.value) is expected
        assert time.monotonic() - start < patient + 1


def test_no_time_left_is_no_call(make):
    with pytest.raises(DeadlineError, match="within 0"):
        make("grpc://127.0.0.1:1").send(HELLO, Deadline.after(0))


def test_connecting_has_a_time_of_its_own(make):
    with at(sockets(silent)) as url:
        start = time.monotonic()
        with pytest.raises(ConnectError):
            make(url, connect=0.5).send(HELLO, Deadline.after(PATIENT))
        assert 0.3 < time.monotonic() - start < 3
        with pytest.raises(DeadlineError):
            make(url, connect=5).send(HELLO, Deadline.after(0.4))


def test_a_server_that_comes_back_is_found_at_once(make):
    """grpcio itself would wait a while before it tries again, and fail all calls meanwhile."""
    with serving(echo) as url:
        transport = make(url)
        assert transport.send(HELLO, Deadline.after(PATIENT)).status == 200
    for _ in range(5):
        with pytest.raises(TransportError):
            transport.send(HELLO, Deadline.after(PATIENT))
    with serving(echo, port=int(url.rpartition(":")[2])):
        assert transport.send(HELLO, Deadline.after(PATIENT)).status == 200


def test_after_close_a_call_connects_anew(make):
    with serving(echo) as url:
        transport = make(url)
        for _ in range(2):
            assert transport.send(HELLO, Deadline.after(PATIENT)).status == 200
            if isinstance(transport, RpcTransport):
                transport.close()
            else:
                transport.loop.run_until_complete(transport.transport.close())


def test_no_proxy_of_the_environment(make, monkeypatch):
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(echo) as url:
        assert make(url).send(HELLO, Deadline.after(PATIENT)).status == 200


def test_many_threads_share_a_transport():
    with (
        serving(echo) as url,
        RpcTransport(url) as transport,
        futures.ThreadPoolExecutor(8) as pool,
    ):

        def ask(number):
            body = str(number).encode()
            return (
                transport.send(Call(rpc.PREDICT, body=[body]), Deadline.after(PATIENT)).body == body
            )

        assert all(pool.map(ask, range(200)))


def test_close_lets_calls_finish():
    """Also one that another thread makes meanwhile."""
    began = threading.Event()

    def answer(request, context):
        began.set()
        time.sleep(0.3)
        return request

    with serving(answer) as url, futures.ThreadPoolExecutor(1) as pool:
        transport = RpcTransport(url)
        found = pool.submit(transport.send, HELLO, Deadline.after(PATIENT))
        assert began.wait(PATIENT)
        transport.close()
        assert found.result().body == b"hello"


def test_many_calls_at_once_by_asyncio():
    async def ask(url):
        async with AsyncRpcTransport(url) as transport:
            calls = [
                transport.send(
                    Call(rpc.PREDICT, body=[str(number).encode()]), Deadline.after(PATIENT)
                )
                for number in range(100)
            ]
            return [bytes(one.body) for one in await asyncio.gather(*calls)]

    with serving(echo) as url:
        assert asyncio.run(ask(url)) == [str(number).encode() for number in range(100)]


def test_a_transport_serves_one_loop_after_another():
    with serving(echo) as url:
        transport = AsyncRpcTransport(url)

        async def ask():
            return (await transport.send(HELLO, Deadline.after(PATIENT))).status

        assert [asyncio.run(ask()) for _ in range(3)] == [200] * 3


def test_a_task_can_be_cancelled():
    ended = threading.Event()

    def answer(request, context):
        context.add_callback(ended.set)
        return slow(request, context)

    async def ask(url):
        async with AsyncRpcTransport(url) as transport:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(transport.send(HELLO, Deadline.after(PATIENT)), 0.3)
            task = asyncio.ensure_future(transport.send(HELLO, Deadline.after(PATIENT)))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with serving(answer) as url:
        asyncio.run(ask(url))
        assert ended.wait(5)


# grpcio's words, of the oldest version that is allowed and of today's


TEXTS = [
    (
        14,
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to"
            " connect to remote host: Connection refused"
        ),
        ConnectError,
    ),
    (
        14,
        (
            "errors resolving nothing.invalid:80: [field:hostname lookup error:address lookup"
            " failed: Domain name not found]"
        ),
        ConnectError,
    ),
    (
        14,
        (
            "DNS resolution failed for nothing.invalid:80: C-ares status is not ARES_SUCCESS"
            " qtype=A name=nothing.invalid is_balancer=0"
        ),
        ConnectError,
    ),
    (
        14,
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: connection"
            " attempt timed out"
        ),
        ConnectError,
    ),
    (
        14,
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Ssl"
            " handshake failed: SSL_ERROR_SSL: error:100000f7"
        ),
        TransportError,
    ),
    (
        14,
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Tls"
            " handshake failed (TSI_PROTOCOL_FAILURE)"
        ),
        TransportError,
    ),
    (14, "Socket closed", TransportError),
    (14, "recvmsg:Connection reset by peer", TransportError),
    (
        14,
        (
            "Stream removed (Socket closed (GOAWAY received; Error code: 0; Debug Text: Server"
            " shutdown))"
        ),
        TransportError,
    ),
    (14, "Failed parsing HTTP/2", TransportError),
    (13, "Received RST_STREAM with error code 2", TransportError),
    (12, "Compression algorithm 'gzip' is disabled.", TransportError),
    (8, "Received message larger than max (4194304 vs. 1000)", LimitError),
    (8, "CLIENT: Received message larger than max (4194304 vs. 1000)", LimitError),
    (8, "Stream removed (CLIENT: Received message larger than max (4194304 vs. 1000))", LimitError),
    (8, "Decompressed message larger than max", LimitError),
    (8, "SERVER: Received message larger than max (5000 vs. 1000)", 429),
    (8, "Received message larger than max (5000 vs. 4194304)", 429),
    (14, "The model is being loaded", 503),
    (4, "the server's own time was up", 504),
    (99, "from the future", 500),
]


@pytest.mark.parametrize(("code", "said", "expected"), TEXTS)
def test_grpcios_words(code, said, expected):
    way = RpcTarget.to("grpcs://127.0.0.1:1", 5, None, None, None, None, Limits(answer=1000))
    if isinstance(expected, int):
        assert refused(way, code, said, (), Deadline.after(60)).status == expected
        return
    with pytest.raises(expected) as caught:
        refused(way, code, said, (), Deadline.after(60))
    assert type(caught.value) is expected


def test_older_versions_unpack_nothing():
    """They would unpack all of an answer before they look at its size."""

    def bits(version, compression=None):
        way = RpcTarget.to("grpc://127.0.0.1:1", 5, compression, None, None, None, Limits())
        return dict(way._options(SimpleNamespace(__version__=version)))[
            "grpc.compression_enabled_algorithms_bitset"
        ]

    assert [bits("1.60.2"), bits("1.81.2"), bits("1.82.0"), bits("1.100.0.dev1"), bits("2.0")] == [
        1,
        1,
        5,
        5,
        5,
    ]
    with pytest.raises(MissingDependencyError, match=r"grpcio>=1\.82"):
        bits("1.81.2", "gzip")


# What is refused before anything is sent


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8500", "grpc://HOST:PORT"),
        ("http://127.0.0.1:8500", "grpc://HOST:PORT"),
        ("grpc://:8500", "grpc://HOST:PORT"),
        ("grpc://127.0.0.1", "no port"),
        ("grpc://127.0.0.1:99999", "invalid gRPC address"),
        ("grpc://127.0.0.1:8500/v1", "grpc://HOST:PORT"),
        ("grpc://user:secret@127.0.0.1:8500", "grpc://HOST:PORT"),
    ],
)
def test_addresses_that_are_none(url, words):
    for kind in (RpcTransport, AsyncRpcTransport):
        with pytest.raises(UsageError, match=words):
            kind(url)


def test_names_of_hosts_are_nothing_else():
    def target(url):
        return RpcTarget.to(url, 5, None, None, None, None, Limits()).target

    assert (
        target("grpc://unix:1") == "dns:///unix:1"
        and target("grpc://[::1]:8500") == "dns:///[::1]:8500"
    )


def test_options_that_do_not_fit():
    with pytest.raises(UsageError, match="did you mean 'gzip'"):
        RpcTransport("grpc://127.0.0.1:1", compression="gzp")
    with pytest.raises(UsageError, match="grpcs"):
        RpcTransport("grpc://127.0.0.1:1", certificates=b"")
    for headers in ({"no spaces": "x"}, {"grpc-timeout": "1"}, {"x": "line\nbreak"}, {"x": "é"}):
        with (
            RpcTransport("grpc://127.0.0.1:1", headers=headers) as transport,
            pytest.raises(UsageError, match="header"),
        ):
            transport.send(HELLO, Deadline.after(1))


def test_without_grpcio(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with (
        RpcTransport("grpc://127.0.0.1:1") as transport,
        pytest.raises(MissingDependencyError, match=r"tensorwire\[serving\]"),
    ):
        transport.send(HELLO, Deadline.after(1))


# In a process of its own


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_call_loads_neither_protobuf_nor_tensorflow():
    code = """
import sys, numpy as np
from tensorwire.serving.transports.rpc import RpcTransport
from tensorwire.serving.transports.rpc_async import AsyncRpcTransport
assert "grpc" not in sys.modules, "before it is needed"
from tensorwire.serving.rpc import messages as rpc
from tensorwire.serving.transports import Call, Deadline
with RpcTransport(sys.argv[1] if sys.argv[1:] else {url!r}) as transport:
    body = rpc.build_predict(rpc.ModelSpec("m"), {{"x": np.zeros((2, 3), np.float32)}})
    answer = transport.send(Call(rpc.PREDICT, body=body), Deadline.after(20))
    print(rpc.parse_predict(answer.body).inputs["x"].shape)
print(*sys.modules)
"""
    with serving(echo) as url:
        first, modules = run(code.format(url=url)).splitlines()
    assert first == "(2, 3)" and "grpc" in modules.split()
    assert not [
        name
        for name in modules.split()
        if name.startswith(("google.protobuf", "tensorflow", "torch", "jax"))
    ]


@pytest.mark.large
@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
def test_an_answer_that_is_too_large_takes_no_memory(compression):
    code = """
import resource
from tensorwire import LimitError, Limits
from tensorwire.serving.transports import Call, Deadline
from tensorwire.serving.transports.rpc import RpcTransport
with RpcTransport({url!r}, limits=Limits(answer=1 << 20)) as transport:
    transport.send(Call("/tensorflow.serving.PredictionService/Predict", body=[b"10"]), Deadline.after(60))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        transport.send(Call("/tensorflow.serving.PredictionService/Predict", body=[b"%d" % (300 << 20)]), Deadline.after(60))
    except LimitError:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    with serving(lambda request, context: bytes(int(request)), compression=compression) as url:
        assert int(run(code.format(url=url))) < 64 << 10


# Servers of the official stubs


@pytest.fixture(scope="module")
def stubs():
    with subprocess.Popen(
        [sys.executable, str(TESTS / "support" / "stub_server.py"), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield f"grpc://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def ask(transport, method, chunks):
    return transport.send(Call(method, body=chunks), Deadline.after(PATIENT))


ADDER = ModelSpec("adder")
ANSWERED = ModelSpec("adder", 3, None, "serving_default")
TENSORS = {
    "x": np.float32([[1, np.nan, -0.0]]),
    "d": np.float64([1.5]),
    "i": np.int32([-1, 2**31 - 1]),
    "b": np.array([True, False]),
    "n": np.int8([-128, 127]),
    "l": np.int64([[-(2**63)]]),
    "e": np.zeros((0, 4), np.float32),
    "o": np.float32(3),
    "s": tw.Strings.of([b"a", b"\xff", b""]),
}


@pytest.mark.tensorflow
def test_their_server_predicts(make, stubs):
    transport = make(stubs)
    for model in (
        ADDER,
        ModelSpec("adder", 3),
        ModelSpec("adder", label="stable"),
        ModelSpec("adder", signature="serving_default"),
    ):
        answer = ask(
            transport, rpc.PREDICT, rpc.build_predict(model, {"x": np.float32([[1, 2], [3, 4.5]])})
        )
        assert answer.status == 200
        spec, outputs = rpc.parse_predict_answer(answer.body)
        assert spec == ANSWERED and tw.equal(outputs["y"], np.float32([3, 7.5]))


@pytest.mark.tensorflow
@pytest.mark.parametrize("model", ["echo", "typed"])
def test_their_server_gives_everything_back(make, stubs, model):
    """In tensor_content, as we sent it, and in typed fields."""
    answer = ask(make(stubs), rpc.PREDICT, rpc.build_predict(ModelSpec(model), TENSORS))
    found = rpc.parse_predict_answer(answer.body)[1]
    assert set(found) == set(TENSORS) and all(
        tw.equal(found[name], TENSORS[name]) for name in TENSORS
    )
    wanted = ask(make(stubs), rpc.PREDICT, rpc.build_predict(ModelSpec(model), TENSORS, ["i", "s"]))
    assert set(rpc.parse_predict_answer(wanted.body)[1]) == {"i", "s"}


@pytest.mark.tensorflow
def test_their_server_classifies_and_regresses(make, stubs, tf):
    def example(*values):
        features = (
            {"x": tf.train.Feature(float_list=tf.train.FloatList(value=values))} if values else {}
        )
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    transport = make(stubs)
    for examples, context, sums in (
        ([example(0.25, 0.5), example(0, 0.5)], None, [0.75, 0.5]),
        ([example()], example(0.25, 0.25), [0.5]),
    ):
        chunks = rpc.build_examples(ADDER, tw.Strings.of(examples), context)
        found = rpc.parse_classify_answer(ask(transport, rpc.CLASSIFY, chunks).body)[1]
        assert found["classes"].tolist() == [[b"small", b"large"]] * len(sums)
        assert found["scores"].tolist() == [[1 - value, value] for value in sums]
        assert (
            rpc.parse_regress_answer(ask(transport, rpc.REGRESS, chunks).body)[1][
                "outputs"
            ].tolist()
            == sums
        )
    refusal = ask(transport, rpc.CLASSIFY, rpc.build_examples(ADDER, tw.Strings.of([example()])))
    assert refusal.status == 400 and b"Feature: x" in bytes(refusal.body)


@pytest.mark.tensorflow
def test_their_server_says_what_it_has(make, stubs):
    transport = make(stubs)
    model, signatures = rpc.parse_metadata_answer(
        ask(transport, rpc.METADATA, rpc.build_metadata(ADDER)).body
    )
    assert model == ANSWERED and {name: one.method for name, one in signatures.items()} == {
        "classify": "classify",
        "regress": "regress",
        "serving_default": "predict",
    }
    assert str(signatures["serving_default"].inputs["x"]) == "x: float32 [?, 2]"
    versions = rpc.parse_status_answer(ask(transport, rpc.STATUS, rpc.build_status(ADDER)).body)
    assert versions == [(3, "AVAILABLE", 0, ""), (2, "END", 5, "no longer there")]


@pytest.mark.tensorflow
def test_their_server_refuses(make, stubs):
    transport = make(stubs)
    cases = [
        (rpc.PREDICT, rpc.build_predict(ModelSpec("none"), {}), 404, "Servable not found"),
        (rpc.PREDICT, rpc.build_predict(ModelSpec("adder", 9), {}), 404, "Servable not found"),
        (
            rpc.PREDICT,
            rpc.build_predict(ModelSpec("adder", signature="none"), {}),
            400,
            "not found in signature def",
        ),
        (rpc.PREDICT, rpc.build_predict(ADDER, {"z": np.zeros(2)}), 400, "adder takes x"),
        (rpc.STATUS, rpc.build_status(ModelSpec("none")), 404, "Servable not found"),
        (rpc.PREDICT, [b"\xff no protobuf"], 500, ""),
    ]
    for method, chunks, status, words in cases:
        answer = ask(transport, method, chunks)
        assert answer.status == status and words in str(answer.body, "utf-8"), bytes(answer.body)
