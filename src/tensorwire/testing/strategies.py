"""Hypothesis strategies for tensors of every kind and for nested values.

Numbers are random bits, so that NaN payloads and subnormals occur.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..core import dtypes as _dtypes
from ..core.tensors import Bundle, Ragged, Sparse, Strings
from .sampling import DTYPES


def dtypes() -> st.SearchStrategy[_dtypes.DType]:
    """Return a strategy for the dtypes that can be written."""
    return st.sampled_from(DTYPES)


def shapes(max_dims: int = 5, max_side: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy for shapes."""
    return st.lists(st.integers(0, max_side), max_size=max_dims).map(tuple)


@st.composite
def arrays(draw: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Return a strategy for dense tensors of any dtype and shape."""
    row = draw(dtypes()) if dtype is None else _dtypes.named(dtype)
    dims = draw(shapes()) if shape is None else shape
    count = math.prod(dims) * row.numpy.itemsize
    bits = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8).copy()
    if row.name == "bool":
        bits &= 1
    elif row.bits < 8:
        bits &= (1 << row.bits) - 1
    return bits.view(row.numpy).reshape(dims)


@st.composite
def strings(draw: Any, shape: Any = None, text: Any = None) -> Any:
    """Return a strategy for string tensors of bytes or text."""
    dims = draw(shapes(3, 3)) if shape is None else shape
    is_text = draw(st.booleans()) if text is None else text
    item = (
        st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
        if is_text
        else st.binary(max_size=9)
    )
    return Strings.of(
        draw(st.lists(item, min_size=math.prod(dims), max_size=math.prod(dims))), dims, is_text
    )


@st.composite
def sparse(draw: Any, hybrid: bool = True) -> Any:
    """Return a strategy for sparse tensors of numbers or strings: unsorted, with duplicates, and
    hybrid unless `hybrid` is False.
    """
    rank, nnz = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    shape = [draw(st.integers(1, 6)) for _ in range(rank)]
    indices = [[draw(st.integers(0, dim - 1)) for dim in shape] for _ in range(nnz)]
    inner = draw(shapes(2, 3)) if hybrid else ()
    values = draw(st.one_of(arrays(shape=(nnz, *inner)), strings(shape=(nnz,))))
    return Sparse(
        np.array(indices, np.int64).reshape(nnz, rank), values, [*shape, *values.shape[1:]]
    )


@st.composite
def ragged(draw: Any) -> Any:
    """Return a strategy for ragged tensors of numbers or strings, with one to three ragged or
    uniform dimensions.
    """
    depth, dtype = draw(st.integers(1, 3)), draw(st.sampled_from([np.int32, np.int64]))
    rows, splits, uniform = draw(st.integers(0, 3)), [], []
    for _ in range(depth):
        same = draw(st.none() | st.integers(0, 2))
        lengths = [draw(st.integers(0, 3)) if same is None else same for _ in range(rows)]
        splits.append(np.concatenate([[0], np.cumsum(lengths)]).astype(dtype))
        uniform.append(same)
        rows = sum(lengths)
    values = draw(st.one_of(arrays(shape=(rows, *draw(shapes(2, 2)))), strings(shape=(rows,))))
    return Ragged(values, splits, uniform)


def tensors() -> st.SearchStrategy[Any]:
    """Return a strategy for tensors of any kind."""
    return st.one_of(arrays(), strings(), sparse(), ragged())


def leaves() -> st.SearchStrategy[Any]:
    """Return a strategy for Python scalars, text and bytes."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    return st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), text, st.binary(max_size=9)
    )


def bundles() -> st.SearchStrategy[Any]:
    """Return a strategy for bundles of tensors with metadata."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    return st.builds(
        Bundle,
        st.dictionaries(text, tensors(), max_size=3),
        st.dictionaries(text.filter("tensorwire".__ne__), text, max_size=2),
    )


def values(max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Return a strategy for all values that `tw.dumps` takes."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    keys = st.one_of(text, text, st.integers(-(1 << 63), (1 << 63) - 1))
    return st.recursive(
        st.one_of(tensors(), leaves(), bundles()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(keys, inner, max_size=4),
        ),
        max_leaves=max_leaves,
    )
