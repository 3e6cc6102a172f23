"""Calls to a model with their retries, without I/O.

1. A call is a generator. It yields a Call to send or a Pause to wait for, and gets the Answer.
2. A request is sent again if the server could not be reached, or answers 429 or 503 (by gRPC
   RESOURCE_EXHAUSTED or UNAVAILABLE), at most `attempts` times in all.
3. Retries wait with exponential backoff and full jitter, or as long as Retry-After says. If the
   deadline leaves no time for that, the last error or answer is final.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar, cast

from ..._errors import (
    DecodeError,
    EncodeError,
    LimitError,
    ModelError,
    SchemaError,
    TensorwireError,
    choices,
)
from ..._limits import DEFAULT, Limits
from ...core.memory import Buffer
from ...core.tensors import TensorLike
from .. import composite
from ..lower import LoweringPlan, as_given, plan
from ..lower.lift import outputs_together
from ..rest import LAYOUTS
from ..rest.examples import Context, Examples
from ..rpc.messages import VersionStatus
from ..signature import DEFAULT as DEFAULT_NAME
from ..signature import Signature
from ..transports import Answer, Call, ConnectError, Deadline
from .address import VERBS
from .protocols import Metadata, ModelProtocol, Tensors, check_redirect
from .protocols.kserve import KServe
from .protocols.rest import Rest

BUSY = (429, 503)
MISFITS = (400, 422)
"""What servers answer to inputs that are not those of the model."""
NOT_BINARY = (400, 415, 422, 500)
"""What KServe servers without the binary extension answer to bytes behind the JSON."""
_FIRST, _MOST = 0.1, 5.0
"""Seconds that may pass before the second attempt, and before any other."""

T = TypeVar("T")


class Pause(NamedTuple):
    """Nothing is to be sent for so many seconds."""

    seconds: float


CallSteps = Generator[Call | Pause, Any, T]


@dataclass
class ModelCalls:
    """The calls that a client can make to one model."""

    protocol: ModelProtocol
    signature: str | Signature = DEFAULT_NAME
    """A signature, or the name of one that the server knows."""
    limits: Limits = DEFAULT
    attempts: int = 3
    chance: Callable[[], float] = field(default=random.random, repr=False)
    known: dict[str, Signature] = field(default_factory=dict, repr=False)
    """What the server has told; asked for once."""

    def predict(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        deadline: Deadline,
        *,
        outputs: tuple[str, ...] = (),
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
    ) -> CallSteps[dict[str, Any]]:
        def prepared(signature: Signature) -> tuple[LoweringPlan, tuple[str, ...]]:
            return self.fit(inputs, signature, prefer, cast), _wanted(outputs, signature)

        cached = self.cached
        try:
            planned, wanted = prepared((yield from self.find(deadline)))
        except EncodeError:
            changed = yield from self._changed(cached, deadline)
            if changed is None:
                raise
            cached, (planned, wanted) = None, prepared(changed)
        answer, protocol = yield from self._infer(planned, wanted, layout, deadline)
        if answer.status in MISFITS and (changed := (yield from self._changed(cached, deadline))):
            cached, (planned, wanted) = None, prepared(changed)
            answer, protocol = yield from self._infer(planned, wanted, layout, deadline)
        try:
            whole = self._read(answer, protocol, planned, wanted, layout, deadline)
        except (SchemaError, DecodeError) as error:
            changed = (
                None
                if isinstance(error, LimitError)
                else (yield from self._changed(cached, deadline))
            )
            if changed is None:
                raise
            # The model has answered: the request is not sent again, but its answer is read again.
            planned, wanted = replace(planned, signature=changed), _wanted(outputs, changed)
            whole = self._read(answer, protocol, planned, wanted, layout, deadline)
        return (
            {name: whole[name] for name in outputs}
            if outputs and set(outputs) <= whole.keys()
            else whole
        )

    def _read(
        self,
        answer: Answer,
        protocol: ModelProtocol,
        planned: LoweringPlan,
        wanted: tuple[str, ...],
        layout: str,
        deadline: Deadline,
    ) -> dict[str, Any]:
        signature = planned.signature
        try:
            found = protocol.read_predict(answer, signature, self.limits, deadline.left)
        except ModelError as error:
            advice = protocol.advice(planned, layout) if error.status in MISFITS else ""
            raise (
                ModelError(error.status, f"{error.args[1]}; {advice}") if advice else error
            ) from None
        return outputs_together(_chosen(found, wanted or tuple(signature.outputs)), signature)

    def _infer(
        self, planned: LoweringPlan, wanted: tuple[str, ...], layout: str, deadline: Deadline
    ) -> CallSteps[tuple[Answer, ModelProtocol]]:
        """The answer to a request, and how it was asked for.

        A KServe server without the binary extension is asked once more, in JSON, and from then on
        in JSON only.
        """
        protocol = self.protocol  # another thread may change it
        answer = yield from self.ask(self.build(planned, wanted, layout, protocol), deadline)
        if not isinstance(protocol, KServe) or not protocol.binary or protocol.confirmed:
            return answer, protocol
        if answer.status == 200:
            self.protocol = replace(protocol, confirmed=True)
        if answer.status not in NOT_BINARY or protocol.lists_binary(
            (yield from self.ask(protocol.server(), deadline))
        ):
            return answer, protocol
        plain = replace(protocol, binary=False)
        try:
            call = plain.predict(planned, wanted, layout)
        except EncodeError:  # there are values that JSON cannot hold
            return answer, protocol
        answer = yield from self.ask(call, deadline)
        if answer.status == 200:
            self.protocol = plain
        return answer, plain

    @property
    def cached(self) -> Signature | None:
        """The signature that the server told at an earlier call."""
        return self.known.get(self.signature) if isinstance(self.signature, str) else None

    def _changed(self, cached: Signature | None, deadline: Deadline) -> CallSteps[Signature | None]:
        """The signature that the server has now, if it differs from the cached one."""
        if cached is None:
            return None
        try:
            answer = yield self.protocol.metadata()
            self.known = dict(self.protocol.read_metadata(answer, self.limits).signatures)
        except TensorwireError:
            return None
        return None if self.cached == cached else self.cached

    def fit(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        signature: Signature,
        prefer: str | Mapping[str, str] | None,
        cast: bool,
    ) -> LoweringPlan:
        if self.protocol.open_inputs and not signature.inputs:
            return as_given(inputs, signature)
        return plan(inputs, signature, prefer, cast=cast, partial=self.protocol.open_inputs)

    def plan(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        deadline: Deadline,
        *,
        prefer: str | Mapping[str, str] | None = None,
        cast: bool = False,
    ) -> CallSteps[LoweringPlan]:
        cached = self.cached
        try:
            return self.fit(inputs, (yield from self.find(deadline)), prefer, cast)
        except EncodeError:
            changed = yield from self._changed(cached, deadline)
            if changed is None:
                raise
            return self.fit(inputs, changed, prefer, cast)

    def planned(
        self,
        inputs: Mapping[str, TensorLike] | TensorLike,
        deadline: Deadline,
        *,
        prefer: str | Mapping[str, str] | None = None,
        layout: str = "auto",
        cast: bool = False,
    ) -> CallSteps[tuple[LoweringPlan, Call]]:
        """The plan for these inputs, and the request that `predict` would send."""
        lowered = yield from self.plan(inputs, deadline, prefer=prefer, cast=cast)
        return lowered, self.build(lowered, (), layout)

    def build(
        self,
        planned: LoweringPlan,
        outputs: tuple[str, ...] = (),
        layout: str = "auto",
        protocol: ModelProtocol | None = None,
    ) -> Call:
        if layout not in LAYOUTS:
            raise EncodeError(f"no layout {layout!r}{choices(layout, LAYOUTS)}")
        return (protocol or self.protocol).predict(planned, outputs, layout)

    def build_examples(self, verb: str, examples: Examples | TensorLike, context: Context) -> Call:
        name = self.signature if isinstance(self.signature, str) else self.signature.name
        return self.protocol.examples(
            verb, cast(Examples, examples), context, None if name == DEFAULT_NAME else name
        )

    def examples(
        self, verb: str, examples: Examples, context: Context, deadline: Deadline
    ) -> CallSteps[Tensors]:
        answer = yield from self.ask(self.build_examples(verb, examples, context), deadline)
        return self.protocol.read_examples(verb, answer, self.limits, deadline.left)

    def raw(self, body: Buffer, verb: str, deadline: Deadline) -> CallSteps[Tensors]:
        """A body that somebody else made, as it is."""
        if not isinstance(self.protocol, Rest):
            raise EncodeError(
                "a body of your own goes to TensorFlow Serving by REST: Client('http://...')"
            )
        if verb not in VERBS:
            raise EncodeError(f"no verb {verb!r}{choices(verb, VERBS)}")
        signature = (yield from self.find(deadline)) if verb == "predict" else None
        answer = yield from self.ask(self.protocol.raw(verb, [body]), deadline)
        if signature is None:
            return self.protocol.read_examples(verb, answer, self.limits, deadline.left)
        return self.protocol.read_predict(answer, signature, self.limits, deadline.left)

    def metadata(self, deadline: Deadline) -> CallSteps[Metadata]:
        answer = yield from self.ask(self.protocol.metadata(), deadline)
        found = self.protocol.read_metadata(answer, self.limits)
        self.known = dict(found.signatures)
        return found

    def status(self, deadline: Deadline) -> CallSteps[tuple[VersionStatus, ...]]:
        answer = yield from self.ask(self.protocol.status(), deadline)
        return self.protocol.read_status(answer, self.limits)

    def find(self, deadline: Deadline) -> CallSteps[Signature]:
        """The signature: the one that was given, or the server's of that name."""
        if isinstance(self.signature, Signature):
            return self.signature
        if self.signature not in self.known:
            yield from self.metadata(deadline)
        if self.signature not in self.known:
            raise SchemaError(
                "the model has no signature"
                f" {self.signature!r}{choices(self.signature, self.known)}; pass signature="
            )
        return self.known[self.signature]

    def ask(self, call: Call, deadline: Deadline) -> CallSteps[Answer]:
        """One answer, by as many attempts as it takes and as are allowed."""
        for attempt in range(1, self.attempts + 1):
            deadline.left()
            try:
                answer: Answer = yield call
            except ConnectError:
                if attempt == self.attempts or not (pause := self._pause(attempt, None, deadline)):
                    raise
            else:
                if (
                    answer.status not in BUSY
                    or attempt == self.attempts
                    or not (pause := self._pause(attempt, answer, deadline))
                ):
                    return check_redirect(answer)
            yield pause
        raise EncodeError(f"attempts={self.attempts}; at least one is needed")

    def _pause(self, attempt: int, answer: Answer | None, deadline: Deadline) -> Pause | None:
        """How long to wait before the next attempt; None if there is no time for that, so that what
        is known now is the end of it.
        """
        seconds = self.chance() * min(_MOST, _FIRST * 2 ** (attempt - 1))
        if answer is not None and (asked := _retry_after(answer.headers)) is not None:
            seconds = max(seconds, asked)
        return Pause(seconds) if seconds < deadline.left() else None


def _wanted(outputs: tuple[str, ...], signature: Signature) -> tuple[str, ...]:
    """The signature's outputs that are asked for: those of that name, or the parts of the tensor of
    that name.
    """
    if not signature.outputs:
        return outputs
    found = []
    for name in outputs:
        parts = [name] if name in signature.outputs else _parts(name, signature)
        if not parts:
            raise EncodeError(
                f"the signature has no output {name!r}{choices(name, signature.outputs)}"
            )
        found += parts
    return tuple(found)


def _parts(name: str, signature: Signature) -> list[str]:
    found = [group for group in composite.by_role(signature.outputs.values()) if group.name == name]
    return list(found[0].parts.values()) if found else []


def _chosen(found: Tensors, wanted: tuple[str, ...]) -> Tensors:
    """The outputs in the order of the signature or of the wish: REST cannot be told which to leave
    out, and gRPC knows no order.
    """
    missing = [name for name in wanted if name not in found]
    if missing:
        raise SchemaError(f"the answer has no output {missing[0]!r}{choices(missing[0], found)}")
    return {name: found[name] for name in wanted} if wanted else found


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks for: a number, or a date; None if it says nothing that can be
    understood.
    """
    said = headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    if not said:
        return None
    try:
        date = parsedate_to_datetime(said)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
