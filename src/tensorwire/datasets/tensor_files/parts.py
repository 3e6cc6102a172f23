"""The converted parts of one tensor: its node in the new spec, and its parts, whose sizes are known
before they are made.

Dense tensors are read, cast and written in blocks. If the file has a checksum of a tensor, it is
read whole, because only then the checksum can be verified. Other kinds are read twice, one tensor
at a time: first for the sizes of their parts, then to be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ... import lowering
from ..._errors import DecodeError, EncodeError
from ..._limits import Budget
from ...codecs.array_part import BitsPart, StoredPart
from ...codecs.container import Part, Rows
from ...codecs.sinks import BLOCK
from ...core import dtypes, memory
from ...core.memory import Buffer
from ...core.quantized import Quantized
from ...core.tensors import Array, Ragged, Sparse, Strings, trusted
from ...lowering.lower import holds_everything, stored
from ...transforms.quantization import FLOATS, SCHEMES, dequantize, quantize

STRINGS = "strings"
Tensor = Array | Strings
"""The array types of a part."""


class Target(NamedTuple):
    """The dtypes and kinds of tensors that a format can hold."""

    holds: Callable[[dtypes.DType], bool] = holds_everything
    strings: bool = True
    """Whether it has string tensors."""


class Change(NamedTuple):
    """The cast and quantization of a tensor."""

    dtype: str | None = None
    named: bool = False
    """Whether `dtype=` names this tensor exactly. A pattern casts only floats to floats, and
    integers to integers.
    """
    scheme: str | None = None
    """The quantization scheme."""
    axis: int | None = None


class ConvertedPart(NamedTuple):
    """One array of the new file (an `OutputPart`)."""

    dtype: str
    """The dtype in the file; "strings" for a string tensor."""
    shape: tuple[int, ...]
    chunks: Callable[[], Iterator[Array]]
    """Yields its data as consecutive arrays."""
    whole: Callable[[], Tensor] | None = None
    """Returns all of it, if that costs less than joining the chunks."""
    written: Callable[[int], None] = lambda size: None
    """Called with the number of bytes that the writer has taken."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dtypes.BY_NAME[self.dtype].numpy.itemsize

    @property
    def like(self) -> Array:
        """An array of its dtype and shape, which takes no memory."""
        return np.broadcast_to(np.zeros((), dtypes.BY_NAME[self.dtype].numpy), self.shape)

    def buffers(self) -> Iterator[Buffer]:
        for piece in self.chunks():
            data = memory.chunk(np.ascontiguousarray(piece))
            size = len(data)
            # A tensor must not stay in memory until the next one is read.
            del piece
            yield data
            del data
            self.written(size)

    def whole_buffer(self) -> Buffer:
        array = self.read()
        # String tensors have no single buffer; writers never ask for one.
        assert not isinstance(array, Strings)
        return memory.chunk(np.ascontiguousarray(array))

    def read(self) -> Tensor:
        """Returns the whole part."""
        tensor = self._read() if self.whole is None else self.whole()
        self.written(tensor.nbytes)
        return tensor

    def _read(self) -> Array:
        array = np.empty(self.shape, dtypes.BY_NAME[self.dtype].numpy)
        flat, start = array.reshape(-1), 0
        for piece in self.chunks():
            flat[start : start + piece.size] = piece.reshape(-1)
            start += piece.size
        return array


class Converted(NamedTuple):
    """The plan for one tensor."""

    node: Any
    parts: list[ConvertedPart]
    dtype: str
    """The dtype that readers see."""
    was: str
    """The dtype in the source."""


class Held:
    """A cache of the parts of the last tensor, which are often written one after the other. It
    never holds more than one tensor.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._parts: list[Tensor | None] = []

    def take(self, name: str, number: int, make: Callable[[], list[Tensor]]) -> Tensor:
        """Removes and returns one part; `make` makes all parts if they are not in the cache."""
        part = self._parts[number] if self._name == name else None
        if part is None:
            # The old tensor is freed before the next one is made.
            self._name, self._parts = None, []
            parts = make()
            self._parts, self._name, part = [*parts], name, parts[number]
        self._parts[number] = None
        return part


class Leaf(NamedTuple):
    """A tensor of the source."""

    name: str
    node: Any
    parts: list[Part]
    read: Callable[[], Any]
    """Reads and verifies all of it. A quantized tensor is not dequantized."""
    held: Held
    budget: Budget

    def array(self, rows: Rows = None) -> Array:
        """Reads a dense tensor, or some rows of it. Only one tensor is in memory at a time, so each
        read has the whole memory budget.
        """
        self.budget.start()
        array: Array = lowering.lift(self.node, [self.parts[0].read(rows)])
        return array


def convert(leaf: Leaf, target: Target, change: Change) -> Converted:
    """Plans the parts that are written for one tensor."""
    row = _dense_row(leaf)
    if row is None:
        return _other(leaf, target, change)
    goal = cast_to(row, change, leaf.name)
    if _is_to_quantize(goal, change):
        return _quantized(leaf, row, goal, target, change)
    node, kept = _form(goal, _shape(leaf, row), target)

    def chunks() -> Iterator[Array]:
        for block in blocks(leaf):
            made = cast(block, goal, leaf.name) if goal is not row else block
            yield made if node == {} else stored(made)

    def whole() -> Array:
        array = leaf.array()
        return array if node == {} else stored(array)

    return Converted(
        node,
        [ConvertedPart(*kept, chunks, None if goal is not row else whole)],
        goal.name,
        row.name,
    )


def blocks(leaf: Leaf) -> Iterator[Array]:
    """Yields a dense tensor as consecutive arrays: one block at a time is in memory, unless the
    tensor has a checksum to verify.
    """
    part, shape = leaf.parts[0], leaf.parts[0].shape
    by_rows = isinstance(part, (StoredPart, BitsPart)) and not part.checksum
    if not by_rows or not shape or part.nbytes <= BLOCK:
        yield from sliced(leaf.array())
        return
    rows = max(1, BLOCK * shape[0] // part.nbytes)
    for start in range(0, shape[0], rows):
        yield from sliced(leaf.array((start, min(start + rows, shape[0]))))


def sliced(array: Array) -> Iterator[Array]:
    """Yields an array in pieces of a block, without a copy."""
    if array.nbytes <= BLOCK or not array.flags.c_contiguous:
        yield np.ascontiguousarray(array).reshape(array.shape)
        return
    flat, step = array.reshape(-1), BLOCK // array.itemsize
    for start in range(0, len(flat), step):
        yield flat[start : start + step]


def _dense_row(leaf: Leaf) -> dtypes.DType | None:
    """The dtype of a dense tensor; None if the tensor is not dense."""
    kind, part = next(iter(leaf.node), None), leaf.parts[0]
    if kind not in (None, "dtype") or part.dtype in ("bytes", "text"):
        return None
    row = dtypes.BY_NAME[leaf.node["dtype"] if kind else part.dtype]
    # TensorFlow's quantized types are converted to the integers that they store.
    return dtypes.of(row.numpy) if row.reading_only else row


def _shape(leaf: Leaf, row: dtypes.DType) -> tuple[int, ...]:
    """The shape of a dense tensor. Complex numbers may be stored as pairs, in a last dimension."""
    return leaf.parts[0].shape[:-1] if leaf.node and row.numpy.kind == "c" else leaf.parts[0].shape


def _form(
    row: dtypes.DType, shape: tuple[int, ...], target: Target
) -> tuple[Any, tuple[str, tuple[int, ...]]]:
    """The node of a dense tensor, and the dtype and shape of its part."""
    if target.holds(row):
        return {}, (row.name, shape)
    if row.numpy.kind == "c":
        return {"dtype": row.name}, (f"float{row.numpy.itemsize * 4}", (*shape, 2))
    return {"dtype": row.name}, (f"uint{row.numpy.itemsize * 8}", shape)


def cast_to(row: dtypes.DType, change: Change, name: str) -> dtypes.DType:
    """The target dtype of a tensor of dtype `row`."""
    if change.dtype is None:
        return row
    goal = dtypes.named(change.dtype)
    if goal.reading_only:
        raise EncodeError(f"dtype {goal.name} can be read, but not written", tensor=name)
    same_family = _family(row) == _family(goal) and _family(row) in ("float", "int")
    return goal if goal is not row and (change.named or same_family) else row


def _family(row: dtypes.DType) -> str:
    if "float" in row.name:
        return "float"
    return "int" if row.name.startswith(("int", "uint")) else row.name


def cast(array: Array, goal: dtypes.DType, name: str) -> Array:
    """Casts an array. Floats may lose precision; integers must keep their values, or it raises.

    >>> cast(np.array([1.0, 2.5]), dtypes.named("float16"), "x").dtype
    dtype('float16')
    """
    if array.dtype.kind == "c" and goal.numpy.kind != "c":
        raise EncodeError(
            f"cannot cast {array.dtype} to {goal.name}: the imaginary part would be lost",
            tensor=name,
        )
    with np.errstate(all="ignore"):
        made = array.astype(goal.numpy)
        if (
            _family(goal) == "float"
            or goal.numpy.kind == "c"
            or np.array_equal(made.astype(array.dtype), array)
        ):
            return made
    raise EncodeError(
        f"cannot cast {array.dtype} to {goal.name}: some values would change", tensor=name
    )


def _is_to_quantize(row: dtypes.DType, change: Change) -> bool:
    """Whether a tensor is quantized: only floats are, and not by a scheme that is a cast to the
    dtype that the tensor has already.
    """
    if change.scheme is None or row.name not in FLOATS:
        return False
    return (
        change.scheme not in SCHEMES
        or SCHEMES[change.scheme].affine
        or SCHEMES[change.scheme].dtype != row.numpy
    )


def _quantized(
    leaf: Leaf, row: dtypes.DType, goal: dtypes.DType, target: Target, change: Change
) -> Converted:
    """Plans a dense tensor that is quantized. The sizes of its parts follow from its shape."""
    shape = _shape(leaf, row)
    axis = change.axis if len(shape) > 1 else None
    # An empty array shows the parts, and raises if the scheme or the axis is wrong.
    pattern = quantize(np.zeros((0,) * len(shape), goal.numpy), change.scheme or "", axis)
    inner, kept = _form(dtypes.of(pattern.codes.dtype), shape, target)
    node: dict[str, Any] = {"quantized": inner, "scheme": pattern.scheme, "dtype": goal.name}
    kinds = [kept]
    if pattern.scale is not None:
        along = () if pattern.axis is None else (shape[pattern.axis],)
        node["axis"] = pattern.axis
        kinds += [(dtypes.of(pattern.scale.dtype).name, along), ("int64", along)]

    def make() -> Quantized:
        array = leaf.array()
        return quantize(
            cast(array, goal, leaf.name) if goal is not row else array, pattern.scheme, axis
        )

    return Converted(node, _outs(kinds, make, target, leaf), goal.name, row.name)


def _other(leaf: Leaf, target: Target, change: Change) -> Converted:
    """Plans strings, sparse and ragged tensors, and tensors that are quantized already.

    The tensor is read once for the sizes of its parts. `was` and `now` are the dtypes of that
    reading.
    """
    was, now = list[str](), list[str]()

    def make() -> Any:
        leaf.budget.start()
        value = leaf.read()
        inner = value.values if isinstance(value, (Sparse, Ragged)) else value
        if isinstance(inner, Strings):
            was[:] = now[:] = ["text" if inner.text else "bytes"]
            return value
        row = (
            dtypes.named(inner.original) if isinstance(inner, Quantized) else dtypes.of(inner.dtype)
        )
        goal = cast_to(row, change, leaf.name)
        was[:], now[:] = [row.name], [goal.name]
        if goal is not row:
            inner = cast(
                dequantize(inner) if isinstance(inner, Quantized) else inner, goal, leaf.name
            )
        if not isinstance(inner, Quantized) and _is_to_quantize(goal, change):
            inner = quantize(inner, change.scheme or "")
        if isinstance(value, Sparse):
            return trusted(Sparse, value.indices, inner, value.dense_shape)
        return (
            trusted(Ragged, inner, value.row_splits, value.uniform)
            if isinstance(value, Ragged)
            else inner
        )

    lowered = lowering.lower(make(), holds=target.holds, strings=target.strings)
    kinds = [
        (STRINGS if isinstance(part, Strings) else dtypes.of(part.dtype).name, part.shape)
        for part in lowered.parts
    ]
    return Converted(lowered.spec, _outs(kinds, make, target, leaf), now[0], was[0])


def _outs(
    kinds: list[tuple[str, tuple[int, ...]]], make: Callable[[], Any], target: Target, leaf: Leaf
) -> list[ConvertedPart]:
    """The parts of a tensor that is made as a whole."""

    def parts() -> list[Tensor]:
        try:
            return lowering.lower(make(), holds=target.holds, strings=target.strings).parts
        except EncodeError as error:
            raise error.add(tensor=leaf.name) from None

    def whole(number: int) -> Tensor:
        dtype, shape = kinds[number]
        part = leaf.held.take(leaf.name, number, parts)
        now = STRINGS if isinstance(part, Strings) else dtypes.of(part.dtype).name
        if (now, part.shape) != (dtype, shape):
            raise DecodeError(
                f"the file has changed while it was read: the tensor was {dtype} {list(shape)} and"
                f" is {now} {list(part.shape)}",
                tensor=leaf.name,
            )
        return part

    def chunks(number: int) -> Iterator[Array]:
        array = whole(number)
        # Writers read string tensors whole.
        assert not isinstance(array, Strings)
        yield from sliced(array)

    return [
        ConvertedPart(*kind, partial(chunks, number), partial(whole, number))
        for number, kind in enumerate(kinds)
    ]
