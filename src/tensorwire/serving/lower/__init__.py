"""Lowering: the tensors of a call as the dense inputs of a signature, with an explanation.

TensorFlow Serving accepts dense tensors only. A tensor is sent in one of these forms:

    dense        an input of the same name
    flattened    x, x_1, x_2: what TensorFlow makes of a sparse argument (indices, values,
                 dense_shape); x, x_1, ...: of a ragged one
    parts        x_indices, x_values, x_dense_shape, or x_values, x_row_splits_0, ...: the same,
                 named by role
    serialized   one string input of the same name. sparse, [N, 3]: each row as the three
                 TensorProtos that tf.io.serialize_many_sparse writes ([3]: the whole tensor).
                 ragged, [N]: each row as a TensorProto; [N, ragged_rank] if it nests
    example      one string input [N]: each row of all tensors as one tf.train.Example

The strategy of `plan`:

1. Name the values: a dict has names, a single value gets the name of the only input.
2. Convert each value to a tensor. Python's lists and numbers stay as they are, because the input
   decides their dtype. A dict {"indices", "values", "dense_shape"} is a sparse tensor.
3. If the signature takes only one vector of strings, encode all tensors as Examples into it.
4. Otherwise list for each tensor the forms that the signature offers: the parts of a group of that
   name first, then an input of that name. Use the preferred form, or the first one.
5. Fill the inputs: `conversion` checks the dtype and the shape and never loses a value silently.
   An input that is filled twice or not at all is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from ... import frameworks, io
from ..._errors import EncodeError, TensorwireError, choices
from ...core.tensors import Array, Bundle, Ragged, Sparse, Strings, Tensor, TensorLike, describe
from ..spec import Input, shown
from . import example_rows, tensor_parts
from .conversion import FORMAT, fit, fits, is_plain

if TYPE_CHECKING:
    from ..composite import Group
    from ..signature import Signature

FORMS = ("dense", "flattened", "parts", "serialized", "example")
APART = ("flattened", "parts")
"""Forms that need several inputs for a tensor, with different first dimensions."""
_SPARSE = {"indices", "values", "dense_shape"}
Tensors = dict[str, Array | Strings]


class Step(NamedTuple):
    """How one tensor is sent."""

    name: str
    given: str
    form: str
    targets: tuple[str, ...]
    """The names of the inputs that the tensor fills."""
    why: str
    notes: tuple[str, ...] = ()
    """The conversions of the values."""


@dataclass(frozen=True)
class LoweringPlan:
    """The inputs that will be sent, and the steps that led to them."""

    signature: Signature
    inputs: Mapping[str, Array | Strings]
    steps: tuple[Step, ...]

    @property
    def has_rows(self) -> bool:
        """Whether all inputs share their first dimension, so that they can be sent by rows."""
        counts = {tensor.shape[0] if tensor.shape else None for tensor in self.inputs.values()}
        # The first dimensions of the parts of a tensor can be equal by chance.
        apart = any(step.form in APART for step in self.steps)
        return not apart and len(counts) == 1 and None not in counts

    def explain(self) -> str:
        """Return the plan as text."""
        lines = [f"signature {self.signature.name!r}"]
        for step in self.steps:
            lines.append(f"  {step.name}: {step.given} is sent as {step.form}: {step.why}")
            if step.form != "example" or step is self.steps[-1]:
                for name in step.targets:
                    lines.append(f"    {name}: {describe(self.inputs[name])}")
            lines += [f"    {note}" for note in step.notes]
        unequal = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in self.inputs.items())
        can = (
            "rows or columns"
            if self.has_rows
            else f"columns only, because the inputs are not rows of one batch: {unequal}"
        )
        return "\n".join([*lines, f"  REST layout: {can}"])

    def __str__(self) -> str:
        return self.explain()


def as_given(inputs: Mapping[str, TensorLike] | TensorLike, signature: Signature) -> LoweringPlan:
    """Return a plan that sends tensors by name as they are, for a server that does not describe its
    model.

    >>> from tensorwire.serving.signature import Signature
    >>> print(as_given({"x": np.float32([1])}, Signature("m", {}, {})).inputs)
    {'x': array([1.], dtype=float32)}
    """
    if not isinstance(inputs, (Mapping, Bundle)) or _is_sparse(inputs):
        why = "the server does not describe the inputs of the model"
        raise EncodeError(why, format=FORMAT, hint="pass a dict with a tensor for each input")
    tensors: Tensors = {}
    for name, value in inputs.items():
        try:
            tensors[name] = _dense(frameworks.tensor(value))
        except TensorwireError as error:
            raise error.add(tensor=str(name), format=FORMAT) from None
    why = "the server does not describe the inputs of the model"
    steps = [
        Step(name, describe(tensor), "dense", (name,), why) for name, tensor in tensors.items()
    ]
    return LoweringPlan(signature, tensors, tuple(steps))


def _dense(tensor: Tensor) -> Array | Strings:
    if isinstance(tensor, (np.ndarray, Strings)):
        return tensor
    raise EncodeError(
        f"expected a dense tensor, got {_shown(tensor)}: the server does not describe its inputs",
        hint="pass the parts of the tensor by name",
    )


def plan(
    inputs: Mapping[str, TensorLike] | TensorLike,
    signature: Signature,
    prefer: str | Mapping[str, str] | None = None,
    *,
    cast: bool = False,
    partial: bool = False,
) -> LoweringPlan:
    """Return the plan that fills the inputs of a signature with tensors.

    `inputs` are tensors of any framework by name, or nested lists, which get the dtype of the
    input; or one tensor, if the signature has one input. `prefer` chooses a form, for all tensors
    or by name. `cast=True` allows floats to be rounded to the dtype of the input. `partial=True`
    allows inputs that are not given, because the server may have defaults for them. Raises
    EncodeError if the tensors do not fit the signature.

    >>> from tensorwire.serving.signature import Signature
    >>> inputs = {"ids": ("sparse", "float32", [None, 100]), "x": ("float32", [None, 2])}
    >>> ids = Sparse([[0, 7]], np.float32([1]), (1, 100))
    >>> print(plan({"ids": ids, "x": [[1, 2]]}, Signature.given(inputs)))
    signature 'serving_default'
      ids: Sparse float32 (1, 100) is sent as parts: the signature has the parts of a sparse tensor
      'ids'
        ids_indices: int64 (1, 2)
        ids_values: float32 (1,)
        ids_dense_shape: int64 (2,)
      x: a list is sent as dense: the signature has an input of that name
        x: float32 (1, 2)
        Python numbers as float32
      REST layout: columns only, because the inputs are not rows of one batch: ids_indices [1, 2],
      ids_values [1], ids_dense_shape [2], x [1, 2]
    """
    return _Planner(signature, prefer, cast, partial).plan(inputs)


class _Planner:
    """The state of one call of `plan`: the filled inputs and the steps so far."""

    def __init__(
        self,
        signature: Signature,
        prefer: str | Mapping[str, str] | None,
        cast: bool,
        partial: bool,
    ) -> None:
        self.signature, self.prefer, self.cast, self.partial = signature, prefer, cast, partial
        self.groups = {group.name: group for group in signature.groups()}
        taken = {part for group in self.groups.values() for part in group.parts.values()}
        self.names = [*self.groups, *(name for name in signature.inputs if name not in taken)]
        """The names that a caller can pass: groups, and inputs that are not a part of one."""
        self.untyped = False
        """Whether the values of the current sparse or ragged tensor were Python's numbers, which
        get the dtype of the input.
        """
        self.found: Tensors = {}
        self.steps: list[Step] = []

    def plan(self, inputs: Mapping[str, TensorLike] | TensorLike) -> LoweringPlan:
        values = self._named(inputs)
        self._check_preferences(values)
        if self._are_examples(values):
            self._as_examples(values)
        else:
            for name, value in values.items():
                try:
                    self._add(name, value)
                except TensorwireError as error:
                    raise error.add(tensor=name, format=FORMAT) from None
        if not self.partial or not self.found:
            self._check_all_there(values)
        filled = {name: self.found[name] for name in self.signature.inputs if name in self.found}
        return LoweringPlan(self.signature, filled, tuple(self.steps))

    def _named(self, inputs: Mapping[str, TensorLike] | TensorLike) -> dict[str, Any]:
        if isinstance(inputs, (Mapping, Bundle)) and not _is_sparse(inputs):
            return dict(inputs)
        if len(self.names) == 1:
            return {self.names[0]: inputs}
        raise EncodeError(
            f"expected a dict of tensors for the inputs {', '.join(self.names) or '(none)'}, got a"
            " single value",
            format=FORMAT,
        )

    def _check_preferences(self, values: Mapping[str, Any]) -> None:
        chosen = (
            self.prefer
            if isinstance(self.prefer, Mapping)
            else {}
            if self.prefer is None
            else {"": self.prefer}
        )
        for name, form in chosen.items():
            if form not in FORMS:
                raise EncodeError(
                    f"unknown form {form!r} in prefer={choices(form, FORMS)}", format=FORMAT
                )
            if name and name not in values:
                raise EncodeError(
                    f"unknown input {name!r} in prefer={choices(name, values)}", format=FORMAT
                )

    def _preferred(self, name: str) -> str | None:
        return self.prefer.get(name) if isinstance(self.prefer, Mapping) else self.prefer

    # Tensors with inputs of their own

    def _add(self, name: str, value: TensorLike) -> None:
        """Choose the form of one tensor and fill its inputs."""
        tensor = _tensor(value)
        offers = self._offers(name, tensor)
        wanted = self._preferred(name)
        # A form for all is meant for the sparse and ragged tensors.
        if (
            isinstance(self.prefer, str)
            and wanted not in offers
            and "dense" in offers
            and not isinstance(tensor, (Sparse, Ragged))
        ):
            wanted = None
        if wanted is not None and wanted not in offers:
            others = f"; it offers {', '.join(offers)}" if offers else ""
            raise EncodeError(f"the signature has no {wanted} form for {_shown(tensor)}{others}")
        if not offers:
            raise self._refusal(name, tensor)
        form = wanted or next(iter(offers))
        why, fill = offers[form]
        self.untyped = isinstance(value, dict) and is_plain(value.get("values"))
        try:
            targets, notes = fill()
        except EncodeError as error:
            if form == "dense" and name in self.groups:
                group = self.groups[name]
                error.hint = f"{name!r} is a part of {group}; pass a tw.{group.kind.title()}"
            raise
        alternatives = [other for other in offers if other != form]
        because = (
            ", chosen by prefer="
            if wanted
            else f"; alternatives: {', '.join(alternatives)}"
            if alternatives
            else ""
        )
        self.steps.append(
            Step(name, _shown(tensor), form, targets, f"{why}{because}", tuple(notes))
        )

    def _offers(
        self, name: str, tensor: TensorLike
    ) -> dict[str, tuple[str, Callable[[], tuple[tuple[str, ...], list[str]]]]]:
        """Return the forms in which the signature takes a tensor of this name, the best first: (the
        reason, the function that fills the inputs).
        """
        offers: dict[str, Any] = {}
        group, target = self.groups.get(name), self.signature.inputs.get(name)
        if group is None and target is None and isinstance(tensor, (Sparse, Ragged)):
            # The group of inputs that are named by their roles alone has no name.
            group = self.groups.get("")
        if group is not None and self._is_of(tensor, group, target):
            form = "flattened" if name in group.parts.values() else "parts"
            offers[form] = (
                f"the signature has the parts of a {group.kind} tensor {name!r}",
                lambda: self._as_parts(tensor, group),
            )
        if target is None or target.kind != "dense":
            return offers
        if (
            isinstance(tensor, (Sparse, Ragged))
            and target.dtype == "string"
            and _takes_rows(target, tensor)
        ):
            offers["serialized"] = (
                f"the string input {name!r} takes serialized rows",
                lambda: self._as_serialized(tensor, target),
            )
        if (
            isinstance(tensor, Sparse)
            and target.dtype != "string"
            and self._preferred(name) == "dense"
        ):
            offers["dense"] = (
                "the signature has an input of that name",
                lambda: self._as_dense(tensor.to_dense(), target),
            )
        if not isinstance(tensor, (Sparse, Ragged)) and not offers:
            offers["dense"] = (
                "the signature has an input of that name",
                lambda: self._as_dense(tensor, target),
            )
        return offers

    def _is_of(self, tensor: TensorLike, group: Group, target: Input | None) -> bool:
        """Return whether the tensor can fill the group, and is not one of its parts."""
        if group.kind == "sparse":
            return isinstance(tensor, Sparse)
        return isinstance(tensor, Ragged) or tensor_parts.can_be_ragged(tensor, group, target)

    def _fill(self, name: str, value: TensorLike) -> list[str]:
        """Fill an input and return notes on the conversion."""
        if name in self.found:
            raise EncodeError(f"the input {name!r} of the signature is given twice")
        self.found[name], notes = fit(value, self.signature.inputs[name], self.cast)
        return [f"{name}: {note}" for note in notes]

    def _as_dense(self, tensor: TensorLike, target: Input) -> tuple[tuple[str, ...], list[str]]:
        notes = self._fill(target.name, tensor)
        return (target.name,), [note.partition(": ")[2] for note in notes]

    def _as_parts(self, tensor: TensorLike, group: Group) -> tuple[tuple[str, ...], list[str]]:
        if isinstance(tensor, Sparse):
            if group.shape is not None and not fits(tensor.shape, group.shape):
                wanted = f"{group.kind} {group.dtype} {shown(group.shape)}"
                raise EncodeError(f"expected {wanted}, got the shape {list(tensor.shape)}")
            parts, notes = tensor_parts.of_sparse(tensor)
        else:
            parts, notes = tensor_parts.of_ragged(tensor, group), []
        # Values that were Python's numbers become so again, so that the input decides their dtype.
        if self.untyped and not isinstance(parts["values"], Strings):
            parts["values"] = parts["values"].tolist()
        for role, name in group.parts.items():
            notes += self._fill(name, parts[role])
        return tuple(group.parts.values()), notes

    def _as_serialized(
        self, tensor: Sparse | Ragged, target: Input
    ) -> tuple[tuple[str, ...], list[str]]:
        notes = [f"the values stay {tensor.dtype}, and the model must expect this dtype"]
        if isinstance(tensor, Ragged):
            self._fill(target.name, example_rows.ragged_rows(tensor))
            return (target.name,), notes
        ordered = tensor.sort()
        if ordered is not tensor:
            notes.append(tensor_parts.UNSORTED)
        whole = target.shape is not None and len(target.shape) == 1
        if not whole and tensor.indices.shape[1] < 2:
            raise EncodeError(
                "expected a sparse tensor with a rank of at least 2, whose first dimension is the"
                f" batch, got {_shown(tensor)}"
            )
        self._fill(
            target.name,
            io.serialize_sparse(ordered) if whole else io.serialize_many_sparse(ordered),
        )
        return (target.name,), notes

    # All tensors in one string input

    def _are_examples(self, values: Mapping[str, Any]) -> bool:
        """Return whether the tensors are features of Examples: the signature takes one vector of
        strings, and the tensors are not this input itself.
        """
        target = self._examples_target()
        wanted = self.prefer == "example" or (
            isinstance(self.prefer, Mapping) and "example" in self.prefer.values()
        )
        if target is None:
            if wanted:
                raise EncodeError(
                    "the signature has no example form, which is one string input of shape [?]",
                    format=FORMAT,
                )
            return False
        if wanted or target.name in values or self.prefer is not None:
            return wanted
        # A single tensor of strings with another name is a misspelt input rather than a feature.
        return (
            len(values) > 1
            or "example" in target.name.lower()
            or not all(map(_is_strings, values.values()))
        )

    def _examples_target(self) -> Input | None:
        if len(self.signature.inputs) != 1:
            return None
        (target,) = self.signature.inputs.values()
        return (
            target
            if target.dtype == "string"
            and target.kind == "dense"
            and (target.shape is None or len(target.shape) == 1)
            else None
        )

    def _as_examples(self, values: Mapping[str, Any]) -> None:
        (target,) = self.signature.inputs.values()
        tensors = {name: _tensor(value) for name, value in values.items()}
        features = {name: _featured(tensor) for name, tensor in tensors.items()}
        self._fill(target.name, example_rows.examples(features))
        why = f"the string input {target.name!r} takes Examples" + (
            ", chosen by prefer=" if self.prefer else ""
        )
        for name, tensor in tensors.items():
            notes = (f"as {example_rows.words(name, features[name])}",)
            self.steps.append(Step(name, _shown(tensor), "example", (target.name,), why, notes))

    # Errors

    def _refusal(self, name: str, tensor: TensorLike) -> EncodeError:
        """Return the error for a tensor that the signature offers no form for."""
        group, target = self.groups.get(name), self.signature.inputs.get(name)
        if group is not None:
            made = (
                "tw.Sparse(indices, values, dense_shape)"
                if group.kind == "sparse"
                else "tw.Ragged(values, row_splits) or nested lists"
            )
            return EncodeError(
                f"expected a {group.kind} tensor ({group}), got {_shown(tensor)}",
                hint=f"pass {made}",
            )
        if target is not None and target.kind != "dense":
            return EncodeError(
                f"TensorFlow Serving cannot be sent the {target.kind} input {target}",
                hint="export the model with tw.serving.export, which makes its parts inputs",
            )
        if target is not None:
            how = "use x.to_dense()" if isinstance(tensor, Sparse) else "pad it to a dense tensor"
            return EncodeError(
                f"expected a dense tensor for {target}, got {_shown(tensor)}",
                hint=f"{how}, or export the model with its parts as inputs",
            )
        return EncodeError(f"the signature has no input {name!r}{choices(name, self.names)}")

    def _check_all_there(self, values: Mapping[str, Any]) -> None:
        missing = [name for name in self.signature.inputs if name not in self.found]
        if missing:
            group = next(
                (group for group in self.groups.values() if missing[0] in group.parts.values()),
                None,
            )
            whole = (
                group.name
                if group is not None and not set(group.parts.values()) & self.found.keys()
                else missing[0]
            )
            why = f"missing input {whole!r} of the signature{choices(whole, values)}"
            raise EncodeError(why, tensor=whole, format=FORMAT)


def _is_sparse(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and value.keys() == _SPARSE


def _tensor(value: TensorLike) -> Any:
    """Return a tensor; or the value itself if it is made of Python's lists and numbers, which get
    the dtype of the input.
    """
    if _is_sparse(value):
        return Sparse(value["indices"], frameworks.tensor(value["values"]), value["dense_shape"])
    if isinstance(value, dict) and value.keys() == {"values", "row_splits"}:
        return Ragged(frameworks.tensor(value["values"]), value["row_splits"])
    if frameworks.is_python(value):
        if isinstance(value, (Mapping, Bundle)) or value is None:
            raise EncodeError(f"expected a tensor, got {type(value).__name__}")
        return value
    tensor = frameworks.tensor(value)
    if isinstance(tensor, list):
        raise EncodeError("expected a tensor, got a list of tensors", hint="pass a tw.Ragged")
    return tensor


def _is_strings(value: TensorLike) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (str, bytes)) or isinstance(_tensor(value), Strings)


def _shown(tensor: TensorLike) -> str:
    if isinstance(tensor, (np.ndarray, Strings, Sparse, Ragged)):
        return describe(tensor)
    return "a list" if isinstance(tensor, (list, tuple)) else f"one {type(tensor).__name__}"


def _featured(tensor: TensorLike) -> Any:
    """Return a tensor for an Example; Python's floats are float32, as in Examples."""
    converted = frameworks.tensor(tensor)
    return (
        converted.astype(np.float32)
        if is_plain(tensor) and isinstance(converted, np.ndarray) and converted.dtype == np.float64
        else converted
    )


def _takes_rows(target: Input, tensor: Sparse | Ragged) -> bool:
    """Return whether a string input has the shape of a tensor's serialized rows."""
    if target.shape is None:
        return True
    if isinstance(tensor, Sparse):
        return len(target.shape) in (1, 2) and target.shape[-1] in (3, None)
    depth = len(tensor.row_splits)
    return (
        len(target.shape) == 1
        if depth == 1
        else len(target.shape) == 2 and target.shape[1] in (depth, None)
    )
