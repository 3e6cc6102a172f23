"""The forms in which a signature can take sparse and ragged tensors, and how each becomes the
tensors that the model wants.

parts        several inputs for each: x_indices, x_values, x_dense_shape; x_values, x_row_splits_0,
             ... Their first dimensions differ, so
             requests are columns, and a server cannot batch them.
serialized   one string input for each, with a row for every row of the tensor, so requests may be
             rows, and servers can batch them.
             sparse: x [?, 3], the rows of tf.io.serialize_many_sparse. ragged: x [?], each row as a
             serialized TensorProto; with
             further ragged dimensions x [?, ragged_rank], the row's values and then its own
             row_splits, each a TensorProto.
example      one input `examples` [?] of serialized tf.train.Examples, a feature for each input:
             dense x: the list x. ragged x: the list x, and further row_splits as x_row_splits_1,
             ...
             sparse x: x_values and x_indices (x_indices_0, x_indices_1, ... if a row has more than
             one dimension), and x_dense_shape
             where the spec leaves a dimension open.
             Bools and integers are int64 lists, floats up to 32 bits float lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._errors import EncodeError, choices
from ..spec import DENSE, RAGGED, SPARSE, Input, Spec, shown
from . import reassembly

if TYPE_CHECKING:
    import tensorflow

EXAMPLES = "examples"
Tensors = Mapping[str, Any]


class InputForm(NamedTuple):
    inputs: dict[str, Input]
    rebuild: Callable[[Any, Tensors], dict[str, Any]]
    """From TensorFlow and the tensors of these inputs to those of the specs."""


def form(name: str, specs: Mapping[str, Spec]) -> InputForm:
    """One of the forms, for these inputs of the model."""
    if name not in _FORMS:
        raise EncodeError(f"there is no form {name!r}{choices(name, _FORMS)}")
    return _FORMS[name](specs)


def _parts(specs: Mapping[str, Spec]) -> InputForm:
    roles = {name: spec.parts(name) for name, spec in specs.items()}
    by_columns_only = any(spec.kind != DENSE for spec in specs.values())

    def back(tf: ModuleType, tensors: Tensors) -> dict[str, Any]:
        found = {}
        for name, parts in roles.items():
            tensor = reassembly.build(
                tf, specs[name], {role: tensors[part.name] for role, part in parts.items()}, name
            )
            dims = specs[name].shape if specs[name].kind == DENSE else None
            if dims and by_columns_only:
                tensor = reassembly.with_rank(tf, tensor, dims)
            found[name] = tensor
        return found

    return InputForm(
        _unique([(name, part) for name, parts in roles.items() for part in parts.values()]), back
    )


def _unique(parts: list[tuple[str, Input]]) -> dict[str, Input]:
    found: dict[str, Input] = {}
    for name, part in parts:
        if part.name in found:
            raise EncodeError(
                f"two inputs would be called {part.name!r}; rename {name!r}", tensor=name
            )
        found[part.name] = part
    return found


def _serialized(specs: Mapping[str, Spec]) -> InputForm:
    inputs = {name: _row(name, spec) for name, spec in specs.items()}

    def back(tf: ModuleType, tensors: Tensors) -> dict[str, Any]:
        ways = {
            DENSE: lambda tf, spec, rows, name: rows,
            SPARSE: _sparse_rows,
            RAGGED: _ragged_rows,
        }
        return {
            name: ways[spec.kind](tf, spec, tensors[name], name) for name, spec in specs.items()
        }

    return InputForm(inputs, back)


def _row(name: str, spec: Spec) -> Input:
    if spec.kind == SPARSE:
        if spec.rank is not None and spec.rank < 2:
            raise EncodeError(
                f"a sparse tensor {shown(spec.shape)} has no rows to serialize; the form 'parts'"
                " takes it",
                tensor=name,
            )
        return Input(name, "string", (None, 3))
    if spec.kind == RAGGED:
        if spec.shape is None:
            raise EncodeError(
                "a ragged tensor of unknown rank has rows of unknown rank; the form 'parts'"
                " takes it",
                tensor=name,
            )
        return Input(name, "string", (None,) if spec.ragged_rank == 1 else (None, spec.ragged_rank))
    return Input(name, spec.dtype, spec.shape)


def _sparse_rows(tf: ModuleType, spec: Spec, rows: tensorflow.Tensor, name: str) -> Any:
    found = tf.io.deserialize_many_sparse(rows, tf.as_dtype(spec.dtype), spec.rank)
    return reassembly.sparse(tf, spec, found.indices, found.values, found.dense_shape, name, True)


def _ragged_rows(tf: ModuleType, spec: Spec, rows: tensorflow.Tensor, name: str) -> Any:
    inner = [None, *(spec.shape or ())[spec.ragged_rank + 1 :]]

    def column(number: int, dtype: str, shape: list[int | None]) -> Any:
        strings = rows if spec.ragged_rank == 1 else rows[:, number]
        each = tf.RaggedTensorSpec(shape, tf.as_dtype(dtype), 0, tf.as_dtype(spec.splits))
        return tf.map_fn(
            lambda string: tf.ensure_shape(tf.io.parse_tensor(string, tf.as_dtype(dtype)), shape),
            strings,
            fn_output_signature=each,
        )

    values = column(0, spec.dtype, inner)
    below = [column(level, spec.splits, [None]) for level in range(1, spec.ragged_rank)]
    splits = _joined(tf, below, values.row_lengths(), name) if below else [values.row_splits]
    return reassembly.ragged(tf, spec, values.flat_values, splits, name, True)


def _joined(tf: ModuleType, below: list[Any], lengths: tensorflow.Tensor, name: str) -> list[Any]:
    """The row_splits of a batch from those of each of its rows: for every level below the first a
    ragged tensor [rows, splits], and how many values each row has. No row may reach into another
    one's values."""
    for level, each in enumerate(below, 1):
        reassembly.check(tf, each.row_lengths() > 0, f"{name}: a row has no row_splits_{level}")
    ends = [each.row_lengths() - 1 for each in below[1:]] + [lengths]
    splits = [_summed(tf, below[0].row_lengths() - 1)]
    for level, (each, end) in enumerate(zip(below, ends, strict=True), 1):
        good = tf.logical_and(each[:, :1].flat_values == 0, each[:, -1:].flat_values == end)
        reassembly.check(
            tf,
            good,
            f"{name}: the row_splits_{level} of a row must start at 0 and end at the number of what"
            " they split",
            end,
        )
        splits.append(_summed(tf, (each[:, 1:] - each[:, :-1]).flat_values))
    return splits


def _summed(tf: ModuleType, lengths: tensorflow.Tensor) -> Any:
    return tf.concat([tf.zeros([1], lengths.dtype), tf.cumsum(lengths)], 0)


def _example(specs: Mapping[str, Spec]) -> InputForm:
    readers = {name: _READERS[spec.kind](name, spec) for name, spec in specs.items()}
    keys = [key for reader in readers.values() for key in reader.keys]
    for key in keys:
        if keys.count(key) > 1:
            raise EncodeError(f"two inputs would have a feature {key!r} in an Example")

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
    """How one input is read from Examples."""

    keys: list[str]
    features: Callable[[Any], dict[str, Any]]
    read: Callable[[Any, Tensors], Any]


def _listed(name: str, dtype: str) -> str:
    """The kind of list that holds a dtype exactly."""
    if dtype in ("float32", "int64", "string"):
        return dtype
    if dtype == "bool" or dtype in ("int8", "int16", "int32", "uint8", "uint16", "uint32"):
        return "int64"
    if dtype in ("float16", "bfloat16") or dtype.startswith("float8"):
        return "float32"
    raise EncodeError(
        f"an Example has no list that holds {dtype}; the forms 'parts' and 'serialized' take it",
        tensor=name,
    )


def _batched(name: str, spec: Spec) -> tuple[int | None, ...]:
    """The shape of one row."""
    if not spec.shape or spec.shape[0] is not None:
        raise EncodeError(
            f"{shown(spec.shape)} is no batch [None, ...], and Examples are rows", tensor=name
        )
    return spec.shape[1:]


def _dense_reader(name: str, spec: Spec) -> _Reader:
    shape, kind = _batched(name, spec), _listed(name, spec.dtype)
    if None in shape[1:]:
        raise EncodeError(
            f"a row of {shown(spec.shape)} does not say its shape in an Example; only its first"
            " dimension may vary",
            tensor=name,
        )

    def features(tf: ModuleType) -> dict[str, Any]:
        if None in shape:
            return {name: tf.io.RaggedFeature(tf.as_dtype(kind), row_splits_dtype=tf.int64)}
        return {name: tf.io.FixedLenFeature(shape, tf.as_dtype(kind))}

    def read(tf: ModuleType, columns: Tensors) -> Any:
        column = columns[name]
        if None in shape:  # as dense as it must be: nothing is padded
            length = tf.reduce_max(tf.concat([[0], column.row_lengths()], 0))
            what = f"{name}: all Examples of a request must have as many values; they have"
            inner = -1 if not shape[1:] else length // math.prod(_known(shape))
            with tf.control_dependencies(
                [reassembly.check(tf, column.row_lengths() == length, what, column.row_lengths())]
            ):
                column = tf.reshape(column.flat_values, [column.nrows(), inner, *_known(shape)])
        return tf.cast(column, tf.as_dtype(spec.dtype)) if kind != spec.dtype else column

    return _Reader([name], features, read)


def _known(shape: tuple[int | None, ...]) -> list[int]:
    return [dim for dim in shape if dim is not None]


def _sparse_reader(name: str, spec: Spec) -> _Reader:
    shape, kind = _batched(name, spec), _listed(name, spec.dtype)
    if not shape:
        raise EncodeError("a sparse vector has no rows that Examples could be", tensor=name)
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
        row = tf.reduce_max(columns[sizes], 0) if is_open else tf.constant(_known(shape), tf.int64)
        cast = (
            tf.cast(column.flat_values, tf.as_dtype(spec.dtype))
            if kind != spec.dtype
            else column.flat_values
        )
        found = reassembly.sparse(
            tf, spec, places, cast, tf.concat([[column.nrows()], row], 0), name, True
        )
        return tf.sparse.reorder(found)  # an Example's lists may be in any order

    return _Reader([*indices, values, *([sizes] if is_open else [])], features, read)


def _ragged_reader(name: str, spec: Spec) -> _Reader:
    shape, kind = _batched(name, spec), _listed(name, spec.dtype)
    inner = shape[spec.ragged_rank :]
    if None in inner or 0 in inner:
        raise EncodeError(
            f"the inner dimensions of {shown(spec.shape)} do not say how many values they take",
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
        if inner:  # a list is flat, and its splits count values
            width = math.prod(_known(inner))
            what = f"{name}: rows are of {shown(inner)}, so a multiple of {width} values"
            reassembly.check(tf, splits[-1] % width == 0, what, splits[-1])
            splits[-1], values = splits[-1] // width, tf.reshape(values, [-1, *_known(inner)])
        values = tf.cast(values, tf.as_dtype(spec.dtype)) if kind != spec.dtype else values
        return reassembly.ragged(tf, spec, values, splits, name, True)

    return _Reader([name, *keys], features, read)


_READERS = {DENSE: _dense_reader, SPARSE: _sparse_reader, RAGGED: _ragged_reader}
_FORMS = {"parts": _parts, "serialized": _serialized, "example": _example}
