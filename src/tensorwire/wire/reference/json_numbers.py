"""Number formats, and exact conversion between their bits and decimals.

The kernels that use them are in json_write and json_read.
"""

from __future__ import annotations

import bisect
from functools import cache
from typing import NamedTuple

KINDS = (
    "float64", "float32", "float16", "bfloat16",
    "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float8_e4m3", "float8_e3m4",
    "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
    "int64", "int32", "int16", "int8", "int4", "int2",
    "uint64", "uint32", "uint16", "uint8", "uint4", "uint2", "bool",
)  # fmt: skip
"""Names in `dtypes`, in the order of native/src/json_numbers.h."""
WIDTHS = (8, 4, 2, 2, *(1,) * 11, 8, 4, 2, 1, 1, 1, 8, 4, 2, 1, 1, 1, 1)
"""Bytes of an element of each kind."""


class NumberForm(NamedTuple):
    """The bit layout of a float type."""

    mantissa: int
    bias: int
    sign: int
    """The sign bit; 0 if there is none."""
    most: int
    """The bits of the largest finite number. All smaller bit patterns are finite."""
    infinity: int
    """The bits of infinity; 0 if there is none."""
    nan: int
    """The bits of the usual positive NaN; 0 if there is none."""


FORMS = (
    NumberForm(
        52, 1023, 1 << 63, 0x7FEF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000
    ),
    NumberForm(23, 127, 0x8000_0000, 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000),
    NumberForm(10, 15, 0x8000, 0x7BFF, 0x7C00, 0x7E00),
    NumberForm(7, 127, 0x8000, 0x7F7F, 0x7F80, 0x7FC0),
    NumberForm(2, 15, 0x80, 0x7B, 0x7C, 0x7E),
    NumberForm(3, 7, 0x80, 0x7E, 0, 0x7F),
    # The three fnuz types: the bits of -0 are the only NaN.
    NumberForm(3, 8, 0x80, 0x7F, 0, 0x80),
    NumberForm(3, 11, 0x80, 0x7F, 0, 0x80),
    NumberForm(2, 16, 0x80, 0x7F, 0, 0x80),
    # float8_e8m0fnu: only powers of two, without a sign and without zero.
    NumberForm(0, 127, 0, 0xFE, 0, 0xFF),
    NumberForm(3, 7, 0x80, 0x77, 0x78, 0x7C),
    NumberForm(4, 3, 0x80, 0x6F, 0x70, 0x78),
    NumberForm(3, 1, 0x20, 0x1F, 0, 0),
    NumberForm(2, 3, 0x20, 0x1F, 0, 0),
    NumberForm(1, 1, 0x8, 0x7, 0, 0),
)


def binary(form: NumberForm, size: int) -> tuple[int, int]:
    """Return (c, q) of a finite number without its sign, whose value is c * 2**q.

    >>> binary(FORMS[1], 0x3FC00000)  # 1.5
    (12582912, -23)
    """
    exponent, fraction = size >> form.mantissa, size & ((1 << form.mantissa) - 1)
    if not form.sign:
        return 1, exponent - form.bias
    return (fraction | 1 << form.mantissa if exponent else fraction), max(
        exponent, 1
    ) - form.bias - form.mantissa


def shortest(form: NumberForm, size: int) -> tuple[str, int]:
    """Return (digits, point) of the shortest decimal that is read back as these bits.

    The number is 0.digits * 10**point. Of several shortest decimals it is the nearest one. The
    example is the float32 and the float64 nearest to 0.1.

    >>> shortest(FORMS[1], 0x3DCCCCCD), shortest(FORMS[0], 0x3FB999999999999A)
    (('1', 0), ('1', 0))
    """
    c, q = binary(form, size)
    # Decimals that are nearer than half of the distance to a neighbour are read back as these bits,
    # and those at exactly half if c is even. The neighbour below a power of two is at half the
    # distance of the one above. The bounds are multiples of 2**(q - 2), so that they are integers.
    power = not form.sign or (size & ((1 << form.mantissa) - 1) == 0 and size >> form.mantissa > 1)
    low, value, high = 4 * c - (1 if power else 2), 4 * c, 4 * c + 2
    # Start with a power of ten that has no multiple within the bounds, and reduce it.
    k = len(str(high << max(q - 2, 0)))
    while not _multiples(low, value, high, q, k, c & 1 == 1):
        k -= 1
    # A multiple of the next smaller power may be nearer without being longer: 9e-41 rather than
    # 1e-40. Of two that are equally near, the even one is taken.
    candidates = [10 * m for m in _multiples(low, value, high, q, k, c & 1 == 1)] + _multiples(
        low, value, high, q, k - 1, c & 1 == 1
    )
    up, down = _scale(q, k - 1)
    m = min(
        candidates,
        key=lambda m: (
            len(str(m).rstrip("0")),
            abs(m * down - value * up),
            int(str(m).rstrip("0")) & 1,
        ),
    )
    return str(m).rstrip("0"), len(str(m)) + k - 1


def _scale(q: int, k: int) -> tuple[int, int]:
    """Return 2**(q - 2) / 10**k as a fraction."""
    return (1 << max(q - 2, 0)) * 10 ** max(-k, 0), (1 << max(2 - q, 0)) * 10 ** max(k, 0)


def _multiples(low: int, value: int, high: int, q: int, k: int, open_: bool) -> list[int]:
    """Return the multiples of 10**k next to a value that lie within the bounds."""
    up, down = _scale(q, k)
    below = value * up // down
    return [
        m
        for m in (below, below + 1)
        if m and (low * up < m * down < high * up if open_ else low * up <= m * down <= high * up)
    ]


@cache
def _values(kind: int) -> list[float]:
    """Return all finite numbers of a small type by their bits, and the one that would follow."""
    form = FORMS[kind]
    return [c * 2.0**q for c, q in (binary(form, size) for size in range(form.most + 2))]


def small(kind: int, value: float) -> int | None:
    """Return the bits of the number nearest to a finite float64, ties to even.

    Returns None if the number is out of range, or if the type has no such sign.

    >>> hex(small(2, -0.1)), small(2, 65520.0)
    ('0xae66', None)
    """
    form, values, size = FORMS[kind], _values(kind), abs(value)
    index = bisect.bisect_left(values, size)
    if index == len(values):
        return None
    if index and values[index] != size:
        below, above = size - values[index - 1], values[index] - size
        index -= below < above or (below == above and index & 1 == 1)
    if index > form.most or (not form.sign and (value <= 0 or size < values[0] * 0.75)):
        return None
    negative = str(value).startswith("-") and (index > 0 or form.nan != form.sign)
    return index | (form.sign if negative else 0)
