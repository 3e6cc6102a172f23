"""example: one tf.train.Example holds any value, each part a feature.

Vectors of float32 and int64 and of strings are the three kinds of lists that Examples have. Every
other part is a bytes list of one TensorProto, exactly what `tf.io.serialize_tensor` gives, so
`tf.io.parse_single_example` and `tf.io.parse_tensor` read it. What features cannot say is JSON in
one more of them, named "tensorwire": `{"version": 1, "spec": NODE, "tensors": [...]}`, with the
spec of `lowering` and the names of the features that hold a TensorProto. It is left out when a dict
of lists, in the order of the message, says it all; so an Example of anyone else is such a dict. By
protobuf's rules a name that stands twice counts as the last one, and a feature without a list is
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import lowering
from .._errors import DecodeError, EncodeError, LimitError
from .._limits import DEFAULT, Budget, Limits
from ..core import dtypes, memory
from ..core.memory import Buffer
from ..core.tensors import Array, Strings, trusted
from ..wire import example, kernels, protobuf
from ..wire import json as jsontext
from ..wire.example import BYTES, FLOAT, FORMAT, INT64, PLACES
from ..wire.status import MAX_MESSAGE, REPEATED, problem
from . import tensorproto
from .array_part import is_plain_dict
from .protocol import Metadata, WholeFormat, refuse_metadata

KEY = "tensorwire"
VERSION = 1


def _holds(row: dtypes.DType) -> bool:
    return row.tf is not None


@dataclass(frozen=True, slots=True)
class Example(WholeFormat):
    """One tf.train.Example.

    >>> codec = Example()
    >>> codec.encode({"a": np.array([5, 3])})
    [b'\\n\\r\\n\\x0b\\n\\x01a\\x12\\x06\\x1a\\x04\\n\\x02\\x05\\x03']
    """

    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        refuse_metadata(metadata, FORMAT)
        spec, parts = lowering.lower(value, holds=_holds, strings=True)
        names = lowering.names(spec, len(parts))
        if KEY in names:
            raise EncodeError(f"the name {KEY!r} is taken", format=FORMAT, tensor=KEY)
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
            # what has no place of its own is the message's
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
                raise DecodeError("the features are not those of the tensorwire spec")
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
    """The TensorProto of a feature."""
    if values.shape != (1, 2):
        raise DecodeError(
            "the spec says that a feature holds a TensorProto, and it is no bytes list of one",
            tensor=name,
        )
    start, size = values[0].tolist()
    try:
        return codec.part(data, start, start + size, copy)
    except DecodeError as error:
        error.format = FORMAT  # its offset is one of the whole
        raise error.add(tensor=name) from None


def _features(names: list[str], parts: list[Any]) -> Iterator[Any]:
    """The entries of the map. Lists that follow each other are written in one go; data that would
    be large is not copied.
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
    """The entry of a feature whose list is one run of bytes: packed floats, or one string."""
    size, head = sum(map(len, chunks)), b""
    for tag in (b"\x0a", bytes([kind << 3 | 2]), b"\x12"):
        head = tag + protobuf.varint(size + len(head)) + head
    head = b"\x0a" + protobuf.varint(len(name)) + name + head
    return [b"\x0a" + protobuf.varint(size + len(head)) + head, *chunks]


def _too_large(size: int) -> EncodeError:
    return EncodeError(
        f"{size} bytes or more do not fit an Example, which ends at 2 GiB; safetensors has no such"
        " limit",
        format=FORMAT,
    )


def _read(data: memoryview, limits: Limits) -> dict[str, Array]:
    """The features in the order of the message: numbers, or for strings [n, 2] of where each begins
    and its size.
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
            "this is a tf.train.SequenceExample; tw.io.parse_single_sequence_example reads it"
        )
    columns = []
    for name, _, _, kinds, _, _, count, *_ in rows:
        kind = next((kind for kind in (BYTES, FLOAT, INT64) if kinds[kind]), 0)
        if not kind:
            continue
        if 8 * count > len(data) and 8 * count > limits.tensor:
            raise LimitError(
                f"{len(data)} bytes hold {count} values; Limits(tensor=...) allows {limits.tensor}"
                " bytes"
            )
        columns.append(example.Column(name, PLACES if kind == BYTES else kind, count))
    filled = example.ColumnBuffers(columns, 1)
    filled.fill(data, starts, sizes)
    values = {
        column.name: found.values.reshape(-1, 2) if column.kind == PLACES else found.values
        for column, found in zip(columns, filled.take(), strict=True)
    }
    return {text: values[name] for name, text in order.items() if name in values}


def _order(data: memoryview, limits: Limits) -> dict[bytes, str]:
    """The names, each where it stands last."""
    names: dict[bytes, str] = {}
    for number, (begin, start, stop) in enumerate(_blocks(data, 0, len(data), 1)):
        if number:  # to protobuf two Examples joined are one
            raise problem(REPEATED, begin, FORMAT)
        for offset, entry_start, entry_stop in _blocks(data, start, stop, 1):
            name = b""
            for _, first, last in _blocks(data, entry_start, entry_stop, 1):
                name = bytes(data[first:last])
            names.pop(name, None)
            try:
                names[name] = name.decode()
            except UnicodeDecodeError:
                raise DecodeError(f"the name {name!r:.60} is not UTF-8", offset=offset) from None
            if len(names) > limits.names:
                raise LimitError(
                    f"more than {limits.names} features; Limits(names=...) allows more",
                    offset=offset,
                )
    return names


def _blocks(data: memoryview, start: int, stop: int, number: int) -> Iterator[tuple[int, int, int]]:
    """(offset, start, stop) of the fields of a number that have a length."""
    for field in protobuf.fields(data, FORMAT, start, stop):
        if field.number == number and field.wire == 2 and isinstance(field.value, tuple):
            yield field.offset, *field.value


def _list(data: memoryview, values: Array, copy: bool | None) -> Array | Strings:
    """A feature as the vector that it is."""
    if copy is False and values.size:
        raise DecodeError(
            "copy=False, but the values of a feature are always converted; leave copy out"
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
    """(spec, names of the features that hold TensorProtos, where it stands)"""
    if values.shape != (1, 2):
        raise DecodeError(f"the feature {KEY!r} is no bytes list of one text")
    start, size = values[0].tolist()
    document = jsontext.parse(data[start : start + size], FORMAT, start)
    if (
        not isinstance(document, dict)
        or document.get("version") != VERSION
        or not {"spec"} <= document.keys() <= {"version", "spec", "tensors"}
    ):
        raise DecodeError(
            f"the feature {KEY!r} is of another version than {VERSION}, or not ours", offset=start
        )
    tensors = document.get("tensors", [])
    if not isinstance(tensors, list) or not all(isinstance(name, str) for name in tensors):
        raise DecodeError(f"tensors in the feature {KEY!r} are a list of names", offset=start)
    return document["spec"], set(tensors), start
