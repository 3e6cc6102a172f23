"""A predict call end to end on loopback: an array of 16 MiB goes to a server, one as large comes
back.

The server is a process of its own that only moves bytes: it takes whatever request it gets and
gives the answer that it has made before, so that nobody waits for a model. By gRPC the answer has
its values in a typed field, as TensorFlow Serving writes it, or in tensor_content. Each contender's
request and answer are proved to hold the very same numbers before anyone is timed. "grpcio alone"
sends a finished request and leaves the answer as it is: no client of grpcio can be faster.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tensorwire.timing import Contender
from tensorwire.ways import WrongResult

from tensorwire.serving import Client, Signature
from tensorwire.serving.rpc import messages
from tensorwire.serving.rpc.messages import ModelSpec
from tensorwire.wire.protobuf import varint

Array = np.ndarray[Any, Any]

SHAPE = (4096, 1024)
"""16 MiB of float32, as one batch."""
OURS, STUBS, FLOOR = (
    "tensorwire, gRPC",
    "tensorflow-serving-api, make_tensor_proto, make_ndarray",
    "grpcio alone",
)
FORMS = ("typed", "content")
NEEDED = 2.0
"""How many times as fast as the official stubs."""
_UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def numbers(shape: tuple[int, int] = SHAPE) -> Array:
    return np.random.default_rng(11).random(shape, np.float32)


# The server


def answers(x: Array) -> dict[str, bytes]:
    """The same PredictResponse in both forms. The content lies at no multiple of 4, as for three
    names in four, so it is not read in place: that would flatter us."""
    content = b"".join(messages.build_predict_answer(ModelSpec("m", 1), {"scores": x}))
    shape = b"".join(_block(2, b"\x08" + varint(dim)) for dim in x.shape)
    tensor = b"\x08\x01" + _block(2, shape) + _block(5, x.tobytes())
    return {
        "content": content,
        "typed": _block(1, _block(1, b"scores") + _block(2, tensor)) + _block(2, _block(1, b"m")),
    }


def _block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def serve() -> None:
    """Answers Predict in the form that the header "form" says, and prints its port."""
    import grpc

    ready = answers(numbers())

    def answer(request: bytes, context: Any) -> bytes:
        return ready[dict(context.invocation_metadata())["form"]]

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(futures.ThreadPoolExecutor(2), options=_UNBOUNDED)
    server.add_generic_rpc_handlers((Handler(),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


@cache
def _port() -> int:
    command = [sys.executable, "-c", "from benchmarks.serving_calls import serve; serve()"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    atexit.register(process.kill)
    assert process.stdout is not None
    return int(process.stdout.readline())


# The clients


def contenders(form: str) -> list[Contender]:
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    x = numbers()
    signature = Signature.given(
        {"x": ("float32", [None, SHAPE[1]])}, {"scores": ("float32", [None, SHAPE[1]])}
    )
    client = Client(
        f"grpc://127.0.0.1:{_port()}", model="m", signature=signature, headers={"form": form}
    )
    channel = grpc.insecure_channel(f"127.0.0.1:{_port()}", options=_UNBOUNDED)
    request = b"".join(messages.build_predict(ModelSpec("m"), {"x": x}))
    metadata = (("form", form),)
    stubs = {
        "x": x,
        "Request": predict_pb2.PredictRequest,
        "Predict": prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict,
        "make_tensor_proto": tf.make_tensor_proto,
        "make_ndarray": tf.make_ndarray,
        "metadata": metadata,
    }
    asking = (
        'request = Request(); request.model_spec.name = "m";'
        ' request.inputs["x"].CopyFrom(make_tensor_proto(x)); '
    )
    found = [
        Contender(
            OURS, 'y = client.predict({"x": x})["scores"]', {"x": x, "client": client}, "ours"
        ),
        Contender(
            STUBS,
            asking
            + 'y = make_ndarray(Predict(request, timeout=60, metadata=metadata).outputs["scores"])',
            stubs,
        ),
        Contender(
            FLOOR,
            "y = call(request, timeout=60, metadata=metadata)",
            {
                "call": channel.unary_unary(messages.PREDICT),
                "request": request,
                "metadata": metadata,
            },
            "floor",
        ),
    ]
    for one in found[:2]:
        names = dict(one.names)
        exec(one.statement, names)
        if names["y"].dtype != x.dtype or not np.array_equal(names["y"], x):
            raise WrongResult(f"{one.name} reads other numbers")
        if "request" in names and names["request"] != predict_pb2.PredictRequest.FromString(
            request
        ):
            raise WrongResult("the requests say other things")
    return found


def cases(case: Callable[..., Any], rounds: int) -> Iterator[Any]:
    """`case` is `cases.Case`."""
    what = {
        "typed": "values in a typed field, as TensorFlow Serving answers",
        "content": "values in tensor_content",
    }
    for form in FORMS:
        about = (
            f"a predict call by gRPC on loopback, float32 {list(SHAPE)} there and back; the answer"
            f" has its {what[form]}"
        )
        yield case(f"serving call, gRPC, {form}", about, lambda form=form: contenders(form), rounds)  # type: ignore[misc]


def targets(found: dict[str, Any], target: Callable[..., Any]) -> Iterator[Any]:
    """`found` are the results by name, `target` is `targets.Target`."""
    for form in FORMS:
        result = found.get(f"serving call, gRPC, {form}")
        if result is not None:
            yield target(
                f"{result.name}: {OURS} over {STUBS}",
                result.timing(STUBS).median / result.timing(OURS).median,
                NEEDED,
            )
