"""What is said to a server, without I/O: calls made of tensors, and tensors made of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ...._errors import DecodeError, LimitError, TransportError
from ...._limits import Limits
from ....core.tensors import Array, Strings
from ....wire import json as jsontext
from ...lower import LoweringPlan
from ...rest.examples import Context, Examples
from ...rpc.messages import VersionStatus
from ...transports import Answer, Call

if TYPE_CHECKING:
    from ...signature import Signature

MOST_ABOUT = 16 << 20
"""Bytes of an answer about a model: it becomes Python's own values, which take many times as much.
"""
Tensors = dict[str, Array | Strings]
Watch = Callable[[], object]
"""Called now and then while an answer is read; raises DeadlineError when the time is up."""


class Metadata(NamedTuple):
    """What a server says about a model."""

    model: str
    version: int | str | None
    signatures: Mapping[str, Signature]

    def __str__(self) -> str:
        which = "" if self.version is None else f", version {self.version}"
        return "\n".join([f"{self.model}{which}", *map(str, self.signatures.values())])


class ModelProtocol(Protocol):
    """A protocol that the client can speak."""

    open_inputs: ClassVar[bool]
    """Whether inputs may be left out, and go as they are if the server lists none."""

    def advice(self, plan: LoweringPlan, layout: str) -> str:
        """What may help after the server has refused a request; nothing if nothing is known."""
        ...

    def predict(self, plan: LoweringPlan, outputs: tuple[str, ...], layout: str) -> Call: ...

    def read_predict(
        self, answer: Answer, signature: Signature, limits: Limits, watch: Watch
    ) -> Tensors: ...

    def examples(
        self, verb: str, examples: Examples, context: Context, signature: str | None
    ) -> Call: ...

    def read_examples(self, verb: str, answer: Answer, limits: Limits, watch: Watch) -> Tensors: ...

    def metadata(self) -> Call: ...

    def read_metadata(self, answer: Answer, limits: Limits) -> Metadata: ...

    def status(self) -> Call: ...

    def read_status(self, answer: Answer, limits: Limits) -> tuple[VersionStatus, ...]: ...


def document(answer: Answer, format: str) -> Any:
    """The JSON of an answer about a model."""
    if len(answer.body) > MOST_ABOUT:
        raise LimitError(
            f"{len(answer.body)} bytes about a model; {MOST_ABOUT} are enough for any",
            format=format,
            offset=0,
        )
    found = jsontext.parse(answer.body, format)
    if not isinstance(found, dict):
        raise DecodeError("the answer is no JSON object", format=format, offset=0)
    return found


def check_redirect(answer: Answer) -> Answer:
    """A redirect is no answer, and nobody follows it: what is sent may be meant for one server
    only.
    """
    if 300 <= answer.status < 400:
        where = answer.headers.get("location", "")
        why = f"the server answers {answer.status} and points to {where!r:.200}"
        raise TransportError(f"{why}; redirects are not followed: use that address")
    return answer
