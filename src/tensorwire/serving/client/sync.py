"""The client for programs without asyncio."""

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
    """A model at a server: TensorFlow Serving by REST (`http://`, `https://`) or gRPC (`grpc://`,
    `grpcs://`), or a KServe v2 server such as Triton (`protocol="kserve"`).

    `model`, and `version` or `label`, say which; the model's own URL, as curl takes it, says it,
    too. `signature` is the name of one of the model's signatures (the server is asked for it once),
    or a `Signature`: from a SavedModel on disk, or in your own words. `deadline` is how many
    seconds a call may take in all.

    `compression="gzip"` packs requests, `headers` go with each of them, `to` is what answers come
    as. `connect` is how many seconds a connection may take, `connections` how many there may be at
    once by HTTP (32; more calls wait for their turn), `attempts` how often a server is asked that
    cannot be reached or is busy, `limits.answer` how large an answer may be. `proxy` is never taken
    from the environment. `context` and `certificates` say whom to trust, by https and by grpcs.
    `transport` replaces what sends the bytes, for tests: see `MockTransport`.

    Threads can share a client. It keeps connections open; `close()` ends them.

    >>> import numpy as np
    >>> from tensorwire.serving import MockTransport, Signature
    >>> signature = Signature.given({"x": ("float32", [None, 2])}, {"y": ("float32", [None])})
    >>> mock = MockTransport.model(lambda x: {"y": x.sum(1)}, signature)
    >>> with Client("http://127.0.0.1:8501", model="adder", transport=mock) as client:
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
        """The model's outputs, by name.

        `inputs` are tensors of any framework by name, or nested lists, which the signature types;
        one alone if the model has one input. Sparse and ragged tensors go in the form that the
        signature has for them; `prefer` chooses another, and `explain` says which it is. `layout`
        is "rows" or "columns", by REST. `outputs` are the names of those that are wanted.
        `cast=True` allows floats to be rounded to the signature's dtype. Outputs that are the parts
        of a sparse or ragged tensor come back as that tensor.
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
        """Labels and scores, {"classes": strings [N, C], "scores": float32 [N, C]}, for examples: a
        list of dicts of features, or a dict of columns. `context` has features that belong to every
        example."""
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
        """One number for each example, {"outputs": float32 [N]}; examples as for `classify`."""
        call = partial(self._calls.examples, "regress", examples, context)
        return self._converted(self._run(call, deadline), to)

    def status(self, *, deadline: float | None = None) -> tuple[VersionStatus, ...]:
        """The model's versions, and the state of each: "AVAILABLE" is one that answers."""
        return self._run(self._calls.status, deadline)

    def metadata(self, *, deadline: float | None = None) -> Metadata:
        """The model's signatures, asked for anew."""
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
        """How these inputs would be sent, and why so, in words. Nothing is sent, but for the
        question for the signature.
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
        """The request that `predict` (or another verb) would send: method, path, headers, and the
        body's buffers.
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
        """Sends a JSON body that you made yourself, as it is, and gives the tensors of the answer."""
        call = partial(self._calls.raw, body, verb)
        return self._converted(self._run(call, deadline), to)

    def signature(self, *, deadline: float | None = None) -> Signature:
        """What the model takes and gives, by the signature that this client uses; the server is
        asked once.
        """
        return self._run(self._calls.find, deadline)

    def close(self) -> None:
        """Ends the connections that are kept open."""
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
        """Sends each request of a call, and gives the call what comes back."""
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
