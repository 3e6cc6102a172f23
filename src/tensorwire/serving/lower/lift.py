"""The other way: outputs that are the parts of one sparse or ragged tensor, put together again."""

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
    """Outputs by name; those that the signature has as parts (`y_indices`, `y_values`,
    `y_dense_shape`) as the tensor `y`.

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


def together(tensors: Mapping[str, Array | Strings], known: Iterable[Group]) -> dict[str, Any]:
    """Tensors by name; those that are the parts of a group as one."""
    found: dict[str, Any] = dict(tensors)
    for group in known:
        parts = {role: found.get(name) for role, name in group.parts.items()}
        taken = group.name in found and group.name not in group.parts.values()
        if not group.name or taken or any(part is None for part in parts.values()):
            continue
        try:
            tensor = _made(group, parts)
        except EncodeError as error:
            raise DecodeError(
                f"the parts are no {group.kind} tensor: {error.message}",
                tensor=group.name,
                format=FORMAT,
            ) from None
        first, *others = group.parts.values()
        found = {
            group.name if name == first else name: tensor if name == first else found[name]
            for name in found
            if name not in others
        }
    return found


def _made(group: Group, parts: dict[str, Any]) -> Sparse | Ragged:
    if group.kind == "sparse":
        return Sparse(
            parts["indices"].astype(np.int64),
            parts["values"],
            parts["dense_shape"].astype(np.int64),
        )
    return Ragged(parts["values"], [part for role, part in parts.items() if role != "values"])
