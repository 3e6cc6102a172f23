"""The protobuf format: a TensorData message of tensor_data.proto, for programs in other languages.

The file tensor_data.proto ships with the package.

1. A dense tensor is one flat message. Sparse and ragged tensors, nested values and bundles have
   their components as `parts`.
2. Values that the message cannot express (Python values, tied weights, quantized tensors) have the
   spec of `lowering` as JSON.
3. Fields are written in the order of their numbers, and defaults are left out. A protobuf runtime
   that reads a message and writes it again gives the same bytes.
4. Data that can be used in place begin at a multiple of 64 bytes, after a field of padding. The
   size of a message is known before its offset, so a field of filler after the data keeps the sum
   of padding and filler constant.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ... import lowering
from ..._errors import EncodeError
from ..._limits import DEFAULT, Budget, Limits
from ...core import dtypes, memory
from ...core.memory import Buffer
from ...core.tensors import Array, Bundle, Strings
from ...lowering import Node
from ...storage.files import Source
from ...wire import json as jsontext
from ...wire import kernels, protobuf
from ...wire.status import MAX_MESSAGE
from ..protocol import Metadata, Stored, StoredFormat
from .message import FORMAT, MAGIC, RANK
from .read import read

_ALIGN = 64
_TAGS = {number: protobuf.varint(number << 3 | 2) for number in range(1, 17)}


@dataclass(frozen=True, slots=True)
class Protobuf(StoredFormat):
    """The codec of TensorData messages.

    >>> import numpy as np
    >>> Protobuf().encode(np.int8([1, 2]))
    [b'\\n\\x0ctensorwire/1\\x12\\x05dense\\x1a\\x04int8"\\x01\\x02z\\x02\\x01\\x02']
    """

    name: ClassVar[str] = FORMAT
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        spec, parts = lowering.lower(value, strings=True)
        texts = (spec.pop("metadata", {}) if isinstance(value, Bundle) else {}) | (metadata or {})
        whole = _Drafts(parts).whole(spec, texts)
        if whole.size > MAX_MESSAGE:
            raise EncodeError(
                f"{whole.size} bytes, but a protobuf message is limited to 2 GiB",
                format=FORMAT,
                hint="safetensors has no such limit",
            )
        return list(_joined(_chunks(whole, 0)))

    def stored(self, source: Source, copy: bool | None, budget: Budget) -> Stored:
        """Walks over the fields of the message, and reads no data."""
        return read(source, copy, budget)


class _Labels(NamedTuple):
    """The fields of a message that describe its value: key and metadata."""

    key: str | int | None = None
    own: Mapping[str, str] = {}
    """The metadata of the tensor. `name` and `device` have fields of their own."""
    texts: Mapping[str, str] = {}
    """The metadata of the whole value."""
    top: bool = False
    """Whether this is the outermost message, which begins with the magic."""


class _Draft(NamedTuple):
    """A message whose size is known, but not yet its offset."""

    head: bytes
    """The fields before the parts."""
    parts: list[_Draft]
    tail: bytes
    """The fields between the parts and the data."""
    data: Array | None
    shape: tuple[int, ...]
    size: int


class _Drafts:
    """Turns a spec and its parts into drafts of messages."""

    def __init__(self, parts: list[Array | Strings]) -> None:
        self._parts = iter(parts)

    def whole(self, spec: Node, texts: Mapping[str, str]) -> _Draft:
        """Returns the outermost message."""
        labels = _Labels(texts=texts, top=True)
        if isinstance(spec, dict) and len(spec.get("bundle", ())) == 1:
            ((key, node),) = spec["bundle"].items()
            own = spec.get("tensor_metadata", {}).get(key, {})
            # A bundle of one tensor is the message of that tensor with a key. The message has
            # fields for its name and device, but not for other metadata of the tensor.
            if own.keys() <= {"name", "device"}:
                spec, labels = node, _Labels(key, own, texts, True)
        return self.draft(spec, labels) or _draft("value", labels, spec=spec)

    def draft(self, node: Node, labels: _Labels) -> _Draft | None:
        """Returns the message of a node; None if it has no tensors, and so is stored as JSON."""
        if not isinstance(node, dict):
            return None
        kind = next(iter(node), None)
        if kind is None or kind == "text":
            return self.tensor(labels, kind == "text")
        if kind == "sparse":
            parts = [self.tensor(_Labels("indices")), self.inner(node["sparse"], "values")]
            shape: Any = next(self._parts)
            return _draft("sparse", labels, shape=tuple(shape.tolist()), parts=parts)
        if kind == "ragged":
            values = self.inner(node["ragged"], "values")
            splits = [self.tensor(_Labels(f"row_splits/{i}")) for i in range(node["splits"])]
            lengths = [
                -1 if length is None else length
                for length in node.get("uniform", [None] * len(splits))
            ]
            return _draft(
                "ragged",
                labels,
                shape=(splits[0].shape[0] - 1, *lengths, *values.shape[1:]),
                parts=[values, *splits],
            )
        if kind in lowering.CONTAINERS:
            return self.container(node, kind, labels)
        names = lowering.names(node, sys.maxsize)
        if not names:
            return None
        parts = [self.tensor(_Labels(name)) for name in names]
        return _draft("value", labels, shape=parts[0].shape, spec=node, parts=parts)

    def inner(self, node: Node, key: str) -> _Draft:
        draft = self.draft(node, _Labels(key))
        # The values of a sparse or ragged tensor are always a tensor.
        assert draft is not None
        return draft

    def container(self, node: Node, kind: str, labels: _Labels) -> _Draft | None:
        own = node.get("tensor_metadata", {})
        named = kind in ("dict", "bundle")
        items = [(key if named else None, item) for key, item in lowering.members(node)]
        parts = [self.draft(item, _Labels(key, own.get(key, {}))) for key, item in items]
        if kind == "bundle":
            labels = labels._replace(texts={**node.get("metadata", {}), **labels.texts})
        elif all(part is None for part in parts):
            return None
        made = [
            part or _draft("value", _Labels(key), spec=item)
            for (key, item), part in zip(items, parts, strict=True)
        ]
        return _draft(kind, labels, shape=(len(made),), parts=made)

    def tensor(self, labels: _Labels, text: bool = False) -> _Draft:
        part = next(self._parts)
        if isinstance(part, Strings):
            return _draft("strings", labels, "text" if text else "bytes", part.shape, strings=part)
        return _draft("dense", labels, dtypes.of(part.dtype).name, part.shape, data=part)


def _draft(
    kind: str,
    labels: _Labels,
    dtype: str | None = None,
    shape: tuple[int, ...] = (),
    *,
    strings: Strings | None = None,
    spec: Node = ...,
    parts: list[_Draft] | None = None,
    data: Array | None = None,
) -> _Draft:
    """Encodes all fields of a message but its parts and data, and computes its size."""
    if len(shape) > RANK:
        raise EncodeError(
            f"the tensor has {len(shape)} dimensions; protobuf allows {RANK}", format=FORMAT
        )
    head = _text(1, MAGIC) if labels.top else b""
    head += _text(2, kind)
    head += b"" if dtype is None else _text(3, dtype)
    if shape and kind != "value":
        head += _block(4, b"".join(protobuf.varint(dim & 0xFFFFFFFFFFFFFFFF) for dim in shape))
    tail = b""
    if isinstance(labels.key, int):
        tail = protobuf.varint(12 << 3) + protobuf.varint(labels.key & 0xFFFFFFFFFFFFFFFF)
    key = labels.key if isinstance(labels.key, str) else None
    named = {5: key, 6: labels.own.get("name"), 7: labels.own.get("device")}
    head += b"".join(_text(number, text) for number, text in named.items() if text is not None)
    if strings is not None:
        head = kernels.string_vals(head, strings.data, strings.offsets)
    rest = b"" if spec is ... else _block(9, jsontext.write(spec))
    texts = {key: text for key, text in labels.own.items() if key not in ("name", "device")} | dict(
        labels.texts
    )
    rest += b"".join(_block(10, _text(1, key) + _text(2, text)) for key, text in texts.items())
    size = len(head) + len(rest) + len(tail)
    size += sum(1 + len(protobuf.varint(part.size)) + part.size for part in parts or ())
    if data is not None and data.nbytes:
        size += (
            1
            + len(protobuf.varint(data.nbytes))
            + data.nbytes
            + (5 + _ALIGN + 1 if data.nbytes > memory.TINY else 0)
        )
    return _Draft(head + rest if rest else head, parts or [], tail, data, shape, size)


def _text(number: int, text: str) -> bytes:
    try:
        return _block(number, text.encode())
    except UnicodeEncodeError:
        raise EncodeError(
            f"{text!r:.60} cannot be encoded as UTF-8 (lone surrogate)",
            format=FORMAT,
        ) from None


def _block(number: int, data: bytes) -> bytes:
    return _TAGS[number] + protobuf.varint(len(data)) + data


def _chunks(draft: _Draft, offset: int) -> Iterator[Buffer]:
    """Yields the buffers of a message that begins at `offset`.

    Data that can be used in place begin at a multiple of 64.
    """
    yield draft.head
    offset += len(draft.head)
    for part in draft.parts:
        tag = _TAGS[11] + protobuf.varint(part.size)
        yield tag
        yield from _chunks(part, offset + len(tag))
        offset += len(tag) + part.size
    if draft.tail:
        yield draft.tail
        offset += len(draft.tail)
    if draft.data is None or not draft.data.nbytes:
        return
    tag = _TAGS[15] + protobuf.varint(draft.data.nbytes)
    if draft.data.nbytes <= memory.TINY:
        yield tag + draft.data.tobytes()
        return
    # Padding has 1 to 64 bytes and filler the rest of 65, so neither field is ever empty: a
    # protobuf runtime that writes the message again would leave an empty field out.
    room = -(offset + 2 + len(tag)) % _ALIGN or _ALIGN
    yield _block(14, bytes(room)) + tag
    yield memory.chunk(draft.data)
    yield _block(16, bytes(_ALIGN + 1 - room))


def _joined(chunks: Iterator[Buffer]) -> Iterator[Buffer]:
    """Joins consecutive small buffers."""
    small: list[bytes] = []
    for chunk in chunks:
        if type(chunk) is bytes and len(chunk) <= memory.INLINE:
            small.append(chunk)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield chunk
    if small:
        yield b"".join(small)
