"""gRPC for asyncio: the same as `rpc`, by grpcio's own asyncio side."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any, Self

from ..._optional import require
from . import Answer, Call, Deadline
from .rpc import FAILURES, GIVE_UP, Line, RpcConnection, answered, joined, refused


class AsyncRpcTransport(RpcConnection):
    """A server that speaks gRPC, for asyncio. Arguments are those of RpcServer.

    >>> async def ask():
    ...     async with AsyncRpcTransport("grpc://127.0.0.1:1") as transport:
    ...         await transport.send(Call("/tensorflow.serving.ModelService/GetModelStatus"), Deadline.after(1))
    >>> asyncio.run(ask())
    Traceback (most recent call last):
    tensorwire.serving.transports.ConnectError: the server was not reached (... refused...); does a
    gRPC server run there? ...
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, call: Call, deadline: Deadline) -> Answer:
        line: Line | None = None
        try:
            deadline.left()
            grpc = require("grpc", extra="serving")
            arguments = self._way.arguments(grpc, call)
            line = self._take(grpc)
            sent = line.channel.unary_unary(call.method)(
                joined(call.body), timeout=deadline.left(), **arguments
            )
            return await self._answer(grpc, sent, deadline)
        except FAILURES as error:
            if line is not None and isinstance(error, GIVE_UP):
                line.given_up = True
            raise error.add(path=f"{self._way.url}{call.method}") from None
        finally:
            if line is not None:
                line.calls -= 1
                await self._end_unused(line)

    async def _answer(self, grpc: ModuleType, sent: Any, deadline: Deadline) -> Answer:
        try:
            body = await sent
            return answered(body, (*await sent.initial_metadata(), *await sent.trailing_metadata()))
        except grpc.RpcError as error:
            said = (*(error.initial_metadata() or ()), *(error.trailing_metadata() or ()))
            return refused(self._way, error.code().value[0], error.details() or "", said, deadline)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not sent.done() or (task is not None and task.cancelling()):
                raise
            # Nobody has cancelled us: grpcio says it so when the server answers CANCELLED.
            code, text, metadata = (
                await sent.code(),
                await sent.details(),
                await sent.trailing_metadata(),
            )
            return refused(self._way, code.value[0], text or "", metadata or (), deadline)

    def _take(self, grpc: ModuleType) -> Line:
        loop = asyncio.get_running_loop()
        # a channel lives and dies with its loop
        if self._line is None or self._line.given_up or self._loop is not loop:
            self._line, self._loop = Line(self._way.open(grpc, aio=True)), loop
        self._line.calls += 1
        return self._line

    async def _end_unused(self, line: Line) -> None:
        if line.given_up and not line.calls:
            await line.channel.close()

    async def close(self) -> None:
        """Ends the connection once the calls that are on their way are finished. A later call
        connects anew.
        """
        line, self._line = self._line, None
        if line is not None and self._loop is asyncio.get_running_loop():
            line.given_up = True
            await self._end_unused(line)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
