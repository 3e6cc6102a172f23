"""Tensor specs in TensorFlow's messages: TensorInfo of a signature, type specs of arguments."""

from __future__ import annotations

from dataclasses import dataclass

from ..._errors import DecodeError
from ...core import dtypes
from ...wire.protobuf import MessageReader, Span
from ...wire.status import NEGATIVE_DIM, TOO_MANY_DIMS, problem

Shape = tuple[int | None, ...] | None
_DIMS = 254
_REF = 100
"""What TensorFlow 1 adds to the dtype number of a reference variable."""
_OTHERS = {0: "invalid", dtypes.STRING: "string", 20: "resource", dtypes.VARIANT: "variant"}
_CLASSES = {1: "sparse", 3: "ragged"}
_CONTAINERS = {51: 1, 52: 1}
"""Field numbers of lists and tuples in a StructuredValue -> the field with their values."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output of a signature."""

    dtype: str
    """A name of `dtypes`, "string", "variant" or "resource"; "invalid" if the dtype is absent."""
    shape: Shape
    kind: str = "dense"
    """"dense"; or "sparse", "ragged" or (for any other kind) "composite" if the name refers to
    several tensors.
    """
    tensors: tuple[str, ...] = ()
    """The tensor names in the graph: one; or indices, values, dense_shape; or values, then
    row_splits from outer to inner.
    """


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a function: one tensor, which takes one or several plain tensors."""

    kind: str
    dtype: str
    shape: Shape
    count: int
    """The number of its plain tensors."""


def dtype(reader: MessageReader, number: int, offset: int) -> str:
    number = number - _REF if number > _REF else number
    row = dtypes.BY_TF.get(number)
    if row is None and number not in _OTHERS:
        raise DecodeError(f"unknown DataType {number}", format=reader.format, offset=offset)
    return row.name if row is not None else _OTHERS[number]


def shape(reader: MessageReader, span: Span | None) -> Shape:
    """Reads a TensorShapeProto. A missing one is a scalar's, as protobuf defaults require."""
    if span is None:
        return ()
    fields = reader.take(span, many=(2,), numbers=(3,))
    if fields[3]:
        return None
    if len(fields[2]) > _DIMS:
        raise problem(TOO_MANY_DIMS, span[0], reader.format)
    dims: list[int | None] = []
    for dim in fields[2]:
        size = reader.take(dim, numbers=(1,))[1]
        # A varint is unsigned, so -1 (an unknown dimension) arrives as 2 ** 64 - 1.
        size -= (size >> 63) << 64
        if size < -1:
            raise problem(NEGATIVE_DIM, dim[0], reader.format)
        dims.append(None if size == -1 else size)
    return tuple(dims)


def tensor_info(reader: MessageReader, span: Span, depth: int = 0) -> TensorInfo:
    depth = reader.deeper(depth, span)
    fields = reader.take(span, once=(1, 3, 4, 5), numbers=(2,))
    dtype_shape = dtype(reader, fields[2], span[0]), shape(reader, fields[3])
    if sum(fields[number] is not None for number in (1, 4, 5)) > 1:
        raise DecodeError(
            "a TensorInfo must be one of: name, coo_sparse, composite_tensor",
            format=reader.format,
            offset=span[0],
        )
    if fields[4] is not None:
        names = reader.take(fields[4], once=(1, 2, 3))
        return TensorInfo(
            *dtype_shape, "sparse", tuple(reader.text(names[number]) for number in (2, 1, 3))
        )
    if fields[5] is not None:
        parts = reader.take(fields[5], once=(1,), many=(2,))
        if parts[1] is None:
            raise DecodeError(
                "a composite tensor has no type_spec", format=reader.format, offset=span[0]
            )
        spec = type_spec(reader, parts[1], depth)
        tensors = tuple(
            name for part in parts[2] for name in tensor_info(reader, part, depth).tensors
        )
        return TensorInfo(spec.dtype, spec.shape, spec.kind, tensors)
    return TensorInfo(*dtype_shape, "dense", (reader.text(fields[1]),))


def type_spec(reader: MessageReader, span: Span, depth: int) -> Argument:
    """Reads a TypeSpecProto.

    The state of a sparse spec is (shape, dtype), of a ragged one (shape, dtype, ragged_rank, ...).
    """
    fields = reader.take(span, once=(2,), numbers=(1, 4))
    kind = _CLASSES.get(fields[1], "composite")
    if kind == "composite":
        return Argument(kind, "invalid", None, _count(reader, fields[4], span))
    values = reader.take(fields[2], once=(52,))[52] if fields[2] is not None else None
    state = reader.take(values, many=(1,))[1] if values is not None else []
    if len(state) < (2 if kind == "sparse" else 3):
        raise DecodeError(
            f"a {kind} type spec lacks its shape or dtype", format=reader.format, offset=span[0]
        )
    dims = reader.take(state[0], once=(31,))[31]
    dtype_shape = (
        dtype(reader, reader.take(state[1], numbers=(32,))[32], state[1][0]),
        shape(reader, dims) if dims is not None else None,
    )
    if kind == "sparse":
        return Argument(kind, *dtype_shape, 3)
    # The rank is zigzag-encoded: an odd number is negative.
    rank = reader.take(state[2], numbers=(12,))[12]
    if rank & 1 or not 0 <= rank // 2 <= _DIMS:
        raise DecodeError(
            "invalid ragged_rank in a type spec",
            format=reader.format,
            offset=span[0],
        )
    return Argument(kind if rank else "dense", *dtype_shape, 1 + rank // 2)


def arguments(reader: MessageReader, span: Span, depth: int = 0) -> list[Argument]:
    """Returns the tensors in a StructuredValue as TensorFlow flattens it: dicts by sorted key."""
    depth = reader.deeper(depth, span)
    alternatives = reader.take(span, once=(33, 34, 35, 51, 52, 53, 54))
    out: list[Argument] = []
    for number in (33, 35):
        if alternatives[number] is not None:
            spec = reader.take(alternatives[number], once=(2,), numbers=(3,))
            out.append(
                Argument(
                    "dense",
                    dtype(reader, spec[3], alternatives[number][0]),
                    shape(reader, spec[2]),
                    1,
                )
            )
    if alternatives[34] is not None:
        out.append(type_spec(reader, alternatives[34], depth))
    inner: list[Span] = []
    for number, values in _CONTAINERS.items():
        if alternatives[number] is not None:
            inner += reader.take(alternatives[number], many=(values,))[values]
    if alternatives[53] is not None:
        fields = reader.entries(reader.take(alternatives[53], many=(1,))[1])
        inner += [fields[key] for key in sorted(fields)]
    if alternatives[54] is not None:
        pairs = [
            reader.take(pair, once=(1, 2))[2]
            for pair in reader.take(alternatives[54], many=(2,))[2]
        ]
        inner += [pair for pair in pairs if pair is not None]
    for value in inner:
        out += arguments(reader, value, depth)
    return out


def _count(reader: MessageReader, count: int, span: Span) -> int:
    if count > 1 << 20:
        raise DecodeError(
            "a type spec has more than 2 ** 20 component tensors",
            format=reader.format,
            offset=span[0],
        )
    return count
