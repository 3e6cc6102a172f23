"""Input forms: how a signature takes sparse and ragged tensors, and how the model reassembles them.

parts        Several inputs for each tensor: x_indices, x_values, x_dense_shape; x_values,
             x_row_splits_0, ... Their first dimensions differ, so requests are by columns, and a
             server cannot batch them.
serialized   One string input for each tensor, with a row for every row of the tensor, so requests
             may be by rows, and servers can batch them.
             sparse: x [?, 3], the rows of tf.io.serialize_many_sparse.
             ragged: x [?], each row as a serialized TensorProto; with further ragged dimensions
             x [?, ragged_rank], the row's values and then its own row_splits, each a TensorProto.
example      One input `examples` [?] of serialized tf.train.Examples with these features:
             dense x: the list x.
             ragged x: the list x, and further row_splits as x_row_splits_1, ...
             sparse x: x_values and x_indices (x_indices_0, x_indices_1, ... if a row has more than
             one dimension), and x_dense_shape if the spec leaves a dimension open.
             Bools and integers are int64 lists, floats up to 32 bits float lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._errors import EncodeError, UsageError, choices
from ..spec import DENSE, RAGGED, SPARSE, Input, Spec, shown
from . import reassembly

if TYPE_CHECKING:
    import tensorflow

EXAMPLES = "examples"
Tensors = Mapping[str, Any]


class InputForm(NamedTuple):
    """The inputs of a signature, and the function that reassembles the model's tensors."""

    inputs: dict[str, Input]
    rebuild: Callable[[Any, Tensors], dict[str, Any]]
    """Takes TensorFlow and the tensors of these inputs; returns the tensors of the specs."""


def form(name: str, specs: Mapping[str, Spec]) -> InputForm:
    """Return the form of that name for these inputs of a model."""
    if name not in _FORMS:
        raise UsageError(f"unknown form {name!r}{choices(name, _FORMS)}")
    return _FORMS[name](specs)


def _parts(specs: Mapping[str, Spec]) -> InputForm:
    roles = {name: spec.parts(name) for name, spec in specs.items()}
    # With sparse or ragged inputs requests must be by columns, which lose the inner dimensions of
    # an empty dense batch. Without them the client sends an empty batch by rows.
    by_columns_only = any(spec.kind != DENSE for spec in specs.values())

    def back(tf: ModuleType, tensors: Tensors) -> dict[str, Any]:
        rebuilt = {}
        for name, parts in roles.items():
            tensor = reassembly.build(
                tf, specs[name], {role: tensors[part.name] for role, part in parts.items()}, name
            )
            dims = specs[name].shape if specs[name].kind == DENSE else None
            if dims and by_columns_only:
                tensor = reassembly.with_rank(tf, tensor, dims)
            rebuilt[name] = tensor
        return rebuilt

    return InputForm(
        _unique([(name, part) for name, parts in roles.items() for part in parts.values()]), back
    )


def _unique(parts: list[tuple[str, Input]]) -> dict[str, Input]:
    inputs: dict[str, Input] = {}
    for name, part in parts:
        if part.name in inputs:
            raise EncodeError(
                f"duplicate input name {part.name!r}", tensor=name, hint=f"rename {name!r}"
            )
        inputs[part.name] = part
    return inputs


def _serialized(specs: Mapping[str, Spec]) -> InputForm:
    inputs = {name: _row(name, spec) for name, spec in specs.items()}

    def back(tf: ModuleType, tensors: Tensors) -> dict[str, Any]:
        readers = {
            DENSE: lambda tf, spec, rows, name: rows,
            SPARSE: _sparse_rows,
            RAGGED: _ragged_rows,
        }
        return {
            name: readers[spec.kind](tf, spec, tensors[name], name) for name, spec in specs.items()
        }

    return InputForm(inputs, back)


def _row(name: str, spec: Spec) -> Input:
    if spec.kind == SPARSE:
        if spec.rank is not None and spec.rank < 2:
            raise EncodeError(
                f"cannot serialize a sparse tensor {shown(spec.shape)}: it has no rows",
                tensor=name,
                hint="use forms='parts'",
            )
        return Input(name, "string", (None, 3))
    if spec.kind == RAGGED:
        if spec.shape is None:
            raise EncodeError(
                "cannot serialize the rows of a ragged tensor of unknown rank",
                tensor=name,
                hint="use forms='parts'",
            )
        return Input(name, "string", (None,) if spec.ragged_rank == 1 else (None, spec.ragged_rank))
    return Input(name, spec.dtype, spec.shape)


def _sparse_rows(tf: ModuleType, spec: Spec, rows: tensorflow.Tensor, name: str) -> Any:
    tensor = tf.io.deserialize_many_sparse(rows, tf.as_dtype(spec.dtype), spec.rank)
    return reassembly.sparse(
        tf, spec, tensor.indices, tensor.values, tensor.dense_shape, name, True
    )


def _ragged_rows(tf: ModuleType, spec: Spec, rows: tensorflow.Tensor, name: str) -> Any:
    inner = [None, *(spec.shape or ())[spec.ragged_rank + 1 :]]

    def column(number: int, dtype: str, shape: list[int | None]) -> Any:
        strings = rows if spec.ragged_rank == 1 else rows[:, number]
        row_spec = tf.RaggedTensorSpec(shape, tf.as_dtype(dtype), 0, tf.as_dtype(spec.splits))
        return tf.map_fn(
            lambda string: tf.ensure_shape(tf.io.parse_tensor(string, tf.as_dtype(dtype)), shape),
            strings,
            fn_output_signature=row_spec,
        )

    values = column(0, spec.dtype, inner)
    below = [column(level, spec.splits, [None]) for level in range(1, spec.ragged_rank)]
    splits = _joined(tf, below, values.row_lengths(), name) if below else [values.row_splits]
    return reassembly.ragged(tf, spec, values.flat_values, splits, name, True)


def _joined(tf: ModuleType, below: list[Any], lengths: tensorflow.Tensor, name: str) -> list[Any]:
    """Return the row_splits of a batch from the row_splits of its rows.

    `below` has a ragged tensor [rows, splits] for every level below the first, `lengths` the number
    of values of each row. The checks make sure that no row reaches into the values of another one.
    """
    for level, row_splits in enumerate(below, 1):
        reassembly.check(
            tf, row_splits.row_lengths() > 0, f"{name}: a row has no row_splits_{level}"
        )
    ends = [row_splits.row_lengths() - 1 for row_splits in below[1:]] + [lengths]
    splits = [_summed(tf, below[0].row_lengths() - 1)]
    for level, (row_splits, end) in enumerate(zip(below, ends, strict=True), 1):
        good = tf.logical_and(
            row_splits[:, :1].flat_values == 0, row_splits[:, -1:].flat_values == end
        )
        reassembly.check(
            tf,
            good,
            f"{name}: the row_splits_{level} of a row must start at 0 and end at the number of"
            " items that they split",
            end,
        )
        splits.append(_summed(tf, (row_splits[:, 1:] - row_splits[:, :-1]).flat_values))
    return splits


def _summed(tf: ModuleType, lengths: tensorflow.Tensor) -> Any:
    """Return the row_splits of rows of these lengths."""
    return tf.concat([tf.zeros([1], lengths.dtype), tf.cumsum(lengths)], 0)


def _example(specs: Mapping[str, Spec]) -> InputForm:
    readers = {name: _READERS[spec.kind](name, spec) for name, spec in specs.items()}
    keys = [key for reader in readers.values() for key in reader.keys]
    for key in keys:
        if keys.count(key) > 1:
            raise EncodeError(f"two inputs need the same feature {key!r} in an Example")

    def back(tf: ModuleType, tensors: Tensors) -> dict[str, Any]:
        features = {
            key: feature
            for reader in readers.values()
            for key, feature in reader.features(tf).items()
        }
        columns = tf.io.parse_example(tensors[EXAMPLES], features)
        return {name: reader.read(tf, columns) for name, reader in readers.items()}

    return InputForm({EXAMPLES: Input(EXAMPLES, "string", (None,))}, back)


class _Reader(NamedTuple):
    """The features of one input in an Example, and the function that reads them."""

    keys: list[str]
    features: Callable[[Any], dict[str, Any]]
    read: Callable[[Any, Tensors], Any]


def _listed(name: str, dtype: str) -> str:
    """Return the kind of feature list that holds all values of a dtype exactly."""
    if dtype in ("float32", "int64", "string"):
        return dtype
    if dtype == "bool" or dtype in ("int8", "int16", "int32", "uint8", "uint16", "uint32"):
        return "int64"
    if dtype in ("float16", "bfloat16") or dtype.startswith("float8"):
        return "float32"
    raise EncodeError(
        f"an Example cannot hold {dtype}",
        tensor=name,
        hint="use forms='parts' or forms='serialized'",
    )


def _batched(name: str, spec: Spec) -> tuple[int | None, ...]:
    """Return the shape of one row."""
    if not spec.shape or spec.shape[0] is not None:
        raise EncodeError(
            f"Examples need a batch dimension: expected a shape [None, ...], got"
            f" {shown(spec.shape)}",
            tensor=name,
        )
    return spec.shape[1:]


def _dense_reader(name: str, spec: Spec) -> _Reader:
    shape, kind = _batched(name, spec), _listed(name, spec.dtype)
    if None in shape[1:]:
        raise EncodeError(
            f"cannot read a row of {shown(spec.shape)} from an Example: only its first dimension"
            " may vary",
            tensor=name,
        )

    def features(tf: ModuleType) -> dict[str, Any]:
        if None in shape:
            return {name: tf.io.RaggedFeature(tf.as_dtype(kind), row_splits_dtype=tf.int64)}
        return {name: tf.io.FixedLenFeature(shape, tf.as_dtype(kind))}

    def read(tf: ModuleType, columns: Tensors) -> Any:
        column = columns[name]
        if None in shape:
            # A dense tensor needs rows of equal length. Shorter rows are an error, not padded.
            length = tf.reduce_max(tf.concat([[0], column.row_lengths()], 0))
            what = (
                f"{name}: all Examples of a request must have the same number of values; they have"
            )
            inner = -1 if not shape[1:] else length // math.prod(_fixed(shape))
            with tf.control_dependencies(
                [reassembly.check(tf, column.row_lengths() == length, what, column.row_lengths())]
            ):
                column = tf.reshape(column.flat_values, [column.nrows(), inner, *_fixed(shape)])
        return tf.cast(column, tf.as_dtype(spec.dtype)) if kind != spec.dtype else column

    return _Reader([name], features, read)


def _fixed(shape: tuple[int | None, ...]) -> list[int]:
    """Return the dimensions that do not vary."""
    return [dim for dim in shape if dim is not None]


def _sparse_reader(name: str, spec: Spec) -> _Reader:
    shape, kind = _batched(name, spec), _listed(name, spec.dtype)
    if not shape:
        raise EncodeError("cannot read a sparse vector from Examples: it has no rows", tensor=name)
    indices = (
        [f"{name}_indices"]
        if len(shape) == 1
        else [f"{name}_indices_{place}" for place in range(len(shape))]
    )
    values, sizes = f"{name}_values", f"{name}_dense_shape"
    is_open = None in shape

    def features(tf: ModuleType) -> dict[str, Any]:
        lists = {key: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64) for key in indices}
        lists[values] = tf.io.RaggedFeature(tf.as_dtype(kind), row_splits_dtype=tf.int64)
        return lists | ({sizes: tf.io.FixedLenFeature([len(shape)], tf.int64)} if is_open else {})

    def read(tf: ModuleType, columns: Tensors) -> Any:
        column = columns[values]
        for key in indices:
            what = f"{name}: an Example must have as many {key} as {values}"
            reassembly.check(tf, columns[key].row_lengths() == column.row_lengths(), what)
        places = tf.stack(
            [column.value_rowids(), *(columns[key].flat_values for key in indices)], 1
        )
        row = tf.reduce_max(columns[sizes], 0) if is_open else tf.constant(_fixed(shape), tf.int64)
        cast = (
            tf.cast(column.flat_values, tf.as_dtype(spec.dtype))
            if kind != spec.dtype
            else column.flat_values
        )
        tensor = reassembly.sparse(
            tf, spec, places, cast, tf.concat([[column.nrows()], row], 0), name, True
        )
        # The lists of an Example may be in any order.
        return tf.sparse.reorder(tensor)

    return _Reader([*indices, values, *([sizes] if is_open else [])], features, read)


def _ragged_reader(name: str, spec: Spec) -> _Reader:
    shape, kind = _batched(name, spec), _listed(name, spec.dtype)
    inner = shape[spec.ragged_rank :]
    if None in inner or 0 in inner:
        raise EncodeError(
            f"the inner dimensions of {shown(spec.shape)} must be fixed and greater than 0",
            tensor=name,
        )
    keys = [f"{name}_row_splits_{level}" for level in range(1, spec.ragged_rank)]

    def features(tf: ModuleType) -> dict[str, Any]:
        lists = {
            key: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.as_dtype(spec.splits))
            for key in keys
        }
        return {
            name: tf.io.RaggedFeature(tf.as_dtype(kind), row_splits_dtype=tf.as_dtype(spec.splits)),
            **lists,
        }

    def read(tf: ModuleType, columns: Tensors) -> Any:
        values, lengths = columns[name].flat_values, columns[name].row_lengths()
        splits = [columns[name].row_splits]
        if keys:
            splits = _joined(
                tf, [tf.cast(columns[key], tf.as_dtype(spec.splits)) for key in keys], lengths, name
            )
        if inner:
            # A feature list is flat, so its row_splits count values instead of inner rows.
            width = math.prod(_fixed(inner))
            what = f"{name}: rows have the shape {shown(inner)}, so a multiple of {width} values"
            reassembly.check(tf, splits[-1] % width == 0, what, splits[-1])
            splits[-1], values = splits[-1] // width, tf.reshape(values, [-1, *_fixed(inner)])
        values = tf.cast(values, tf.as_dtype(spec.dtype)) if kind != spec.dtype else values
        return reassembly.ragged(tf, spec, values, splits, name, True)

    return _Reader([name, *keys], features, read)


_READERS = {DENSE: _dense_reader, SPARSE: _sparse_reader, RAGGED: _ragged_reader}
_FORMS = {"parts": _parts, "serialized": _serialized, "example": _example}
