"""KServe v2 as other servers speak it: our client against servers that answer with the bytes of
MLServer, KServe and Triton.
"""

import asyncio
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import tensorwire as tw
from tensorwire.serving import AsyncClient, Client, kserve

X = np.float32([[1, 2]])


class Server:
    """A server for one model, which gives back what it gets. `calls` has (method, path, whether it
    was binary).
    """

    def __init__(self, about=None, binary=False, listed=(), answer=None, strict=False, needs=()):
        self.about = about or {
            "name": "echo",
            "versions": [],
            "platform": "",
            "inputs": [],
            "outputs": [],
            "parameters": {},
        }
        self.binary, self.listed, self.answered, self.strict, self.needs = (
            binary,
            listed,
            answer,
            strict,
            needs,
        )
        self.calls = []

    def respond(self, method, path, headers, body):
        """(status, headers, body)"""
        is_binary = "Inference-Header-Content-Length" in headers
        self.calls.append((method, path, is_binary))
        if path == "/v2":
            return (
                200,
                {},
                json.dumps({"name": "s", "version": "1", "extensions": list(self.listed)}).encode(),
            )
        if method == "GET":
            return 200, {}, json.dumps(self.about).encode()
        if is_binary and not self.binary:  # as MLServer: a traceback of the web framework
            return (
                500,
                {},
                (
                    b"Traceback (most recent call last):\nUnicodeDecodeError: 'utf-8' codec can't"
                    b" decode byte 0x80"
                ),
            )
        if self.strict and not is_binary and b"NaN" in body:
            return (
                422,
                {},
                b'{"detail":[{"type":"json_invalid","loc":["body",67],"msg":"JSON decode error"}]}',
            )
        inputs = kserve.parse_request(body, dict(headers))
        if missing := [name for name in self.needs if name not in inputs]:
            return 400, {}, json.dumps({"error": f"expected input {missing[0]}"}).encode()
        if self.answered is not None:
            return 200, {}, self.answered
        made = kserve.build_answer(
            {f"{name}_out": x for name, x in inputs.items()}, binary=is_binary, model="echo"
        )
        return 200, made.headers, made.joined()

    @property
    def infers(self):
        return [binary for method, _, binary in self.calls if method == "POST"]


@contextlib.contextmanager
def running(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, data = server.respond(self.command, self.path, self.headers, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

        def log_message(self, *args):
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


@contextlib.contextmanager
def client(server, **options):
    with running(server) as url, Client(url, model="echo", protocol="kserve", **options) as found:
        yield found


NULLS = json.dumps(
    {
        "model_name": "echo",
        "model_version": None,
        "id": "7",
        "parameters": None,
        "outputs": [
            {"name": "y", "shape": [2], "datatype": "FP32", "parameters": None, "data": [0.5, 1.0]}
        ],
    }
).encode()


class TestNulls:
    """What KServe's own server writes."""

    def test_an_answer(self):
        assert tw.equal(kserve.parse_answer(NULLS), {"y": np.float32([0.5, 1])})

    def test_an_answer_in_binary(self):
        head = b'{"outputs":[{"name":"y","shape":[1],"datatype":"UINT8","data":null,"parameters":{"binary_data_size":1}}]}'
        headers = {"inference-header-content-length": str(len(head))}
        assert tw.equal(kserve.parse_answer(head + b"\x07", headers), {"y": np.uint8([7])})

    def test_metadata(self):
        found = kserve.signature(
            {"name": "m", "versions": None, "platform": "", "inputs": None, "outputs": None}
        )
        assert not found.inputs and not found.outputs

    def test_a_request(self):
        body = b'{"parameters":null,"inputs":[{"name":"x","shape":[1],"datatype":"INT8","parameters":null,"data":[3]}],"outputs":null}'
        assert tw.equal(kserve.parse_request(body), {"x": np.int8([3])})

    def test_by_the_client(self):
        with client(Server(answer=NULLS)) as found:
            assert tw.equal(found.predict({"x": X}), {"y": np.float32([0.5, 1])})


class TestInputsThatNobodyDeclares:
    def test_named_arrays_go_as_they_are(self):
        sent = {
            "a": np.int16([[1], [2]]),
            "b": tw.Strings.of(["u", "v"]),
            "c": [1.5],
            "d": np.array([True]),
        }
        with client(Server(binary=True)) as found:
            got = found.predict(sent)
        assert got["a_out"].dtype == np.int16 and tw.equal(got["a_out"], sent["a"])
        assert (
            got["b_out"].tolist() == [b"u", b"v"]
            and got["c_out"].dtype == np.float64
            and got["d_out"].dtype == np.bool_
        )

    def test_explained(self):
        with client(Server()) as found:
            assert "x: float32 [1, 2]" in found.explain({"x": X})

    def test_names_are_needed_and_parts_are_not_guessed(self):
        with client(Server()) as found:
            for wrong in (
                X,
                {"s": tw.Sparse([[0, 0]], np.float32([1]), (1, 1))},
                {"r": tw.Ragged.of([[1], []])},
            ):
                with pytest.raises(tw.EncodeError):
                    found.predict(wrong)

    def test_optional_inputs(self):
        """Triton's metadata does not tell which inputs are optional."""
        inputs = [{"name": name, "datatype": "FP32", "shape": [-1, 2]} for name in ("x", "weights")]
        about = {"name": "echo", "inputs": inputs, "outputs": []}
        server = Server(about, binary=True, needs=["x"])
        with client(server) as found:
            assert list(found.predict({"x": X})) == ["x_out"]
            with pytest.raises(tw.ModelError) as caught:
                found.predict({"weights": X})
            assert caught.value.status == 400
            for wrong in ({}, {"x": X, "other": X}, {"x": np.float32([[1, 2, 3]])}):
                with pytest.raises(tw.EncodeError):
                    found.predict(wrong)


class TestServersWithoutTheBinaryExtension:
    def test_json_once_and_from_then_on(self):
        server = Server()
        with client(server) as found:
            for _ in range(3):
                assert tw.equal(found.predict({"x": X}), {"x_out": X})
        assert server.infers == [True, False, False, False]

    def test_by_asyncio(self):
        server = Server()

        async def main(url):
            async with AsyncClient(url, model="echo", protocol="kserve") as found:
                return [await found.predict({"x": X}) for _ in range(2)]

        with running(server) as url:
            assert all(tw.equal(each, {"x_out": X}) for each in asyncio.run(main(url)))
        assert server.infers == [True, False, False]

    def test_what_json_cannot_hold_is_the_servers_error(self):
        with client(Server()) as found, pytest.raises(tw.ModelError) as caught:
            found.predict({"x": np.float16([1])})
        assert caught.value.status == 500

    @pytest.mark.parametrize("listed", [["binary_tensor_data"], []])
    def test_servers_with_it_are_asked_once(self, listed):
        """Triton lists the extension, KServe has it without listing it."""
        server = Server(binary=True, listed=listed, needs=["x"])
        with client(server) as found:
            assert tw.equal(found.predict({"x": X}), {"x_out": X})
            with pytest.raises(tw.ModelError):
                found.predict({"y": X})
        assert server.infers == [True, True]

    def test_an_error_of_a_server_that_lists_it_is_final(self):
        server = Server(binary=True, listed=["binary_tensor_data"], needs=["x"])
        with client(server) as found, pytest.raises(tw.ModelError):
            found.predict({"y": X})
        assert server.infers == [True]

    def test_nan_is_named(self):
        with client(Server(strict=True)) as found:
            with pytest.raises(tw.ModelError) as caught:
                found.predict({"x": np.float32([1, np.nan])})
            assert caught.value.status == 422 and "NaN" in str(caught.value)
            assert tw.equal(found.predict({"x": X}), {"x_out": X})
        with (
            client(Server(strict=True), binary=False) as found,
            pytest.raises(tw.ModelError) as caught,
        ):
            found.predict({"x": np.float32([-np.inf, np.nan])})
        assert "NaN" in str(caught.value)


class TestVersions:
    @pytest.mark.parametrize(
        ("version", "path"),
        [("v1.2", "v1.2"), ("2024-01-31/a b", "2024-01-31%2Fa%20b"), (3, "3"), ("007", "007")],
    )
    def test_text(self, version, path):
        server = Server(binary=True)
        with client(server, version=version) as found:
            found.predict({"x": X})
            assert found.status()[0].version == version
        assert server.calls[0][1] == f"/v2/models/echo/versions/{path}"

    def test_in_the_models_own_url(self):
        server = Server(binary=True)
        with running(server) as url, Client(f"{url}/v2/models/echo/versions/v1.2/infer") as found:
            assert found.address.version == "v1.2" and found.address.protocol == "kserve"
            found.predict({"x": X})
        assert server.calls[-1][1] == "/v2/models/echo/versions/v1.2/infer"

    def test_tensorflow_serving_has_numbers(self):
        for version in ("v1", "3", "", True, -1):
            with pytest.raises(tw.UsageError):
                Client("http://127.0.0.1:1", model="m", version=version)


def test_a_grpc_server_of_another_kind():
    """It answers UNIMPLEMENTED, often without a word."""
    import grpc

    class Other(grpc.GenericRpcHandler):
        def service(self, details):
            def answer(request, context):
                context.set_code(grpc.StatusCode.UNIMPLEMENTED)
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Other(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Client(f"grpc://127.0.0.1:{port}", model="m") as found:
            for call in (found.status, found.metadata, lambda: found.predict({"x": X})):
                with pytest.raises(tw.ModelError) as caught:
                    call()
                assert caught.value.status == 501 and "kserve" in str(caught.value)
    finally:
        server.stop(0).wait()
