"""safetensors: `u64 header size | JSON header | data`, the format of the model hubs, and our default.

What we add stays inside the format, so the safetensors package reads every file, other kinds as their parts. The header is padded so that
the data starts at a multiple of 64, and tensors are laid out by descending item size, so that each is aligned and can be read in place.
What the format cannot say (order, kinds, nesting, Python values, dtypes that it lacks) is one JSON string,
`__metadata__["tensorwire"]`: `{"version": 1, "spec": ...}` with the spec of `lowering`. It is left out when a plain dict of arrays says
it all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes, lowering, memory, validate
from .._errors import DecodeError, EncodeError, LimitError, TruncatedError
from .._limits import DEFAULT, Limits
from ..tensors import Bundle
from ..wire import jsontext, kernels

FORMAT = "safetensors"
KEY = "tensorwire"
VERSION = 1
_ALIGN = 64


def _holds(row: dtypes.DType) -> bool:
    return row.safetensors is not None


class Entry(NamedTuple):
    """One tensor of the header."""

    row: dtypes.DType
    shape: tuple[int, ...]
    start: int
    stop: int


class Header(NamedTuple):
    """A header that has been checked whole: every tensor lies in the data, back to back."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    data: int
    """Where the data begins."""


@dataclass(frozen=True, slots=True)
class Safetensors:
    """Named tensors of every kind.

    >>> codec = Safetensors()
    >>> codec.decode(memoryview(b"".join(codec.encode({"a": np.int8([1, 2]), "n": 3}))))
    {'a': array([1, 2], dtype=int8), 'n': 3}
    """

    limits: Limits = DEFAULT

    def encode(self, value: Any) -> list[Any]:
        metadata = value.metadata if isinstance(value, Bundle) else {}
        if KEY in metadata:
            raise EncodeError(f"the metadata key {KEY!r} is taken", format=FORMAT)
        spec, parts = lowering.lower(value, holds=_holds)
        if metadata:
            del spec["metadata"]  # it stands in the format's own place
        names = lowering.names(spec, len(parts))
        order = sorted(range(len(parts)), key=lambda i: -parts[i].dtype.itemsize)  # type: ignore[union-attr]
        names, parts = [names[i] for i in order], [parts[i] for i in order]
        if not _says_it_all(spec, names):
            metadata[KEY] = jsontext.write({"version": VERSION, "spec": spec}).decode()
        text = jsontext.write(metadata) if metadata else b""
        head = kernels.named_header(names, parts, text) or _header(names, parts, metadata)  # type: ignore[arg-type]
        if len(head) - 8 > self.limits.safetensors_header:
            raise EncodeError(f"a header of {len(head)} bytes; readers stop at {self.limits.safetensors_header}", format=FORMAT)
        return [head, *(memory.chunk(part) for part in parts if part.nbytes)]  # type: ignore[arg-type]

    def decode(self, data: memoryview, copy: bool | None = None) -> Any:
        try:
            plain = kernels.read_named(data, bool(copy)) if copy is not False and self.limits is DEFAULT else None
            if plain is not None:
                return self._value(plain[1], _metadata(jsontext.parse(plain[0], FORMAT, 8)) if plain[0] else {})
            header = read_header(data, self.limits)
            if header.data + max((entry.stop for entry in header.entries.values()), default=0) != len(data):
                raise DecodeError("bytes behind the last tensor", offset=len(data))
            return self._value({name: self._read(data, header, name, copy) for name in header.entries}, header.metadata)
        except DecodeError as error:
            raise error.add(format=FORMAT, offset=8) from None  # what has no place of its own is in the header

    def _value(self, arrays: dict[str, Any], metadata: dict[str, str]) -> Any:
        """What the tensors make up together."""
        if KEY not in metadata:
            return arrays
        spec = _spec(metadata.pop(KEY))
        names = lowering.names(spec, len(arrays))
        if len(names) != len(arrays) or not arrays.keys() <= set(names):
            raise DecodeError("the names in the header are not those of the tensorwire spec")
        if isinstance(spec, dict) and "bundle" in spec and metadata:
            spec = spec | {"metadata": metadata}
        return lowering.lift(spec, [arrays[name] for name in names], self.limits)

    def _read(self, data: memoryview, header: Header, name: str, copy: bool | None) -> Any:
        entry = header.entries[name]
        try:
            array = memory.dense(data, header.data + entry.start, entry.row.numpy, entry.shape, copy)
            bad = dtypes.noncanonical(entry.row, array.reshape(-1).view(np.uint8)) if entry.row.name == "bool" else None
            if bad is not None:
                raise DecodeError("a bool is neither 0 nor 1", offset=header.data + entry.start + bad)
        except DecodeError as error:
            raise error.add(format=FORMAT, tensor=name) from None
        return array


def _header(names: list[str], parts: list[Any], metadata: dict[str, str]) -> bytes:
    """What the kernel leaves to us: names that JSON must escape."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, part in zip(names, parts, strict=True):
        if name == "__metadata__":
            raise EncodeError("the name '__metadata__' is taken by the format", format=FORMAT, tensor=name)
        header[name] = {"dtype": dtypes.of(part.dtype).safetensors, "shape": part.shape, "data_offsets": (at, at + part.nbytes)}
        at += part.nbytes
    text = jsontext.write(header)
    text += b" " * (-(8 + len(text)) % _ALIGN)
    return len(text).to_bytes(8, "little") + text


def _metadata(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise DecodeError("__metadata__ is not an object of strings", format=FORMAT, offset=8)
    return found


def _says_it_all(spec: Any, names: list[str]) -> bool:
    """Whether a plain dict of arrays, in the order of the header, is what the value was."""
    return (
        isinstance(spec, dict)
        and list(spec) == ["dict"]
        and list(spec["dict"]) == names
        and not any(spec["dict"].values())
        and None not in spec["dict"].values()
    )


def _spec(text: str) -> Any:
    found = jsontext.parse(text.encode(), FORMAT, 8)
    if not isinstance(found, dict) or found.get("version") != VERSION or found.keys() != {"version", "spec"}:
        version = found.get("version") if isinstance(found, dict) else None
        raise DecodeError(f"a tensorwire spec of version {version!r:.20}, which this release does not read")
    return found["spec"]


def read_header(data: memoryview, limits: Limits = DEFAULT) -> Header:
    """Reads and checks the header: names once, sizes that match, no holes, no overlaps."""
    if len(data) < 8:
        raise TruncatedError("shorter than the 8 bytes of the header size", format=FORMAT, offset=len(data))
    size = int.from_bytes(data[:8], "little")
    if size > limits.safetensors_header:
        raise LimitError(
            f"a header of {size} bytes; Limits(safetensors_header=...) allows {limits.safetensors_header}", format=FORMAT, offset=0
        )
    if size > len(data) - 8:
        raise TruncatedError(f"a header of {size} bytes in {len(data)}", format=FORMAT, offset=len(data))
    if size == 0 or data[8] != ord("{"):
        raise DecodeError("the header does not begin with '{'", format=FORMAT, offset=8)
    header = jsontext.parse(data[8 : 8 + size], FORMAT, 8)
    metadata = _metadata(header.pop("__metadata__", {}))
    if len(header) > limits.names:
        raise LimitError(f"{len(header)} tensors; Limits(names=...) allows {limits.names}", format=FORMAT, offset=8)
    entries = {name: _entry(name, fields) for name, fields in header.items()}
    _check_layout(entries, len(data) - 8 - size, 8 + size)
    return Header(entries, metadata, 8 + size)


def _entry(name: str, fields: Any) -> Entry:
    def bad(why: str) -> DecodeError:
        return DecodeError(why, format=FORMAT, tensor=name, offset=8)

    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise bad("an entry has dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    row = dtypes.BY_SAFETENSORS.get(dtype) if isinstance(dtype, str) else None
    if row is None:
        raise bad(f"unknown dtype {dtype!r:.40}")
    if not _integers(shape) or not _integers(offsets) or len(offsets) != 2:
        raise bad("shape and data_offsets are lists of integers, not negative")
    try:
        size = validate.elements(shape, DecodeError, row.numpy.itemsize) * row.numpy.itemsize
    except DecodeError as error:
        raise bad(error.message) from None
    if offsets[1] - offsets[0] != size:
        raise bad(f"{row.name} {shape} takes {size} bytes, not {offsets[1] - offsets[0]}")
    return Entry(row, tuple(shape), offsets[0], offsets[1])


def _integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(entries: dict[str, Entry], available: int, base: int) -> None:
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != at:
            raise DecodeError(
                f"a hole or an overlap: begins at {entry.start}, not at {at}",
                format=FORMAT,
                tensor=name,
                offset=base + min(at, entry.start),
            )
        at = entry.stop
    if at > available:
        raise TruncatedError(f"the tensors take {at} bytes, and there are {available}", format=FORMAT, offset=base + available)


__all__ = ["Entry", "Header", "Safetensors", "read_header"]
