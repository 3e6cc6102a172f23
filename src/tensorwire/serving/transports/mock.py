"""A transport for tests: without a server or a network, but with the real bytes of each protocol."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..._errors import EncodeError, ModelError, UsageError
from ..._limits import DEFAULT
from .. import kserve, rest
from ..lower.lift import together
from ..rpc import messages
from ..signature import Signature
from . import Answer, Call, Deadline

Model = Callable[..., Any]


_NOT_MOCKED = (
    "MockTransport.model supports predict, metadata and status; use MockTransport(respond) for"
    " other calls"
)


class MockTransport:
    """A transport for tests: returns prepared answers and records the calls in `calls`.

    `respond` gets each Call, and returns an Answer or raises an error of a transport.
    `MockTransport.model` answers by a function, over REST, gRPC and KServe; `MockTransport.answers`
    by a list. Pass it as `transport=` to `Client` or `AsyncClient`.

    >>> import tensorwire as tw
    >>> from tensorwire.serving.transports import Answer
    >>> busy = Answer(503, {}, memoryview(b'{"error": "loading"}'))
    >>> mock = tw.serving.MockTransport.answers([busy, busy, busy])
    >>> signature = tw.serving.Signature.given({"x": ("float32", [None])})
    >>> client = tw.serving.Client(
    ...     "http://127.0.0.1:8501", model="m", signature=signature, transport=mock)
    >>> client.predict([1, 2])
    Traceback (most recent call last):
        ...
    tensorwire._errors.ModelError: 503: loading
    >>> [call.target for call in mock.calls]
    ['/v1/models/m:predict', '/v1/models/m:predict', '/v1/models/m:predict']
    """

    def __init__(self, respond: Callable[[Call], Answer]) -> None:
        self.respond = respond
        self.calls: list[Call] = []
        self.is_closed = False

    @classmethod
    def answers(cls, answers: Iterable[Answer | Exception]) -> MockTransport:
        """Return a transport that gives these answers, one per call; errors are raised.

        A call after the last answer raises EncodeError.

        >>> import tensorwire as tw
        >>> mock = tw.serving.MockTransport.answers([tw.TransportError("connection reset")])
        >>> tw.serving.Client("http://127.0.0.1:8501", model="m", transport=mock).status()
        Traceback (most recent call last):
        tensorwire._errors.TransportError: connection reset
        """
        waiting = iter(answers)

        def respond(call: Call) -> Answer:
            answer = next(waiting, None)
            if answer is None:
                raise EncodeError("the mock has no more answers")
            if isinstance(answer, Exception):
                raise answer
            return answer

        return cls(respond)

    @classmethod
    def model(cls, function: Model, signature: Signature) -> MockTransport:
        """Return a transport that answers like a server of a model with this signature.

        `function` gets the inputs by name, with sparse and ragged tensors reassembled, and returns
        the outputs by name. It serves predict, metadata and status.

        >>> import numpy as np
        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given(
        ...     {"ids": ("ragged", "int64", [None, None])}, {"count": ("int64", [None])})
        >>> mock = tw.serving.MockTransport.model(
        ...     lambda ids: {"count": np.diff(ids.row_splits[0])}, signature)
        >>> client = tw.serving.Client("grpc://127.0.0.1:8500", model="m", transport=mock)
        >>> client.predict([[1, 2], [3]])
        {'count': array([2, 1])}
        """
        return cls(_Model(function, signature).respond)

    def send(self, call: Call, deadline: Deadline) -> Answer:
        """Record a call and return its answer; raise EncodeError after `close`."""
        if self.is_closed:
            raise UsageError("the client is closed")
        self.calls.append(call)
        return self.respond(call)

    def close(self) -> None:
        self.is_closed = True


class _Model:
    """A function with a signature, served over REST, gRPC and KServe."""

    def __init__(self, function: Model, signature: Signature) -> None:
        self.function, self.signature = function, signature

    def respond(self, call: Call) -> Answer:
        body = b"".join(call.body)
        if call.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        try:
            headers, answer = (
                self._rpc(call, body) if call.method.startswith("/") else self._http(call, body)
            )
        except ModelError as error:
            status, message = error.args
            text = (
                message.encode()
                if call.method.startswith("/")
                else json.dumps({"error": message}).encode()
            )
            return Answer(status, {}, memoryview(text))
        return Answer(200, headers, memoryview(b"".join(answer)))

    def _http(self, call: Call, body: bytes) -> tuple[Mapping[str, str], list[Any]]:
        target = call.target
        if target.startswith("/v2/"):
            if target.endswith("/infer"):
                encoded = kserve.build_answer(
                    self._run(kserve.parse_request(body, call.headers)), binary=_is_binary(call)
                )
                return {
                    name.lower(): value for name, value in encoded.headers.items()
                }, encoded.chunks
            return {}, [
                (
                    b""
                    if target.endswith("/ready")
                    else json.dumps(kserve.described(self.signature)).encode()
                )
            ]
        if target.endswith(":predict"):
            request = rest.parse_request(body, self.signature)
            assert isinstance(request, rest.RestRequest)
            return {}, list(rest.build_answer(self._run(request.inputs), request.layout))
        if target.endswith("/metadata"):
            signatures = {
                "signature_def": {"signature_def": {self.signature.name: self.signature.metadata()}}
            }
            return {}, [
                json.dumps(
                    {
                        "model_spec": {"name": "mock", "signature_name": "", "version": "1"},
                        "metadata": signatures,
                    }
                ).encode()
            ]
        if call.method == "GET":
            return {}, [
                b'{"model_version_status":[{"version":"1","state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}]}'
            ]
        raise ModelError(501, _NOT_MOCKED)

    def _rpc(self, call: Call, body: bytes) -> tuple[Mapping[str, str], list[Any]]:
        if call.method == messages.PREDICT:
            request = messages.parse_predict(body, DEFAULT)
            outputs = self._run(request.inputs)
            wanted = (
                {name: outputs[name] for name in request.outputs} if request.outputs else outputs
            )
            return {}, messages.build_predict_answer(request.model, wanted, typed=True)
        if call.method == messages.METADATA:
            return {}, messages.build_metadata_answer(
                messages.parse_metadata(body, DEFAULT).model, {self.signature.name: self.signature}
            )
        if call.method == messages.STATUS:
            return {}, messages.build_status_answer([messages.VersionStatus(1, "AVAILABLE", 0, "")])
        raise ModelError(501, _NOT_MOCKED)

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self.function(**together(inputs, self.signature.groups()))
        if isinstance(outputs, Mapping):
            return dict(outputs)
        return {next(iter(self.signature.outputs), "output_0"): outputs}


def _is_binary(call: Call) -> bool:
    return any(name.lower() == "inference-header-content-length" for name in call.headers)
