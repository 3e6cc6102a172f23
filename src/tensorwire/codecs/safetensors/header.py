"""The header of a safetensors file: read from strangers and checked whole, written, and sealed with
checksums.

A sealed file (`checksum=True`) has a CRC32C of every tensor and of the header itself in
`__metadata__["tensorwire"]`. One flipped bit in that key could hide it, so the padding of a sealed
header also ends in a mark of its own; a flip can hit the one or the other, not both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..._errors import ChecksumError, DecodeError, EncodeError, LimitError, TruncatedError
from ..._limits import DEFAULT, Limits
from ...core import dtypes, validate
from ...lowering import Node
from ...wire import json as jsontext
from ...wire import kernels

FORMAT = "safetensors"
KEY = "tensorwire"
VERSION = 1
ALIGN = 64
SEAL = b"\t\t \t \t\t\n"


class HeaderEntry(NamedTuple):
    """One tensor of the header."""

    code: str
    """The dtype by its name in the format."""
    row: dtypes.DType | None
    """None for a dtype that is not known here."""
    shape: tuple[int, ...]
    start: int
    stop: int
    crc: int | None = None


class Header(NamedTuple):
    """A header that has been checked whole: every tensor lies in the data, back to back."""

    entries: dict[str, HeaderEntry]
    metadata: dict[str, str]
    """Without ours."""
    spec: Node
    """{"dict": {name: {}, ...}} for files that are not of tensorwire."""
    data: int
    """Where the data begins."""


def read(head: bytes | memoryview, total: int, limits: Limits = DEFAULT) -> Header:
    """Checks names (each once), sizes (that match), layout (no holes, no overlaps), and the seal.
    `head` is the file up to its data.
    """
    text = head[8:]
    if not text or text[0] != ord("{"):
        raise DecodeError("the header does not begin with '{'", format=FORMAT, offset=8)
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
    sealed = bytes(text[-len(SEAL) :]) == SEAL
    if ours is None:
        if sealed:
            raise ChecksumError(
                "the header is marked as sealed, and its checksums are gone",
                format=FORMAT,
                offset=8,
            )
        return Header(entries, metadata, {"dict": {name: {} for name in entries}}, len(head))
    spec, sums = ours_of(ours)
    if sums is None and sealed:
        raise ChecksumError(
            "the header is marked as sealed, and its checksums are gone", format=FORMAT, offset=8
        )
    if sums is not None:
        entries = _unseal(entries, metadata, spec, sums)
    return Header(entries, metadata, spec, len(head))


def size(head: bytes | memoryview, total: int, limits: Limits = DEFAULT) -> int:
    """The size of the header text, from the first 8 bytes of a file of `total` bytes."""
    if len(head) < 8:
        raise TruncatedError(
            "shorter than the 8 bytes of the header size", format=FORMAT, offset=len(head)
        )
    count = int.from_bytes(head[:8], "little")
    if count > limits.safetensors_header:
        allowed = limits.safetensors_header
        raise LimitError(
            f"a header of {count} bytes; Limits(safetensors_header=...) allows {allowed}",
            format=FORMAT,
            offset=0,
        )
    if count > total - 8:
        raise TruncatedError(f"a header of {count} bytes in {total}", format=FORMAT, offset=total)
    return count


def metadata_of(metadata: object) -> dict[str, str]:
    """What stands in `__metadata__`."""
    if not isinstance(metadata, dict) or not all(
        isinstance(text, str) for text in metadata.values()
    ):
        raise DecodeError("__metadata__ is not an object of strings", format=FORMAT, offset=8)
    return metadata


def ours_of(text: str) -> tuple[Any, Any]:
    """(spec, checksums or None) out of our own entry."""
    document = jsontext.parse(text.encode(), FORMAT, 8)
    if (
        not isinstance(document, dict)
        or document.get("version") != VERSION
        or not {"version", "spec"} <= document.keys() <= {"version", "spec", "crc32c"}
    ):
        version = document.get("version") if isinstance(document, dict) else None
        raise DecodeError(
            f"a tensorwire spec of version {version!r:.20}, which this release does not read",
            format=FORMAT,
            offset=8,
        )
    return document["spec"], document.get("crc32c")


def write(
    names: list[str],
    parts: list[Any],
    metadata: dict[str, str],
    ours: dict[str, Any] | None,
    sums: list[int] | None,
) -> bytes:
    """The header for tensors that are in the order of the file. `ours` goes into our own entry;
    `sums`, one a part, seal it.
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
    text = head[8:].rstrip(b" ") + SEAL
    pad = -(8 + len(text)) % ALIGN
    text = text[: -len(SEAL)] + b" " * pad + SEAL
    return len(text).to_bytes(8, "little") + text


def _escaped(names: list[str], parts: list[Any], texts: dict[str, str]) -> bytes:
    """What the kernel leaves to us: names that JSON must escape."""
    header: dict[str, Any] = {"__metadata__": texts} if texts else {}
    offset = 0
    for name, part in zip(names, parts, strict=True):
        if name == "__metadata__":
            raise EncodeError(
                "the name '__metadata__' is taken by the format", format=FORMAT, tensor=name
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
    """The CRC32C of everything that the header says, whatever its spelling."""
    tensors = {
        name: [entry.code, list(entry.shape), entry.start, entry.stop, entry.crc]
        for name, entry in sorted(entries.items())
    }
    return kernels.crc32c(jsontext.write([tensors, sorted(metadata.items()), spec]))


def _unseal(
    entries: dict[str, HeaderEntry], metadata: dict[str, str], spec: Node, sums: Any
) -> dict[str, HeaderEntry]:
    tensors = sums.get("tensors") if isinstance(sums, dict) else None
    if (
        not isinstance(tensors, dict)
        or tensors.keys() != entries.keys()
        or not all(type(crc) is int for crc in tensors.values())
    ):
        raise ChecksumError("the checksums are not those of these tensors", format=FORMAT, offset=8)
    checked = {name: entry._replace(crc=tensors[name]) for name, entry in entries.items()}
    if _canonical(checked, metadata, spec) != sums.get("header"):
        raise ChecksumError("the header does not match its checksum", format=FORMAT, offset=8)
    return checked


def _entry(name: str, fields: Any) -> HeaderEntry:
    def bad(why: str) -> DecodeError:
        return DecodeError(why, format=FORMAT, tensor=name, offset=8)

    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise bad("an entry has dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or not dtype:
        raise bad(f"a dtype is text, not {dtype!r:.40}")
    if not _integers(shape) or not _integers(offsets) or len(offsets) != 2:
        raise bad("shape and data_offsets are lists of integers, not negative")
    row = dtypes.BY_SAFETENSORS.get(dtype)
    packed = dtypes.BY_PACKED.get(dtype)
    if offsets[0] > offsets[1]:
        raise bad(f"the data_offsets {offsets} go back")
    try:
        bits = packed.bits if packed else 8 * row.numpy.itemsize if row else 0
        count = validate.elements(shape, DecodeError, -(-bits // 8) or 1) * bits
    except DecodeError as error:
        raise bad(error.message) from None
    if bits and 8 * (offsets[1] - offsets[0]) != count:
        why = f"{dtype} {shape} takes {count / 8:g} bytes, not {offsets[1] - offsets[0]}"
        raise bad(why)
    return HeaderEntry(dtype, row or packed, tuple(shape), offsets[0], offsets[1])


def _integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(entries: dict[str, HeaderEntry], available: int, base: int) -> None:
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != end:
            why = f"a hole or an overlap: begins at {entry.start}, not at {end}"
            raise DecodeError(
                why, format=FORMAT, tensor=name, offset=base + min(end, entry.start, available)
            )
        end = entry.stop
    if end > available:
        raise TruncatedError(
            f"the tensors take {end} bytes, and there are {available}",
            format=FORMAT,
            offset=base + available,
        )
    if end < available:
        raise DecodeError(
            f"{available - end} bytes behind the last tensor", format=FORMAT, offset=base + end
        )
