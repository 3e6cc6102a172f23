"""The local server under load: too many requests, half-sent ones, names of others, and a stop in
the middle of it.
"""

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

import tensorwire as tw
from support import serving_server as serving
from support.serving_server import Process, ask, get, post, raw
from tensorwire.serving import Client, Server
from tensorwire.serving.server import Bounds, http

pytestmark = pytest.mark.tensorflow
SLOW = b'{"inputs": 40}'
SCALE = b'{"instances": [1.5]}'


@pytest.fixture(scope="module")
def folders(tf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    serving.scale(tf, folder / "scale", 1)
    tw.serving.export(lambda n: serving.waste(tf, n), folder / "slow", {"n": ("int32", [])})
    return [folder / "scale", folder / "slow"]


@pytest.fixture
def server(folders):
    with Server(folders, rest=0, grpc=0, bounds=Bounds(connections=4)) as server:
        yield server


def request(model, body, more=b""):
    head = (
        b"POST /v1/models/%b:predict HTTP/1.1\r\nHost: localhost\r\nConnection:"
        b" close\r\n%bContent-Length: %d\r\n\r\n"
    )
    return head % (model, more, len(body)) + body


def connected(stack, url, count=1):
    where = urlsplit(url)
    return [
        stack.enter_context(socket.create_connection((where.hostname, where.port), 20))
        for _ in range(count)
    ]


class TestTooManyRequests:
    def test_are_answered_503_and_never_reset(self, server):
        barrier = threading.Barrier(60)

        def one(_):
            barrier.wait(30)
            return raw(server.rest_url, request(b"slow", SLOW), 60)

        with ThreadPoolExecutor(60) as pool:
            found = list(pool.map(one, range(60)))
        statuses = [each.split(b" ", 2)[1] for each in found if each]
        assert len(statuses) == 60 and set(statuses) == {b"200", b"503"}
        assert all(
            b"Retry-After: 1\r\n" in each for each in found if each.startswith(b"HTTP/1.1 503")
        )
        assert post(server.rest_url, "/v1/models/scale:predict", SCALE)[0] == 200

    def test_a_large_body_is_told_so_too(self, server):
        """The client is still sending when it is refused."""
        large = b'{"inputs": 40, "more": "%b"}' % (b" " * 3_000_000)
        with contextlib.ExitStack() as stack:
            for sock in connected(stack, server.rest_url, 4):
                sock.sendall(request(b"slow", b'{"inputs": 400}'))
            time.sleep(0.3)
            assert raw(server.rest_url, request(b"slow", large), 60).startswith(
                (b"HTTP/1.1 503 ", b"HTTP/1.1 200 ")
            )

    def test_idle_connections_take_no_place(self, server):
        with contextlib.ExitStack() as stack:
            connected(stack, server.rest_url, 100)
            assert post(server.rest_url, "/v1/models/scale:predict", SCALE) == (
                200,
                {"predictions": [1.5]},
            )

    def test_our_client_tries_again(self, server):
        with (
            Client(server.rest_url, model="slow", attempts=20, deadline=60) as client,
            ThreadPoolExecutor(12) as pool,
        ):
            found = list(pool.map(lambda _: int(client.predict({"n": 20})["done"]), range(12)))
        assert found == [20] * 12


HALVES = {
    "a head": b"POST /v1/models/scale:predict HTTP/1.1\r\nHost: local",
    "a small body": request(b"scale", SCALE)[:-3],
    "a large body": b"POST /v1/models/scale:predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{",
    "a chunk": (
        b"POST /v1/models/scale:predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"
    ),
    "a word": (
        b"POST /v1/models/scale:predict HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length:"
        b" 9\r\n\r\n"
    ),
}


@pytest.mark.parametrize("name", HALVES)
def test_400_half_sent_requests_lock_nobody_out(server, name):
    large = b'{"instances": [1.5], "more": "%b"}' % (b" " * 200_000)
    with contextlib.ExitStack() as stack:
        for sock in connected(stack, server.rest_url, 400):
            sock.sendall(HALVES[name])
        started = time.monotonic()
        assert post(server.rest_url, "/v1/models/scale:predict", SCALE) == (
            200,
            {"predictions": [1.5]},
        )
        assert time.monotonic() - started < 5
        time.sleep(1.1)  # large bodies make place for others once they have stalled for a second
        assert post(server.rest_url, "/v1/models/scale:predict", large) == (
            200,
            {"predictions": [1.5]},
        )


def test_a_half_sent_head_has_its_time(folders):
    with Server(folders[:1], rest=0, bounds=Bounds(head=0.3)) as server:
        started = time.monotonic()
        assert raw(server.rest_url, HALVES["a head"]) == b""
        assert 0.2 < time.monotonic() - started < 5


class TestHosts:
    def status(self, url, host, target="/v1/models/scale"):
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), 20) as sock:
            named = (
                b""
                if host is None
                else b"Host: %b\r\n" % host.replace("PORT", str(where.port)).encode()
            )
            sock.sendall(
                b"GET %b HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (target.encode(), named)
            )
            return int(sock.recv(65536).split(b" ", 2)[1])

    @pytest.mark.parametrize(
        "host",
        [
            "localhost:PORT",
            "LOCALHOST",
            "localhost.:PORT",
            "127.0.0.1:PORT",
            "127.0.0.1",
            "127.1.2.3",
            "[::1]:PORT",
            "localhost:1",
            None,
        ],
    )
    def test_loopback_names_are_answered(self, server, host):
        assert self.status(server.rest_url, host) == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "evil.example:PORT",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::2]",
            "a@localhost",
            "",
        ],
    )
    def test_others_are_not(self, server, host):
        assert self.status(server.rest_url, host) == 403
        for target in ("/v2/models/scale", "/v2/health/live", "/"):
            assert self.status(server.rest_url, host, target) == 403

    def test_the_host_of_an_absolute_target_counts(self, server):
        assert (
            self.status(server.rest_url, "localhost", "http://evil.example/v1/models/scale") == 403
        )
        assert (
            self.status(server.rest_url, "evil.example", "http://localhost/v1/models/scale") == 200
        )

    def test_two_hosts(self, server):
        both = b"GET /v1/models/scale HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
        assert raw(server.rest_url, both).startswith(b"HTTP/1.1 403 ")

    def test_names_that_were_given(self, folders):
        with Server(folders[:1], rest=0, hosts=["models.lan"]) as server:
            assert self.status(server.rest_url, "models.lan:PORT") == 200
            assert self.status(server.rest_url, "other.lan:PORT") == 403

    def test_a_server_for_other_machines_answers_by_its_address(self, folders, monkeypatch):
        """Only the loopback interface is really opened: the tests are not for other machines."""
        listen = http.listen
        monkeypatch.setattr(http, "listen", lambda host, port: listen("127.0.0.1", port))
        with Server(folders[:1], rest=0, host="0.0.0.0") as server:
            url = server.rest_url.replace("0.0.0.0", "127.0.0.1")
            assert (
                self.status(url, "127.0.0.1:PORT") == 200
                and self.status(url, "evil.example") == 403
            )

    def test_by_the_command(self, folders):
        with Process(folders[0], "--allow-host", "models.lan") as process:
            assert (
                self.status(process.url, "models.lan") == 200
                and self.status(process.url, "evil.example") == 403
            )


class TestTheEnd:
    def test_under_load(self, folders):
        """Every request gets an answer until the port is closed: 200 if it was accepted, else 503.

        The kernel resets a connection that arrives between the last `accept` and `close`. A client
        can see that once, and its next connection is refused.
        """
        ended = threading.Event()

        def work(url):
            outcomes = []
            while not ended.is_set():
                try:
                    answer = ask(url, "POST", "/v1/models/slow:predict", b'{"inputs": 20}')
                    outcomes.append(answer[0])
                except ConnectionRefusedError:
                    return [*outcomes, "refused"]
                except OSError as error:
                    outcomes.append(repr(error))
            return outcomes

        with (
            Process(*folders, "--connections", "4", "--grace", "30") as process,
            ThreadPoolExecutor(24) as pool,
        ):
            clients = [pool.submit(work, process.url) for _ in range(24)]
            time.sleep(2)
            try:
                status, _, err = process.stop()
            finally:
                ended.set()
        assert status == 0 and err == ""
        answered = set()
        for client in clients:
            *outcomes, last = client.result()
            assert last == "refused"
            if outcomes and "ConnectionResetError" in str(outcomes[-1]):
                outcomes.pop()
            answered.update(outcomes)
        assert answered == {200, 503}

    @pytest.mark.timing
    @pytest.mark.parametrize("idle", [0, 50])
    def test_an_idle_server_stops_at_once(self, folders, idle):
        with contextlib.ExitStack() as stack:
            process = stack.enter_context(Process(folders[0]))
            kept = connected(stack, process.url, idle)
            for sock in kept:
                sock.sendall(b"GET /v1/models/scale HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
            started = time.monotonic()
            status = process.stop()[0]
            took = time.monotonic() - started
        assert status == 0 and took < 1

    def test_in_a_program(self, folders):
        server = Server(folders[:1], rest=0, grpc=0, grace=30).start()
        with contextlib.ExitStack() as stack:
            connected(stack, server.rest_url, 20)
            assert get(server.rest_url, "/v1/models/scale")[0] == 200
            (half,) = connected(stack, server.rest_url)
            half.sendall(HALVES["a large body"])
            time.sleep(0.1)
            started = time.monotonic()
            assert server.stop()
            assert time.monotonic() - started < 1.5
            assert half.recv(65536).startswith(b"HTTP/1.1 503 ")

    def test_what_comes_while_it_stops(self, folders):
        server = Server(folders, rest=0, grace=60).start()
        with ThreadPoolExecutor(2) as pool, contextlib.ExitStack() as stack:
            (kept,) = connected(stack, server.rest_url)
            slow = pool.submit(post, server.rest_url, "/v1/models/slow:predict", {"inputs": 3000})
            time.sleep(0.3)
            assert not slow.done()
            stopping = pool.submit(server.stop)
            time.sleep(0.05)
            kept.sendall(b"GET /v1/models/scale HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(65536).startswith(b"HTTP/1.1 503 ")
            status, headers, body = ask(server.rest_url, "GET", "/v1/models/scale")
            assert status == 503 and headers["retry-after"] == "1" and json.loads(body)["error"]
            assert slow.result()[0] == 200 and stopping.result()
