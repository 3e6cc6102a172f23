"""KServe's v2 protocol over REST, for clients of it and of Triton.

    GET  /v2, /v2/health/live, /v2/health/ready
    GET  /v2/models/NAME[/versions/V], .../ready
    POST /v2/models/NAME[/versions/V]/infer

The protocol has no signatures: a model's `serving_default` is called, or its only signature.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ... import __version__
from ..._limits import DEFAULT, Limits
from ...core import dtypes, memory
from ...core.memory import Buffer
from .. import kserve
from ..kserve.read import BYTES, LENGTH, given
from ..rest.json_text import RequestText
from ..rpc.messages import ModelSpec
from ..signature import DEFAULT as DEFAULT_NAME
from ..signature import Signature
from ..spec import Input
from .failures import INVALID, Failure
from .http1 import HttpRequest, Response, answer
from .models import AVAILABLE, Models

_MODEL = re.compile(
    r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>\d{1,18}))?(?:/(?P<what>ready|infer))?",
    re.A,
)
_WANTED = ("id", "outputs", "parameters")


class ModelRequest(NamedTuple):
    """The fields of a request other than its inputs."""

    id: str | None
    outputs: tuple[str, ...]
    binary: bool
    """Whether outputs are sent as binary data: all of them, if it is requested for any of them."""


class KserveRoutes:
    """The handler for KServe requests."""

    def __init__(self, models: Models, ready: Callable[[], bool], limits: Limits = DEFAULT) -> None:
        self._models, self._ready, self._limits = models, ready, limits

    def __call__(self, request: HttpRequest) -> Response:
        match = _MODEL.fullmatch(request.target)
        if request.method == "GET" and match is None:
            return self._server(request)
        if match is None or request.method != ("POST" if match["what"] == "infer" else "GET"):
            return answer({"error": f"Malformed request: {request.method} {request.target}"}, 404)
        spec = ModelSpec(
            unquote(match["name"]), int(match["version"]) if match["version"] else None
        )
        if match["what"] == "infer":
            return self._infer(spec, request)
        return answer(self._is_ready(spec) if match["what"] else self._about(spec))

    def _server(self, request: HttpRequest) -> Response:
        """Answer a request about the server: its metadata and its health."""
        target = request.target.rstrip("/")
        if target == "/v2":
            return answer(
                {"name": "tensorwire", "version": __version__, "extensions": ["binary_tensor_data"]}
            )
        if target == "/v2/health/live":
            return answer({"live": True})
        if target == "/v2/health/ready":
            ready = self._ready()
            return answer({"ready": ready}, 200 if ready else 503)
        return answer({"error": f"Malformed request: {request.method} {request.target}"}, 404)

    def _is_ready(self, spec: ModelSpec) -> dict[str, Any]:
        with self._models.using(spec):
            return {"name": spec.name, "ready": True}

    def _about(self, spec: ModelSpec) -> dict[str, Any]:
        """Return the metadata of a model."""
        with self._models.using(spec) as version:
            signature = _signature(version.runner.signatures)
            versions = [
                str(other.number)
                for other in self._models.versions(spec.name)
                if other.state == AVAILABLE
            ]
            inputs, outputs = (
                [_tensor(tensor) for tensor in specs.values()]
                for specs in (signature.inputs, signature.outputs)
            )
            return {
                "name": spec.name,
                "versions": versions,
                "platform": "tensorflow_savedmodel",
                "inputs": inputs,
                "outputs": outputs,
            }

    def _infer(self, spec: ModelSpec, request: HttpRequest) -> Response:
        """Call a model and return its outputs."""
        inputs = kserve.parse_request(request.body, request.headers, limits=self._limits)
        fields = _fields(request.body, request.headers, self._limits)
        with self._models.using(spec) as version:
            name = _signature(version.runner.signatures).name
            outputs = version.runner.predict(name, inputs, fields.outputs)
            body = kserve.build_answer(
                outputs,
                binary=fields.binary,
                model=spec.name,
                version=str(version.number),
                id=fields.id,
            )
            return Response(200, body.chunks, body.headers)


def _signature(signatures: Mapping[str, Signature]) -> Signature:
    """Return the signature that is called: the default one, or the only one."""
    if DEFAULT_NAME in signatures:
        return signatures[DEFAULT_NAME]
    if len(signatures) != 1:
        raise Failure(
            INVALID,
            f"the model has no signature {DEFAULT_NAME!r}, and KServe requests cannot select"
            " another one",
        )
    return next(iter(signatures.values()))


def _tensor(spec: Input) -> dict[str, Any]:
    """Return the metadata of an input or output.

    A dtype that KServe does not have is given by its own name, and a shape of unknown rank is
    empty.
    """
    row = dtypes.BY_NAME.get(spec.dtype)
    kind = (
        BYTES
        if spec.dtype == "string"
        else (row.kserve if row is not None else None) or spec.dtype.upper()
    )
    return {
        "name": spec.name,
        "datatype": kind,
        "shape": [-1 if dim is None else dim for dim in spec.shape or ()],
    }


def _fields(body: Buffer, headers: Mapping[str, str], limits: Limits) -> ModelRequest:
    """Parse the fields that `kserve.parse_request`, which has checked the body, does not return."""
    data = memory.flat(body)
    text = RequestText(data[: int(headers.get(LENGTH.lower(), len(data)))], limits, exact=False)
    fields: dict[str, Any] = {}

    def take(key: str, start: int) -> int:
        end = text.end(start)
        if key in _WANTED and end - start <= 1 << 20:
            fields[key] = text.loose(start, end)
        return end

    text.each_key(text.space(0), take)
    outputs, parameters = given(fields, "outputs", []), given(fields, "parameters", {})
    if not isinstance(outputs, list) or not all(
        isinstance(output, dict) and isinstance(output.get("name"), str) for output in outputs
    ):
        raise Failure(INVALID, "outputs: expected a list of objects with a name")
    details = [given(output, "parameters", {}) for output in outputs]
    if any(not isinstance(value, dict) for value in (parameters, *details)):
        raise Failure(INVALID, "parameters: expected an object")
    fallback = parameters.get("binary_data_output", False) is True
    binary = [detail.get("binary_data", fallback) is True for detail in details]
    request_id = fields.get("id")
    return ModelRequest(
        request_id if isinstance(request_id, str) else None,
        tuple(output["name"] for output in outputs),
        any(binary) if outputs else fallback,
    )
