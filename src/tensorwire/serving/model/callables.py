"""How a model is called: what it takes, and in which way its arguments are passed."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..._errors import EncodeError
from ..._optional import roots
from ..spec import DENSE, RAGGED, SPARSE, Spec, dims, dtype_name

if TYPE_CHECKING:
    import tensorflow

Model = Callable[..., Any]
"""A function, a tf.function, a tf.Module with __call__ or a Keras model."""


def specs(model: Model, signature: Mapping[str, Any] | None) -> dict[str, Spec]:
    """The inputs of a model, as the caller says or as the model itself knows."""
    if signature is None:
        signature = _keras_inputs(model) if is_keras(model) else _input_signature(model)
    if (
        not isinstance(signature, Mapping)
        or not signature
        or not all(isinstance(name, str) for name in signature)
    ):
        raise EncodeError(
            "a signature is a dict of names and specs, such as {'x': ('float32', [None, 3])},"
            f" not {signature!r:.80}"
        )
    return {name: Spec.of(each, name) for name, each in signature.items()}


def is_keras(model: object) -> bool:
    return bool(roots(type(model)) & {"keras", "tf_keras"}) and hasattr(model, "layers")


def _keras_inputs(model: Model) -> dict[str, Any]:
    struct = _struct(model)
    if struct is None:
        raise EncodeError(
            "this Keras model does not know its inputs; say them: signature={'x': ('float32',"
            " [None, 3])}"
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
    """The inputs of a functional or built sequential model, in the structure that its call takes."""
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
    if given is None:  # that of a tf.Module is its call's
        given = getattr(
            inspect.getattr_static(type(model), "__call__", None), "input_signature", None
        )
    if given is None:
        raise EncodeError(
            "say what the model takes: signature={'x': ('float32', [None, 3])}; only a tf.function"
            " with an input_signature knows it"
        )
    found: dict[str, Any] = {}
    for parameter, each in zip(_parameters(model), given, strict=False):
        found |= each if isinstance(each, Mapping) else {parameter.name: each}
    return found


def _parameters(model: Model) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(model).parameters.values())
    except (TypeError, ValueError) as error:
        raise EncodeError(f"{type(model).__name__} does not say what it takes: {error}") from None


def function(tf: ModuleType, model: Model, specs: Mapping[str, Spec]) -> Any:
    """The model as a tf.function of the inputs in their order, which can be passed by name too
    where Python has such names.
    """
    passed, names = _passed(tf, model, list(specs)), list(specs)

    def call(*tensors: Any) -> Any:
        return passed(dict(zip(names, tensors, strict=True)))

    return positional(tf, call, names, [_type_spec(tf, spec) for spec in specs.values()])


def positional(
    tf: ModuleType, function: Callable[..., Any], names: list[str], specs: list[Any]
) -> Any:
    """A tf.function of these specs in their order, whose parameters are called as the names are, as
    far as Python allows.
    """
    words: list[str] = []
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.A)
        words.append(
            word if word.isidentifier() and word not in words else f"input_{len(words)}_{word}"
        )
    parameters = [
        inspect.Parameter(word, inspect.Parameter.POSITIONAL_OR_KEYWORD) for word in words
    ]
    # which TensorFlow looks at, and saves
    vars(function)["__signature__"] = inspect.Signature(parameters)
    return tf.function(function, input_signature=specs, autograph=False)


def _type_spec(tf: ModuleType, spec: Spec) -> Any:
    """TensorFlow's own spec."""
    dtype = tf.as_dtype(spec.dtype)
    if spec.kind == RAGGED:
        return tf.RaggedTensorSpec(spec.shape, dtype, spec.ragged_rank, tf.as_dtype(spec.splits))
    return (
        tf.SparseTensorSpec(spec.shape, dtype)
        if spec.kind == SPARSE
        else tf.TensorSpec(spec.shape, dtype)
    )


def _passed(tf: ModuleType, model: Model, names: list[str]) -> Callable[[dict[str, Any]], Any]:
    """How the model takes tensors that go by name."""
    if is_keras(model):
        return _keras_call(model, names)
    if not callable(model):
        what = type(model).__name__
        raise EncodeError(
            f"{what} cannot be called; pass a function, a tf.Module with __call__, one of its"
            " methods, or a Keras model"
        )
    traced = model if hasattr(model, "get_concrete_function") else tf.function(model)
    way = _way(_parameters(model), names)
    if way == "names":
        return lambda tensors: traced(**tensors)
    return lambda tensors: traced(tensors[names[0]] if way == "tensor" else tensors)


def _way(parameters: list[inspect.Parameter], names: list[str]) -> str:
    """By names if all fit; else one parameter takes the one tensor, or a dict of them."""
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
        f"the model takes {', '.join(sorted(named)) or 'nothing'}, and the signature has"
        f" {', '.join(names)}; they must be the same names"
    )


def _keras_call(model: Model, names: list[str]) -> Callable[[dict[str, Any]], Any]:
    struct = _struct(model)
    backend = getattr(
        getattr(sys.modules.get("keras"), "backend", None), "backend", lambda: "tensorflow"
    )()
    if backend != "tensorflow":
        raise EncodeError(
            f"Keras runs on {backend} here, and a SavedModel needs it to run on TensorFlow:"
            " KERAS_BACKEND=tensorflow"
        )
    if not getattr(model, "built", True):
        raise EncodeError("this Keras model has no weights yet: call it once before")
    if isinstance(struct, Mapping) or (struct is None and len(names) > 1):
        _same(list(struct) if isinstance(struct, Mapping) else names, names)
        return lambda tensors: model(tensors, training=False)
    if isinstance(struct, (list, tuple)):
        known = names if len(struct) == len(names) == 1 else [tensor.name for tensor in struct]
        _same(known, names)
        return lambda tensors: model([tensors[name] for name in known], training=False)
    if len(names) != 1:
        raise EncodeError(f"the model takes one tensor, and the signature has {', '.join(names)}")
    return lambda tensors: model(tensors[names[0]], training=False)


def _same(known: list[str], names: list[str]) -> None:
    if sorted(known) != sorted(names):
        raise EncodeError(
            f"the model's inputs are {', '.join(known)}, and the signature has {', '.join(names)};"
            " they must be the same names"
        )
