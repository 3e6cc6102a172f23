"""Calling conventions of models: which inputs a model takes and how its arguments are passed."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..._errors import EncodeError, UsageError
from ..._optional import roots
from ..spec import DENSE, RAGGED, SPARSE, Spec, dims, dtype_name

if TYPE_CHECKING:
    import tensorflow

Model = Callable[..., Any]
"""A function, a tf.function, a tf.Module with __call__ or a Keras model."""


def specs(model: Model, signature: Mapping[str, Any] | None) -> dict[str, Spec]:
    """Return the specs of a model's inputs, as given by the caller or declared by the model."""
    if signature is None:
        signature = _keras_inputs(model) if is_keras(model) else _input_signature(model)
    if (
        not isinstance(signature, Mapping)
        or not signature
        or not all(isinstance(name, str) for name in signature)
    ):
        raise UsageError(
            f"expected a signature that is a dict of names and specs, got {signature!r:.80}",
            hint="use signature={'x': ('float32', [None, 3])}",
        )
    return {name: Spec.of(spec, name) for name, spec in signature.items()}


def is_keras(model: object) -> bool:
    """Return whether the model is a Keras model, without importing Keras."""
    return bool(roots(type(model)) & {"keras", "tf_keras"}) and hasattr(model, "layers")


def _keras_inputs(model: Model) -> dict[str, Any]:
    struct = _struct(model)
    if struct is None:
        raise EncodeError(
            "this Keras model does not declare its inputs",
            hint="pass signature={'x': ('float32', [None, 3])}",
        )
    if isinstance(struct, Mapping):
        named = dict(struct)
    else:
        named = {
            tensor.name: tensor
            for tensor in (struct if isinstance(struct, (list, tuple)) else [struct])
        }
    return {name: _keras_spec(tensor) for name, tensor in named.items()}


def _struct(model: Model) -> Any:
    """Return the inputs of a functional or built sequential model, in the structure of its call;
    None if the model does not declare them.
    """
    for holder in (model, getattr(model, "_functional", None)):
        if (struct := getattr(holder, "_inputs_struct", None)) is not None:
            return struct
    return None


def _keras_spec(tensor: tensorflow.keras.KerasTensor) -> Spec:
    shape = dims(tensor.shape)
    if getattr(tensor, "ragged", False):
        varying = [number for number, dim in enumerate(shape or ()) if dim is None and number]
        return Spec(RAGGED, dtype_name(tensor.dtype), shape, varying[-1] if varying else 1)
    return Spec(
        SPARSE if getattr(tensor, "sparse", False) else DENSE, dtype_name(tensor.dtype), shape
    )


def _input_signature(model: Model) -> dict[str, Any]:
    given = getattr(model, "input_signature", None)
    if given is None:
        # The input_signature of a tf.Module is that of its __call__.
        given = getattr(
            inspect.getattr_static(type(model), "__call__", None), "input_signature", None
        )
    if given is None:
        raise EncodeError(
            "the inputs of the model are unknown: it is not a tf.function with an input_signature",
            hint="pass signature={'x': ('float32', [None, 3])}",
        )
    inputs: dict[str, Any] = {}
    for parameter, spec in zip(_parameters(model), given, strict=False):
        inputs |= spec if isinstance(spec, Mapping) else {parameter.name: spec}
    return inputs


def _parameters(model: Model) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(model).parameters.values())
    except (TypeError, ValueError) as error:
        raise EncodeError(
            f"cannot read the parameters of {type(model).__name__}: {error}"
        ) from None


def function(tf: ModuleType, model: Model, specs: Mapping[str, Spec]) -> Any:
    """Return the model as a tf.function that takes the inputs in order, or by name if the names are
    valid in Python.
    """
    passed, names = _passed(tf, model, list(specs)), list(specs)

    def call(*tensors: Any) -> Any:
        return passed(dict(zip(names, tensors, strict=True)))

    return positional(tf, call, names, [_type_spec(tf, spec) for spec in specs.values()])


def positional(
    tf: ModuleType, function: Callable[..., Any], names: list[str], specs: list[Any]
) -> Any:
    """Return a tf.function of these specs, whose parameters have these names as far as Python
    allows.
    """
    identifiers: list[str] = []
    for name in names:
        identifier = re.sub(r"\W", "_", name, flags=re.A)
        identifiers.append(
            identifier
            if identifier.isidentifier() and identifier not in identifiers
            else f"input_{len(identifiers)}_{identifier}"
        )
    parameters = [
        inspect.Parameter(identifier, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for identifier in identifiers
    ]
    # TensorFlow reads the names of the parameters from __signature__ and saves them.
    vars(function)["__signature__"] = inspect.Signature(parameters)
    return tf.function(function, input_signature=specs, autograph=False)


def _type_spec(tf: ModuleType, spec: Spec) -> Any:
    """Return TensorFlow's spec object for a spec."""
    dtype = tf.as_dtype(spec.dtype)
    if spec.kind == RAGGED:
        return tf.RaggedTensorSpec(spec.shape, dtype, spec.ragged_rank, tf.as_dtype(spec.splits))
    return (
        tf.SparseTensorSpec(spec.shape, dtype)
        if spec.kind == SPARSE
        else tf.TensorSpec(spec.shape, dtype)
    )


def _passed(tf: ModuleType, model: Model, names: list[str]) -> Callable[[dict[str, Any]], Any]:
    """Return a function that calls the model with tensors by name."""
    if is_keras(model):
        return _keras_call(model, names)
    if not callable(model):
        kind = type(model).__name__
        raise EncodeError(
            f"{kind} is not callable",
            hint="pass a function, a method, a tf.Module with __call__ or a Keras model",
        )
    traced = model if hasattr(model, "get_concrete_function") else tf.function(model)
    convention = _convention(_parameters(model), names)
    if convention == "names":
        return lambda tensors: traced(**tensors)
    return lambda tensors: traced(tensors[names[0]] if convention == "tensor" else tensors)


def _convention(parameters: list[inspect.Parameter], names: list[str]) -> str:
    """Return "names" if the parameters fit the names of the inputs; otherwise "tensor" or "dict",
    if the first parameter can take the only tensor or a dict of all of them.
    """
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    anything = any(p.kind == p.VAR_KEYWORD for p in parameters)
    needed = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if set(needed) <= set(names) and (anything or set(names) <= named):
        return "names"
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if positional and set(needed) <= {positional[0]}:
        return "tensor" if len(names) == 1 else "dict"
    raise EncodeError(
        f"the model has the parameters {', '.join(sorted(named)) or '(none)'}, but the signature"
        f" has the inputs {', '.join(names)}",
        hint="use the same names in both",
    )


def _keras_call(model: Model, names: list[str]) -> Callable[[dict[str, Any]], Any]:
    struct = _struct(model)
    backend = getattr(
        getattr(sys.modules.get("keras"), "backend", None), "backend", lambda: "tensorflow"
    )()
    if backend != "tensorflow":
        raise EncodeError(
            f"export needs Keras with the TensorFlow backend, but its backend is {backend}",
            hint="set KERAS_BACKEND=tensorflow",
        )
    if not getattr(model, "built", True):
        raise EncodeError("this Keras model is not built", hint="call it once before the export")
    if isinstance(struct, Mapping) or (struct is None and len(names) > 1):
        _same(list(struct) if isinstance(struct, Mapping) else names, names)
        return lambda tensors: model(tensors, training=False)
    if isinstance(struct, (list, tuple)):
        order = names if len(struct) == len(names) == 1 else [tensor.name for tensor in struct]
        _same(order, names)
        return lambda tensors: model([tensors[name] for name in order], training=False)
    if len(names) != 1:
        raise EncodeError(f"the model takes one tensor, but the signature has {', '.join(names)}")
    return lambda tensors: model(tensors[names[0]], training=False)


def _same(expected: list[str], names: list[str]) -> None:
    if sorted(expected) != sorted(names):
        raise EncodeError(
            f"the model has the inputs {', '.join(expected)}, but the signature has"
            f" {', '.join(names)}",
            hint="use the same names in both",
        )
