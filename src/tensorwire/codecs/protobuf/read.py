"""The reader of TensorData messages: gives the spec and the parts of `lowering`.

A message with a field that its kind does not have is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import lowering
from ..._errors import DecodeError, LimitError, TruncatedError
from ..._limits import Limits
from ...core import dtypes, memory, validate
from ...core.tensors import Strings, trusted
from ...storage.files import Source
from ...wire import json as jsontext
from ...wire import kernels
from ...wire.status import problem
from ..array_part import StoredPart
from ..container import BasePart, MemoryPart, Part, Rows, UnreadablePart
from ..protocol import Stored
from .message import FORMAT, MAGIC, Scanner, TensorMessage

_USES = {
    "dense": {"dtype", "shape", "data"},
    "strings": {"dtype", "shape", "strings"},
    "sparse": {"shape", "parts"},
    "ragged": {"shape", "parts"},
    "list": {"shape", "parts"},
    "tuple": {"shape", "parts"},
    "dict": {"shape", "parts"},
    "bundle": {"shape", "parts"},
    "value": {"spec", "parts"},
}
"""The fields of each kind. Any message may also have a key, a name, a device and metadata."""
_CONTAINERS = {"list", "tuple", "dict", "bundle"}


def read(source: Source, copy: bool | None, limits: Limits) -> Stored:
    """Reads the outermost message of a source."""
    walk = _Walk(source, copy, limits)
    top = walk.scan(0, source.size)
    if top.texts.get("magic") != MAGIC:
        raise DecodeError(
            f"expected the magic {MAGIC!r}, found {top.texts.get('magic', '')!r:.40}",
            offset=0,
        )
    key = top.texts.get("key")
    node = walk.node(top, key, 0)
    if top.int_keys:
        raise DecodeError(
            "the outermost message has an int_key, which only a part of a dict may have", offset=0
        )
    if key is not None:
        node = {"bundle": {key: node}} | (
            {"tensor_metadata": {key: top.placed}} if top.placed else {}
        )
    if isinstance(node, dict) and "bundle" in node and top.metadata:
        node = {**node, "metadata": top.metadata}
    if top.placed and top.kind not in _CONTAINERS:
        walk.tensor_metadata["tensor" if key is None else key] = top.placed
    return Stored(node, walk.parts, top.metadata, walk.tensor_metadata)


class _Walk:
    """Walks over messages, and collects their parts and metadata."""

    def __init__(self, source: Source, copy: bool | None, limits: Limits) -> None:
        self._source, self._copy, self._limits = source, copy, limits
        self._scanner = Scanner(source, limits)
        self.scan = self._scanner.scan
        self.parts: list[Part] = []
        self.tensor_metadata: dict[str, dict[str, str]] = {}
        """The metadata of tensors by their path."""

    def node(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        """Returns the node of a message, and appends its arrays to `parts`."""
        if depth > self._limits.json_depth + 2:
            raise LimitError(
                f"the value is nested more than {self._limits.json_depth} levels deep",
                offset=message.start,
            )
        uses = _USES.get(message.kind)
        if uses is None:
            raise DecodeError(
                f"unknown kind {message.kind!r:.40} (known: {', '.join(_USES)})",
                offset=message.start,
            )
        for extra in message.value_fields() - uses:
            raise DecodeError(
                f"unexpected field '{extra}' in a message of kind {message.kind}",
                offset=message.start,
            )
        if (
            depth
            and path is not None
            and message.kind not in _CONTAINERS
            and (texts := message.metadata | message.placed)
        ):
            self.tensor_metadata.setdefault(path, texts)
        return _KINDS[message.kind](self, message, path, depth)

    def dense(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        dtype = message.texts.get("dtype", "")
        start, stop = message.spans.get("data", (message.stop, message.stop))
        row = dtypes.BY_NAME.get(dtype)
        if row is None or row.reading_only:
            why, name = f"unknown dtype {dtype!r:.40}", path or "tensor"
            if not dtype:
                raise DecodeError(why, offset=message.start)
            shape = tuple(message.shape)
            validate.elements(shape, DecodeError)
            refusal = DecodeError(why, format=FORMAT, tensor=name, offset=message.start)
            self.parts.append(UnreadablePart(dtype, shape, stop - start, refusal))
            return {}
        size = (
            validate.elements(message.shape, DecodeError, row.numpy.itemsize) * row.numpy.itemsize
        )
        if stop - start != size:
            error = TruncatedError if stop - start < size else DecodeError
            raise error(
                f"expected {size} bytes for {row.name} {message.shape}, found {stop - start}",
                offset=start,
            )
        self.parts.append(
            StoredPart(
                self._source,
                start,
                row,
                tuple(message.shape),
                self._copy,
                format=FORMAT,
                name=path or "tensor",
            )
        )
        return {}

    def strings(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        dtype = message.texts.get("dtype") or "bytes"
        if dtype not in ("bytes", "text"):
            raise DecodeError(
                f"the dtype of strings must be bytes or text, not {dtype!r:.40}",
                offset=message.start,
            )
        count, start, stop = message.strings
        size = validate.elements(message.shape, DecodeError)
        if size != count:
            error = TruncatedError if count < size else DecodeError
            raise error(
                f"expected {size} strings for the shape {message.shape}, found {count}",
                offset=message.start,
            )
        if 8 * count > stop - start and 8 * count > self._limits.tensor:
            raise LimitError(
                f"{count} strings; Limits(tensor=...) allows {self._limits.tensor} bytes of"
                " offsets",
                offset=start,
            )
        self.parts.append(
            _StringsPart(
                self._source, path or "tensor", tuple(message.shape), message.strings, self._copy
            )
        )
        return {"text": True} if dtype == "text" else {}

    def sparse(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        parts = self._named(message, ["indices", "values"])
        self._numbers(parts["indices"])
        values = self.node(parts["values"], None, depth + 1)
        shape = np.array(message.shape, np.int64)
        self.parts.append(MemoryPart(shape if self._copy else memory.read_only(shape)))
        return {"sparse": values}

    def ragged(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        count = len(message.places) // 2 - 1
        if count < 1:
            raise DecodeError(
                "a ragged tensor must have values and at least one row_splits",
                offset=message.start,
            )
        names = [f"row_splits/{i}" for i in range(count)]
        parts = self._named(message, ["values", *names])
        first = len(self.parts)
        node = {"ragged": self.node(parts["values"], None, depth + 1), "splits": count}
        splits = len(self.parts)
        for name in names:
            self._numbers(parts[name])
        if not message.shape:
            return node
        rows, lengths, rest = (
            message.shape[0],
            message.shape[1 : count + 1],
            tuple(message.shape[count + 1 :]),
        )
        fits = self.parts[splits].shape == (rows + 1,) and rest == (
            self.parts[first].shape[1:] if first < splits else ()
        )
        if not fits or len(lengths) < count or min(lengths) < -1:
            raise DecodeError(
                f"the shape {message.shape} does not match the parts of the ragged tensor",
                offset=message.start,
            )
        return node | (
            {"uniform": [None if length < 0 else length for length in lengths]}
            if max(lengths) >= 0
            else {}
        )

    def sequence(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        nodes = [node for _, node in self._children(message, path, depth)]
        return {message.kind: nodes if any(node != {} for node in nodes) else len(nodes)}

    def mapping(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        nodes: dict[str | int, Any] = {}
        tensor_metadata: dict[str, dict[str, str]] = {}
        for part, node in self._children(message, path, depth):
            key = part.key
            if key is None or key in nodes:
                why = "has no key" if key is None else f"has the duplicate key {key!r:.60}"
                raise DecodeError(f"a part of a {message.kind} {why}", offset=part.start)
            if part.int_keys and (message.kind == "bundle" or "key" in part.texts):
                raise DecodeError(
                    f"unexpected int_key in a part of a {message.kind}", offset=part.start
                )
            nodes[key] = node
            if part_texts := part.metadata | part.placed:
                tensor_metadata[str(key)] = part_texts
        if message.kind == "dict":
            text = all(isinstance(key, str) for key in nodes)
            return {"dict": nodes if text else [[key, node] for key, node in nodes.items()]}
        texts = {"metadata": message.metadata, "tensor_metadata": tensor_metadata}
        return {"bundle": nodes} | {
            name: part_texts for name, part_texts in texts.items() if part_texts
        }

    def value(self, message: TensorMessage, path: str | None, depth: int) -> Any:
        start, stop = message.spans.get("spec", (message.stop, message.stop))
        node = jsontext.parse(self._scanner.view[start:stop], FORMAT, start)
        names = lowering.names(node, len(message.places) // 2)
        parts = [self.scan(*span) for span in message.parts]
        if [part.texts.get("key") for part in parts] != names:
            raise DecodeError("the parts of a value do not match its spec", offset=start)
        for part in parts:
            if part.kind not in ("dense", "strings"):
                raise DecodeError(
                    f"a part of a value must be dense or strings, not {part.kind!r:.40}",
                    offset=part.start,
                )
            self.node(part, None, depth + 1)
        return node

    def _children(
        self, message: TensorMessage, path: str | None, depth: int
    ) -> Iterator[tuple[TensorMessage, Any]]:
        """Yields the parts of a message and their nodes, in order."""
        # The shape of a container is its number of parts, and may be missing. Only an empty
        # container must have it: otherwise it would look like a truncated one.
        count = len(message.places) // 2
        if message.shape != [count] and (message.shape or not count):
            error = TruncatedError if message.shape > [count] or not message.shape else DecodeError
            raise error(
                f"a {message.kind} of shape {message.shape} has {count} parts",
                offset=message.start,
            )
        for i, span in enumerate(message.parts):
            part = self.scan(*span)
            step = str(i if part.key is None else part.key)
            yield part, self.node(part, step if path is None else f"{path}/{step}", depth + 1)

    def _named(self, message: TensorMessage, wanted: list[str]) -> dict[str, TensorMessage]:
        """Returns the parts of a tensor by their keys. Each must appear exactly once."""
        parts = {
            part.texts.get("key", ""): part for part in (self.scan(*span) for span in message.parts)
        }
        if parts.keys() != set(wanted) or len(wanted) != len(message.places) // 2:
            raise DecodeError(
                f"expected the parts {', '.join(wanted):.80} of a {message.kind} tensor, found"
                f" {', '.join(parts):.80}",
                offset=message.start,
            )
        return parts

    def _numbers(self, message: TensorMessage) -> None:
        """Reads a part that must be dense."""
        if message.kind != "dense":
            raise DecodeError(
                f"{message.texts['key']} must be dense, not {message.kind!r:.40}",
                offset=message.start,
            )
        self.node(message, None, 0)


_KINDS: dict[str, Callable[[_Walk, TensorMessage, str | None, int], Any]] = {
    "dense": _Walk.dense,
    "strings": _Walk.strings,
    "sparse": _Walk.sparse,
    "ragged": _Walk.ragged,
    "list": _Walk.sequence,
    "tuple": _Walk.sequence,
    "dict": _Walk.mapping,
    "bundle": _Walk.mapping,
    "value": _Walk.value,
}


class _StringsPart(BasePart):
    """The strings of one message, read on demand."""

    __slots__ = ("_copy", "_run", "_source", "dtype", "name", "nbytes", "shape")

    def __init__(
        self, source: Source, name: str, shape: tuple[int, ...], run: list[int], copy: bool | None
    ) -> None:
        self.name, self.dtype, self.shape, self.nbytes = name, "bytes", shape, run[2] - run[1]
        self._source, self._run, self._copy = source, run, copy

    def read(self, rows: Rows = None) -> Any:
        count, start, _ = self._run
        if self._copy is False:
            raise DecodeError(
                "copy=False, but strings are always copied into one buffer",
                tensor=self.name,
                format=FORMAT,
                offset=start,
                hint="leave copy= out",
            )
        view = self._source.read_at(start, self.nbytes)
        code, offset, _, used, data, offsets = kernels.parse_string_vals(
            view, 0, True, count, len(view)
        )
        # The scan has checked the strings, so this fails only if the file has changed since then.
        if code:
            raise problem(code, start + offset, FORMAT)
        if not self._copy:
            data, offsets = memory.read_only(data), memory.read_only(offsets)
        strings = trusted(Strings, data[:used], offsets, self.shape, False)
        return strings if rows is None else strings[rows[0] : rows[1]]
