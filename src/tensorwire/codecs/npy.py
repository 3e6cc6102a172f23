"""npy: NumPy's file of one array. NumPy opens every file that we write, and we every file of
NumPy's that holds numbers or strings.

A dense tensor is its numbers; dtypes that NumPy lacks are unsigned integers of the same width
(bfloat16 `<u2`, float8 and int4 `|u1`). Any other value is a `|u1` array of the bytes that our
safetensors has for it. What NumPy cannot say stands behind the data, in a trailer that it does not
read (wire/npy.py has the bytes). It is left out when it would say nothing: then the file is what
`np.save` writes.

    {"version": 1, "dtype": "bfloat16", "shape": [2, 3], "metadata": {"device": "gpu:0"}, "crc32c": {"header": 1234, "data": 5678}}
    {"version": 1, "dtype": "float32", "shape": [2], "name": "kernel", "about": {"device": "gpu:0"}}    a Bundle of one dense tensor
    {"version": 1, "kind": "ragged", "crc32c": {"header": 1234}}    safetensors has metadata and checksums of its own
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from .. import lowering
from .._errors import ChecksumError, DecodeError, LimitError
from .._limits import DEFAULT, Budget, Limits
from ..core import dtypes, memory
from ..core.memory import Buffer
from ..lowering import Node
from ..storage.files import Source
from ..wire import kernels
from ..wire import npy as wire
from .array_part import SourceSlice
from .container import BasePart, Part, Rows
from .npy_arrays import DESCRS, NpyArray, descr_of, find
from .protocol import Metadata, Stored, StoredFormat, all_metadata
from .safetensors import Safetensors

FORMAT = wire.FORMAT
VERSION = 1
_BYTES = "|u1"


@dataclass(frozen=True, slots=True)
class Npy(StoredFormat):
    """One array as NumPy stores it, and any other value inside one.

    >>> import io, numpy as np
    >>> np.load(io.BytesIO(b"".join(Npy().encode(np.float32([1, 2])))))
    array([1., 2.], dtype=float32)
    """

    name: ClassVar[str] = FORMAT
    checksum: bool = False
    """Write a CRC32C of header and data. Checksums that are there are always checked."""
    limits: Limits = DEFAULT

    def encode(self, value: Any, metadata: Metadata | None = None) -> list[Buffer]:
        spec, parts = lowering.lower(value)
        named = _named(spec)
        if spec != {} and named is None:
            return self._other(value, spec, metadata)
        array: Any = parts[0]
        row = dtypes.of(array.dtype)
        texts = all_metadata(value, metadata)
        if row.name in DESCRS and not texts and not self.checksum and not named:
            return [wire.write(DESCRS[row.name], array.shape), memory.chunk(array)]
        head = wire.write(descr_of(row), array.shape, marked=True)
        data = memory.chunk(array)
        fields: dict[str, Any] = {"version": VERSION, "dtype": row.name, "shape": array.shape} | (
            named or {}
        )
        if texts:
            fields["metadata"] = texts
        if self.checksum:
            fields["crc32c"] = {"header": kernels.crc32c(head), "data": kernels.crc32c(data)}
        return [head, data, wire.write_trailer(fields)]

    def _other(self, value: Any, spec: Node, metadata: Metadata | None) -> list[Buffer]:
        """A value that is not one dense tensor."""
        inner = Safetensors(self.checksum, limits=self.limits).encode(value, metadata)
        head = wire.write(_BYTES, (sum(map(len, inner)),), marked=True)
        fields: dict[str, Any] = {"version": VERSION, "kind": _kind(spec)}
        if self.checksum:
            fields["crc32c"] = {"header": kernels.crc32c(head)}
        return [head, *inner, wire.write_trailer(fields)]

    def stored(self, source: Source, copy: bool | None, budget: Budget) -> Stored:
        array = find(source, 0, source.size, budget)
        if array.refusal is not None:
            raise DecodeError(array.refusal, offset=10)
        if not array.header.marked:
            if array.stop != source.size:
                raise DecodeError(
                    f"{source.size - array.stop} bytes behind the data: one npy file holds one"
                    " array",
                    offset=array.stop,
                )
            return Stored({}, [array.part(source, copy, budget, FORMAT)], {})
        trailer = _trailer(source, array.stop, budget)
        sums = trailer.get("crc32c")
        if sums is not None and kernels.crc32c(array.text) != sums["header"]:
            raise ChecksumError("the header does not match its checksum", offset=0)
        if "kind" in trailer:
            return self._inside(source, array, trailer["kind"], copy, budget)
        row = dtypes.BY_NAME.get(trailer["dtype"]) if isinstance(trailer["dtype"], str) else None
        if row is None or (descr_of(row), False, trailer["shape"]) != (
            array.header.descr,
            array.header.fortran,
            list(array.header.shape),
        ):
            why = (
                f"the trailer speaks of {trailer['dtype']!r:.40} {trailer['shape']!r:.80}, and the header"
                " of something else"
            )
            raise DecodeError(why, offset=array.stop)
        part = array.part(
            source,
            copy,
            budget,
            FORMAT,
            matches=None if sums is None else partial(_matches, crc=sums["data"]),
        )
        texts, node = trailer.get("metadata", {}), {} if row.name in DESCRS else {"dtype": row.name}
        return Stored(
            node if "name" not in trailer else _bundle(trailer, node, texts), [part], texts
        )

    def _inside(
        self, source: Source, array: NpyArray, kind: object, copy: bool | None, budget: Budget
    ) -> Stored:
        """The safetensors bytes that the data are."""
        if array.header.descr != _BYTES or len(array.header.shape) != 1:
            raise DecodeError("a value inside an npy file is a vector of bytes", offset=0)
        try:
            inner = Safetensors(limits=budget).open(
                SourceSlice(source, array.start, array.stop - array.start), copy
            )
        except DecodeError as error:
            raise _moved(error, array.start) from None
        if _kind(inner.tree) != kind:
            raise DecodeError(
                f"the trailer speaks of the kind {kind!r:.40}, and there is another",
                offset=array.stop,
            )
        parts = [_Inner(part, array.start) for part in inner.parts]
        return Stored(inner.tree, parts, inner.metadata)


def _named(spec: Node) -> dict[str, Any] | None:
    """What the trailer says of a Bundle of one dense tensor, which NumPy is to see as the array
    that it is.
    """
    inner = spec.get("bundle") if isinstance(spec, dict) else None
    if inner is None or list(inner.values()) != [{}]:
        return None
    name = next(iter(inner))
    texts = spec.get("tensor_metadata", {}).get(name, {})
    return {"name": name} | ({"about": texts} if texts else {})


def _bundle(trailer: dict[str, Any], node: Node, texts: Metadata) -> Node:
    tensor_texts = (
        {"tensor_metadata": {trailer["name"]: trailer["about"]}} if "about" in trailer else {}
    )
    return (
        {"bundle": {trailer["name"]: node}} | ({"metadata": texts} if texts else {}) | tensor_texts
    )


def _matches(view: Buffer, crc: int) -> bool:
    return kernels.crc32c(view) == crc


def _kind(spec: Node) -> str:
    """In a word what a value is, by its spec."""
    return str(next(iter(spec), "dense")) if isinstance(spec, dict) else "python"


def _trailer(source: Source, offset: int, limits: Limits) -> dict[str, Any]:
    """What stands behind the data, its form checked."""
    size = source.size - offset
    if size > limits.safetensors_header:
        raise LimitError(
            f"a trailer of {size} bytes; Limits(safetensors_header=...) allows"
            f" {limits.safetensors_header}",
            offset=offset,
        )
    trailer = wire.read_trailer(source.read_at(offset, size), offset)
    if not isinstance(trailer, dict) or trailer.get("version") != VERSION:
        version = trailer.get("version") if isinstance(trailer, dict) else None
        raise DecodeError(
            f"a trailer of version {version!r:.20}, which this release does not read", offset=offset
        )
    inside = "kind" in trailer
    needed, free = (
        ({"version", "kind"}, {"crc32c"})
        if inside
        else ({"version", "dtype", "shape"}, {"metadata", "crc32c", "name", "about"})
    )
    ok = needed <= trailer.keys() <= needed | free
    metadata, sums = trailer.get("metadata", {}), trailer.get("crc32c", {})
    ok = (
        ok
        and isinstance(metadata, dict)
        and all(isinstance(text, str) for text in metadata.values())
    )
    texts = trailer.get("about", {})
    ok = (
        ok
        and isinstance(trailer.get("name", ""), str)
        and isinstance(texts, dict)
        and all(isinstance(text, str) for text in texts.values())
    )
    ok = ok and ("about" not in trailer or "name" in trailer)
    ok = (
        ok
        and isinstance(sums, dict)
        and (
            "crc32c" not in trailer or sums.keys() == ({"header"} if inside else {"header", "data"})
        )
    )
    if not ok:
        raise DecodeError(
            "a trailer says dtype and shape, or kind, perhaps metadata (of text) and checksums, and"
            " nothing else",
            offset=offset,
        )
    return trailer


def _moved(error: DecodeError, base: int) -> DecodeError:
    """An error of the bytes inside, told of the whole file."""
    error.format = FORMAT
    return error.add(base=base, offset=base)


class _Inner(BasePart):
    """A part of the safetensors inside, with errors and offsets of the whole file."""

    def __init__(self, part: Part, base: int) -> None:
        self.dtype, self.shape, self.nbytes = part.dtype, part.shape, part.nbytes
        self.checksum, self.packed, self._part, self._base = part.checksum, part.packed, part, base

    @property
    def unreadable(self) -> bool:
        return self._part.unreadable

    def read(self, rows: Rows = None) -> Any:
        try:
            return self._part.read(rows)
        except DecodeError as error:
            raise _moved(error, self._base) from None
