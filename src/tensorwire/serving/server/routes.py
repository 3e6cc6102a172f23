"""TensorFlow Serving's REST API: routes by method and path. docs/serving.md lists them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from ..._errors import ModelError
from ..._limits import DEFAULT, Limits
from ...core.memory import Buffer
from .. import rest
from ..rpc import CODES
from ..rpc.messages import ModelSpec
from . import classification, kserve
from .failures import INVALID, Failure, failure
from .http1 import HttpRequest, Response, answer
from .models import Models

_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_CALL = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_WHICH}:(?P<verb>classify|regress|predict)", re.I | re.A
)
_ABOUT = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{_WHICH}(?P<metadata>/metadata)?", re.I | re.A
)


class RestRoutes:
    """The handler for REST requests, of TensorFlow Serving's API and of KServe's."""

    def __init__(self, models: Models, ready: Callable[[], bool], limits: Limits = DEFAULT) -> None:
        self._models, self._limits = models, limits
        self._kserve = kserve.KserveRoutes(models, ready, limits)

    def __call__(self, request: HttpRequest) -> Response:
        try:
            if request.target.startswith("/v2"):
                return self._kserve(request)
            return self._answer(request)
        except ModelError as error:
            return answer({"error": error.args[1]}, error.status)
        except Exception as error:
            reason = failure(error)
            return answer({"error": reason.message}, reason.http)

    def _answer(self, request: HttpRequest) -> Response:
        call = _CALL.fullmatch(request.target) if request.method == "POST" else None
        if call is not None and call["verb"] in rest.VERBS:
            return self._call(_spec(call), call["verb"], request.body)
        query = _ABOUT.fullmatch(request.target) if request.method == "GET" else None
        if query is not None:
            if not query["name"]:
                raise Failure(INVALID, "Missing model name in request.")
            return answer(
                self._metadata(_spec(query)) if query["metadata"] else self._status(_spec(query))
            )
        # TensorFlow Serving answers 404, without JSON, to paths that are not in its API.
        status = 400 if request.target.lower().startswith("/v1/") else 404
        return answer({"error": f"Malformed request: {request.method} {request.target}"}, status)

    def _call(self, spec: ModelSpec, verb: str, body: Buffer) -> Response:
        with self._models.using(spec) as version:
            runner = version.runner
            request = rest.parse_request(body, runner.signatures, verb=verb, limits=self._limits)
            if isinstance(request, rest.RestRequest):
                # TensorFlow Serving does not call the model if there are no rows.
                if request.layout == "rows" and not any(
                    len(tensor) for tensor in request.inputs.values()
                ):
                    return answer({"predictions": []})
                outputs = runner.predict(request.signature_name, request.inputs)
                return Response(200, rest.build_answer(outputs, request.layout))
            run = classification.classify if verb == "classify" else classification.regress
            return Response(
                200,
                rest.build_answer(
                    run(runner, request.signature_name, request.serialized()), verb=verb
                ),
            )

    def _status(self, spec: ModelSpec) -> dict[str, Any]:
        statuses = self._models.status(spec)
        return {
            "model_version_status": [
                {
                    "version": str(status.version),
                    "state": status.state,
                    "status": {
                        "error_code": CODES[status.code][0],
                        "error_message": status.message,
                    },
                }
                for status in statuses
            ]
        }

    def _metadata(self, spec: ModelSpec) -> dict[str, Any]:
        with self._models.using(spec) as version:
            model_spec = {"name": spec.name, "signature_name": "", "version": str(version.number)}
            return {
                "model_spec": model_spec,
                "metadata": {"signature_def": version.runner.metadata()},
            }


def _spec(match: re.Match[str]) -> ModelSpec:
    """Return the model, version and label of a path."""
    number, label = match["version"], match["label"]
    if number is not None and int(number[:20]) >= 1 << 63:
        raise Failure(INVALID, f"Failed to convert version: {number:.40} to numeric.")
    return ModelSpec(
        unquote(match["name"]),
        None if number is None else int(number),
        None if label is None else unquote(label),
    )
