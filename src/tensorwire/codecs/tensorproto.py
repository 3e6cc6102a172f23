"""tensorproto: one dense or string tensor is exactly what `tf.io.serialize_tensor` writes.

Any other value is a DT_STRING vector whose dim is named "tensorwire/1": element 0 is the JSON spec of `lowering`, the others are the
TensorProtos of its parts. `tf.io.parse_tensor(..., tf.string)` reads it as strings.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes, frameworks, lowering, memory, validate
from .._errors import DecodeError, LimitError
from .._limits import DEFAULT, Limits
from ..tensors import Array, Ragged, Strings, trusted
from ..wire import jsontext, kernels, protobuf
from ..wire import tensorproto as wire
from ..wire.status import problem

FORMAT = wire.FORMAT
CONTAINER = b"tensorwire/1"


@dataclass(frozen=True, slots=True)
class TensorProto:
    """TensorFlow's bytes.

    >>> TensorProto().encode(np.int8([1, 2]))
    [b'\\x08\\x06\\x12\\x04\\x12\\x02\\x08\\x02"\\x02\\x01\\x02']
    """

    tf_compat: bool = False
    """Read what TensorFlow would read: missing values repeat, too many are cut, wrong fields are ignored."""
    text: bool = False
    """Whether a string tensor holds text. The format cannot say, so a lone string tensor comes back as bytes."""
    limits: Limits = DEFAULT

    def encode(self, value: Any) -> list[Any]:
        tensor = value if type(value) is np.ndarray else None if frameworks.is_python(value) else frameworks.leaf(value)
        if type(tensor) is np.ndarray and tensor.dtype.kind in "OSUT":
            tensor = frameworks.leaf(tensor)
        if isinstance(tensor, Strings) or (isinstance(tensor, np.ndarray) and _holds(dtypes.of(tensor.dtype))):
            return _part(tensor)
        spec, parts = lowering.lower(value if tensor is None else tensor, holds=_holds, strings=True)
        text = jsontext.write(spec)
        dim = b"\x08" + protobuf.varint(len(parts) + 1) + b"\x12" + protobuf.varint(len(CONTAINER)) + CONTAINER
        shape = b"\x12" + protobuf.varint(len(dim)) + dim
        chunks: list[Any] = [b"\x08\x07\x12" + protobuf.varint(len(shape)) + shape, *_element([text])]
        for part in parts:
            chunks += _element(_part(part))
        wire.check_size(sum(map(len, chunks)))
        return chunks

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        try:
            return self._decode(data, copy)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=0) from None  # what has no place of its own is the message's

    def _decode(self, data: memoryview, copy: bool | None) -> Any:
        if copy is not False:
            array = kernels.decode_dense(data, bool(copy))
            if array is not None:
                return array
        message = self._scan(data)
        if message.dtype == dtypes.STRING and message.name == CONTAINER and len(message.shape) == 1:
            return self._container(data, copy)
        return self._tensor(data, message, copy)

    def _scan(self, data: memoryview) -> wire.Message:
        """The whole message, or up to the first string where all that matters comes before it, as everyone writes it."""
        message = wire.scan(data, not self.tf_compat)
        if message.strings_at is not None and (message.dtype != dtypes.STRING or not message.shape):
            return wire.scan(data, not self.tf_compat, stop_at_strings=False)
        return message

    def _tensor(self, data: memoryview, message: wire.Message, copy: bool | None) -> Any:
        strict = not self.tf_compat
        if message.dtype == dtypes.STRING:
            return self._strings(data, message, copy)
        if message.dtype == dtypes.VARIANT:
            return self._variant(data, message, copy)
        row = dtypes.BY_TF.get(message.dtype)
        if row is None:
            raise DecodeError(f"dtype {message.dtype} is none that carries data")
        return wire.numbers(data, message, row, strict, self.limits, copy)

    def _strings(self, data: memoryview, message: wire.Message, copy: bool | None) -> Strings:
        if copy is False:
            raise DecodeError("copy=False, but strings are always gathered into one buffer; leave copy out")
        shape, values, offsets = wire.strings(data, message, not self.tf_compat, self.limits)
        if self.text:
            validate.utf8(values, offsets, DecodeError)
        return trusted(Strings, *_owned((values, offsets), copy), shape, self.text)

    def _part_at(self, data: memoryview, start: int, stop: int, copy: bool | None) -> Array | Strings:
        inner = data[start:stop]
        array = None if copy is False else kernels.decode_dense(inner, bool(copy))
        if array is not None:
            return array
        try:
            message = self._scan(inner)
            if message.dtype == dtypes.VARIANT:
                raise DecodeError("a variant inside another value")
            part: Array | Strings = self._tensor(inner, message, copy)
        except DecodeError as error:
            raise error.add(offset=0).add(base=start) from None
        return part

    def _container(self, data: memoryview, copy: bool | None) -> Any:
        message = wire.scan(data, True, stop_at_strings=False)
        count = message.counts[8]
        if count > self.limits.names + 1:
            raise LimitError(f"{count} parts; Limits(names=...) allows {self.limits.names}")
        if message.shape != (count,) or count == 0 or message.content is not None or any(message.counts[:8]) or any(message.counts[9:]):
            raise DecodeError(f"a container of {message.shape} elements holds {count}")
        code, at, _, starts, sizes = kernels.find_string_vals(data, 0, False, count)
        if code:
            raise problem(code, at, FORMAT)
        spans = [(start, start + size) for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
        spec = jsontext.parse(data[slice(*spans[0])], FORMAT, spans[0][0])
        parts = [self._part_at(data, start, stop, copy) for start, stop in spans[1:]]
        try:
            return lowering.lift(spec, parts, self.limits)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=spans[0][0]) from None

    def _variant(self, data: memoryview, message: wire.Message, copy: bool | None) -> Ragged:
        """TensorFlow's RaggedTensorVariant: for each element its row_splits, outer to inner, then the values; a vector stacks them."""
        count = wire.check_shape(message, not self.tf_compat, 1)
        if message.content is None or len(message.shape) > 1 or count == 0 or count > message.content[1]:
            raise DecodeError("a variant that is not a ragged tensor in tensor_content")
        offset, size = message.content
        code, at, offsets = kernels.parse_string_lengths(data[offset : offset + size], count)
        if code:
            raise problem(code, offset + at, FORMAT)
        bounds = (offset + at + offsets).tolist()
        rows = [self._variant_parts(data, start, stop, copy) for start, stop in zip(bounds, bounds[1:], strict=False)]
        splits, values = _stack(rows) if message.shape else (rows[0][:-1], rows[0][-1])
        if not values.ndim:
            raise DecodeError("the values of a ragged variant are a scalar", offset=offset)
        validate.ragged(len(values), splits, [None] * len(splits), DecodeError)
        return trusted(Ragged, values, tuple(splits), (None,) * len(splits))

    def _variant_parts(self, data: memoryview, start: int, stop: int, copy: bool | None) -> list[Any]:
        name, parts = None, []
        for field in protobuf.fields(data, FORMAT, start, stop):
            if field.number == 1 and isinstance(field.value, tuple) and name is None:
                name = bytes(data[slice(*field.value)])
            elif field.number == 3 and isinstance(field.value, tuple):
                parts.append(self._part_at(data, *field.value, copy))
            else:
                raise DecodeError("a variant with a field that ragged tensors do not have", offset=field.offset)
        if name != b"RaggedTensorVariant" or not parts:
            raise DecodeError(f"a variant of type {name!r:.60}, not a ragged tensor", offset=start)
        if any(not isinstance(splits, np.ndarray) or splits.ndim != 1 for splits in parts[:-1]):
            raise DecodeError("the row_splits of a ragged variant are not vectors", offset=start)
        return parts


def _stack(rows: list[list[Any]]) -> tuple[list[Array], Any]:
    """Elements of a batched variant as one ragged tensor with one more dimension."""
    depth = len(rows[0])
    values = [row[-1] for row in rows]
    alike = {(part.shape[1:], part.ndim, getattr(part, "dtype", "string")) for part in values}
    if (
        any(len(row) != depth for row in rows)
        or len(alike) > 1
        or not values[0].ndim
        or any(len(splits) == 0 for row in rows for splits in row[:-1])
    ):
        raise DecodeError("the elements of a ragged variant differ in depth, dtype or shape")
    outer = np.cumsum([0] + [len(row[0]) - (1 if depth > 1 else 0) for row in rows])
    splits = [outer.astype(rows[0][0].dtype if depth > 1 else np.int64)]
    for level in range(depth - 1):
        base, pieces = 0, [np.zeros(1, rows[0][level].dtype)]
        for row in rows:
            pieces.append(row[level][1:] + row[level].dtype.type(base))
            base += int(row[level][-1])
        splits.append(np.concatenate(pieces))
    if isinstance(values[0], Strings):
        lengths = np.concatenate([np.diff(part.offsets) for part in values])
        data = np.concatenate([part.data for part in values])
        return splits, trusted(Strings, data, np.concatenate([[0], np.cumsum(lengths)]), (len(lengths),), values[0].text)
    return splits, np.concatenate(values)


def _holds(row: dtypes.DType) -> bool:
    return row.tf is not None


def _owned(arrays: tuple[Array, Array], copy: bool | None) -> tuple[Array, Array]:
    return arrays if copy else (memory.read_only(arrays[0]), memory.read_only(arrays[1]))


def _part(part: Array | Strings) -> list[Any]:
    """One TensorProto, as buffers."""
    if isinstance(part, Strings):
        chunks = [kernels.string_vals(wire.string_header(part.shape), part.data, part.offsets)]
        wire.check_size(len(chunks[0]))
        return chunks
    if part.nbytes <= memory.INLINE:
        whole = kernels.encode_dense(part)
        if whole is not None:
            return [whole]
    part = frameworks.plain(part)
    head = wire.header(dtypes.of(part.dtype).tf or 0, part.shape, part.nbytes)
    return [head, memory.chunk(part)] if part.nbytes else [head]


def _element(chunks: list[Any]) -> list[Any]:
    """A TensorProto as one string of the container's vector."""
    return [_tag(sum(map(len, chunks))), *chunks]


@functools.lru_cache(4096)
def _tag(size: int) -> bytes:
    return b"\x42" + protobuf.varint(size)
