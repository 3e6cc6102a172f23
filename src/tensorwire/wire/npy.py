"""npy headers, and the trailer that tensorwire appends to the data.

    93 "NUMPY" | version 1 0 | u16 length | dict as text, spaces, newline | data | trailer

1. The header is NumPy's: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, padded so
   that the data begins at a multiple of 64. Versions 2 and 3 have a u32 length, and 3 is UTF-8,
   which matters only for names of fields.
2. The dict is a Python literal. We parse the spellings that NumPy writes and reads, without eval. A
   regular expression reads the form that most files have, and a parser all others.
3. NumPy stops reading at the end of the data, so whatever npy cannot represent goes into a trailer:

       JSON text | u64 length of the text | u32 CRC32C of text and length | 93 "TWIRE1" 0a

4. A header whose data has a trailer contains MARK after the closing brace, which is white space to
   other readers. So a trailer that was cut off, or that another shape makes part of the data, is
   noticed. Without the mark nothing may follow the data.

Errors have an offset but no format, because npz files contain these headers too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .._errors import ChecksumError, DecodeError, LimitError, TruncatedError
from . import json as jsontext
from . import kernels

FORMAT = "npy"
MAGIC = b"\x93NUMPY"
ALIGN = 64
MARK = b"\t\t \t \t\t"
TRAILER = b"\x93TWIRE1\n"
_END = 8 + 4 + len(TRAILER)
"""Bytes of a trailer after its text."""
_DIGITS = 21
"""NumPy leaves room for this many digits of the first dimension, so that a file can grow."""

_N = b"(?:0|[1-9][0-9]{0,17})"
_PLAIN = re.compile(
    rb"""\{'descr': '([^'"\\\n]*)', 'fortran_order': (True|False), 'shape': \((|N,|(?:N, )+N)\), \}""".replace(
        b"N", _N
    )
)
"""The dict as NumPy writes it. For these headers `_careful` gives the same result, but slower."""
_SPACE = rb"(?:[ \t\r\n]|#[^\n]*(?:\n|\Z))*"
"""White space and comments."""
_OPEN = re.compile(_SPACE + rb"\{")
_KEY = re.compile(_SPACE + rb"""[uUrR]?(['"])([A-Za-z_0-9]*)\1""" + _SPACE + b":" + _SPACE)
_DESCR = re.compile(rb"""[uUrR]?(['"])([^'"\\\n]*)\1""")
_BOOL = re.compile(rb"True|False")
_TOKEN = re.compile(rb"""[\[\](),]|[-0-9A-Za-z_]+|[uUrR]?'[^'\\\n]*'|[uUrR]?"[^"\\\n]*\"""")
"""A token of the descr of a structured array."""
_COMMA = re.compile(_SPACE + b",")
_CLOSE = re.compile(_SPACE + b",?" + _SPACE + rb"\}")
_DIGITS_OF = rb"0[xX](?:_?[0-9a-fA-F]){1,16}|0[oO](?:_?[0-7]){1,22}|0[bB](?:_?[01]){1,64}"
_DIM = re.compile(rb"(-?)(" + _DIGITS_OF + rb"|0+|[1-9](?:_?[0-9]){0,18})L?(?![0-9A-Za-z_.])")
_GAP = re.compile(_SPACE)
_REST = re.compile(_SPACE + rb"\Z")


class NpyHeader(NamedTuple):
    """A parsed header. The caller checks that it matches the data."""

    descr: str
    fortran: bool
    shape: tuple[int, ...]
    size: int
    """Bytes before the data."""
    marked: bool
    """Whether a trailer must follow the data."""


def write(descr: str, shape: tuple[int, ...], marked: bool = False) -> bytes:
    """Return the header that NumPy writes, byte for byte, with MARK if `marked`.

    >>> write("<f4", (2, 3))[:69]
    b"\\x93NUMPY\\x01\\x00v\\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    """
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += MARK if marked else b""
    text += b" " * (_DIGITS - len(str(shape[0])) if shape else 0)
    # Like NumPy, this adds 64 spaces if no padding is needed.
    size = len(text) + 1 + ALIGN - (10 + len(text) + 1) % ALIGN
    return MAGIC + b"\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"


def size(head: bytes | memoryview, most: int, base: int = 0) -> int:
    """Return the bytes before the data, given the first 12 bytes of a file.

    Raises LimitError if the text of the header has more than `most` bytes.
    """
    start = bytes(head[:12])
    if start[:6] != MAGIC[: len(start)]:
        raise DecodeError("not an npy file: wrong magic bytes (93 'NUMPY' expected)", offset=base)
    if len(start) < 10:
        raise TruncatedError("the npy header is truncated", offset=base + len(start))
    if start[6] not in (1, 2, 3) or start[7]:
        raise DecodeError(
            f"unsupported npy version {start[6]}.{start[7]}: supported are 1.0, 2.0 and 3.0",
            offset=base + 6,
        )
    wide = start[6] > 1
    if wide and len(start) < 12:
        raise TruncatedError("the npy header is truncated", offset=base + len(start))
    count = int.from_bytes(start[8:12] if wide else start[8:10], "little")
    if count > most:
        raise LimitError(
            f"the npy header has {count} bytes, and the limit is {most}",
            offset=base + 8,
            hint="pass a larger Limits(npy_header=...)",
        )
    return (12 if wide else 10) + count


def read(head: bytes | memoryview, base: int = 0) -> NpyHeader:
    """Parse a complete header. `base` is where it begins in the input."""
    text = bytes(head)
    start = 12 if text[6] > 1 else 10
    plain = _PLAIN.match(text, start)
    if plain is not None:
        shape = tuple(map(int, plain[3].rstrip(b",").split(b", "))) if plain[3] else ()
        descr, fortran, end = plain[1].decode("latin-1"), plain[2] == b"True", plain.end()
    else:
        descr, fortran, shape, end = _careful(text, start, base)
    if _REST.match(text, end) is None:
        where = _GAP.match(text, end).end()  # type: ignore[union-attr]
        raise DecodeError("unexpected text after the dict of the npy header", offset=base + where)
    return NpyHeader(descr, fortran, shape, len(text), text.startswith(MARK, end))


def _careful(text: bytes, start: int, base: int = 0) -> tuple[str, bool, tuple[int, ...], int]:
    """Return (descr, fortran_order, shape, end of the dict) for any spelling of the dict."""

    def bad(why: str, place: int) -> DecodeError:
        return DecodeError(why, offset=base + min(place, len(text)))

    opened = _OPEN.match(text, start)
    if opened is None:
        raise bad("the npy header must be a dict with descr, fortran_order and shape", start)
    offset = opened.end()
    values: dict[str, Any] = {}
    while len(values) < 3:
        key = _KEY.match(text, offset)
        name = key[2].decode() if key else ""
        if key is None or name not in ("descr", "fortran_order", "shape"):
            raise bad("the npy header must have exactly descr, fortran_order and shape", offset)
        if name in values:
            raise bad(f"{name} appears twice in the npy header", offset)
        values[name], offset = _value(text, key.end(), name, bad)
        after = _COMMA.match(text, offset) if len(values) < 3 else _CLOSE.match(text, offset)
        if after is None:
            raise bad(
                f"{'comma' if len(values) < 3 else 'brace'} expected after {name} in the npy header",
                offset,
            )
        offset = after.end()
    return values["descr"], values["fortran_order"], values["shape"], offset


def _value(text: bytes, offset: int, name: str, bad: Any) -> tuple[Any, int]:
    """Return the value of a key and where it ends."""
    if name == "descr":
        match = _DESCR.match(text, offset)
        if match is None and text[offset : offset + 1] in (b"[", b"("):
            return _structured(text, offset, bad)
        if match is None:
            raise bad("descr must be a string or a list of fields", offset)
        return match[2].decode("latin-1"), match.end()
    if name == "fortran_order":
        match = _BOOL.match(text, offset)
        if match is None:
            raise bad("fortran_order must be True or False", offset)
        return match[0] == b"True", match.end()
    if text[offset : offset + 1] != b"(":
        raise bad("shape must be a tuple of integers", offset)
    return _dims(text, offset + 1, bad)


def _structured(text: bytes, offset: int, bad: Any) -> tuple[str, int]:
    """Return the descr of a structured array as written, and where it ends."""
    start, depth = offset, 0
    while True:
        token = _TOKEN.match(text, offset)
        if token is None:
            raise bad("descr must be a string or a list of fields", offset)
        depth += {b"[": 1, b"(": 1, b"]": -1, b")": -1}.get(token[0], 0)
        if depth == 0:
            return text[start : token.end()].decode("latin-1"), token.end()
        offset = _GAP.match(text, token.end()).end()  # type: ignore[union-attr]


def _dims(text: bytes, offset: int, bad: Any) -> tuple[tuple[int, ...], int]:
    """Return the dimensions after an opening parenthesis, and where the tuple ends."""
    dims: list[int] = []
    closed = False
    while not closed:
        offset = _GAP.match(text, offset).end()  # type: ignore[union-attr]
        if text[offset : offset + 1] == b")":
            return tuple(dims), offset + 1
        match = _DIM.match(text, offset)
        if match is None:
            raise bad("shape must contain only integers", offset)
        if match[1]:
            raise bad("shape has a negative dimension", offset)
        dims.append(int(match[2].decode(), 0))
        offset = _GAP.match(text, match.end()).end()  # type: ignore[union-attr]
        closed = text[offset : offset + 1] != b","
        offset += not closed
    if text[offset : offset + 1] == b")" and len(dims) > 1:
        return tuple(dims), offset + 1
    raise bad("shape must be a tuple" if len(dims) == 1 else "comma expected in shape", offset)


def write_trailer(fields: dict[str, Any]) -> bytes:
    """Return the trailer with these fields."""
    text = jsontext.write(fields)
    text += len(text).to_bytes(8, "little")
    return text + kernels.crc32c(text).to_bytes(4, "little") + TRAILER


def read_trailer(data: bytes | memoryview, base: int) -> Any:
    """Return the JSON value of a trailer. `data` is everything after the array, from `base` on."""
    end = len(data) - _END
    if end < 0 or bytes(data[-len(TRAILER) :]) != TRAILER:
        raise TruncatedError("the trailer after the data is truncated", offset=base + len(data))
    if int.from_bytes(data[end : end + 8], "little") != end:
        raise DecodeError("the length of the trailer after the data is wrong", offset=base + end)
    if kernels.crc32c(data[: end + 8]) != int.from_bytes(data[end + 8 : end + 12], "little"):
        raise ChecksumError("the trailer after the data does not match its checksum", offset=base)
    return jsontext.parse(data[:end], FORMAT, base)
