"""TensorFlow Serving's REST API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ...._errors import DecodeError, ModelError
from ...._limits import Limits
from ....transforms.compression import deflate
from ... import rest
from ...lower import LoweringPlan
from ...rest.answers import message
from ...rest.examples import Context, Examples
from ...rest.requests import EMPTY
from ...rpc.messages import CODES, VersionStatus
from ...signature import Signature
from ...transports import Answer, Call
from ..address import Address
from . import Metadata, Tensors, Watch, document

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT = "rest"
API = "v1"
_CODES = {name: code for code, (name, _) in CODES.items()}
_UNKNOWN = 2


@dataclass(frozen=True)
class Rest:
    """TensorFlow Serving's REST API."""

    address: Address
    compression: str | None = None
    open_inputs: ClassVar[bool] = False

    def advice(self, plan: LoweringPlan, layout: str) -> str:
        lost = [name for name, tensor in plan.inputs.items() if rest.loses_dimensions(tensor.shape)]
        return f"{lost[0]} has no elements. {EMPTY}" if lost and layout != "rows" else ""

    def predict(self, plan: LoweringPlan, outputs: tuple[str, ...], layout: str) -> Call:
        return self.raw("predict", rest.build(plan, layout=layout))

    def read_predict(
        self, answer: Answer, signature: Signature, limits: Limits, watch: Watch
    ) -> Tensors:
        return rest.parse_answer(
            answer.body, signature, status=answer.status, limits=limits, watch=watch
        )

    def examples(
        self, verb: str, examples: Examples, context: Context, signature: str | None
    ) -> Call:
        return self.raw(
            verb, rest.build(examples, verb=verb, context=context, signature_name=signature)
        )

    def read_examples(self, verb: str, answer: Answer, limits: Limits, watch: Watch) -> Tensors:
        return rest.parse_answer(answer.body, status=answer.status, limits=limits, watch=watch)

    def metadata(self) -> Call:
        return self._get(self.address.path(API) + "/metadata")

    def read_metadata(self, answer: Answer, limits: Limits) -> Metadata:
        metadata = _about(answer)
        spec = metadata.get("model_spec")
        version = spec.get("version") if isinstance(spec, dict) else None
        is_number = (
            isinstance(version, str)
            and version.isascii()
            and version.isdigit()
            and len(version) <= 18
        )
        return Metadata(
            self.address.model,
            int(version) if is_number and isinstance(version, str) else None,
            Signature.all_of_metadata(metadata),
        )

    def status(self) -> Call:
        return self._get(self.address.path(API))

    def read_status(self, answer: Answer, limits: Limits) -> tuple[VersionStatus, ...]:
        versions = _about(answer).get("model_version_status")
        if not isinstance(versions, list):
            raise DecodeError(
                "the answer has no list 'model_version_status'", format=FORMAT, offset=0
            )
        return tuple(map(_version, versions))

    def _get(self, path: str) -> Call:
        return Call("GET", path, (), {"Accept": "application/json"} | self._asked())

    def raw(self, verb: str, body: Sequence[Any]) -> Call:
        """Return the request for a body that is already encoded."""
        return post(
            f"{self.address.path(API)}:{verb}",
            body,
            {"Content-Type": "application/json"},
            self.compression,
        )

    def _asked(self) -> dict[str, str]:
        return {"Accept-Encoding": self.compression} if self.compression else {}


def post(
    target: str, body: Sequence[Any], headers: dict[str, str], compression: str | None
) -> Call:
    """Return a request with a body; with compression the answer may be compressed, too."""
    if compression is None:
        return Call("POST", target, body, headers)
    # The body is a single gzip member: some servers decompress only the first one.
    packed = deflate.gzip_packer(1)(b"".join(body))
    return Call(
        "POST",
        target,
        [packed],
        headers | {"Content-Encoding": compression, "Accept-Encoding": compression},
    )


def _about(answer: Answer) -> Any:
    """Return the JSON of an answer; raise ModelError for an error status or an error object."""
    if answer.status != 200:
        raise ModelError(answer.status, message(answer.body))
    value = document(answer, FORMAT)
    if "error" in value and len(value) == 1:
        raise ModelError(answer.status, str(value["error"]))
    return value


def _version(entry: object) -> VersionStatus:
    """Return the status of a version from its JSON."""
    status = entry.get("status", {}) if isinstance(entry, dict) else None
    number = str(entry.get("version", "")) if isinstance(entry, dict) else ""
    if (
        not isinstance(entry, dict)
        or not isinstance(status, dict)
        or not (number.isascii() and number.isdigit() and len(number) <= 18)
    ):
        raise DecodeError(
            "model_version_status: expected objects with a version and a status",
            format=FORMAT,
            offset=0,
        )
    code = _CODES.get(str(status.get("error_code", "OK")), _UNKNOWN)
    return VersionStatus(
        int(number), str(entry.get("state", "UNKNOWN")), code, str(status.get("error_message", ""))
    )
