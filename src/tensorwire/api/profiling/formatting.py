"""Figures as people write them."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def time(seconds: float) -> str:
    """
    >>> time(0.00312), time(12.5), time(0)
    ('3.12 ms', '12.5 s', '0 s')
    """
    for unit, name in _TIMES:
        if seconds >= unit * 0.9995:
            return f"{_three(seconds / unit)} {name}"
    return "0 s" if seconds == 0 else f"{_three(seconds / 1e-9)} ns"


def size(count: float) -> str:
    """
    >>> size(999), size(1_240_000)
    ('999 bytes', '1.24 MB')
    """
    for unit, name in _SIZES:
        if count >= unit * 0.9995:
            return f"{_three(count / unit)} {name}"
    return f"{count:.0f} byte{'s' * (round(count) != 1)}"


def speed(count: float, seconds: float) -> str:
    """
    >>> speed(1_000_000, 0.001)
    '1.00 GB/s'
    """
    return f"{size(count / seconds)}/s" if seconds else "at once"


def times(a: float, b: float) -> str:
    """How many times a is b.

    >>> times(3.14, 1), times(250, 2)
    ('3.1x', '125x')
    """
    quotient = a / b if b else 1.0
    return f"{quotient:.1f}x" if quotient < 9.95 else f"{quotient:.0f}x"


def _three(number: float) -> str:
    """Three digits that count, none of them an exponent."""
    return (
        f"{number:.2f}"
        if number < 9.995
        else f"{number:.1f}"
        if number < 99.95
        else f"{number:,.0f}"
    )
