"""Text from anywhere, made fit to be shown. This needs nothing, not even NumPy."""

from __future__ import annotations


def safe(text: str) -> str:
    """Text that a terminal only shows: what would move its cursor or change its colours, or its
    direction, is written as an escape.

    >>> safe("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    )


def safe_lines(text: str) -> str:
    """The same, for text of many lines."""
    return text if text.isprintable() else "\n".join(safe(line) for line in text.split("\n"))


def short(text: str, most: int) -> str:
    """
    >>> short("a long story", 8)
    'a lon...'
    """
    return text if len(text) <= most else text[: max(most - 3, 0)] + "..."
