"""The header of a safetensors file: validation of untrusted headers, writing, and checksums.

A sealed file (`checksum=True`) has a CRC32C of every tensor and of the header itself in
`__metadata__["tensorwire"]`. A single flipped bit in that key would hide the checksums. The padding
of a sealed header therefore ends in a mark: one flipped bit cannot remove both key and mark.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._errors import ChecksumError, DecodeError, EncodeError, LimitError, TruncatedError
from ..._limits import DEFAULT, Limits
from ...core import dtypes, validate
from ...lowering import Node
from ...wire import json as jsontext
from ...wire import kernels
from ..protocol import check_document, is_texts

FORMAT = "safetensors"
KEY = "tensorwire"
VERSION = 1
ALIGN = 64
SEAL = b"\t\t \t \t\t\n"


class HeaderEntry(NamedTuple):
    """The entry of one tensor in the header."""

    code: str
    """The name of the dtype in the format."""
    row: dtypes.DType | None
    """None for an unsupported dtype."""
    shape: tuple[int, ...]
    start: int
    stop: int
    crc: int | None = None


class Header(NamedTuple):
    """A valid header: its tensors cover the data without gaps or overlaps."""

    entries: dict[str, HeaderEntry]
    metadata: dict[str, str]
    """The metadata without the entry of tensorwire."""
    spec: Node
    """{"dict": {name: {}, ...}} for files of other programs."""
    data: int
    """The offset of the data."""


def read(head: bytes | memoryview, total: int, limits: Limits = DEFAULT) -> Header:
    """Reads a header, and checks names (no duplicates), sizes, layout (no gaps, no overlaps) and
    checksums. `head` is the file up to its data.
    """
    text = head[8:]
    if not text or text[0] != ord("{"):
        raise DecodeError("the header must begin with '{'", format=FORMAT, offset=8)
    header = jsontext.parse(text, FORMAT, 8)
    metadata = metadata_of(header.pop("__metadata__", {}))
    if len(header) > limits.names:
        raise LimitError(
            f"{len(header)} tensors; Limits(names=...) allows {limits.names}",
            format=FORMAT,
            offset=8,
        )
    entries = {name: _entry(name, fields) for name, fields in header.items()}
    _check_layout(entries, total - len(head), len(head))
    ours = metadata.pop(KEY, None)
    spec: Node = {"dict": {name: {} for name in entries}}
    sums = None
    if ours is not None:
        spec, sums = ours_of(ours)
    if sums is None and bytes(text[-len(SEAL) :]) == SEAL:
        raise ChecksumError(
            "the header is marked as sealed, but has no checksums", format=FORMAT, offset=8
        )
    if sums is not None:
        entries = _unseal(entries, metadata, spec, sums)
    return Header(entries, metadata, spec, len(head))


def size(head: bytes | memoryview, total: int, limits: Limits = DEFAULT) -> int:
    """Returns the size of the header text. `total` is the size of the file."""
    if len(head) < 8:
        raise TruncatedError(
            f"expected 8 bytes of header size, found {len(head)}", format=FORMAT, offset=len(head)
        )
    count = int.from_bytes(head[:8], "little")
    if count > limits.safetensors_header:
        allowed = limits.safetensors_header
        raise LimitError(
            f"the header has {count} bytes; Limits(safetensors_header=...) allows {allowed}",
            format=FORMAT,
            offset=0,
        )
    if count > total - 8:
        raise TruncatedError(
            f"the header has {count} bytes, but the file has {total}", format=FORMAT, offset=total
        )
    return count


def metadata_of(metadata: object) -> dict[str, str]:
    """Checks that `__metadata__` is an object of strings, and returns it."""
    if not is_texts(metadata):
        raise DecodeError("__metadata__ must be an object of strings", format=FORMAT, offset=8)
    return metadata


def ours_of(text: str) -> tuple[Any, Any]:
    """Returns the spec, and the checksums or None, of the metadata entry of tensorwire."""
    document = jsontext.parse(text.encode(), FORMAT, 8)
    ours = check_document(document, "tensorwire spec", VERSION, {"spec"}, {"crc32c"}, 8)
    return ours["spec"], ours.get("crc32c")


def write(
    names: list[str],
    parts: list[Any],
    metadata: dict[str, str],
    ours: dict[str, Any] | None,
    sums: list[int] | None,
) -> bytes:
    """Returns the header of tensors in the order of the file.

    `ours` is the content of the tensorwire entry. `sums` has a checksum for each part, and seals
    the header.
    """
    texts = dict(metadata)
    if sums is not None:
        offset, entries = 0, {}
        for name, part, crc in zip(names, parts, sums, strict=True):
            row = dtypes.of(part.dtype)
            entries[name] = HeaderEntry(
                str(row.safetensors), row, part.shape, offset, offset + part.nbytes, crc
            )
            offset += part.nbytes
        ours = ours or {"version": VERSION, "spec": {"dict": {name: {} for name in names}}}
        crc32c = {
            "header": _canonical(entries, metadata, ours["spec"]),
            "tensors": dict(zip(names, sums, strict=True)),
        }
        ours = {**ours, "crc32c": crc32c}
    if ours is not None:
        texts[KEY] = jsontext.write(ours).decode()
    text = jsontext.write(texts) if texts else b""
    head = kernels.named_header(names, parts, text) or _escaped(names, parts, texts)
    return head if sums is None else _sealed(head)


def _sealed(head: bytes) -> bytes:
    """Returns a header whose padding ends in the mark."""
    text = head[8:].rstrip(b" ") + SEAL
    pad = -(8 + len(text)) % ALIGN
    text = text[: -len(SEAL)] + b" " * pad + SEAL
    return len(text).to_bytes(8, "little") + text


def _escaped(names: list[str], parts: list[Any], texts: dict[str, str]) -> bytes:
    """Returns a header with names that JSON must escape, which the native writer does not do."""
    header: dict[str, Any] = {"__metadata__": texts} if texts else {}
    offset = 0
    for name, part in zip(names, parts, strict=True):
        if name == "__metadata__":
            raise EncodeError(
                "the name '__metadata__' is reserved by the format", format=FORMAT, tensor=name
            )
        header[name] = {
            "dtype": dtypes.of(part.dtype).safetensors,
            "shape": part.shape,
            "data_offsets": (offset, offset + part.nbytes),
        }
        offset += part.nbytes
    text = jsontext.write(header)
    text += b" " * (-(8 + len(text)) % ALIGN)
    return len(text).to_bytes(8, "little") + text


def _canonical(entries: dict[str, HeaderEntry], metadata: dict[str, str], spec: Node) -> int:
    """Returns the CRC32C of the content of a header, independent of its JSON formatting."""
    tensors = {
        name: [entry.code, list(entry.shape), entry.start, entry.stop, entry.crc]
        for name, entry in sorted(entries.items())
    }
    return kernels.crc32c(jsontext.write([tensors, sorted(metadata.items()), spec]))


def _unseal(
    entries: dict[str, HeaderEntry], metadata: dict[str, str], spec: Node, sums: Any
) -> dict[str, HeaderEntry]:
    """Verifies the checksum of the header, and returns the entries with those of their tensors."""
    tensors = sums.get("tensors") if isinstance(sums, dict) else None
    if (
        not isinstance(tensors, dict)
        or tensors.keys() != entries.keys()
        or not all(type(crc) is int for crc in tensors.values())
    ):
        raise ChecksumError(
            "the checksums do not match the names of the tensors", format=FORMAT, offset=8
        )
    checked = {name: entry._replace(crc=tensors[name]) for name, entry in entries.items()}
    if _canonical(checked, metadata, spec) != sums.get("header"):
        raise ChecksumError("the header does not match its checksum", format=FORMAT, offset=8)
    return checked


def _entry(name: str, fields: Any) -> HeaderEntry:
    def bad(why: str) -> DecodeError:
        return DecodeError(why, format=FORMAT, tensor=name, offset=8)

    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise bad("invalid header entry: expected dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or not dtype:
        raise bad(f"the dtype must be a string, not {dtype!r:.40}")
    if not _integers(shape) or not _integers(offsets) or len(offsets) != 2:
        raise bad("shape and data_offsets must be lists of non-negative integers")
    row = dtypes.BY_SAFETENSORS.get(dtype)
    packed = dtypes.BY_PACKED.get(dtype)
    if offsets[0] > offsets[1]:
        raise bad(f"invalid data_offsets {offsets}: the end is before the start")
    try:
        bits = packed.bits if packed else 8 * row.numpy.itemsize if row else 0
        count = validate.elements(shape, DecodeError, -(-bits // 8) or 1) * bits
    except DecodeError as error:
        raise bad(error.message) from None
    if bits and 8 * (offsets[1] - offsets[0]) != count:
        size = offsets[1] - offsets[0]
        raise bad(f"expected {count / 8:g} bytes for {dtype} {shape}, found {size}")
    return HeaderEntry(dtype, row or packed, tuple(shape), offsets[0], offsets[1])


def _integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(entries: dict[str, HeaderEntry], available: int, base: int) -> None:
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != end:
            why = f"gap or overlap in the data: expected a start at {end}, found {entry.start}"
            raise DecodeError(
                why, format=FORMAT, tensor=name, offset=base + min(end, entry.start, available)
            )
        end = entry.stop
    if end > available:
        raise TruncatedError(
            f"the tensors need {end} bytes, but only {available} are available",
            format=FORMAT,
            offset=base + available,
        )
    if end < available:
        raise DecodeError(
            f"{available - end} unexpected bytes after the last tensor",
            format=FORMAT,
            offset=base + end,
        )
