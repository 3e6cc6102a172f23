"""Tensors as TensorFlow's messages describe them: TensorInfo of a signature, and the type specs of
a function's arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..._errors import DecodeError
from ...core import dtypes
from ...wire.protobuf import MessageReader, Span
from ...wire.status import NEGATIVE_DIM, TOO_MANY_DIMS, problem

Shape = tuple[int | None, ...] | None
_DIMS = 254
_REF = 100
"""What TensorFlow 1 adds to the dtype of a variable."""
_OTHERS = {0: "invalid", dtypes.STRING: "string", 20: "resource", dtypes.VARIANT: "variant"}
_CLASSES = {1: "sparse", 3: "ragged"}
_CONTAINERS = {51: 1, 52: 1}
"""Lists and tuples of a StructuredValue, and the field that holds their values."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What a signature says of one name."""

    dtype: str
    """A name of `dtypes`, "string", "variant" or "resource"; "invalid" where nothing is said."""
    shape: Shape
    kind: str = "dense"
    """"sparse", "ragged" or (what else TensorFlow may have) "composite" where several tensors stand
    behind the name.
    """
    tensors: tuple[str, ...] = ()
    """Their names in the graph: one; or indices, values, dense_shape; or values, then row_splits
    from the outermost to the innermost.
    """


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor that a function takes, as one or several plain tensors."""

    kind: str
    dtype: str
    shape: Shape
    count: int
    """How many plain tensors it is."""


def dtype(reader: MessageReader, number: int, at: int) -> str:
    number = number - _REF if number > _REF else number
    row = dtypes.BY_TF.get(number)
    if row is None and number not in _OTHERS:
        raise DecodeError(f"no dtype has the number {number}", format=reader.format, offset=at)
    return row.name if row is not None else _OTHERS[number]


def shape(reader: MessageReader, span: Span | None) -> Shape:
    """A TensorShapeProto; one that is not there is that of a scalar, as protobuf has it."""
    if span is None:
        return ()
    found = reader.take(span, many=(2,), numbers=(3,))
    if found[3]:
        return None
    if len(found[2]) > _DIMS:
        raise problem(TOO_MANY_DIMS, span[0], reader.format)
    dims: list[int | None] = []
    for dim in found[2]:
        size = reader.take(dim, numbers=(1,))[1]
        size -= (size >> 63) << 64
        if size < -1:
            raise problem(NEGATIVE_DIM, dim[0], reader.format)
        dims.append(None if size == -1 else size)
    return tuple(dims)


def tensor_info(reader: MessageReader, span: Span, depth: int = 0) -> TensorInfo:
    depth = reader.deeper(depth, span)
    found = reader.take(span, once=(1, 3, 4, 5), numbers=(2,))
    said = dtype(reader, found[2], span[0]), shape(reader, found[3])
    if sum(found[number] is not None for number in (1, 4, 5)) > 1:
        raise DecodeError(
            "a tensor is a name, or sparse, or composite, and not two of them",
            format=reader.format,
            offset=span[0],
        )
    if found[4] is not None:
        names = reader.take(found[4], once=(1, 2, 3))
        return TensorInfo(
            *said, "sparse", tuple(reader.text(names[number]) for number in (2, 1, 3))
        )
    if found[5] is not None:
        parts = reader.take(found[5], once=(1,), many=(2,))
        if parts[1] is None:
            raise DecodeError("a composite tensor of no type", format=reader.format, offset=span[0])
        spec = type_spec(reader, parts[1], depth)
        tensors = tuple(
            name for part in parts[2] for name in tensor_info(reader, part, depth).tensors
        )
        return TensorInfo(spec.dtype, spec.shape, spec.kind, tensors)
    return TensorInfo(*said, "dense", (reader.text(found[1]),))


def type_spec(reader: MessageReader, span: Span, depth: int) -> Argument:
    """A TypeSpecProto: for sparse tensors its state is (shape, dtype), for ragged ones (shape,
    dtype, ragged_rank, ...).
    """
    found = reader.take(span, once=(2,), numbers=(1, 4))
    kind = _CLASSES.get(found[1], "composite")
    if kind == "composite":
        return Argument(kind, "invalid", None, _count(reader, found[4], span))
    values = reader.take(found[2], once=(52,))[52] if found[2] is not None else None
    state = reader.take(values, many=(1,))[1] if values is not None else []
    if len(state) < (2 if kind == "sparse" else 3):
        raise DecodeError(
            f"a {kind} spec without shape and dtype", format=reader.format, offset=span[0]
        )
    dims = reader.take(state[0], once=(31,))[31]
    known = (
        dtype(reader, reader.take(state[1], numbers=(32,))[32], state[1][0]),
        shape(reader, dims) if dims is not None else None,
    )
    if kind == "sparse":
        return Argument(kind, *known, 3)
    rank = reader.take(state[2], numbers=(12,))[12]  # zigzag
    if rank & 1 or not 0 <= rank // 2 <= _DIMS:
        raise DecodeError(
            "the ragged rank of a spec is no number of dimensions",
            format=reader.format,
            offset=span[0],
        )
    return Argument(kind if rank else "dense", *known, 1 + rank // 2)


def arguments(reader: MessageReader, span: Span, depth: int = 0) -> list[Argument]:
    """The tensors in a StructuredValue, in the order in which TensorFlow flattens it: dicts by
    their sorted keys.
    """
    depth = reader.deeper(depth, span)
    found = reader.take(span, once=(33, 34, 35, 51, 52, 53, 54))
    out: list[Argument] = []
    for number in (33, 35):
        if found[number] is not None:
            spec = reader.take(found[number], once=(2,), numbers=(3,))
            out.append(
                Argument(
                    "dense", dtype(reader, spec[3], found[number][0]), shape(reader, spec[2]), 1
                )
            )
    if found[34] is not None:
        out.append(type_spec(reader, found[34], depth))
    inner: list[Span] = []
    for number, values in _CONTAINERS.items():
        if found[number] is not None:
            inner += reader.take(found[number], many=(values,))[values]
    if found[53] is not None:
        fields = reader.entries(reader.take(found[53], many=(1,))[1])
        inner += [fields[key] for key in sorted(fields)]
    if found[54] is not None:
        pairs = [reader.take(pair, once=(1, 2))[2] for pair in reader.take(found[54], many=(2,))[2]]
        inner += [pair for pair in pairs if pair is not None]
    for value in inner:
        out += arguments(reader, value, depth)
    return out


def _count(reader: MessageReader, count: int, span: Span) -> int:
    if count > 1 << 20:
        raise DecodeError("a spec of too many tensors", format=reader.format, offset=span[0])
    return count
