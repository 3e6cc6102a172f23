"""Text, numbers and sizes, formatted for people: short, and without control characters.

This module imports neither NumPy nor the rest of the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import SupportsFloat

_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def safe(text: str) -> str:
    """Escape all characters that are not printable, so that text cannot control a terminal.

    Cursor movements, colours and changes of direction become escape sequences.

    >>> safe("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    return (
        text
        if text.isprintable()
        else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    )


def safe_lines(text: str) -> str:
    """Escape text of several lines like `safe`, but keep the newlines."""
    return text if text.isprintable() else "\n".join(safe(line) for line in text.split("\n"))


def short(text: str, most: int) -> str:
    """Cut text to at most `most` characters.

    >>> short("a long story", 8)
    'a lon...'
    """
    return text if len(text) <= most else text[: max(most - 3, 0)] + "..."


def quoted(item: str | bytes, most: int = 60) -> str:
    """Return the repr of a string. A long one is cut and followed by its length.

    >>> quoted("x" * 99, 10), quoted(b"ab")
    ("'xxxxxxxxxx'... (99 characters)", "b'ab'")
    """
    head = repr(item[:most])
    if len(item) <= most:
        return safe(head)
    return f"{safe(head)}... ({len(item):,} {'characters' if isinstance(item, str) else 'bytes'})"


def number(value: SupportsFloat | None, digits: int = 4) -> str:
    """Format a number: integers with thousands separators, floats with a few digits.

    >>> number(0.123456), number(12345678), number(None), number(1e-9)
    ('0.1235', '12,345,678', 'none', '1e-09')
    """
    if value is None:
        return "none"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    return f"{float(value):.{digits}g}"


def size(count: float, three_digits: bool = False) -> str:
    """Format a number of bytes with a unit.

    >>> size(999), size(1_240_000), size(1_240_000, three_digits=True)
    ('999 bytes', '1.2 MB', '1.24 MB')
    """
    for unit, name in _SIZES:
        if count >= unit * (0.9995 if three_digits else 1.0):
            return f"{_three(count / unit) if three_digits else f'{count / unit:.1f}'} {name}"
    return f"{count:.0f} byte{'s' * (round(count) != 1)}"


def share(part: int, whole: int) -> str:
    """Format a part of a whole as a percentage.

    >>> share(1, 4), share(1, 1_000_000), share(0, 0)
    ('25 %', '0.0001 %', '0 %')
    """
    return f"{100 * part / whole if whole else 0:.3g} %"


def shape(dims: Iterable[int | None]) -> str:
    """Format a shape. Unknown dimensions are question marks.

    >>> shape((2, None)), shape((3,)), shape(())
    ('(2, ?)', '(3,)', '()')
    """
    words = ["?" if dim is None else str(dim) for dim in dims]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def time(seconds: float) -> str:
    """Format a duration with a unit.

    >>> time(0.00312), time(12.5), time(0)
    ('3.12 ms', '12.5 s', '0 s')
    """
    for unit, name in _TIMES:
        if seconds >= unit * 0.9995:
            return f"{_three(seconds / unit)} {name}"
    return "0 s" if seconds == 0 else f"{_three(seconds / 1e-9)} ns"


def speed(count: float, seconds: float) -> str:
    """Format a throughput in bytes per second.

    >>> speed(1_000_000, 0.001)
    '1.00 GB/s'
    """
    return f"{size(count / seconds, three_digits=True)}/s" if seconds else "at once"


def times(a: float, b: float) -> str:
    """Format the ratio of a to b.

    >>> times(3.14, 1), times(250, 2)
    ('3.1x', '125x')
    """
    quotient = a / b if b else 1.0
    return f"{quotient:.1f}x" if quotient < 9.95 else f"{quotient:.0f}x"


def _three(number: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    return (
        f"{number:.2f}"
        if number < 9.995
        else f"{number:.1f}"
        if number < 99.95
        else f"{number:,.0f}"
    )
