"""KServe's v2 protocol over REST, for clients of it and of Triton.

    GET  /v2, /v2/health/live, /v2/health/ready
    GET  /v2/models/NAME[/versions/V], .../ready
    POST /v2/models/NAME[/versions/V]/infer

It knows no signatures: a model's `serving_default` is called, or its only one.
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
    """What a request says beside its tensors."""

    id: str | None
    outputs: tuple[str, ...]
    binary: bool
    """Whether outputs go as bytes. If any is asked for so, all do: each says how it comes."""


class KserveRoutes:
    def __init__(self, models: Models, ready: Callable[[], bool], limits: Limits = DEFAULT) -> None:
        self._models, self._ready, self._limits = models, ready, limits

    def __call__(self, request: HttpRequest) -> Response:
        found = _MODEL.fullmatch(request.target)
        if request.method == "GET" and found is None:
            return self._server(request)
        if found is None or request.method != ("POST" if found["what"] == "infer" else "GET"):
            return answer({"error": f"Malformed request: {request.method} {request.target}"}, 404)
        spec = ModelSpec(
            unquote(found["name"]), int(found["version"]) if found["version"] else None
        )
        if found["what"] == "infer":
            return self._infer(spec, request)
        return answer(self._is_ready(spec) if found["what"] else self._about(spec))

    def _server(self, request: HttpRequest) -> Response:
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
        with self._models.using(spec) as version:
            one = _signature(version.runner.signatures)
            versions = [
                str(each.number)
                for each in self._models.versions(spec.name)
                if each.state == AVAILABLE
            ]
            inputs, outputs = (
                [_tensor(each) for each in kind.values()] for kind in (one.inputs, one.outputs)
            )
            return {
                "name": spec.name,
                "versions": versions,
                "platform": "tensorflow_savedmodel",
                "inputs": inputs,
                "outputs": outputs,
            }

    def _infer(self, spec: ModelSpec, request: HttpRequest) -> Response:
        inputs = kserve.parse_request(request.body, request.headers, limits=self._limits)
        asked = _asked(request.body, request.headers, self._limits)
        with self._models.using(spec) as version:
            name = _signature(version.runner.signatures).name
            outputs = version.runner.predict(name, inputs, asked.outputs)
            body = kserve.build_answer(
                outputs,
                binary=asked.binary,
                model=spec.name,
                version=str(version.number),
                id=asked.id,
            )
            return Response(200, body.chunks, body.headers)


def _signature(signatures: Mapping[str, Signature]) -> Signature:
    if DEFAULT_NAME in signatures:
        return signatures[DEFAULT_NAME]
    if len(signatures) != 1:
        raise Failure(
            INVALID,
            f"the model has no signature {DEFAULT_NAME!r}, and KServe's protocol cannot name"
            " another",
        )
    return next(iter(signatures.values()))


def _tensor(one: Input) -> dict[str, Any]:
    """A dtype that KServe does not know goes by its own name, and a shape whose rank is not known
    is empty.
    """
    row = dtypes.BY_NAME.get(one.dtype)
    kind = (
        BYTES
        if one.dtype == "string"
        else (row.kserve if row is not None else None) or one.dtype.upper()
    )
    return {
        "name": one.name,
        "datatype": kind,
        "shape": [-1 if dim is None else dim for dim in one.shape or ()],
    }


def _asked(body: Buffer, headers: Mapping[str, str], limits: Limits) -> ModelRequest:
    """What `kserve.parse_request`, which has read the body before, does not give back."""
    data = memory.flat(body)
    text = RequestText(data[: int(headers.get(LENGTH.lower(), len(data)))], limits, exact=False)
    said: dict[str, Any] = {}

    def take(key: str, at: int) -> int:
        end = text.end(at)
        if key in _WANTED and end - at <= 1 << 20:
            said[key] = text.loose(at, end)
        return end

    text.each_key(text.space(0), take)
    outputs, parameters = given(said, "outputs", []), given(said, "parameters", {})
    if not isinstance(outputs, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in outputs
    ):
        raise Failure(INVALID, "outputs are a list of objects with a name")
    details = [given(each, "parameters", {}) for each in outputs]
    if any(not isinstance(each, dict) for each in (parameters, *details)):
        raise Failure(INVALID, "parameters are an object")
    fallback = parameters.get("binary_data_output", False) is True
    binary = [each.get("binary_data", fallback) is True for each in details]
    known = said.get("id")
    return ModelRequest(
        known if isinstance(known, str) else None,
        tuple(each["name"] for each in outputs),
        any(binary) if outputs else fallback,
    )
