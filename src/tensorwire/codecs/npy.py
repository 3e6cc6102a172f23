"""The npy format: NumPy's file of one array.

NumPy opens every file that tensorwire writes, and tensorwire every npy file of numbers or strings.

1. A dense tensor is stored as its numbers. A dtype that NumPy lacks is stored as unsigned integers
   of the same width (bfloat16 as `<u2`, float8 and int4 as `|u1`).
2. Any other value is a `|u1` array with the safetensors bytes of the value.
3. A JSON trailer after the data holds what NumPy cannot express; NumPy does not read it
   (wire/npy.py has its bytes). Without such content the file equals that of `np.save`.

The trailer of a dense tensor with metadata, of a Bundle of one dense tensor, and of another value
(whose metadata and checksums are in the safetensors bytes):

    {"version": 1, "dtype": "bfloat16", "shape": [2, 3], "metadata": {"device": "gpu:0"},
     "crc32c": {"header": 1234, "data": 5678}}
    {"version": 1, "dtype": "float32", "shape": [2], "name": "kernel", "about": {"device": "gpu:0"}}
    {"version": 1, "kind": "ragged", "crc32c": {"header": 1234}}
"""

from __future__ import annotations

from dataclasses import dataclass
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
from .array_part import SourceSlice, crc32c_matcher
from .container import BasePart, Part, Rows
from .npy_arrays import DESCRS, NpyArray, descr_of, find
from .protocol import Metadata, Stored, StoredFormat, all_metadata, check_document, is_texts
from .safetensors import Safetensors

FORMAT = wire.FORMAT
VERSION = 1
_BYTES = "|u1"


@dataclass(frozen=True, slots=True)
class Npy(StoredFormat):
    """The codec of npy files: one array, or any other value as an array of bytes.

    >>> import io, numpy as np
    >>> np.load(io.BytesIO(b"".join(Npy().encode(np.float32([1, 2])))))
    array([1., 2.], dtype=float32)
    """

    name: ClassVar[str] = FORMAT
    checksum: bool = False
    """Write a CRC32C of header and data. Existing checksums are always verified."""
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
        """Encodes a value that is not one dense tensor as an array of safetensors bytes."""
        inner = Safetensors(self.checksum, limits=self.limits).encode(value, metadata)
        head = wire.write(_BYTES, (sum(map(len, inner)),), marked=True)
        fields: dict[str, Any] = {"version": VERSION, "kind": _kind(spec)}
        if self.checksum:
            fields["crc32c"] = {"header": kernels.crc32c(head)}
        return [head, *inner, wire.write_trailer(fields)]

    def stored(self, source: Source, copy: bool | None, budget: Budget) -> Stored:
        array = find(source, 0, source.size, budget)
        if array.refusal is not None:
            raise array.error(offset=10)
        # The header of a file with a trailer is marked by its padding. A file without the mark must
        # end with the data.
        if not array.header.marked:
            if array.stop != source.size:
                raise DecodeError(
                    f"{source.size - array.stop} unexpected bytes after the array",
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
            raise DecodeError(
                f"the trailer ({trailer['dtype']!r:.40} {trailer['shape']!r:.80}) does not match"
                f" the header ({array.header.descr!r:.40} {list(array.header.shape)!r:.80})",
                offset=array.stop,
            )
        part = array.part(
            source,
            copy,
            budget,
            FORMAT,
            matches=None if sums is None else crc32c_matcher(sums["data"]),
        )
        texts, node = trailer.get("metadata", {}), {} if row.name in DESCRS else {"dtype": row.name}
        return Stored(
            node if "name" not in trailer else _bundle(trailer, node, texts), [part], texts
        )

    def _inside(
        self, source: Source, array: NpyArray, kind: object, copy: bool | None, budget: Budget
    ) -> Stored:
        """Reads the safetensors bytes that the array holds."""
        if array.header.descr != _BYTES or len(array.header.shape) != 1:
            raise DecodeError("expected a vector of bytes with a value in it", offset=0)
        try:
            inner = Safetensors(limits=budget).open(
                SourceSlice(source, array.start, array.stop - array.start), copy
            )
        except DecodeError as error:
            raise _moved(error, array.start) from None
        if _kind(inner.tree) != kind:
            raise DecodeError(
                f"the trailer declares the kind {kind!r:.40}, but the value is {_kind(inner.tree)}",
                offset=array.stop,
            )
        parts = [_Inner(part, array.start) for part in inner.parts]
        return Stored(inner.tree, parts, inner.metadata)


def _named(spec: Node) -> dict[str, Any] | None:
    """Returns the trailer's fields for a Bundle of one dense tensor, else None.

    Such a Bundle is stored as that tensor, so that NumPy reads it as a plain array.
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


def _kind(spec: Node) -> str:
    """A word for the kind of a value, by its spec."""
    return str(next(iter(spec), "dense")) if isinstance(spec, dict) else "python"


def _trailer(source: Source, offset: int, limits: Limits) -> dict[str, Any]:
    """Reads the trailer after the data, and checks its fields."""
    size = source.size - offset
    if size > limits.safetensors_header:
        raise LimitError(
            f"the trailer has {size} bytes; Limits(safetensors_header=...) allows"
            f" {limits.safetensors_header}",
            offset=offset,
        )
    document = wire.read_trailer(source.read_at(offset, size), offset)
    if isinstance(document, dict) and "kind" in document:
        needed, free, checksums = {"kind"}, {"crc32c"}, {"header"}
    else:
        needed, free = {"dtype", "shape"}, {"metadata", "crc32c", "name", "about"}
        checksums = {"header", "data"}
    trailer = check_document(document, "trailer", VERSION, needed, free, offset)
    sums = trailer.get("crc32c", dict.fromkeys(checksums))
    if not isinstance(sums, dict) or sums.keys() != checksums:
        raise DecodeError(
            f"invalid trailer: expected checksums of {', '.join(sorted(checksums))}", offset=offset
        )
    named = isinstance(trailer.get("name", ""), str) and (
        "about" not in trailer or "name" in trailer
    )
    if (
        not named
        or not is_texts(trailer.get("metadata", {}))
        or not is_texts(trailer.get("about", {}))
    ):
        raise DecodeError("invalid trailer: name and metadata must be strings", offset=offset)
    return trailer


def _moved(error: DecodeError, base: int) -> DecodeError:
    """Moves the offset of an error in the inner bytes to the whole file."""
    error.format = FORMAT
    return error.add(base=base, offset=base)


class _Inner(BasePart):
    """A part of the inner safetensors bytes, with errors and offsets of the whole file."""

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
