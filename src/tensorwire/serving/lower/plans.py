"""Plans of lowering: which tensor is sent as which inputs, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...core.tensors import Array, Strings, describe

if TYPE_CHECKING:
    from ..signature import Signature

FORMS = ("dense", "flattened", "parts", "serialized", "example")
_APART = ("flattened", "parts")
"""Forms that need several inputs for a tensor, with different first dimensions."""


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
    def has_parts(self) -> bool:
        """Whether a tensor is sent as several inputs, whose first dimensions are not rows."""
        return any(step.form in _APART for step in self.steps)

    @property
    def has_rows(self) -> bool:
        """Whether all inputs share their first dimension, so that they can be sent by rows."""
        counts = {tensor.shape[0] if tensor.shape else None for tensor in self.inputs.values()}
        # The first dimensions of the parts of a tensor can be equal by chance.
        return not self.has_parts and len(counts) == 1 and None not in counts

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
