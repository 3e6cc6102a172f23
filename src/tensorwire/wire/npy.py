"""The bytes around the numbers of an npy file: the header, which is text, and our trailer.

    93 "NUMPY" | version 1 0 | u16 length | {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } spaces, newline | data | trailer

The header is NumPy's, padded so that the data begins at a multiple of 64. It is a Python literal;
we read the part of Python that NumPy writes, by hand, and nothing else. Versions 2 and 3 have a u32
length, and 3 is UTF-8, which matters for names of fields only. Errors know their place, and leave
the format to the caller: npz files are made of these, too.

NumPy stops reading at the end of the data. So what it cannot say stands behind it, in a trailer

    JSON text | u64 length of the text | u32 CRC32C of text and length | 93 "TWIRE1" 0a

and a header that has one behind it says so by MARK, right behind its closing brace: white space to
everybody else. Cut off the trailer, or make it part of the data by another shape, and the mark
tells. Without a mark nothing may follow the data.
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
"""Bytes of a trailer behind its text."""
_DIGITS = 21
"""NumPy leaves room for a first dimension of so many digits, so that a file can grow."""

_N = b"(?:0|[1-9][0-9]{0,17})"
_PLAIN = re.compile(
    rb"""\{'descr': '([^'"\\\n]*)', 'fortran_order': (True|False), 'shape': \((|N,|(?:N, )+N)\), \}""".replace(
        b"N", _N
    )
)
"""The dict as NumPy spells it, which is what most files have; the same as the careful way, and
quicker.
"""
_SPACE = rb"(?:[ \t\r\n]|#[^\n]*(?:\n|\Z))*"
"""White space and comments."""
_OPEN = re.compile(_SPACE + rb"\{")
_KEY = re.compile(_SPACE + rb"""[uUrR]?(['"])([A-Za-z_0-9]*)\1""" + _SPACE + b":" + _SPACE)
_DESCR = re.compile(rb"""[uUrR]?(['"])([^'"\\\n]*)\1""")
_BOOL = re.compile(rb"True|False")
_TOKEN = re.compile(rb"""[\[\](),]|[-0-9A-Za-z_]+|[uUrR]?'[^'\\\n]*'|[uUrR]?"[^"\\\n]*\"""")
"""What the descr of a structured array is made of."""
_COMMA = re.compile(_SPACE + b",")
_CLOSE = re.compile(_SPACE + b",?" + _SPACE + rb"\}")
_DIGITS_OF = rb"0[xX](?:_?[0-9a-fA-F]){1,16}|0[oO](?:_?[0-7]){1,22}|0[bB](?:_?[01]){1,64}"
_DIM = re.compile(rb"(-?)(" + _DIGITS_OF + rb"|0+|[1-9](?:_?[0-9]){0,18})L?(?![0-9A-Za-z_.])")
_GAP = re.compile(_SPACE)
_REST = re.compile(_SPACE + rb"\Z")


class NpyHeader(NamedTuple):
    """What the text says; that it makes sense together with the data is for others to check."""

    descr: str
    fortran: bool
    shape: tuple[int, ...]
    size: int
    """Bytes up to the data."""
    marked: bool
    """Whether a trailer must follow the data."""


def write(descr: str, shape: tuple[int, ...], marked: bool = False) -> bytes:
    """The header that NumPy writes, byte for byte, unless it is marked.

    >>> write("<f4", (2, 3))[:69]
    b"\\x93NUMPY\\x01\\x00v\\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    """
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += MARK if marked else b""
    text += b" " * (_DIGITS - len(str(shape[0])) if shape else 0)
    # a whole line of spaces where none is needed, as NumPy has it
    size = len(text) + 1 + ALIGN - (10 + len(text) + 1) % ALIGN
    return MAGIC + b"\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"


def size(head: bytes | memoryview, most: int, base: int = 0) -> int:
    """Bytes up to the data, from the first 12 bytes; at most `most` of them text."""
    start = bytes(head[:12])
    if start[:6] != MAGIC[: len(start)]:
        raise DecodeError("an npy file begins with 93 'NUMPY'", offset=base)
    if len(start) < 10:
        raise TruncatedError("shorter than any npy header", offset=base + len(start))
    if start[6] not in (1, 2, 3) or start[7]:
        raise DecodeError(
            f"npy version {start[6]}.{start[7]}; there are 1.0, 2.0 and 3.0", offset=base + 6
        )
    wide = start[6] > 1
    if wide and len(start) < 12:
        raise TruncatedError("shorter than any npy header", offset=base + len(start))
    count = int.from_bytes(start[8:12] if wide else start[8:10], "little")
    if count > most:
        raise LimitError(
            f"a header of {count} bytes; Limits(npy_header=...) allows {most}", offset=base + 8
        )
    return (12 if wide else 10) + count


def read(head: bytes | memoryview, base: int = 0) -> NpyHeader:
    """The header, given whole. `base` is where it begins in the input."""
    text = bytes(head)
    start = 12 if text[6] > 1 else 10
    plain = _PLAIN.match(text, start)
    if plain is not None:
        shape = tuple(map(int, plain[3].rstrip(b",").split(b", "))) if plain[3] else ()
        descr, fortran, at = plain[1].decode("latin-1"), plain[2] == b"True", plain.end()
    else:
        descr, fortran, shape, at = _careful(text, start, base)
    if _REST.match(text, at) is None:
        where = _GAP.match(text, at).end()  # type: ignore[union-attr]
        raise DecodeError("something else behind the dict of the header", offset=base + where)
    return NpyHeader(descr, fortran, shape, len(text), text.startswith(MARK, at))


def _careful(text: bytes, start: int, base: int = 0) -> tuple[str, bool, tuple[int, ...], int]:
    """(descr, fortran_order, shape, where the dict ends), in any spelling that Python allows and
    somebody might use.
    """

    def bad(why: str, where: int) -> DecodeError:
        return DecodeError(why, offset=base + min(where, len(text)))

    opened = _OPEN.match(text, start)
    if opened is None:
        raise bad("an npy header is a Python dict with descr, fortran_order and shape", start)
    at = opened.end()
    found: dict[str, Any] = {}
    while len(found) < 3:
        key = _KEY.match(text, at)
        name = key[2].decode() if key else ""
        if key is None or name not in ("descr", "fortran_order", "shape"):
            raise bad("an npy header has descr, fortran_order and shape, and nothing else", at)
        if name in found:
            raise bad(f"{name} stands twice in the header", at)
        found[name], at = _value(text, key.end(), name, bad)
        after = _COMMA.match(text, at) if len(found) < 3 else _CLOSE.match(text, at)
        if after is None:
            raise bad(
                f"{'no comma' if len(found) < 3 else 'no brace'} behind {name} in the header", at
            )
        at = after.end()
    return found["descr"], found["fortran_order"], found["shape"], at


def _value(text: bytes, at: int, name: str, bad: Any) -> tuple[Any, int]:
    """(value, where it ends)"""
    if name == "descr":
        match = _DESCR.match(text, at)
        if match is None and text[at : at + 1] in (b"[", b"("):
            return _structured(text, at, bad)
        if match is None:
            raise bad("descr is no string", at)
        return match[2].decode("latin-1"), match.end()
    if name == "fortran_order":
        match = _BOOL.match(text, at)
        if match is None:
            raise bad("fortran_order is neither True nor False", at)
        return match[0] == b"True", match.end()
    if text[at : at + 1] != b"(":
        raise bad("shape is not a tuple of integers", at)
    return _dims(text, at + 1, bad)


def _structured(text: bytes, at: int, bad: Any) -> tuple[str, int]:
    """The descr of a structured array as it is spelled, and where it ends."""
    start, depth = at, 0
    while True:
        token = _TOKEN.match(text, at)
        if token is None:
            raise bad("descr is neither a string nor a list of fields", at)
        depth += {b"[": 1, b"(": 1, b"]": -1, b")": -1}.get(token[0], 0)
        if depth == 0:
            return text[start : token.end()].decode("latin-1"), token.end()
        at = _GAP.match(text, token.end()).end()  # type: ignore[union-attr]


def _dims(text: bytes, at: int, bad: Any) -> tuple[tuple[int, ...], int]:
    """The dimensions of a tuple whose parenthesis is open, and where it ends."""
    dims: list[int] = []
    closed = False
    while not closed:
        at = _GAP.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == b")":
            return tuple(dims), at + 1
        match = _DIM.match(text, at)
        if match is None:
            raise bad("shape has something that is not a dimension", at)
        if match[1]:
            raise bad("shape has a negative dimension", at)
        dims.append(int(match[2].decode(), 0))
        at = _GAP.match(text, match.end()).end()  # type: ignore[union-attr]
        closed = text[at : at + 1] != b","
        at += not closed
    if text[at : at + 1] == b")" and len(dims) > 1:
        return tuple(dims), at + 1
    raise bad("shape is a number, not a tuple" if len(dims) == 1 else "a comma is missing", at)


def write_trailer(fields: dict[str, Any]) -> bytes:
    text = jsontext.write(fields)
    text += len(text).to_bytes(8, "little")
    return text + kernels.crc32c(text).to_bytes(4, "little") + TRAILER


def read_trailer(data: bytes | memoryview, base: int) -> Any:
    """What a trailer says: `data` is all that follows the numbers, and begins at `base`."""
    end = len(data) - _END
    if end < 0 or bytes(data[-len(TRAILER) :]) != TRAILER:
        raise TruncatedError("the trailer behind the data is not whole", offset=base + len(data))
    if int.from_bytes(data[end : end + 8], "little") != end:
        raise DecodeError(
            "the trailer behind the data has another length than it says", offset=base + end
        )
    if kernels.crc32c(data[: end + 8]) != int.from_bytes(data[end + 8 : end + 12], "little"):
        raise ChecksumError("the trailer behind the data does not match its checksum", offset=base)
    return jsontext.parse(data[:end], FORMAT, base)
