"""A SavedModel in TensorFlow, called by its signatures, as TensorFlow Serving calls it: tensors are
fed and fetched by their names in the graph. So errors of a model's own have the same code and words
here as there. Many threads may call at once; TensorFlow needs no GIL.
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
"""Ways to call a model that are kept ready: clients choose outputs, and there are more choices than
anyone has memory for.
"""
Tensors = dict[str, Array | Strings]


class Runner:
    """A loaded SavedModel."""

    def __init__(self, path: str) -> None:
        tf = require("tensorflow")
        self.signatures = Signature.all_of_saved_model(path)
        config = tf.compat.v1.ConfigProto()
        config.gpu_options.allow_growth = True  # a server on a laptop should not take the whole GPU
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
        """TensorFlow's own messages, with its names of tensors."""
        self._shapes = {
            name: [group.parts["dense_shape"] for group in one.groups() if group.kind == SPARSE]
            for name, one in self.signatures.items()
        }
        """Inputs that are the dense_shape of a sparse tensor."""

    def close(self) -> None:
        self._calls.clear()
        self._session.close()

    def metadata(self) -> dict[str, Any]:
        """All signatures, TensorFlow's own too, as Serving prints them in JSON."""
        return {"signature_def": {name: _json(one) for name, one in sorted(self.defs.items())}}

    def predict(
        self, name: str, inputs: Mapping[str, Array | Strings], wanted: Sequence[str] = ()
    ) -> Tensors:
        """The outputs of a signature, all or those that are wanted."""
        name = name or DEFAULT
        if name not in self.defs:
            raise Failure(PRECONDITION, f'Serving signature key "{name}" not found.')
        one = self.defs[name]
        _check_names(one, inputs)
        for number, output in enumerate(wanted):
            if output not in one.outputs:
                known = ",".join(sorted(one.outputs))
                why = (
                    f"output tensor alias not found in signature: {output} Outputs expected to be"
                    f" in the set {{{known}}}."
                )
                raise Failure(INVALID, why)
            if output in wanted[:number]:
                raise Failure(INVALID, f"duplicate output tensor alias: {output}")
        return self.run(name, inputs, tuple(wanted) or tuple(sorted(one.outputs)))

    def run(
        self, name: str, inputs: Mapping[str, Array | Strings], outputs: tuple[str, ...]
    ) -> Tensors:
        """Calls a signature with inputs that have been checked by name."""
        one = self.defs[name]
        for alias in self._shapes.get(name, ()):
            _check_shape(alias, inputs.get(alias))
        # Serving counts its arguments in the order of the tensors' names, which is seen in its
        # messages.
        order = sorted(one.inputs, key=lambda alias: str(one.inputs[alias].name))
        fed = []
        for number, alias in enumerate(order):
            tensor = (
                inputs[alias]
                if alias in inputs
                else frameworks.tensor(self._tf.make_ndarray(one.defaults[alias]))
            )
            given, expected = _dtype(tensor), self._tf.as_dtype(one.inputs[alias].dtype).name
            if given != expected:
                raise Failure(
                    INVALID,
                    f"Expects arg[{number}] to be {tf_name(expected)} but {tf_name(given)} is"
                    " provided",
                )
            fed.append(np.asarray(tensor.astext(False)) if isinstance(tensor, Strings) else tensor)
        try:
            found = self._call(name, order, outputs)(*fed)
        except self._tf.errors.OpError as error:
            raise Failure(error.error_code, error.message) from None
        return {alias: _tensor(alias, value) for alias, value in zip(outputs, found, strict=True)}

    def _call(self, name: str, order: Sequence[str], outputs: tuple[str, ...]) -> Any:
        with self._lock:
            call = self._calls.get((name, outputs))
            if call is None:
                config = require("tensorflow.core.protobuf.config_pb2")
                one = self.defs[name]
                feed, fetch = (
                    [one.inputs[alias].name for alias in order],
                    [one.outputs[alias].name for alias in outputs],
                )
                # Session.run would convert dtypes without a word, and add Python's traces of the
                # graph to every error.
                call = self._session._make_callable_from_options(
                    config.CallableOptions(feed=feed, fetch=fetch)
                )
                if len(self._calls) < _KEPT:
                    self._calls[name, outputs] = call
            return call


def _check_names(one: Any, inputs: Mapping[str, Any]) -> None:
    """As Serving does it: first whether there are as many as the signature has, then whether they
    are the same.
    """
    sent, known = sorted(inputs), sorted(one.inputs)
    if len(sent) > len(known) or (len(sent) < len(known) and not one.defaults):
        extra = ",".join(name for name in sent if name not in one.inputs)
        missing = ",".join(name for name in known if name not in inputs)
        sizes = f"{len(sent)}!={len(known)} len({{{','.join(sent)}}}) != len({{{','.join(known)}}})"
        why = (
            f"input size does not match signature: {sizes}. Sent extra: {{{extra}}}. Missing but"
            f" required: {{{missing}}}."
        )
        raise Failure(INVALID, why)
    for name in known:
        if name not in inputs and name not in one.defaults:
            there = f"Inputs expected to be in the request {{{','.join(sent)}}}, "
            there += f"or default input alias set: {','.join(sorted(one.defaults))}"
            why = (
                f"Signature input alias: {name}(feed name: {one.inputs[name].name}) not found in"
                " request and no default value provided."
            )
            raise Failure(INVALID, f"{why} {there}")
    if any(name not in one.inputs for name in sent):
        used = ",".join(name for name in sent if name in one.inputs)
        raise Failure(
            INVALID,
            f"Inputs contains invalid name. Used request inputs: {used}, request input:"
            f" {','.join(sent)}",
        )


def _check_shape(name: str, shape: object) -> None:
    """That no sparse tensor has dimensions below zero, or too large to count: TensorFlow's kernels
    end the process on some of them.
    """
    if isinstance(shape, np.ndarray) and shape.dtype.kind == "i":
        dims = [int(dim) for dim in shape.reshape(-1)[:_MOST_DIMS]]
        if any(dim < 0 for dim in dims) or math.prod(dims) >= 1 << 62:
            raise Failure(
                INVALID, f"{name} is no shape of a sparse tensor: [{','.join(map(str, dims))}]"
            )


def _dtype(tensor: Array | Strings) -> str:
    return "string" if isinstance(tensor, Strings) else dtypes.of(tensor.dtype).name


def _tensor(name: str, value: TensorLike) -> Array | Strings:
    """What TensorFlow gave: arrays that lie where it left them, scalars, or objects of bytes."""
    try:
        found = frameworks.tensor(np.array(value, object) if isinstance(value, bytes) else value)
    except TensorwireError as error:
        raise Failure(INTERNAL, f"output {name}: {error.message}") from None
    if isinstance(found, (np.ndarray, Strings)):
        return found
    raise Failure(
        INTERNAL, f"output {name}: TensorFlow gave {type(value).__name__}, which is no dense tensor"
    )


def _json(message: object) -> Any:
    """As Serving prints its messages: names as they are, numbers and bools that are 0, 64 bits as
    text.
    """
    json_format = require("google.protobuf.json_format")  # TensorFlow has brought it
    try:
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    except TypeError:  # protobuf before 5.26
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, including_default_value_fields=True
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without TensorFlow's words on how models should be loaded in its version 2: Serving loads
    them in this way, too.
    """
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
