"""The KServe v2 protocol over REST, for Triton and other servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...._errors import DecodeError, EncodeError, ModelError
from ...._limits import Limits
from ... import kserve
from ...lower import LoweringPlan
from ...rest.answers import message
from ...rest.examples import Context, Examples
from ...rpc.messages import VersionStatus
from ...signature import DEFAULT, Signature
from ...transports import Answer, Call
from ..address import Address
from . import Metadata, Tensors, Watch, document
from .rest import post

FORMAT = "kserve"
API = "v2"


@dataclass(frozen=True)
class KServe:
    """The KServe v2 protocol."""

    address: Address
    compression: str | None = None
    binary: bool = True
    """Whether tensors are sent and requested as binary data after the JSON."""
    confirmed: bool = False
    """Whether the server has answered a request with binary data."""
    open_inputs: ClassVar[bool] = True

    def advice(self, plan: LoweringPlan, layout: str) -> str:
        if self.binary or not kserve.has_odd_floats(plan.inputs):
            return ""
        return (
            "the request contains NaN or infinite numbers, which strict JSON does not allow; "
            "servers with the binary extension accept them"
        )

    def server(self) -> Call:
        """Return the request for the server's metadata, which lists its extensions."""
        return Call("GET", f"/{API}", (), {"Accept": "application/json"})

    def lists_binary(self, answer: Answer) -> bool:
        """Return whether the server lists the binary extension.

        KServe's own server supports it without listing it.
        """
        try:
            listed = document(answer, FORMAT).get("extensions") if answer.status == 200 else None
        except DecodeError:
            return False
        return isinstance(listed, list) and "binary_tensor_data" in listed

    def predict(self, plan: LoweringPlan, outputs: tuple[str, ...], layout: str) -> Call:
        if layout not in ("auto", "columns"):
            raise EncodeError(
                f"layout={layout!r} is only supported for TensorFlow Serving", format=FORMAT
            )
        body = kserve.build(plan, binary=self.binary, outputs=outputs or None)
        return post(
            self.address.path(API) + "/infer", body.chunks, dict(body.headers), self.compression
        )

    def read_predict(
        self, answer: Answer, signature: Signature, limits: Limits, watch: Watch
    ) -> Tensors:
        return kserve.parse_answer(
            answer.body, answer.headers, status=answer.status, limits=limits, watch=watch
        )

    def examples(
        self, verb: str, examples: Examples, context: Context, signature: str | None
    ) -> Call:
        raise EncodeError(f"KServe has no {verb}, only predict", format=FORMAT)

    def read_examples(self, verb: str, answer: Answer, limits: Limits, watch: Watch) -> Tensors:
        raise EncodeError(f"KServe has no {verb}", format=FORMAT)

    def metadata(self) -> Call:
        return Call("GET", self.address.path(API), (), {"Accept": "application/json"})

    def read_metadata(self, answer: Answer, limits: Limits) -> Metadata:
        metadata = _about(answer)
        return Metadata(
            self.address.model, self.address.version, {DEFAULT: kserve.signature(metadata)}
        )

    def status(self) -> Call:
        return Call("GET", self.address.path(API) + "/ready", (), {"Accept": "application/json"})

    def read_status(self, answer: Answer, limits: Limits) -> tuple[VersionStatus, ...]:
        """Return one entry: KServe reports only whether the model is ready, by the HTTP status."""
        if answer.status not in (200, 400, 503):
            raise ModelError(answer.status, message(answer.body))
        ready = answer.status == 200 and _ready(answer)
        return (
            VersionStatus(
                self.address.version or 0,
                "AVAILABLE" if ready else "LOADING",
                0,
                "" if ready else message(answer.body),
            ),
        )


def _ready(answer: Answer) -> bool:
    """Return whether a model is ready: some servers answer 200 with {"ready": false}."""
    body = document(answer, FORMAT) if answer.body else {}
    return body.get("ready", True) is not False


def _about(answer: Answer) -> Mapping[str, Any]:
    """Return the metadata of a model; raise ModelError for an error status."""
    if answer.status != 200:
        raise ModelError(answer.status, message(answer.body))
    metadata: Mapping[str, Any] = document(answer, FORMAT)
    return metadata
