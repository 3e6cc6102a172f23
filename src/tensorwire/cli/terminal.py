"""Output of the commands: plain text in a pipe; on a terminal colours and progress bars.

1. Colours need a terminal and an unset NO_COLOR. They come from rich, if it is installed.
2. Results go to standard output; errors and progress bars go to standard error.
3. Text from files is escaped before it is printed, so that it cannot control the terminal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TextIO

from ..core.formatting import safe_lines


def width() -> int:
    """Return the value of COLUMNS, the width of the terminal in characters, or 80."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns):
        return int(columns)
    try:
        return (
            os.get_terminal_size(sys.__stdout__.fileno()).columns or 80
            if sys.__stdout__ is not None
            else 80
        )
    except (AttributeError, ValueError, OSError):
        return 80


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal that can move its cursor."""
    # isatty raises ValueError if the stream is closed.
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def coloured(stream: TextIO | None = None) -> bool:
    """Return whether to use colours on a stream, by default on standard output."""
    return is_terminal(sys.stdout if stream is None else stream) and not os.environ.get("NO_COLOR")


def true_colour() -> bool:
    """Return whether the terminal supports 24-bit colours, according to COLORTERM."""
    return coloured() and os.environ.get("COLORTERM") in ("truecolor", "24bit")


def unicode() -> bool:
    """Return whether standard output can encode every character."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") in (
        "utf8",
        "utf16",
        "utf32",
        "utf8sig",
    )


def say(*texts: object) -> None:
    """Print text with control characters escaped, since it may come from a file."""
    for text in texts:
        shown = safe_lines(str(text))
        if not coloured() or not _rich_print(shown):
            print(shown)


def say_lines(lines: list[str]) -> None:
    """Print lines that are escaped already and may contain colour codes."""
    for line in lines:
        if "\x1b" in line or not coloured() or not _rich_print(line):
            print(line)


def say_json(value: Any, indent: int | None = 2) -> None:
    """Print valid JSON, in which control characters are escaped."""
    import json

    text = json.dumps(value, indent=indent, default=str)
    if not coloured() or not _rich_json(text):
        print(text)


def show(result: Any, as_json: bool) -> None:
    """Print a result as text (`str()`) or as JSON (`json()`)."""
    if as_json:
        say_json(result.json())
    else:
        say(result)


@functools.cache
def _console() -> Any:
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(soft_wrap=True, emoji=False, markup=False)


def _rich_print(text: str) -> bool:
    console = _console()
    if console is None:
        return False
    console.print(text, highlight=True, soft_wrap=True, markup=False, emoji=False)
    return True


def _rich_json(text: str) -> bool:
    console = _console()
    if console is None:
        return False
    from rich.highlighter import JSONHighlighter

    console.print(JSONHighlighter()(text), soft_wrap=True)
    return True


def complain(text: str) -> None:
    """Print one line on standard error. Errors of the stream itself are ignored."""
    with contextlib.suppress(OSError, ValueError):
        print(
            f"\x1b[31m{text}\x1b[0m" if coloured(sys.stderr) else text, file=sys.stderr, flush=True
        )


_MOMENT = 0.5
"""Seconds before `bytes_bar` appears."""


class Bar(Protocol):
    """A progress bar."""

    def show(self, done: float, what: str) -> None:
        """Update the bar: `done` is from 0 to 1, `what` is a short description."""


class _RichBar:
    def __init__(self, progress: Any) -> None:
        self._progress, self._task = progress, progress.add_task("", total=1.0)

    def show(self, done: float, what: str) -> None:
        self._progress.update(self._task, completed=done, description=safe_lines(what))


@contextlib.contextmanager
def bar() -> Iterator[Bar | None]:
    """Show a progress bar on standard error until the block ends; None without a terminal."""
    if not is_terminal(sys.stderr):
        yield None
        return
    rich = _rich_bar() if coloured(sys.stderr) else None
    if rich is not None:
        with rich:
            yield _RichBar(rich)
        return
    from ..api.profiling.progress import ProfileProgress

    plain = ProfileProgress(True)
    try:
        yield plain
    finally:
        plain.close()


@contextlib.contextmanager
def bytes_bar() -> Iterator[Callable[[int, int], None] | None]:
    """Yield a progress callback (bytes done, bytes in total); None without a terminal.

    The bar appears after half a second, so that fast work shows none.
    """
    if not is_terminal(sys.stderr):
        yield None
        return
    begun, shown = time.monotonic(), None
    with contextlib.ExitStack() as stack:

        def callback(done: int, total: int) -> None:
            nonlocal shown
            if shown is None and time.monotonic() - begun >= _MOMENT:
                shown = stack.enter_context(bar())
            if shown is not None:
                shown.show(done / max(1, total), f"{done:,} of {total:,} bytes")

        yield callback


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        return None
    columns = (
        BarColumn(24),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.description}", markup=False),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
