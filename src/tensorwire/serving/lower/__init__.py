"""Your tensors as the named inputs that a signature has, and an account of how.

TensorFlow Serving knows dense tensors only. What else there is goes in one of these forms, by what
the signature offers:

    dense        an input of the same name
    flattened    x, x_1, x_2: what TensorFlow makes of a sparse argument (indices, values,
                 dense_shape); x, x_1, ...: of a ragged one
    parts        x_indices, x_values, x_dense_shape, or x_values, x_row_splits_0, ...: the same with
                 names that say what they are
    serialized   one string input of the same name. sparse, [N, 3]: each row as the three
                 TensorProtos that tf.io.serialize_many_sparse
                 writes ([3]: all of it at once). ragged, [N]: each row as a TensorProto; [N,
                 ragged_rank] if it nests
    example      one string input [N]: each row of all your tensors as one tf.train.Example

A nested dict {"indices": ..., "values": ..., "dense_shape": ...} is taken for the sparse tensor
that it is.
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
"""Forms that make several inputs of a tensor, whose first dimensions differ."""
_SPARSE = {"indices", "values", "dense_shape"}
Tensors = dict[str, Array | Strings]


class Step(NamedTuple):
    """How one of your tensors goes."""

    name: str
    given: str
    form: str
    targets: tuple[str, ...]
    """The inputs of the signature that it fills."""
    why: str
    notes: tuple[str, ...] = ()
    """What was done to the values."""


@dataclass(frozen=True)
class LoweringPlan:
    """What will be sent, and how it came about."""

    signature: Signature
    inputs: Mapping[str, Array | Strings]
    steps: tuple[Step, ...]

    @property
    def has_rows(self) -> bool:
        """Whether all inputs share their first dimension, so that they can go by rows."""
        counts = {tensor.shape[0] if tensor.shape else None for tensor in self.inputs.values()}
        # The first dimensions of the parts of a tensor could be equal by chance.
        apart = any(step.form in APART for step in self.steps)
        return not apart and len(counts) == 1 and None not in counts

    def explain(self) -> str:
        """All of it in words."""
        lines = [f"signature {self.signature.name!r}"]
        for step in self.steps:
            lines.append(f"  {step.name}: {step.given} goes as {step.form}, {step.why}")
            if step.form != "example" or step is self.steps[-1]:
                for name in step.targets:
                    lines.append(f"    {name}: {describe(self.inputs[name])}")
            lines += [f"    {note}" for note in step.notes]
        unequal = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in self.inputs.items())
        can = (
            "rows or columns"
            if self.has_rows
            else f"columns only, because these are no rows: {unequal}"
        )
        return "\n".join([*lines, f"  by REST in {can}"])

    def __str__(self) -> str:
        return self.explain()


def as_given(inputs: Mapping[str, TensorLike] | TensorLike, signature: Signature) -> LoweringPlan:
    """Tensors by name as they are, for a server that does not say what its model takes.

    >>> from tensorwire.serving.signature import Signature
    >>> print(as_given({"x": np.float32([1])}, Signature("m", {}, {})).inputs)
    {'x': array([1.], dtype=float32)}
    """
    if not isinstance(inputs, (Mapping, Bundle)) or _is_sparse(inputs):
        why = (
            "the server does not say what the model takes; pass a dict with a tensor for each input"
        )
        raise EncodeError(why, format=FORMAT)
    found: Tensors = {}
    for name, value in inputs.items():
        try:
            found[name] = _dense(frameworks.tensor(value))
        except TensorwireError as error:
            raise error.add(tensor=str(name), format=FORMAT) from None
    why = "which is as it was given: the server does not say what the model takes"
    steps = [Step(name, describe(tensor), "dense", (name,), why) for name, tensor in found.items()]
    return LoweringPlan(signature, found, tuple(steps))


def _dense(tensor: Tensor) -> Array | Strings:
    if isinstance(tensor, (np.ndarray, Strings)):
        return tensor
    raise EncodeError(
        f"{_shown(tensor)} is not a dense tensor, and the server does not say which parts it takes;"
        " pass them by name"
    )


def plan(
    inputs: Mapping[str, TensorLike] | TensorLike,
    signature: Signature,
    prefer: str | Mapping[str, str] | None = None,
    *,
    cast: bool = False,
    partial: bool = False,
) -> LoweringPlan:
    """Which of the signature's inputs gets what of your tensors.

    `inputs` are tensors of any framework by name, or nested lists, which the signature types; one
    tensor alone if it has one input. `prefer` chooses a form, for all or by name. `cast=True`
    allows floats to be rounded to the signature's dtype. `partial=True` leaves out inputs that are
    not given, which a server may know to be optional.

    >>> from tensorwire.serving.signature import Signature
    >>> signature = Signature.given({"ids": ("sparse", "float32", [None, 100]), "x": ("float32",
    ...     [None, 2])})
    >>> found = plan({"ids": Sparse([[0, 7]], np.float32([1]), (1, 100)), "x": [[1, 2]]}, signature)
    >>> print(found)
    signature 'serving_default'
      ids: Sparse float32 [1, 100] goes as parts, which the signature has for the sparse tensor
      'ids'
        ids_indices: int64 [1, 2]
        ids_values: float32 [1]
        ids_dense_shape: int64 [2]
      x: a list goes as dense, which is an input of the same name
        x: float32 [1, 2]
        Python numbers as float32
      by REST in columns only, because these are no rows: ids_indices [1, 2], ids_values [1],
      ids_dense_shape [2], x [1, 2]
    """
    return _Planner(signature, prefer, cast, partial).plan(inputs)


class _Planner:
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
        """What the signature takes, as people see it."""
        self.untyped = False
        """Whether the values of a sparse or ragged tensor are Python's numbers, which have no dtype
        yet.
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
                    self._one(name, value)
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
            f"the signature takes {', '.join(self.names) or 'nothing'}; pass a dict with a tensor"
            " for each",
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
                raise EncodeError(f"no form {form!r}{choices(form, FORMS)}", format=FORMAT)
            if name and name not in values:
                raise EncodeError(
                    f"prefer speaks of {name!r}{choices(name, values)}", format=FORMAT
                )

    def _preferred(self, name: str) -> str | None:
        return self.prefer.get(name) if isinstance(self.prefer, Mapping) else self.prefer

    # One by one

    def _one(self, name: str, value: TensorLike) -> None:
        tensor = _tensor(value)
        offers = self._offers(name, tensor)
        wanted = self._preferred(name)
        if (
            isinstance(self.prefer, str)
            and wanted not in offers
            and "dense" in offers
            and not isinstance(tensor, (Sparse, Ragged))
        ):
            wanted = None  # a word about sparse and ragged ones
        if wanted is not None and wanted not in offers:
            known = f"; it offers {', '.join(offers)}" if offers else ""
            raise EncodeError(f"the signature has no {wanted} form for {_shown(tensor)}{known}")
        if not offers:
            raise EncodeError(self._refusal(name, tensor))
        form = wanted or next(iter(offers))
        why, fill = offers[form]
        self.untyped = isinstance(value, dict) and is_plain(value.get("values"))
        try:
            targets, notes = fill()
        except EncodeError as error:
            if form == "dense" and name in self.groups:
                error.args = (
                    (
                        f"{error.message}; it is one of the parts of {self.groups[name]}, which a"
                        f" tw.{self.groups[name].kind.title()} fills"
                    ),
                )
            raise
        others = [other for other in offers if other != form]
        because = (
            ", as was asked for"
            if wanted
            else f"; it could go as {' or '.join(others)}, too"
            if others
            else ""
        )
        self.steps.append(
            Step(name, _shown(tensor), form, targets, f"which {why}{because}", tuple(notes))
        )

    def _offers(
        self, name: str, tensor: TensorLike
    ) -> dict[str, tuple[str, Callable[[], tuple[tuple[str, ...], list[str]]]]]:
        """The forms in which the signature takes a tensor of this name, the best first: (why, what
        does it).
        """
        offers: dict[str, Any] = {}
        group, target = self.groups.get(name), self.signature.inputs.get(name)
        if group is None and target is None and isinstance(tensor, (Sparse, Ragged)):
            group = self.groups.get("")  # parts that are called by their roles alone
        if group is not None and self._is_of(tensor, group, target):
            form = "flattened" if name in group.parts.values() else "parts"
            offers[form] = (
                f"the signature has for the {group.kind} tensor {name!r}",
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
                f"is what the string input {name!r} has room for",
                lambda: self._as_serialized(tensor, target),
            )
        if (
            isinstance(tensor, Sparse)
            and target.dtype != "string"
            and self._preferred(name) == "dense"
        ):
            offers["dense"] = (
                "is an input of the same name",
                lambda: self._as_dense(tensor.to_dense(), target),
            )
        if not isinstance(tensor, (Sparse, Ragged)) and not offers:
            offers["dense"] = "is an input of the same name", lambda: self._as_dense(tensor, target)
        return offers

    def _is_of(self, tensor: TensorLike, group: Group, target: Input | None) -> bool:
        if group.kind == "sparse":
            return isinstance(tensor, Sparse)
        return isinstance(tensor, Ragged) or tensor_parts.can_be_ragged(tensor, group, target)

    def _fill(self, name: str, value: TensorLike) -> list[str]:
        if name in self.found:
            raise EncodeError(f"the input {name!r} of the signature is filled twice")
        self.found[name], notes = fit(value, self.signature.inputs[name], self.cast)
        return [f"{name}: {note}" for note in notes]

    def _as_dense(self, tensor: TensorLike, target: Input) -> tuple[tuple[str, ...], list[str]]:
        notes = self._fill(target.name, tensor)
        return (target.name,), [note.partition(": ")[2] for note in notes]

    def _as_parts(self, tensor: TensorLike, group: Group) -> tuple[tuple[str, ...], list[str]]:
        if isinstance(tensor, Sparse):
            if group.shape is not None and not fits(tensor.shape, group.shape):
                wanted = f"{group.kind} {group.dtype} {shown(group.shape)}"
                raise EncodeError(
                    f"the signature wants {wanted}, and this has the shape {list(tensor.shape)}"
                )
            found, notes = tensor_parts.of_sparse(tensor)
        else:
            found, notes = tensor_parts.of_ragged(tensor, group), []
        if self.untyped and not isinstance(found["values"], Strings):
            found["values"] = found["values"].tolist()
        for role, name in group.parts.items():
            notes += self._fill(name, found[role])
        return tuple(group.parts.values()), notes

    def _as_serialized(
        self, tensor: Sparse | Ragged, target: Input
    ) -> tuple[tuple[str, ...], list[str]]:
        notes = [f"the values stay {tensor.dtype}, which the model must expect"]
        if isinstance(tensor, Ragged):
            self._fill(target.name, example_rows.ragged_rows(tensor))
            return (target.name,), notes
        ordered = tensor.sort()
        if ordered is not tensor:
            notes.append(tensor_parts.UNSORTED)
        whole = target.shape is not None and len(target.shape) == 1
        if not whole and tensor.indices.shape[1] < 2:
            raise EncodeError(
                "a batch of sparse tensors has a rank of at least 2, the first dimension being the"
                " batch"
            )
        self._fill(
            target.name,
            io.serialize_sparse(ordered) if whole else io.serialize_many_sparse(ordered),
        )
        return (target.name,), notes

    # All together

    def _are_examples(self, values: Mapping[str, Any]) -> bool:
        """Whether the signature takes one vector of strings, and the tensors are not that one."""
        target = self._examples_target()
        wanted = self.prefer == "example" or (
            isinstance(self.prefer, Mapping) and "example" in self.prefer.values()
        )
        if target is None:
            if wanted:
                raise EncodeError(
                    "the signature has no example form: that is one string input of shape [?]",
                    format=FORMAT,
                )
            return False
        if wanted or target.name in values or self.prefer is not None:
            return wanted
        # One tensor of strings that is called something else is a mistake rather than a feature.
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
        why = f"which the string input {target.name!r} can only be" + (
            ", as was asked for" if self.prefer else ""
        )
        for name, tensor in tensors.items():
            notes = (f"as {example_rows.words(name, features[name])}",)
            self.steps.append(Step(name, _shown(tensor), "example", (target.name,), why, notes))

    # What is wrong

    def _refusal(self, name: str, tensor: TensorLike) -> str:
        group, target = self.groups.get(name), self.signature.inputs.get(name)
        if group is not None:
            made = (
                "tw.Sparse(indices, values, dense_shape)"
                if group.kind == "sparse"
                else "tw.Ragged(values, row_splits) or nested lists"
            )
            return (
                f"the signature wants a {group.kind} tensor here, {group}, and this is"
                f" {_shown(tensor)}; pass {made}"
            )
        if target is not None and target.kind != "dense":
            return (
                f"the signature takes {target} whole, which TensorFlow Serving cannot be sent;"
                " export its parts"
            )
        if target is not None:
            way = (
                "x.to_dense() makes it dense"
                if isinstance(tensor, Sparse)
                else "pad it to make it dense"
            )
            return (
                f"the signature wants {target}, dense, and this is {_shown(tensor)}; {way}, or"
                " export the model with its parts as inputs"
            )
        return f"the signature has no input {name!r}{choices(name, self.names)}"

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
            why = (
                f"nothing was given for the input {whole!r} of the"
                f" signature{choices(whole, values)}"
            )
            raise EncodeError(why, tensor=whole, format=FORMAT)


def _is_sparse(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and value.keys() == _SPARSE


def _tensor(value: TensorLike) -> Any:
    """One of our tensors, or lists and numbers of Python's own, which wait for a dtype."""
    if _is_sparse(value):
        return Sparse(value["indices"], frameworks.tensor(value["values"]), value["dense_shape"])
    if isinstance(value, dict) and value.keys() == {"values", "row_splits"}:
        return Ragged(frameworks.tensor(value["values"]), value["row_splits"])
    if frameworks.is_python(value):
        if isinstance(value, (Mapping, Bundle)) or value is None:
            raise EncodeError(f"{type(value).__name__} is no tensor")
        return value
    found = frameworks.tensor(value)
    if isinstance(found, list):
        raise EncodeError("a list of tensors is no tensor; pass a Ragged")
    return found


def _is_strings(value: TensorLike) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (str, bytes)) or isinstance(_tensor(value), Strings)


def _shown(tensor: TensorLike) -> str:
    if isinstance(tensor, (np.ndarray, Strings, Sparse, Ragged)):
        return describe(tensor)
    return "a list" if isinstance(tensor, (list, tuple)) else f"one {type(tensor).__name__}"


def _featured(tensor: TensorLike) -> Any:
    """Python's numbers as what an Example has for them."""
    found = frameworks.tensor(tensor)
    return (
        found.astype(np.float32)
        if is_plain(tensor) and isinstance(found, np.ndarray) and found.dtype == np.float64
        else found
    )


def _takes_rows(target: Input, tensor: Sparse | Ragged) -> bool:
    """Whether a string input has the shape that the rows of a tensor take."""
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
