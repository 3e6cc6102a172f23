"""Serialized rows of tensors, for signatures that take strings: tf.train.Examples of all tensors,
or TensorProtos of one.

The features of an input x in an Example are

    dense     the list x
    ragged    the list x, and for each further ragged dimension the row's own row_splits:
              x_row_splits_1, ...
    sparse    x_values and x_indices (x_indices_0, x_indices_1, ... if a row has more than one
              dimension), and x_dense_shape

which is the form that `export` reads. Bools and integers are int64 lists, floats up to 32 bits are
float lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import io
from ..._errors import EncodeError, TensorwireError
from ...core.frozen import trusted
from ...core.tensors import Array, Ragged, Sparse, Strings, Tensor, describe
from ...records import gather, pack
from ...wire import example
from ...wire.example import key_order

FORMAT = "example"


def examples(tensors: Mapping[str, Any]) -> Strings:
    """Return serialized Examples, one for each row of the tensors, which share their first
    dimension.

    >>> examples({"a": np.array([[5, 3]])})[0].hex(" ")
    '0a 0d 0a 0b 0a 01 61 12 06 1a 04 0a 02 05 03'
    """
    features: dict[str, Any] = {}
    for name, tensor in tensors.items():
        for feature, column in columns(name, tensor).items():
            if feature in features:
                raise EncodeError(
                    f"two inputs need the same feature {feature!r}", tensor=name, format=FORMAT
                )
            features[feature] = column
    try:
        made, count = gather.from_columns(features, pack.Options(), 0, {})
    except TensorwireError as error:
        pack.drop_tensors_hint(error)
        raise error.add(format=FORMAT) from None
    order = key_order([name.encode() for name in made])
    data, offsets = example.encode([made[name.decode()].input(name) for name in order], count)
    if len(offsets) <= count:
        raise EncodeError(
            "the Example is larger than 2 GiB", record=len(offsets) - 1, format=FORMAT
        )
    return trusted(Strings, data, offsets, (count,), False)


def columns(name: str, tensor: Tensor) -> dict[str, Any]:
    """Return the feature columns of one tensor, by name."""
    if not tensor.shape:
        raise EncodeError(
            "cannot write a scalar as Examples: it has no rows", tensor=name, format=FORMAT
        )
    if isinstance(tensor, Sparse):
        return _sparse_columns(name, tensor)
    return _ragged_columns(name, tensor) if isinstance(tensor, Ragged) else {name: tensor}


def words(name: str, tensor: Tensor) -> str:
    """Return the names of the features of a tensor, as text.

    >>> words("x", Sparse([[0, 0]], np.float32([1]), (1, 2)))
    'the features x_values, x_indices, x_dense_shape'
    """
    names = list(columns(name, tensor))
    return f"the feature{'s' * (len(names) > 1)} {', '.join(names)}"


def _sparse_columns(name: str, tensor: Sparse) -> dict[str, Any]:
    sparse = tensor.sort()
    rank = sparse.indices.shape[1]
    if rank < 2 or sparse.values.ndim != 1:
        raise EncodeError(
            f"cannot write {describe(tensor)} as Examples: expected a rank of at least 2 and scalar"
            " values",
            tensor=name,
            format=FORMAT,
        )
    count = int(sparse.dense_shape[0])
    splits = np.searchsorted(sparse.indices[:, 0], np.arange(count + 1)).astype(np.int64)
    features: dict[str, Any] = {f"{name}_values": Ragged(sparse.values, splits)}
    for axis in range(1, rank):
        key = f"{name}_indices" if rank == 2 else f"{name}_indices_{axis - 1}"
        features[key] = Ragged(np.ascontiguousarray(sparse.indices[:, axis]), splits)
    return {**features, f"{name}_dense_shape": np.tile(sparse.dense_shape[1:], (count, 1))}


def _ragged_columns(name: str, ragged: Ragged) -> dict[str, Any]:
    width = math.prod(ragged.values.shape[1:])
    bounds = _bounds(ragged)
    features: dict[str, Any] = {name: Ragged(ragged.values.reshape(-1), bounds[-1] * width)}
    for level in range(1, len(ragged.row_splits)):
        splits, rows = _own_splits(ragged, bounds, level)
        last = level == len(ragged.row_splits) - 1
        features[f"{name}_row_splits_{level}"] = Ragged(splits * width if last else splits, rows)
    return features


def _bounds(ragged: Ragged) -> list[Array]:
    """Return where the rows of the batch begin at each level; the last level are the values."""
    bounds = [ragged.row_splits[0].astype(np.int64)]
    for splits in ragged.row_splits[1:]:
        bounds.append(splits.astype(np.int64)[bounds[-1]])
    return bounds


def _own_splits(ragged: Ragged, bounds: list[Array], level: int) -> tuple[Array, Array]:
    """Return (the row_splits of each row at a level, concatenated; where those of each row begin).

    The row_splits of a row start at 0, as if the row were a ragged tensor of its own.
    """
    # A row of n inner rows has n + 1 splits, so neighbours share a split in the batch's row_splits.
    # `places` picks the shared split twice; subtracting the first split of each row rebases them.
    starts = bounds[level - 1]
    lengths = np.diff(starts) + 1
    rows = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=rows[1:])
    places = np.arange(rows[-1]) + np.repeat(starts[:-1] - rows[:-1], lengths)
    splits = ragged.row_splits[level].astype(np.int64)
    return splits[places] - np.repeat(splits[starts[:-1]], lengths), rows


def ragged_rows(ragged: Ragged) -> Strings:
    """Return each row as a serialized TensorProto [N]; with further ragged dimensions
    [N, ragged_rank], the row's values and then its own row_splits.

    >>> [io.parse_tensor(row, "int64").tolist() for row in ragged_rows(Ragged.of([[1, 2], []]))]
    [[1, 2], []]
    """
    bounds, depth = _bounds(ragged), len(ragged.row_splits)
    own = [_own_splits(ragged, bounds, level) for level in range(1, depth)]
    strings = []
    for row in range(len(ragged)):
        strings.append(
            io.serialize_tensor(ragged.values[int(bounds[-1][row]) : int(bounds[-1][row + 1])])
        )
        for splits, rows in own:
            strings.append(
                io.serialize_tensor(
                    splits[rows[row] : rows[row + 1]].astype(ragged.row_splits[0].dtype)
                )
            )
    return Strings.of(strings, (len(ragged),) if depth == 1 else (len(ragged), depth), text=False)


def serialize(features: Mapping[str, Array | Strings]) -> bytes:
    """Return one serialized tf.train.Example of vectors of float32, int64 and strings."""
    message = example.encode_one(features)
    if message is None:
        raise EncodeError("the Example is larger than 2 GiB", format=FORMAT)
    return bytes(message)
