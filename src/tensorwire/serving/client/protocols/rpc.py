"""TensorFlow Serving's gRPC API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...._errors import ModelError
from ...._limits import Limits
from ...lower import LoweringPlan
from ...rest.examples import Context, Examples, given
from ...rpc import messages
from ...rpc.messages import ModelSpec, VersionStatus
from ...signature import DEFAULT, Signature
from ...transports import Answer, Call
from ..address import Address
from . import Metadata, Tensors, Watch

FORMAT = "grpc"


@dataclass(frozen=True)
class Rpc:
    """TensorFlow Serving's gRPC API."""

    address: Address
    open_inputs: ClassVar[bool] = False

    def advice(self, plan: LoweringPlan, layout: str) -> str:
        return ""

    def predict(self, plan: LoweringPlan, outputs: tuple[str, ...], layout: str) -> Call:
        return Call(
            messages.PREDICT,
            body=messages.build_predict(self._spec(plan.signature.name), plan.inputs, outputs),
        )

    def read_predict(
        self, answer: Answer, signature: Signature, limits: Limits, watch: Watch
    ) -> Tensors:
        return messages.parse_predict_answer(_message(answer), limits)[1]

    def examples(
        self, verb: str, examples: Examples, context: Context, signature: str | None
    ) -> Call:
        method = messages.CLASSIFY if verb == "classify" else messages.REGRESS
        return Call(
            method,
            body=messages.build_examples(
                self._spec(signature or ""), *given(examples, context).messages()
            ),
        )

    def read_examples(self, verb: str, answer: Answer, limits: Limits, watch: Watch) -> Tensors:
        read = (
            messages.parse_classify_answer if verb == "classify" else messages.parse_regress_answer
        )
        return read(_message(answer), limits)[1]

    def metadata(self) -> Call:
        return Call(messages.METADATA, body=messages.build_metadata(self._spec("")))

    def read_metadata(self, answer: Answer, limits: Limits) -> Metadata:
        spec, signatures = messages.parse_metadata_answer(_message(answer), limits)
        return Metadata(self.address.model, spec.version, signatures)

    def status(self) -> Call:
        return Call(messages.STATUS, body=messages.build_status(self._spec("")))

    def read_status(self, answer: Answer, limits: Limits) -> tuple[VersionStatus, ...]:
        return tuple(messages.parse_status_answer(_message(answer), limits))

    def _spec(self, signature: str) -> ModelSpec:
        name = "" if signature == DEFAULT else signature
        version = self.address.version if isinstance(self.address.version, int) else None
        return ModelSpec(self.address.model, version, self.address.label, name)


UNIMPLEMENTED = "12"


def _words(answer: Answer) -> str:
    """Return the text of an error; servers often send none for an unknown method."""
    text = str(answer.body, "utf-8", "replace")
    if answer.headers.get("grpc-status") != UNIMPLEMENTED and answer.status != 501:
        return text or "an error without a message"
    return (
        f"{text or 'unknown method'}; this may not be TensorFlow Serving: for a KServe server such"
        ' as Triton use Client("http://...", protocol="kserve")'
    )


def _message(answer: Answer) -> memoryview:
    """Return the message of an answer; raise ModelError for an error status."""
    if answer.status != 200:
        raise ModelError(answer.status, _words(answer))
    return answer.body
