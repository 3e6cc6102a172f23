"""How numbers are written."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Three digits and a unit.

    >>> duration(0.0000123), duration(1.5)
    ('12.3 us', '1.50 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return (
                f"{seconds / scale:.3g} {unit}"
                if seconds / scale >= 100
                else f"{seconds / scale:#.3g} {unit}"
            )
    return f"{seconds * 1e9:.0f} ns"


def rate(a_second: float) -> str:
    """Three digits of how many a second.

    >>> rate(4_930_000), rate(33_100), rate(12)
    ('4.93 M/s', '33.1 k/s', '12.0 /s')
    """
    unit, scale = (
        ("M/s", 1e6) if a_second >= 1e6 else ("k/s", 1e3) if a_second >= 1e3 else ("/s", 1)
    )
    value = a_second / scale
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:#.3g} {unit}"


def ratio(value: float) -> str:
    """Two or three digits.

    >>> ratio(266_395), ratio(15.04), ratio(0.951), ratio(0.0002)
    ('266k', '15.0', '0.95', '<0.01')
    """
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return (
        f"{value:.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
        if value >= 0.005
        else "<0.01"
    )
