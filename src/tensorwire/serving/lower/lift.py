"""Lifting: the reverse of lowering. Outputs that are the parts of a sparse or ragged tensor become
that tensor again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._errors import DecodeError, EncodeError
from ...core.tensors import Array, Ragged, Sparse, Strings
from .. import composite

if TYPE_CHECKING:
    from ..composite import Group
    from ..signature import Signature

FORMAT = "parts"


def outputs_together(
    outputs: Mapping[str, Array | Strings], signature: Signature
) -> dict[str, Any]:
    """Return the outputs by name, with the tensor `y` in place of its parts (`y_indices`,
    `y_values`, `y_dense_shape`).

    >>> from tensorwire.serving.signature import Signature
    >>> parts = {"y_values": ("int64", [None]), "y_row_splits_0": ("int64", [None])}
    >>> outputs_together({"y_values": np.array([1, 2, 3]), "y_row_splits_0": np.array([0, 2, 3])},
    ...     Signature.given({}, parts))["y"].tolist()
    [[1, 2], [3]]
    """
    return together(
        outputs,
        composite.by_role(
            output for output in signature.outputs.values() if output.kind == "dense"
        ),
    )


def together(tensors: Mapping[str, Array | Strings], groups: Iterable[Group]) -> dict[str, Any]:
    """Return the tensors by name, with the tensor of each group in place of its parts."""
    lifted: dict[str, Any] = dict(tensors)
    for group in groups:
        parts = {role: lifted.get(name) for role, name in group.parts.items()}
        # A group without a name, or whose name another output has, stays in parts.
        taken = group.name in lifted and group.name not in group.parts.values()
        if not group.name or taken or any(part is None for part in parts.values()):
            continue
        try:
            tensor = _made(group, parts)
        except EncodeError as error:
            raise DecodeError(
                f"the parts are not a valid {group.kind} tensor: {error.message}",
                tensor=group.name,
                format=FORMAT,
            ) from None
        first, *others = group.parts.values()
        lifted = {
            group.name if name == first else name: tensor if name == first else lifted[name]
            for name in lifted
            if name not in others
        }
    return lifted


def _made(group: Group, parts: dict[str, Any]) -> Sparse | Ragged:
    if group.kind == "sparse":
        return Sparse(
            parts["indices"].astype(np.int64),
            parts["values"],
            parts["dense_shape"].astype(np.int64),
        )
    return Ragged(parts["values"], [part for role, part in parts.items() if role != "values"])
