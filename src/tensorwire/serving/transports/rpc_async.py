"""The gRPC transport for asyncio, by `grpc.aio`."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from ..._optional import require
from . import Answer, Call, Deadline
from .rpc import FAILURES, RpcConnection, SharedChannel, answered, joined, refused

if TYPE_CHECKING:
    import grpc


class AsyncRpcTransport(RpcConnection):
    """gRPC for asyncio, with the arguments of RpcConnection. Tasks can share it.

    >>> async def ask():
    ...     call = Call("/tensorflow.serving.ModelService/GetModelStatus")
    ...     async with AsyncRpcTransport("grpc://127.0.0.1:1") as transport:
    ...         await transport.send(call, Deadline.after(1))
    >>> asyncio.run(ask())
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: cannot connect to the gRPC server: ... refused...;
    is a gRPC server running there?
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, call: Call, deadline: Deadline) -> Answer:
        """Send a call and return its answer."""
        channel: SharedChannel | None = None
        try:
            deadline.left()
            grpc = require("grpc", extra="serving")
            arguments = self._target.arguments(grpc, call)
            channel = self._take(grpc)
            sent = channel.grpc.unary_unary(call.method)(
                joined(call.body), timeout=deadline.left(), **arguments
            )
            return await self._answer(grpc, sent, deadline)
        except FAILURES as error:
            raise self._failed(error, call, channel) from None
        finally:
            if channel is not None:
                channel.calls -= 1
                await self._end_unused(channel)

    async def _answer(
        self, grpc: ModuleType, sent: grpc.aio.UnaryUnaryCall, deadline: Deadline
    ) -> Answer:
        try:
            body = await sent
            return answered(body, (*await sent.initial_metadata(), *await sent.trailing_metadata()))
        except grpc.RpcError as error:
            return self._refused(error, deadline)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not sent.done() or (task is not None and task.cancelling()):
                raise
            # This task was not cancelled: grpcio raises the same when the server answers CANCELLED.
            code, text, metadata = (
                await sent.code(),
                await sent.details(),
                await sent.trailing_metadata(),
            )
            return refused(self._target, code.value[0], text or "", metadata or (), deadline)

    def _take(self, grpc: ModuleType) -> SharedChannel:
        loop = asyncio.get_running_loop()
        # A channel of grpc.aio belongs to the event loop in which it was created.
        if self._channel is None or self._channel.given_up or self._loop is not loop:
            self._channel, self._loop = SharedChannel(self._target.open(grpc, aio=True)), loop
        self._channel.calls += 1
        return self._channel

    async def _end_unused(self, channel: SharedChannel) -> None:
        if channel.given_up and not channel.calls:
            await channel.grpc.close()

    async def close(self) -> None:
        """Close the channel when the calls in progress are finished; a later call opens a new one."""
        channel, self._channel = self._channel, None
        if channel is not None and self._loop is asyncio.get_running_loop():
            channel.given_up = True
            await self._end_unused(channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
