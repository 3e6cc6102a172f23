"""Nested lists of JSON numbers, written from an array."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ...core.memory import Array, flat
from .json_numbers import FORMS, KINDS, WIDTHS, shortest


def json_write_numbers(
    before: bytes,
    values: Any,
    kind: int,
    levels: tuple[int | Array, ...],
    bare: bool,
    indent: int,
    margin: int,
    after: bytes,
) -> bytes:
    if not 0 <= kind < len(KINDS):
        raise ValueError("no such kind of numbers")
    data, width = flat(values), WIDTHS[kind]
    if len(data) % width:
        raise ValueError("the levels do not fit the values")
    items = [text(kind, bits, bare) for bits in np.frombuffer(data, f"u{width}").tolist()]
    inmost = True
    for depth, bounds in reversed(list(enumerate(_bounds(levels, len(items))))):
        items = [
            _list(items[a:b], inmost, indent, margin + depth * max(indent, 0)) for a, b in bounds
        ]
        inmost = False
    return before + items[0].encode() + after


def _bounds(levels: tuple[int | Array, ...], count: int) -> list[list[tuple[int, int]]]:
    """Return for each depth the (start, stop) of the items of each list."""
    result, lists = [], 1
    for level in levels:
        if isinstance(level, int):
            bounds = [(i * level, (i + 1) * level) for i in range(lists)]
        else:
            if level.dtype != np.int64 or level.ndim != 1:
                raise TypeError("levels are lengths or int64 row_splits")
            splits = level.tolist()
            if len(splits) != lists + 1 or splits[0] != 0 or splits != sorted(splits):
                raise ValueError("the levels do not fit the values")
            bounds = list(zip(splits, splits[1:], strict=False))
        result.append(bounds)
        lists = bounds[-1][1] if bounds else 0
    if lists != count:
        raise ValueError("the levels do not fit the values")
    return result


def _list(items: list[str], inmost: bool, indent: int, margin: int) -> str:
    if indent < 0 or inmost or not items:
        return f"[{(',' if indent < 0 else ', ').join(items)}]"
    line = "\n" + " " * margin
    deeper = line + " " * indent
    return f"[{deeper}{(',' + deeper).join(items)}{line}]"


def text(kind: int, bits: int, bare: bool = False) -> str:
    """Return the text of one number.

    >>> text(KINDS.index("float32"), 0x3DCCCCCD), text(KINDS.index("int4"), 15)
    ('0.1', '-1')
    """
    name = KINDS[kind]
    if name == "bool":
        return "true" if bits else "false"
    if name.startswith(("int", "uint")):
        size = int(name.lstrip("uint"))
        bits &= (1 << size) - 1
        return str(bits - (1 << size) if name[0] == "i" and bits >> (size - 1) else bits)
    form = FORMS[kind]
    bits &= form.sign * 2 - 1 if form.sign else 0xFF
    size = bits & (form.sign - 1) if form.sign else bits
    negative = bits != size
    if size > form.most or (form.nan == form.sign and bits == form.nan and form.nan):
        word = (
            ("-Infinity" if negative else "Infinity") if size and size == form.infinity else "NaN"
        )
        return word if bare else f'"{word}"'
    if name == "float64":
        return repr(struct.unpack("<d", bits.to_bytes(8, "little"))[0])
    return ("-" if negative else "") + (
        "0.0" if not size and form.sign else lay_out(*shortest(form, size))
    )


def lay_out(digits: str, point: int) -> str:
    """Return 0.digits * 10**point as Python's repr writes it.

    >>> lay_out("15", 1), lay_out("15", -2), lay_out("15", 4), lay_out("15", -4), lay_out("1", 17)
    ('1.5', '0.0015', '1500.0', '1.5e-05', '1e+16')
    """
    if not -4 < point <= 16:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{fraction}e{point - 1:+03}"
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    return f"{digits[:point]:0<{point}}.{digits[point:] or '0'}"
