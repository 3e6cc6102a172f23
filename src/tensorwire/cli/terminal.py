"""What comes out: plain text in a pipe; on a terminal bars, and colours unless NO_COLOR is set,
with rich if that is installed.
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
    """Columns of the terminal, or what COLUMNS says, or 80."""
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdigit() and int(said):
        return int(said)
    try:
        return (
            os.get_terminal_size(sys.__stdout__.fileno()).columns or 80
            if sys.__stdout__ is not None
            else 80
        )
    except (AttributeError, ValueError, OSError):
        return 80


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # it is closed
        return False


def coloured(stream: TextIO | None = None) -> bool:
    """Whether colours go to standard output, or to another stream."""
    return is_terminal(sys.stdout if stream is None else stream) and not os.environ.get("NO_COLOR")


def true_colour() -> bool:
    """Whether the terminal has 24 bits of colour, as it says itself."""
    return coloured() and os.environ.get("COLORTERM") in ("truecolor", "24bit")


def unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") in (
        "utf8",
        "utf16",
        "utf32",
        "utf8sig",
    )


def say(*texts: object) -> None:
    """Prints text. What is in it from a file only shows: a name cannot move the cursor or paint the
    terminal.
    """
    for text in texts:
        shown = safe_lines(str(text))
        if not coloured() or not _rich_print(shown):
            print(shown)


def say_lines(lines: list[str]) -> None:
    """Lines that were made safe where they were made, and may have colours of their own."""
    for line in lines:
        if "\x1b" in line or not coloured() or not _rich_print(line):
            print(line)


def say_json(found: Any, indent: int | None = 2) -> None:
    """Prints JSON: always valid, always without control characters."""
    import json  # not every command needs it

    text = json.dumps(found, indent=indent, default=str)
    if not coloured() or not _rich_json(text):
        print(text)


def show(found: Any, as_json: bool) -> None:
    """A result that has both `json()` and `str()`."""
    if as_json:
        say_json(found.json())
    else:
        say(found)


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
    """One line on standard error."""
    with contextlib.suppress(OSError, ValueError):
        print(
            f"\x1b[31m{text}\x1b[0m" if coloured(sys.stderr) else text, file=sys.stderr, flush=True
        )


_MOMENT = 0.5
"""Seconds."""


class Bar(Protocol):
    def show(self, done: float, what: str) -> None:
        """`done` is from 0 to 1."""


class _RichBar:
    def __init__(self, progress: Any) -> None:
        self._progress, self._task = progress, progress.add_task("", total=1.0)

    def show(self, done: float, what: str) -> None:
        self._progress.update(self._task, completed=done, description=safe_lines(what))


@contextlib.contextmanager
def bar() -> Iterator[Bar | None]:
    """How far it is, on standard error; None if that is no terminal. It leaves nothing behind."""
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
    """The same for work on so many bytes of so many, which mostly is done before anyone would look:
    it begins after a moment.
    """
    if not is_terminal(sys.stderr):
        yield None
        return
    begun, shown = time.monotonic(), None
    with contextlib.ExitStack() as stack:

        def tell(done: int, total: int) -> None:
            nonlocal shown
            if shown is None and time.monotonic() - begun >= _MOMENT:
                shown = stack.enter_context(bar())
            if shown is not None:
                shown.show(done / max(1, total), f"{done:,} of {total:,} bytes")

        yield tell


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
