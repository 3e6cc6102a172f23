"""A loaded SavedModel that is called by its signatures, in the way TensorFlow Serving does.

Tensors are fed and fetched by their names in the graph, so errors of the model have the same codes
and messages as in TensorFlow Serving. Many threads may call concurrently: TensorFlow releases the
GIL.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import frameworks
from ..._errors import TensorwireError
from ..._optional import require
from ...core import dtypes
from ...core.tensors import Array, Strings, TensorLike
from ..rest.serving_rules import tf_name
from ..signature import DEFAULT, Signature
from ..spec import SPARSE
from .failures import INTERNAL, INVALID, PRECONDITION, Failure

_TAGS = ["serve"]
_MOST_DIMS = 254
_KEPT = 64
"""The most callables that are cached for a model: clients choose sets of outputs, and there are too
many sets to cache all of them.
"""
Tensors = dict[str, Array | Strings]


class Runner:
    """A loaded SavedModel."""

    def __init__(self, path: str) -> None:
        tf = require("tensorflow")
        self.signatures = Signature.all_of_saved_model(path)
        config = tf.compat.v1.ConfigProto()
        # By default TensorFlow takes the memory of the whole GPU; a laptop needs some for others.
        config.gpu_options.allow_growth = True
        self._tf, self._graph, self._lock = tf, tf.Graph(), threading.Lock()
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        self._calls: dict[tuple[str, tuple[str, ...]], Any] = {}
        try:
            with self._graph.as_default(), _quiet():
                loaded = tf.compat.v1.saved_model.loader.load(self._session, _TAGS, path)
        except BaseException:
            self._session.close()
            raise
        self.defs: Mapping[str, Any] = dict(loaded.signature_def)
        """TensorFlow's SignatureDef messages, which have the names of tensors in the graph."""
        self._shapes = {
            name: [
                group.parts["dense_shape"] for group in signature.groups() if group.kind == SPARSE
            ]
            for name, signature in self.signatures.items()
        }
        """The inputs that are the dense_shape of a sparse tensor, by signature."""

    def close(self) -> None:
        self._calls.clear()
        self._session.close()

    def metadata(self) -> dict[str, Any]:
        """Return all signatures, including TensorFlow's own, as JSON like TensorFlow Serving's."""
        return {
            "signature_def": {
                name: _json(signature) for name, signature in sorted(self.defs.items())
            }
        }

    def predict(
        self, name: str, inputs: Mapping[str, Array | Strings], wanted: Sequence[str] = ()
    ) -> Tensors:
        """Call a signature and return all of its outputs, or the wanted ones."""
        name = name or DEFAULT
        if name not in self.defs:
            raise Failure(PRECONDITION, f'Serving signature key "{name}" not found.')
        signature = self.defs[name]
        _check_names(signature, inputs)
        for number, output in enumerate(wanted):
            if output not in signature.outputs:
                expected = ",".join(sorted(signature.outputs))
                reason = (
                    f"output tensor alias not found in signature: {output} Outputs expected to be"
                    f" in the set {{{expected}}}."
                )
                raise Failure(INVALID, reason)
            if output in wanted[:number]:
                raise Failure(INVALID, f"duplicate output tensor alias: {output}")
        return self.run(name, inputs, tuple(wanted) or tuple(sorted(signature.outputs)))

    def run(
        self, name: str, inputs: Mapping[str, Array | Strings], outputs: tuple[str, ...]
    ) -> Tensors:
        """Call a signature; the names of the inputs are checked already."""
        signature = self.defs[name]
        for alias in self._shapes.get(name, ()):
            _check_shape(alias, inputs.get(alias))
        # TensorFlow Serving numbers arguments in the order of the tensors' names, and its messages
        # contain these numbers.
        order = sorted(signature.inputs, key=lambda alias: str(signature.inputs[alias].name))
        fed = []
        for number, alias in enumerate(order):
            tensor = (
                inputs[alias]
                if alias in inputs
                else frameworks.tensor(self._tf.make_ndarray(signature.defaults[alias]))
            )
            given, expected = (
                dtype_name(tensor),
                self._tf.as_dtype(signature.inputs[alias].dtype).name,
            )
            if given != expected:
                raise Failure(
                    INVALID,
                    f"Expects arg[{number}] to be {tf_name(expected)} but {tf_name(given)} is"
                    " provided",
                )
            fed.append(np.asarray(tensor.astext(False)) if isinstance(tensor, Strings) else tensor)
        try:
            values = self._call(name, order, outputs)(*fed)
        except self._tf.errors.OpError as error:
            raise Failure(error.error_code, error.message) from None
        return {alias: _tensor(alias, value) for alias, value in zip(outputs, values, strict=True)}

    def _call(self, name: str, order: Sequence[str], outputs: tuple[str, ...]) -> Any:
        """Return a callable for a signature and a set of outputs, cached if there is room."""
        with self._lock:
            call = self._calls.get((name, outputs))
            if call is None:
                config = require("tensorflow.core.protobuf.config_pb2")
                signature = self.defs[name]
                feed, fetch = (
                    [signature.inputs[alias].name for alias in order],
                    [signature.outputs[alias].name for alias in outputs],
                )
                # Session.run would convert dtypes silently, and add Python's traces of the graph
                # to every error.
                call = self._session._make_callable_from_options(
                    config.CallableOptions(feed=feed, fetch=fetch)
                )
                if len(self._calls) < _KEPT:
                    self._calls[name, outputs] = call
            return call


def _check_names(signature: Any, inputs: Mapping[str, Any]) -> None:
    """Check the names of inputs, with the messages and the order of TensorFlow Serving's checks:
    first their number, then the names.
    """
    sent, expected = sorted(inputs), sorted(signature.inputs)
    if len(sent) > len(expected) or (len(sent) < len(expected) and not signature.defaults):
        extra = ",".join(name for name in sent if name not in signature.inputs)
        missing = ",".join(name for name in expected if name not in inputs)
        sizes = (
            f"{len(sent)}!={len(expected)} len({{{','.join(sent)}}}) !="
            f" len({{{','.join(expected)}}})"
        )
        reason = (
            f"input size does not match signature: {sizes}. Sent extra: {{{extra}}}. Missing but"
            f" required: {{{missing}}}."
        )
        raise Failure(INVALID, reason)
    for name in expected:
        if name not in inputs and name not in signature.defaults:
            details = f"Inputs expected to be in the request {{{','.join(sent)}}}, "
            details += f"or default input alias set: {','.join(sorted(signature.defaults))}"
            reason = (
                f"Signature input alias: {name}(feed name: {signature.inputs[name].name}) not found"
                " in request and no default value provided."
            )
            raise Failure(INVALID, f"{reason} {details}")
    if any(name not in signature.inputs for name in sent):
        used = ",".join(name for name in sent if name in signature.inputs)
        raise Failure(
            INVALID,
            f"Inputs contains invalid name. Used request inputs: {used}, request input:"
            f" {','.join(sent)}",
        )


def _check_shape(name: str, shape: object) -> None:
    """Raise Failure if the shape of a sparse tensor is negative or too large.

    Some of TensorFlow's kernels abort the process for such shapes.
    """
    if isinstance(shape, np.ndarray) and shape.dtype.kind == "i":
        dims = [int(dim) for dim in shape.reshape(-1)[:_MOST_DIMS]]
        if any(dim < 0 for dim in dims) or math.prod(dims) >= 1 << 62:
            raise Failure(
                INVALID, f"{name}: invalid shape of a sparse tensor [{','.join(map(str, dims))}]"
            )


def dtype_name(tensor: Array | Strings) -> str:
    """Return the name of a tensor's dtype."""
    return "string" if isinstance(tensor, Strings) else dtypes.of(tensor.dtype).name


def _tensor(name: str, value: TensorLike) -> Array | Strings:
    """Convert an output of TensorFlow (an array, a scalar, or bytes) without a copy."""
    try:
        tensor = frameworks.tensor(np.array(value, object) if isinstance(value, bytes) else value)
    except TensorwireError as error:
        raise Failure(INTERNAL, f"output {name}: {error.message}") from None
    if isinstance(tensor, (np.ndarray, Strings)):
        return tensor
    raise Failure(
        INTERNAL,
        f"output {name}: expected a dense tensor, TensorFlow returned {type(value).__name__}",
    )


def _json(message: object) -> Any:
    """Convert a message to JSON like TensorFlow Serving: original field names, default values
    included, 64-bit integers as text.
    """
    # protobuf is a dependency of TensorFlow, so it is installed.
    json_format = require("google.protobuf.json_format")
    try:
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    except TypeError:
        # Versions of protobuf before 5.26 have another name for this argument.
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, including_default_value_fields=True
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress TensorFlow's warnings about its version 1 loader, which Serving uses, too."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
