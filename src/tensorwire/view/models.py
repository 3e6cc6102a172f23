"""SavedModels: signatures, and requests to them, built and checked by `tensorwire.serving`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from .._errors import EncodeError, SchemaError, UsageError
from ..serving import rest
from ..serving.client.sync import Client
from ..serving.signature import Signature
from ..serving.spec import Input
from .catalog import Catalog

LOCAL = "http://127.0.0.1:8501"
MOST = 1 << 20
"""The most bytes of a body that are sent to the page."""
_DEPTH = 64


class ModelPages:
    """SavedModels by id."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def _signatures(self, id: str) -> tuple[str, dict[str, Signature]]:
        node = self._catalog[id]
        if node.kind != "model":
            raise SchemaError(f"{node.name} is not a SavedModel")
        return node.path, Signature.all_of_saved_model(node.path)

    def signatures(self, id: str) -> dict[str, Any]:
        """Return all signatures, with a start value for each of their inputs."""
        path, signatures = self._signatures(id)
        return {
            "url": LOCAL,
            "model": _name(path),
            "signatures": [_shown(signature) for signature in signatures.values()],
        }

    def request(self, id: str, form: Any) -> dict[str, Any]:
        """Return the request body for some inputs, its curl command, an explanation, and the error
        of TensorFlow Serving if it would refuse the body.
        """
        path, signatures = self._signatures(id)
        name, given, url, model, layout = (
            _text(form, key) for key in ("signature", "inputs", "url", "model", "layout")
        )
        if name not in signatures:
            raise SchemaError(f"no signature {name!r:.80} in this model")
        if layout not in rest.LAYOUTS:
            raise UsageError(f"unknown layout {layout!r:.20}; known: {', '.join(rest.LAYOUTS)}")
        inputs = {key: _parsed(key, text) for key, text in given.items()}
        signature = signatures[name]
        with Client(url or LOCAL, model or _name(path), signature=signature) as client:
            if client.address.by_rpc:
                raise UsageError("curl does not support gRPC; use an http:// URL")
            if signature.method != "predict":
                call, words = client.build(_examples(inputs), verb=signature.method), ""
            else:
                call, words = (
                    client.build(inputs, layout=layout),
                    client.explain(inputs, layout=layout),
                )
            body = b"".join(call.body)
            where = client.address.url.rstrip("/") + call.target
        fault = rest.check(body, signature, verb=signature.method)
        line = ["curl", "-sS", "-X", call.method, where]
        for header, value in call.headers.items():
            line += ["-H", f"{header}: {value}"]
        text = body.decode()
        return {
            "body": text[:MOST],
            "size": len(body),
            "curl": (
                " ".join(map(shlex.quote, [*line, "--data-binary", text]))
                if len(body) <= MOST
                else None
            ),
            "explained": words,
            "fault": None if fault is None else str(fault),
        }


def _name(path: str) -> str:
    """Return the name of the model in a folder; a numbered folder is a version of its parent."""
    folder = Path(path).resolve()
    return folder.parent.name if folder.name.isdigit() else folder.name


def _text(form: Any, key: str) -> Any:
    """Return one field of the form: `inputs` is a dict of texts, all others are texts."""
    value = (
        form.get(key, {} if key == "inputs" else "auto" if key == "layout" else "")
        if isinstance(form, dict)
        else None
    )
    right = (
        isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        if key == "inputs"
        else isinstance(value, str)
    )
    if not right:
        raise UsageError(f"the request has no valid {key!r}")
    return value


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise EncodeError(f"input {name!r:.80} is not valid JSON: {why}") from None


def _examples(inputs: dict[str, Any]) -> Any:
    """Return the examples of a classify or regress request, whose inputs have no names."""
    return next(iter(inputs.values())) if len(inputs) == 1 else inputs


def _shown(signature: Signature) -> dict[str, Any]:
    grouped = {part: group for group in signature.groups() for part in group.parts.values()}
    data = signature.json()
    data["start"] = {
        name: json.dumps([{}]) if signature.method != "predict" else _start(part, grouped.get(name))
        for name, part in signature.inputs.items()
    }
    data["words"] = str(signature)
    return data


def _start(part: Input, group: Any) -> str:
    """Return the start value of an input as JSON: zeros in the smallest shape that fits, and for
    the parts of a sparse or ragged input the values of an empty one.
    """
    shape = tuple(1 if dim is None else dim for dim in part.shape or (1,))
    if group is not None:
        role = next(role for role, name in group.parts.items() if name == part.name)
        if role == "dense_shape":
            rank = (part.shape or (2,))[0] or 2
            return json.dumps([1 if dim is None else dim for dim in group.shape or [None] * rank])
        if role.startswith("row_splits"):
            return "[0, 1]"
    zero = (
        ""
        if part.dtype in ("string", "bytes")
        else False
        if part.dtype == "bool"
        else 0
        if "int" in part.dtype
        else 0.0
    )
    count = 1
    for dim in shape:
        count *= dim
    if count > 4096:
        return "[]"
    value: Any = zero
    for dim in reversed(shape):
        value = [value] * dim
    return json.dumps(value)
