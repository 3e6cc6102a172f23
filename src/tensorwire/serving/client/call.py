"""Calls to a model with their retries, without I/O.

1. A call is a generator. It yields a Call to send or a Pause to wait for, and gets the Answer.
2. A request is sent again if the server could not be reached, or answers 429 or 503 (by gRPC
   RESOURCE_EXHAUSTED or UNAVAILABLE), at most `attempts` times in all.
3. Retries wait with exponential backoff and full jitter, or as long as Retry-After says. If the
   deadline leaves no time for that, the last error or answer is final.
4. The signature is fetched once and cached. If inputs or an answer do not fit the cached one, it is
   fetched again: a new version of the model may have another signature. If it has changed, the
   inputs are prepared again. A request that the model has answered is never sent twice.
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
    UsageError,
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
"""The status of answers to inputs that do not fit the model."""
NOT_BINARY = (400, 415, 422, 500)
"""The status of answers to binary data from KServe servers without the binary extension."""
_FIRST, _MOST = 0.1, 5.0
"""The longest pause before the second attempt, and before any other, in seconds."""

T = TypeVar("T")


class Pause(NamedTuple):
    """A wait before the next attempt."""

    seconds: float


CallSteps = Generator[Call | Pause, Any, T]


@dataclass
class ModelCalls:
    """The calls that a client can make to one model."""

    protocol: ModelProtocol
    signature: str | Signature = DEFAULT_NAME
    """A signature, or the name of one that the server has."""
    limits: Limits = DEFAULT
    attempts: int = 3
    chance: Callable[[], float] = field(default=random.random, repr=False)
    signatures: dict[str, Signature] = field(default_factory=dict, repr=False)
    """The cached signatures of the server, by name."""

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
        """Call the model and return its outputs."""

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
            # The model has answered, so the request is not sent again. Its answer is parsed again,
            # by the new signature.
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
        """Parse an answer; add advice to an error that the inputs may have caused."""
        signature = planned.signature
        try:
            outputs = protocol.read_predict(answer, signature, self.limits, deadline.left)
        except ModelError as error:
            advice = protocol.advice(planned, layout) if error.status in MISFITS else ""
            raise (
                ModelError(error.status, f"{error.args[1]}; {advice}") if advice else error
            ) from None
        return outputs_together(_chosen(outputs, wanted or tuple(signature.outputs)), signature)

    def _infer(
        self, planned: LoweringPlan, wanted: tuple[str, ...], layout: str, deadline: Deadline
    ) -> CallSteps[tuple[Answer, ModelProtocol]]:
        """Send a request; return the answer and the protocol that was used.

        A KServe server without the binary extension gets the request again as JSON, and from then
        on only JSON.
        """
        # Another thread may change self.protocol in the meantime.
        protocol = self.protocol
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
        except EncodeError:
            # JSON cannot represent some of the values, so the first answer is final.
            return answer, protocol
        answer = yield from self.ask(call, deadline)
        if answer.status == 200:
            self.protocol = plain
        return answer, plain

    @property
    def cached(self) -> Signature | None:
        """The signature that was fetched from the server by an earlier call, or None."""
        return self.signatures.get(self.signature) if isinstance(self.signature, str) else None

    def _changed(self, cached: Signature | None, deadline: Deadline) -> CallSteps[Signature | None]:
        """Fetch the signature again; return it if it differs from the cached one, else None."""
        if cached is None:
            return None
        try:
            answer = yield self.protocol.metadata()
            self.signatures = dict(self.protocol.read_metadata(answer, self.limits).signatures)
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
        """Fit inputs to a signature."""
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
        """Fit inputs to the model's signature; fetch it again if they do not fit."""
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
        """Return the plan for these inputs, and the request that `predict` would send."""
        lowered = yield from self.plan(inputs, deadline, prefer=prefer, cast=cast)
        return lowered, self.build(lowered, (), layout)

    def build(
        self,
        planned: LoweringPlan,
        outputs: tuple[str, ...] = (),
        layout: str = "auto",
        protocol: ModelProtocol | None = None,
    ) -> Call:
        """Return the request for a plan."""
        if layout not in LAYOUTS:
            raise UsageError(f"unknown layout {layout!r}{choices(layout, LAYOUTS)}")
        return (protocol or self.protocol).predict(planned, outputs, layout)

    def build_examples(self, verb: str, examples: Examples | TensorLike, context: Context) -> Call:
        """Return the request for classify or regress."""
        name = self.signature if isinstance(self.signature, str) else self.signature.name
        return self.protocol.examples(
            verb, cast(Examples, examples), context, None if name == DEFAULT_NAME else name
        )

    def examples(
        self, verb: str, examples: Examples, context: Context, deadline: Deadline
    ) -> CallSteps[Tensors]:
        """Call classify or regress and return the results."""
        answer = yield from self.ask(self.build_examples(verb, examples, context), deadline)
        return self.protocol.read_examples(verb, answer, self.limits, deadline.left)

    def raw(self, body: Buffer, verb: str, deadline: Deadline) -> CallSteps[Tensors]:
        """Send a body of the caller unchanged and return the tensors of the answer."""
        if not isinstance(self.protocol, Rest):
            raise UsageError(
                "a body can only be sent unchanged to TensorFlow Serving by REST",
                hint="use Client('http://...')",
            )
        if verb not in VERBS:
            raise UsageError(f"unknown verb {verb!r}{choices(verb, VERBS)}")
        signature = (yield from self.find(deadline)) if verb == "predict" else None
        answer = yield from self.ask(self.protocol.raw(verb, [body]), deadline)
        if signature is None:
            return self.protocol.read_examples(verb, answer, self.limits, deadline.left)
        return self.protocol.read_predict(answer, signature, self.limits, deadline.left)

    def metadata(self, deadline: Deadline) -> CallSteps[Metadata]:
        """Fetch the metadata of the model, and cache its signatures."""
        answer = yield from self.ask(self.protocol.metadata(), deadline)
        metadata = self.protocol.read_metadata(answer, self.limits)
        self.signatures = dict(metadata.signatures)
        return metadata

    def status(self, deadline: Deadline) -> CallSteps[tuple[VersionStatus, ...]]:
        """Fetch the status of the model's versions."""
        answer = yield from self.ask(self.protocol.status(), deadline)
        return self.protocol.read_status(answer, self.limits)

    def find(self, deadline: Deadline) -> CallSteps[Signature]:
        """Return the client's signature; fetch it if it was given by name and is not cached."""
        if isinstance(self.signature, Signature):
            return self.signature
        if self.signature not in self.signatures:
            yield from self.metadata(deadline)
        if self.signature not in self.signatures:
            raise SchemaError(
                "the model has no signature"
                f" {self.signature!r}{choices(self.signature, self.signatures)}",
                hint="pass signature=",
            )
        return self.signatures[self.signature]

    def ask(self, call: Call, deadline: Deadline) -> CallSteps[Answer]:
        """Send a request, with retries, and return the answer."""
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
        raise UsageError(f"attempts= expects a positive integer, got {self.attempts!r:.60}")

    def _pause(self, attempt: int, answer: Answer | None, deadline: Deadline) -> Pause | None:
        """Return the pause before the next attempt, or None if the deadline leaves no time for it."""
        seconds = self.chance() * min(_MOST, _FIRST * 2 ** (attempt - 1))
        if answer is not None and (requested := _retry_after(answer.headers)) is not None:
            seconds = max(seconds, requested)
        return Pause(seconds) if seconds < deadline.left() else None


def _wanted(outputs: tuple[str, ...], signature: Signature) -> tuple[str, ...]:
    """Return the signature's names for the requested outputs.

    The name of a sparse or ragged tensor stands for the names of its parts.
    """
    if not signature.outputs:
        return outputs
    names = []
    for name in outputs:
        parts = [name] if name in signature.outputs else _parts(name, signature)
        if not parts:
            raise EncodeError(
                f"the signature has no output {name!r}{choices(name, signature.outputs)}"
            )
        names += parts
    return tuple(names)


def _parts(name: str, signature: Signature) -> list[str]:
    """Return the names of the parts of a sparse or ragged output; empty if there is none."""
    outputs = signature.outputs.values()
    groups = [group for group in composite.by_role(outputs) if group.name == name]
    return list(groups[0].parts.values()) if groups else []


def _chosen(outputs: Tensors, wanted: tuple[str, ...]) -> Tensors:
    """Return the wanted outputs, in that order; raise SchemaError if one is missing.

    REST answers always have all outputs, and gRPC answers have no order.
    """
    missing = [name for name in wanted if name not in outputs]
    if missing:
        raise SchemaError(f"the answer has no output {missing[0]!r}{choices(missing[0], outputs)}")
    return {name: outputs[name] for name in wanted} if wanted else outputs


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date; None if it has neither."""
    header = headers.get("retry-after", "").strip()
    if header.isascii() and header.isdigit():
        return float(header[:9])
    if not header:
        return None
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
