"""Specs: the kind, dtype and shape of a model's inputs and outputs.

TensorFlow Serving accepts dense tensors only. A sparse or ragged tensor `x` is therefore sent as
several dense tensors, its parts:

    sparse    x_indices int64 [?, rank]   x_values dtype [?]    x_dense_shape int64 [rank]
    ragged    x_values dtype [?, ...]     x_row_splits_0, x_row_splits_1, ...  int64 or int32 [?],
              from the outermost to the innermost

`export` uses these names; `composite` also recognizes others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .._errors import EncodeError
from ..core import dtypes
from ..core.dtypes import DTypeLike

Shape = tuple[int | None, ...] | None
"""None if the rank is unknown; a dimension is None if it is unknown or varies."""
DENSE, SPARSE, RAGGED = "dense", "sparse", "ragged"
KINDS = (DENSE, SPARSE, RAGGED)


@dataclass(frozen=True, slots=True)
class Input:
    """One named tensor of a signature, an input or an output.

    >>> import tensorwire as tw
    >>> print(tw.serving.Input("x", "float32", (None, 3)))
    x: float32 [?, 3]
    """

    name: str
    dtype: str
    """A name of `core.dtypes`, or "string"."""
    shape: Shape = None
    kind: str = DENSE
    """"dense", or "sparse" or "ragged" if several tensors share the one name. SavedModels can
    declare outputs like that, and those of TensorFlow 1 inputs, too. TensorFlow Serving can neither
    feed nor fetch such a name."""

    def json(self) -> dict[str, Any]:
        """Return the input as JSON data.

        >>> import tensorwire as tw
        >>> tw.serving.Input("x", "float32", (None, 3)).json()
        {'dtype': 'float32', 'shape': [None, 3]}
        """
        shape = None if self.shape is None else list(self.shape)
        return {"dtype": self.dtype, "shape": shape} | (
            {} if self.kind == DENSE else {"kind": self.kind}
        )

    def __str__(self) -> str:
        kind = "" if self.kind == DENSE else f"{self.kind} "
        return f"{self.name}: {kind}{self.dtype} {shown(self.shape)}"


def shown(shape: Shape) -> str:
    """Return a shape as text for messages.

    >>> shown((None, 3)), shown(()), shown(None)
    ('[?, 3]', '[]', '[...]')
    """
    return (
        "[...]"
        if shape is None
        else "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
    )


@dataclass(frozen=True, slots=True)
class Spec:
    """The kind, dtype and shape of a tensor that a model takes or returns.

    >>> Spec.of(("ragged", "int64", [None, None]))
    Spec(kind='ragged', dtype='int64', shape=(None, None), ragged_rank=1, splits='int64')
    """

    kind: str
    dtype: str
    shape: Shape
    ragged_rank: int = 0
    splits: str = "int64"
    """The dtype of a ragged tensor's row_splits."""

    @classmethod
    def of(cls, given: object, name: str | None = None) -> Spec:
        """Return a spec from `(dtype, shape)`, `(kind, dtype, shape)` or TensorFlow's TensorSpec,
        SparseTensorSpec or RaggedTensorSpec.

        In the shape of a ragged tensor, None after the first dimension marks a ragged dimension:
        [None, None] is a list of rows of different lengths, [None, None, 3] has rows of vectors of
        length 3, and in [None, 2, None] each row has two lists of different lengths.

        >>> Spec.of(("float32", [None, 3])).kind, Spec.of(("sparse", "int64", [None, 100])).kind
        ('dense', 'sparse')
        """
        if isinstance(given, Spec):
            return given
        try:
            if type(given).__name__ in _FOREIGN:
                return _foreign(given)
            if isinstance(given, Input):
                return cls(DENSE, given.dtype, given.shape)
            if isinstance(given, (tuple, list)) and len(given) == 2:
                return cls(DENSE, dtype_name(given[0]), dims(given[1]))
            if isinstance(given, (tuple, list)) and len(given) == 3 and given[0] in KINDS:
                shape = dims(given[2])
                return cls(
                    given[0],
                    dtype_name(given[1]),
                    shape,
                    _ragged_rank(shape) if given[0] == RAGGED else 0,
                )
        except EncodeError as error:
            raise error.add(tensor=name) from None
        raise EncodeError(
            f"invalid spec {given!r:.80}",
            tensor=name,
            hint='use ("float32", [None, 3]), ("sparse", "float32", [None, 100]), ("ragged",'
            ' "int64", [None, None]), or TensorFlow\'s TensorSpec, SparseTensorSpec or'
            " RaggedTensorSpec",
        )

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    def parts(self, name: str) -> dict[str, Input]:
        """Return the dense inputs that represent the tensor in a signature, by role.

        >>> [str(part) for part in Spec.of(("sparse", "float32", [None, 100])).parts("x").values()]
        ['x_indices: int64 [?, 2]', 'x_values: float32 [?]', 'x_dense_shape: int64 [2]']
        >>> [str(part) for part in Spec.of(("ragged", "int64", [None, None,
        ...     3])).parts("x").values()]
        ['x_values: int64 [?, 3]', 'x_row_splits_0: int64 [?]']
        """
        if self.kind == SPARSE:
            return {
                "indices": Input(f"{name}_indices", "int64", (None, self.rank)),
                "values": Input(f"{name}_values", self.dtype, (None,)),
                "dense_shape": Input(f"{name}_dense_shape", "int64", (self.rank,)),
            }
        if self.kind == RAGGED:
            inner = None if self.shape is None else (None, *self.shape[self.ragged_rank + 1 :])
            splits = {
                f"row_splits_{level}": Input(f"{name}_row_splits_{level}", self.splits, (None,))
                for level in range(self.ragged_rank)
            }
            return {"values": Input(f"{name}_values", self.dtype, inner), **splits}
        return {"values": Input(name, self.dtype, self.shape)}

    def __str__(self) -> str:
        return f"{'' if self.kind == DENSE else self.kind + ' '}{self.dtype} {shown(self.shape)}"


def dims(shape: object) -> Shape:
    """Return a shape given by the caller as a tuple; -1 means the same as None.

    >>> dims([None, 3]), dims(None), dims([-1])
    ((None, 3), None, (None,))
    """
    if shape is None:
        return None
    if not isinstance(shape, Iterable) or isinstance(shape, (str, bytes)):
        raise EncodeError(f"expected a shape such as [None, 3], got {shape!r}")
    checked: list[int | None] = []
    for dim in shape:
        if dim is not None and (isinstance(dim, bool) or not hasattr(dim, "__index__") or dim < -1):
            raise EncodeError(f"expected a dimension that is an integer or None, got {dim!r}")
        checked.append(None if dim is None or dim == -1 else int(dim))
    return tuple(checked)


def dtype_name(dtype: DTypeLike) -> str:
    """Return the name of a dtype, or "string".

    >>> dtype_name("float"), dtype_name(bytes)
    ('float32', 'string')
    """
    return "string" if dtypes.is_string(dtype) else dtypes.named(dtype).name


_FOREIGN = {"TensorSpec": DENSE, "SparseTensorSpec": SPARSE, "RaggedTensorSpec": RAGGED}


def _foreign(spec: Any) -> Spec:
    """Convert one of TensorFlow's specs. The class is recognized by its name, so that TensorFlow is
    not imported.
    """
    kind = _FOREIGN[type(spec).__name__]
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    if kind == RAGGED:
        if spec.ragged_rank == 0:
            return Spec(DENSE, dtype_name(spec.dtype), shape)
        return Spec(
            kind, dtype_name(spec.dtype), shape, spec.ragged_rank, spec.row_splits_dtype.name
        )
    return Spec(kind, dtype_name(spec.dtype), shape)


def _ragged_rank(shape: Shape) -> int:
    """Return the number of the last dimension that varies, which is the innermost partition."""
    varying = [number for number, dim in enumerate(shape or ()) if dim is None and number]
    if not varying:
        raise EncodeError(
            f"the ragged shape {shown(shape)} has no ragged dimension",
            hint="use None for each ragged dimension after the first, as in [None, None]",
        )
    return varying[-1]
