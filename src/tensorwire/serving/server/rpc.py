"""The gRPC port: TensorFlow Serving's PredictionService and ModelService by grpcio, with bytes in
and out and our own codec.
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
from .http import Log, listen
from .models import Models
from .request_reader import Bounds
from .runner import Runner, Tensors

if TYPE_CHECKING:
    import grpc

_MOST_WORDS = 1024
"""Characters of an error: it travels in a header, which clients bound. Serving cuts it there, too.
"""
_ENVELOPE = 1 << 20
_MAP = "type.googleapis.com/tensorflow.serving.SignatureDefMap"


class RpcServer:
    """Listens from the start; answers between `start` and `stop`."""

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
        with listen(host, port):  # grpcio says on standard error that it cannot, and not why
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
            "grpc.so_reuseport": 0,  # a port that is taken is an error, and not shared
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
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port: int = self._server.add_insecure_port(where)
        except RuntimeError as error:
            self._pool.shutdown()
            raise OSError(f"cannot listen on {where}: {error}") from None

    def start(self) -> None:
        self._server.start()

    def stop(self, grace: float) -> bool:
        """Lets running calls finish, within the grace; others are answered UNAVAILABLE. Whether all
        of them have finished.
        """
        done = self._server.stop(grace).wait(grace + 1)
        self._pool.shutdown(wait=False)
        return bool(done)

    def _answering(
        self, name: str, call: Callable[[bytes], list[Any]]
    ) -> Callable[[bytes, Any], bytes]:
        def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
            started, found, body = time.perf_counter(), Failure(0, ""), b""
            try:
                body = b"".join(call(data))
            except Exception as error:
                found = failure(error)
            if self._log is not None:
                seconds = time.perf_counter() - started
                code = self._codes[found.code].name
                self._log(
                    f"{context.peer()} {name} {code} {len(body)} bytes {seconds * 1000:.1f} ms"
                )
            if found.code:
                cut = "...TRUNCATED" if len(found.message) > _MOST_WORDS else ""
                context.abort(self._codes[found.code], found.message[:_MOST_WORDS] + cut)
            return body

        return answer

    def _predict(self, data: bytes) -> list[Any]:
        asked = messages.parse_predict(data, self._limits)
        with self._models.using(_known(asked.model)) as version:
            outputs = version.runner.predict(asked.model.signature, asked.inputs, asked.outputs)
            spec = _answered(asked.model, version.number)
            return messages.build_predict_answer(spec, outputs, typed=not self._tensor_content)

    def _classify(self, data: bytes) -> list[Any]:
        spec, found = self._examples(classification.classify, data)
        return messages.build_classify_answer(spec, found.get("classes"), found.get("scores"))

    def _regress(self, data: bytes) -> list[Any]:
        spec, found = self._examples(classification.regress, data)
        return messages.build_regress_answer(spec, found["outputs"])

    def _examples(
        self, run: Callable[[Runner, str, Strings], Tensors], data: bytes
    ) -> tuple[ModelSpec, Tensors]:
        asked = messages.parse_examples(data, self._limits)
        with self._models.using(_known(asked.model)) as version:
            outputs = run(version.runner, asked.model.signature, _merged(asked))
            return _answered(asked.model, version.number), outputs

    def _metadata(self, data: bytes) -> list[Any]:
        asked = messages.parse_metadata(data, self._limits)
        spec = _known(asked.model)
        if not asked.fields:
            raise Failure(
                INVALID, "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in asked.fields:
            if field != "signature_def":
                raise Failure(INVALID, f"Metadata field {field} is not supported")
        with self._models.using(spec) as version:
            # TensorFlow's own messages as they are, with the names of its tensors.
            signatures = b"".join(
                piece(1, text(1, name) + piece(2, one.SerializeToString()))
                for name, one in version.runner.defs.items()
            )
            packed = text(1, "signature_def") + piece(2, text(1, _MAP) + piece(2, signatures))
            return [piece(1, write_spec(ModelSpec(spec.name, version.number))), piece(2, packed)]

    def _status(self, data: bytes) -> list[Any]:
        return messages.build_status_answer(
            self._models.status(_known(messages.parse_status(data, self._limits)))
        )


def _known(spec: ModelSpec) -> ModelSpec:
    if spec == ModelSpec(""):
        raise Failure(INVALID, "Missing ModelSpec")
    return spec


def _answered(spec: ModelSpec, version: int) -> ModelSpec:
    """What has answered: with the version and the signature, which the request need not have said."""
    return ModelSpec(spec.name, version, signature=spec.signature or DEFAULT_NAME)


def _merged(asked: messages.RpcExamples) -> Strings:
    """The context's features belong to every example: protobuf merges messages that are written one
    after the other.
    """
    if not asked.context:
        return asked.examples
    return Strings.of(
        [asked.context + one for one in asked.examples.astext(False).tolist()], text=False
    )
