"""A request in words."""

from __future__ import annotations

from ..lower import LoweringPlan
from ..transports import Call
from .address import Address

_HEADERS = ("Content-Type", "Content-Encoding")


def explain(plan: LoweringPlan, call: Call, address: Address) -> str:
    """How a plan goes over the wire: where to, in which form, how many bytes."""
    size = sum(memoryview(part).nbytes for part in call.body)
    said = ", ".join(call.headers[name] for name in _HEADERS if name in call.headers)
    where = (
        f"gRPC {call.method} at {address.url}"
        if address.by_rpc
        else f"{call.method} {address.url.rstrip('/')}{call.target}"
    )
    # By gRPC and KServe there are no rows.
    words = [
        line
        for line in plan.explain().splitlines()
        if not line.startswith("  by REST") or _is_rest(address)
    ]
    return "\n".join([*words, f"  {where}, {size:,} bytes{f' of {said}' if said else ''}"])


def _is_rest(address: Address) -> bool:
    return not address.by_rpc and address.protocol == "tensorflow"
