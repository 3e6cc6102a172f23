"""The choice of the best candidate of a profile, with the reasons in words.

Sizes are exact, so the smallest one wins. Times are measured, and two times within a tenth of each
other count as equal: then the smaller candidate is chosen, and of equal sizes the one whose format
is first in the table of formats. Formats that hold more kinds of values come first in that table.
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
"""Times within this factor count as equal."""
ALIKE = 1.01
"""Sizes within this factor count as equal."""
_USUAL = {"format", "compression", "dequantize"}
"""The arguments of `tw.loads` that need no explanation."""


def best(
    measurements: Sequence[Measurement],
    what: str,
    lossy: bool,
    max_error: float | None,
    bandwidth: float,
) -> tuple[str, Measurement]:
    """(the reason, the best measurement)"""
    if what not in WHAT:
        raise ValueError(f"unknown purpose {what!r}{choices(what, WHAT)}")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth={bandwidth}: expected more than 0 bytes per second")
    field = [entry for entry in measurements if not entry.lossy or lossy or max_error is not None]
    if max_error is not None:
        field = [entry for entry in field if entry.max_error <= max_error]
    if not field:
        raise LookupError(
            "no lossless candidate was measured; pass lossy=True to choose a lossy one"
            if measurements
            else "no candidate was measured"
        )
    if what == "size":
        chosen = min(field, key=lambda entry: (entry.size, entry.decode_seconds))
        return _because_small(chosen, field), chosen
    cost = _costs(bandwidth)[what]
    chosen = _quickest(field, cost)
    reason = _because_balanced if what == "balanced" else _because_quick
    return reason(chosen, field, cost, what, bandwidth), chosen


def _costs(bandwidth: float) -> dict[str, Callable[[Measurement], float]]:
    return {
        "encode": lambda entry: entry.encode_seconds,
        "decode": lambda entry: entry.decode_seconds,
        "balanced": lambda entry: entry.total(bandwidth),
    }


def _quickest(field: list[Measurement], cost: Callable[[Measurement], float]) -> Measurement:
    order = list(values.formats())
    near = [entry for entry in field if cost(entry) <= NEAR * min(map(cost, field))]
    small = [entry for entry in near if entry.size <= ALIKE * min(entry.size for entry in near)]
    return min(
        small,
        key=lambda entry: (order.index(entry.format), entry.compression is not None, cost(entry)),
    )


def _because_small(best: Measurement, field: list[Measurement]) -> str:
    reasons = [f"{best.way}: {_size(best)}"]
    others = [entry for entry in field if entry.format != best.format]
    if others:
        second = min(others, key=lambda entry: entry.size)
        if second.size > best.size:
            reasons.append(f"the next format, {second.way}, takes {_more(second.size, best.size)}")
    reasons.append(
        f"{_error(best)}encodes in {formatting.time(best.encode_seconds)} and decodes in"
        f" {formatting.time(best.decode_seconds)}"
    )
    alike = [entry for entry in field if entry.size <= ALIKE * best.size]
    quick = min(alike, key=lambda entry: entry.decode_seconds + entry.encode_seconds)
    if (
        NEAR * (quick.decode_seconds + quick.encode_seconds)
        < best.decode_seconds + best.encode_seconds
    ):
        faster = formatting.times(
            best.decode_seconds + best.encode_seconds, quick.decode_seconds + quick.encode_seconds
        )
        reasons.append(f"{quick.way} takes {_more(quick.size, best.size)} and is {faster} as fast")
    return _sentence(reasons, best, field)


def _because_quick(
    best: Measurement,
    field: list[Measurement],
    cost: Callable[[Measurement], float],
    what: str,
    _: float,
) -> str:
    speed = f", {formatting.speed(best.nbytes, cost(best))}" if best.nbytes else ""
    reasons = [
        f"{best.way}: {what}s in {formatting.time(cost(best))}{speed}{_compare(best, field, cost)}"
    ]
    if what == "decode" and best.view_seconds is not None:
        reasons.append(
            "without copy=True tw.loads gives views of the bytes, in"
            f" {formatting.time(best.view_seconds)}"
        )
    reasons.append(f"{_error(best)}{_size(best)}")
    return _sentence(reasons, best, field)


def _because_balanced(
    best: Measurement,
    field: list[Measurement],
    cost: Callable[[Measurement], float],
    _: str,
    bandwidth: float,
) -> str:
    steps = (
        f"{formatting.time(best.encode_seconds)} + {formatting.time(best.size / bandwidth)} +"
        f" {formatting.time(best.decode_seconds)}"
    )
    link = formatting.speed(bandwidth, 1)
    reasons = [
        f"{best.way}: {formatting.time(cost(best))} to encode, send at {link} and decode"
        f" ({steps}){_compare(best, field, cost)}"
    ]
    reasons.append(f"{_error(best)}{_size(best)}")
    return _sentence(reasons, best, field)


def _compare(
    best: Measurement, field: list[Measurement], cost: Callable[[Measurement], float]
) -> str:
    """A comparison with the candidates that are as quick, and with the next one."""
    near = [entry for entry in field if entry is not best and cost(entry) <= NEAR * cost(best)]
    far = [entry for entry in field if cost(entry) > NEAR * cost(best)]
    shown = ", ".join(entry.way for entry in near[:3]) + (
        f" and {len(near) - 3} more" if len(near) > 3 else ""
    )
    out = f", as {shown} within a tenth" if near else ""
    if far:
        second = min(far, key=cost)
        out += (
            f"; the next, {second.way}, takes {formatting.times(cost(second), cost(best))} as long"
        )
    return out


def _sentence(reasons: list[str], best: Measurement, field: list[Measurement]) -> str:
    needed = [name for name in best.reading if name not in _USUAL]
    if needed:
        reasons.append(
            "its bytes do not describe the value: tw.loads needs"
            f" {' and '.join(f'{name}=' for name in needed)}"
        )
    if best.compression is None and any(entry.compression is not None for entry in field):
        smallest = min(
            (entry for entry in field if entry.quantize == best.quantize),
            key=lambda entry: entry.size,
        )
        if smallest.size * ALIKE > best.size:
            reasons.append("no compression makes it smaller by more than 1 %")
    return "; ".join(reasons) + "."


def _size(entry: Measurement) -> str:
    """The size in words.

    >>> from types import SimpleNamespace as of
    >>> [_size(of(size=size, nbytes=1000)) for size in (250, 900)]
    ['250 bytes, 4.0x smaller than in memory', '900 bytes, 10 % smaller than in memory']
    >>> _size(of(size=1001, nbytes=1000)), _size(of(size=3000, nbytes=1000)), _size(of(size=5,
    ...     nbytes=0))
    ('1,001 bytes, as in memory', '3,000 bytes, 3.0x as large as in memory', '5 bytes')
    """
    count = f"{entry.size:,} bytes"
    if not entry.nbytes or not entry.size:
        return count
    if entry.size * 2 <= entry.nbytes:
        return f"{count}, {formatting.times(entry.nbytes, entry.size)} smaller than in memory"
    if entry.size >= entry.nbytes * 2:
        return f"{count}, {formatting.times(entry.size, entry.nbytes)} as large as in memory"
    percent = round(100 * (entry.size / entry.nbytes - 1))
    return (
        f"{count}, {abs(percent)} % {'smaller' if percent < 0 else 'larger'} than in memory"
        if percent
        else f"{count}, as in memory"
    )


def _error(entry: Measurement) -> str:
    return (
        f"lossy, with errors up to {entry.max_error:.3g} and {entry.mean_error:.3g} in the mean; "
        if entry.lossy
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
