"""The client for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from ..._errors import TensorwireError
from ...core.tensors import TensorLike
from ..rest.examples import Context, Examples
from ..rpc.messages import VersionStatus
from ..signature import Signature
from ..transports import AsyncTransport, Call, Deadline
from .base import Base
from .call import CallSteps, Pause
from .protocols import Metadata

T = TypeVar("T")
HEAVY = 1 << 18
"""Bytes that take longer to encode or decode than it takes to hand them to a thread."""


class AsyncClient(Base):
    """A client for asyncio, with the arguments, methods and errors of `Client`.

    Every method is a coroutine. `async with` closes the client. Large tensors are encoded and
    decoded in a thread, so that the event loop is not blocked.

    >>> import asyncio
    >>> import tensorwire as tw
    >>> signature = tw.serving.Signature.given(
    ...     {"x": ("float32", [None, 2])}, {"y": ("float32", [None])})
    >>> mock = tw.serving.MockTransport.model(lambda x: {"y": x.sum(1)}, signature)
    >>> async def main():
    ...     url = "http://127.0.0.1:8501"
    ...     async with tw.serving.AsyncClient(url, model="adder", transport=mock) as client:
    ...         return await asyncio.gather(client.predict([[1, 2]]), client.predict([[3, 4]]))
    >>> asyncio.run(main())
    [{'y': array([3.], dtype=float32)}, {'y': array([7.], dtype=float32)}]
    """

    async def predict(
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
        """See `Client.predict`."""
        call = partial(
            self._calls.predict,
            inputs,
            outputs=tuple(outputs or ()),
            prefer=prefer,
            layout=layout,
            cast=cast,
        )
        return self._converted(await self._run(call, deadline, _weight(inputs)), to)

    async def classify(
        self,
        examples: Examples,
        *,
        context: Context = None,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """See `Client.classify`."""
        call = partial(self._calls.examples, "classify", examples, context)
        return self._converted(await self._run(call, deadline), to)

    async def regress(
        self,
        examples: Examples,
        *,
        context: Context = None,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """See `Client.regress`."""
        call = partial(self._calls.examples, "regress", examples, context)
        return self._converted(await self._run(call, deadline), to)

    async def status(self, *, deadline: float | None = None) -> tuple[VersionStatus, ...]:
        """See `Client.status`."""
        return await self._run(self._calls.status, deadline)

    async def metadata(self, *, deadline: float | None = None) -> Metadata:
        """See `Client.metadata`."""
        return await self._run(self._calls.metadata, deadline)

    async def explain(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        *,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
        deadline: float | None = None,
    ) -> str:
        """See `Client.explain`."""
        call = partial(self._calls.planned, inputs, prefer=prefer, layout=layout, cast=cast)
        return self._explained(*(await self._run(call, deadline)))

    async def build(
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
        """See `Client.build`."""
        if verb != "predict":
            return self._calls.build_examples(verb, inputs, context)
        call = partial(self._calls.planned, inputs, prefer=prefer, layout=layout, cast=cast)
        return (await self._run(call, deadline))[1]

    async def send(
        self,
        body: bytes,
        *,
        verb: str = "predict",
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """See `Client.send`."""
        call = partial(self._calls.raw, body, verb)
        return self._converted(await self._run(call, deadline), to)

    async def signature(self, *, deadline: float | None = None) -> Signature:
        """See `Client.signature`."""
        return await self._run(self._calls.find, deadline)

    async def close(self) -> None:
        """See `Client.close`."""
        await _result(self._transport.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _opened(self, options: Mapping[str, Any]) -> AsyncTransport:
        if self.address.by_rpc:
            from ..transports.rpc_async import AsyncRpcTransport

            return AsyncRpcTransport(self.address.url, **options)
        from ..transports.http_async import AsyncHttpTransport

        return AsyncHttpTransport(self.address.url, **options)

    async def _run(
        self,
        call: Callable[[Deadline], CallSteps[T]],
        seconds: float | None,
        weight: int = 0,
    ) -> T:
        """Send each request of a call, pass the answers or errors to it, and return its result.

        `weight` is the approximate number of bytes to encode.
        """
        deadline = self._deadline(seconds)
        steps = call(deadline)
        done, request = await _step(weight, steps.send, None)
        while not done:
            try:
                if isinstance(request, Pause):
                    await asyncio.sleep(request.seconds)
                    answer, size = None, weight
                else:
                    answer = await _result(self._transport.send(request, deadline))
                    size = len(answer.body)
            except TensorwireError as error:
                done, request = await _step(weight, steps.throw, error)
            else:
                done, request = await _step(max(size, weight), steps.send, answer)
        result: T = request
        return result


async def _step(weight: int, step: Callable[..., Any], argument: object) -> tuple[bool, Any]:
    """Advance a call and return (done, its result or its next request).

    A heavy step runs in a thread.
    """

    # StopIteration cannot be the exception of a future, so it is caught inside the thread.
    def taken() -> tuple[bool, Any]:
        try:
            return False, step(argument)
        except StopIteration as stop:
            return True, stop.value

    return await asyncio.to_thread(taken) if weight > HEAVY else taken()


def _weight(inputs: Mapping[str, TensorLike] | TensorLike) -> int:
    """Return the approximate number of bytes of the inputs."""
    values = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return sum(size for value in values if isinstance(size := getattr(value, "nbytes", 0), int))


async def _result(value: T | Awaitable[T]) -> Any:
    """Return the result of a transport's method: MockTransport's are not coroutines."""
    return await value if inspect.isawaitable(value) else value
