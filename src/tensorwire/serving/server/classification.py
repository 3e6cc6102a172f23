"""classify and regress: calls of signatures that take serialized tf.train.Examples.

The checks and their messages are those of TensorFlow Serving.
"""

from __future__ import annotations

from typing import Any

from ...core.tensors import Array, Strings
from ..rest.faults import dims_text
from ..signature import DEFAULT
from .failures import INVALID, PRECONDITION, Failure
from .runner import Runner, Tensors, dtype_name

INPUTS, CLASSES, SCORES, OUTPUTS = "inputs", "classes", "scores", "outputs"
_DT = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}


def classify(runner: Runner, name: str, examples: Strings) -> Tensors:
    """Return {"classes": strings [N, C], "scores": float32 [N, C]}, or one of them."""
    signature = _signature(runner, name)
    if len(signature.outputs) not in (1, 2):
        raise Failure(
            INVALID, f"Expected one or two output Tensors, found {len(signature.outputs)}"
        )
    if INPUTS not in signature.inputs:
        raise Failure(PRECONDITION, f"No classification inputs found in SignatureDef: {signature}")
    wanted = tuple(alias for alias in (CLASSES, SCORES) if alias in signature.outputs)
    if not wanted:
        reason = (
            f'Expected classification signature outputs to contain at least one of "{CLASSES}" or'
            f' "{SCORES}".'
        )
        raise Failure(PRECONDITION, f"{reason} Signature was: {signature}")
    outputs = _run(runner, name, examples, wanted)
    for alias, dtype in ((CLASSES, "string"), (SCORES, "float32")):
        if alias in outputs:
            _check_classes(outputs[alias], alias, dtype, len(examples))
    sizes = [tensor.shape[1] for tensor in outputs.values()]
    if len(set(sizes)) != 1:
        raise Failure(
            INVALID,
            f"Tensors class and score should match in dim_size(1). Got {sizes[0]} vs. {sizes[1]}",
        )
    return outputs


def _check_classes(tensor: Array | Strings, alias: str, dtype: str, examples: int) -> None:
    if len(tensor.shape) != 2:
        raise Failure(
            INVALID,
            f"Expected Tensor shape: [batch_size num_classes] but got {dims_text(tensor.shape)}",
        )
    if dtype_name(tensor) != dtype:
        raise Failure(
            INVALID, f"Expected {alias} Tensor of {_enum(dtype)}. Got: {_enum(dtype_name(tensor))}"
        )
    if tensor.shape[0] != examples:
        raise Failure(
            INVALID, f"Expected {alias} output batch size of {examples}. Got: {tensor.shape[0]}"
        )


def regress(runner: Runner, name: str, examples: Strings) -> Tensors:
    """Return {"outputs": float32 [N]}."""
    signature = _signature(runner, name)
    if len(signature.outputs) != 1:
        raise Failure(INVALID, "Expected one output Tensor.")
    if INPUTS not in signature.inputs:
        raise Failure(PRECONDITION, f"No regression inputs found in SignatureDef: {signature}")
    if OUTPUTS not in signature.outputs:
        raise Failure(PRECONDITION, f"No regression outputs found in SignatureDef: {signature}")
    tensor = _run(runner, name, examples, (OUTPUTS,))[OUTPUTS]
    if len(tensor.shape) not in (1, 2) or tensor.shape[1:] not in ((), (1,)):
        raise Failure(
            INVALID,
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got"
            f" {dims_text(tensor.shape)}",
        )
    if tensor.shape[0] != len(examples):
        raise Failure(
            INVALID,
            f"Input batch size did not match output batch size: {len(examples)} vs."
            f" {tensor.shape[0]}",
        )
    if dtype_name(tensor) != "float32":
        raise Failure(
            INVALID, f"Expected output Tensor of DT_FLOAT.  Got: {_enum(dtype_name(tensor))}"
        )
    return {OUTPUTS: tensor.reshape(-1)}


def _signature(runner: Runner, name: str) -> Any:
    """Return TensorFlow's SignatureDef of a name; raise Failure unless it has one input.

    Its method_name is not checked: Serving does not check it by default, and TensorFlow 2 always
    writes "predict".
    """
    signature = runner.defs.get(name or DEFAULT)
    if signature is None:
        raise Failure(INVALID, f"No signature was found with the name: {name or DEFAULT}")
    if len(signature.inputs) != 1:
        raise Failure(INVALID, "Expected one input Tensor.")
    return signature


def _run(runner: Runner, name: str, examples: Strings, wanted: tuple[str, ...]) -> Tensors:
    """Call a signature with examples."""
    if not len(examples):
        raise Failure(INVALID, "Input is empty.")
    return runner.run(name or DEFAULT, {INPUTS: examples}, wanted)


def _enum(dtype: str) -> str:
    """Return TensorFlow's name of a dtype, as used in its messages.

    >>> _enum("float32"), _enum("string")
    ('DT_FLOAT', 'DT_STRING')
    """
    return _DT.get(dtype, f"DT_{dtype.upper()}")
