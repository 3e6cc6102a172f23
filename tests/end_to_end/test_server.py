"""The local server, as a real process on loopback: every route, status and message of TensorFlow
Serving, and what bad clients can do.
"""

import contextlib
import gzip
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import ml_dtypes
import numpy as np
import pytest

import tensorwire as tw
from support import serving_models as models
from support import serving_server as serving
from support.serving_server import ask, get, post, raw
from support.tiers import require
from tensorwire.cli import main
from tensorwire.serving import kserve, rest
from tensorwire.serving.rpc import messages
from tensorwire.serving.rpc.messages import ModelSpec
from tensorwire.serving.server import Bounds, Server
from tensorwire.serving.signature import Signature

grpc = require("grpc")

pytestmark = pytest.mark.tensorflow
NAMES = ("ranker", "echo", "scale", "examples", "slow", "odd")


@pytest.fixture(scope="module")
def made(tf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return folder, serving.make(tf, folder)


@pytest.fixture(scope="module")
def server(made):
    folder, _ = made
    (folder / "scale" / "3").rename(folder / "later")  # comes while the server runs
    labels = ("--label", "scale:old=1", "--label", "scale:new=2")
    process = serving.Process(*(folder / name for name in NAMES), *labels, "--poll", "0.1")
    try:
        yield process
        status, out, err = process.stop()
        assert status == 0 and err == ""  # TensorFlow has not said a word
        assert (
            "ranker, version 1\n  serving_default (predict)\n" in out and "scale, version 2" in out
        )
    finally:
        process.kill()


@pytest.fixture(scope="module")
def ranked(tf, made):
    """The recommendation model's inputs, and its answer in TensorFlow."""
    tensors = models.inputs(5)
    wanted = made[1](**{name: tw.to(tensor, "tensorflow") for name, tensor in tensors.items()})
    return tensors, {name: tensor.numpy() for name, tensor in wanted.items()}


@pytest.fixture(scope="module")
def channel(server):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.grpc, options) as channel:
        yield channel


def call(channel, name, chunks):
    return channel.unary_unary(name)(b"".join(chunks), timeout=30)


def refused(channel, name, chunks):
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, name, chunks)
    return caught.value.code().name, caught.value.details()


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        assert tw.equal(tensor, wanted[name]), name
    return True


class TestRest:
    def test_status(self, server):
        def status(version):
            return {
                "version": version,
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }

        assert get(server.url, "/v1/models/ranker") == (
            200,
            {"model_version_status": [status("1")]},
        )
        assert get(server.url, "/v1/models/scale") == (
            200,
            {"model_version_status": [status("1"), status("2")]},
        )
        assert get(server.url, "/v1/models/scale/versions/1") == (
            200,
            {"model_version_status": [status("1")]},
        )
        assert get(server.url, "/v1/models/scale/labels/old")[0] == 200
        assert get(server.url, "/V1/Models/ranker") == get(server.url, "/v1/models/r%61nker")

    @pytest.mark.parametrize(
        ("target", "status", "error"),
        [
            ("/v1/models/nothing", 404, "Could not find any versions of model nothing"),
            ("/v1/models/scale/versions/9", 404, "Could not find version 9 of model scale"),
            (
                "/v1/models/scale/versions/9/metadata",
                404,
                "Servable not found for request: Specific(scale, 9)",
            ),
            ("/v1/models/nothing/metadata", 404, "Servable not found for request: Latest(nothing)"),
            (
                "/v1/models/scale/labels/odd/metadata",
                400,
                "Unrecognized servable version label: odd",
            ),
            (
                "/v1/models/scale/versions/18446744073709551615",
                400,
                "Failed to convert version: 18446744073709551615 to numeric.",
            ),
            ("/v1/models", 400, "Missing model name in request."),
            ("/v1/models/a/versions/x", 400, "Malformed request: GET /v1/models/a/versions/x"),
            ("/v1/models/scale:predict", 400, "Malformed request: GET /v1/models/scale:predict"),
            (
                "/v1/models/../../etc/passwd",
                400,
                "Malformed request: GET /v1/models/../../etc/passwd",
            ),
            ("/v1/models/%2e%2e%2fscale", 404, "Could not find any versions of model ../scale"),
            ("/foo", 404, "Malformed request: GET /foo"),
            ("/", 404, "Malformed request: GET /"),
        ],
    )
    def test_what_is_not_there(self, server, target, status, error):
        assert get(server.url, target) == (status, {"error": error})

    def test_methods(self, server):
        for method in ("HEAD", "PUT", "DELETE", "OPTIONS"):
            status, headers, body = ask(server.url, method, "/v1/models/scale")
            assert status == 400 and headers["content-type"] == "application/json"
            assert (
                body == b""
                if method == "HEAD"
                else json.loads(body) == {"error": f"Malformed request: {method} /v1/models/scale"}
            )

    def test_metadata(self, server, made):
        status, found = get(server.url, "/v1/models/ranker/metadata")
        assert status == 200 and found["model_spec"] == {
            "name": "ranker",
            "signature_name": "",
            "version": "1",
        }
        known = found["metadata"]["signature_def"]["signature_def"]
        assert known["serving_default"]["inputs"]["profile"] == {
            "dtype": "DT_FLOAT",
            "tensor_shape": {
                "dim": [{"size": "-1", "name": ""}, {"size": "3", "name": ""}],
                "unknown_rank": False,
            },
            "name": "serving_default_profile:0",
        }
        assert known["serving_default"]["method_name"] == "tensorflow/serving/predict"
        about = known["__saved_model_init_op"]["outputs"]["__saved_model_init_op"]
        assert about == {
            "dtype": "DT_INVALID",
            "tensor_shape": {"dim": [], "unknown_rank": True},
            "name": "NoOp",
        }
        theirs, ours = (
            Signature.all_of_metadata(found),
            Signature.all_of_saved_model(made[0] / "ranker"),
        )
        assert {name: (one.inputs, one.outputs, one.method) for name, one in theirs.items()} == {
            name: (one.inputs, one.outputs, one.method) for name, one in ours.items()
        }
        assert (
            get(server.url, "/v1/models/scale/labels/old/metadata")[1]["model_spec"]["version"]
            == "1"
        )

    def test_columns(self, server, made, ranked):
        """The recommendation model with two sparse, one ragged, one string and one dense input."""
        tensors, wanted = ranked
        signature = Signature.from_saved_model(made[0] / "ranker")
        status, _, body = ask(
            server.url,
            "POST",
            "/v1/models/ranker:predict",
            b"".join(rest.build(tensors, signature)),
        )
        assert same(rest.parse_answer(body, signature, status=status), wanted)

    @pytest.mark.parametrize("form", ["serialized", "example"])
    def test_rows(self, server, made, ranked, form):
        tensors, wanted = ranked
        signature = Signature.from_saved_model(made[0] / "ranker", f"serving_default_{form}")
        sent = b"".join(rest.build(tensors, signature, layout="rows"))
        assert b'"instances"' in sent
        status, _, body = ask(server.url, "POST", "/v1/models/ranker/versions/1:predict", sent)
        assert b'"predictions"' in body and same(
            rest.parse_answer(body, signature, status=status), wanted
        )

    def test_versions_and_labels(self, server):
        body = {"instances": [1.5]}
        for where, factor in (
            ("/versions/1", 1),
            ("/versions/2", 2),
            ("", 2),
            ("/labels/old", 1),
            ("/labels/new", 2),
        ):
            assert post(server.url, f"/v1/models/scale{where}:predict", body) == (
                200,
                {"predictions": [1.5 * factor]},
            )
        missing = (404, {"error": "Servable not found for request: Specific(scale, 7)"})
        assert post(server.url, "/v1/models/scale/versions/7:predict", body) == missing
        assert post(server.url, "/v1/models/none:predict", body) == (
            404,
            {"error": "Servable not found for request: Latest(none)"},
        )
        assert post(server.url, "/v1/models/scale/labels/x:predict", body)[0] == 400
        mixed = "/v1/models/scale:Predict"  # paths are taken in any case, methods are not
        assert post(server.url, mixed, body) == (400, {"error": f"Malformed request: POST {mixed}"})

    @pytest.mark.parametrize(
        ("model", "body", "error"),
        [
            ("scale", b"", "JSON Parse error: The document is empty"),
            (
                "scale",
                {"instances": ["a"]},
                (
                    "of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: \"a\" Type: String"
                    " is not of"
                ),
            ),
            ("scale", {"inputs": {"z": [1]}}, "Missing named input: x in 'inputs' object."),
            (
                "scale",
                {"inputs": [1], "signature_name": "no"},
                'Serving signature name: "no" not found in signature def',
            ),
            ("scale", {"signature_name": 1}, "'signature_name' key must be a string value."),
            ("scale", {}, "Missing 'inputs' or 'instances' key"),
            ("odd", {"inputs": [1]}, "Failed to write JSON value for tensor type: half"),
            ("odd", {"instances": [1, 2]}, "Failed to write JSON value for tensor type: half"),
            ("examples", {"inputs": ["x"]}, "Could not parse example input, value: 'x'"),
        ],
    )
    def test_bodies_that_are_refused(self, server, model, body, error):
        status, found = post(server.url, f"/v1/models/{model}:predict", body)
        assert status == 400 and error in found["error"]

    def test_an_error_of_the_model_is_the_models(self, server, ranked):
        tensors = {**models.parts(ranked[0]), "profile": np.ones((5, 7), np.float32)}
        status, found = ask(
            server.url, "POST", "/v1/models/ranker:predict", b"".join(rest.build(tensors))
        )[::2]
        # in TensorFlow's words, which are not the same on every machine
        error = json.loads(found)["error"]
        assert status == 400 and "[5,7]" in error and "[3,4]" in error

    def test_classify_and_regress(self, server):
        rows = [{"a": [0.5]}, {"a": 1.5, "b": [2]}]
        url = server.url
        assert post(url, "/v1/models/examples:classify", {"examples": rows}) == (
            200,
            {"results": [[["few", 0.5], ["many", 0.0]], [["few", 1.5], ["many", 20.0]]]},
        )
        sent = {"examples": rows, "context": {"b": [1]}, "signature_name": "value"}
        assert post(url, "/v1/models/examples/versions/1:regress", sent) == (
            200,
            {"results": [10.5, 21.5]},
        )
        sent = {"examples": rows[:1], "signature_name": "scores"}
        assert post(url, "/v1/models/examples:classify", sent) == (
            200,
            {"results": [[["", 0.5], ["", 0.0]]]},
        )
        sent["signature_name"] = "classes"
        assert post(url, "/v1/models/examples:classify", sent) == (
            200,
            {"results": [[["few", 0.0], ["many", 0.0]]]},
        )

    @pytest.mark.parametrize(
        ("verb", "name", "error"),
        [
            ("classify", "no", "No signature was found with the name: no"),
            (
                "classify",
                "plain",
                (
                    'Expected classification signature outputs to contain at least one of "classes"'
                    ' or "scores".'
                ),
            ),
            ("regress", "", "Expected one output Tensor."),
            ("classify", "flat", "Expected Tensor shape: [batch_size num_classes] but got [1]"),
            (
                "classify",
                "other",
                (
                    'Expected classification signature outputs to contain at least one of "classes"'
                    ' or "scores".'
                ),
            ),
            (
                "regress",
                "values",
                (
                    "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but"
                    " got [1,2]"
                ),
            ),
            ("regress", "doubles", "Expected output Tensor of DT_FLOAT.  Got: DT_DOUBLE"),
        ],
    )
    def test_examples_that_are_refused(self, server, verb, name, error):
        sent = {"examples": [{"a": 0.5}], "signature_name": name}
        status, found = post(server.url, f"/v1/models/examples:{verb}", sent)
        assert status == 400 and found["error"].startswith(error)

    def test_predict_by_other_methods_signatures(self, server):
        """Serving does not look at a signature's method_name by default."""
        sent = b"".join(
            rest.build({"inputs": tw.Strings.of([example(a=2.0)])}, signature_name="value")
        )
        assert json.loads(ask(server.url, "POST", "/v1/models/examples:predict", sent)[2]) == {
            "outputs": [2.0]
        }
        strange = sent.replace(b'"value"', b'"strange"')
        assert post(server.url, "/v1/models/examples:predict", strange) == (200, {"outputs": [2.0]})


def example(**features):
    from tensorwire.serving.lower.example_rows import serialize

    kinds = {float: np.float32, int: np.int64}
    return serialize(
        {name: np.array([value], kinds[type(value)]) for name, value in features.items()}
    )


class TestHttp:
    def test_gzip(self, server):
        body = json.dumps({"inputs": [0.5] * 10_000}).encode()
        where = "/v1/models/scale:predict"
        status, headers, plain = ask(
            server.url, "POST", where, gzip.compress(body), {"Content-Encoding": "gzip"}
        )
        assert (
            status == 200
            and "content-encoding" not in headers
            and json.loads(plain) == {"outputs": [1.0] * 10_000}
        )
        status, headers, packed = ask(server.url, "POST", where, body, {"Accept-Encoding": "gzip"})
        assert (
            status == 200
            and headers["content-encoding"] == "gzip"
            and gzip.decompress(packed) == plain
        )
        assert len(packed) < len(plain) / 10
        for bad in (b"no gzip", gzip.compress(body)[:-9], gzip.compress(body) + b"more"):
            status, _, answer = ask(server.url, "POST", where, bad, {"Content-Encoding": "gzip"})
            assert status == 400 and "gzip" in json.loads(answer)["error"]
        assert ask(server.url, "POST", where, body, {"Content-Encoding": "br"})[0] == 415

    def test_chunks(self, server):
        pieces = [b'{"insta', b'nces": [1, ', b"2" + b" " * 200_000, b"]}"]
        status, _, body = ask(server.url, "POST", "/v1/models/scale:predict", iter(pieces))
        assert (status, json.loads(body)) == (200, {"predictions": [2.0, 4.0]})
        head = (
            b"POST /v1/models/scale:predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection:"
            b" close\r\n\r\n"
        )
        trailer = b'12;a="b"\r\n{"instances": [3]}\r\n0\r\nX-Trailer: 1\r\n\r\n'
        assert raw(server.url, head + trailer).endswith(b'{"predictions":[6.0]}')
        for bad in (b"zz\r\n", b"-1\r\n", b'2\r\n{"instances', b"1" * 9000):
            assert raw(server.url, head + bad).startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))

    def test_many_requests_on_one_connection(self, server):
        """Kept open, sent before the answers to the ones before, and with a word to go on."""
        body = b'{"instances": [1]}'
        one = (
            b"POST /v1/models/scale:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length:"
            b" %d\r\n%b\r\n" % (len(body), b"")
        )
        last = (
            b"GET http://localhost/v1/models/scale/versions/2 HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
        found = raw(server.url, (one + body) * 20 + last)
        assert found.count(b'{"predictions":[2.0]}') == 20 and found.count(b"HTTP/1.1 200 OK") == 21
        told = (
            b"POST /v1/models/scale:predict HTTP/1.1\r\nExpect: 100-continue\r\nConnection:"
            b" close\r\nContent-Length: 18\r\n\r\n" + body
        )
        assert raw(server.url, told).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        old = b"GET /v1/models/scale/versions/2 HTTP/1.0\r\n\r\n"
        assert b"AVAILABLE" in raw(server.url, old)

    @pytest.mark.parametrize(
        ("data", "status"),
        [
            # a client that wants TLS
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nContent-Length: 1, 2\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
            (b"POST / HTTP/1.1\r\nExpect: much\r\n\r\n", 417),
            (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
            (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 400),
            (b"a" * 100_000, 431),
            (b"POST /v1/models/scale:predict HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        ],
    )
    def test_what_is_no_request(self, server, data, status):
        found = raw(server.url, data)
        head, _, body = found.partition(b"\r\n\r\n")
        assert (
            head.startswith(b"HTTP/1.1 %d " % status)
            and b"Connection: close" in head
            and json.loads(body)["error"]
        )

    def test_garbage_and_clients_that_go_away(self, server):
        rng = np.random.default_rng(5)
        where = urlsplit(server.url)
        for size in (1, 10, 1000, 70_000):
            raw(server.url, rng.bytes(size) + b"\r\n\r\n")
            for port in (where.port, int(server.grpc.rpartition(":")[2])):
                with (
                    socket.create_connection((where.hostname, port)) as sock,
                    contextlib.suppress(OSError),
                ):
                    sock.sendall(
                        b"POST /v1/models/scale:predict HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"
                        + rng.bytes(size)
                    )
        assert get(server.url, "/v1/models/scale")[0] == 200

    def test_many_threads(self, server):
        def work(number):
            found = []
            for i in range(10):
                x = [float(number), float(i)]
                status, answer = post(server.url, "/v1/models/scale:predict", {"instances": x})
                found.append(status == 200 and answer == {"predictions": [2 * x[0], 2 * x[1]]})
            return all(found)

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(work, range(16)))

    def test_a_slow_request_holds_nobody_up(self, server):
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(post, server.url, "/v1/models/slow:predict", {"inputs": 150})
            quick = 0
            while not slow.done():
                assert post(server.url, "/v1/models/scale:predict", {"instances": [1]})[0] == 200
                quick += 1
            assert slow.result()[1]["outputs"]["done"] == 150 and quick > 1


class TestGrpc:
    def test_predict(self, channel, ranked):
        tensors, wanted = ranked
        sent = messages.build_predict(ModelSpec("ranker"), models.parts(tensors))
        model, found = messages.parse_predict_answer(call(channel, messages.PREDICT, sent))
        assert model == ModelSpec("ranker", 1, signature="serving_default") and same(found, wanted)

    def test_every_dtype(self, channel):
        sent = {name: serving.numbers(name) for name in serving.ECHOED if name != "bfloat16"}
        sent |= {
            "bfloat16": serving.numbers(ml_dtypes.bfloat16),
            "complex64": np.full((1, 1), 1 + 2j, np.complex64),
        }
        sent |= {
            "float8_e5m2": serving.numbers(ml_dtypes.float8_e5m2, ()),
            "string": tw.Strings.of([b"\xff", b""], (2, 1), text=False),
        }
        found = messages.parse_predict_answer(
            call(channel, messages.PREDICT, messages.build_predict(ModelSpec("echo"), sent))
        )[1]
        assert same(found, {f"{name}_out": tensor for name, tensor in sent.items()})

    def test_versions_labels_and_outputs(self, channel):
        x = {"x": np.float32([1.5])}
        for model, factor in (
            (ModelSpec("scale", 1), 1),
            (ModelSpec("scale", label="old"), 1),
            (ModelSpec("scale"), 2),
        ):
            answer, found = messages.parse_predict_answer(
                call(channel, messages.PREDICT, messages.build_predict(model, x))
            )
            assert answer.version == factor and found["y"].tolist() == [1.5 * factor]
        sent = messages.build_predict(ModelSpec("odd"), x, ("rows",))
        assert list(messages.parse_predict_answer(call(channel, messages.PREDICT, sent))[1]) == [
            "rows"
        ]

    @pytest.mark.parametrize(
        ("model", "inputs", "outputs", "code", "details"),
        [
            (
                ModelSpec("no"),
                {"x": 1},
                (),
                "NOT_FOUND",
                "Servable not found for request: Latest(no)",
            ),
            (
                ModelSpec("scale", 9),
                {"x": 1},
                (),
                "NOT_FOUND",
                "Servable not found for request: Specific(scale, 9)",
            ),
            (
                ModelSpec("scale", label="x"),
                {"x": 1},
                (),
                "INVALID_ARGUMENT",
                "Unrecognized servable version label: x",
            ),
            (ModelSpec(""), {"x": 1}, (), "INVALID_ARGUMENT", "Missing ModelSpec"),
            (
                ModelSpec("", 3),
                {"x": 1},
                (),
                "INVALID_ARGUMENT",
                "ModelSpec has no name specified.",
            ),
            (
                ModelSpec("scale", signature="x"),
                {"x": 1},
                (),
                "FAILED_PRECONDITION",
                'Serving signature key "x" not found.',
            ),
            (
                ModelSpec("scale"),
                {"x": 1, "b": 1, "a": 1},
                (),
                "INVALID_ARGUMENT",
                (
                    "input size does not match signature: 3!=1 len({a,b,x}) != len({x}). Sent"
                    " extra: {a,b}. Missing but required: {}."
                ),
            ),
            (
                ModelSpec("scale"),
                {},
                (),
                "INVALID_ARGUMENT",
                (
                    "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}."
                    " Missing but required: {x}."
                ),
            ),
            (
                ModelSpec("scale"),
                {"z": 1},
                (),
                "INVALID_ARGUMENT",
                (
                    "Signature input alias: x(feed name: serving_default_x:0) not found in request"
                    " and no default value provided. Inputs expected to be in the request {z}, or"
                    " default input alias set: "
                ),
            ),
            (
                ModelSpec("scale"),
                {"x": 1},
                ("z",),
                "INVALID_ARGUMENT",
                (
                    "output tensor alias not found in signature: z Outputs expected to be in the"
                    " set {y}."
                ),
            ),
            (
                ModelSpec("scale"),
                {"x": 1},
                ("y", "y"),
                "INVALID_ARGUMENT",
                "duplicate output tensor alias: y",
            ),
            (
                ModelSpec("scale"),
                {"x": np.int64(1)},
                (),
                "INVALID_ARGUMENT",
                "Expects arg[0] to be float but int64 is provided",
            ),
        ],
    )
    def test_what_is_refused(self, channel, model, inputs, outputs, code, details):
        inputs = {
            name: np.float32([x]) if isinstance(x, int) else np.array([x])
            for name, x in inputs.items()
        }
        assert refused(
            channel, messages.PREDICT, messages.build_predict(model, inputs, outputs)
        ) == (code, details)

    @pytest.mark.parametrize(
        "dims", [[-1, 1000], [-(1 << 40), 1000], [1 << 62, 1000], [1 << 40, 1 << 40]]
    )
    def test_shapes_that_would_end_tensorflow(self, channel, ranked, dims):
        tensors = {**models.parts(ranked[0]), "clicks_dense_shape": np.array(dims)}
        code, details = refused(
            channel, messages.PREDICT, messages.build_predict(ModelSpec("ranker"), tensors)
        )
        assert code == "INVALID_ARGUMENT" and details.startswith(
            "clicks_dense_shape: invalid shape of a sparse tensor ["
        )
        self.test_predict(channel, ranked)

    def test_no_message_at_all(self, channel):
        for name in (messages.PREDICT, messages.CLASSIFY, messages.METADATA, messages.STATUS):
            assert refused(channel, name, [b"\xff\xff"])[0] == "INVALID_ARGUMENT"
            assert refused(channel, name, []) == ("INVALID_ARGUMENT", "Missing ModelSpec")
        assert (
            refused(channel, "/tensorflow.serving.PredictionService/MultiInference", [])[0]
            == "UNIMPLEMENTED"
        )

    def test_long_errors_are_cut(self, channel):
        code, details = refused(
            channel, messages.PREDICT, messages.build_predict(ModelSpec("n" * 3000), {})
        )
        assert (
            code == "NOT_FOUND"
            and len(details) == 1024 + len("...TRUNCATED")
            and details.endswith("...TRUNCATED")
        )

    def test_classify_and_regress(self, channel):
        rows = tw.Strings.of([example(a=0.5), example(a=1.5, b=2)], text=False)
        answer = call(
            channel, messages.CLASSIFY, messages.build_examples(ModelSpec("examples"), rows)
        )
        model, found = messages.parse_classify_answer(answer)
        assert model == ModelSpec("examples", 1, signature="serving_default")
        assert found["classes"].tolist() == [[b"few", b"many"]] * 2 and found[
            "scores"
        ].tolist() == [[0.5, 0], [1.5, 20]]
        sent = messages.build_examples(ModelSpec("examples", signature="value"), rows, example(b=1))
        assert messages.parse_regress_answer(call(channel, messages.REGRESS, sent))[1][
            "outputs"
        ].tolist() == [10.5, 21.5]
        empty = messages.build_examples(
            ModelSpec("examples", signature="value"), tw.Strings.of([], text=False)
        )
        assert refused(channel, messages.REGRESS, empty) == ("INVALID_ARGUMENT", "Input is empty.")

    def test_metadata_and_status(self, channel, made):
        model, found = messages.parse_metadata_answer(
            call(channel, messages.METADATA, messages.build_metadata(ModelSpec("ranker")))
        )
        ours = Signature.all_of_saved_model(made[0] / "ranker")
        assert model == ModelSpec("ranker", 1) and found.keys() == ours.keys()
        assert all(
            (found[name].inputs, found[name].outputs) == (ours[name].inputs, ours[name].outputs)
            for name in ours
        )
        answer = call(channel, messages.STATUS, messages.build_status(ModelSpec("scale", 2)))
        assert messages.parse_status_answer(answer) == [
            messages.VersionStatus(2, "AVAILABLE", 0, "")
        ]
        assert refused(channel, messages.STATUS, messages.build_status(ModelSpec("x"))) == (
            "NOT_FOUND",
            "Could not find any versions of model x",
        )

    def test_large_and_at_once(self, channel):
        x = np.arange(2_000_000, dtype=np.float32)
        sent = messages.build_predict(ModelSpec("scale"), {"x": x})
        with ThreadPoolExecutor(4) as pool:
            for answer in pool.map(lambda _: call(channel, messages.PREDICT, sent), range(4)):
                assert np.array_equal(messages.parse_predict_answer(answer)[1]["y"], x * 2)


class TestKserve:
    def infer(self, server, model, body):
        status, headers, found = ask(
            server.url, "POST", f"/v2/models/{model}/infer", body.joined(), body.headers
        )
        return kserve.parse_answer(found, headers, status=status)

    def test_server_and_models(self, server):
        assert get(server.url, "/v2") == (
            200,
            {"name": "tensorwire", "version": tw.__version__, "extensions": ["binary_tensor_data"]},
        )
        assert get(server.url, "/v2/health/live") == (200, {"live": True}) and get(
            server.url, "/v2/health/ready"
        ) == (200, {"ready": True})
        assert get(server.url, "/v2/models/scale/versions/1/ready") == (
            200,
            {"name": "scale", "ready": True},
        )
        status, found = get(server.url, "/v2/models/scale")
        assert (status, found) == (
            200,
            {
                "name": "scale",
                "versions": ["1", "2"],
                "platform": "tensorflow_savedmodel",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
            },
        )
        assert kserve.signature(found).inputs["x"].dtype == "float32"

    @pytest.mark.parametrize("binary", [False, True])
    def test_infer(self, server, made, ranked, binary):
        tensors, wanted = ranked
        signature = Signature.from_saved_model(made[0] / "ranker")
        assert same(
            self.infer(server, "ranker", kserve.build(tensors, signature, binary=binary)), wanted
        )
        body = kserve.build(tensors, signature, binary=binary, outputs=["score"], id="7")
        assert list(self.infer(server, "ranker", body)) == ["score"]
        _, headers, found = ask(
            server.url, "POST", "/v2/models/ranker/versions/1/infer", body.joined(), body.headers
        )
        head = json.loads(found[: int(headers.get("inference-header-content-length", len(found)))])
        assert (head["model_name"], head["model_version"], head["id"]) == ("ranker", "1", "7")

    def test_half_floats_go_as_bytes(self, server):
        x = {"x": np.float32([1, 2.5])}
        assert self.infer(server, "odd", kserve.build(x))["half"].dtype == np.float16
        with pytest.raises(tw.ModelError, match="FP16 cannot be sent as JSON"):
            self.infer(server, "odd", kserve.build(x, binary=False))

    @pytest.mark.parametrize(
        ("target", "body", "status", "error"),
        [
            (
                "/v2/models/no/infer",
                {"inputs": []},
                404,
                "Servable not found for request: Latest(no)",
            ),
            ("/v2/models/scale/infer", {"inputs": []}, 400, "input size does not match signature"),
            ("/v2/models/scale/infer", {}, 400, "missing key 'inputs'"),
            ("/v2/models/scale/infer", b"[", 400, ""),
            (
                "/v2/models/scale/infer",
                {"inputs": [], "outputs": 3},
                400,
                "outputs: expected a list",
            ),
            ("/v2/models/scale/nothing", {}, 404, "Malformed request: POST"),
        ],
    )
    def test_what_is_refused(self, server, target, body, status, error):
        found = post(server.url, target, body)
        assert found[0] == status and error in found[1]["error"]


class TestVersions:
    def test_a_new_version_without_a_failed_request(self, server, made):
        """Version 3 appears while clients ask for the latest: none fails, and the answers change
        from 2 to 3 times x.
        """
        folder = made[0]
        stop, seen = threading.Event(), []

        def ask_on():
            while not stop.is_set():
                seen.append(post(server.url, "/v1/models/scale:predict", {"instances": [1]}))

        threads = [threading.Thread(target=ask_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            (folder / "scale" / "4").mkdir()  # no model, so no version
            (folder / "later").rename(folder / "scale" / "3")
            until = time.monotonic() + 20
            while (200, {"predictions": [3.0]}) not in seen[-3:] and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        values = [found["predictions"][0] for status, found in seen if status == 200]
        assert len(values) == len(seen) and set(values) == {2.0, 3.0}
        status = get(server.url, "/v1/models/scale")[1]["model_version_status"]
        assert [one["state"] for one in status] == ["AVAILABLE"] * 3  # 1 and 2 have labels

    def test_old_versions_go_and_broken_ones_are_told(self, tf, tmp_path):
        for version in (1, 2):
            serving.scale(tf, tmp_path / "m", version)
        (tmp_path / "m" / "2").rename(tmp_path / "2")
        with Server({"m": tmp_path / "m"}, rest=0, poll=0.05) as server:
            (tmp_path / "m" / "7").mkdir()
            (tmp_path / "m" / "7" / "saved_model.pb").write_bytes(b"no model")

            def states():
                found = get(server.rest_url, "/v1/models/m")[1]["model_version_status"]
                return {one["version"]: one["state"] for one in found}

            assert eventually(states, {"1": "AVAILABLE", "7": "END"})
            broken = get(server.rest_url, "/v1/models/m/versions/7")[1]["model_version_status"][0][
                "status"
            ]
            assert broken["error_code"] != "OK" and broken["error_message"]
            assert post(server.rest_url, "/v1/models/m:predict", {"inputs": [1]})[1] == {
                "outputs": [1.0]
            }
            (tmp_path / "m" / "7" / "saved_model.pb").unlink()
            (tmp_path / "2").rename(tmp_path / "m" / "2")
            assert eventually(states, {"1": "END", "2": "AVAILABLE", "7": "END"})
            assert post(server.rest_url, "/v1/models/m:predict", {"inputs": [1]})[1] == {
                "outputs": [2.0]
            }
            assert (
                post(server.rest_url, "/v1/models/m/versions/1:predict", {"inputs": [1]})[0] == 404
            )


def eventually(look, wanted, seconds=15.0):
    until = time.monotonic() + seconds
    while (found := look()) != wanted and time.monotonic() < until:
        time.sleep(0.02)
    assert found == wanted
    return True


@pytest.fixture(scope="module")
def small(tf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "m"
    serving.scale(tf, folder, 1)
    bounds = Bounds(body=100_000, connections=4, timeout=0.5, idle=30, stalled=2)
    with Server(folder, rest=0, grpc=0, bounds=bounds) as server:
        yield server


class TestBounds:
    def test_bodies(self, small):
        where = "/v1/models/m:predict"
        large = b'{"inputs": [%b1]}' % (b"1.25, " * 20_000)
        for body, headers in ((large, {}), (iter([large[:50_000], large[50_000:]]), {})):
            status, _, answer = ask(small.rest_url, "POST", where, body, headers)
            assert status == 413 and "--max-body" in json.loads(answer)["error"]
        packed = {"Content-Encoding": "gzip"}
        assert ask(small.rest_url, "POST", where, gzip.compress(large), packed)[0] == 413
        assert ask(small.rest_url, "POST", where, gzip.compress(bytes(50 << 20)), packed)[0] == 413
        with grpc.insecure_channel(small.grpc_url.removeprefix("grpc://")) as channel:
            sent = messages.build_predict(ModelSpec("m"), {"x": np.zeros(500_000, np.float32)})
            assert refused(channel, messages.PREDICT, sent)[0] == "RESOURCE_EXHAUSTED"

    def test_slow_clients_are_cut_off(self, small):
        """Byte by byte, in the head and in the body: half a second is all that they have."""
        where = urlsplit(small.rest_url)
        for start in (
            b"GET /v1/mod",
            b"POST /v1/models/m:predict HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{",
        ):
            started = time.monotonic()
            with (
                socket.create_connection((where.hostname, where.port), 10) as sock,
                contextlib.suppress(OSError),
            ):
                sock.sendall(start)
                sock.settimeout(0.05)
                while time.monotonic() < started + 10:
                    with contextlib.suppress(TimeoutError):
                        if sock.recv(100) == b"":
                            break
                    sock.sendall(b"a")
            assert 0.4 < time.monotonic() - started < 5

    def test_clients_that_do_not_read_are_cut_off(self, small):
        where = urlsplit(small.rest_url)
        one = b"GET /v1/models/m/metadata HTTP/1.1\r\n\r\n"
        started = time.monotonic()
        with (
            socket.create_connection((where.hostname, where.port), 10) as sock,
            pytest.raises(OSError),
        ):
            while time.monotonic() < started + 20:
                sock.sendall(one * 100)
        assert time.monotonic() - started < 15


class TestTheEnd:
    def test_running_requests_finish(self, made):
        """SIGTERM in the middle of slow requests, by REST and by gRPC: their answers arrive, others
        are turned away, the status is 0.
        """
        process = serving.Process(
            f"s low={made[0] / 'slow'}", "--grace", "30", "--poll", "0", "--json", "--log"
        )
        try:
            steps, said = 1500, []
            assert json.loads(process.first)["models"]["s low"]["1"]["serving_default"][
                "inputs"
            ] == {"n": {"dtype": "int32", "shape": []}}
            with ThreadPoolExecutor(2) as pool, grpc.insecure_channel(process.grpc) as channel:
                assert post(process.url, "/v1/models/s%20low:predict", {"inputs": 1})[0] == 200
                by_rest = pool.submit(
                    post, process.url, "/v1/models/s%20low:predict", {"inputs": steps}
                )
                sent = messages.build_predict(ModelSpec("s low"), {"n": np.int32(steps)})
                by_grpc = pool.submit(call, channel, messages.PREDICT, sent)
                time.sleep(0.5)
                ending = threading.Thread(target=lambda: said.extend(process.stop()))
                assert not by_rest.done() and not by_grpc.done()
                ending.start()
                time.sleep(0.2)
                turned_away = raw(process.url, b"GET /v1/models/slow HTTP/1.1\r\n\r\n")
                assert (
                    turned_away.startswith(b"HTTP/1.1 503 ")
                    and b"the server is stopping" in turned_away
                )
                assert not by_rest.done()
                assert by_rest.result(30)[1]["outputs"]["done"] == steps
                assert messages.parse_predict_answer(by_grpc.result(30))[1]["done"] == steps
                ending.join(30)
            status, out, err = said
            assert (
                (status, out) == (0, "")
                and "POST /v1/models/s%20low:predict 200 " in err
                and f"{messages.PREDICT} OK " in err
            )
        finally:
            process.kill()


class TestCommand:
    def run(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "tensorwire", "serve", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_a_port_that_is_taken(self, made):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for option, other in (("--rest", "--grpc"), ("--grpc", "--rest")):
                found = self.run(made[0] / "scale", option, port, other, "none")
                assert found.returncode == 1 and found.stdout == ""
                assert (
                    found.stderr.startswith(f"tensorwire serve: cannot listen on 127.0.0.1:{port}")
                    and found.stderr.count("\n") == 1
                )

    @pytest.fixture
    def fails(self, capsys):
        """What a command says that ends before it has loaded anything."""

        def run(*arguments):
            status = main(["serve", *map(str, arguments), "--rest", "0", "--grpc", "none"])
            found = capsys.readouterr()
            assert status == 1 and found.out == "" and found.err.count("\n") == 1
            return found.err

        return run

    def test_folders_that_are_no_models(self, tmp_path, fails):
        (tmp_path / "file").touch()
        assert "the folder does not exist" in fails(tmp_path / "none")
        assert "expected the folder of a SavedModel" in fails(tmp_path / "file")
        assert "no SavedModel: expected saved_model.pb, or version folders" in fails(tmp_path)

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            (("--versions", "9"), "none of the requested versions"),
            (("--versions", "x"), "expected 'latest', 'all', or numbers"),
            (("--label", "x=9"), "the label 'x' refers to version 9"),
            (("--label", "other:x=1"), "labels: unknown model 'other'"),
            (("scale=elsewhere",), "duplicate model name 'scale'"),
            (("a/b=elsewhere",), "invalid model name"),
        ],
    )
    def test_what_cannot_be_served(self, made, fails, more, words):
        assert words in fails(made[0] / "scale", *more)

    def test_wrong_usage(self, made):
        for more in (
            ("--rest", "none", "--grpc", "none"),
            ("--rest", "70000"),
            ("--label", "stable"),
            ("--poll", "x"),
        ):
            with contextlib.suppress(SystemExit):
                assert main(["serve", str(made[0] / "scale"), *more]) == 2

    def test_help_says_what_it_is_for(self):
        assert "In production use TensorFlow Serving itself" in self.run("--help").stdout

    @pytest.mark.parametrize(
        ("package", "words"),
        [("tensorflow", "pip install tensorflow"), ("grpc", "pip install 'tensorwire[serving]'")],
    )
    def test_packages_that_are_missing(self, made, package, words):
        arguments = ["serve", str(made[0] / "scale"), "--rest", "0", "--grpc", "0"]
        code = (
            f"import sys; sys.modules[{package!r}] = None; from tensorwire.cli import main;"
            f" sys.exit(main({arguments!r}))"
        )
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        assert (
            found.returncode == 1
            and found.stdout == ""
            and words in found.stderr
            and found.stderr.count("\n") == 1
        )

    def test_a_model_that_cannot_be_loaded(self, tmp_path):
        (tmp_path / "saved_model.pb").write_bytes(b"no model")
        with (
            pytest.raises(tw.SchemaError, match=r"version 1 of .* cannot be loaded"),
            Server(tmp_path, rest=0, grpc=0),
        ):
            pass
