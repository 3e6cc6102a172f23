"""Protocols of model servers, without I/O: they build calls from tensors and parse answers."""

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
"""The most bytes of metadata: as Python objects they take many times as much memory."""
Tensors = dict[str, Array | Strings]
Watch = Callable[[], object]
"""Called now and then while an answer is parsed; raises DeadlineError after the deadline."""


class Metadata(NamedTuple):
    """A model's name, version and signatures, as a server reports them."""

    model: str
    version: int | str | None
    signatures: Mapping[str, Signature]

    def __str__(self) -> str:
        which = "" if self.version is None else f", version {self.version}"
        return "\n".join([f"{self.model}{which}", *map(str, self.signatures.values())])


class ModelProtocol(Protocol):
    """A protocol of a model server."""

    open_inputs: ClassVar[bool]
    """Whether inputs may be left out, and are sent unchanged if the server lists none."""

    def advice(self, plan: LoweringPlan, layout: str) -> str:
        """Return advice for a request that the server has refused, or an empty string."""
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
    """Return the JSON object of an answer with metadata."""
    if len(answer.body) > MOST_ABOUT:
        raise LimitError(
            f"the metadata has {len(answer.body)} bytes, the limit is {MOST_ABOUT}",
            format=format,
            offset=0,
        )
    value = jsontext.parse(answer.body, format)
    if not isinstance(value, dict):
        raise DecodeError("the answer is not a JSON object", format=format, offset=0)
    return value


def check_redirect(answer: Answer) -> Answer:
    """Raise TransportError for a redirect, else return the answer.

    Redirects are not followed, because the request may be meant for this server only.
    """
    if 300 <= answer.status < 400:
        location = answer.headers.get("location", "")
        raise TransportError(
            f"the server redirects to {location!r:.200} (status {answer.status}); redirects are"
            " not followed",
            hint="use that URL",
        )
    return answer
