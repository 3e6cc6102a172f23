"""Sample values of every kind and dtype, with hard cases: NaN payloads, -0.0, subnormals, extreme
values, empty and 0-d shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..core import dtypes
from ..core.tensors import Array, Bundle, Ragged, Sparse, Strings

SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (0,),
    (1,),
    (5,),
    (3, 0, 2),
    (2, 3),
    (2, 1, 3),
    (2, 1, 2, 1, 2),
    (1, 2, 1, 2, 1, 3),
)
DTYPES = tuple(row for row in dtypes.TABLE if not row.reading_only)


class Sample(NamedTuple):
    """A value, with its row in the matrix of kinds and dtypes."""

    kind: str
    """dense, strings, sparse, ragged, list ... Variants that not every format supports are kinds of
    their own.
    """
    dtype: str
    value: Any


def numbers(row: dtypes.DType, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return an array of random bits, which include NaN payloads and subnormals. The first elements
    have all bits 0, all bits 1, and only the sign bit 1.
    """
    count = math.prod(shape)
    bits = np.random.default_rng(seed).integers(0, 256, count * row.numpy.itemsize, np.uint8)
    special = np.frombuffer(
        bytes(row.numpy.itemsize)
        + b"\xff" * row.numpy.itemsize
        + bytes(row.numpy.itemsize - 1)
        + b"\x80",
        np.uint8,
    )
    bits[: len(special)] = special[: len(bits)]
    if row.name == "bool":
        bits &= 1
    elif row.bits < 8:
        bits &= (1 << row.bits) - 1
    return bits.view(row.numpy).reshape(shape)


def layouts(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield an array in different memory layouts."""
    yield "contiguous", array
    if array.ndim:
        yield "fortran", np.asfortranarray(array)
        spread: Array = np.empty((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
        spread[..., ::2] = array
        yield "strided", spread[..., ::2]
        yield "reversed", array[::-1].copy()[::-1]
    if array.dtype.kind in "iufc" and array.dtype.isbuiltin == 1:
        yield "big-endian", array.astype(array.dtype.newbyteorder(">"))
    raw: Array = np.zeros(array.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(array.tobytes(), np.uint8)
    yield "unaligned", raw[1:].view(array.dtype).reshape(array.shape)


def _strings(text: bool) -> Iterator[Strings]:
    words: list[Any] = (
        ["", "a", "tensor", "é中🙂", "nul\0", "x" * 300]
        if text
        else [b"", b"a", b"\xff\xfe", b"nul\0", bytes(range(256)), b"y" * 300]
    )
    yield Strings.of(words)
    yield Strings.of(words, (2, 1, 3))
    yield Strings.of([], (0,), text)
    yield Strings.of([], (2, 0), text)


def _values(row: dtypes.DType | None, count: int, *inner: int) -> Any:
    return (
        Strings.of([b"v%d" % i for i in range(count)])
        if row is None
        else numbers(row, (count, *inner), 1)
    )


def _sparse(row: dtypes.DType | None) -> Iterator[Sparse]:
    yield Sparse([[0, 1], [2, 0], [2, 3]], _values(row, 3), (3, 4))
    # The indices are neither sorted nor unique.
    yield Sparse([[2, 3], [0, 1], [0, 1]], _values(row, 3), (3, 4))
    yield Sparse(np.zeros((0, 2), np.int64), _values(row, 0), (3, 0))
    yield Sparse([[5]], _values(row, 1), (1 << 40,))


def _ragged(row: dtypes.DType | None) -> Iterator[tuple[str, Ragged]]:
    yield "ragged", Ragged(_values(row, 4), np.array([0, 3, 3, 4], np.int64))
    yield "ragged", Ragged(_values(row, 0), np.array([0], np.int64))
    if row is not None:
        yield "ragged", Ragged(numbers(row, (3, 2), 2), np.array([0, 1, 3], np.int64))
    yield "ragged int32", Ragged(_values(row, 4), np.array([0, 3, 3, 4], np.int32))
    yield (
        "ragged deep",
        Ragged(
            _values(row, 5), [np.array([0, 2, 2, 3], np.int64), np.array([0, 1, 1, 5], np.int64)]
        ),
    )
    yield (
        "ragged deep",
        Ragged(
            _values(row, 6),
            [np.array([0, 2, 4], np.int64), np.array([0, 3, 3, 4, 6], np.int64)],
            [2, None],
        ),
    )


def samples() -> Iterator[Sample]:
    """Yield sample values of every kind, with every dtype that the kind can have.

    >>> import tensorwire as tw
    >>> from tensorwire.testing import samples
    >>> print(*dict.fromkeys(sample.kind for sample in samples()), sep=", ")
    scalar, dense, sparse, hybrid, ragged, ragged int32, ragged deep, strings, list, tuple, dict,
    python, nested, bundle
    """
    for row in DTYPES:
        for shape in SHAPES:
            yield Sample("dense" if shape else "scalar", row.name, numbers(row, shape))
        yield from (Sample("sparse", row.name, value) for value in _sparse(row))
        yield Sample("hybrid", row.name, Sparse([[0], [2]], numbers(row, (2, 3)), (4, 3)))
        yield from (Sample(kind, row.name, value) for kind, value in _ragged(row))
    for text in (False, True):
        yield from (
            Sample("strings", "text" if text else "bytes", value) for value in _strings(text)
        )
        yield Sample(
            "scalar", "text" if text else "bytes", Strings.of(["é"] if text else [b"\xff"], ())
        )
    yield from (Sample("sparse", "bytes", value) for value in _sparse(None))
    yield from (Sample(kind, "bytes", value) for kind, value in _ragged(None))
    dense: Any
    words: Any
    dense, words = numbers(dtypes.named("float32"), (2, 3)), Strings.of(["é", ""])
    ragged: Any
    sparse: Any
    ragged, sparse = (
        next(_ragged(dtypes.named("int64")))[1],
        next(_sparse(dtypes.named("bfloat16"))),
    )
    yield Sample("list", "dense", [dense, np.array([1], np.int8), np.array(2.0)])
    yield Sample("list", "mixed", [dense, words, ragged, sparse, []])
    yield Sample("tuple", "dense", (dense, np.array([1], np.int8)))
    yield Sample("tuple", "mixed", (words, (), (dense,)))
    yield Sample(
        "dict", "dense", {"b/kernel": dense, "a": np.arange(3), "a/0": np.array([7], np.int16)}
    )
    yield Sample(
        "dict", "mixed", {"words": words, "a": [dense, dense], "a/1": dense, "ü": {}, "": ragged}
    )
    keyed: dict[Any, Any] = {0: dense, "0": words, -7: {1: dense, (1 << 63) - 1: 2}, "lr": 0.1}
    yield Sample("dict", "int keys", keyed)
    for leaf in (
        None,
        True,
        7,
        -(1 << 70),
        1.0,
        0.1,
        -0.0,
        math.nan,
        math.inf,
        "",
        'é\n"\\',
        b"",
        b"\0\xff",
    ):
        yield Sample("python", type(leaf).__name__, leaf)
    yield Sample(
        "nested",
        "mixed",
        {
            "layers": [{"w": dense, "n": (1, 2.5, None)}, {"w": sparse}],
            "cfg": {"lr": 0.1, "tags": ["a", b"b"]},
        },
    )
    yield Sample(
        "bundle",
        "mixed",
        Bundle(
            {"x": dense, "w": words, "s": sparse},
            {"model": "nmt"},
            {"x": {"device": "cpu:0", "name": "x:0"}},
        ),
    )
