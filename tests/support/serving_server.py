"""Models for tests of the server, a server as a process of its own, and HTTP by hand."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import numpy as np

from support import serving_models as models
from tensorwire.serving import export

ECHOED = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
)
SLOW = 1_000_000


def make(tf, folder):
    """All models in one folder: ranker, echo, scale (versions 1, 2 and 3), examples, slow, odd."""
    ranker = models.recommender(tf)
    export(
        ranker,
        folder / "ranker",
        models.SIGNATURE,
        forms=("parts", "serialized", "example"),
        version=1,
    )
    echoed = {name: (name, None) for name in (*ECHOED, "string", "complex64", "float8_e5m2")}
    export(
        lambda **tensors: {f"{name}_out": tf.identity(x) for name, x in tensors.items()},
        folder / "echo",
        echoed,
    )
    for version in (1, 2, 3):
        scale(tf, folder / "scale", version)
    examples(tf, folder / "examples" / "1")
    export(lambda n: waste(tf, n), folder / "slow", {"n": ("int32", [])})
    odd(tf, folder / "odd")
    return ranker


def odd(tf, folder):
    """Outputs that REST does not take, or not by rows, or writes in base64."""
    outputs = {
        "half": lambda x: tf.cast(x, tf.float16),
        "rows": lambda x: tf.concat([x, x], 0),
        "text_bytes": tf.as_string,
    }
    export(
        lambda x: {name: call(x) for name, call in outputs.items()},
        folder,
        {"x": ("float32", [None])},
    )


def scale(tf, folder, version):
    """x times the version."""
    export(lambda x: {"y": x * version}, folder, {"x": ("float32", [None])}, version=version)


def waste(tf, n):
    """Works for some milliseconds, n times."""
    x = tf.while_loop(
        lambda i, x: i < n,
        lambda i, x: (i + 1, tf.sin(x) + 1),
        [0, tf.zeros([SLOW]) + tf.cast(n, tf.float32)],
    )[1]
    return {"done": n, "mean": tf.reduce_mean(x)}


def examples(tf, folder):
    """Signatures for classify and regress, which only TensorFlow 1 writes: of a feature a, and of
    others that Serving refuses.
    """
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], "examples")
        a = tf.io.parse_example(
            serialized,
            {
                "a": tf.io.FixedLenFeature([1], tf.float32),
                "b": tf.io.FixedLenFeature([1], tf.int64, 0),
            },
        )
        score = tf.concat([a["a"], tf.cast(a["b"], tf.float32) * 10], 1)
        classes = tf.tile([["few", "many"]], [tf.shape(score)[0], 1])
        value = tf.reduce_sum(score, 1)
        variable = v1.get_variable("one", initializer=1.0)
        session.run(v1.global_variables_initializer())

        def signature(method, **outputs):
            info = v1.saved_model.build_tensor_info
            named = {name: info(tensor) for name, tensor in outputs.items()}
            return v1.saved_model.signature_def_utils.build_signature_def(
                {"inputs": info(serialized)}, named, f"tensorflow/serving/{method}"
            )

        signatures = {
            "serving_default": signature("classify", classes=classes, scores=score * variable),
            "scores": signature("classify", scores=score),
            "classes": signature("classify", classes=classes),
            "value": signature("regress", outputs=value),
            "values": signature("regress", outputs=score),
            "doubles": signature("regress", outputs=tf.cast(value, tf.float64)),
            "flat": signature("classify", scores=value),
            "other": signature("classify", other=score),
            "plain": signature("predict", sum=value),
            "strange": signature("dream", sum=value),
        }
        builder = v1.saved_model.builder.SavedModelBuilder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()


class Process:
    """`tensorwire serve` as a process."""

    def __init__(self, *arguments):
        command = [
            sys.executable,
            "-m",
            "tensorwire",
            "serve",
            *map(str, arguments),
            "--rest",
            "0",
            "--grpc",
            "0",
        ]
        environment = {
            name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"
        }
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.first = self.process.stdout.readline()
        said = r"REST (?P<rest>http://127\.0\.0\.1:\d+)  gRPC (?P<grpc>grpc://127\.0\.0\.1:\d+)\n"
        found = (
            json.loads(self.first)
            if "--json" in arguments and self.first
            else re.fullmatch(said, self.first)
        )
        if not found:
            self.process.kill()
            raise AssertionError(self.first + "".join(self.process.communicate()))
        self.url, self.grpc = found["rest"], found["grpc"].removeprefix("grpc://")

    @property
    def grpc_url(self):
        return f"grpc://{self.grpc}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def stop(self):
        """(exit status, the rest of its standard output, its standard error)"""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.stdout.read(), self.process.stderr.read()
        return self.process.wait(30), out, err

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def ask(url, method, target, body=None, headers=()):
    """(status, headers in lower case, body) of one request."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    try:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        return (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders()},
            answer.read(),
        )
    finally:
        connection.close()


def get(url, target):
    status, _, body = ask(url, "GET", target)
    return status, json.loads(body)


def post(url, target, body):
    status, _, found = ask(
        url, "POST", target, body if isinstance(body, bytes) else json.dumps(body).encode()
    )
    return status, json.loads(found)


def raw(url, data, seconds=20.0):
    """All that a server says to some bytes, until it closes the connection."""
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), seconds) as sock:
        try:
            sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        found = b""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                piece = sock.recv(65536)
            except ConnectionResetError:
                break
            if not piece:
                break
            found += piece
        else:
            raise AssertionError("the server keeps the connection open")
        return found


def numbers(name, shape=(2, 3)):
    return (np.arange(np.prod(shape)).reshape(shape) % 2).astype(name)
