"""Whatever a server does: done by the deadline, the documented error, bounded memory, no connection
left open. For threads and asyncio.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.bad_server import BODY, CHUNKED, GOOD, MODES, BadServer, Mode, sized, wait_for_end
from support.tiers import TESTS
from support.transports import TRANSPORTS
from tensorwire import DeadlineError, Limits, TransportError, UsageError
from tensorwire.serving import AsyncClient, Client
from tensorwire.serving.transports import Call, ConnectError, Deadline, addresses, connections
from tensorwire.serving.transports.http_async import AsyncHttpTransport
from tensorwire.serving.transports.http_client import HttpTransport

LIMITS = Limits(answer=16 << 20)
SECONDS = 0.4
PATIENT = 5.0
"""For what does not wait for the deadline: a busy machine is not the fault that is tested."""
GET = Call("GET", "/v1/models/m")


@pytest.fixture(params=TRANSPORTS)
def make(request):
    made = []

    def transport(url, **options):
        made.append(TRANSPORTS[request.param](url, **options))
        return made[-1]

    yield transport
    for transport in made:
        transport.close()
        if request.param == "asyncio":
            transport.loop.close()


def serving(serve, **options):
    """A server that does this with each connection."""
    return BadServer(Mode(serve, None, **options))


def good(server, sock):
    while True:
        server.read(sock)
        sock.sendall(GOOD)


def echo(server, sock):
    """Says what the request began with."""
    while True:
        head = server.read(sock)
        sock.sendall(sized(head, len(head)))


def post(mode):
    return Call("POST", "/v1/models/m:predict", [bytes(mode.sent)])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODES)
def test_fault(make, name):
    mode = MODES[name]
    late = mode.error is not None and issubclass(mode.error, TimeoutError)
    with BadServer(mode) as server:
        transport = make(server.url, context=server.context, limits=LIMITS)
        for _ in range(mode.calls - 1):
            transport.send(post(mode), Deadline.after(PATIENT))
            time.sleep(0.05)  # what the server does next has reached us
        seconds = SECONDS if late else PATIENT
        start = time.monotonic()
        if mode.error is None:
            answer = transport.send(post(mode), Deadline.after(seconds))
            assert answer.status == mode.status
        else:
            with pytest.raises(mode.error) as caught:
                transport.send(post(mode), Deadline.after(seconds))
            assert type(caught.value) is mode.error
            assert server.url in str(caught.value) and mode.words in str(caught.value)
        took = time.monotonic() - start
        assert took < seconds + 1
        assert took >= seconds if late else took < 2
        # there is nothing to keep after an error, so all has to be closed already
        if mode.error is None:
            transport.close()
        server.join()
        assert server.leaked == 0
        assert server.connections <= mode.calls and server.requests <= mode.calls


def test_there_are_enough_modes():
    assert len(MODES) >= 30


CHILD = """
import gc, json, re, resource, sys
sys.path.insert(0, sys.argv[1])
from support.transports import TRANSPORTS
from tensorwire import Limits
from tensorwire.serving.transports import Call, Deadline
servers, grown = json.loads(sys.argv[2]), {}
def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10  # ru_maxrss has the parent's in it
gc.disable()  # what an error leaves behind has to be no cycle
start = peak()
for key, url in servers:
    name, kind = key.split()
    transport = TRANSPORTS[kind](url, limits=Limits(answer=64 << 20))
    try:
        transport.send(Call("POST", "/", [b"x"]), Deadline.after(20 if "promises" not in name else 0.3))
    except Exception as error:
        grown[key] = [type(error).__name__, peak() - start]
    transport.close()
print(json.dumps(grown))
"""


def test_memory_is_bounded():
    """Whatever the server sends or promises: 64 MB and what the limits allow. The client has its
    own process, and only that is measured.
    """
    nothing = [
        "promises_much",
        "promises_a_large_chunk",
        "length_huge",
        "chunk_huge",
        "endless_header",
    ]
    names = [
        *nothing,
        "gzip_bomb",
        "gzip_bomb_in_chunks",
        "endless_gzip",
        "endless_chunks",
        "endless_body",
    ]
    servers = [(f"{name} {kind}", BadServer(MODES[name])) for name in names for kind in TRANSPORTS]
    for _, server in servers:
        server.__enter__()
    try:
        table = json.dumps([[key, server.url] for key, server in servers])
        command = [sys.executable, "-c", CHILD, str(TESTS), table]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50).stdout
    finally:
        for _, server in servers:
            server.__exit__()
    grown = json.loads(out)
    assert len(grown) == len(servers)
    for key, (error, size) in grown.items():
        assert error == MODES[key.split()[0]].error.__name__, key
        assert size <= (16 << 20 if key.split()[0] in nothing else 128 << 20), key
    assert size >= 48 << 20  # the last ones do fill what they may, so this sees what is used


# ---- connections


def test_a_connection_is_used_again(make):
    with serving(good) as server:
        transport = make(server.url)
        for _ in range(20):
            assert bytes(transport.send(GET, Deadline.after(PATIENT)).body) == BODY
        transport.close()
        assert (server.connections, server.requests) == (1, 20)
        with pytest.raises(UsageError, match="closed"):
            transport.send(GET, Deadline.after(PATIENT))


def test_tls_is_used_again_and_verified(make):
    with serving(good, tls="ours") as server:
        transport = make(server.url, context=server.context)
        for _ in range(5):
            large = Call("POST", "/", [bytes(3 << 20), b"x", bytes(1 << 20)])
            assert bytes(transport.send(large, Deadline.after(PATIENT)).body) == BODY
        transport.close()
        assert (server.connections, server.requests) == (1, 5)
        # without a context the system's authorities count
        with pytest.raises(TransportError, match=r"certificate .* is not valid"):
            make(server.url).send(GET, Deadline.after(PATIENT))


def test_an_idle_connection_is_dropped(make, monkeypatch):
    with serving(good) as server:
        transport = make(server.url)
        transport.send(GET, Deadline.after(PATIENT))
        monkeypatch.setattr(connections, "IDLE", 0.01)
        time.sleep(0.02)
        transport.send(GET, Deadline.after(PATIENT))
        transport.close()
        assert server.connections == 2


def test_a_connection_of_another_process_is_not_touched(make, monkeypatch):
    with serving(good) as server:
        transport = make(server.url)
        transport.send(GET, Deadline.after(PATIENT))
        monkeypatch.setattr(connections.os, "getpid", lambda: -1)
        transport.send(GET, Deadline.after(PATIENT))
        transport.close()
        assert server.connections == 2


class Counted:
    """A behaviour of the server: answers after a moment, and knows how many requests there were at
    once.
    """

    def __init__(self):
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def __call__(self, server, sock):
        while True:
            server.read(sock)
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.02)
            with self.lock:
                self.now -= 1
            sock.sendall(GOOD)


@pytest.mark.parametrize("most", [1, 3])
def test_there_are_no_more_connections_than_asked_for(most):
    counted = Counted()
    with serving(counted) as server, HttpTransport(server.url, connections=most) as transport:
        with ThreadPoolExecutor(12) as pool:
            answers = list(
                pool.map(lambda _: transport.send(GET, Deadline.after(PATIENT)), range(24))
            )
        assert len(answers) == 24 and counted.most == most and server.connections == most


def test_nor_by_asyncio():
    counted = Counted()

    async def main(url):
        async with AsyncHttpTransport(url, connections=3) as transport:
            return await asyncio.gather(
                *(transport.send(GET, Deadline.after(PATIENT)) for _ in range(24))
            )

    with serving(counted) as server:
        assert (
            len(asyncio.run(main(server.url))) == 24
            and counted.most == 3
            and server.connections == 3
        )


def test_a_call_that_gives_up_waiting_keeps_nobody_else_waiting():
    """Some calls are cancelled or too late while they wait for their turn."""
    counted = Counted()

    async def main(url):
        async with AsyncHttpTransport(url, connections=1) as transport:
            late = [transport.send(GET, Deadline.after(0.03)) for _ in range(5)]
            tasks = [
                asyncio.create_task(transport.send(GET, Deadline.after(PATIENT))) for _ in range(10)
            ]
            await asyncio.sleep(0)
            for task in tasks[1::2]:
                task.cancel()
            found = await asyncio.gather(*late, *tasks, return_exceptions=True)
            again = await transport.send(GET, Deadline.after(PATIENT))
            return [*found[5::2], again]

    with serving(counted) as server:
        assert all(bytes(each.body) == BODY for each in asyncio.run(main(server.url)))


@pytest.mark.slow
def test_a_call_that_never_has_its_turn_ends_by_its_deadline():
    started = threading.Event()

    def silent(server, sock):
        server.read(sock)
        started.set()
        time.sleep(3)

    with (
        serving(silent) as server,
        HttpTransport(server.url, connections=1) as transport,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(transport.send, GET, Deadline.after(1.5))
        assert started.wait(5)
        begun = time.monotonic()
        with pytest.raises(DeadlineError):
            transport.send(GET, Deadline.after(0.2))
        assert time.monotonic() - begun < 1
        with pytest.raises(DeadlineError):
            first.result()


def test_the_clients_have_the_option():
    for kind in (Client, AsyncClient):
        kind("http://127.0.0.1:1", model="m", connections=1)
        for wrong in (0, -1, True, "4", 1.5):
            with pytest.raises(UsageError):
                kind("http://127.0.0.1:1", model="m", connections=wrong)
        with pytest.raises(UsageError):
            kind("grpc://127.0.0.1:1", model="m", connections=4)


def test_many_threads():
    with serving(echo) as server, HttpTransport(server.url) as transport:
        wrong = []

        def calls(thread):
            for i in range(50):
                answer = transport.send(
                    Call("POST", f"/{thread}/{i}", [bytes(thread * 1000)]), Deadline.after(20)
                )
                if not bytes(answer.body).startswith(b"POST /%d/%d HTTP/1.1\r\n" % (thread, i)):
                    wrong.append((thread, i))

        threads = [threading.Thread(target=calls, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong and server.requests == 400 and server.connections <= 16


def test_many_tasks():
    async def main(url):
        async with AsyncHttpTransport(url) as transport:
            calls = [
                transport.send(Call("POST", f"/{i}", [bytes(i * 1000)]), Deadline.after(20))
                for i in range(100)
            ]
            for i, answer in enumerate(await asyncio.gather(*calls)):
                assert bytes(answer.body).startswith(b"POST /%d HTTP/1.1\r\n" % i)

    with serving(echo) as server:
        asyncio.run(main(server.url))
        assert server.requests == 100


def test_a_cancelled_call_closes_its_connection():
    async def main(url):
        async with AsyncHttpTransport(url) as transport:
            call = asyncio.create_task(transport.send(GET, Deadline.after(20)))
            await asyncio.sleep(0.1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while server.closed < 1:  # the server sees it while the transport is still open
                await asyncio.sleep(0.01)

    with BadServer(MODES["silence"]) as server:
        asyncio.run(asyncio.wait_for(main(server.url), 5))
        assert server.leaked == 0


def test_others_have_their_turn():
    """A server that sends without a pause does not keep the event loop from its other tasks."""

    async def main(url):
        longest, last = 0.0, time.monotonic()

        async def watch():
            nonlocal longest, last
            while True:
                await asyncio.sleep(0)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()

        watching = asyncio.create_task(watch())
        async with AsyncHttpTransport(url) as transport:
            with pytest.raises(DeadlineError):
                await transport.send(GET, Deadline.after(SECONDS))
        watching.cancel()
        return longest

    with BadServer(MODES["endless_tiny_chunks"]) as server:
        assert asyncio.run(main(server.url)) < 0.3


# ---- getting there


@pytest.mark.timing
@pytest.mark.parametrize("name", ["slow_accept", "tls_silence"])
def test_connecting_has_its_own_time(make, name):
    with BadServer(MODES[name]) as server:
        start = time.monotonic()
        with pytest.raises(ConnectError, match="connect= allows more"):
            make(server.url, context=server.context, connect=0.2).send(GET, Deadline.after(PATIENT))
        assert 0.2 <= time.monotonic() - start < 1.2


@pytest.mark.timing
def test_a_name_server_that_does_not_answer(make, monkeypatch):
    """The system's resolver cannot be told a deadline, so it is left behind."""
    real = addresses._addresses
    monkeypatch.setattr(
        addresses,
        "_addresses",
        lambda origin, flags: real(origin, flags) if flags else time.sleep(2),
    )
    start = time.monotonic()
    with pytest.raises(DeadlineError):
        make("http://somewhere.example").send(GET, Deadline.after(0.2))
    with pytest.raises(ConnectError, match="name server"):
        make("http://somewhere.example", connect=0.2).send(GET, Deadline.after(PATIENT))
    assert time.monotonic() - start < 1.4


@pytest.mark.timing
def test_the_next_address_is_tried(make, monkeypatch):
    with (
        BadServer(MODES["refused"]) as nobody,
        BadServer(MODES["slow_accept"]) as full,
        serving(good) as server,
    ):
        found = [
            (addresses.socket.AF_INET, ("127.0.0.1", it.port)) for it in (nobody, full, server)
        ]
        monkeypatch.setattr(addresses, "_addresses", lambda origin, flags: found)
        start = time.monotonic()
        assert (
            make("http://somewhere.example", connect=0.8).send(GET, Deadline.after(PATIENT)).status
            == 200
        )
        assert time.monotonic() - start < 0.8  # the second took its half of the time, and no more


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
def test_names_that_nobody_has(make, host):
    with pytest.raises(ConnectError, match="cannot resolve host name"):
        make(f"http://{host}:1").send(GET, Deadline.after(PATIENT))


def test_no_deadline(make):
    with serving(good) as server:
        assert make(server.url).send(GET, Deadline.after(float("inf"))).status == 200


def test_a_deadline_that_has_passed(make):
    with serving(good) as server:
        with pytest.raises(DeadlineError):
            make(server.url).send(GET, Deadline.after(0))
        assert server.connections == 0


def test_localhost_by_name(make):
    with serving(good) as server:
        assert (
            make(server.url.replace("127.0.0.1", "localhost"))
            .send(GET, Deadline.after(PATIENT))
            .status
            == 200
        )


def test_no_proxy_from_the_environment(make, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving(good) as server:
        assert make(server.url).send(GET, Deadline.after(PATIENT)).status == 200


def test_an_answer_of_many_chunks(make):
    def serve(server, sock):
        server.read(sock)
        parts = [bytes([i % 256]) * (i * 997 % 200_000 + 1) for i in range(100)]
        sock.sendall(CHUNKED)
        for part in parts:
            sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        sock.sendall(b"0\r\nTrailer: x\r\n\r\n")
        wait_for_end(sock)

    with serving(serve) as server:
        body = make(server.url).send(GET, Deadline.after(PATIENT)).body
        assert bytes(body) == b"".join(
            bytes([i % 256]) * (i * 997 % 200_000 + 1) for i in range(100)
        )


# ---- proxies


def test_proxy_for_http(make):
    with serving(echo) as server:
        transport = make(
            "http://models.example:8501/team",
            proxy=f"http://user:pass%40word@127.0.0.1:{server.port}",
        )
        head = bytes(transport.send(GET, Deadline.after(PATIENT)).body).split(b"\r\n")
        assert head[0] == b"GET http://models.example:8501/team/v1/models/m HTTP/1.1"
        assert (
            b"Host: models.example:8501" in head
            and b"Proxy-Authorization: Basic dXNlcjpwYXNzQHdvcmQ=" in head
        )


def test_proxy_for_https(make):
    """The proxy makes a tunnel, and TLS is spoken with the server at its end."""
    heads = []

    def tunnel(server, sock):
        heads.append(server.read(sock))
        sock.sendall(b"HTTP/1.0 200 Connection established\r\n\r\n")
        behind = addresses.socket.create_connection(("127.0.0.1", target.port), 5)
        with behind:
            one_way = threading.Thread(target=pump, args=(behind, sock), daemon=True)
            one_way.start()
            pump(sock, behind)
            one_way.join(5)

    def pump(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(addresses.socket.SHUT_WR)
        except OSError:
            pass

    with serving(good, tls="ours") as target, serving(tunnel) as proxy:
        transport = make(
            target.url, context=target.context, proxy=f"http://u:p@127.0.0.1:{proxy.port}"
        )
        for _ in range(3):
            assert bytes(transport.send(GET, Deadline.after(PATIENT)).body) == BODY
        transport.close()
        assert proxy.connections == target.connections == 1 and target.requests == 3
        assert (
            heads[0].startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % target.port)
            and b"Proxy-Authorization: Basic dTpw" in heads[0]
        )


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n", TransportError, "status 407"),
        (b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n", ConnectError, "status 502"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", TransportError, "refused to connect"),
        (b"", ConnectError, "connect= allows more"),
    ],
)
def test_proxy_that_does_not_help(make, answer, error, words):
    def serve(server, sock):
        server.read(sock)
        sock.sendall(answer)
        wait_for_end(sock)

    with serving(serve) as server:
        transport = make(
            "https://models.example", proxy=f"http://127.0.0.1:{server.port}", connect=0.3
        )
        with pytest.raises(error, match=words) as caught:
            transport.send(GET, Deadline.after(PATIENT))
        assert type(caught.value) is error
        server.join()
        assert server.leaked == 0


# ---- what cannot be sent


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host", "http://host:port or https://host:port"),
        ("host:8501", "http://host:port"),
        ("http://", "http://host:port"),
        ("http://user:secret@host", "Authorization"),
        ("http://host:port", "is not a URL"),
        ("http://host:99999", "is not a URL"),
        ("http://host:0", "port 0"),
        ("http://ho st", "spaces"),
        ("http://host\r\nX: y", "spaces"),
        ("http://hôst", "not ASCII"),
        ("http://host/?a=b", "no query"),
        ("http://host/#a", "no fragment"),
        ("http://[::1", "is not a URL"),
        ("http://user:secret@host:x y", "Authorization"),
        ("http://ho<st>", "http://host:port"),
    ],
)
def test_urls_that_are_none(url, words):
    for kind in (HttpTransport, AsyncHttpTransport):
        with pytest.raises(UsageError, match=words) as caught:
            kind(url)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"A": "b\r\nC: d"},
        {"A": "b\nC"},
        {"A": "b\0"},
        {"A b": "c"},
        {"": "c"},
        {"A": "…"},
        {"Content-Length": "1"},
        {"A": 1},
        {1: "A"},
    ],
)
def test_headers_that_cannot_be_sent(make, headers):
    with pytest.raises(UsageError):
        make("http://127.0.0.1:1", headers=headers)
    with pytest.raises(UsageError):
        make("http://127.0.0.1:1").send(Call("GET", "/", headers=headers), Deadline.after(1))


@pytest.mark.parametrize(
    "call",
    [
        Call("GET", "/a b"),
        Call("GET", "/ü"),
        Call("GET", "/\r\nX: y"),
        Call("G T", "/"),
        Call("", "/"),
    ],
)
def test_targets_that_cannot_be_sent(make, call):
    with pytest.raises(UsageError, match="percent-encoded"):
        make("http://127.0.0.1:1").send(call, Deadline.after(1))


def test_proxies_that_are_none():
    for proxy in ("https://u:secret@host:1", "socks5://host:1", "host:1"):
        with pytest.raises(UsageError, match="a proxy URL is http://host:port") as caught:
            HttpTransport("http://host", proxy=proxy)
        assert "secret" not in str(caught.value)
