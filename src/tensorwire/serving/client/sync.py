"""The client for threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from ..._errors import TensorwireError
from ...core.tensors import TensorLike
from ..rest.examples import Context, Examples
from ..rpc.messages import VersionStatus
from ..signature import Signature
from ..transports import Answer, Call, Deadline, Transport
from .base import Base
from .call import CallSteps, Pause
from .protocols import Metadata

T = TypeVar("T")


class Client(Base):
    """A client for one model: on TensorFlow Serving by REST (`http://`, `https://`) or gRPC
    (`grpc://`, `grpcs://`), or on a KServe v2 server such as Triton (`protocol="kserve"`).

    url           the server's URL, or the model's own URL: http://host:8501/v1/models/NAME
    model         the name of the model
    version       its version; or `label`, the name of a version. Default: the latest version
    signature     the name of one of the model's signatures, which is fetched from the server once;
                  or a `Signature`, for example one that was read from a SavedModel
    deadline      seconds for a whole call, with all its attempts
    compression   "gzip" compresses requests, and asks for compressed answers
    binary        whether KServe tensors are sent as binary data (default) or as JSON
    headers       HTTP headers or gRPC metadata for every request
    to, device    the framework and device of the results; default: NumPy
    attempts      how often a request is sent if the server is busy or cannot be reached
    connect       seconds to open a connection
    connections   the most concurrent HTTP connections (32); more calls wait for their turn
    proxy         an HTTP proxy; environment variables are ignored
    context       an ssl.SSLContext for https://
    certificates  the authorities to trust for grpcs://, as PEM
    limits        `limits.answer` is the largest answer in bytes
    transport     replaces the network, for tests: see `MockTransport`

    Threads can share a client. It keeps connections alive until `close()`.

    All methods raise ModelError if the server answers with an error, TransportError if it cannot be
    reached or breaks off, DeadlineError if the deadline has passed, and LimitError or DecodeError
    if the answer is too large or not valid. Wrong arguments raise EncodeError.

    >>> import tensorwire as tw
    >>> signature = tw.serving.Signature.given(
    ...     {"x": ("float32", [None, 2])}, {"y": ("float32", [None])})
    >>> mock = tw.serving.MockTransport.model(lambda x: {"y": x.sum(1)}, signature)
    >>> with tw.serving.Client("http://127.0.0.1:8501", model="adder", transport=mock) as client:
    ...     client.predict({"x": [[1, 2], [3, 4]]})
    {'y': array([3., 7.], dtype=float32)}
    """

    def predict(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        *,
        outputs: Sequence[str] | None = None,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Call the model and return its outputs by name.

        inputs    tensors of any framework, or nested lists, by name; or a single value if the model
                  has one input. The signature gives nested lists their dtype
        outputs   the names of the outputs to return; default: all
        prefer    how sparse and ragged tensors are sent, if the signature has several forms for
                  them; `explain` shows the choice
        layout    "rows" or "columns", for REST; default: "auto"
        cast      whether floats may be rounded to the signature's dtype
        to        the framework of the results, instead of the client's

        Outputs that are the parts of a sparse or ragged tensor are returned as that tensor. Inputs
        that do not fit the signature raise EncodeError.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("int32", [None])}, {"y": ("int32", [None])})
        >>> mock = tw.serving.MockTransport.model(lambda x: {"y": x * 2}, signature)
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="double", transport=mock)
        >>> client.predict([1, 2])
        {'y': array([2, 4], dtype=int32)}
        """
        call = partial(
            self._calls.predict,
            inputs,
            outputs=tuple(outputs or ()),
            prefer=prefer,
            layout=layout,
            cast=cast,
        )
        return self._converted(self._run(call, deadline), to)

    def classify(
        self,
        examples: Examples,
        *,
        context: Context = None,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Classify examples and return {"classes": strings [N, C], "scores": float32 [N, C]}.

        `examples` is a list of dicts of features, or a dict of columns; `context` has features
        that belong to every example. Only TensorFlow Serving has this call.

        >>> import tensorwire as tw
        >>> from tensorwire.serving.transports import Answer
        >>> answer = Answer(200, {}, memoryview(b'{"results": [[["cat", 0.75], ["dog", 0.25]]]}'))
        >>> mock = tw.serving.MockTransport.answers([answer])
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="pets", transport=mock)
        >>> client.classify([{"weight": 4.5}])["classes"]
        Strings(b'cat', b'dog'; shape=(1, 2), bytes)
        """
        call = partial(self._calls.examples, "classify", examples, context)
        return self._converted(self._run(call, deadline), to)

    def regress(
        self,
        examples: Examples,
        *,
        context: Context = None,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Return one number for each example, {"outputs": float32 [N]}; see `classify`.

        >>> import tensorwire as tw
        >>> from tensorwire.serving.transports import Answer
        >>> mock = tw.serving.MockTransport.answers(
        ...     [Answer(200, {}, memoryview(b'{"results": [1.5, 2.5]}'))])
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="price", transport=mock)
        >>> client.regress([{"rooms": 3}, {"rooms": 4}])
        {'outputs': array([1.5, 2.5], dtype=float32)}
        """
        call = partial(self._calls.examples, "regress", examples, context)
        return self._converted(self._run(call, deadline), to)

    def status(self, *, deadline: float | None = None) -> tuple[VersionStatus, ...]:
        """Return the status of the model's versions; "AVAILABLE" means that a version is served.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("int32", [None])}, {"y": ("int32", [None])})
        >>> mock = tw.serving.MockTransport.model(lambda x: {"y": x}, signature)
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="m", transport=mock)
        >>> [(status.version, status.state) for status in client.status()]
        [(1, 'AVAILABLE')]
        """
        return self._run(self._calls.status, deadline)

    def metadata(self, *, deadline: float | None = None) -> Metadata:
        """Fetch the model's signatures from the server and return them with name and version.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("int32", [None])}, {"y": ("int32", [None])})
        >>> mock = tw.serving.MockTransport.model(lambda x: {"y": x}, signature)
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="m", transport=mock)
        >>> list(client.metadata().signatures)
        ['serving_default']
        """
        return self._run(self._calls.metadata, deadline)

    def explain(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        *,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
        deadline: float | None = None,
    ) -> str:
        """Return a text that describes how `predict` would send these inputs, and why.

        No inference request is sent. The signature is fetched if it is not known yet.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("int32", [None])}, {"y": ("int32", [None])})
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="m", signature=signature)
        >>> print(client.explain([1, 2]).splitlines()[-1])
          POST http://127.0.0.1:8501/v1/models/m:predict, 22 bytes of application/json
        """
        call = partial(self._calls.planned, inputs, prefer=prefer, layout=layout, cast=cast)
        return self._explained(*self._run(call, deadline))

    def build(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        *,
        verb: str = "predict",
        context: Context = None,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
        deadline: float | None = None,
    ) -> Call:
        """Return the request that `predict` (or another verb) would send, without sending it.

        A `Call` has a method, a path (`target`), headers, and the buffers of the body.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("int32", [None])}, {"y": ("int32", [None])})
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="m", signature=signature)
        >>> call = client.build([1, 2])
        >>> call.target, b"".join(call.body)
        ('/v1/models/m:predict', b'{"inputs":{"x":[1,2]}}')
        """
        if verb != "predict":
            return self._calls.build_examples(verb, inputs, context)
        call = partial(self._calls.planned, inputs, prefer=prefer, layout=layout, cast=cast)
        return self._run(call, deadline)[1]

    def send(
        self,
        body: bytes,
        *,
        verb: str = "predict",
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Send a JSON body unchanged and return the tensors of the answer, by REST only.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("int32", [None])}, {"y": ("int32", [None])})
        >>> mock = tw.serving.MockTransport.model(lambda x: {"y": x * 2}, signature)
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="m", transport=mock)
        >>> client.send(b'{"instances": [1, 2]}')
        {'y': array([2, 4], dtype=int32)}
        """
        call = partial(self._calls.raw, body, verb)
        return self._converted(self._run(call, deadline), to)

    def signature(self, *, deadline: float | None = None) -> Signature:
        """Return the signature that this client uses; it is fetched from the server once.

        >>> import tensorwire as tw
        >>> signature = tw.serving.Signature.given({"x": ("int32", [None])}, {"y": ("int32", [None])})
        >>> mock = tw.serving.MockTransport.model(lambda x: {"y": x}, signature)
        >>> client = tw.serving.Client("http://127.0.0.1:8501", model="m", transport=mock)
        >>> list(client.signature().inputs)
        ['x']
        """
        return self._run(self._calls.find, deadline)

    def close(self) -> None:
        """Close the idle connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, options: Mapping[str, Any]) -> Transport:
        if self.address.by_rpc:
            from ..transports.rpc import RpcTransport

            return RpcTransport(self.address.url, **options)
        from ..transports.http_client import HttpTransport

        return HttpTransport(self.address.url, **options)

    def _run(self, call: Callable[[Deadline], CallSteps[T]], seconds: float | None) -> T:
        """Send each request of a call, pass the answers or errors to it, and return its result."""
        deadline = self._deadline(seconds)
        steps = call(deadline)
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._send(request, deadline)
                except TensorwireError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _send(self, request: Call | Pause, deadline: Deadline) -> Answer | None:
        if isinstance(request, Call):
            answer: Answer = self._transport.send(request, deadline)
            return answer
        time.sleep(request.seconds)
        return None
