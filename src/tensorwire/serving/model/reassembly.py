"""Inside a model: sparse and ragged tensors from their parts, and parts from them. These run in
TensorFlow's graphs, and eagerly too.
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
    """A TensorFlow tensor from its parts: tensors, arrays or nested lists. The dtypes are those of
    the spec.

    With one spec the parts go by their roles: indices, values, dense_shape; or values,
    row_splits_0, ... (or row_splits). With a dict of specs, {name: spec}, they go by the names that
    `export` gives (x_indices, x_row_splits_0, ...; a dense tensor by its own), and a dict comes
    back.

    validate   parts that are no sparse or ragged tensor of that spec are an InvalidArgumentError
               when the model runs, which TensorFlow
               Serving answers as 400: indices outside of the shape, another width than the spec's,
               splits that decrease

    >>> x = rebuild({"indices": [[0, 0], [1, 2]], "values": [1, 2], "dense_shape": [2, 3]},
    ...     ("sparse", "float16", [None, 3]))
    >>> type(x).__name__, x.dtype.name, x.values.numpy().tolist()
    ('SparseTensor', 'float16', [1.0, 2.0])
    """
    tf = require("tensorflow")
    if isinstance(spec, Mapping):
        specs = {name: Spec.of(each, name) for name, each in spec.items()}
        wanted = {name: each.parts(name) for name, each in specs.items()}
        _check_names(parts, [part.name for roles in wanted.values() for part in roles.values()])
        return {
            name: build(
                tf,
                each,
                {role: parts[part.name] for role, part in wanted[name].items()},
                name,
                validate,
            )
            for name, each in specs.items()
        }
    one = Spec.of(spec)
    given = {
        ("row_splits_0" if role == "row_splits" else role): part for role, part in parts.items()
    }
    _check_names(given, list(one.parts("")))
    return build(tf, one, given, "", validate)


def _check_names(parts: Mapping[str, Any], wanted: list[str]) -> None:
    for name in wanted:
        if name not in parts:
            raise EncodeError(f"the part {name!r} is missing{choices(name, parts)}")
    for name in parts:
        if name not in wanted:
            raise EncodeError(f"there is no part {name!r}{choices(name, wanted)}")


def build(
    tf: ModuleType, spec: Spec, parts: Mapping[str, Any], name: str, validate: bool = True
) -> Any:
    """One tensor from its parts by role."""
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
    """The part, with the inner dimensions of `dims` if its shape is [0].

    TensorFlow Serving reads `[]` as a tensor of shape [0]. So arrive the indices of a sparse tensor
    without values, the values of a ragged tensor of vectors, and a dense batch without rows.
    """
    if len(dims) == 1 or (tf.executing_eagerly() and part.shape != (0,)):
        return part
    # TensorFlow believes the shapes of the signature, and would leave out the reshape.
    # This operation hides them.
    hidden = tf.raw_ops.PlaceholderWithDefault(input=part, shape=tf.TensorShape(None))
    inner = tf.constant([dim or 0 for dim in dims[1:]], tf.int64)
    is_list = tf.logical_and(tf.equal(tf.rank(hidden), 1), tf.equal(tf.size(hidden), 0))
    added = inner[: tf.where(is_list, len(dims) - 1, 0)]
    whole = tf.reshape(hidden, tf.concat([tf.shape(hidden, tf.int64), added], 0))
    if not tf.executing_eagerly():
        # as the signature says; what is not so fails as it would without this step
        whole.set_shape(dims)
    return whole


def _tensor(tf: ModuleType, part: tensorflow.Tensor, dtype: str) -> Any:
    """A part as a tensor. Only plain numbers are converted: a tensor of another dtype is a mistake."""
    wanted = tf.as_dtype(dtype)
    if tf.is_tensor(part):
        if part.dtype == wanted:
            return part
        if {part.dtype, wanted} <= {tf.int32, tf.int64}:
            return tf.cast(part, wanted)
        raise EncodeError(f"a part is {part.dtype.name}, and the spec says {dtype}")
    try:
        return tf.convert_to_tensor(part, wanted)
    except (ValueError, TypeError) as error:
        raise EncodeError(f"a part is no {dtype} tensor: {error}") from None


def check(tf: ModuleType, good: tensorflow.Tensor, message: str, *about: Any) -> Any:
    """An InvalidArgumentError with this message unless all is good. (tf.debugging's assertions are
    a function of their own each, which makes models large and slow to load.) What it gives is for
    `tf.control_dependencies`, where a later step would fail in other words."""
    return tf.raw_ops.Assert(
        condition=tf.reduce_all(good), data=[tf.constant(message), *about], summarize=8
    )


def after(tf: ModuleType, checks: list[Any], *tensors: Any) -> list[Any]:
    """The same tensors, which no step of the model gets before all is found good: some of
    TensorFlow's kernels end the whole process when they get what these checks refuse. (Eagerly a
    check has raised its error already, and is nothing to wait for.)"""
    with tf.control_dependencies([one for one in checks if one is not None]):
        return [tf.identity(tensor) for tensor in tensors]


def _sparse_checks(
    tf: ModuleType,
    spec: Spec,
    indices: tensorflow.Tensor,
    values: tensorflow.Tensor,
    dense_shape: tensorflow.Tensor,
    name: str,
) -> list[Any]:
    about = name or "the sparse tensor"
    count, rank = tf.shape(indices, tf.int64)[0], tf.shape(indices, tf.int64)[1]
    as_many = f"{about}: there must be as many indices as values"
    one_rank = f"{about}: indices and dense_shape must be of one rank"
    shapes = [
        check(tf, count == tf.size(values, tf.int64), as_many, tf.shape(indices), tf.shape(values)),
        check(tf, rank == tf.size(dense_shape, tf.int64), one_rank, tf.shape(indices), dense_shape),
    ]
    with tf.control_dependencies([one for one in shapes if one is not None]):
        dense_shape = tf.identity(dense_shape)
    size = tf.reduce_prod(tf.cast(dense_shape, tf.float64))
    countable = tf.logical_and(tf.reduce_all(dense_shape >= 0), size < 2.0**63)
    checks = [check(tf, countable, f"{about}: no tensor has the dense_shape", dense_shape)]
    for place, dim in enumerate(spec.shape or ()):
        if dim is not None:
            wanted = (
                f"{about}: the model takes {shown(spec.shape)}, so dense_shape[{place}] must be"
                f" {dim}; dense_shape is"
            )
            checks.append(check(tf, dense_shape[place] == dim, wanted, dense_shape))
    inside = tf.logical_and(indices >= 0, indices < dense_shape)
    checks.append(
        check(tf, inside, f"{about}: an index is outside of the dense_shape, which is", dense_shape)
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
    """A SparseTensor that knows the shape of the spec."""
    for part, what, rank in (
        (indices, "indices", 2),
        (values, "values", 1),
        (dense_shape, "dense_shape", 1),
    ):
        if part.shape.rank not in (None, rank):
            raise EncodeError(
                f"{what} of a sparse tensor have {rank} dimensions, not {part.shape.rank}"
            )
    if validate:
        indices, values, dense_shape = after(
            tf,
            _sparse_checks(tf, spec, indices, values, dense_shape, name),
            indices,
            values,
            dense_shape,
        )
    found = tf.SparseTensor(indices, values, dense_shape)
    if spec.shape is not None and not tf.executing_eagerly():
        found.set_shape(spec.shape)
    return found


def ragged(
    tf: ModuleType,
    spec: Spec,
    values: tensorflow.Tensor,
    splits: list[Any],
    name: str,
    validate: bool,
) -> Any:
    """A RaggedTensor, with rows of a uniform length where the spec has one."""
    about = name or "the ragged tensor"
    count = tf.shape(values, splits[-1].dtype)[0]
    for level in reversed(range(len(splits))):
        length = None if spec.shape is None else spec.shape[level + 1]
        rows = splits[level]
        if validate:
            good = tf.concat(
                [rows[:1] == 0, rows[1:] >= rows[:-1], rows[-1:] == count, [tf.size(rows) > 0]], 0
            )
            what = (
                f"{about}: row_splits_{level} must start at 0, never decrease, and end at the"
                " number of what they split, which is"
            )
            (rows,) = after(tf, [check(tf, good, what, count, ":", rows)], rows)
        count = tf.size(rows, rows.dtype) - 1
        if length is None:
            values = tf.RaggedTensor.from_row_splits(values, rows, validate=False)
            continue
        if validate:
            what = (
                f"{about}: the model takes {shown(spec.shape)}, so all rows of dimension"
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
    """The plain tensors that stand for a model's output, by the same names as for inputs."""
    if isinstance(tensor, tf.SparseTensor):
        spec = Spec(SPARSE, tensor.dtype.name, _static(tensor))
        found = {
            "indices": tensor.indices,
            "values": tensor.values,
            "dense_shape": tensor.dense_shape,
        }
    elif isinstance(tensor, tf.RaggedTensor):
        splits = tensor.nested_row_splits
        spec = Spec(RAGGED, tensor.dtype.name, _static(tensor), len(splits), splits[0].dtype.name)
        found = {"values": tensor.flat_values} | {
            f"row_splits_{level}": each for level, each in enumerate(splits)
        }
    else:
        try:
            dense = tf.convert_to_tensor(tensor)
        except (ValueError, TypeError):
            raise EncodeError(
                f"{type(tensor).__name__} is no tensor that a signature can give", tensor=name
            ) from None
        spec, found = Spec(DENSE, dense.dtype.name, _static(dense)), {"values": dense}
    return {part.name: tf.identity(found[role]) for role, part in spec.parts(name).items()}


def _static(tensor: tensorflow.Tensor) -> tuple[int | None, ...] | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
