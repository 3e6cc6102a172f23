"""A progress bar of one line on a terminal, which is removed at the end."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

_PAUSE = 0.1
_BAR = 24


class ProfileProgress:
    """Draws a bar on stderr, at most ten times a second, if `shown`; None for "if stderr is a
    terminal".
    """

    def __init__(self, shown: bool | None, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._shown = (
            (self._stream is not None and self._stream.isatty()) if shown is None else shown
        )
        self._last = 0.0

    def show(self, done: float, what: str) -> None:
        """Draws the bar. `done` is from 0 to 1."""
        now = time.monotonic()
        if not self._shown or now - self._last < _PAUSE:
            return
        self._last = now
        filled = int(_BAR * min(max(done, 0.0), 1.0))
        line = f"{'█' * filled}{'·' * (_BAR - filled)} {100 * min(done, 1.0):3.0f} % {what}"
        self._write("\r" + line[: shutil.get_terminal_size().columns - 1] + "\x1b[K")

    def close(self) -> None:
        if self._shown and self._last:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        # A terminal that is gone, or that lacks these characters, must not stop the measurements.
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeError, ValueError):
            self._shown = False
