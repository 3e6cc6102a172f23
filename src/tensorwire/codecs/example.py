"""The example format: one tf.train.Example holds any value, with one feature per part.

1. Vectors of float32, int64 and strings are the three kinds of lists that Examples have.
2. Every other part is a bytes list with one TensorProto, exactly as `tf.io.serialize_tensor` writes
   it, so `tf.io.parse_single_example` and `tf.io.parse_tensor` read it.
3. One more feature, "tensorwire", holds JSON: `{"version": 1, "spec": NODE, "tensors": [...]}`,
   with the spec of `lowering` and the names of the features that hold a TensorProto. It is left out
   if the value is a dict of lists in the order of the message. Examples of other programs are read
   as such a dict.
4. As in protobuf, the last feature of a name counts, and a feature without a list is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import lowering
from .._errors import DecodeError, EncodeError, LimitError
from .._limits import DEFAULT, Budget, Limits
from ..core import memory
from ..core.memory import Buffer
from ..core.tensors import Array, Strings, trusted
from ..wire import example, kernels, protobuf
from ..wire import json as jsontext
from ..wire.example import BYTES, FLOAT, FORMAT, INT64, PLACES
from ..wire.status import MAX_MESSAGE, REPEATED, problem
from . import tensorproto
from .array_part import is_plain_dict
from .protocol import Metadata, WholeFormat, check_document, refuse_metadata

KEY = "tensorwire"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Example(WholeFormat):
    """The codec of one tf.train.Example.

    >>> codec = Example()
    >>> codec.encode({"a": np.array([5, 3])})
    [b'\\n\\r\\n\\x0b\\n\\x01a\\x12\\x06\\x1a\\x04\\n\\x02\\x05\\x03']
    """

    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        refuse_metadata(metadata, FORMAT)
        spec, parts = lowering.lower(value, holds=tensorproto.holds, strings=True)
        names = lowering.names(spec, len(parts))
        if KEY in names:
            raise EncodeError(f"the name {KEY!r} is reserved", format=FORMAT, tensor=KEY)
        tensors = [
            name for name, part in zip(names, parts, strict=True) if not example.kind_of(part)
        ]
        if tensors or not is_plain_dict(spec, names):
            text = jsontext.write(
                {"version": VERSION, "spec": spec} | ({"tensors": tensors} if tensors else {})
            )
            names, parts = [KEY, *names], [Strings.of([text]), *parts]
        chunks = list(_features(names, parts))
        size = sum(map(len, chunks))
        if size > MAX_MESSAGE:
            raise _too_large(size)
        head = b"\x0a" + protobuf.varint(size)
        return [head + b"".join(chunks)] if size <= memory.INLINE else [head, *chunks]

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        try:
            return self._decode(data, copy, self.limits.call(len(data)))
        except DecodeError as error:
            # An error without an offset of its own gets that of the message.
            raise error.add(format=FORMAT, offset=0) from None

    def _decode(self, data: memoryview, copy: bool | None, budget: Budget) -> Any:
        features, codec = _read(data, budget), tensorproto.TensorProto(limits=budget)
        if KEY not in features:
            return {name: _list(data, values, copy) for name, values in features.items()}
        spec, tensors, offset = _read_spec(data, features.pop(KEY))
        try:
            names = lowering.names(spec, len(features))
            if (
                len(names) != len(features)
                or not features.keys() <= set(names)
                or not tensors <= set(names)
            ):
                raise DecodeError("the features do not match the tensorwire spec")
            parts = [
                (
                    _tensor(codec, data, name, features[name], copy)
                    if name in tensors
                    else _list(data, features[name], copy)
                )
                for name in names
            ]
            return lowering.lift(spec, parts, budget)
        except DecodeError as error:
            raise error.add(offset=offset) from None


def _tensor(
    codec: tensorproto.TensorProto, data: memoryview, name: str, values: Array, copy: bool | None
) -> Array | Strings:
    """Returns the tensor of a feature that holds a TensorProto."""
    if values.shape != (1, 2):
        raise DecodeError(
            "the spec declares a TensorProto, but the feature is not a bytes list of length 1",
            tensor=name,
        )
    start, size = values[0].tolist()
    try:
        return codec.part(data, start, start + size, copy)
    except DecodeError as error:
        # `part` reports offsets in the whole message, so the format is that of the message too.
        error.format = FORMAT
        raise error.add(tensor=name) from None


def _features(names: list[str], parts: list[Any]) -> Iterator[Any]:
    """Yields the entries of the map of features.

    Consecutive lists are encoded in one native call. Large floats and TensorProtos are not copied.
    """
    lists: dict[str, Array | Strings] = {}
    for name, part in zip(names, parts, strict=True):
        kind = example.kind_of(part)
        if kind and (kind != FLOAT or part.nbytes <= memory.INLINE):
            lists[name] = part
            continue
        if lists:
            yield _lists(lists)
            lists = {}
        yield from _run_entry(
            name.encode(), kind or BYTES, [memory.chunk(part)] if kind else tensorproto.write(part)
        )
    if lists:
        yield _lists(lists)


def _lists(lists: dict[str, Array | Strings]) -> memoryview:
    encoded = example.entries(lists)
    if encoded is None:
        raise _too_large(MAX_MESSAGE + 1)
    return encoded


def _run_entry(name: bytes, kind: int, chunks: list[Any]) -> list[Any]:
    """Returns the map entry of a feature whose list is one run of bytes: floats, or one string."""
    # The header grows from the inside out: the list, the Feature, the value of the map entry. Each
    # tag is followed by the length of all that comes after it.
    size, head = sum(map(len, chunks)), b""
    for tag in (b"\x0a", bytes([kind << 3 | 2]), b"\x12"):
        head = tag + protobuf.varint(size + len(head)) + head
    head = b"\x0a" + protobuf.varint(len(name)) + name + head
    return [b"\x0a" + protobuf.varint(size + len(head)) + head, *chunks]


def _too_large(size: int) -> EncodeError:
    return EncodeError(
        f"at least {size} bytes, but an Example is limited to 2 GiB",
        format=FORMAT,
        hint="safetensors has no such limit",
    )


def _read(data: memoryview, limits: Limits) -> dict[str, Array]:
    """Returns the features in the order of the message.

    Numbers are vectors. Strings are an array [n, 2] with the offset and the size of each string.
    """
    order = _order(data, limits)
    starts, sizes = np.zeros(1, np.int64), np.array([len(data)])
    survey = kernels.ExampleSurvey(len(order))
    code, offset, _ = survey.add(data, starts, sizes, True)
    if code:
        raise problem(code, offset, FORMAT)
    _, sequences, rows = survey.result()
    if sequences:
        raise DecodeError(
            "expected a tf.train.Example, found a tf.train.SequenceExample",
            hint="tw.io.parse_single_sequence_example reads it",
        )
    columns = []
    for name, _, _, kinds, _, _, count, *_ in rows:
        kind = next((kind for kind in (BYTES, FLOAT, INT64) if kinds[kind]), 0)
        if not kind:
            continue
        if 8 * count > len(data) and 8 * count > limits.tensor:
            raise LimitError(
                f"{count} values in {len(data)} bytes; Limits(tensor=...) allows {limits.tensor}"
                " bytes"
            )
        columns.append(example.Column(name, PLACES if kind == BYTES else kind, count))
    filled = example.ColumnBuffers(columns, 1)
    filled.fill(data, starts, sizes)
    values = {
        column.name: result.values.reshape(-1, 2) if column.kind == PLACES else result.values
        for column, result in zip(columns, filled.take(), strict=True)
    }
    return {text: values[name] for name, text in order.items() if name in values}


def _order(data: memoryview, limits: Limits) -> dict[bytes, str]:
    """Returns the names of the features in order. A repeated name counts where it appears last."""
    names: dict[bytes, str] = {}
    for number, (begin, start, stop) in enumerate(_blocks(data, 0, len(data), 1)):
        # Protobuf would merge the second message into the first. Two Examples that were joined by
        # mistake must not be read as one.
        if number:
            raise problem(REPEATED, begin, FORMAT)
        for offset, entry_start, entry_stop in _blocks(data, start, stop, 1):
            name = b""
            for _, first, last in _blocks(data, entry_start, entry_stop, 1):
                name = bytes(data[first:last])
            names.pop(name, None)
            try:
                names[name] = name.decode()
            except UnicodeDecodeError:
                raise DecodeError(
                    f"the feature name {name!r:.60} is not UTF-8", offset=offset
                ) from None
            if len(names) > limits.names:
                raise LimitError(
                    f"too many features; Limits(names=...) allows {limits.names}", offset=offset
                )
    return names


def _blocks(data: memoryview, start: int, stop: int, number: int) -> Iterator[tuple[int, int, int]]:
    """Yields (offset, start, stop) of each length-delimited field with this number."""
    for field in protobuf.fields(data, FORMAT, start, stop):
        if field.number == number and field.wire == 2 and isinstance(field.value, tuple):
            yield field.offset, *field.value


def _list(data: memoryview, values: Array, copy: bool | None) -> Array | Strings:
    """Returns a feature as a vector of numbers or strings."""
    if copy is False and values.size:
        raise DecodeError(
            "copy=False, but the values of a feature are always converted", hint="leave copy= out"
        )
    if values.ndim == 1:
        return values if copy else memory.read_only(values)
    places, offsets = values.tolist(), np.zeros(len(values) + 1, np.int64)
    np.cumsum(values[:, 1], out=offsets[1:])
    joined = np.frombuffer(
        bytearray().join([data[start : start + size] for start, size in places]), np.uint8
    )
    if not copy:
        joined, offsets = memory.read_only(joined), memory.read_only(offsets)
    return trusted(Strings, joined, offsets, (len(places),), False)


def _read_spec(data: memoryview, values: Array) -> tuple[Any, set[str], int]:
    """Returns the spec, the names of the features that hold TensorProtos, and the spec's offset."""
    if values.shape != (1, 2):
        raise DecodeError(f"the feature {KEY!r} is not a bytes list of length 1")
    start, size = values[0].tolist()
    document = jsontext.parse(data[start : start + size], FORMAT, start)
    document = check_document(document, "tensorwire spec", VERSION, {"spec"}, {"tensors"}, start)
    tensors = document.get("tensors", [])
    if not isinstance(tensors, list) or not all(isinstance(name, str) for name in tensors):
        raise DecodeError(f"'tensors' in the feature {KEY!r} is not a list of names", offset=start)
    return document["spec"], set(tensors), start
