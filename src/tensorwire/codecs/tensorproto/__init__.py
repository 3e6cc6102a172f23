"""The tensorproto format: one dense or string tensor, with the bytes of `tf.io.serialize_tensor`.

Any other value is a DT_STRING vector whose dimension is named "tensorwire/1": element 0 is the JSON
spec of `lowering`, and the other elements are the TensorProtos of its parts.
`tf.io.parse_tensor(..., tf.string)` reads it as strings.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import frameworks, lowering
from ..._errors import DecodeError, EncodeError, LimitError
from ..._limits import DEFAULT, Limits
from ...core import dtypes, memory, validate
from ...core.memory import Buffer
from ...core.tensors import KINDS, Array, Ragged, Strings, describe, trusted
from ...wire import json as jsontext
from ...wire import kernels, protobuf
from ...wire import tensorproto as wire
from ...wire.status import problem
from ..protocol import Metadata, WholeFormat, refuse_metadata
from . import variant

FORMAT = wire.FORMAT
CONTAINER = b"tensorwire/1"


@dataclass(frozen=True, slots=True)
class TensorProto(WholeFormat):
    """The codec of TensorFlow's TensorProto.

    >>> TensorProto().encode(np.int8([1, 2]))
    [b'\\x08\\x06\\x12\\x04\\x12\\x02\\x08\\x02"\\x02\\x01\\x02']
    """

    tf_compat: bool = False
    """Read like TensorFlow: the last value is repeated for missing ones, surplus values are cut
    off, and fields of another dtype are ignored.
    """
    text: bool = False
    """Read a string tensor as text. The format does not distinguish text from bytes, and the
    default is bytes.
    """
    variant: bool = False
    """Write a ragged tensor as TensorFlow's RaggedTensorVariant. Only ragged tensors can be written
    then. A variant is recognised when it is read.
    """
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        refuse_metadata(metadata, FORMAT)
        tensor = (
            value
            if type(value) is np.ndarray
            else None
            if frameworks.is_python(value)
            else frameworks.leaf(value)
        )
        if type(tensor) is np.ndarray and tensor.dtype.kind in "OSUT":
            tensor = frameworks.leaf(tensor)
        if self.variant:
            if not isinstance(tensor, Ragged):
                what = describe(tensor) if isinstance(tensor, KINDS) else type(value).__name__
                raise EncodeError(
                    f"variant=True writes one ragged tensor, not {what}",
                    format=FORMAT,
                    hint="leave variant= out",
                )
            return variant.write(tensor)
        if isinstance(tensor, Strings) or (
            isinstance(tensor, np.ndarray) and holds(dtypes.of(tensor.dtype))
        ):
            return write(tensor)
        spec, parts = lowering.lower(value if tensor is None else tensor, holds=holds, strings=True)
        text = jsontext.write(spec)
        dim = (
            b"\x08"
            + protobuf.varint(len(parts) + 1)
            + b"\x12"
            + protobuf.varint(len(CONTAINER))
            + CONTAINER
        )
        shape = b"\x12" + protobuf.varint(len(dim)) + dim
        chunks: list[Buffer] = [
            b"\x08\x07\x12" + protobuf.varint(len(shape)) + shape,
            *_element([text]),
        ]
        for part in parts:
            chunks += _element(write(part))
        wire.check_size(sum(map(len, chunks)))
        return chunks

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        try:
            array = None if copy is False else kernels.decode_dense(data, bool(copy))
            return self.of_call(len(data))._decode(data, copy) if array is None else array
        except DecodeError as error:
            # An error without an offset of its own gets that of the message.
            raise error.add(format=FORMAT, offset=0) from None

    def of_call(self, size: int) -> TensorProto:
        """Returns a codec with a budget for one call with `size` bytes of input."""
        return replace(self, limits=self.limits.call(size))

    def _decode(self, data: memoryview, copy: bool | None) -> Any:
        message = self.scan(data)
        if message.dtype == dtypes.STRING and message.name == CONTAINER and len(message.shape) == 1:
            return self._container(data, copy)
        return self._tensor(data, message, copy)

    def scan(self, data: memoryview) -> wire.Message:
        """Scans the fields of a message.

        The scan of a string tensor stops at its first string if dtype and shape come before it, as
        all known writers do.
        """
        message = wire.scan(data, not self.tf_compat)
        if message.strings_at is not None and (message.dtype != dtypes.STRING or not message.shape):
            return wire.scan(data, not self.tf_compat, stop_at_strings=False)
        return message

    def _tensor(self, data: memoryview, message: wire.Message, copy: bool | None) -> Any:
        strict = not self.tf_compat
        if message.dtype == dtypes.STRING:
            return self._strings(data, message, copy)
        if message.dtype == dtypes.VARIANT:
            return variant.read(
                data, message, strict, copy, lambda start, stop: self.part(data, start, stop, copy)
            )
        row = dtypes.BY_TF.get(message.dtype)
        if row is None:
            raise DecodeError(f"unsupported dtype {message.dtype}")
        return wire.numbers(data, message, row, strict, self.limits, copy)

    def _strings(self, data: memoryview, message: wire.Message, copy: bool | None) -> Strings:
        if copy is False:
            raise DecodeError(
                "copy=False, but strings are always copied into one buffer", hint="leave copy= out"
            )
        shape, values, offsets = wire.strings(data, message, not self.tf_compat, self.limits)
        if self.text:
            validate.utf8(values, offsets, DecodeError)
        return trusted(Strings, *_owned((values, offsets), copy), shape, self.text)

    def part(self, data: memoryview, start: int, stop: int, copy: bool | None) -> Array | Strings:
        """Returns the tensor of a message within `data`, which must be dense or strings.

        The offsets of errors are those in `data`.
        """
        inner = data[start:stop]
        array = None if copy is False else kernels.decode_dense(inner, bool(copy))
        if array is not None:
            return array
        try:
            message = self.scan(inner)
            if message.dtype == dtypes.VARIANT:
                raise DecodeError("a variant is not allowed within another value")
            tensor: Array | Strings = self._tensor(inner, message, copy)
        except DecodeError as error:
            raise error.add(offset=0).add(base=start) from None
        return tensor

    def _container(self, data: memoryview, copy: bool | None) -> Any:
        message = wire.scan(data, True, stop_at_strings=False)
        count = message.counts[8]
        if count > self.limits.names + 1:
            raise LimitError(f"{count} parts; Limits(names=...) allows {self.limits.names}")
        if (
            message.shape != (count,)
            or count == 0
            or message.content is not None
            or any(message.counts[:8])
            or any(message.counts[9:])
        ):
            raise DecodeError(
                f"expected {message.shape} strings and no other values in a container, found"
                f" {count} strings"
            )
        code, offset, _, starts, sizes = kernels.find_string_vals(data, 0, False, count)
        if code:
            raise problem(code, offset, FORMAT)
        spans = [
            (start, start + size)
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
        spec = jsontext.parse(data[slice(*spans[0])], FORMAT, spans[0][0])
        parts = [self.part(data, start, stop, copy) for start, stop in spans[1:]]
        try:
            return lowering.lift(spec, parts, self.limits)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=spans[0][0]) from None


def holds(row: dtypes.DType) -> bool:
    """Whether TensorFlow has this dtype."""
    return row.tf is not None


def _owned(arrays: tuple[Array, Array], copy: bool | None) -> tuple[Array, Array]:
    return arrays if copy else (memory.read_only(arrays[0]), memory.read_only(arrays[1]))


def write(part: Array | Strings, typed: bool = False) -> list[Buffer]:
    """Encodes a tensor as a TensorProto.

    `typed` puts the values into the field of their type, such as float_val, instead of
    tensor_content.
    """
    # Strings have no other field than string_val.
    if typed or isinstance(part, Strings):
        chunks = variant.write_typed(part if isinstance(part, Strings) else frameworks.plain(part))
        wire.check_size(sum(map(len, chunks)))
        return chunks
    if part.nbytes <= memory.INLINE:
        whole = kernels.encode_dense(part)
        if whole is not None:
            return [whole]
    part = frameworks.plain(part)
    head = wire.header(dtypes.of(part.dtype).tf or 0, part.shape, part.nbytes)
    return [head, memory.chunk(part)] if part.nbytes else [head]


def _element(chunks: list[Buffer]) -> list[Buffer]:
    """Encodes a TensorProto as one string of a container."""
    return [_tag(sum(map(len, chunks))), *chunks]


@functools.lru_cache(4096)
def _tag(size: int) -> bytes:
    return b"\x42" + protobuf.varint(size)
