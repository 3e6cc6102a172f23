"""Sizes, descriptions, samples and distances of nested values, for profiling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ... import frameworks
from ...core import dtypes
from ...core.frozen import trusted
from ...core.quantized import Quantized, has_codes
from ...core.tensors import Array, Bundle, Ragged, Sparse, Strings, describe
from ...transforms.quantization import FLOATS
from ..equality import equal

RUNS = 8
"""A sample has this many runs of rows, evenly spread."""
SMALL = 64 << 10
"""Tensors of up to so many bytes are not sampled."""
_BLOCK = 1 << 20


def leaves(value: Any) -> Iterator[Any]:
    """Yields the tensors of a nested value, converted to ours."""
    if isinstance(value, (dict, Bundle)) and frameworks.is_python(value):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, Quantized):
        yield value
    elif not frameworks.is_python(value):
        leaf = frameworks.leaf(value)
        yield from leaves(leaf) if isinstance(leaf, list) else [leaf]


def arrays(value: Any) -> Iterator[Array]:
    """Yields the NumPy arrays of all tensors."""
    for leaf in leaves(value):
        if isinstance(leaf, np.ndarray):
            yield leaf
            continue
        for part in (getattr(leaf, name) for name in leaf.__slots__):
            for item in part if isinstance(part, tuple) else (part,):
                if isinstance(item, (np.ndarray, Strings, Quantized)):
                    yield from arrays(item)


def nbytes(value: Any) -> int:
    """The number of bytes of all tensors.

    >>> nbytes({"x": np.zeros(3), "words": Strings.of(["ab"]), "n": 7})
    42
    """
    return sum(array.nbytes for array in arrays(value))


def has_floats(value: Any) -> bool:
    """Whether a value has float tensors to quantize. A value that has quantized tensors already is
    not quantized again.
    """
    return not has_codes(value) and any(name in FLOATS for name in map(_dtype, leaves(value)))


def in_words(value: Any) -> str:
    """A short description of a value, without any text from the data.

    >>> in_words(np.zeros((2, 3))), in_words({"a": np.zeros(3), "b": [np.arange(2), 7]})
    ('float64 (2, 3)', 'dict of 2 tensors (float64, int64)')
    """
    tensors = list(leaves(value))
    if len(tensors) == 1 and not frameworks.is_python(value):
        return repr(tensors[0]) if isinstance(tensors[0], Quantized) else describe(tensors[0])
    kinds = ", ".join(dict.fromkeys(map(_dtype, tensors)))
    return (
        f"{type(value).__name__} of {len(tensors)}"
        f" tensor{'s' * (len(tensors) != 1)}{f' ({kinds})' if kinds else ''}"
    )


def _dtype(leaf: Any) -> str:
    return (
        "string"
        if isinstance(leaf, Strings)
        else leaf.dtype
        if isinstance(leaf.dtype, str)
        else dtypes.of(leaf.dtype).name
    )


def sample(value: Any, most: int) -> Any:
    """A sample of a value with about `most` bytes: evenly spread runs of rows of every large
    tensor. Kinds, dtypes and nesting stay.

    >>> sample({"x": np.arange(1_000_000), "n": 7}, 80_000)["x"].shape
    (10000,)
    """
    size = nbytes(value)
    return value if size <= most else _sample(value, most / size)


def _sample(value: Any, part: float) -> Any:
    if isinstance(value, Bundle):
        return Bundle(
            {name: _sample(item, part) for name, item in value.items()},
            value.metadata,
            value.tensor_metadata,
        )
    if isinstance(value, dict) and frameworks.is_python(value):
        return {key: _sample(item, part) for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)(_sample(item, part) for item in value)
    if frameworks.is_python(value) or isinstance(value, Quantized):
        return value
    leaf = frameworks.leaf(value)
    if isinstance(leaf, list):
        return _sample(leaf, part)
    whole = (
        nbytes(leaf) <= SMALL
        or not leaf.shape
        or isinstance(getattr(leaf, "values", None), Quantized)
    )
    return leaf if whole else _cut(leaf, part)


def _cut(leaf: Any, part: float) -> Any:
    if isinstance(leaf, Sparse):
        runs = _runs(leaf.nnz, part)
        return Sparse(_rows(leaf.indices, runs), _rows(leaf.values, runs), leaf.dense_shape)
    if isinstance(leaf, Strings):
        return _rows(leaf, _runs(len(leaf), part))
    return (
        _cut_ragged(leaf, _runs(len(leaf), part))
        if isinstance(leaf, Ragged)
        else _cut_dense(leaf, part)
    )


def _cut_dense(array: Array, part: float) -> Array:
    """A sample of rows, or of slices along the longest axis if there are too few rows."""
    most = max(1, int(array.nbytes * part))
    while array.nbytes > most:
        part = most / array.nbytes
        axis = 0 if array.shape[0] * part >= 1 else int(np.argmax(array.shape))
        if array.shape[axis] == 1:
            break
        runs = _runs(array.shape[axis], part)
        cut: Array = np.concatenate(
            [array[(slice(None),) * axis + (slice(a, b),)] for a, b in runs], axis
        )
        if cut.shape == array.shape:
            break
        array = cut
    return array


def _cut_ragged(ragged: Ragged, runs: list[tuple[int, int]]) -> Ragged:
    parts = [ragged[a:b] for a, b in runs]
    splits = [
        _bounds([np.diff(part.row_splits[level]) for part in parts]).astype(
            ragged.row_splits[level].dtype
        )
        for level in range(ragged.ragged_rank)
    ]
    return Ragged(_below([part.values for part in parts]), splits, ragged.uniform)


def _rows(items: Any, runs: list[tuple[int, int]]) -> Any:
    return _below([items[a:b] for a, b in runs])


def _below(parts: list[Any]) -> Any:
    """The concatenation of arrays or Strings along the first axis."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    offsets = _bounds([np.diff(part.offsets) for part in parts])
    return trusted(
        Strings, np.concatenate([part.data for part in parts]), offsets, shape, parts[0].text
    )


def _bounds(lengths: list[Array]) -> Array:
    return np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)])


def _runs(count: int, part: float) -> list[tuple[int, int]]:
    """The bounds of the runs that sample a share `part` of `count` rows.

    >>> _runs(1000, 0.1)[:2], _runs(3, 0.5), _runs(1, 0.1)
    ([(0, 12), (125, 138)], [(0, 1)], [(0, 1)])
    """
    most = max(1, int(count * part))
    runs = min(RUNS, most)
    starts = [count * i // runs for i in range(runs)]
    sizes = [most * (i + 1) // runs - most * i // runs for i in range(runs)]
    return [(start, start + size) for start, size in zip(starts, sizes, strict=True)]


class DifferentError(Exception):
    """Two values differ in more than the values of floats."""


def difference(value: Any, other: Any) -> tuple[float, float]:
    """The largest and the mean distance of the finite floats of two values. Raises DifferentError
    if the values differ in anything else.

    >>> difference({"x": np.float32([1, 2]), "n": 7}, {"x": np.float32([1, 2.5]), "n": 7})
    (0.5, 0.25)
    """
    most, total, count = 0.0, 0.0, 0
    for a, b in _pairs(value, other):
        for start in range(0, a.size, _BLOCK):
            before, after = (
                x.reshape(-1)[start : start + _BLOCK].astype(np.float64) for x in (a, b)
            )
            finite = np.isfinite(before)
            with np.errstate(invalid="ignore"):
                error = np.abs(before - after)[finite]
            most, total, count = (
                max(most, float(error.max(initial=0))),
                total + float(error.sum()),
                count + error.size,
            )
    return most, total / max(count, 1)


def _pairs(a: Any, b: Any) -> Iterator[tuple[Array, Array]]:
    """Yields the float arrays at the same place in two values. Everything else must be equal."""
    if isinstance(a, (dict, Bundle)) and frameworks.is_python(a):
        _demand(type(a) is type(b) and list(a) == list(b))
        for key in a:
            yield from _pairs(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        _demand(type(a) is type(b) and len(a) == len(b))
        for x, y in zip(a, b, strict=True):
            yield from _pairs(x, y)
    elif frameworks.is_python(a) or isinstance(a, Quantized):
        _demand(equal(a, b))
    else:
        yield from _leaf_pairs(frameworks.leaf(a), frameworks.leaf(b))


def _leaf_pairs(x: Any, y: Any) -> Iterator[tuple[Array, Array]]:
    _demand(type(x) is type(y))
    if isinstance(x, list):
        yield from _pairs(x, y)
    elif isinstance(x, (Sparse, Ragged)):
        _demand(
            all(
                equal(getattr(x, name), getattr(y, name))
                for name in x.__slots__
                if name != "values"
            )
        )
        yield from _leaf_pairs(x.values, y.values)
    elif isinstance(x, np.ndarray) and dtypes.of(x.dtype).name in FLOATS:
        _demand(x.dtype == y.dtype and x.shape == y.shape)
        yield x, y
    else:
        _demand(equal(x, y))


def _demand(true: bool) -> None:
    if not true:
        raise DifferentError("the decoded value differs in more than its floats")
