"""The base class of both clients: arguments, transport options and conversion of results."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ... import frameworks
from ..._errors import UsageError, choices
from ..._limits import DEFAULT, Limits
from ..lower import LoweringPlan
from ..signature import DEFAULT as DEFAULT_NAME
from ..signature import Signature
from ..transports import AsyncTransport, Call, Deadline, Transport
from .address import Address
from .call import ModelCalls
from .protocols import ModelProtocol
from .protocols.kserve import KServe
from .protocols.rest import Rest
from .protocols.rpc import Rpc

DEADLINE = 60.0
_CONTENT = ("Content-Type", "Content-Encoding")


class Base(ABC):
    """The address of a model, its protocol and its transport."""

    def __init__(
        self,
        url: str,
        model: str | None = None,
        version: int | str | None = None,
        label: str | None = None,
        signature: str | Signature | None = None,
        deadline: float = DEADLINE,
        *,
        protocol: str | None = None,
        compression: str | None = None,
        binary: bool = True,
        headers: Mapping[str, str] | None = None,
        to: str = "numpy",
        device: object = None,
        attempts: int = 3,
        connect: float = 5.0,
        connections: int | None = None,
        proxy: str | None = None,
        context: ssl.SSLContext | None = None,
        certificates: bytes | None = None,
        limits: Limits = DEFAULT,
        transport: Transport | AsyncTransport | None = None,
    ) -> None:
        self.address = Address.of(url, model, version, label, protocol)
        self._seconds, self._to, self._device = _checked(deadline), to, device
        if compression not in (None, "gzip"):
            raise UsageError(
                f"unknown compression {compression!r} for requests{choices(compression, ['gzip'])}"
            )
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise UsageError(f"attempts= expects a positive integer, got {attempts!r:.60}")
        protocol_used = _protocol(self.address, compression, binary)
        self._calls = ModelCalls(
            protocol_used, DEFAULT_NAME if signature is None else signature, limits, attempts
        )
        options: dict[str, Any] = {"connect": connect, "headers": headers, "limits": limits}
        if self.address.by_rpc:
            if proxy is not None or context is not None:
                raise UsageError(
                    "proxy= and context= are only supported for http:// and https://",
                    hint="grpcs:// takes certificates=",
                )
            if connections is not None:
                raise UsageError(
                    "connections= is only supported for http:// and https://: all gRPC calls share"
                    " one connection"
                )
            options |= {"compression": compression, "certificates": certificates}
        else:
            if certificates is not None:
                raise UsageError(
                    "certificates= is only supported for grpcs://",
                    hint="https:// takes context=ssl.create_default_context(cafile=...)",
                )
            options |= {"proxy": proxy, "context": context}
            options |= {} if connections is None else {"connections": connections}
        self._transport: Any = transport if transport is not None else self._opened(options)

    @abstractmethod
    def _opened(self, options: Mapping[str, Any]) -> Any:
        """Return the transport for this address."""

    def _deadline(self, seconds: float | None) -> Deadline:
        """Return the deadline of a call that starts now."""
        return Deadline.after(self._seconds if seconds is None else _checked(seconds))

    def _converted(self, tensors: Mapping[str, Any], to: str | None) -> dict[str, Any]:
        """Convert the results to the framework of the call or of the client."""
        framework = self._to if to is None else to
        return {
            name: frameworks.to(tensor, framework, self._device) for name, tensor in tensors.items()
        }

    def _explained(self, plan: LoweringPlan, call: Call) -> str:
        """Return the description of a plan, with the address and the size of the request."""
        size = sum(memoryview(part).nbytes for part in call.body)
        content = ", ".join(call.headers[name] for name in _CONTENT if name in call.headers)
        address = self.address
        destination = (
            f"gRPC {call.method} at {address.url}"
            if address.by_rpc
            else f"{call.method} {address.url.rstrip('/')}{call.target}"
        )
        # Only TensorFlow Serving's REST API has rows, so the plan's line about them is left out
        # for gRPC and KServe.
        has_rows = not address.by_rpc and address.protocol == "tensorflow"
        lines = [
            line
            for line in plan.explain().splitlines()
            if has_rows or not line.startswith("  by REST")
        ]
        return "\n".join(
            [*lines, f"  {destination}, {size:,} bytes{f' of {content}' if content else ''}"]
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"


def _checked(seconds: float) -> float:
    """Return a deadline in seconds; raise EncodeError if it is not a positive finite number."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 < seconds < float("inf")
    ):
        raise UsageError(f"deadline= expects a positive number of seconds, got {seconds!r:.60}")
    return float(seconds)


def _protocol(address: Address, compression: str | None, binary: bool) -> ModelProtocol:
    """Return the protocol for an address."""
    if address.by_rpc:
        return Rpc(address)
    return (
        KServe(address, compression, binary)
        if address.protocol == "kserve"
        else Rest(address, compression)
    )
