"""The gRPC port: TensorFlow Serving's PredictionService and ModelService, by grpcio.

grpcio moves bytes; the messages are parsed and built by our own codec.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..._limits import DEFAULT, Limits
from ..._optional import require
from ...core.tensors import Strings
from ..rpc import messages
from ..rpc.fields import piece, text, write_spec
from ..rpc.messages import ModelSpec
from ..signature import DEFAULT as DEFAULT_NAME
from . import classification
from .failures import INVALID, Failure, failure
from .http import Log, host_port, listen
from .models import Models
from .request_reader import Bounds
from .runner import Runner, Tensors

if TYPE_CHECKING:
    import grpc

_MOST_WORDS = 1024
"""The most characters of an error message: it is sent in a header, whose size clients limit.
TensorFlow Serving has the same limit.
"""
_ENVELOPE = 1 << 20
_MAP = "type.googleapis.com/tensorflow.serving.SignatureDefMap"


class RpcServer:
    """A gRPC server. It has its port from the start, and answers between `start` and `stop`."""

    def __init__(
        self,
        models: Models,
        host: str,
        port: int,
        bounds: Bounds,
        log: Log | None = None,
        limits: Limits = DEFAULT,
        tensor_content: bool = False,
    ) -> None:
        grpc = require("grpc", extra="serving")
        # If a port is in use, grpcio does not say why it failed. This attempt raises a clear error.
        with listen(host, port):
            pass
        self._codes = {code.value[0]: code for code in grpc.StatusCode}
        self._models, self._log, self._limits = models, log, limits
        self._tensor_content = tensor_content
        self._pool = ThreadPoolExecutor(
            min(bounds.connections, 32), thread_name_prefix="tensorwire-grpc"
        )
        options = {
            "grpc.max_receive_message_length": min(bounds.body + _ENVELOPE, (1 << 31) - 1),
            "grpc.max_send_message_length": -1,
            # A port in use is an error; it must not be shared.
            "grpc.so_reuseport": 0,
        }
        self._server = grpc.server(
            self._pool, options=list(options.items()), maximum_concurrent_rpcs=bounds.connections
        )
        calls = {
            messages.PREDICT: self._predict,
            messages.CLASSIFY: self._classify,
            messages.REGRESS: self._regress,
            messages.METADATA: self._metadata,
            messages.STATUS: self._status,
        }
        for name, call in calls.items():
            _, service, method = name.split("/")
            handler = grpc.unary_unary_rpc_method_handler(self._answering(name, call))
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, {method: handler}),)
            )
        where = host_port(host, port)
        try:
            self.port: int = self._server.add_insecure_port(where)
        except RuntimeError as error:
            self._pool.shutdown()
            raise OSError(f"cannot listen on {where}: {error}") from None

    def start(self) -> None:
        self._server.start()

    def stop(self, grace: float) -> bool:
        """Let calls in progress finish within `grace` seconds; refuse others with UNAVAILABLE.

        Returns whether all of them have finished.
        """
        done = self._server.stop(grace).wait(grace + 1)
        self._pool.shutdown(wait=False)
        return bool(done)

    def _answering(
        self, name: str, call: Callable[[bytes], list[Any]]
    ) -> Callable[[bytes, Any], bytes]:
        """Return grpcio's handler for a method: errors become status codes, calls are logged."""

        def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
            started, error_status, body = time.perf_counter(), Failure(0, ""), b""
            try:
                body = b"".join(call(data))
            except Exception as error:
                error_status = failure(error)
            if self._log is not None:
                seconds = time.perf_counter() - started
                code = self._codes[error_status.code].name
                self._log(
                    f"{context.peer()} {name} {code} {len(body)} bytes {seconds * 1000:.1f} ms"
                )
            if error_status.code:
                cut = "...TRUNCATED" if len(error_status.message) > _MOST_WORDS else ""
                context.abort(
                    self._codes[error_status.code], error_status.message[:_MOST_WORDS] + cut
                )
            return body

        return answer

    def _predict(self, data: bytes) -> list[Any]:
        request = messages.parse_predict(data, self._limits)
        with self._models.using(_known(request.model)) as version:
            outputs = version.runner.predict(
                request.model.signature, request.inputs, request.outputs
            )
            spec = _answered(request.model, version.number)
            return messages.build_predict_answer(spec, outputs, typed=not self._tensor_content)

    def _classify(self, data: bytes) -> list[Any]:
        spec, outputs = self._examples(classification.classify, data)
        return messages.build_classify_answer(spec, outputs.get("classes"), outputs.get("scores"))

    def _regress(self, data: bytes) -> list[Any]:
        spec, outputs = self._examples(classification.regress, data)
        return messages.build_regress_answer(spec, outputs["outputs"])

    def _examples(
        self, run: Callable[[Runner, str, Strings], Tensors], data: bytes
    ) -> tuple[ModelSpec, Tensors]:
        """Call classify or regress; return the answer's model and the outputs."""
        request = messages.parse_examples(data, self._limits)
        with self._models.using(_known(request.model)) as version:
            outputs = run(version.runner, request.model.signature, _merged(request))
            return _answered(request.model, version.number), outputs

    def _metadata(self, data: bytes) -> list[Any]:
        request = messages.parse_metadata(data, self._limits)
        spec = _known(request.model)
        if not request.fields:
            raise Failure(
                INVALID, "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in request.fields:
            if field != "signature_def":
                raise Failure(INVALID, f"Metadata field {field} is not supported")
        with self._models.using(spec) as version:
            # TensorFlow's own messages are sent, because they have the names of its tensors.
            signatures = b"".join(
                piece(1, text(1, name) + piece(2, signature.SerializeToString()))
                for name, signature in version.runner.defs.items()
            )
            packed = text(1, "signature_def") + piece(2, text(1, _MAP) + piece(2, signatures))
            return [piece(1, write_spec(ModelSpec(spec.name, version.number))), piece(2, packed)]

    def _status(self, data: bytes) -> list[Any]:
        return messages.build_status_answer(
            self._models.status(_known(messages.parse_status(data, self._limits)))
        )


def _known(spec: ModelSpec) -> ModelSpec:
    """Return a model spec; raise Failure if it is empty."""
    if spec == ModelSpec(""):
        raise Failure(INVALID, "Missing ModelSpec")
    return spec


def _answered(spec: ModelSpec, version: int) -> ModelSpec:
    """Return the model spec of an answer, with the version and the signature that were used."""
    return ModelSpec(spec.name, version, signature=spec.signature or DEFAULT_NAME)


def _merged(request: messages.RpcExamples) -> Strings:
    """Return the examples of a request with the features of its context.

    Protobuf merges messages that are concatenated, so the context is put before each example.
    """
    if not request.context:
        return request.examples
    return Strings.of(
        [request.context + example for example in request.examples.astext(False).tolist()],
        text=False,
    )
