"""What both clients are made of, by the same arguments."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ... import frameworks
from ..._errors import EncodeError, choices
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
    """Where the model is, what is said to it, and by which transport."""

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
            raise EncodeError(
                f"no compression {compression!r} of requests{choices(compression, ['gzip'])}"
            )
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise EncodeError(f"attempts={attempts!r}; at least one is needed")
        protocol_used = _protocol(self.address, compression, binary)
        self._calls = ModelCalls(
            protocol_used, DEFAULT_NAME if signature is None else signature, limits, attempts
        )
        options: dict[str, Any] = {"connect": connect, "headers": headers, "limits": limits}
        if self.address.by_rpc:
            if proxy is not None or context is not None:
                raise EncodeError(
                    "proxy= and context= are for http:// and https://; grpcs:// takes certificates="
                )
            if connections is not None:
                raise EncodeError(
                    "connections= is for http:// and https://; all calls by gRPC share one"
                    " connection"
                )
            options |= {"compression": compression, "certificates": certificates}
        else:
            if certificates is not None:
                raise EncodeError(
                    "certificates= is for grpcs://; https:// takes"
                    " context=ssl.create_default_context(cafile=...)"
                )
            options |= {"proxy": proxy, "context": context}
            options |= {} if connections is None else {"connections": connections}
        self._transport: Any = transport if transport is not None else self._opened(options)

    @abstractmethod
    def _opened(self, options: Mapping[str, Any]) -> Any:
        """The transport for this address."""

    def _deadline(self, seconds: float | None) -> Deadline:
        return Deadline.after(self._seconds if seconds is None else _checked(seconds))

    def _converted(self, found: Mapping[str, Any], to: str | None) -> dict[str, Any]:
        framework = self._to if to is None else to
        return {
            name: frameworks.to(tensor, framework, self._device) for name, tensor in found.items()
        }

    def _explained(self, plan: LoweringPlan, call: Call) -> str:
        """How a plan goes over the wire: to which address, in which form, how many bytes."""
        size = sum(memoryview(part).nbytes for part in call.body)
        content = ", ".join(call.headers[name] for name in _CONTENT if name in call.headers)
        address = self.address
        where = (
            f"gRPC {call.method} at {address.url}"
            if address.by_rpc
            else f"{call.method} {address.url.rstrip('/')}{call.target}"
        )
        # By gRPC and KServe there are no rows.
        has_rows = not address.by_rpc and address.protocol == "tensorflow"
        lines = [
            line
            for line in plan.explain().splitlines()
            if has_rows or not line.startswith("  by REST")
        ]
        return "\n".join(
            [*lines, f"  {where}, {size:,} bytes{f' of {content}' if content else ''}"]
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"


def _checked(seconds: float) -> float:
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not 0 < seconds < float("inf")
    ):
        raise EncodeError(f"a deadline is a number of seconds, and not {seconds!r:.60}")
    return float(seconds)


def _protocol(address: Address, compression: str | None, binary: bool) -> ModelProtocol:
    if address.by_rpc:
        return Rpc(address)
    return (
        KServe(address, compression, binary)
        if address.protocol == "kserve"
        else Rest(address, compression)
    )
