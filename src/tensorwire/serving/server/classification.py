"""classify and regress: signatures that take serialized tf.train.Examples, and what TensorFlow
Serving asks of them.
"""

from __future__ import annotations

from typing import Any

from ...core import dtypes
from ...core.tensors import Array, Strings
from ..rest.faults import dims_text
from ..signature import DEFAULT
from .failures import INVALID, PRECONDITION, Failure
from .runner import Runner, Tensors

INPUTS, CLASSES, SCORES, OUTPUTS = "inputs", "classes", "scores", "outputs"
_DT = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}


def classify(runner: Runner, name: str, examples: Strings) -> Tensors:
    """{"classes": strings [N, C], "scores": float32 [N, C]}, or one of them."""
    one = _signature(runner, name)
    if len(one.inputs) != 1:
        raise Failure(INVALID, "Expected one input Tensor.")
    if len(one.outputs) not in (1, 2):
        raise Failure(INVALID, f"Expected one or two output Tensors, found {len(one.outputs)}")
    if INPUTS not in one.inputs:
        raise Failure(PRECONDITION, f"No classification inputs found in SignatureDef: {one}")
    wanted = tuple(each for each in (CLASSES, SCORES) if each in one.outputs)
    if not wanted:
        why = (
            f'Expected classification signature outputs to contain at least one of "{CLASSES}" or'
            f' "{SCORES}".'
        )
        raise Failure(PRECONDITION, f"{why} Signature was: {one}")
    found = _run(runner, name, examples, wanted)
    for what, dtype in ((CLASSES, "string"), (SCORES, "float32")):
        if what in found:
            _check_classes(found[what], what, dtype, len(examples))
    sizes = [each.shape[1] for each in found.values()]
    if len(set(sizes)) != 1:
        raise Failure(
            INVALID,
            f"Tensors class and score should match in dim_size(1). Got {sizes[0]} vs. {sizes[1]}",
        )
    return found


def _check_classes(tensor: Array | Strings, what: str, dtype: str, examples: int) -> None:
    if len(tensor.shape) != 2:
        raise Failure(
            INVALID,
            f"Expected Tensor shape: [batch_size num_classes] but got {dims_text(tensor.shape)}",
        )
    if _dtype(tensor) != dtype:
        raise Failure(
            INVALID, f"Expected {what} Tensor of {_enum(dtype)}. Got: {_enum(_dtype(tensor))}"
        )
    if tensor.shape[0] != examples:
        raise Failure(
            INVALID, f"Expected {what} output batch size of {examples}. Got: {tensor.shape[0]}"
        )


def regress(runner: Runner, name: str, examples: Strings) -> Tensors:
    """{"outputs": float32 [N]}"""
    one = _signature(runner, name)
    if len(one.inputs) != 1:
        raise Failure(INVALID, "Expected one input Tensor.")
    if len(one.outputs) != 1:
        raise Failure(INVALID, "Expected one output Tensor.")
    if INPUTS not in one.inputs:
        raise Failure(PRECONDITION, f"No regression inputs found in SignatureDef: {one}")
    if OUTPUTS not in one.outputs:
        raise Failure(PRECONDITION, f"No regression outputs found in SignatureDef: {one}")
    found = _run(runner, name, examples, (OUTPUTS,))[OUTPUTS]
    if len(found.shape) not in (1, 2) or found.shape[1:] not in ((), (1,)):
        raise Failure(
            INVALID,
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got"
            f" {dims_text(found.shape)}",
        )
    if found.shape[0] != len(examples):
        raise Failure(
            INVALID,
            f"Input batch size did not match output batch size: {len(examples)} vs."
            f" {found.shape[0]}",
        )
    if _dtype(found) != "float32":
        raise Failure(INVALID, f"Expected output Tensor of DT_FLOAT.  Got: {_enum(_dtype(found))}")
    return {OUTPUTS: found.reshape(-1)}


def _signature(runner: Runner, name: str) -> Any:
    """Its method_name may be any: Serving does not check it by default, and TensorFlow 2 always
    writes "predict"."""
    one = runner.defs.get(name or DEFAULT)
    if one is None:
        raise Failure(INVALID, f"No signature was found with the name: {name or DEFAULT}")
    return one


def _run(runner: Runner, name: str, examples: Strings, wanted: tuple[str, ...]) -> Tensors:
    if not len(examples):
        raise Failure(INVALID, "Input is empty.")
    return runner.run(name or DEFAULT, {INPUTS: examples}, wanted)


def _dtype(tensor: Array | Strings) -> str:
    return "string" if isinstance(tensor, Strings) else dtypes.of(tensor.dtype).name


def _enum(dtype: str) -> str:
    """TensorFlow's name of a dtype in its messages.

    >>> _enum("float32"), _enum("string")
    ('DT_FLOAT', 'DT_STRING')
    """
    return _DT.get(dtype, f"DT_{dtype.upper()}")
