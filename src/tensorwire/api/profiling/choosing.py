"""Which way is best, and why, in words.

Sizes are facts, so the smallest wins. Times are measured, and two that are within a tenth of each
other are the same: then the smaller way is taken, and of those that are as small the one whose
format stands first in the table, where those stand first that hold and say most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..._errors import choices
from ...core import formatting
from .. import values

if TYPE_CHECKING:
    from .result import Measurement

WHAT = ("size", "encode", "decode", "balanced")
NEAR = 1.1
"""Times within this factor are the same."""
ALIKE = 1.01
"""And sizes within this one."""
_TOLD = {"format", "compression", "dequantize"}


def best(
    measurements: Sequence[Measurement],
    what: str,
    lossy: bool,
    max_error: float | None,
    bandwidth: float,
) -> tuple[str, Measurement]:
    """(why, the way)"""
    if what not in WHAT:
        raise ValueError(f"no such aim {what!r}{choices(what, WHAT)}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth={bandwidth}: bytes a second, more than none")
    field = [one for one in measurements if not one.lossy or lossy or max_error is not None]
    if max_error is not None:
        field = [one for one in field if one.max_error <= max_error]
    if not field:
        raise LookupError(
            "no way was measured"
            + (" that loses nothing; lossy=True takes the others" if measurements else "")
        )
    if what == "size":
        found = min(field, key=lambda one: (one.size, one.decode_seconds))
        return _because_small(found, field), found
    cost = _costs(bandwidth)[what]
    found = _quickest(field, cost)
    reason = _because_balanced if what == "balanced" else _because_quick
    return reason(found, field, cost, what, bandwidth), found


def _costs(bandwidth: float) -> dict[str, Callable[[Measurement], float]]:
    return {
        "encode": lambda one: one.encode_seconds,
        "decode": lambda one: one.decode_seconds,
        "balanced": lambda one: one.total(bandwidth),
    }


def _quickest(field: list[Measurement], cost: Callable[[Measurement], float]) -> Measurement:
    order = list(values.formats())
    near = [one for one in field if cost(one) <= NEAR * min(map(cost, field))]
    small = [one for one in near if one.size <= ALIKE * min(one.size for one in near)]
    return min(
        small, key=lambda one: (order.index(one.format), one.compression is not None, cost(one))
    )


def _because_small(found: Measurement, field: list[Measurement]) -> str:
    says = [f"{found.way}: {_size(found)}"]
    others = [one for one in field if one.format != found.format]
    if others:
        second = min(others, key=lambda one: one.size)
        if second.size > found.size:
            says.append(f"the next format, {second.way}, takes {_more(second.size, found.size)}")
    says.append(
        f"{_error(found)}encodes in {formatting.time(found.encode_seconds)} and decodes in"
        f" {formatting.time(found.decode_seconds)}"
    )
    alike = [one for one in field if one.size <= ALIKE * found.size]
    quick = min(alike, key=lambda one: one.decode_seconds + one.encode_seconds)
    if (
        NEAR * (quick.decode_seconds + quick.encode_seconds)
        < found.decode_seconds + found.encode_seconds
    ):
        faster = formatting.times(
            found.decode_seconds + found.encode_seconds, quick.decode_seconds + quick.encode_seconds
        )
        says.append(f"{quick.way} takes {_more(quick.size, found.size)} and is {faster} as fast")
    return _sentence(says, found, field)


def _because_quick(
    found: Measurement,
    field: list[Measurement],
    cost: Callable[[Measurement], float],
    what: str,
    _: float,
) -> str:
    speed = f", {formatting.speed(found.nbytes, cost(found))}" if found.nbytes else ""
    says = [
        f"{found.way}: {what}s in"
        f" {formatting.time(cost(found))}{speed}{_compare(found, field, cost)}"
    ]
    if what == "decode" and found.view_seconds is not None:
        says.append(
            "without copy=True tw.loads gives views of the bytes, in"
            f" {formatting.time(found.view_seconds)}"
        )
    says.append(f"{_error(found)}{_size(found)}")
    return _sentence(says, found, field)


def _because_balanced(
    found: Measurement,
    field: list[Measurement],
    cost: Callable[[Measurement], float],
    _: str,
    bandwidth: float,
) -> str:
    steps = (
        f"{formatting.time(found.encode_seconds)} + {formatting.time(found.size / bandwidth)} +"
        f" {formatting.time(found.decode_seconds)}"
    )
    link = formatting.speed(bandwidth, 1)
    says = [
        f"{found.way}: {formatting.time(cost(found))} to encode, send at {link} and decode"
        f" ({steps}){_compare(found, field, cost)}"
    ]
    says.append(f"{_error(found)}{_size(found)}")
    return _sentence(says, found, field)


def _compare(
    found: Measurement, field: list[Measurement], cost: Callable[[Measurement], float]
) -> str:
    """How the others do: those that are as quick, and the next one that is not."""
    near = [one for one in field if one is not found and cost(one) <= NEAR * cost(found)]
    far = [one for one in field if cost(one) > NEAR * cost(found)]
    shown = ", ".join(one.way for one in near[:3]) + (
        f" and {len(near) - 3} more" if len(near) > 3 else ""
    )
    out = f", as {shown} within a tenth" if near else ""
    if far:
        second = min(far, key=cost)
        out += (
            f"; the next, {second.way}, takes {formatting.times(cost(second), cost(found))} as long"
        )
    return out


def _sentence(says: list[str], found: Measurement, field: list[Measurement]) -> str:
    told = [name for name in found.reading if name not in _TOLD]
    if told:
        says.append(
            "its bytes do not say everything: tw.loads must be given"
            f" {' and '.join(f'{name}=' for name in told)}"
        )
    if found.compression is None and any(one.compression is not None for one in field):
        smallest = min(
            (one for one in field if one.quantize == found.quantize), key=lambda one: one.size
        )
        if smallest.size * ALIKE > found.size:
            says.append("no compression makes it smaller by more than 1 %")
    return "; ".join(says) + "."


def _size(one: Measurement) -> str:
    """
    >>> from types import SimpleNamespace as of
    >>> [_size(of(size=size, nbytes=1000)) for size in (250, 900)]
    ['250 bytes, 4.0x smaller than in memory', '900 bytes, 10 % smaller than in memory']
    >>> _size(of(size=1001, nbytes=1000)), _size(of(size=3000, nbytes=1000)), _size(of(size=5,
    ...     nbytes=0))
    ('1,001 bytes, as in memory', '3,000 bytes, 3.0x as large as in memory', '5 bytes')
    """
    count = f"{one.size:,} bytes"
    if not one.nbytes or not one.size:
        return count
    if one.size * 2 <= one.nbytes:
        return f"{count}, {formatting.times(one.nbytes, one.size)} smaller than in memory"
    if one.size >= one.nbytes * 2:
        return f"{count}, {formatting.times(one.size, one.nbytes)} as large as in memory"
    percent = round(100 * (one.size / one.nbytes - 1))
    return (
        f"{count}, {abs(percent)} % {'smaller' if percent < 0 else 'larger'} than in memory"
        if percent
        else f"{count}, as in memory"
    )


def _error(found: Measurement) -> str:
    return (
        f"lossy, with errors up to {found.max_error:.3g} and {found.mean_error:.3g} in the mean; "
        if found.lossy
        else ""
    )


def _more(size: int, than: int) -> str:
    percent = (size / than - 1) * 100 if than else 0.0
    if percent >= 100:
        return f"{formatting.times(size, than)} as much"
    return (
        f"{size - than:,} bytes more"
        if percent < 0.1
        else f"{percent:.1f} % more"
        if percent < 9.95
        else f"{percent:.0f} % more"
    )
