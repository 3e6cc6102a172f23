"""Which format bytes are in, and which format and compression a file's name asks for. The order is
documented in docs/formats.md.
"""

from __future__ import annotations

import os
import re
from typing import Any

from .._errors import TruncatedError, UnknownFormatError
from .._limits import DEFAULT
from ..core import dtypes, memory
from ..wire import tfrecord
from . import FORMATS

HEAD = 64
"""Bytes that are enough to tell, if it is also known how many there are in all."""
_MAGICS = {
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",  # a zip of nothing
    b"ARROW1\0\0": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # the stream, which begins with a message
    b"PAR1": "parquet",
    b"\x0a\x0ctensorwire/1": "protobuf",
    b"\x89HDF\r\n\x1a\n": "keras",
}
_MARKS = {bytes([byte]) for byte in (0x1F, 0x28, 0x04, *range(0x50, 0x60))}
"""First bytes of gzip, zstd, lz4 and of what zstd and lz4 skip: with any other, the compressions
need not be imported.
"""
_STEP = re.compile(r"(\.ckpt)-\d+\Z", re.A)
"""Checkpoints are numbered: model.ckpt-1000."""
_SPACE = b" \t\r\n"
_JSON = b"{["
"""An object or a list. Any few bytes may happen to be a number, so a bare one has to be named."""


def recognise(data: Any, size: int | None = None) -> str:
    """The name of the format that bytes are in; UnknownFormatError if none fits.

    The first bytes are enough if `size` says how many there are in all.

    >>> recognise(b"\\x08\\x01\\x12\\x00\\x22\\x04\\x00\\x00\\x80?")
    'tensorproto'
    """
    view = memory.flat(data)
    total = len(view) if size is None else size
    start = bytes(view[:HEAD])
    for magic, name in _MAGICS.items():
        if start.startswith(magic):
            return "keras" if name == "npz" and _is_keras(start) else name
    if _is_safetensors(start):
        header = int.from_bytes(start[:8], "little")
        if header > total - 8:
            raise TruncatedError(
                f"a safetensors header of {header} bytes in {total}",
                format="safetensors",
                offset=total,
            )
        return "safetensors"
    if (
        len(start) > 1
        and start[0] == 0x08
        and (start[1] in dtypes.BY_TF or start[1] in (dtypes.STRING, dtypes.VARIANT))
    ):
        return "tensorproto"  # which then parses strictly, or says where it does not
    text = start.lstrip(_SPACE)
    if text and text[0] in _JSON:
        return "json"
    if not start:
        raise UnknownFormatError("there is nothing to read: 0 bytes", offset=0)
    if tfrecord.is_header(start):
        hint = (
            "tw.read_examples gives its Examples as columns, tw.RecordReader its records as bytes"
        )
        raise UnknownFormatError("this is a TFRecord file: records, not tensors by name", hint=hint)
    known = ", ".join(row.name for row in FORMATS.values() if row.recognised)
    raise UnknownFormatError(
        f"these bytes ({start[:8].hex(' ')} ...) are in no format that is recognised ({known})",
        hint="pass format=",
    )


def _is_safetensors(start: bytes) -> bool:
    return (
        len(start) > 8
        and start[8] == ord("{")
        and int.from_bytes(start[:8], "little") <= DEFAULT.safetensors_header
    )


def _is_keras(start: bytes) -> bool:
    """Whether a zip is one of Keras's, by the name of its first member."""
    size = int.from_bytes(start[26:28], "little")
    return start[30 : 30 + size] in (b"metadata.json", b"config.json", b"model.weights.h5")


def compressed(data: Any, format: str | tuple[str, ...] | None = None) -> str | None:
    """The compression that the first bytes have the mark of. Bytes of a format that is never
    guessed may begin with any.

    >>> compressed(b"\\x1f\\x8b\\x08\\x00"), compressed(b"\\x1f\\x8b\\x08\\x00", "raw")
    ('gzip', None)
    """
    if isinstance(format, str) and format in FORMATS and not FORMATS[format].recognised:
        return None
    start = bytes(memory.flat(data)[:HEAD])
    # a safetensors header of 559,903 bytes looks like gzip's
    if _is_safetensors(start) or start[:1] not in _MARKS:
        return None
    from ..transforms import compression

    found = compression.recognise(start)
    return None if found == "zlib" else found  # whose mark is too weak


def has_checksum(compression: str | None, data: Any) -> bool:
    """Whether a stream in this compression notices when its data changes, by its first frame: zstd
    and lz4 may leave it out.
    """
    start = bytes(memory.flat(data)[:5])
    flagged = (
        len(start) == 5
        and start[:4] in (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
        and bool(start[4] & 4)
    )
    return compression in ("gzip", "zlib") or (compression in ("zstd", "lz4") and flagged)


def of_name(path: str | os.PathLike[str]) -> tuple[str | None, str | None]:
    """(format, compression) that a file's name asks for, None where it asks for none.

    >>> of_name("model.safetensors.zst"), of_name("x.npy"), of_name("README")
    (('safetensors', 'zstd'), ('npy', None), (None, None))
    """
    name = os.fspath(path)
    if plain := _suffixed(name):
        return plain, None
    from ..transforms import compression

    packed = compression.named_by(name)
    return _suffixed(os.path.splitext(name)[0]) if packed else None, packed


def _suffixed(name: str) -> str | None:
    name = _STEP.sub(r"\1", name)
    return next((row.name for row in FORMATS.values() if name.endswith(row.suffixes)), None)


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for, or an error that lists the names there are.

    >>> format_of("model.safetensors")
    'safetensors'
    """
    found, _ = of_name(path)
    if found is None:
        known = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
        raise UnknownFormatError(
            f"no format has files named like this (known: {known})",
            path=os.fspath(path),
            hint="pass format=",
        )
    return found
