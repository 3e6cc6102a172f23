"""Composite inputs: groups of inputs that are the parts of one sparse or ragged tensor.

A SavedModel can declare its groups itself (`codecs.saved_model` reads them). A server's metadata,
and the inputs of a model that assembles its tensors itself, have only names, dtypes and shapes.
Groups are then recognized by these patterns:

    x, x_1, x_2           a SparseTensorSpec in TensorFlow: indices, values, dense_shape
    x, x_1, ...           a RaggedTensorSpec in TensorFlow: values, then row_splits from the
                          outermost to the innermost
    x_indices, x_values, x_dense_shape (or x_shape)
                          a sparse tensor by role; the separator is _ / : or ., or the name is the
                          role alone
    x_values (or x_flat_values), x_row_splits | x_row_splits_0, ... | x_nested_row_splits_0, ...
                          a ragged tensor by role

Inputs whose dtypes or shapes do not fit their roles are not a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .spec import RAGGED, SPARSE, Input, Shape, shown

_WORD = re.compile(
    r"(?:(?P<name>.*?)[_/:.])??(?P<role>indices|values|flat_values|dense_shape|shape"
    r"|(?:nested_)?row_splits(?:[_/:.](?P<level>\d+))?)",
    re.S,
)
_NUMBERED = re.compile(r"(?P<name>.+)_(?P<number>[1-9]\d*)", re.S)
_INTEGERS = ("int64", "int32")


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs of a signature that are the parts of one sparse or ragged tensor.

    >>> import tensorwire as tw
    >>> parts = {"indices": "x", "values": "x_1", "dense_shape": "x_2"}
    >>> print(tw.serving.Group("x", "sparse", parts, "float32", (None, None)))
    x: sparse float32 [?, ?] = x (indices), x_1 (values), x_2 (dense_shape)
    """

    name: str
    """The name of the tensor; empty if the inputs are named by their roles alone."""
    kind: str
    """"sparse" or "ragged"."""
    parts: Mapping[str, str]
    """Input names by role: indices, values, dense_shape; or values, row_splits_0, ..."""
    dtype: str
    shape: Shape
    by: str = "names"
    """How the group was recognized: "structure" (declared by the SavedModel), "given" (declared by
    the caller) or "names".
    """

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the row_splits inputs, from the outermost to the innermost.

        >>> import tensorwire as tw
        >>> parts = {"values": "r", "row_splits_0": "r_1"}
        >>> tw.serving.Group("r", "ragged", parts, "int64", (None, None)).splits
        ('r_1',)
        """
        return tuple(name for role, name in self.parts.items() if role.startswith("row_splits"))

    def json(self) -> dict[str, Any]:
        """Return the group as JSON data."""
        shape = None if self.shape is None else list(self.shape)
        return {
            "name": self.name,
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": shape,
            "parts": dict(self.parts),
            "by": self.by,
        }

    def __str__(self) -> str:
        parts = ", ".join(f"{name} ({role})" for role, name in self.parts.items())
        return f"{self.name or '(no name)'}: {self.kind} {self.dtype} {shown(self.shape)} = {parts}"


def made(
    kind: str, inputs: list[Input], name: str | None = None, shape: Shape = None, by: str = "names"
) -> Group:
    """Return the group of inputs in TensorFlow's order: indices, values, dense_shape; or values and
    the row_splits.

    >>> made("ragged", [Input("r", "int64", (None,)), Input("r_1", "int64", (None,))]).parts
    {'values': 'r', 'row_splits_0': 'r_1'}
    """
    if kind == SPARSE:
        roles, values, rank = ["indices", "values", "dense_shape"], inputs[1], _rank_of(inputs)
        inferred: Shape = None if rank is None else (None,) * rank
    else:
        roles, values = (
            ["values", *(f"row_splits_{level}" for level in range(len(inputs) - 1))],
            inputs[0],
        )
        inferred = None if values.shape is None else (None,) * len(inputs) + values.shape[1:]
    parts = dict(zip(roles, (part.name for part in inputs), strict=True))
    return Group(
        inputs[0].name if name is None else name,
        kind,
        parts,
        values.dtype,
        inferred if shape is None else shape,
        by,
    )


def fits(kind: str, parts: list[Input]) -> bool:
    """Return whether inputs in TensorFlow's order have dtypes and shapes of such a tensor.

    >>> fits("ragged", [Input("r", "int64", (None,)), Input("r_1", "int64", (None,))])
    True
    """
    if kind == SPARSE:
        return len(parts) == 3 and _fits_sparse(parts, exact=False)
    return (
        len(parts) > 1
        and _is_values(parts[0])
        and all(_is_splits(part, parts[1]) for part in parts[1:])
    )


def by_role(inputs: Iterable[Input]) -> list[Group]:
    """Return the groups whose names end in the roles.

    >>> parts = {"ids/indices": ("int64", (None, 2)), "ids/values": ("string", (None,)),
    ...     "ids/shape": ("int64", (2,))}
    >>> [str(group) for group in by_role(Input(name, *spec) for name, spec in parts.items())]
    ['ids: sparse string [?, ?] = ids/indices (indices), ids/values (values), ids/shape
    (dense_shape)']
    """
    roles_by_name: dict[str, dict[str, Input]] = {}
    for part in inputs:
        if match := _WORD.fullmatch(part.name):
            role = {"flat_values": "values", "shape": "dense_shape"}.get(
                match["role"], match["role"]
            )
            if "row_splits" in role:
                role = f"row_splits {int(match['level'] or 0)}"
            roles_by_name.setdefault(match["name"] or "", {}).setdefault(role, part)
    groups = []
    for name, roles in roles_by_name.items():
        parts = [roles[role] for role in ("indices", "values", "dense_shape") if role in roles]
        if fits(SPARSE, parts):
            groups.append(made(SPARSE, parts, name))
            continue
        # The levels count from 0 or from 1, without gaps.
        levels = sorted(int(role.split()[1]) for role in roles if role.startswith("row_splits"))
        splits = [roles[f"row_splits {level}"] for level in levels]
        first = levels[0] if levels else 0
        if (
            splits
            and first <= 1
            and levels == list(range(first, first + len(levels)))
            and "values" in roles
        ):
            parts = [roles["values"], *splits]
            if fits(RAGGED, parts):
                groups.append(made(RAGGED, parts, name))
    return groups


def by_number(inputs: Iterable[Input]) -> list[Group]:
    """Return the groups whose names TensorFlow has numbered: x, x_1, x_2.

    >>> sparse = {"x": ("int64", (None, 2)), "x_1": ("float32", (None,)), "x_2": ("int64", (2,))}
    >>> [str(group) for group in by_number(Input(name, *spec) for name, spec in sparse.items())]
    ['x: sparse float32 [?, ?] = x (indices), x_1 (values), x_2 (dense_shape)']
    >>> ragged = {"r": ("int32", (None,)), "r_1": ("int64", (None,))}
    >>> [str(group) for group in by_number(Input(name, *spec) for name, spec in ragged.items())]
    ['r: ragged int32 [?, ?] = r (values), r_1 (row_splits_0)']
    """
    by_name = {part.name: part for part in inputs}
    groups: list[Group] = []
    # Every name that is not the numbered successor of another one starts a run.
    for name, part in by_name.items():
        if not ((match := _NUMBERED.fullmatch(name)) and match["name"] in by_name):
            run, number = [part], 1
            while f"{name}_{number}" in by_name:
                run.append(by_name[f"{name}_{number}"])
                number += 1
            groups += in_a_row(run)
    return groups


def in_a_row(run: list[Input], by: str = "names") -> list[Group]:
    """Return the groups in a run of inputs that belong to one argument, which may be a dict of
    several tensors.
    """
    # A sparse tensor is tried first: its three parts could also pass for the values of a ragged
    # tensor and two row_splits, but its shapes contain the rank, which those of row_splits do not.
    groups, start = [], 0
    while start < len(run) - 1:
        if len(run) - start >= 3 and _fits_sparse(run[start : start + 3], exact=True):
            groups.append(made(SPARSE, run[start : start + 3], by=by))
            start += 3
            continue
        stop = start + 1
        while _is_values(run[start]) and stop < len(run) and _is_splits(run[stop], run[start + 1]):
            stop += 1
        if stop > start + 1:
            groups.append(made(RAGGED, run[start:stop], by=by))
        start = stop
    return groups


def _fits_sparse(parts: list[Input], exact: bool) -> bool:
    """Return whether three inputs can be a sparse tensor. Without role names (`exact`) only the
    shapes distinguish it from a ragged one: TensorFlow writes the rank into the shapes of both the
    indices and the dense shape, or into neither.
    """
    indices, values, shape = parts
    if indices.dtype not in _INTEGERS or shape.dtype not in _INTEGERS:
        return False
    if any(
        part.shape is not None and len(part.shape) != rank
        for part, rank in ((indices, 2), (values, 1), (shape, 1))
    ):
        return False
    ranks = [part.shape[-1] if part.shape is not None else None for part in (indices, shape)]
    if None in ranks and (not exact or values.dtype not in _INTEGERS):
        return True
    return ranks[0] == ranks[1] and (
        not exact or (indices.shape is not None and indices.dtype == shape.dtype)
    )


def _rank_of(parts: list[Input]) -> int | None:
    ranks = [
        part.shape[-1]
        for part in (parts[0], parts[2])
        if part.shape is not None and part.shape[-1] is not None
    ]
    return ranks[0] if ranks else None


def _is_values(part: Input) -> bool:
    return part.shape is None or len(part.shape) >= 1


def _is_splits(part: Input, first: Input) -> bool:
    return (
        part.dtype in _INTEGERS
        and part.dtype == first.dtype
        and (part.shape is None or part.shape == (None,))
    )
