"""The client for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from ..._errors import TensorwireError
from ..rpc.messages import VersionStatus
from ..signature import Signature
from ..transports import AsyncTransport, Call, Deadline
from .base import Base
from .call import Pause, Talk
from .explaining import explain
from .protocols import Metadata

T = TypeVar("T")
HEAVY = 1 << 18
"""Bytes that take longer to write or read than a thread takes to begin."""


class AsyncClient(Base):
    """`Client` for asyncio: the same arguments, the same methods, each of which is awaited. `async
    with` closes it.

    >>> import asyncio
    >>> from tensorwire.serving import MockTransport, Signature
    >>> signature = Signature.given({"x": ("float32", [None, 2])}, {"y": ("float32", [None])})
    >>> mock = MockTransport.model(lambda x: {"y": x.sum(1)}, signature)
    >>> async def main():
    ...     async with AsyncClient("http://127.0.0.1:8501", model="adder", transport=mock) as client:
    ...         return await asyncio.gather(client.predict([[1, 2]]), client.predict([[3, 4]]))
    >>> asyncio.run(main())
    [{'y': array([3.], dtype=float32)}, {'y': array([7.], dtype=float32)}]
    """

    async def predict(
        self,
        inputs: Any,
        *,
        outputs: Sequence[str] | None = None,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """As `Client` does."""
        end = self._deadline(deadline)
        talk = self._conversation.predict(
            inputs, end, outputs=tuple(outputs or ()), prefer=prefer, layout=layout, cast=cast
        )
        return self._converted(await self._drive(talk, end, _weight(inputs)), to)

    async def classify(
        self,
        examples: Any,
        *,
        context: Any = None,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """As `Client` does."""
        return await self._examples("classify", examples, context, to, deadline)

    async def regress(
        self,
        examples: Any,
        *,
        context: Any = None,
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """As `Client` does."""
        return await self._examples("regress", examples, context, to, deadline)

    async def status(self, *, deadline: float | None = None) -> tuple[VersionStatus, ...]:
        """As `Client` does."""
        end = self._deadline(deadline)
        return await self._drive(self._conversation.status(end), end)

    async def metadata(self, *, deadline: float | None = None) -> Metadata:
        """As `Client` does."""
        end = self._deadline(deadline)
        return await self._drive(self._conversation.metadata(end), end)

    async def explain(
        self,
        inputs: Any,
        *,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
        deadline: float | None = None,
    ) -> str:
        """As `Client` does."""
        planned, call = await self._planned(inputs, prefer, layout, cast, deadline)
        return explain(planned, call, self.address)

    async def build(
        self,
        inputs: Any,
        *,
        verb: str = "predict",
        context: Any = None,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
        deadline: float | None = None,
    ) -> Call:
        """As `Client` does."""
        if verb != "predict":
            return self._conversation.build_examples(verb, inputs, context)
        return (await self._planned(inputs, prefer, layout, cast, deadline))[1]

    async def send(
        self,
        body: bytes,
        *,
        verb: str = "predict",
        to: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """As `Client` does."""
        end = self._deadline(deadline)
        return self._converted(await self._drive(self._conversation.raw(body, verb, end), end), to)

    async def signature(self, *, deadline: float | None = None) -> Signature:
        """As `Client` does."""
        end = self._deadline(deadline)
        return await self._drive(self._conversation.find(end), end)

    async def close(self) -> None:
        """As `Client` does."""
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

    async def _planned(
        self, inputs: Any, prefer: Any, layout: str, cast: bool, deadline: float | None
    ) -> tuple[Any, Call]:
        end, talk = self._deadline(deadline), self._conversation
        planned = await self._drive(talk.plan(inputs, end, prefer=prefer, cast=cast), end)
        return planned, talk.build(planned, (), layout)

    async def _examples(
        self, verb: str, examples: Any, context: Any, to: str | None, deadline: float | None
    ) -> dict[str, Any]:
        end = self._deadline(deadline)
        return self._converted(
            await self._drive(self._conversation.examples(verb, examples, context, end), end), to
        )

    async def _drive(self, talk: Talk[T], deadline: Deadline, weight: int = 0) -> T:
        """Sends what the conversation says, and tells it what comes back. A thread writes and reads
        large tensors, beside the loop.
        """
        done, wish = await _step(weight, talk.send, None)
        while not done:
            try:
                if isinstance(wish, Pause):
                    await asyncio.sleep(wish.seconds)
                    answer, size = None, weight
                else:
                    answer = await _result(self._transport.send(wish, deadline))
                    size = len(answer.body)
            except TensorwireError as error:
                done, wish = await _step(weight, talk.throw, error)
            else:
                done, wish = await _step(max(size, weight), talk.send, answer)
        found: T = wish
        return found


async def _step(weight: int, step: Callable[..., Any], argument: Any) -> tuple[bool, Any]:
    """(whether the conversation is at its end, its next wish or what it found)"""

    def taken() -> tuple[bool, Any]:  # StopIteration does not pass through a thread's result
        try:
            return False, step(argument)
        except StopIteration as end:
            return True, end.value

    return await asyncio.to_thread(taken) if weight > HEAVY else taken()


def _weight(inputs: Any) -> int:
    """About how many bytes there are to write."""
    values = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return sum(size for value in values if isinstance(size := getattr(value, "nbytes", 0), int))


async def _result(found: Any) -> Any:
    """What a transport gives, which for tests may be one that does not wait."""
    return await found if inspect.isawaitable(found) else found
