"""Reassembly of sparse and ragged tensors from their parts inside a model, and the parts of the
model's outputs. All functions work in TensorFlow's graphs and eagerly.

1. Parts are converted to the dtypes of the spec, and get their inner dimensions if JSON lost them.
2. Checks are added to the graph that raise InvalidArgumentError, which a server answers as 400.
3. The tensor is created only after its checks have passed, by control dependencies: some of
   TensorFlow's kernels end the whole process if they get invalid parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..._errors import EncodeError, choices
from ..._optional import require
from ...core.tensors import TensorLike
from ..spec import DENSE, RAGGED, SPARSE, Spec, shown

if TYPE_CHECKING:
    import tensorflow


def rebuild(parts: Mapping[str, Any], spec: object, *, validate: bool = True) -> Any:
    """Return a TensorFlow tensor, or a dict of them, from its parts. Needs TensorFlow.

    parts      tensors, arrays or nested lists. For one spec their keys are roles: indices, values,
               dense_shape; or values, row_splits_0, ... (or row_splits). For a dict of specs their
               keys are the names that `export` gives: x_indices, x_row_splits_0, ...; the name
               itself for a dense tensor.
    spec       one spec, or {name: spec}, which returns {name: tensor}; see `export`. The tensors
               have the dtypes of the specs.
    validate   whether invalid parts raise InvalidArgumentError when the model runs, which
               TensorFlow Serving answers as 400: indices out of range, dimensions other than the
               spec's, row_splits that decrease

    Raises EncodeError if a part is missing, unknown or of another dtype.

    >>> import tensorwire as tw
    >>> parts = {"indices": [[0, 0], [1, 2]], "values": [1, 2], "dense_shape": [2, 3]}
    >>> x = tw.serving.rebuild(parts, ("sparse", "float16", [None, 3]))
    >>> type(x).__name__, x.dtype.name, x.values.numpy().tolist()
    ('SparseTensor', 'float16', [1.0, 2.0])
    """
    tf = require("tensorflow")
    if isinstance(spec, Mapping):
        specs = {name: Spec.of(item_spec, name) for name, item_spec in spec.items()}
        wanted = {name: item_spec.parts(name) for name, item_spec in specs.items()}
        _check_names(parts, [part.name for roles in wanted.values() for part in roles.values()])
        return {
            name: build(
                tf,
                item_spec,
                {role: parts[part.name] for role, part in wanted[name].items()},
                name,
                validate,
            )
            for name, item_spec in specs.items()
        }
    single = Spec.of(spec)
    given = {
        ("row_splits_0" if role == "row_splits" else role): part for role, part in parts.items()
    }
    _check_names(given, list(single.parts("")))
    return build(tf, single, given, "", validate)


def _check_names(parts: Mapping[str, Any], wanted: list[str]) -> None:
    for name in wanted:
        if name not in parts:
            raise EncodeError(f"missing part {name!r}{choices(name, parts)}")
    for name in parts:
        if name not in wanted:
            raise EncodeError(f"unknown part {name!r}{choices(name, wanted)}")


def build(
    tf: ModuleType, spec: Spec, parts: Mapping[str, Any], name: str, validate: bool = True
) -> Any:
    """Return a tensor from its parts by role."""
    try:
        values = _tensor(tf, parts["values"], spec.dtype)
        if spec.kind == SPARSE:
            indices = _tensor(tf, parts["indices"], "int64")
            if spec.rank is not None:
                indices = with_rank(tf, indices, (None, spec.rank))
            dense_shape = _tensor(tf, parts["dense_shape"], "int64")
            return sparse(tf, spec, indices, values, dense_shape, name, validate)
        if spec.kind == RAGGED:
            if spec.shape is not None:
                values = with_rank(tf, values, (None, *spec.shape[spec.ragged_rank + 1 :]))
            splits = [
                _tensor(tf, parts[f"row_splits_{level}"], spec.splits)
                for level in range(spec.ragged_rank)
            ]
            return ragged(tf, spec, values, splits, name, validate)
    except EncodeError as error:
        raise error.add(tensor=name or None) from None
    return values


def with_rank(tf: ModuleType, part: tensorflow.Tensor, dims: tuple[int | None, ...]) -> Any:
    """Return the part, with the inner dimensions of `dims` if its shape is [0].

    TensorFlow Serving reads `[]` as a tensor of shape [0]. The indices of a sparse tensor without
    values, the values of an empty ragged tensor of vectors and an empty dense batch arrive so.
    """
    if len(dims) == 1 or (tf.executing_eagerly() and part.shape != (0,)):
        return part
    # TensorFlow trusts the shapes of the signature, and would optimize the reshape away.
    # This operation hides the shape.
    hidden = tf.raw_ops.PlaceholderWithDefault(input=part, shape=tf.TensorShape(None))
    inner = tf.constant([dim or 0 for dim in dims[1:]], tf.int64)
    is_list = tf.logical_and(tf.equal(tf.rank(hidden), 1), tf.equal(tf.size(hidden), 0))
    added = inner[: tf.where(is_list, len(dims) - 1, 0)]
    whole = tf.reshape(hidden, tf.concat([tf.shape(hidden, tf.int64), added], 0))
    if not tf.executing_eagerly():
        # The static shape is that of the signature again. A part of another shape fails in the
        # same way as it would without the reshape.
        whole.set_shape(dims)
    return whole


def _tensor(tf: ModuleType, part: tensorflow.Tensor, dtype: str) -> Any:
    """Return a part as a tensor of the dtype. Python and NumPy values are converted; a tensor of
    another dtype raises EncodeError.
    """
    wanted = tf.as_dtype(dtype)
    if tf.is_tensor(part):
        if part.dtype == wanted:
            return part
        if {part.dtype, wanted} <= {tf.int32, tf.int64}:
            return tf.cast(part, wanted)
        raise EncodeError(f"expected a part of dtype {dtype}, got {part.dtype.name}")
    try:
        return tf.convert_to_tensor(part, wanted)
    except (ValueError, TypeError) as error:
        raise EncodeError(f"cannot convert a part to {dtype}: {error}") from None


def check(tf: ModuleType, good: tensorflow.Tensor, message: str, *data: Any) -> Any:
    """Add a check that raises InvalidArgumentError with this message unless all of `good` is true;
    return the operation for `tf.control_dependencies`, or None in eager mode.
    """
    # Every assertion of tf.debugging adds a function of its own to the graph, which makes models
    # large and slow to load.
    return tf.raw_ops.Assert(
        condition=tf.reduce_all(good), data=[tf.constant(message), *data], summarize=8
    )


def after(tf: ModuleType, checks: list[Any], *tensors: Any) -> list[Any]:
    """Return the tensors, with a dependency of their users on all checks."""
    # In eager mode a failed check has raised already, and there is no operation to wait for.
    with tf.control_dependencies([operation for operation in checks if operation is not None]):
        return [tf.identity(tensor) for tensor in tensors]


def _sparse_checks(
    tf: ModuleType,
    spec: Spec,
    indices: tensorflow.Tensor,
    values: tensorflow.Tensor,
    dense_shape: tensorflow.Tensor,
    name: str,
) -> list[Any]:
    label = name or "the sparse tensor"
    count, rank = tf.shape(indices, tf.int64)[0], tf.shape(indices, tf.int64)[1]
    as_many = f"{label}: there must be as many indices as values"
    one_rank = f"{label}: indices and dense_shape must have the same rank"
    shapes = [
        check(tf, count == tf.size(values, tf.int64), as_many, tf.shape(indices), tf.shape(values)),
        check(tf, rank == tf.size(dense_shape, tf.int64), one_rank, tf.shape(indices), dense_shape),
    ]
    # The comparison of indices with dense_shape below would fail with TensorFlow's own message if
    # their ranks differed.
    with tf.control_dependencies(
        [shape_check for shape_check in shapes if shape_check is not None]
    ):
        dense_shape = tf.identity(dense_shape)
    size = tf.reduce_prod(tf.cast(dense_shape, tf.float64))
    countable = tf.logical_and(tf.reduce_all(dense_shape >= 0), size < 2.0**63)
    checks = [check(tf, countable, f"{label}: invalid dense_shape", dense_shape)]
    for place, dim in enumerate(spec.shape or ()):
        if dim is not None:
            wanted = (
                f"{label}: the model takes {shown(spec.shape)}, so dense_shape[{place}] must be"
                f" {dim}; dense_shape is"
            )
            checks.append(check(tf, dense_shape[place] == dim, wanted, dense_shape))
    inside = tf.logical_and(indices >= 0, indices < dense_shape)
    checks.append(
        check(tf, inside, f"{label}: an index is outside the dense_shape, which is", dense_shape)
    )
    return [*shapes, *checks]


def sparse(
    tf: ModuleType,
    spec: Spec,
    indices: tensorflow.Tensor,
    values: tensorflow.Tensor,
    dense_shape: tensorflow.Tensor,
    name: str,
    validate: bool,
) -> Any:
    """Return a SparseTensor with the static shape of the spec."""
    for part, what, rank in (
        (indices, "indices", 2),
        (values, "values", 1),
        (dense_shape, "dense_shape", 1),
    ):
        if part.shape.rank not in (None, rank):
            raise EncodeError(
                f"expected {what} of a sparse tensor with {rank} dimensions, got {part.shape.rank}"
            )
    if validate:
        indices, values, dense_shape = after(
            tf,
            _sparse_checks(tf, spec, indices, values, dense_shape, name),
            indices,
            values,
            dense_shape,
        )
    tensor = tf.SparseTensor(indices, values, dense_shape)
    if spec.shape is not None and not tf.executing_eagerly():
        tensor.set_shape(spec.shape)
    return tensor


def ragged(
    tf: ModuleType,
    spec: Spec,
    values: tensorflow.Tensor,
    splits: list[Any],
    name: str,
    validate: bool,
) -> Any:
    """Return a RaggedTensor, with uniform row lengths where the spec has a fixed dimension."""
    label = name or "the ragged tensor"
    count = tf.shape(values, splits[-1].dtype)[0]
    # The tensor is built from the inside out: the values first, then one partition after another.
    for level in reversed(range(len(splits))):
        length = None if spec.shape is None else spec.shape[level + 1]
        rows = splits[level]
        if validate:
            good = tf.concat(
                [rows[:1] == 0, rows[1:] >= rows[:-1], rows[-1:] == count, [tf.size(rows) > 0]], 0
            )
            what = (
                f"{label}: row_splits_{level} must start at 0, never decrease, and end at the"
                " number of items that they split, which is"
            )
            (rows,) = after(tf, [check(tf, good, what, count, ":", rows)], rows)
        count = tf.size(rows, rows.dtype) - 1
        if length is None:
            values = tf.RaggedTensor.from_row_splits(values, rows, validate=False)
            continue
        if validate:
            what = (
                f"{label}: the model takes {shown(spec.shape)}, so all rows of dimension"
                f" {level + 1} must have {length}"
            )
            (rows,) = after(
                tf,
                [
                    check(
                        tf, rows[1:] - rows[:-1] == length, f"{what}; row_splits_{level} are", rows
                    )
                ],
                rows,
            )
        values = tf.RaggedTensor.from_uniform_row_length(
            values, tf.constant(length, rows.dtype), count, validate=False
        )
    return values


def parts_of(tf: ModuleType, tensor: TensorLike, name: str) -> dict[str, Any]:
    """Return the dense tensors that represent an output of a model, named like those of inputs."""
    if isinstance(tensor, tf.SparseTensor):
        spec = Spec(SPARSE, tensor.dtype.name, _static(tensor))
        parts = {
            "indices": tensor.indices,
            "values": tensor.values,
            "dense_shape": tensor.dense_shape,
        }
    elif isinstance(tensor, tf.RaggedTensor):
        splits = tensor.nested_row_splits
        spec = Spec(RAGGED, tensor.dtype.name, _static(tensor), len(splits), splits[0].dtype.name)
        parts = {"values": tensor.flat_values} | {
            f"row_splits_{level}": row_splits for level, row_splits in enumerate(splits)
        }
    else:
        try:
            dense = tf.convert_to_tensor(tensor)
        except (ValueError, TypeError):
            raise EncodeError(
                f"a model must return tensors, not {type(tensor).__name__}", tensor=name
            ) from None
        spec, parts = Spec(DENSE, dense.dtype.name, _static(dense)), {"values": dense}
    return {part.name: tf.identity(parts[role]) for role, part in spec.parts(name).items()}


def _static(tensor: tensorflow.Tensor) -> tuple[int | None, ...] | None:
    """Return the static shape of a tensor."""
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
