"""tf.io.decode_raw, encode_base64 and decode_base64."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from .._errors import DecodeError, SchemaError
from ..core import dtypes
from ..core.dtypes import DTypeLike
from ..core.tensors import Array, Strings, TensorLike
from . import arguments


def decode_raw(
    input_bytes: TensorLike,
    out_type: DTypeLike,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> Array:
    r"""Reinterpret the bytes of each string as numbers: a tensor of shape S becomes S + [n].

    All strings must have the same length, unless `fixed_length` truncates or zero-pads them. Raises
    DecodeError for strings that do not fit the dtype.

    >>> import tensorwire as tw
    >>> tw.io.decode_raw([b"\x01\x00", b"\x02\x00"], "int16")
    array([[1],
           [2]], dtype=int16)
    """
    row = dtypes.named(out_type)
    strings = arguments.strings(input_bytes)
    item, lengths = row.numpy.itemsize, np.diff(strings.offsets)
    if fixed_length is not None:
        if fixed_length <= 0 or fixed_length % item:
            raise SchemaError(
                f"fixed_length={fixed_length} is not a positive multiple of the {item} bytes of"
                f" {row.name}"
            )
        width = fixed_length
    else:
        width = int(lengths[0]) if len(lengths) else 0
        if len(lengths) and (lengths != width).any():
            odd = int(np.flatnonzero(lengths != width)[0])
            raise DecodeError(
                f"string {odd} has {lengths[odd]} bytes, but the first has {width}",
                format="raw",
                hint="fixed_length= truncates and pads",
            )
        if width % item:
            raise DecodeError(
                f"strings of {width} bytes are not a multiple of the {item} bytes of {row.name}",
                format="raw",
            )
    cells: Array = np.zeros((strings.size, width), np.uint8)
    used_lengths = np.minimum(lengths, width)
    used = np.arange(width) < used_lengths[:, None]
    cells[used] = strings.data[(strings.offsets[:-1, None] + np.arange(width))[used]]
    bad = dtypes.noncanonical(row, cells.reshape(-1))
    if bad is not None:
        raise DecodeError(f"a byte is not a valid {row.name}", format="raw", offset=bad)
    numbers = cells.reshape(-1).view(row.numpy).reshape(*strings.shape, width // item)
    return numbers if little_endian or item == 1 else numbers.byteswap()


def encode_base64(input: TensorLike, pad: bool = False, name: str | None = None) -> Any:
    r"""Encode each string in the URL-safe alphabet, without padding unless `pad`.

    >>> import tensorwire as tw
    >>> tw.io.encode_base64(b"\xfb\xff"), tw.io.encode_base64([b"a"], pad=True)
    (b'-_8', array([b'YQ=='], dtype=object))
    """
    encoded = [
        base64.urlsafe_b64encode(item) for item in arguments.strings(input).reshape(-1).tolist()
    ]
    return _like(input, encoded if pad else [item.rstrip(b"=") for item in encoded])


def decode_base64(input: TensorLike, name: str | None = None) -> Any:
    r"""Decode the result of `encode_base64`, with or without padding.

    Raises DecodeError for strings that are not URL-safe base64.

    >>> import tensorwire as tw
    >>> tw.io.decode_base64(b"-_8")
    b'\xfb\xff'
    """
    return _like(
        input,
        [
            _decode64(item, number)
            for number, item in enumerate(arguments.strings(input).reshape(-1).tolist())
        ],
    )


_URL_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def _decode64(item: bytes, number: int) -> bytes:
    body = item.rstrip(b"=")
    padding = len(item) - len(body)
    bad = next((index for index, byte in enumerate(body) if byte not in _URL_SAFE), None)
    if bad is not None:
        raise DecodeError(
            f"string {number} has {body[bad : bad + 1]!r}, which is not in the URL-safe alphabet",
            format="base64",
            offset=bad,
        )
    if len(body) % 4 == 1 or (padding and (padding > 2 or len(item) % 4)):
        raise DecodeError(
            f"string {number} has an invalid length for base64", format="base64", offset=len(item)
        )
    try:
        return base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))
    except binascii.Error as error:
        raise DecodeError(f"string {number}: {error}", format="base64") from None


def _like(given: TensorLike, items: list[bytes]) -> Any:
    shape = arguments.strings(given).shape
    return arguments.objects(Strings.of(items, shape, text=False)) if shape else items[0]
